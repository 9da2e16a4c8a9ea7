"""The page cache: checking whether a range of a file is cached, reading it without waiting, and loading it."""

from libc.stdint cimport int64_t, uint8_t


# Whether the range can be sent without waiting for the disk; one system call for any length. Pages that are being read count as
# present.
cdef bint resident(int fd, int64_t position, int64_t length) noexcept nogil
# Read the range if it is in the page cache. Returns `length`, less at the file's end, -1 if it is not cached or on an error.
cdef int64_t read_resident(int fd, uint8_t* out, int64_t length, int64_t position) noexcept nogil
# Like pread. Between `set_no_wait(True)` and `set_no_wait(False)` in a thread: -1 with EAGAIN instead of waiting for the disk.
cdef int64_t read_some(int fd, void* out, size_t length, int64_t position) noexcept nogil
cdef void set_no_wait(bint on) noexcept nogil
# Load the range into the page cache and wait for the disk. Returns 0 (also if the file ends earlier), or -errno.
cdef int fault_in(int fd, int64_t position, int64_t length) noexcept nogil
