"""The system calls on log files; see file_calls.pxd. Any process, any thread; each process has its own ring of failures."""

import os

from libc cimport errno as c_errno
from libc.errno cimport EAGAIN, EEXIST, EINTR, EMFILE, ENFILE, ENOENT
from libc.stdint cimport int64_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memset
from posix.fcntl cimport O_CLOEXEC, O_CREAT, openat
from posix.types cimport off_t
from posix.uio cimport iovec, pwritev
from posix.unistd cimport fdatasync, fsync, ftruncate, pwrite, readlink

from odradek._ext.shm.atomics cimport (
    FAULTS_COMPILED,
    copy_words,
    fence_acquire,
    fence_release,
    fetch_add_64,
    fill_words,
    load_acquire_64,
    load_relaxed_64,
    shared_u64,
    store_relaxed_64,
    store_release_64,
)
from odradek._ext.shm.c_library cimport this_thread
from odradek._ext.shm.layout cimport region
from odradek._ext.storage.page_cache cimport read_some


cdef extern from "<unistd.h>" nogil:
    int unlinkat(int directory, const char* path, int flags)

cdef extern from "<stdio.h>" nogil:
    int renameat(int from_directory, const char* from_path, int to_directory, const char* to_path)


cdef enum:
    FAILURES_KEPT = 16
    PATH_ROOM = 512

cdef struct FailedCall:
    unsigned long thread
    const char* call
    int64_t error
    char[PATH_ROOM] path

cdef struct Failure:
    shared_u64 number                 # 1 + its number in the sequence of failures; 0 while the failed call is being filled
    shared_u64 reported               # its number if an OSError names it: the code that catches the exception reports it
    FailedCall failed


cdef Failure[FAILURES_KEPT] failures
cdef shared_u64 failure_count
cdef uint64_t taken_count = 0


cdef bint injected(uint64_t kind) noexcept nogil:
    """Whether an armed fault makes this call fail; sets errno. Debug build only."""
    cdef shared_u64* armed
    cdef uint64_t number, calls
    if region().header == NULL:
        return False
    armed = region().header.file_fault
    if armed[3] & kind == 0:
        return False
    number = load_relaxed_64(&armed[0])
    calls = fetch_add_64(&armed[4], 1) + 1
    if number == 0 or calls < armed[1] or calls >= armed[1] + armed[2]:
        return False
    c_errno.errno = <int>number
    return True


cdef void note(const char* call, int directory, const char* path) noexcept nogil:
    """Note a failed call and leave errno unchanged. `path` NULL: `directory` is the descriptor of the file itself."""
    cdef int error = c_errno.errno
    cdef Failure* failure
    cdef FailedCall failed
    cdef char[64] link
    cdef ssize_t n
    cdef uint64_t number
    if error == ENOENT or error == EINTR or error == EAGAIN or error == EEXIST or error == EMFILE or error == ENFILE:
        return                          # ordinary results, not failures
    memset(&failed, 0, sizeof(failed))
    snprintf(link, 64, "/proc/self/fd/%d", directory)
    n = max(readlink(link, failed.path, PATH_ROOM - 1), 0)
    if path != NULL:
        snprintf(failed.path + n, <size_t>(PATH_ROOM - n), "/%s", path)
    failed.thread = this_thread()
    failed.error = error
    failed.call = call
    number = fetch_add_64(&failure_count, 1) + 1
    failure = &failures[number % FAILURES_KEPT]
    store_relaxed_64(&failure.number, 0)
    fence_release()                     # a reader that copies a new field sees that `number` has changed
    fill_words(&failure.failed, &failed, sizeof(failed))
    store_release_64(&failure.number, number)
    c_errno.errno = error


cdef int file_open(int directory, const char* path, int flags) noexcept nogil:
    cdef int fd = -1
    if not (FAULTS_COMPILED and injected(CALL_CREATE if flags & O_CREAT else CALL_OPEN)):
        fd = openat(directory, path, flags | O_CLOEXEC, 0o644)
    if fd < 0:
        note("open", directory, path)
    return fd


cdef ssize_t file_pread(int fd, void* data, size_t n, off_t position) noexcept nogil:
    cdef ssize_t length = -1
    if not (FAULTS_COMPILED and injected(CALL_READ)):
        length = read_some(fd, data, n, position)
    if length < 0:
        note("read", fd, NULL)
    return length


cdef ssize_t file_pwrite(int fd, const void* data, size_t n, off_t position) noexcept nogil:
    cdef ssize_t written = -1
    if not (FAULTS_COMPILED and injected(CALL_WRITE)):
        written = pwrite(fd, data, n, position)
    elif n > 1:
        written = pwrite(fd, data, n // 2, position)    # a failing device may have written a part
        written = -1
        c_errno.errno = <int>region().header.file_fault[0]
    if written < 0:
        note("write", fd, NULL)
    return written


cdef ssize_t file_pwritev(int fd, const iovec* parts, int count, off_t position) noexcept nogil:
    cdef ssize_t written = -1
    if not (FAULTS_COMPILED and injected(CALL_WRITE)):
        written = pwritev(fd, parts, count, position)
    elif count > 1:
        written = pwritev(fd, parts, count - 1, position)
        written = -1
        c_errno.errno = <int>region().header.file_fault[0]
    if written < 0:
        note("write", fd, NULL)
    return written


cdef int file_truncate(int fd, off_t length) noexcept nogil:
    cdef int result = -1
    if not (FAULTS_COMPILED and injected(CALL_TRUNCATE)):
        result = ftruncate(fd, length)
    if result < 0:
        note("truncate", fd, NULL)
    return result


cdef int file_sync(int fd) noexcept nogil:
    cdef int result = -1
    if not (FAULTS_COMPILED and injected(CALL_SYNC)):
        result = fsync(fd)
    if result < 0:
        note("sync", fd, NULL)
    return result


cdef int file_data_sync(int fd) noexcept nogil:
    cdef int result = -1
    if not (FAULTS_COMPILED and injected(CALL_SYNC)):
        result = fdatasync(fd)
    if result < 0:
        note("sync", fd, NULL)
    return result


cdef int file_rename(int directory, const char* path, const char* new_path) noexcept nogil:
    cdef int result = -1
    if not (FAULTS_COMPILED and injected(CALL_RENAME)):
        result = renameat(directory, path, directory, new_path)
    if result < 0:
        note("rename", directory, path)
    return result


cdef int file_unlink(int directory, const char* path) noexcept nogil:
    cdef int result = -1
    if not (FAULTS_COMPILED and injected(CALL_UNLINK)):
        result = unlinkat(directory, path, 0)
    if result < 0:
        note("unlink", directory, path)
    return result


# -- reports --------------------------------------------------------------------------------------------------------

cdef uint64_t copy_failure(uint64_t number, FailedCall* out) noexcept nogil:
    """Copy a failure, and return the number of the failure in its place. The copy is valid only if this is the expected number: it is
    larger if the failure of another thread has replaced this one, and smaller while the thread still stores this one."""
    cdef Failure* failure = &failures[number % FAILURES_KEPT]
    cdef uint64_t found
    while True:
        found = load_acquire_64(&failure.number)
        copy_words(out, &failure.failed, sizeof(FailedCall))
        fence_acquire()
        if load_relaxed_64(&failure.number) == found:
            return found


cdef object file_error(int error, str otherwise):
    cdef uint64_t last = load_acquire_64(&failure_count)
    cdef uint64_t number = last
    cdef FailedCall failed
    while number > 0 and last - number < FAILURES_KEPT:
        if copy_failure(number, &failed) == number and failed.thread == this_thread():
            if failed.error != error:
                break
            store_relaxed_64(&failures[number % FAILURES_KEPT].reported, number)
            return OSError(error, os.strerror(error), os.fsdecode(<bytes>failed.path))
        number -= 1
    return OSError(error, os.strerror(error), otherwise)


def take_failures() -> list[str]:
    """The failures in this process since the last call, as lines "<call> of <path>: <error>"; the oldest may be overwritten.

    Failures that an exception has named are not included, because the code that catches the exception reports them. One that
    another thread still notes, and all after it, are left for the next call.
    """
    global taken_count
    cdef uint64_t last = load_acquire_64(&failure_count)
    cdef uint64_t overwritten = 0, found
    cdef FailedCall failed
    lines = []
    if last - taken_count > FAILURES_KEPT:
        overwritten = last - FAILURES_KEPT - taken_count
        taken_count += overwritten
    while taken_count < last:
        found = copy_failure(taken_count + 1, &failed)
        if found < taken_count + 1:
            break
        taken_count += 1
        if found > taken_count:
            overwritten += 1
        elif load_relaxed_64(&failures[taken_count % FAILURES_KEPT].reported) != taken_count:
            lines.append(f"{failed.call.decode()} of {os.fsdecode(<bytes>failed.path)}: {os.strerror(failed.error)}")
    if overwritten:
        lines.insert(0, f"{overwritten} failures of file calls were overwritten before they were reported")
    return lines
