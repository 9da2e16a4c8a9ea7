from libc.stdint cimport uint32_t, uint8_t


# The CRC-32 of `crc`'s bytes followed by data[0:n]; start with crc = 0. Any alignment; n may be 0.
cdef uint32_t crc32(uint32_t crc, const uint8_t* data, size_t n) noexcept nogil
