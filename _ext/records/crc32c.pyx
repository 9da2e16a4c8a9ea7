"""CRC-32C, as every record batch carries it: the CPU's instruction where there is one, else software.

Runs in every process that appends, recovers or compacts. Holds only constant tables, filled at import.
"""

from libc.stdint cimport uint32_t, uint8_t

from odradek._ext.protocol.byte_view cimport ByteView


cdef extern from "records/crc32c_hw.h" nogil:
    int crc32c_hardware_found
    void crc32c_prepare()
    uint32_t crc32c_extend(uint32_t crc, const uint8_t* p, size_t n)
    uint32_t crc32c_extend_software(uint32_t crc, const uint8_t* p, size_t n)


cdef uint32_t crc32c(uint32_t crc, const uint8_t* data, size_t n) noexcept nogil:
    return crc32c_extend(crc, data, n)


def checksum(data, uint32_t crc=0):
    """The CRC-32C of `data` appended to what `crc` covers already (0 for nothing); bytes in, an unsigned 32-bit
    number out."""
    cdef ByteView view = ByteView(data)
    cdef uint32_t result = crc
    if view.size:
        with nogil:
            result = crc32c_extend(crc, view.data, view.size)
    return result


def checksum_software(data, uint32_t crc=0):
    """As `checksum`, never by the CPU's instruction: the fallback, reachable for tests on any machine."""
    cdef ByteView view = ByteView(data)
    if view.size:
        return crc32c_extend_software(crc, view.data, view.size)
    return crc


def uses_hardware():
    """Whether this CPU's own CRC-32C instruction is in use."""
    return bool(crc32c_hardware_found)


crc32c_prepare()
