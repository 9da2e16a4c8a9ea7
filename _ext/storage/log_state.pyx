"""The state of a partition's log while it is opened: offsets, leader epochs, producers, and the repairs that were necessary.

Owned by the thread that loads the log; nothing is shared. The rules for producers are those of Kafka's ProducerAppendInfo for
batches that are already in the log: no check of sequences, the last five batches of each producer, transactions from their
first batch to their marker.
"""

from libc.errno cimport ENOMEM
from libc.stdint cimport int16_t, int32_t, int64_t, uint64_t, uint8_t
from libc.stdlib cimport free, malloc, qsort, realloc
from libc.string cimport memmove, memset

from odradek._ext.protocol.byte_order cimport load16, load32
from odradek._ext.records.record_batch cimport BatchInfo, last_sequence_of, read_varint, read_varlong
from odradek._ext.shm.atomics cimport fetch_add_64
from odradek._ext.shm.siphash cimport hash_word


cdef extern from "<errno.h>" nogil:
    int ECANCELED


cdef enum:
    BATCHES_KEPT = 5
    MARKER_ABORT = 0
    MARKER_COMMIT = 1


cdef void init_state(LogState* state) noexcept nogil:
    memset(state, 0, sizeof(LogState))
    state.segments.item_bytes = sizeof(Segment)
    state.epochs.item_bytes = sizeof(EpochEntry)
    state.producers.item_bytes = sizeof(LoadedProducer)
    state.events.item_bytes = sizeof(Event)
    state.slots.item_bytes = sizeof(int32_t)
    state.first_open_txn_offset = state.newest_abort_offset = state.newest_end_offset = -1
    state.changes_left = -1
    state.created_ms = -1


cdef void free_state(LogState* state) noexcept nogil:
    free(state.segments.items)
    free(state.epochs.items)
    free(state.producers.items)
    free(state.events.items)
    free(state.slots.items)
    init_state(state)


cdef void* append_item(Array* array) noexcept nogil:
    cdef int64_t room
    cdef void* items
    cdef void* item
    if array.count == array.room:
        room = array.room * 2 if array.room else 8
        items = realloc(array.items, <size_t>room * array.item_bytes)
        if items == NULL:
            return NULL
        array.items = items
        array.room = room
    item = <char*>array.items + array.count * <int64_t>array.item_bytes
    memset(item, 0, array.item_bytes)
    array.count += 1
    return item


cdef int add_event(LogState* state, int code, int kind, int64_t base_offset, int64_t offset, int64_t position,
                   int64_t lost_bytes) noexcept nogil:
    cdef Event* event = <Event*>append_item(&state.events)
    if event == NULL:
        return -ENOMEM
    event.code = code
    event.kind = kind
    event.base_offset = base_offset
    event.offset = offset
    event.position = position
    event.lost_bytes = lost_bytes
    return 0


cdef void add_progress(LogState* state, int64_t bytes) noexcept nogil:
    if state.progress != NULL:
        fetch_add_64(state.progress, <uint64_t>bytes)


cdef int about_to_change(LogState* state) noexcept nogil:
    if state.changes_left == 0:
        return -ECANCELED
    if state.changes_left > 0:
        state.changes_left -= 1
    return 0


# -- producers --------------------------------------------------------------------------------------------------------


cdef void clear_producers(LogState* state) noexcept nogil:
    state.producers.count = 0
    if state.slots.items != NULL:
        memset(state.slots.items, 0xFF, <size_t>state.slots.room * sizeof(int32_t))


cdef inline int64_t home_slot(LogState* state, int64_t producer_id) noexcept nogil:
    return <int64_t>(hash_word(state.hash_key, <uint64_t>producer_id) >> 32) & (state.slots.room - 1)


cdef void fill_slots(LogState* state) noexcept nogil:
    """Enter all producers into the hash table."""
    cdef int32_t* slots = <int32_t*>state.slots.items
    cdef LoadedProducer* producers = <LoadedProducer*>state.producers.items
    cdef int64_t at
    cdef int64_t number
    memset(slots, 0xFF, <size_t>state.slots.room * sizeof(int32_t))
    for number in range(state.producers.count):
        at = home_slot(state, producers[number].producer_id)
        while slots[at] >= 0:
            at = (at + 1) & (state.slots.room - 1)
        slots[at] = <int32_t>number


cdef int grow_slots(LogState* state) noexcept nogil:
    """Double the size of the table, at least to 16."""
    cdef int64_t room = state.slots.room * 2 if state.slots.room else 16
    cdef void* slots = malloc(<size_t>room * sizeof(int32_t))
    if slots == NULL:
        return -ENOMEM
    free(state.slots.items)
    state.slots.items = slots
    state.slots.room = room
    fill_slots(state)
    return 0


cdef int by_offset(const void* left, const void* right) noexcept nogil:
    cdef int64_t a = (<const int64_t*>left)[0], b = (<const int64_t*>right)[0]
    return -1 if a < b else a > b


cdef int prune_producers(LogState* state) noexcept nogil:
    cdef LoadedProducer* producers = <LoadedProducer*>state.producers.items
    cdef int64_t* offsets
    cdef int64_t count = state.producers.count, closed = 0, kept = 0, newest, oldest, number
    cdef bint is_kept
    if state.producer_limit == 0 or count <= state.producer_limit:
        return 0
    offsets = <int64_t*>malloc(<size_t>count * sizeof(int64_t))
    if offsets == NULL:
        return -ENOMEM
    for number in range(count):
        if producers[number].current_txn_first_offset < 0:
            offsets[closed] = producers[number].last_offset
            closed += 1
    qsort(offsets, <size_t>closed, sizeof(int64_t), &by_offset)
    newest = max(state.producer_limit - (count - closed), <int64_t>0)       # number to keep, in addition to those with open transactions
    oldest = offsets[closed - newest] if 0 < newest < closed else -1        # the smallest last offset of those to keep
    for number in range(count):
        is_kept = producers[number].current_txn_first_offset >= 0
        if not is_kept and newest > 0 and producers[number].last_offset >= oldest:
            is_kept = True
            newest -= 1
        if is_kept:
            if kept != number:
                producers[kept] = producers[number]
            kept += 1
    free(offsets)
    state.pruned_producers += count - kept
    state.producers.count = kept
    fill_slots(state)
    return 0


cdef LoadedProducer* find_loaded(LogState* state, int64_t producer_id, bint create) noexcept nogil:
    cdef int32_t* slots
    cdef LoadedProducer* producer
    cdef int64_t at
    if create and state.producer_limit and state.producers.count >= 2 * state.producer_limit and prune_producers(state):
        return NULL
    if state.producers.count * 2 >= state.slots.room and grow_slots(state):
        return NULL
    slots = <int32_t*>state.slots.items
    at = home_slot(state, producer_id)
    while slots[at] >= 0:
        producer = <LoadedProducer*>state.producers.items + slots[at]
        if producer.producer_id == producer_id:
            return producer
        at = (at + 1) & (state.slots.room - 1)
    if not create:
        return NULL
    producer = <LoadedProducer*>append_item(&state.producers)
    if producer == NULL:
        return NULL
    slots[at] = <int32_t>(state.producers.count - 1)
    producer.producer_id = producer_id
    producer.producer_epoch = -1
    producer.coordinator_epoch = -1
    producer.last_timestamp = -1
    producer.current_txn_first_offset = -1
    producer.last_offset = -1
    return producer


cdef void set_epoch(LoadedProducer* producer, int16_t epoch) noexcept nogil:
    if producer.producer_epoch != epoch:
        producer.batch_count = 0
        producer.producer_epoch = epoch


cdef void add_batch(LoadedProducer* producer, const BatchInfo* info) noexcept nogil:
    cdef LoadedBatch* batch
    set_epoch(producer, info.producer_epoch)
    if producer.batch_count == BATCHES_KEPT:
        memmove(&producer.batches[0], &producer.batches[1], (BATCHES_KEPT - 1) * sizeof(LoadedBatch))
        producer.batch_count -= 1
    batch = &producer.batches[producer.batch_count]
    producer.batch_count += 1
    batch.base_sequence = info.base_sequence
    batch.last_sequence = last_sequence_of(info.base_sequence, info.last_offset_delta)
    batch.base_offset = info.base_offset
    batch.last_offset = info.base_offset + info.last_offset_delta
    batch.timestamp = info.max_timestamp
    producer.last_timestamp = info.max_timestamp
    producer.last_offset = batch.last_offset
    producer.replayed = True
    if info.transactional and producer.current_txn_first_offset < 0:
        producer.current_txn_first_offset = info.base_offset


cdef int parse_marker(const BatchInfo* info, const uint8_t* record, size_t n, int* control_type,
                      int32_t* coordinator_epoch, int64_t* timestamp) noexcept nogil:
    """Parse the end marker in a control batch's first record; -1 if it is no marker."""
    cdef const uint8_t* p = record
    cdef const uint8_t* end = record + n
    cdef int32_t length = 0
    cdef int64_t delta = 0
    if record == NULL or read_varint(&p, end, &length) or length < 1 or length > end - p:
        return -1
    end = p + length
    p += 1
    if read_varlong(&p, end, &delta) or read_varint(&p, end, &length):
        return -1
    if read_varint(&p, end, &length) or length < 4 or length > end - p:
        return -1
    control_type[0] = load16(p + 2)
    p += length
    if read_varint(&p, end, &length) or length < 6 or length > end - p:
        return -1
    coordinator_epoch[0] = <int32_t>load32(p + 2)
    timestamp[0] = info.max_timestamp if info.log_append_time else <int64_t>(<uint64_t>info.base_timestamp + <uint64_t>delta)
    return 0


cdef int replay_batch(LogState* state, const BatchInfo* info, const uint8_t* record, size_t n,
                      bint* aborted, int64_t* first_offset) noexcept nogil:
    cdef LoadedProducer* producer
    cdef int control_type = -1
    cdef int32_t coordinator_epoch = -1
    cdef int64_t timestamp = -1
    aborted[0] = False
    if info.producer_id < 0:
        return 0
    if info.control:
        if parse_marker(info, record, n, &control_type, &coordinator_epoch, &timestamp):
            return 0    # an emptied batch: compaction removed the whole transaction
        if control_type != MARKER_ABORT and control_type != MARKER_COMMIT:
            return 0
    producer = find_loaded(state, info.producer_id, True)
    if producer == NULL:
        return -ENOMEM
    if not info.control:
        add_batch(producer, info)
        return 0
    if producer.current_txn_first_offset >= 0:
        first_offset[0] = producer.current_txn_first_offset
        aborted[0] = control_type == MARKER_ABORT
        state.newest_end_offset = info.base_offset
    set_epoch(producer, info.producer_epoch)
    producer.coordinator_epoch = coordinator_epoch
    producer.last_timestamp = timestamp
    producer.last_offset = info.base_offset + info.last_offset_delta
    producer.replayed = True
    producer.current_txn_first_offset = -1
    return 0


cdef int64_t first_open_txn(LogState* state, int64_t except_producer_id) noexcept nogil:
    cdef LoadedProducer* producers = <LoadedProducer*>state.producers.items
    cdef int64_t smallest = -1
    cdef int64_t number
    cdef int64_t first
    for number in range(state.producers.count):
        first = producers[number].current_txn_first_offset
        if first >= 0 and (smallest < 0 or first < smallest) and producers[number].producer_id != except_producer_id:
            smallest = first
    return smallest
