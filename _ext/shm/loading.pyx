"""How several loaders divide the slots that must be opened at start-up: cursors and counts in the shared header.

Each log directory has a cursor and separate loaders (`num.recovery.threads.per.data.dir`). Only the loaders write here; the
first one begins when every partition has its slot. The supervisor reads the counts.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from odradek._ext.shm.atomics cimport (
    compare_swap_64,
    count_64,
    fetch_add_64,
    load_acquire_64,
    shared_u64,
    store_relaxed_i64,
    store_release_64,
)
from odradek._ext.shm.clock cimport monotonic_ms
from odradek._ext.shm.layout cimport LoadingDir, region
from odradek._ext.shm.slot cimport slot_at


def begin(uint64_t total) -> None:
    """Let the loaders take the slots from 0 to `total` - 1. The first loader calls this once."""
    cdef LoadingDir* loading = region().header.loading
    cdef uint64_t slot
    cdef int i
    for slot in range(total):
        count_64(&loading[slot_at(<uint32_t>slot).log_dir].logs, 1)
    for i in range(region().header.log_dir_count):
        store_relaxed_i64(&loading[i].began_ms, monotonic_ms())
        if loading[i].logs == 0:
            store_relaxed_i64(&loading[i].ended_ms, loading[i].began_ms)
    store_release_64(&region().header.loading_total, total)
    store_release_64(&region().header.loading_begun, 1)


def begun() -> bool:
    """Whether loaders may take slots."""
    return load_acquire_64(&region().header.loading_begun) != 0


cdef int64_t take(shared_u64* cursor, int log_dir) noexcept nogil:
    cdef uint64_t total = load_acquire_64(&region().header.loading_total)
    cdef uint64_t taken
    while True:
        taken = load_acquire_64(cursor)
        if taken >= total:
            return -1
        if compare_swap_64(cursor, taken, taken + 1) and slot_at(<uint32_t>taken).log_dir == log_dir:
            return <int64_t>taken


def take_to_measure(int log_dir) -> int:
    """Take a slot of the directory that no other loader measures. Returns -1 if all are taken."""
    return take(&region().header.loading[log_dir].next_measured, log_dir)


def measured(int log_dir, uint64_t bytes_to_recover) -> None:
    """Add the bytes after the recovery point of a measured log to the directory's total."""
    fetch_add_64(&region().header.loading[log_dir].bytes_to_recover, bytes_to_recover)


def take_to_open(int log_dir) -> int:
    """Take a slot of the directory that no other loader opens. Returns -1 if all are taken."""
    return take(&region().header.loading[log_dir].next_opened, log_dir)


def opened(int log_dir, uint64_t truncated_bytes) -> None:
    """Count a taken slot as done: its log is open, or cannot be used."""
    cdef LoadingDir* loading = &region().header.loading[log_dir]
    if truncated_bytes:
        fetch_add_64(&loading.truncated_bytes, truncated_bytes)
        fetch_add_64(&loading.truncated_logs, 1)
    if fetch_add_64(&loading.logs_done, 1) + 1 == loading.logs:
        store_relaxed_i64(&loading.ended_ms, monotonic_ms())
