from libc.stdint cimport int64_t, uint32_t

from odradek._ext.storage.log_state cimport Array, LogState


# Finish what an interrupted swap, deletion or compaction left. Then fill state.segments (by base offset) and `snapshots` (int64
# offsets, ascending), and check whether there is a gap limit. `directory` is a descriptor of the partition's directory. Returns 0,
# or -errno.
cdef int settle_files(LogState* state, int directory, Array* snapshots) noexcept nogil

# Returns the size of the segments that a recovery from `recovery_point` reads, or -errno.
cdef int64_t bytes_to_recover(int directory, int64_t recovery_point) noexcept nogil

cdef int create_segment(LogState* state, int directory, int64_t base_offset) noexcept nogil
# Remove those files of a segment that `files` names, the log first.
cdef int remove_segment_files(LogState* state, int directory, int64_t base_offset, uint32_t files) noexcept nogil
cdef int remove_file(LogState* state, int directory, int64_t base_offset, int kind, const char* suffix) noexcept nogil
# Returns the file's size, or -errno.
cdef int64_t file_size(int directory, int64_t base_offset, int kind) noexcept nogil
cdef int open_file(int directory, int64_t base_offset, int kind, int flags) noexcept nogil
# Returns the creation time of a segment in ms of the wall clock, from the times of its files; -1 if these cannot be read.
cdef int64_t creation_time(int directory, int64_t base_offset) noexcept nogil
