"""CRC-32C as in every record batch: computed by the CPU's instruction if there is one, else by software.

Used by every process that appends, recovers or compacts. Contains only constant tables, filled at import.
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
    """The CRC-32C of the bytes that `crc` covers (0: none) followed by `data`, as an unsigned 32-bit number."""
    cdef ByteView view = ByteView(data)
    cdef uint32_t result = crc
    if view.size:
        with nogil:
            result = crc32c_extend(crc, view.data, view.size)
    return result


def checksum_software(data, uint32_t crc=0):
    """Like `checksum`, but always by software: makes the fallback testable on any machine."""
    cdef ByteView view = ByteView(data)
    if view.size:
        return crc32c_extend_software(crc, view.data, view.size)
    return crc


def uses_hardware():
    """Whether the CPU's CRC-32C instruction is used."""
    return bool(crc32c_hardware_found)


crc32c_prepare()
