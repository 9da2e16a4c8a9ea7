"""Opens a partition's log: finds its segments, its end and its producers, and repairs a log that was not closed in order.

Runs at start (several logs at a time, the GIL released) and when a slot is rebuilt; no other process uses the partition. After
a clean stop no record is read: the end is found through the headers from the last index entry on, and producers come from the
snapshot that the stop wrote at the log's end. After an unclean stop the segments from the recovery point on are read
completely.
"""
from libc.errno cimport errno
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset
from posix.fcntl cimport O_CLOEXEC, O_DIRECTORY, O_RDONLY, O_RDWR, open
from posix.unistd cimport close

from odradek._ext.protocol.byte_order cimport load32, load64
from odradek._ext.records.record_batch cimport BatchInfo
from odradek._ext.shm.atomics cimport shared_u64
from odradek._ext.storage.file_calls cimport file_truncate
from odradek._ext.storage.gap_limit_file cimport fit_gap_limit, read_gap_limit
from odradek._ext.storage.index_entries cimport OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, TXN_ENTRY_BYTES, AbortedEntry
from odradek._ext.storage.log_files cimport (
    create_segment,
    creation_time,
    file_size,
    open_file,
    remove_file,
    remove_segment_files,
    settle_files,
)
from odradek._ext.storage.log_replay cimport complete_epochs, restore_producers
from odradek._ext.storage.log_scan cimport SCAN_BATCH, SCAN_END, Scanner, read_at, scan_batch, scan_file
from odradek._ext.storage.log_state cimport (
    ERROR_TOO_LARGE,
    EVENT_CORRUPT_SNAPSHOT,
    EVENT_CUT_EPOCHS,
    EVENT_CUT_TXN_INDEX,
    EVENT_NOT_CLEAN,
    EVENT_PRUNED_PRODUCERS,
    EVENT_REMOVED_SNAPSHOT,
    EVENT_RESTARTED_LOG,
    EVENT_SHORTENED,
    FILE_EPOCHS,
    FILE_INDEX,
    FILE_LOG,
    FILE_SNAPSHOT,
    FILE_TIME_INDEX,
    FILE_TXN_INDEX,
    Array,
    LogState,
    Segment,
    about_to_change,
    add_event,
    clear_producers,
    first_open_txn,
    prune_producers,
)
from odradek._ext.storage.producer_batches cimport complete_batches
from odradek._ext.storage.recovery cimport rebuild_indexes, recover_segments
from odradek._ext.storage.state_files cimport check_snapshot, fit_epochs, read_epochs, write_epochs
from odradek._ext.storage.txn_index cimport read_aborted


cdef enum:
    TAIL_BYTES = 16384
    NOT_SOUND = 1
    LARGEST_LOG = 0x7FFFFFFF


# -- a clean stop -----------------------------------------------------------------------------------------------------


cdef bint ascends(const uint8_t* entry, int64_t entry_bytes) noexcept nogil:
    """Whether the second of two index entries may follow the first. This excludes preallocated zeros."""
    if entry_bytes == OFFSET_ENTRY_BYTES:
        return load32(entry + 8) > load32(entry) and load32(entry + 12) > load32(entry + 4)
    return <int64_t>load64(entry + 12) > <int64_t>load64(entry) and load32(entry + 20) >= load32(entry + 8)


cdef int read_last_entry(int directory, int64_t base_offset, int kind, int64_t entry_bytes, int64_t* entries,
                         uint8_t* last) noexcept nogil:
    """Read the number of entries of an index and its last entry. Returns 0, NOT_SOUND, or -errno."""
    cdef uint8_t[2 * TIME_ENTRY_BYTES] tail
    cdef int64_t size = file_size(directory, base_offset, kind)
    cdef int64_t length = 2 * entry_bytes if size > entry_bytes else entry_bytes
    cdef int64_t read_bytes
    cdef int descriptor
    if size < 0:
        return <int>size
    entries[0] = size // entry_bytes
    if size % entry_bytes:
        return NOT_SOUND
    if size == 0:
        return 0
    descriptor = open_file(directory, base_offset, kind, O_RDONLY)
    if descriptor < 0:
        return descriptor
    read_bytes = read_at(descriptor, tail, <size_t>length, size - length)
    close(descriptor)
    if read_bytes < 0:
        return <int>read_bytes
    if read_bytes != length or (length > entry_bytes and not ascends(tail, entry_bytes)):
        return NOT_SOUND
    memcpy(last, tail + length - entry_bytes, <size_t>entry_bytes)
    return 0


cdef int read_index_tails(LogState* state, int directory, const Segment* segment) noexcept nogil:
    """Read the last entries of the active segment's offset and time index, and check that they are plausible."""
    cdef uint8_t[16] last
    cdef int result
    if segment.files & (FILE_INDEX | FILE_TIME_INDEX) != (FILE_INDEX | FILE_TIME_INDEX):
        return NOT_SOUND
    state.last_index_offset = segment.base_offset - 1
    state.last_index_position = 0
    state.last_timeindex_timestamp = -1
    state.max_timestamp = -1
    state.offset_of_max_timestamp = -1
    result = read_last_entry(directory, segment.base_offset, FILE_INDEX, OFFSET_ENTRY_BYTES, &state.index_entries, last)
    if result:
        return result
    if state.index_entries:
        state.last_index_offset = segment.base_offset + <int>load32(last)
        state.last_index_position = <int>load32(last + 4)
        if not 0 < state.last_index_position < segment.size or state.last_index_offset < segment.base_offset:
            return NOT_SOUND
    result = read_last_entry(directory, segment.base_offset, FILE_TIME_INDEX, TIME_ENTRY_BYTES,
                             &state.timeindex_entries, last)
    if result:
        return result
    if state.timeindex_entries:
        state.last_timeindex_timestamp = <int64_t>load64(last)
        state.max_timestamp = state.last_timeindex_timestamp
        state.offset_of_max_timestamp = segment.base_offset + <int>load32(last + 8)
        if state.max_timestamp < 0 or state.offset_of_max_timestamp < segment.base_offset:
            return NOT_SOUND
    return 0


cdef int walk_tail(LogState* state, int descriptor, const Segment* segment) noexcept nogil:
    """Read the headers from the last index entry's batch to the end of the active segment."""
    cdef uint8_t[TAIL_BYTES] buffer
    cdef Scanner scanner
    cdef BatchInfo info
    cdef int64_t position = 0
    cdef int64_t next_offset = segment.base_offset
    cdef int result
    scan_file(&scanner, descriptor, segment.size, buffer, TAIL_BYTES)
    result = scan_batch(&scanner, 0, &info)
    state.first_timestamp = info.max_timestamp if result == SCAN_BATCH else -1
    if result == SCAN_BATCH and state.index_entries and state.timeindex_entries == 0 and info.max_timestamp >= 0:
        return NOT_SOUND        # the time index was lost
    if result == SCAN_BATCH and state.last_index_position:
        position = state.last_index_position
        result = scan_batch(&scanner, position, &info)
        if result == SCAN_BATCH and info.base_offset > state.last_index_offset:
            return NOT_SOUND
        if result == SCAN_BATCH and state.timeindex_entries == 0 and info.max_timestamp >= 0:
            return NOT_SOUND    # the time index was lost, and the segment begins with messages that have no timestamp
    while result == SCAN_BATCH:
        if info.base_offset < next_offset:
            return NOT_SOUND
        next_offset = info.base_offset + info.last_offset_delta + 1
        if info.max_timestamp > state.max_timestamp:
            state.max_timestamp = info.max_timestamp
            state.offset_of_max_timestamp = next_offset - 1
        position += info.size
        result = scan_batch(&scanner, position, &info)
    state.log_end_offset = next_offset
    state.scanned_bytes += segment.size - state.last_index_position
    if result < 0:
        return result
    if result != SCAN_END or state.offset_of_max_timestamp >= next_offset or state.last_index_offset >= next_offset:
        return NOT_SOUND
    return 0


cdef int count_txns(LogState* state, int directory, const Segment* segment) noexcept nogil:
    """Count the entries of the active segment's transaction index; cut off an incomplete last one."""
    cdef int64_t size
    cdef int descriptor
    cdef int error
    state.txnindex_entries = 0
    if not segment.files & FILE_TXN_INDEX:
        return 0
    size = file_size(directory, segment.base_offset, FILE_TXN_INDEX)
    if size < 0:
        return <int>size
    state.txnindex_entries = size // TXN_ENTRY_BYTES
    if size % TXN_ENTRY_BYTES == 0:
        return 0
    error = about_to_change(state)
    if error:
        return error
    descriptor = open_file(directory, segment.base_offset, FILE_TXN_INDEX, O_RDWR)
    if descriptor < 0:
        return descriptor
    error = -errno if file_truncate(descriptor, size - size % TXN_ENTRY_BYTES) < 0 else 0
    close(descriptor)
    if error:
        return error
    return add_event(state, EVENT_CUT_TXN_INDEX, FILE_TXN_INDEX, segment.base_offset, 0,
                     size - size % TXN_ENTRY_BYTES, size % TXN_ENTRY_BYTES)


cdef int load_active(LogState* state, int directory) noexcept nogil:
    """Load the active segment as a clean stop left it. Returns 0, NOT_SOUND, or a negative error."""
    cdef Segment* segment = <Segment*>state.segments.items + state.segments.count - 1
    cdef int descriptor
    cdef int result
    state.base_offset = segment.base_offset
    state.size = segment.size
    result = read_index_tails(state, directory, segment)
    if result:
        return result
    descriptor = open_file(directory, segment.base_offset, FILE_LOG, O_RDONLY)
    if descriptor < 0:
        return descriptor
    result = walk_tail(state, descriptor, segment)
    close(descriptor)
    if result:
        return result
    return count_txns(state, directory, segment)


# -- after any stop ---------------------------------------------------------------------------------------------------


cdef int measure_segments(LogState* state, int directory) noexcept nogil:
    cdef Segment* segments = <Segment*>state.segments.items
    cdef int64_t number
    state.total_bytes = 0
    for number in range(state.segments.count):
        segments[number].size = file_size(directory, segments[number].base_offset, FILE_LOG)
        if segments[number].size < 0:
            return <int>segments[number].size
        if segments[number].size > LARGEST_LOG:
            return ERROR_TOO_LARGE
        state.total_bytes += segments[number].size
    return 0


cdef int check_old_indexes(LogState* state, int directory, int64_t until, int64_t index_interval) noexcept nogil:
    """Rebuild missing and incomplete indexes of state.segments[:until], which no other step checks."""
    cdef Segment* segment
    cdef int64_t number
    cdef bint sound
    cdef int error
    for number in range(until):
        segment = <Segment*>state.segments.items + number
        sound = segment.files & (FILE_INDEX | FILE_TIME_INDEX) == (FILE_INDEX | FILE_TIME_INDEX)
        sound = sound and file_size(directory, segment.base_offset, FILE_INDEX) % OFFSET_ENTRY_BYTES == 0
        sound = sound and file_size(directory, segment.base_offset, FILE_TIME_INDEX) % TIME_ENTRY_BYTES == 0
        if not sound:
            error = rebuild_indexes(state, directory, number, index_interval)
            if error:
                return error
    return 0


cdef int recover(LogState* state, int directory, Array* snapshots, int64_t from_offset,
                 int64_t index_interval) noexcept nogil:
    """Recover all segments from the one that contains the batch before `from_offset`.

    That one is included because the last entry of a time index is written when its segment is rolled, perhaps after a sync up
    to exactly that offset.
    """
    cdef Segment* segments = <Segment*>state.segments.items
    cdef int64_t first = 0
    cdef int error
    while first + 1 < state.segments.count and segments[first + 1].base_offset < from_offset:
        first += 1
    error = check_old_indexes(state, directory, first, index_interval)
    if error == 0:
        error = restore_producers(state, directory, snapshots, segments[first].base_offset, True)
    if error == 0:
        error = complete_batches(state, directory, segments[first].base_offset)
    if error == 0:
        error = recover_segments(state, directory, first, index_interval)
    return error


cdef int load_clean(LogState* state, int directory, Array* snapshots, int64_t index_interval) noexcept nogil:
    cdef Segment* active = <Segment*>state.segments.items + state.segments.count - 1
    cdef int result = check_old_indexes(state, directory, state.segments.count - 1, index_interval)
    if result:
        return result
    result = load_active(state, directory)
    if result == NOT_SOUND:
        if active.size or active.files & FILE_INDEX:
            result = add_event(state, EVENT_NOT_CLEAN, FILE_LOG, active.base_offset, active.base_offset, 0, 0)
            if result:
                return result
        result = recover(state, directory, snapshots, active.base_offset + 1, index_interval)
    elif result == 0:
        result = restore_producers(state, directory, snapshots, state.log_end_offset, False)
        if result == 0:
            result = complete_batches(state, directory, state.log_end_offset)
    return result


cdef int recover_shortened(LogState* state, int directory, Array* snapshots, int64_t recovery_point,
                           int64_t index_interval) noexcept nogil:
    """Handle a log that ends before its recovery point: files were removed, or the point belongs to another log of this name.
    In both cases it is unknown what of this log is on the device, so all of it is read."""
    cdef shared_u64* progress = state.progress
    cdef int error = add_event(state, EVENT_SHORTENED, FILE_LOG, state.base_offset, state.log_end_offset, 0,
                               recovery_point - state.log_end_offset)
    state.shortened = True
    state.progress = NULL               # each byte is counted only once
    if error == 0 and state.size + state.total_bytes > 0:
        error = recover(state, directory, snapshots, state.log_start_offset + 1, index_interval)
    state.progress = progress
    return error


cdef int restart_log(LogState* state, int directory, Array* snapshots) noexcept nogil:
    """Handle a log that ends before its start offset, so that none of it may be read: restart it, empty, at the start offset.
    """
    cdef Segment* segment
    cdef int64_t* offsets = <int64_t*>snapshots.items
    cdef int64_t number
    cdef int error = add_event(state, EVENT_RESTARTED_LOG, FILE_LOG, state.base_offset, state.log_end_offset, 0,
                               state.total_bytes)
    for number in range(snapshots.count):
        if error == 0:
            error = remove_file(state, directory, offsets[number], FILE_SNAPSHOT, b"")
    snapshots.count = 0
    while error == 0 and state.segments.count:
        segment = <Segment*>state.segments.items + state.segments.count - 1
        error = remove_segment_files(state, directory, segment.base_offset, segment.files)
        state.segments.count -= 1
    clear_producers(state)
    state.epochs_changed = state.epochs_changed or state.epochs.count > 0
    state.epochs.count = 0
    state.total_bytes = 0
    if error == 0:
        error = create_segment(state, directory, state.log_start_offset)
    if error == 0:
        error = load_active(state, directory)
    return error


cdef bint is_needed(LogState* state, Array* snapshots, int64_t number) noexcept nogil:
    """Whether a start may need a snapshot: those at the base offsets of segments, and the newest one if it is above all of them
    (written by an ordered stop); this is Kafka's rule (ProducerStateManager.removeStraySnapshots). Also the newest one at or
    below the log's first segment, because the log no longer contains the producers in it."""
    cdef Segment* segments = <Segment*>state.segments.items
    cdef int64_t* offsets = <int64_t*>snapshots.items
    cdef int64_t low = 0, high = state.segments.count, middle
    if offsets[number] > state.log_end_offset:
        return False
    if offsets[number] > segments[state.segments.count - 1].base_offset:
        return number + 1 == snapshots.count or offsets[number + 1] > state.log_end_offset
    if offsets[number] <= segments[0].base_offset:
        return number + 1 == snapshots.count or offsets[number + 1] > segments[0].base_offset
    while low < high:
        middle = (low + high) // 2
        if segments[middle].base_offset < offsets[number]:
            low = middle + 1
        else:
            high = middle
    return segments[low].base_offset == offsets[number]


cdef int settle_snapshots(LogState* state, int directory, Array* snapshots, bint clean) noexcept nogil:
    """Remove the snapshots that no start needs and, if the log was not closed in order, those that are incomplete.

    Request one at the log's end (even without producers) if there is none since the active segment began: without it each
    recovery would replay the whole log before its recovery point. Usually the roll wrote one.
    """
    cdef int64_t* offsets = <int64_t*>snapshots.items
    cdef int64_t number
    cdef int event, error
    state.snapshot_wanted = not clean and state.base_offset > state.log_start_offset
    for number in range(snapshots.count):
        event = -1
        if not is_needed(state, snapshots, number):
            event = EVENT_REMOVED_SNAPSHOT
        elif not clean:
            error = check_snapshot(directory, offsets[number])
            if error < 0:
                return error
            if error:
                event = EVENT_CORRUPT_SNAPSHOT
        if event < 0:
            state.snapshots += 1
            if offsets[number] >= state.base_offset:
                state.snapshot_wanted = False
            continue
        error = add_event(state, event, FILE_SNAPSHOT, offsets[number], offsets[number], 0, 0)
        if error == 0:
            error = remove_file(state, directory, offsets[number], FILE_SNAPSHOT, b"")
        if error:
            return error
    return 0


cdef int settle_producers(LogState* state) noexcept nogil:
    cdef int error = prune_producers(state)
    if error == 0 and state.pruned_producers:
        error = add_event(state, EVENT_PRUNED_PRODUCERS, 0, 0, state.producers.count, 0, state.pruned_producers)
    state.first_open_txn_offset = first_open_txn(state, -1)
    return error


cdef int settle_epochs(LogState* state, int directory, bint clean) noexcept nogil:
    """Drop the epochs outside the log. An epoch that begins at the log's end has no batch yet; after a recovery its batches may
    be lost.

    An empty log has lost nothing, so its file stays unchanged, because replacing 10,000 files takes seconds.
    """
    cdef int64_t before = state.epochs.count
    cdef bint keep = clean or state.log_end_offset == state.log_start_offset
    cdef int64_t end = state.log_end_offset + 1 if keep else state.log_end_offset
    cdef int error = fit_epochs(state, state.log_start_offset, end)
    if error == 0 and state.epochs.count != before:
        error = add_event(state, EVENT_CUT_EPOCHS, FILE_EPOCHS, 0, state.log_end_offset, 0, before - state.epochs.count)
    if error == 0 and state.epochs_changed:
        error = write_epochs(state, directory)
    return error


cdef int note_newest_abort(LogState* state, int directory) noexcept nogil:
    """Note the largest last offset in the transaction indexes: that of the last entry of the last index with entries. The end of its
    segment is noted instead if the entry is damaged; a number that is too large only costs look-ups."""
    cdef uint8_t[TXN_ENTRY_BYTES] entry
    cdef Segment* segments = <Segment*>state.segments.items
    cdef AbortedEntry aborted
    cdef int64_t number, end = state.log_end_offset, size
    cdef int descriptor
    for number in range(state.segments.count - 1, -1, -1):
        size = file_size(directory, segments[number].base_offset, FILE_TXN_INDEX) if segments[number].files & FILE_TXN_INDEX else 0
        if size < 0:
            return <int>size
        if size > 0:
            descriptor = open_file(directory, segments[number].base_offset, FILE_TXN_INDEX, O_RDONLY)
            if descriptor < 0:
                return descriptor
            state.newest_abort_offset = end - 1
            if size % TXN_ENTRY_BYTES == 0 \
                    and read_at(descriptor, entry, TXN_ENTRY_BYTES, size - TXN_ENTRY_BYTES) == TXN_ENTRY_BYTES \
                    and read_aborted(entry, segments[number].base_offset, end, &aborted):
                state.newest_abort_offset = aborted.last_offset
            close(descriptor)
            return 0
        end = segments[number].base_offset
    return 0


cdef int load_from(LogState* state, int directory, Array* snapshots, int64_t log_start_offset, int64_t recovery_point,
                   int64_t cleaner_offset, bint clean, int64_t index_interval) noexcept nogil:
    cdef Segment* first
    cdef int error = settle_files(state, directory, snapshots)
    if error == 0:
        error = read_gap_limit(state, directory, cleaner_offset)
    if error == 0:
        error = read_epochs(state, directory)
    if error == 0 and state.segments.count == 0:
        error = create_segment(state, directory, log_start_offset)
    if error == 0:
        error = measure_segments(state, directory)
    if error:
        return error
    first = <Segment*>state.segments.items
    state.log_start_offset = log_start_offset if log_start_offset > first.base_offset else first.base_offset
    if clean:
        error = load_clean(state, directory, snapshots, index_interval)
    else:
        # Segments that end below the log start are awaiting removal, perhaps partly done: nothing reads them any more.
        error = recover(state, directory, snapshots, max(recovery_point, state.log_start_offset + 1), index_interval)
    if error == 0 and state.log_end_offset < recovery_point:
        error = recover_shortened(state, directory, snapshots, recovery_point, index_interval)
    if error == 0 and state.log_end_offset < state.log_start_offset:
        error = restart_log(state, directory, snapshots)
    if error == 0:          # not earlier: before the recovery, headers behind the recovery point may be anything
        error = complete_epochs(state, directory)
    if error == 0:
        error = fit_gap_limit(state, directory)
    if error == 0:
        error = measure_segments(state, directory)
    if error == 0:
        error = settle_epochs(state, directory, clean and not state.shortened)
    if error == 0:
        error = settle_snapshots(state, directory, snapshots, clean and not state.shortened)
    if error == 0:
        error = settle_producers(state)
    if error == 0:
        error = note_newest_abort(state, directory)
    if error == 0 and state.size and state.first_timestamp < 0:
        state.created_ms = creation_time(directory, state.base_offset)
    if state.shortened:
        state.recovery_point = state.log_start_offset
    elif clean:
        state.recovery_point = state.log_end_offset
    else:
        state.recovery_point = min(recovery_point, state.log_end_offset)
    return error


cdef int load(LogState* state, const char* path, int64_t log_start_offset, int64_t recovery_point, int64_t cleaner_offset,
              bint clean, int64_t index_interval) noexcept nogil:
    cdef Array snapshots
    cdef int error
    cdef int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    if directory < 0:
        return -errno
    memset(&snapshots, 0, sizeof(Array))
    snapshots.item_bytes = sizeof(int64_t)
    error = load_from(state, directory, &snapshots, log_start_offset, recovery_point, cleaner_offset, clean,
                      index_interval)
    free(snapshots.items)
    close(directory)
    return error
