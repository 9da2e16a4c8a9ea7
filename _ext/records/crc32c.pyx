"""CRC-32C as in every record batch: computed by the CPU's instruction if there is one, else by software.

Used by every process that appends, recovers or compacts. Contains only constant tables, filled at import.
"""

from libc.stdint cimport uint32_t, uint8_t


cdef extern from "records/crc32c_hw.h" nogil:
    void crc32c_prepare()
    uint32_t crc32c_extend(uint32_t crc, const uint8_t* p, size_t n)


cdef uint32_t crc32c(uint32_t crc, const uint8_t* data, size_t n) noexcept nogil:
    return crc32c_extend(crc, data, n)


crc32c_prepare()
