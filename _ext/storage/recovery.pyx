"""Restores a log that was not closed in order to its last valid batch, and rebuilds everything that is derived from batches.

Runs when a log is opened, in the thread that opens it, before any other process uses the partition. It may be killed between
any two changes: nothing is cut before everything after it is removed, indexes are replaced by rename (or overwritten where one
write replaces their whole content), and the next run finds the same first bad batch or none. The rules are Kafka's
(LogSegment.recover, LogLoader.recoverLog). Two kinds of batches are bad here and not in Kafka: a batch whose offset does not
increase, because the CRC does not cover the offset; and a batch after a gap that compaction did not make, because the records in
the gap may be lost, if only the later segment was on the device. Compaction made a gap if the batch after it begins at or below
the log's gap limit (gap_limit.pxd). Messages of format v0 and v1 are treated like batches, except that the first offset of a
compressed one is not known here: its last offset must be above the previous ones.
"""

from libc.errno cimport ENOMEM, errno
from libc.stdint cimport int64_t, uint32_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memset
from posix.fcntl cimport O_RDONLY, O_RDWR
from posix.unistd cimport close

from odradek._ext.records.record_batch cimport BatchInfo
from odradek._ext.storage.file_calls cimport file_data_sync, file_truncate
from odradek._ext.storage.index_entries cimport (
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    TXN_ENTRY_BYTES,
    AbortedEntry,
    pack_offset_entry,
    pack_time_entry,
    pack_txn_entry,
)
from odradek._ext.storage.log_files cimport file_size, open_file, remove_segment_files
from odradek._ext.storage.log_replay cimport HEADERS_BYTES, replay_at
from odradek._ext.storage.log_scan cimport (
    SCAN_BATCH,
    SCAN_CORRUPT,
    SCAN_END,
    Scanner,
    read_at,
    scan_batch,
    scan_crc,
    scan_file,
    write_at,
)
from odradek._ext.storage.log_state cimport (
    ERROR_OFFSET_OVERFLOW,
    EVENT_CUT_LOG,
    EVENT_GAP,
    EVENT_REBUILT_INDEXES,
    EVENT_REMOVED_SEGMENT,
    EVENT_UNREADABLE,
    FILE_INDEX,
    FILE_LOG,
    FILE_TIME_INDEX,
    FILE_TXN_INDEX,
    Array,
    LogState,
    Segment,
    about_to_change,
    add_event,
    add_progress,
    append_item,
    first_open_txn,
    may_follow_gap,
)
from odradek._ext.storage.state_files cimport assign_epoch, file_name, replace_small_file


cdef enum:
    READ_BYTES = 1 << 20
    PROGRESS_BYTES = 4 << 20        # between two reports of progress
    OVERWRITTEN_BYTES = 4096


# The results of a walk through one segment.
cdef struct Walk:
    bint check_crc
    bint replay                     # producers, aborted transactions and leader epochs
    int64_t index_interval
    int64_t valid_bytes
    int64_t next_offset
    int64_t first_timestamp
    int64_t max_timestamp
    int64_t offset_of_max_timestamp
    int64_t last_index_offset
    int64_t last_index_position
    int64_t last_time
    Array index
    Array times
    Array txns


cdef void start_walk(Walk* walk, int64_t base_offset, bint check_crc, bint replay,
                     int64_t index_interval) noexcept nogil:
    memset(walk, 0, sizeof(Walk))
    walk.check_crc = check_crc
    walk.replay = replay
    walk.index_interval = index_interval
    walk.next_offset = base_offset
    walk.first_timestamp = -1
    walk.max_timestamp = -1
    walk.offset_of_max_timestamp = -1
    walk.last_index_offset = base_offset - 1
    walk.last_time = -1
    walk.index.item_bytes = OFFSET_ENTRY_BYTES
    walk.times.item_bytes = TIME_ENTRY_BYTES
    walk.txns.item_bytes = TXN_ENTRY_BYTES


cdef void end_walk(Walk* walk) noexcept nogil:
    free(walk.index.items)
    free(walk.times.items)
    free(walk.txns.items)


cdef int add_time_entry(Walk* walk, int64_t base_offset) noexcept nogil:
    """Add an entry only if the largest timestamp has increased since the last entry."""
    cdef uint8_t* entry
    if walk.max_timestamp <= walk.last_time:
        return 0
    entry = <uint8_t*>append_item(&walk.times)
    if entry == NULL:
        return -ENOMEM
    pack_time_entry(entry, walk.max_timestamp, walk.offset_of_max_timestamp - base_offset)
    walk.last_time = walk.max_timestamp
    return 0


cdef int add_txn_entry(Walk* walk, LogState* state, const BatchInfo* info, int64_t first_offset) noexcept nogil:
    cdef int64_t open_txn = first_open_txn(state, info.producer_id)
    cdef AbortedEntry aborted
    cdef uint8_t* entry = <uint8_t*>append_item(&walk.txns)
    if entry == NULL:
        return -ENOMEM
    aborted.producer_id = info.producer_id
    aborted.first_offset = first_offset
    aborted.last_offset = info.base_offset
    aborted.last_stable_offset = open_txn if open_txn >= 0 else info.base_offset + 1
    pack_txn_entry(entry, &aborted)
    return 0


cdef int replay_in_walk(Walk* walk, LogState* state, Scanner* scanner, int64_t position, const BatchInfo* info) noexcept nogil:
    cdef bint aborted = False
    cdef int64_t first_offset = -1
    cdef int error = replay_at(state, scanner, position, info, &aborted, &first_offset)
    if error == 0 and aborted:
        error = add_txn_entry(walk, state, info, first_offset)
    return error


cdef int take_batch(Walk* walk, LogState* state, Scanner* scanner, const Segment* segment, int64_t position,
                    const BatchInfo* info) noexcept nogil:
    """Process a valid batch: index entries, largest timestamp, producers, epochs."""
    cdef int64_t last_offset = info.base_offset + info.last_offset_delta
    cdef uint8_t* entry
    cdef int error
    if last_offset - segment.base_offset > 0x7FFFFFFF:
        return ERROR_OFFSET_OVERFLOW
    if position == 0:
        walk.first_timestamp = info.max_timestamp
    if info.max_timestamp > walk.max_timestamp:
        walk.max_timestamp = info.max_timestamp
        walk.offset_of_max_timestamp = last_offset
    if position - walk.last_index_position > walk.index_interval:
        entry = <uint8_t*>append_item(&walk.index)
        if entry == NULL or add_time_entry(walk, segment.base_offset):
            return -ENOMEM
        pack_offset_entry(entry, last_offset - segment.base_offset, position)
        walk.last_index_offset = last_offset
        walk.last_index_position = position
    if walk.replay and info.magic == 2:     # older messages have neither leader epochs nor producers
        error = assign_epoch(state, info.partition_leader_epoch, info.base_offset)
        if error == 0:
            error = replay_in_walk(walk, state, scanner, position, info)
        if error:
            return error
    walk.valid_bytes = position + info.size
    walk.next_offset = last_offset + 1
    return 0


cdef int walk_segment(Walk* walk, LogState* state, int descriptor, const Segment* segment,
                      uint8_t* buffer, size_t capacity) noexcept nogil:
    """Returns SCAN_END if the segment is valid to its end, SCAN_CORRUPT at the first bad batch, or a negative error."""
    cdef Scanner scanner
    cdef BatchInfo info
    cdef int64_t position = 0
    cdef int64_t reported = 0
    cdef int result
    scan_file(&scanner, descriptor, segment.size, buffer, capacity)
    while True:
        result = scan_batch(&scanner, position, &info)
        if result == SCAN_BATCH and info.base_offset < walk.next_offset:
            result = SCAN_CORRUPT
        if result == SCAN_BATCH and info.base_offset > walk.next_offset and walk.replay \
                and not may_follow_gap(state, info.base_offset) and not (info.magic < 2 and info.codec):
            result = add_event(state, EVENT_GAP, FILE_LOG, segment.base_offset, walk.next_offset, info.base_offset - 1, 0)
            if result == 0:
                result = SCAN_CORRUPT
        if result != SCAN_BATCH:
            break
        if walk.check_crc:
            result = scan_crc(&scanner, position, &info)
            if result != 1:
                result = SCAN_CORRUPT if result == 0 else result
                break
        result = take_batch(walk, state, &scanner, segment, position, &info)
        if result:
            break
        position = walk.valid_bytes
        if position - reported >= PROGRESS_BYTES and walk.replay:
            add_progress(state, position - reported)
            reported = position
    if walk.replay:
        add_progress(state, position - reported)
    state.scanned_bytes += position
    if result >= 0 and add_time_entry(walk, segment.base_offset):
        return -ENOMEM
    return result


cdef int write_index(LogState* state, int directory, Segment* segment, int kind, Array* entries, bint compared_again,
                     bint* changed) noexcept nogil:
    """Replace an index whose content differs. Create no index that would be empty, except the two that always exist.

    At the broker's start, when no process reads the index yet, an index of at most one block whose length does not change is
    overwritten. That needs no new inode, which counts with thousands of small logs. If a crash interrupts the
    write, the next recovery finds a difference again, provided that it compares the index (`compared_again`). An index that
    cannot be read is written to a new place on the device.
    """
    cdef char[64] name
    cdef char[64] temporary
    cdef int64_t n = entries.count * <int64_t>entries.item_bytes
    cdef int64_t present = file_size(directory, segment.base_offset, kind) if segment.files & <uint32_t>kind else -1
    cdef uint8_t* old
    cdef int descriptor
    cdef bint over = compared_again and state.progress != NULL and n <= OVERWRITTEN_BYTES
    cdef bint was_read, same
    cdef int error
    if n == 0 and present < 0 and kind == FILE_TXN_INDEX:
        return 0
    if present == n:
        old = <uint8_t*>malloc(<size_t>n + 1)
        descriptor = open_file(directory, segment.base_offset, kind, O_RDWR if over else O_RDONLY)
        was_read = old != NULL and descriptor >= 0 and read_at(descriptor, old, <size_t>n, 0) == n
        same = was_read and (n == 0 or memcmp(old, entries.items, <size_t>n) == 0)
        free(old)
        if over and was_read and not same:
            changed[0] = True
            error = about_to_change(state)
            if error == 0:
                error = write_at(descriptor, entries.items, <size_t>n, 0)
            close(descriptor)
            return error
        if descriptor >= 0:
            close(descriptor)
        if same:
            return 0
    file_name(name, segment.base_offset, kind, b"")
    file_name(temporary, segment.base_offset, kind, b".cleaned")
    error = replace_small_file(state, directory, name, temporary, entries.items, <size_t>n)
    segment.files |= <uint32_t>kind
    changed[0] = True
    return error


cdef int write_indexes(LogState* state, int directory, Segment* segment, Walk* walk) noexcept nogil:
    cdef bint changed = False
    cdef int error = write_index(state, directory, segment, FILE_INDEX, &walk.index, walk.replay, &changed)
    if error == 0:
        error = write_index(state, directory, segment, FILE_TIME_INDEX, &walk.times, walk.replay, &changed)
    if error == 0 and walk.replay:
        error = write_index(state, directory, segment, FILE_TXN_INDEX, &walk.txns, walk.replay, &changed)
    if error == 0 and changed:
        error = add_event(state, EVENT_REBUILT_INDEXES, FILE_INDEX, segment.base_offset, walk.next_offset,
                          walk.valid_bytes, 0)
    return error


cdef int remove_from(LogState* state, int directory, int64_t number) noexcept nogil:
    """Remove state.segments[number:], the last one first, so that a crash leaves no gap."""
    cdef Segment* segment
    cdef int error
    while state.segments.count > number:
        segment = <Segment*>state.segments.items + state.segments.count - 1
        error = add_event(state, EVENT_REMOVED_SEGMENT, FILE_LOG, segment.base_offset, segment.base_offset, 0,
                          segment.size)
        if error == 0:
            error = remove_segment_files(state, directory, segment.base_offset, segment.files)
        if error:
            return error
        state.lost_bytes += segment.size
        add_progress(state, segment.size)
        state.segments.count -= 1
    return 0


cdef int cut_log(LogState* state, int directory, int64_t number, Walk* walk) noexcept nogil:
    """End the log after the walk's last valid batch: first remove all later segments, then cut the segment."""
    cdef Segment* segment
    cdef int descriptor
    cdef int error = remove_from(state, directory, number + 1)
    if error == 0:
        error = about_to_change(state)
    if error:
        return error
    segment = <Segment*>state.segments.items + number
    descriptor = open_file(directory, segment.base_offset, FILE_LOG, O_RDWR)
    if descriptor < 0:
        return descriptor
    error = -errno if file_truncate(descriptor, walk.valid_bytes) < 0 else 0
    # New batches take the place of the cut ones. After a power failure the device must not show old batches after new ones.
    if error == 0 and file_data_sync(descriptor) < 0:
        error = -errno
    close(descriptor)
    if error == 0:
        error = add_event(state, EVENT_CUT_LOG, FILE_LOG, segment.base_offset, walk.next_offset, walk.valid_bytes,
                          segment.size - walk.valid_bytes)
    state.lost_bytes += segment.size - walk.valid_bytes
    add_progress(state, segment.size - walk.valid_bytes)
    segment.size = walk.valid_bytes
    return error


cdef void fill_active(LogState* state, const Segment* segment, const Walk* walk) noexcept nogil:
    state.base_offset = segment.base_offset
    state.size = segment.size
    state.log_end_offset = walk.next_offset
    state.index_entries = walk.index.count
    state.timeindex_entries = walk.times.count
    state.txnindex_entries = walk.txns.count
    state.last_index_offset = walk.last_index_offset
    state.last_index_position = walk.last_index_position
    state.last_timeindex_timestamp = walk.last_time
    state.max_timestamp = walk.max_timestamp
    state.offset_of_max_timestamp = walk.offset_of_max_timestamp
    state.first_timestamp = walk.first_timestamp


cdef int recover_one(LogState* state, int directory, int64_t number, int64_t index_interval, uint8_t* buffer,
                     size_t capacity, bint* cut) noexcept nogil:
    cdef Walk walk
    cdef Segment* segment = <Segment*>state.segments.items + number
    cdef int result
    cdef int descriptor = open_file(directory, segment.base_offset, FILE_LOG, O_RDONLY)
    if descriptor < 0:
        return descriptor
    start_walk(&walk, segment.base_offset, True, True, index_interval)
    result = walk_segment(&walk, state, descriptor, segment, buffer, capacity)
    close(descriptor)
    cut[0] = result == SCAN_CORRUPT
    if result == SCAN_CORRUPT:
        result = cut_log(state, directory, number, &walk)
    elif result == SCAN_END:
        result = 0
    if result == 0:
        result = write_indexes(state, directory, segment, &walk)
        fill_active(state, segment, &walk)
    end_walk(&walk)
    return result


cdef int recover_segments(LogState* state, int directory, int64_t first, int64_t index_interval) noexcept nogil:
    cdef uint8_t* buffer
    cdef Segment* segments = <Segment*>state.segments.items
    cdef int64_t number = first
    cdef size_t capacity = HEADERS_BYTES
    cdef bint cut = False
    cdef int error = 0
    # Most logs are small; allocating a large buffer for each would cost more than reading them.
    for number in range(first, state.segments.count):
        if segments[number].size > HEADERS_BYTES:
            capacity = READ_BYTES
    number = first
    buffer = <uint8_t*>malloc(capacity)
    if buffer == NULL:
        return -ENOMEM
    while number < state.segments.count and not cut:
        # A segment that begins before the end of the previous one repeats offsets: neither it nor the segments after it are part of
        # the log. A segment that begins later belongs to the log only where compaction may have removed the records in between.
        if number > first and (segments[number].base_offset < state.log_end_offset
                               or (segments[number].base_offset > state.log_end_offset
                                   and not may_follow_gap(state, segments[number].base_offset))):
            if segments[number].base_offset > state.log_end_offset:
                error = add_event(state, EVENT_GAP, FILE_LOG, segments[number].base_offset, state.log_end_offset,
                                  segments[number].base_offset - 1, 0)
            if error == 0:
                error = remove_from(state, directory, number)
            break
        error = recover_one(state, directory, number, index_interval, buffer, capacity, &cut)
        if error:
            break
        number += 1
    free(buffer)
    return error


cdef int rebuild_indexes(LogState* state, int directory, int64_t number, int64_t index_interval) noexcept nogil:
    cdef Walk walk
    cdef Segment* segment = <Segment*>state.segments.items + number
    cdef uint8_t* buffer = <uint8_t*>malloc(HEADERS_BYTES)
    cdef int descriptor = open_file(directory, segment.base_offset, FILE_LOG, O_RDONLY)
    cdef int result
    if descriptor < 0 or buffer == NULL:
        free(buffer)
        if descriptor >= 0:
            close(descriptor)
            return -ENOMEM
        return descriptor
    start_walk(&walk, segment.base_offset, False, False, index_interval)
    result = walk_segment(&walk, state, descriptor, segment, buffer, HEADERS_BYTES)
    close(descriptor)
    if result == SCAN_CORRUPT:
        result = add_event(state, EVENT_UNREADABLE, FILE_LOG, segment.base_offset, walk.next_offset, walk.valid_bytes,
                           segment.size - walk.valid_bytes)
    elif result == SCAN_END:
        result = 0
    if result == 0:
        result = write_indexes(state, directory, segment, &walk)
    end_walk(&walk)
    free(buffer)
    return result
