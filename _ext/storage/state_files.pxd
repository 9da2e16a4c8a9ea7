from libc.stdint cimport int32_t, int64_t

from odradek._ext.storage.log_state cimport LogState


# Reads a snapshot; its producers replace those in the state. Returns 0, 1 if it is corrupt, or -errno.
cdef int read_snapshot(LogState* state, int directory, int64_t offset) noexcept nogil
# Checks a snapshot without reading its producers into the state. Returns 0, 1 if it is corrupt, or -errno.
cdef int check_snapshot(int directory, int64_t offset) noexcept nogil

cdef int read_epochs(LogState* state, int directory) noexcept nogil
cdef int write_epochs(LogState* state, int directory) noexcept nogil
cdef int assign_epoch(LogState* state, int32_t epoch, int64_t start_offset) noexcept nogil
cdef int fit_epochs(LogState* state, int64_t log_start_offset, int64_t log_end_offset) noexcept nogil

# Replaces a small file by a temporary file and a rename, without fsync.
cdef int replace_small_file(LogState* state, int directory, const char* name, const char* temporary,
                            const void* content, size_t n) noexcept nogil

# Writes a name like "00000000000000000042.log"; `out` has room for 64 bytes.
cdef void file_name(char* out, int64_t base_offset, int kind, const char* suffix) noexcept nogil
