"""Descriptors that a process uses for appending.

The slot's lock ensures that only one thread uses a slot's files; `busy` keeps the evictor from closing them meanwhile.
"""

from libc.errno cimport EMFILE, ENFILE, ENOMEM, errno
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from posix.fcntl cimport O_CREAT, O_DIRECTORY, O_RDONLY, O_RDWR
from posix.unistd cimport close

from odradek._ext.shm.atomics cimport compare_swap_32, fetch_add_i64, shared_i64, store_relaxed_32, store_release_32
from odradek._ext.shm.layout cimport region
from odradek._ext.shm.slot cimport Slot, slot_at
from odradek._ext.storage.directories cimport DIR, fdopendir
from odradek._ext.storage.file_calls cimport file_open
from odradek._ext.storage.log_state cimport FILE_INDEX, FILE_LOG, FILE_TIME_INDEX, FILE_TXN_INDEX


cdef AppendFiles* table = NULL
cdef uint64_t table_boot = 0       # boot id of the mapping to which the table belongs
cdef uint64_t table_slots = 0
cdef shared_i64 open_count
cdef int64_t open_limit = 3000
cdef uint64_t hand = 0


cdef inline void count_open(int64_t change) noexcept nogil:
    fetch_add_i64(&open_count, change)


def limit_append_files(int64_t limit) -> None:
    """Create this process's cache with about `limit` open descriptors at most; call this before the first append."""
    global table, table_boot, table_slots, open_limit
    cdef uint64_t i
    if table != NULL and table_boot != region().header.boot_id:     # of an earlier mapping, with other slots
        for i in range(table_slots):
            close_files(&table[i])
        free(table)
        table = NULL
    if table == NULL:
        table = <AppendFiles*>calloc(region().header.max_slots, sizeof(AppendFiles))
        if table == NULL:
            raise MemoryError("no memory for the table of append files")
        table_slots = region().header.max_slots
        table_boot = region().header.boot_id
    open_limit = max(limit, 16)


def sweep_append_files() -> int:
    """Close the descriptors of logs that have changed since they were opened: a removed file takes disk space until then.
    Returns the number of closed descriptors. May be called from the loop at any time."""
    cdef uint64_t i
    cdef AppendFiles* files
    cdef Slot* slot
    cdef int64_t before = open_count
    if table == NULL or before == 0:
        return 0
    for i in range(region().header.slots_used):
        files = &table[i]
        if not has_open(files):
            continue
        slot = slot_at(<uint32_t>i)
        if files.generation != slot.generation or files.incarnation != slot.incarnation:
            if compare_swap_32(&files.busy, 0, 1):
                close_files(files)
                store_release_32(&files.busy, 0)
    return before - open_count


def open_append_files() -> int:
    """How many descriptors this process has open for appending."""
    return open_count


cdef void directory_path(Slot* slot, char* out) noexcept nogil:
    snprintf(out, 384, "%.*s-%d", <int>slot.topic_bytes, <char*>slot.topic, slot.partition)


cdef const char* suffix_of(int kind) noexcept nogil:
    if kind == FILE_LOG:
        return "log"
    if kind == FILE_INDEX:
        return "index"
    if kind == FILE_TIME_INDEX:
        return "timeindex"
    if kind == FILE_TXN_INDEX:
        return "txnindex"
    return "snapshot"


cdef void segment_path(Slot* slot, int64_t base_offset, int kind, char* out) noexcept nogil:
    snprintf(out, 384, "%.*s-%d/%020lld.%s", <int>slot.topic_bytes, <char*>slot.topic, slot.partition, <long long>base_offset,
             suffix_of(kind))


cdef int open_at(Slot* slot, const char* path, int flags) noexcept nogil:
    """Returns a descriptor of a path relative to the slot's log directory, or -errno."""
    cdef int log_dir = region().header.log_dir_fds[slot.log_dir]
    cdef int fd = file_open(log_dir, path, flags)
    if fd < 0 and (errno == EMFILE or errno == ENFILE):
        evict(open_count // 2)          # leave descriptors for connections and readers, which use the others
        fd = file_open(log_dir, path, flags)
    return fd if fd >= 0 else -errno


cdef int open_in_slot(Slot* slot, int64_t base_offset, int kind, int flags) noexcept nogil:
    """Returns a descriptor of one of the slot's files, or -errno."""
    cdef char[384] path
    segment_path(slot, base_offset, kind, path)
    return open_at(slot, path, flags)


cdef int open_directory(Slot* slot) noexcept nogil:
    cdef char[384] path
    directory_path(slot, path)
    return open_at(slot, path, O_RDONLY | O_DIRECTORY)


cdef DIR* read_directory(Slot* slot, int* error) noexcept nogil:
    cdef int descriptor = open_directory(slot)
    cdef DIR* stream = NULL
    error[0] = min(descriptor, 0)
    if descriptor >= 0:
        stream = fdopendir(descriptor)
        if stream == NULL:
            close(descriptor)
            error[0] = -ENOMEM
    return stream


cdef inline bint has_open(AppendFiles* files) noexcept nogil:
    return (files.log_fd | files.index_fd | files.time_fd | files.txn_fd) != 0


cdef void close_files(AppendFiles* files) noexcept nogil:
    if files.log_fd > 0:
        close(files.log_fd)
        count_open(-1)
    if files.index_fd > 0:
        close(files.index_fd)
        count_open(-1)
    if files.time_fd > 0:
        close(files.time_fd)
        count_open(-1)
    if files.txn_fd > 0:
        close(files.txn_fd)
        count_open(-1)
    files.log_fd = files.index_fd = files.time_fd = files.txn_fd = 0


cdef void evict(int64_t down_to) noexcept nogil:
    """Close files that were not used since the hand last passed, until `down_to` are open (the hand makes at most two turns).
    """
    global hand
    cdef uint64_t passed = 0, used = region().header.slots_used
    cdef AppendFiles* files
    if table == NULL or used == 0:
        return
    while open_count > down_to and passed < used * 2:
        hand = (hand + 1) % used
        passed += 1
        files = &table[hand]
        if not has_open(files):
            continue
        if files.used:
            store_relaxed_32(&files.used, 0)
            continue
        if compare_swap_32(&files.busy, 0, 1):
            close_files(files)
            store_release_32(&files.busy, 0)


cdef AppendFiles* take_files(uint32_t index, Slot* slot, int64_t segment_base, int* error) noexcept nogil:
    cdef AppendFiles* files = &table[index]
    cdef int fd
    while not compare_swap_32(&files.busy, 0, 1):   # only the evictor can hold it, and only while it closes four files
        pass
    store_relaxed_32(&files.used, 1)
    if files.incarnation != slot.incarnation or files.segment_base != segment_base or files.generation != slot.generation:
        close_files(files)
        files.incarnation = slot.incarnation
        files.segment_base = segment_base
        files.generation = slot.generation
    if files.log_fd == 0:
        if open_count >= open_limit:
            evict(open_limit - open_limit // 8)
        fd = open_in_slot(slot, segment_base, FILE_LOG, O_RDWR)
        if fd < 0:
            error[0] = fd
            store_release_32(&files.busy, 0)
            return NULL
        files.log_fd = fd
        count_open(1)
    return files


cdef int index_file(AppendFiles* files, Slot* slot, int kind) noexcept nogil:
    """Returns the descriptor of an index of the active segment, which is created if it is missing; or -errno."""
    cdef int fd
    cdef int32_t* place = &files.index_fd if kind == FILE_INDEX else &files.time_fd if kind == FILE_TIME_INDEX else &files.txn_fd
    if place[0] == 0:
        place[0] = open_in_slot(slot, files.segment_base, kind, O_RDWR | O_CREAT)
        if place[0] < 0:
            fd = place[0]
            place[0] = 0
            return fd
        count_open(1)
    return place[0]


cdef void release_files(AppendFiles* files) noexcept nogil:
    store_release_32(&files.busy, 0)


cdef void drop_files(uint32_t index) noexcept nogil:
    """Close the descriptors of a slot. The caller holds its lock, or the slot is deleted."""
    cdef AppendFiles* files
    if table == NULL:
        return                          # no table: this process never appends
    files = &table[index]
    while not compare_swap_32(&files.busy, 0, 1):
        pass
    close_files(files)
    store_release_32(&files.busy, 0)
