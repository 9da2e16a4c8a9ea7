"""CRC-32 as in messages of format v0 and v1 (zlib's): computed by carry-less multiplication if the CPU has it, else by
software.

Used by every process that appends, recovers or reads old messages. Contains only a constant table, filled at import.
"""

from libc.stdint cimport uint32_t, uint8_t

from odradek._ext.protocol.byte_view cimport ByteView


cdef extern from "records/crc32_hw.h" nogil:
    void crc32_prepare()
    uint32_t crc32_extend(uint32_t crc, const uint8_t* p, size_t n)


cdef uint32_t crc32(uint32_t crc, const uint8_t* data, size_t n) noexcept nogil:
    return crc32_extend(crc, data, n)


def checksum(data, uint32_t crc=0) -> int:
    """The CRC-32 of the bytes that `crc` covers (0: none) followed by `data`, as an unsigned 32-bit number."""
    cdef ByteView view = ByteView(data)
    return crc32_extend(crc, view.data, view.size) if view.size else crc


crc32_prepare()
