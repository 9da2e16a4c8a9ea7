"""Carries out a truncation: files, commit, flushed offsets, epochs, producers; see truncation.pxd.

Runs with the slot's mutex held, allocates nothing and needs no GIL.
"""

from libc.errno cimport EBADMSG, ENOENT, errno
from libc.stdint cimport int64_t, uint32_t, uint8_t
from posix.fcntl cimport O_RDWR
from posix.unistd cimport close

from odradek._ext.partition.append_files cimport drop_files, open_in_slot, segment_path
from odradek._ext.partition.commits cimport current, new_generation, publish, set_applied
from odradek._ext.partition.gap_limit cimport lower_gap_limit
from odradek._ext.partition.leader_epochs cimport cut_epochs
from odradek._ext.partition.log_writing cimport clear_recent
from odradek._ext.partition.producer_snapshots cimport read_snapshot
from odradek._ext.partition.producers cimport forget_producers, settle_last_stable
from odradek._ext.partition.redo cimport replay_segment
from odradek._ext.partition.removed_files cimport note_removed_files
from odradek._ext.partition.rolling cimport start_segment
from odradek._ext.partition.segment_files cimport (
    create_file,
    cut_file,
    end_of,
    locate_for_cut,
    newest_snapshot,
    next_segment,
    remove_segments_above,
    segment_holding,
)
from odradek._ext.partition.swapping cimport drop_swaps
from odradek._ext.protocol.byte_order cimport load32
from odradek._ext.shm.atomics cimport store_relaxed_i64, store_release_64, store_release_i64
from odradek._ext.shm.faults cimport *
from odradek._ext.shm.layout cimport region
from odradek._ext.shm.slot cimport Commit, Slot
from odradek._ext.storage.file_calls cimport file_truncate
from odradek._ext.storage.index_entries cimport (
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    TXN_ENTRY_BYTES,
    AbortedEntry,
    unpack_txn_entry,
)
from odradek._ext.storage.log_scan cimport read_at
from odradek._ext.storage.log_state cimport FILE_INDEX, FILE_LOG, FILE_SNAPSHOT, FILE_TIME_INDEX, FILE_TXN_INDEX


cdef int cut_indexes(Slot* slot, int64_t base, int64_t offset, int64_t position) noexcept nogil:
    """Drop the index entries of a segment whose offsets are at or above `offset`, because their batches were cut. Returns 0, or
    -errno."""
    cdef uint8_t[TXN_ENTRY_BYTES] entry
    cdef AbortedEntry aborted
    cdef int64_t low, high, middle, entry_offset, length
    cdef int fd, width, which, result
    cdef int* kinds = [FILE_INDEX, FILE_TIME_INDEX, FILE_TXN_INDEX]
    cdef int* widths = [OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, TXN_ENTRY_BYTES]
    for which in range(3):
        width = widths[which]
        fd = open_in_slot(slot, base, kinds[which], O_RDWR)
        if fd == -ENOENT:
            continue
        if fd < 0:
            return fd
        low = 0
        high = end_of(fd) // width
        while low < high:               # the first entry whose offset is not below the cut
            middle = (low + high) // 2
            length = read_at(fd, entry, <size_t>width, middle * width)
            if length != width:
                close(fd)
                return <int>length if length < 0 else -EBADMSG
            if which == 2:
                unpack_txn_entry(entry, &aborted)
                entry_offset = aborted.last_offset
            else:
                entry_offset = base + <int64_t>load32(&entry[0] if which == 0 else &entry[8])
            if entry_offset >= offset:
                high = middle
            else:
                low = middle + 1
        if file_truncate(fd, low * width) != 0:
            result = -errno
            close(fd)
            return result
        close(fd)
    return 0


cdef int restore_before(uint32_t index, Slot* slot, int64_t offset, int64_t* from_offset) noexcept nogil:
    """Restore producers from the newest valid snapshot that is not above `offset`. Returns 0 and the snapshot's offset in
    *from_offset, or the log's start if there is no snapshot; or -errno."""
    cdef char[384] path
    cdef int64_t at = offset + 1
    cdef int result
    forget_producers(slot)
    from_offset[0] = slot.log_start_offset
    while True:
        at = newest_snapshot(slot, offset, at)
        if at < 0:
            return 0 if at == -1 else <int>(at + 1)
        segment_path(slot, at, FILE_SNAPSHOT, path)
        result = read_snapshot(index, slot, region().header.log_dir_fds[slot.log_dir], path)
        if result == 0:
            from_offset[0] = at
            return 0
        forget_producers(slot)
        if result < 0 and result != -ENOENT:
            return result


cdef int rebuild_producers(uint32_t index, Slot* slot, int64_t offset) noexcept nogil:
    """Rebuild the producer state as of `offset` from the newest snapshot before it and the batches after that (the log is the
    redo log). Returns 0, or -errno. A snapshot contains only each producer's last batch, as after a start."""
    cdef int64_t from_offset = 0, base, position = 0, first_cut = 0
    cdef int result = restore_before(index, slot, offset, &from_offset)
    if result != 0 or from_offset >= offset:
        return result
    base = segment_holding(slot, from_offset, offset)
    if base < -1:
        return <int>(base + 1)
    if base < 0:
        base = next_segment(slot, -1, offset)
    elif base < from_offset:
        result = locate_for_cut(slot, current(slot), base, from_offset, &position, &first_cut)
    while result == 0 and base >= 0 and base < offset:
        result = replay_segment(index, slot, base, position, from_offset)
        position = 0
        base = next_segment(slot, base, offset)
    return <int>(base + 1) if result == 0 and base < -1 else result


cdef int replace_segments(Slot* slot, Commit* commit, int64_t offset, int64_t base, int64_t position, int64_t wall_ms) noexcept nogil:
    """Remove the segments above `offset`, cut the one that begins at `base` at `position`, and commit an empty segment at `offset`.

    `commit`: a copy of the current commit, which becomes the new one. Returns 0, or -errno; may be repeated.
    """
    cdef int result, i
    cdef int* kinds = [FILE_LOG, FILE_INDEX, FILE_TIME_INDEX]
    # A segment that begins at `offset` is removed as well: its bytes were published, and its file is not written again [R 4].
    result = remove_segments_above(slot, base if base < offset else offset - 1, offset)
    if result != 0:
        return result
    fault(TRUNCATE_SEGMENTS_REMOVED)
    if base < offset:
        result = cut_file(slot, base, FILE_LOG, position)
        if result != 0:
            return result
        fault(TRUNCATE_FILE_CUT)
        result = cut_indexes(slot, base, offset, position)
        if result != 0:
            return result
    for i in range(3):
        result = create_file(slot, offset, kinds[i])
        if result != 0:
            return result
    fault(TRUNCATE_SEGMENT_CREATED)
    start_segment(commit, offset, wall_ms)
    if commit.high_watermark >= offset:
        commit.high_watermark = offset
        commit.high_watermark_base = offset
        commit.high_watermark_position = 0
    publish(slot, commit)
    fault(TRUNCATE_COMMITTED)
    return 0


cdef void lower_offsets(Slot* slot, int64_t offset, int64_t base) noexcept nogil:
    """Lower the offsets of the slot that are beyond the new log end `offset`; `base` is the segment that was cut."""
    set_applied(slot, offset, 0)
    if slot.log_start_offset > offset:
        store_release_i64(&slot.log_start_offset, offset)
    if slot.flushed_offset > offset:
        store_release_i64(&slot.flushed_offset, offset)
    if base >= offset:
        store_relaxed_i64(&slot.synced_base, -1)           # not even the directory entry of the new segment is synced
    elif slot.synced_base > base or (slot.synced_base < 0 and slot.flushed_offset > base):
        store_relaxed_i64(&slot.synced_base, base)         # the segment that was cut must be synced as a whole again
    store_relaxed_i64(&slot.synced_end, min(slot.synced_end, offset))
    store_release_64(&slot.flusher, 0)  # a flush in progress must not mark later records as flushed


cdef inline void lower_newest_abort(Slot* slot, int64_t offset) noexcept nogil:
    """Called after the generation changed: a reader of the former log then sees the new generation if it sees the smaller offset."""
    if slot.newest_abort_offset >= offset:
        store_release_i64(&slot.newest_abort_offset, offset - 1)


cdef int finish_truncation(uint32_t index, Slot* slot) noexcept nogil:
    """The remaining bytes were published and are never rewritten: the file is cut, and the log continues in a new segment that
    begins at `offset`."""
    cdef int64_t offset = slot.intent_arguments[0], base = slot.intent_arguments[1], position = slot.intent_arguments[2]
    cdef Commit commit = current(slot)[0]
    cdef int result
    drop_files(index)
    store_release_64(&slot.truncations, slot.truncations + 1)
    store_relaxed_i64(&slot.pending_snapshot, 0)           # its file may be among the removed ones
    result = drop_swaps(slot)           # they were made from the former log and must not be swapped in
    if result == 0:
        result = lower_gap_limit(slot, offset)      # before the cut: offsets that are appended next may not be missing
    if result != 0:
        return result
    fault(TRUNCATE_GAP_LIMIT_LOWERED)
    if commit.segment_base != offset or commit.size != 0:
        result = replace_segments(slot, &commit, offset, base, position, slot.intent_arguments[3])
        if result != 0:
            return result
    lower_offsets(slot, offset, base)
    result = cut_epochs(slot, offset)
    if result == 0:
        result = rebuild_producers(index, slot, offset)
    fault(TRUNCATE_STATE_REBUILT)
    clear_recent(slot)
    settle_last_stable(slot, current(slot).high_watermark)
    new_generation(slot)
    lower_newest_abort(slot, offset)
    note_removed_files()
    if result == 0:
        store_release_64(&slot.intent, 0)
    return result


# -- dropping the whole log -------------------------------------------------------------------------------------------

cdef int replace_all_segments(Slot* slot, int64_t offset, int64_t wall_ms) noexcept nogil:
    """Remove every segment and snapshot, and commit an empty segment at `offset`. Returns 0, or -errno; may be repeated."""
    cdef Commit commit = current(slot)[0]
    cdef int* kinds = [FILE_LOG, FILE_INDEX, FILE_TIME_INDEX]
    cdef int result = remove_segments_above(slot, -1, -1), i
    if result != 0:
        return result
    fault(RESTART_SEGMENTS_REMOVED)
    for i in range(3):
        result = create_file(slot, offset, kinds[i])
        if result != 0:
            return result
    fault(RESTART_SEGMENT_CREATED)
    start_segment(&commit, offset, wall_ms)
    commit.high_watermark = commit.high_watermark_base = offset
    commit.high_watermark_position = 0
    publish(slot, &commit)
    fault(RESTART_COMMITTED)
    return 0


cdef int finish_restart(uint32_t index, Slot* slot) noexcept nogil:
    """The log start offset is raised before files are removed, so that readers of the former offsets get OFFSET_OUT_OF_RANGE."""
    cdef int64_t offset = slot.intent_arguments[0]
    cdef int result
    drop_files(index)
    store_release_64(&slot.truncations, slot.truncations + 1)
    store_relaxed_i64(&slot.pending_snapshot, 0)
    result = drop_swaps(slot)
    if result == 0:
        result = lower_gap_limit(slot, offset)
    fault(RESTART_GAP_LIMIT_LOWERED)
    if result == 0:
        if slot.log_start_offset < offset:
            store_release_i64(&slot.log_start_offset, offset)
        result = replace_all_segments(slot, offset, slot.intent_arguments[1])
    if result != 0:
        return result
    store_release_i64(&slot.log_start_offset, offset)
    set_applied(slot, offset, 0)
    store_release_64(&slot.flusher, 0)  # a flush in progress must not mark later records as flushed
    store_release_i64(&slot.flushed_offset, offset)        # the log is empty
    store_relaxed_i64(&slot.synced_base, -1)
    store_relaxed_i64(&slot.synced_end, min(slot.synced_end, offset))
    slot.uncut = 0
    result = cut_epochs(slot, -1)
    forget_producers(slot)
    fault(RESTART_STATE_REBUILT)
    clear_recent(slot)
    settle_last_stable(slot, offset)
    new_generation(slot)
    lower_newest_abort(slot, offset)
    note_removed_files()
    if result == 0:
        store_release_64(&slot.intent, 0)
    return result
