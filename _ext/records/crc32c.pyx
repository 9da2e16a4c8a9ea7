"""CRC-32C, as every record batch carries it: the CPU's instruction where there is one, else software.

Runs in every process that appends, recovers or compacts. Holds only constant tables, filled at import.
"""

from libc.stdint cimport uint32_t, uint8_t


cdef extern from "records/crc32c_hw.h" nogil:
    int crc32c_hardware_found
    void crc32c_prepare()
    uint32_t crc32c_extend(uint32_t crc, const uint8_t* p, size_t n)
    uint32_t crc32c_extend_software(uint32_t crc, const uint8_t* p, size_t n)


cdef uint32_t crc32c(uint32_t crc, const uint8_t* data, size_t n) noexcept nogil:
    return crc32c_extend(crc, data, n)


def checksum(const uint8_t[::1] data not None, uint32_t crc=0):
    """The CRC-32C of `data` appended to what `crc` covers already (0 for nothing); bytes in, an unsigned 32-bit
    number out."""
    cdef uint32_t result = crc
    if data.shape[0]:
        with nogil:
            result = crc32c_extend(crc, &data[0], data.shape[0])
    return result


def checksum_software(const uint8_t[::1] data not None, uint32_t crc=0):
    """As `checksum`, never by the CPU's instruction: the fallback, reachable for tests on any machine."""
    if data.shape[0]:
        return crc32c_extend_software(crc, &data[0], data.shape[0])
    return crc


def uses_hardware():
    """Whether this CPU's own CRC-32C instruction is in use."""
    return bool(crc32c_hardware_found)


crc32c_prepare()
