"""The consequences of a failed or full device for a log directory; see log_dirs.pxd.

The header has two words for each directory: `log_dir_offline`, which is never reset while the broker runs, and `disk_state`,
which any process sets to FULL and only the cleaner sets to other values. A change of either wakes the cleaner, which puts the
slots of a failed directory OFFLINE and frees space on a full disk.
"""

import os

from libc.errno cimport EDQUOT, EIO, ENODEV, ENOSPC, ENXIO, EROFS
from libc.stdint cimport uint64_t

from odradek._ext.shm.atomics cimport fetch_add_64, fetch_or_64, store_release_32
from odradek._ext.shm.layout cimport CLEANER, DISK_FULL, Header, region
from odradek._ext.shm.waking cimport wake_process


SYNCFS_REPORTS_ERRORS = tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in os.uname().release.split(".")[:2]) >= (5, 8)
"""Whether syncfs(2) reports pages that could not be written; Linux 5.8 and newer."""


cdef bint is_device_failure(int result) noexcept nogil:
    return result == -EIO or result == -EROFS or result == -ENXIO or result == -ENODEV


cdef bint is_full(int result) noexcept nogil:
    return result == -ENOSPC or result == -EDQUOT


cdef void wake_cleaner() noexcept nogil:
    cdef int i
    for i in range(region().header.process_count):
        if region().processes[i].kind == CLEANER:
            wake_process(i)


cdef void log_dir_failed(int log_dir) noexcept nogil:
    if region().header.log_dir_offline[log_dir]:
        return
    store_release_32(&region().header.log_dir_offline[log_dir], 1)
    wake_cleaner()


cdef void log_dir_full(int log_dir) noexcept nogil:
    cdef Header* header = region().header
    if header.disk_state[log_dir] != DISK_FULL:
        store_release_32(&header.disk_state[log_dir], DISK_FULL)
        fetch_add_64(&header.disk_full_times[log_dir], 1)
    fetch_or_64(&header.disk_full_noted, <uint64_t>1 << log_dir)
    wake_cleaner()


cdef void note_device(int log_dir, int result) noexcept nogil:
    if is_device_failure(result):
        log_dir_failed(log_dir)
    elif is_full(result):
        log_dir_full(log_dir)


def note_error(int log_dir, int number) -> None:
    """`note_device` for Python: `number` is the errno of an OSError in the directory `log_dir`."""
    note_device(log_dir, -number)
