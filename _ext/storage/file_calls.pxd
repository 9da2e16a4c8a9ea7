"""The system calls on log files, each in one function, so that a test can make any of them fail and a failure is noted with its
file.

Each function returns the result of the call and leaves errno set. A real failure is noted with its file in a small ring of the
process, so that an error report can name the file (`take_failures`); without failures this costs nothing. In the debug build
`SharedMemory.arm_file_fault` makes the n-th call fail; a release build contains nothing of that.
"""

from posix.stat cimport fstat, struct_stat
from posix.types cimport off_t
from posix.uio cimport iovec


cpdef enum FileCall:              # bits: the kinds of calls that an armed fault counts
    CALL_OPEN = 1                 # of an existing file
    CALL_CREATE = 2
    CALL_WRITE = 4
    CALL_SYNC = 8
    CALL_RENAME = 16
    CALL_TRUNCATE = 32
    CALL_UNLINK = 64
    CALL_READ = 128


cdef int file_open(int directory, const char* path, int flags) noexcept nogil        # adds O_CLOEXEC; mode 0644
cdef ssize_t file_pread(int fd, void* data, size_t n, off_t position) noexcept nogil
cdef ssize_t file_pwrite(int fd, const void* data, size_t n, off_t position) noexcept nogil
cdef ssize_t file_pwritev(int fd, const iovec* parts, int count, off_t position) noexcept nogil
cdef int file_truncate(int fd, off_t length) noexcept nogil
cdef int file_sync(int fd) noexcept nogil
cdef int file_data_sync(int fd) noexcept nogil
cdef int file_rename(int directory, const char* path, const char* new_path) noexcept nogil
cdef int file_unlink(int directory, const char* path) noexcept nogil

# An OSError for `error` (positive) that names the file of this thread's newest failure with that number, or else `otherwise`.
cdef object file_error(int error, str otherwise)


cdef inline off_t file_bytes(int fd) noexcept nogil:
    """Return the size of an open file, or -1."""
    cdef struct_stat status
    return status.st_size if fstat(fd, &status) == 0 else -1
