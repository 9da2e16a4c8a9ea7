"""Restores the producers and the leader epochs of a log from the headers of its batches; see log_replay.pxd.

Runs when a log is opened, in the thread that opens it, before any other process uses the partition. It changes no file, except that
it removes corrupt snapshots.
"""

from libc.errno cimport ENOMEM
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc
from posix.fcntl cimport O_RDONLY
from posix.unistd cimport close

from odradek._ext.records.record_batch cimport AT_RECORDS, BATCH_HEADER_BYTES, BatchInfo
from odradek._ext.storage.index_entries cimport OFFSET_ENTRY_BYTES
from odradek._ext.storage.log_files cimport file_size, open_file, remove_file
from odradek._ext.storage.log_scan cimport SCAN_BATCH, SCAN_CORRUPT, SCAN_END, Scanner, scan_batch, scan_file, scan_window
from odradek._ext.storage.log_state cimport (
    EVENT_CORRUPT_SNAPSHOT,
    EVENT_REBUILT_EPOCHS,
    EVENT_UNREADABLE,
    FILE_EPOCHS,
    FILE_INDEX,
    FILE_LOG,
    FILE_SNAPSHOT,
    Array,
    EpochEntry,
    LogState,
    Segment,
    add_event,
    clear_producers,
    replay_batch,
)
from odradek._ext.storage.lookup cimport LOOKUP_FOUND, FoundBatch, find_position
from odradek._ext.storage.state_files cimport assign_epoch, read_snapshot


# -- leader epochs ----------------------------------------------------------------------------------------------------


cdef int lacks_epochs(LogState* state, int directory, bint* lacks) noexcept nogil:
    """Whether the checkpoint does not contain the leader epoch of the log's first batch, although the batch has one."""
    cdef uint8_t[BATCH_HEADER_BYTES] buffer
    cdef Segment* segments = <Segment*>state.segments.items
    cdef EpochEntry* epochs = <EpochEntry*>state.epochs.items
    cdef Scanner scanner
    cdef BatchInfo info
    cdef int64_t number = 0
    cdef int descriptor, result
    lacks[0] = False
    while number < state.segments.count and segments[number].size == 0:
        number += 1
    if number == state.segments.count or (state.epochs.count and epochs[0].start_offset <= state.log_start_offset):
        return 0
    descriptor = open_file(directory, segments[number].base_offset, FILE_LOG, O_RDONLY)
    if descriptor < 0:
        return descriptor
    scan_file(&scanner, descriptor, segments[number].size, buffer, BATCH_HEADER_BYTES)
    result = scan_batch(&scanner, 0, &info)
    close(descriptor)
    lacks[0] = result == SCAN_BATCH and info.magic == 2 and info.partition_leader_epoch >= 0 \
        and (state.epochs.count == 0 or epochs[0].start_offset > info.base_offset)
    return result if result < 0 else 0


cdef int read_epochs_of_segment(LogState* state, int directory, const Segment* segment, uint8_t* buffer, bint* sound) noexcept nogil:
    cdef Scanner scanner
    cdef BatchInfo info
    cdef int64_t position = 0
    cdef int64_t next_offset = segment.base_offset
    cdef int result, error = 0
    cdef int descriptor = open_file(directory, segment.base_offset, FILE_LOG, O_RDONLY)
    if descriptor < 0:
        return descriptor
    scan_file(&scanner, descriptor, segment.size, buffer, HEADERS_BYTES)
    while True:
        result = scan_batch(&scanner, position, &info)
        if result == SCAN_BATCH and info.base_offset < next_offset:
            result = SCAN_CORRUPT           # a damaged header: its epoch would take the place of those before it
        if result != SCAN_BATCH or error:
            break
        next_offset = info.base_offset + info.last_offset_delta + 1
        if info.magic == 2:
            error = assign_epoch(state, info.partition_leader_epoch, info.base_offset)
        position += info.size
    close(descriptor)
    state.scanned_bytes += position
    sound[0] = result == SCAN_END
    return result if result < 0 else error


cdef int complete_epochs(LogState* state, int directory) noexcept nogil:
    cdef uint8_t* buffer
    cdef bint lacks = False, sound = True
    cdef int64_t number
    cdef int error = lacks_epochs(state, directory, &lacks)
    if error or not lacks:
        return error
    buffer = <uint8_t*>malloc(HEADERS_BYTES)
    if buffer == NULL:
        return -ENOMEM
    state.epochs.count = 0
    for number in range(state.segments.count):
        if error == 0 and sound:
            error = read_epochs_of_segment(state, directory, <Segment*>state.segments.items + number, buffer, &sound)
    free(buffer)
    if error == 0:
        error = add_event(state, EVENT_REBUILT_EPOCHS, FILE_EPOCHS, 0, state.log_start_offset, 0, 0)
    return error


# -- producers --------------------------------------------------------------------------------------------------------


cdef int replay_at(LogState* state, Scanner* scanner, int64_t position, const BatchInfo* info, bint* aborted,
                   int64_t* first_offset) noexcept nogil:
    cdef const uint8_t* record = NULL
    cdef size_t n = 0
    cdef int error = 0
    if info.control and <size_t>info.size <= scanner.capacity:
        record = scan_window(scanner, position, <size_t>info.size, &error)
        if record != NULL:
            record += AT_RECORDS
            n = <size_t>info.size - AT_RECORDS
    if error == 0:
        error = replay_batch(state, info, record, n, aborted, first_offset)
    return error


cdef int64_t start_position(int directory, const Segment* segment, int descriptor, int64_t offset) noexcept nogil:
    """The position from which headers must be read so that no batch from `offset` on is missed."""
    cdef FoundBatch batch
    cdef int64_t entries
    cdef int index = -1
    cdef int64_t position = 0
    if offset <= segment.base_offset or not segment.files & FILE_INDEX:
        return 0
    entries = file_size(directory, segment.base_offset, FILE_INDEX) // OFFSET_ENTRY_BYTES
    if entries > 0:
        index = open_file(directory, segment.base_offset, FILE_INDEX, O_RDONLY)
    if index < 0:
        return 0
    if find_position(descriptor, index, entries, segment.base_offset, segment.size, offset, &batch) == LOOKUP_FOUND:
        position = batch.position
    close(index)
    return position


cdef int replay_segment(LogState* state, int directory, const Segment* segment, int64_t from_offset,
                        int64_t until_offset, uint8_t* buffer) noexcept nogil:
    """Apply the batches of a segment in [from_offset, until_offset) to the producers, using only headers."""
    cdef Scanner scanner
    cdef BatchInfo info
    cdef int64_t position
    cdef int64_t start, first_offset
    cdef bint aborted
    cdef int result
    cdef int descriptor = open_file(directory, segment.base_offset, FILE_LOG, O_RDONLY)
    if descriptor < 0:
        return descriptor
    start = start_position(directory, segment, descriptor, from_offset)
    position = start
    scan_file(&scanner, descriptor, segment.size, buffer, HEADERS_BYTES)
    while True:
        result = scan_batch(&scanner, position, &info)
        if result == SCAN_BATCH and info.base_offset < until_offset:
            if info.base_offset + info.last_offset_delta >= from_offset and info.producer_id >= 0:
                result = replay_at(state, &scanner, position, &info, &aborted, &first_offset)
                if result:
                    break
            position += info.size
            continue
        if result == SCAN_CORRUPT:
            result = add_event(state, EVENT_UNREADABLE, FILE_LOG, segment.base_offset, from_offset, position,
                               segment.size - position)
        elif result > 0:
            result = 0
        break
    state.scanned_bytes += position - start
    close(descriptor)
    return result


cdef int replay_log(LogState* state, int directory, int64_t from_offset, int64_t until_offset) noexcept nogil:
    cdef Segment* segments = <Segment*>state.segments.items
    cdef uint8_t* buffer
    cdef int64_t number
    cdef int error = 0
    if from_offset >= until_offset:
        return 0
    buffer = <uint8_t*>malloc(HEADERS_BYTES)
    if buffer == NULL:
        return -ENOMEM
    for number in range(state.segments.count):
        if segments[number].base_offset >= until_offset or error:
            break
        if number + 1 < state.segments.count and segments[number + 1].base_offset <= from_offset:
            continue
        error = replay_segment(state, directory, &segments[number], from_offset, until_offset, buffer)
    free(buffer)
    return error


cdef int restore_producers(LogState* state, int directory, Array* snapshots, int64_t offset,
                           bint replay_without_snapshot) noexcept nogil:
    cdef int64_t* offsets = <int64_t*>snapshots.items
    cdef int64_t number = snapshots.count - 1
    cdef int64_t kept = snapshots.count
    cdef int64_t at
    cdef int error
    clear_producers(state)
    while number >= 0:
        if offsets[number] > offset:
            number -= 1
            continue
        error = read_snapshot(state, directory, offsets[number])
        if error == 0:
            state.snapshot_current = not replay_without_snapshot and offsets[number] == offset
            return replay_log(state, directory, offsets[number], offset)
        if error < 0:
            return error
        error = add_event(state, EVENT_CORRUPT_SNAPSHOT, FILE_SNAPSHOT, offsets[number], offsets[number], 0, 0)
        if error == 0:
            error = remove_file(state, directory, offsets[number], FILE_SNAPSHOT, b"")
        if error:
            return error
        state.snapshot_corrupt = True
        for at in range(number, kept - 1):
            offsets[at] = offsets[at + 1]
        kept -= 1
        snapshots.count = kept
        number -= 1
    # An ordered stop leaves a snapshot if the log has producers. A corrupt snapshot does not mean that there are none.
    if not replay_without_snapshot and not state.snapshot_corrupt:
        return 0
    return replay_log(state, directory, state.log_start_offset, offset)
