"""Is a range of a file in the page cache, and reading it there or bringing it there."""

from libc.stdint cimport int64_t, uint8_t


# Whether sending the range would wait for no disk: one system call for any length. Pages being read count as present.
cdef bint resident(int fd, int64_t position, int64_t length) noexcept nogil
# Reads the range if it is in the page cache: `length`; fewer at the file's end; -1 if it is not cached, or on an error.
cdef int64_t read_resident(int fd, uint8_t* out, int64_t length, int64_t position) noexcept nogil
# As pread. Between `set_no_wait(True)` and `set_no_wait(False)` of the same thread: -1 with EAGAIN where it would wait for the disk.
cdef int64_t read_some(int fd, void* out, size_t length, int64_t position) noexcept nogil
cdef void set_no_wait(bint on) noexcept nogil
# Brings the range in, waiting for the disk: 0 (also where the file ends earlier), or -errno.
cdef int fault_in(int fd, int64_t position, int64_t length) noexcept nogil
