"""The page cache for the event loop: reading a page that is not cached must not block the worker's other connections.

`resident` uses cachestat(2) (Linux 6.5), which counts the cached pages of a range exactly and takes half a microsecond for each
MiB. Where that is missing or refused, preadv2(RWF_NOWAIT) checks the first byte, the last byte, and one in every 128 KiB.

`ColdReader` runs in a worker: its threads hold no lock, use no Python object while they read, and report through the event
loop.
"""

import os
import queue
import threading

from libc.errno cimport EINTR, EOPNOTSUPP, errno
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc


cdef extern from * nogil:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <stdint.h>
    #include <unistd.h>
    #include <sys/syscall.h>
    #include <sys/uio.h>
    #ifndef RWF_NOWAIT
    #define RWF_NOWAIT 0x8
    #endif
    /* 1: every page cached, 0: not, -1: the kernel cannot report it. cachestat has number 451 on every architecture. */
    static int cached_pages_complete(int fd, int64_t position, int64_t length) {
        struct { uint64_t off, len; } range = { (uint64_t)position, (uint64_t)length };
        struct { uint64_t cached, dirty, writeback, evicted, recently_evicted; } stat = { 0, 0, 0, 0, 0 };
        static long page = 0;
        if (!page) page = sysconf(_SC_PAGESIZE);
        if (syscall(451, fd, &range, &stat, 0) != 0) return -1;
        return stat.cached >= (uint64_t)((position + length - 1) / page - position / page + 1);
    }
    /* preadv2 by its number: musl has the function since 1.2.5, and the wheels are for 1.2.0. */
    static ssize_t pread_cached(int fd, void *out, size_t length, int64_t position) {
        struct iovec part = { out, length };
        return syscall(SYS_preadv2, fd, &part, 1L, (long)position, 0L, RWF_NOWAIT);
    }
    static __thread int odradek_no_wait = 0;
    static inline int get_no_wait(void) { return odradek_no_wait; }
    static inline void put_no_wait(int on) { odradek_no_wait = on; }
    """
    int get_no_wait()
    void put_no_wait(int on)
    int cached_pages_complete(int fd, int64_t position, int64_t length)
    ssize_t pread_cached(int fd, void* out, size_t length, int64_t position)
    ssize_t pread(int fd, void* buffer, size_t count, int64_t offset)
    int posix_fadvise(int fd, int64_t offset, int64_t length, int advice)
    int POSIX_FADV_WILLNEED


cdef enum:
    SAMPLE_BYTES = 128 * 1024
    SCRATCH_BYTES = 256 * 1024
    AHEAD_BYTES = 2 * 1024 * 1024


cdef bint cachestat_works = True


cdef bint byte_resident(int fd, int64_t position) noexcept nogil:
    """False only if the kernel reports that it would have to wait."""
    cdef uint8_t byte
    return pread_cached(fd, &byte, 1, position) >= 0 or errno == EOPNOTSUPP


cdef bint resident(int fd, int64_t position, int64_t length) noexcept nogil:
    global cachestat_works
    cdef int complete
    cdef int64_t at = position
    if length <= 0:
        return True
    if cachestat_works:
        complete = cached_pages_complete(fd, position, length)
        if complete >= 0:
            # Pages that are being read ahead are counted as cached; when the last one of them is present, all are.
            return complete and byte_resident(fd, position + length - 1)
        cachestat_works = False
    while at < position + length:
        if not byte_resident(fd, at):
            return False
        at += SAMPLE_BYTES
    return byte_resident(fd, position + length - 1)


cdef int64_t read_resident(int fd, uint8_t* out, int64_t length, int64_t position) noexcept nogil:
    cdef int64_t n = pread_cached(fd, out, length, position)
    if n < 0 and errno == EOPNOTSUPP and resident(fd, position, length):
        n = pread(fd, out, length, position)
    return n


cdef void set_no_wait(bint on) noexcept nogil:
    put_no_wait(on)


cdef int64_t read_some(int fd, void* out, size_t length, int64_t position) noexcept nogil:
    cdef int64_t n
    if get_no_wait():
        n = pread_cached(fd, out, length, position)
        if n >= 0 or errno != EOPNOTSUPP:       # a file system that cannot report this is waited for
            return n
    return pread(fd, out, length, position)


cdef int fault_in(int fd, int64_t position, int64_t length) noexcept nogil:
    cdef uint8_t* scratch = <uint8_t*>malloc(SCRATCH_BYTES)
    cdef int64_t at = position, end = position + length, n
    cdef int result = 0
    posix_fadvise(fd, position, length, POSIX_FADV_WILLNEED)
    if scratch == NULL:           # only the advice then; the sender reads missing pages itself
        return 0
    while at < end:
        n = pread(fd, scratch, min(end - at, <int64_t>SCRATCH_BYTES), at)
        if n < 0 and errno == EINTR:
            continue
        if n <= 0:
            result = -errno if n < 0 else 0
            break
        at += n
    free(scratch)
    if result == 0:                # readers of old records usually read on, so the next range is loaded meanwhile
        posix_fadvise(fd, end, min(length, <int64_t>AHEAD_BYTES), POSIX_FADV_WILLNEED)
    return result


class ColdReader:
    """Threads that load ranges of files into the page cache.

    loop: the event loop in which callbacks are called. threads: maximum number of concurrent reads; the threads start with the
    first read, after the worker's fork.
    """

    def __init__(self, loop, threads=2):
        self._loop = loop
        self._count = threads
        self._threads = []
        self._waiting = queue.SimpleQueue()
        self._closed = False

    def __call__(self, owner, fd, position, length, callback) -> None:
        """Read `length` bytes of `fd` at `position`, then call `callback(None)`, or `callback(OSError)`, in the loop.

        owner: the object that keeps `fd` open; it is referenced until the read is done.
        """
        self._give((owner, fd, position, length, callback))

    def call(self, work, callback) -> None:
        """Call `work()`, which reads what a look-up needs, then `callback(None)`, or `callback(its exception)`, in the loop."""
        self._give((work, callback))

    def _give(self, job) -> None:
        if self._closed:
            raise RuntimeError("the cold reader is closed")
        if len(self._threads) < self._count:
            thread = threading.Thread(target=self._run, name="cold-reader", daemon=True)
            try:
                thread.start()
            except RuntimeError:                # the system starts no more threads; the running ones do the work
                if not self._threads:
                    raise
            else:
                self._threads.append(thread)
        self._waiting.put(job)

    def close(self) -> None:
        """Finish the current reads and end the threads; call this before the loop is closed."""
        self._closed = True
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _run(self) -> None:
        cdef int fd, result
        cdef int64_t position, length
        while (job := self._waiting.get()) is not None:
            if len(job) == 2:
                work, callback = job
                try:
                    work()
                    error = None
                except Exception as failure:    # it belongs to the caller that queued the job; the thread continues with other jobs
                    error = failure
                self._loop.call_soon_threadsafe(callback, error)
                work = callback = job = error = None
                continue
            owner, fd, position, length, callback = job
            with nogil:
                result = fault_in(fd, position, length)
            error = OSError(-result, os.strerror(-result)) if result < 0 else None
            self._loop.call_soon_threadsafe(callback, error)
            owner = callback = job = None
