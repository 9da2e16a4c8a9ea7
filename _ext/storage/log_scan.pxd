from libc.stdint cimport int64_t, uint32_t, uint8_t

from odradek._ext.records.record_batch cimport BatchInfo


# Results of a step through a log file; negative numbers are errno.
cdef enum:
    SCAN_BATCH = 0
    SCAN_END = 1                # exactly at the limit
    SCAN_CORRUPT = 2            # neither a batch of format v2 nor a message of format v0 or v1 fits here


# Reads a log file with pread through one buffer, which its owner provides. Reading ends at `size`.
cdef struct Scanner:
    int descriptor
    int64_t size
    uint8_t* buffer
    size_t capacity             # at least BATCH_HEADER_BYTES
    int64_t at                  # file position of buffer[0]
    size_t filled


cdef void scan_file(Scanner* scanner, int descriptor, int64_t size, uint8_t* buffer, size_t capacity) noexcept nogil

# Reads all of n bytes unless the file ends before. Returns the number of bytes read, or -errno.
cdef int64_t read_at(int descriptor, void* buffer, size_t n, int64_t position) noexcept nogil

# Writes all of n bytes. Returns 0, or -errno.
cdef int write_at(int descriptor, const void* buffer, size_t n, int64_t position) noexcept nogil

# Returns at least `need` bytes (at most `capacity`) from `position` on in memory; NULL with *error 0 if the limit is nearer, or
# with *error -errno.
cdef const uint8_t* scan_window(Scanner* scanner, int64_t position, size_t need, int* error) noexcept nogil

# Read the header of the batch (v2) or message (v0, v1: see `parse_message`) at `position`, which must end below the limit.
cdef int scan_batch(Scanner* scanner, int64_t position, BatchInfo* out) noexcept nogil

# Whether the checksum of the batch at `position` matches (CRC-32C; CRC-32 for old messages): 1, 0, or -errno. Batches larger than
# the buffer are read in pieces.
cdef int scan_crc(Scanner* scanner, int64_t position, const BatchInfo* info) noexcept nogil
