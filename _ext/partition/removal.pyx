"""Renames removed segments to `.deleted`; see removal.pxd.

Runs with the slot's mutex held, allocates nothing and needs no GIL. The cleaner unlinks the renamed files later
(`broker/odradek/cleaner/retention.py`); a start unlinks them at once (`log_files`).
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport strtoll
from libc.string cimport strcmp

from odradek._ext.partition.append_files cimport read_directory, segment_path
from odradek._ext.partition.removed_files cimport note_removed_files
from odradek._ext.partition.segment_files cimport set_aside
from odradek._ext.shm.atomics cimport store_release_64
from odradek._ext.shm.faults cimport *
from odradek._ext.shm.layout cimport region
from odradek._ext.shm.slot cimport Slot
from odradek._ext.storage.directories cimport DIR, closedir, dirent, readdir
from odradek._ext.storage.log_state cimport FILE_INDEX, FILE_LOG, FILE_SNAPSHOT, FILE_TIME_INDEX, FILE_TXN_INDEX


cdef enum:
    AT_ONCE = 16                  # offsets gathered in one pass over the directory


cdef void keep_smallest(int64_t* smallest, int* count, int64_t offset) noexcept nogil:
    """Insert an offset into the ascending array of the AT_ONCE smallest offsets."""
    cdef int at = count[0]
    if at == AT_ONCE:
        if offset >= smallest[AT_ONCE - 1]:
            return
        at -= 1
    else:
        count[0] += 1
    while at > 0 and smallest[at - 1] > offset:
        smallest[at] = smallest[at - 1]
        at -= 1
    smallest[at] = offset


cdef int gather(Slot* slot, const char* suffix, int64_t below, int64_t* smallest, int* count, int64_t* newest) noexcept nogil:
    """Gather the smallest offsets below `below` of the files with `suffix`, ascending, and the largest offset of all. Returns
    0, or -errno."""
    cdef int error
    cdef DIR* directory = read_directory(slot, &error)
    cdef dirent* entry
    cdef int64_t offset
    cdef char* end
    count[0] = 0
    newest[0] = -1
    if directory == NULL:
        return error
    while True:
        entry = readdir(directory)
        if entry == NULL:
            break
        offset = strtoll(entry.d_name, &end, 10)
        if end == entry.d_name or strcmp(end, suffix) != 0:
            continue
        if offset > newest[0]:
            newest[0] = offset
        if offset < below:
            keep_smallest(smallest, count, offset)
    closedir(directory)
    return 0


cdef int set_file_aside(Slot* slot, int64_t offset, int kind) noexcept nogil:
    cdef char[384] path
    segment_path(slot, offset, kind, path)
    return set_aside(region().header.log_dir_fds[slot.log_dir], path)


cdef int set_segments_aside(Slot* slot, int64_t keep) noexcept nogil:
    """Oldest first, so that the rest is a valid log at any moment. The log file is the last of each segment, so that a
    repetition finds the other files."""
    cdef int64_t[AT_ONCE] bases
    cdef int* kinds = [FILE_INDEX, FILE_TIME_INDEX, FILE_TXN_INDEX, FILE_LOG]
    cdef int64_t newest
    cdef int count = 0, i, k, result
    while True:
        result = gather(slot, ".log", keep, bases, &count, &newest)
        if result != 0 or count == 0:
            return result
        for i in range(count):
            for k in range(4):
                result = set_file_aside(slot, bases[i], kinds[k])
                if result != 0:
                    return result
                if k == 0:
                    fault(REMOVE_INDEX_RENAMED)
            fault(REMOVE_LOG_RENAMED)


cdef int set_snapshots_aside(Slot* slot, int64_t keep) noexcept nogil:
    """Rename the producer snapshots before `keep`, but never the newest of all snapshots."""
    cdef int64_t[AT_ONCE] offsets
    cdef int64_t newest = -1
    cdef int count = 0, i, result
    while True:
        result = gather(slot, ".snapshot", keep, offsets, &count, &newest)
        if result != 0 or count == 0 or offsets[0] == newest:
            return result
        for i in range(count):
            if offsets[i] != newest:
                result = set_file_aside(slot, offsets[i], FILE_SNAPSHOT)
                if result != 0:
                    return result
                fault(REMOVE_SNAPSHOT_RENAMED)


cdef int finish_removal(Slot* slot) noexcept nogil:
    cdef int64_t keep = slot.intent_arguments[0]
    cdef int result = set_segments_aside(slot, keep)
    if result == 0:
        result = set_snapshots_aside(slot, keep)
    fault(REMOVE_FILES_RENAMED)
    store_release_64(&slot.generation, slot.generation + 1)
    note_removed_files()
    fault(REMOVE_GENERATION_CHANGED)
    # Also after an error: a log that lost some of these segments is valid, and the next pass continues.
    store_release_64(&slot.intent, 0)
    return result
