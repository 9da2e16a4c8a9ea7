"""The system calls on log files, each by one function: a place to let any of them fail, and to note which file failed.

Each returns what the call returns, with errno. A call that fails in earnest is noted with its file in a small ring of the
process, so that whoever reports the error can name it (`take_failures`); that costs nothing where nothing fails. In the debug
build `SharedMemory.arm_file_fault` makes the n-th call fail; nothing of that is compiled into a release build.
"""

from posix.types cimport off_t


cpdef enum FileCall:              # bits: which calls an armed fault counts
    CALL_OPEN = 1                 # of a file that must be there
    CALL_CREATE = 2
    CALL_WRITE = 4
    CALL_SYNC = 8
    CALL_RENAME = 16
    CALL_TRUNCATE = 32
    CALL_UNLINK = 64
    CALL_READ = 128


cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len

cdef int file_open(int directory, const char* path, int flags) noexcept nogil        # O_CLOEXEC, mode 0644
cdef ssize_t file_pread(int fd, void* data, size_t n, off_t position) noexcept nogil
cdef ssize_t file_pwrite(int fd, const void* data, size_t n, off_t position) noexcept nogil
cdef ssize_t file_pwritev(int fd, const iovec* parts, int count, off_t position) noexcept nogil
cdef int file_truncate(int fd, off_t length) noexcept nogil
cdef int file_sync(int fd) noexcept nogil
cdef int file_data_sync(int fd) noexcept nogil
cdef int file_rename(int directory, const char* path, const char* new_path) noexcept nogil
cdef int file_unlink(int directory, const char* path) noexcept nogil

# An OSError of `error` (positive) that names the file of this thread's newest failure of that number, else `otherwise`.
cdef object file_error(int error, str otherwise)
