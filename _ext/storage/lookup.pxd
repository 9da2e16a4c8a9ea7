from libc.stdint cimport int32_t, int64_t


# Results of a look-up; negative numbers are errno.
cdef enum:
    LOOKUP_FOUND = 0
    LOOKUP_BEYOND = 1           # there is nothing below the limit
    LOOKUP_CORRUPT = 2          # a file of the log does not contain a batch where it should
    LOOKUP_COMPRESSED = 3       # the batch is known, but its records are compressed


# A message of format v0 or v1 counts as a batch. Of a compressed one only the last offset is known without decompression, and
# `base_offset` is set to the last offset.
cdef struct FoundBatch:
    int64_t position
    int64_t base_offset
    int64_t last_offset
    int64_t max_timestamp
    int32_t size
    int32_t partition_leader_epoch


cdef struct FoundRecord:
    int64_t offset
    int64_t timestamp
    int32_t partition_leader_epoch


# Find the batch that contains target_offset, or the first one after it if compaction removed that. size_limit: bytes of the log
# that may be read (the committed size, or the high watermark's position); index_entries: committed entries of the offset index.
cdef int find_position(int log_fd, int index_fd, int64_t index_entries, int64_t segment_base, int64_t size_limit,
                       int64_t target_offset, FoundBatch* out) noexcept nogil

# Find the last entry of an offset index that is not above target_offset. Returns 1 and *position, 0 if there is none, or -errno.
cdef int floor_index_entry(int index_fd, int64_t entries, int64_t segment_base, int64_t target_offset,
                           int64_t* offset, int64_t* position) noexcept nogil

# Find the first entry of an offset index whose batch begins at `position` or later, for an offset behind the records before it: the
# last offset of that batch. `size`: bytes of the segment. Returns 1 and *offset; 0 if there is none, or the entries around it do not
# ascend; or -errno.
cdef int find_offset_behind(int index_fd, int64_t entries, int64_t segment_base, int64_t position, int64_t size,
                            int64_t* offset) noexcept nogil

# Find the last entry of a time index that is not above target_timestamp. Returns 1 and *offset, 0 if there is none, or -errno.
cdef int floor_time_entry(int time_fd, int64_t entries, int64_t segment_base, int64_t target_timestamp,
                          int64_t* timestamp, int64_t* offset) noexcept nogil

# Find the first batch below size_limit whose largest timestamp is not below target_timestamp and that does not end before
# from_offset. To continue, pass its position + size as from_position.
cdef int find_timestamp_batch(int log_fd, int index_fd, int64_t index_entries, int time_fd, int64_t time_entries,
                              int64_t segment_base, int64_t size_limit, int64_t target_timestamp, int64_t from_offset,
                              int64_t from_position, FoundBatch* out) noexcept nogil

# Find the first record in the batch whose timestamp and offset are not below the given ones. Returns LOOKUP_BEYOND if there is
# none.
cdef int find_record(int log_fd, const FoundBatch* batch, int64_t target_timestamp, int64_t from_offset,
                     FoundRecord* out) noexcept nogil
