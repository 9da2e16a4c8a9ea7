"""The files of a slot's log, found by number; see segment_files.pxd.

Runs with the slot's mutex held, allocates nothing (except for a directory's stream) and needs no GIL.
"""

from libc.errno cimport EDQUOT, ENOENT, ENOSPC, errno
from libc.stdint cimport int64_t
from libc.stdio cimport SEEK_END, snprintf
from libc.stdlib cimport strtoll
from libc.string cimport strcmp
from posix.fcntl cimport O_CREAT, O_RDONLY, O_RDWR, O_TRUNC
from posix.unistd cimport close, lseek

from odradek._ext.partition.append_files cimport directory_path, open_in_slot, read_directory, segment_path
from odradek._ext.partition.commits cimport current
from odradek._ext.shm.layout cimport region
from odradek._ext.shm.slot cimport Commit, Slot
from odradek._ext.storage.directories cimport DIR, closedir, dirent, readdir
from odradek._ext.storage.file_calls cimport file_rename, file_truncate, file_unlink
from odradek._ext.storage.index_entries cimport OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, TXN_ENTRY_BYTES
from odradek._ext.storage.log_state cimport FILE_INDEX, FILE_LOG, FILE_TIME_INDEX, FILE_TXN_INDEX
from odradek._ext.storage.lookup cimport LOOKUP_FOUND, FoundBatch, find_position


# -- look-up --------------------------------------------------------------------------------------------------------


cdef int64_t pick(Slot* slot, const char* extension, int64_t after, int64_t beyond, bint largest) noexcept nogil:
    """The largest or the smallest number before an extension, above `after` and below `beyond`; -1 if there is none, or -errno
    - 1."""
    cdef int error
    cdef DIR* directory = read_directory(slot, &error)
    cdef dirent* entry
    cdef int64_t best = -1, number
    cdef char* end
    if directory == NULL:
        return error - 1
    while True:
        entry = readdir(directory)
        if entry == NULL:
            break
        number = strtoll(entry.d_name, &end, 10)
        if end != entry.d_name and strcmp(end, extension) == 0 and after < number < beyond \
                and (best < 0 or (number > best) == largest):
            best = number
    closedir(directory)
    return best


cdef int64_t segment_holding(Slot* slot, int64_t offset, int64_t beyond) noexcept nogil:
    return pick(slot, ".log", -1, min(offset, beyond - 1) + 1, True)


cdef int64_t next_segment(Slot* slot, int64_t after, int64_t beyond) noexcept nogil:
    return pick(slot, ".log", after, beyond, False)


cdef int64_t newest_snapshot(Slot* slot, int64_t offset, int64_t beyond) noexcept nogil:
    return pick(slot, ".snapshot", -1, min(offset, beyond - 1) + 1, True)


cdef int64_t end_of(int fd) noexcept nogil:
    return lseek(fd, 0, SEEK_END)


cdef int find_batch(Slot* slot, int64_t segment_base, int64_t index_entries, int64_t size, int64_t offset,
                    FoundBatch* batch) noexcept nogil:
    cdef int log_fd, index_fd, result
    log_fd = open_in_slot(slot, segment_base, FILE_LOG, O_RDONLY)
    if log_fd < 0:
        return log_fd
    index_fd = open_in_slot(slot, segment_base, FILE_INDEX, O_RDONLY)
    result = find_position(log_fd, index_fd, index_entries if index_fd >= 0 else 0, segment_base, size, offset, batch)
    close(log_fd)
    if index_fd >= 0:
        close(index_fd)
    if result == LOOKUP_FOUND:
        return 0
    return result if result < 0 else -ENOENT


cdef int locate(Slot* slot, int64_t segment_base, int64_t index_entries, int64_t size, int64_t offset,
                int64_t* position) noexcept nogil:
    cdef FoundBatch batch
    cdef int result = find_batch(slot, segment_base, index_entries, size, offset, &batch)
    if result == 0:
        position[0] = batch.position
    return result


cdef int locate_for_cut(Slot* slot, const Commit* commit, int64_t base, int64_t offset, int64_t* position,
                        int64_t* first_cut) noexcept nogil:
    cdef FoundBatch batch
    cdef int log_fd, index_fd, result
    cdef int64_t entries, size
    first_cut[0] = offset
    if base == commit.segment_base:
        result = find_batch(slot, base, commit.index_entries, commit.size, offset, &batch)
        if result == 0:
            position[0] = batch.position
            first_cut[0] = min(offset, batch.base_offset)
        return result
    log_fd = open_in_slot(slot, base, FILE_LOG, O_RDONLY)
    if log_fd < 0:
        return log_fd
    size = end_of(log_fd)
    close(log_fd)
    index_fd = open_in_slot(slot, base, FILE_INDEX, O_RDONLY)
    entries = 0
    if index_fd >= 0:
        entries = end_of(index_fd) // OFFSET_ENTRY_BYTES
        close(index_fd)
    result = find_batch(slot, base, entries, size, offset, &batch)
    if result == -ENOENT:               # the segment ends before `offset`: a truncation cut it there
        position[0] = size
        return 0
    if result == 0:
        position[0] = batch.position
        first_cut[0] = min(offset, batch.base_offset)
    return result


# -- creation, truncation, removal -------------------------------------------------------------------------------------

cdef int create_file(Slot* slot, int64_t base, int kind) noexcept nogil:
    cdef int fd = open_in_slot(slot, base, kind, O_RDWR | O_CREAT | O_TRUNC)
    if fd < 0:
        return fd
    close(fd)
    return 0


cdef int cut_file(Slot* slot, int64_t base, int kind, int64_t size) noexcept nogil:
    cdef int fd = open_in_slot(slot, base, kind, O_RDWR)
    cdef int result = 0
    if fd < 0:
        return 0 if fd == -ENOENT and kind != FILE_LOG and size == 0 else fd
    if file_truncate(fd, size) != 0:
        result = -errno
    close(fd)
    return result


cdef int cut_to_commit(Slot* slot, const Commit* commit) noexcept nogil:
    """Truncate the active segment's files to the sizes in the commit. Returns 0, or -errno."""
    cdef int result = cut_file(slot, commit.segment_base, FILE_LOG, commit.size)
    if result == 0:
        result = cut_file(slot, commit.segment_base, FILE_INDEX, <int64_t>commit.index_entries * OFFSET_ENTRY_BYTES)
    if result == 0:
        result = cut_file(slot, commit.segment_base, FILE_TIME_INDEX, <int64_t>commit.timeindex_entries * TIME_ENTRY_BYTES)
    if result == 0:
        result = cut_file(slot, commit.segment_base, FILE_TXN_INDEX, <int64_t>commit.txnindex_entries * TXN_ENTRY_BYTES)
    return result


cdef int set_aside(int directory, const char* path) noexcept nogil:
    cdef char[400] aside
    snprintf(aside, 400, "%s.deleted", path)
    if file_rename(directory, path, aside) == 0 or errno == ENOENT:
        return 0
    if (errno == ENOSPC or errno == EDQUOT) and (file_unlink(directory, path) == 0 or errno == ENOENT):
        return 0
    return -errno


cdef int cut_leftover(Slot* slot) noexcept nogil:
    cdef int result = 0
    if slot.uncut:
        result = cut_to_commit(slot, current(slot))
        slot.uncut = result != 0
    return result


cdef void unlink_segment(Slot* slot, int64_t base) noexcept nogil:
    cdef char[384] path
    cdef int* kinds = [FILE_LOG, FILE_INDEX, FILE_TIME_INDEX, FILE_TXN_INDEX]
    cdef int i
    for i in range(4):
        segment_path(slot, base, kinds[i], path)
        file_unlink(region().header.log_dir_fds[slot.log_dir], path)


cdef int remove_segments_above(Slot* slot, int64_t base, int64_t log_end_offset) noexcept nogil:
    cdef int error, removed = 1
    cdef int64_t number
    cdef DIR* directory
    cdef dirent* entry
    cdef char* end
    cdef char[384] path
    cdef char[700] full
    directory_path(slot, path)
    while removed:
        removed = 0
        directory = read_directory(slot, &error)
        if directory == NULL:
            return error
        while True:
            entry = readdir(directory)
            if entry == NULL:
                break
            number = strtoll(entry.d_name, &end, 10)
            if number <= base or end == entry.d_name or end[0] != c'.':
                continue
            if number <= log_end_offset and strcmp(end, ".snapshot") == 0:
                continue
            snprintf(full, 700, "%s/%s", path, entry.d_name)
            if file_unlink(region().header.log_dir_fds[slot.log_dir], full) == 0:
                removed = 1
            elif errno != ENOENT:
                error = -errno
                closedir(directory)
                return error
        closedir(directory)
    return 0
