"""CRC-32, as messages of format v0 and v1 carry it (zlib's): by carry-less multiplication where the CPU has it, else software.

Runs in every process that takes in, recovers or opens old messages. Holds only a constant table, filled at import.
"""

from libc.stdint cimport uint32_t, uint8_t

from odradek._ext.protocol.byte_view cimport ByteView


cdef extern from "records/crc32_hw.h" nogil:
    void crc32_prepare()
    uint32_t crc32_extend(uint32_t crc, const uint8_t* p, size_t n)
    uint32_t crc32_extend_software(uint32_t crc, const uint8_t* p, size_t n)


cdef uint32_t crc32(uint32_t crc, const uint8_t* data, size_t n) noexcept nogil:
    return crc32_extend(crc, data, n)


def checksum(data, uint32_t crc=0):
    """The CRC-32 of `data` appended to what `crc` covers already (0 for nothing); an unsigned 32-bit number."""
    cdef ByteView view = ByteView(data)
    return crc32_extend(crc, view.data, view.size) if view.size else crc


def checksum_software(data, uint32_t crc=0):
    """As `checksum`, never by the CPU's instruction: the fallback, reachable for tests on any machine."""
    cdef ByteView view = ByteView(data)
    return crc32_extend_software(crc, view.data, view.size) if view.size else crc


crc32_prepare()
