"""The counter of removals; see removed_files.pxd and docs/decisions/0024."""

from libc.stdint cimport uint64_t

from odradek._ext.shm.atomics cimport fetch_add_64, load_acquire_64
from odradek._ext.shm.layout cimport SERVING, STARTING, STOPPING, region
from odradek._ext.shm.waking cimport wake_process


cdef void note_removed_files() noexcept nogil:
    fetch_add_64(&region().header.files_removed, 1)


def removed_files() -> int:
    """The value of the counter: a change means that files of logs were removed meanwhile."""
    return load_acquire_64(&region().header.files_removed)


def announce_removed_files() -> None:
    """Increment the counter and wake every other process, so that they release the disk space of unlinked files at once."""
    cdef int i
    cdef uint64_t state
    note_removed_files()
    for i in range(region().header.process_count):
        state = region().processes[i].state
        if i != region().self and (state == STARTING or state == SERVING or state == STOPPING):
            wake_process(i)
