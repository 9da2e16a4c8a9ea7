"""Finds the last five batches of producers again when a log is opened: a snapshot has only the last one of each.

Runs in the thread that opens the log; changes no file. A producer whose requests were in flight when the broker ended repeats up to
five batches. All were written shortly before the end, so their headers are near the end of the log. The search has two
bounds. It goes back a number of entries of the offset index, each of which stands for one batch or for 4 KiB, whichever is larger. It looks
only for producers that wrote recently, so that the start of an idle partition reads nothing.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memmove, memset
from posix.fcntl cimport O_RDONLY
from posix.unistd cimport close

from odradek._ext.protocol.byte_order cimport load32
from odradek._ext.records.record_batch cimport sequence_behind
from odradek._ext.shm.clock cimport now_ms
from odradek._ext.storage.index_entries cimport OFFSET_ENTRY_BYTES
from odradek._ext.storage.log_files cimport file_size, open_file
from odradek._ext.storage.log_replay cimport replay_log
from odradek._ext.storage.log_scan cimport read_at
from odradek._ext.storage.log_state cimport (
    FILE_INDEX,
    Array,
    LoadedBatch,
    LoadedProducer,
    LogState,
    Segment,
    find_loaded,
    free_state,
    init_state,
)


cdef enum:
    BATCHES_KEPT = 5
    FIRST_ENTRIES = 16              # entries of the offset index to look back first
    MOST_ENTRIES = 256              # and at most; a mebibyte of a log of small batches
    RECENT_MS = 3600 * 1000         # producers that were silent for longer before this start repeat nothing


# -- what is missing ----------------------------------------------------------------------------------------------------


cdef bint lacks_batches(const LoadedProducer* producer, int64_t recent_ms) noexcept nogil:
    """Whether the log may have batches of the producer that it may still repeat, before the oldest known one."""
    return 0 < producer.batch_count < BATCHES_KEPT and producer.batches[0].base_sequence > 0 \
        and (producer.replayed or producer.last_timestamp >= recent_ms)


cdef bint any_lacks_batches(LogState* state, int64_t recent_ms) noexcept nogil:
    cdef LoadedProducer* producers = <LoadedProducer*>state.producers.items
    cdef int64_t number
    for number in range(state.producers.count):
        if lacks_batches(&producers[number], recent_ms):
            return True
    return False


cdef void add_older_batches(LoadedProducer* producer, const LoadedProducer* found) noexcept nogil:
    """Put those batches of `found` before the producer's that precede them without a gap in the sequence."""
    cdef int k = found.batch_count - 1
    while k >= 0 and found.batches[k].last_offset >= producer.batches[0].base_offset:
        k -= 1
    while k >= 0 and producer.batch_count < BATCHES_KEPT \
            and sequence_behind(found.batches[k].last_sequence) == producer.batches[0].base_sequence:
        memmove(&producer.batches[1], &producer.batches[0], <size_t>producer.batch_count * sizeof(LoadedBatch))
        producer.batches[0] = found.batches[k]
        producer.batch_count += 1
        k -= 1


cdef void add_found(LogState* state, LogState* found, int64_t recent_ms) noexcept nogil:
    cdef LoadedProducer* producers = <LoadedProducer*>state.producers.items
    cdef LoadedProducer* known
    cdef int64_t number
    for number in range(state.producers.count):
        if found.producers.count and lacks_batches(&producers[number], recent_ms):
            known = find_loaded(found, producers[number].producer_id, False)
            if known != NULL and known.producer_epoch == producers[number].producer_epoch:
                add_older_batches(&producers[number], known)


# -- where to look --------------------------------------------------------------------------------------------------------


cdef int64_t entry_offset(int descriptor, int64_t entry) noexcept nogil:
    """The relative offset of an entry of an offset index, or -1."""
    cdef uint8_t[4] number
    if read_at(descriptor, number, 4, entry * OFFSET_ENTRY_BYTES) != 4:
        return -1
    return <int64_t><int32_t>load32(number)


cdef int64_t entries_before(int descriptor, int64_t entries, int64_t relative_offset) noexcept nogil:
    """The number of entries below an offset."""
    cdef int64_t low = 0, middle
    while low < entries:
        middle = (low + entries) // 2
        if entry_offset(descriptor, middle) < relative_offset:
            low = middle + 1
        else:
            entries = middle
    return low


cdef int64_t offset_behind(LogState* state, int directory, int64_t until_offset, int64_t back) noexcept nogil:
    """The offset at which `back` entries of the offset indexes before `until_offset` begin. The begin of a segment counts as one."""
    cdef Segment* segments = <Segment*>state.segments.items
    cdef int64_t number = state.segments.count - 1, entries, found
    cdef int descriptor
    while number >= 0 and segments[number].base_offset >= until_offset:
        number -= 1
    while number >= 0:
        entries = file_size(directory, segments[number].base_offset, FILE_INDEX) // OFFSET_ENTRY_BYTES \
            if segments[number].files & FILE_INDEX else 0
        if entries > 0:
            descriptor = open_file(directory, segments[number].base_offset, FILE_INDEX, O_RDONLY)
            if descriptor >= 0:
                entries = entries_before(descriptor, entries, until_offset - segments[number].base_offset)
                found = entry_offset(descriptor, entries - back) if entries >= back else -1
                close(descriptor)
                if found >= 0:
                    return segments[number].base_offset + found
        back -= max(entries, <int64_t>0) + 1
        if back <= 0 or number == 0:
            return segments[number].base_offset
        number -= 1
    return until_offset


cdef int look_back(LogState* state, int directory, int64_t from_offset, int64_t until_offset, int64_t recent_ms) noexcept nogil:
    """Replay a range of the log for its own sake, and add what it has of the producers that lack batches."""
    cdef LogState found
    cdef int error
    init_state(&found)
    found.hash_key[0] = state.hash_key[0]
    found.hash_key[1] = state.hash_key[1]
    found.producer_limit = state.producer_limit
    found.segments = state.segments
    error = replay_log(&found, directory, from_offset, until_offset)
    if error == 0:
        add_found(state, &found, recent_ms)
    state.scanned_bytes += found.scanned_bytes
    memset(&found.segments, 0, sizeof(Array))       # they are those of `state`
    free_state(&found)
    return error


cdef int complete_batches(LogState* state, int directory, int64_t until_offset) noexcept nogil:
    cdef Segment* segments = <Segment*>state.segments.items
    cdef int64_t recent_ms = now_ms() - RECENT_MS, back = FIRST_ENTRIES, from_offset
    cdef int error = 0
    while error == 0 and back <= MOST_ENTRIES and state.segments.count and any_lacks_batches(state, recent_ms):
        from_offset = offset_behind(state, directory, until_offset, back)
        error = look_back(state, directory, from_offset, until_offset, recent_ms)
        if from_offset <= segments[0].base_offset:
            break
        back *= 4
    return error
