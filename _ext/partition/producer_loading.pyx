"""Restores producers after a load of the log; see producer_loading.pxd. No GIL."""

from libc.errno cimport ENOMEM
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memset

from odradek._ext.partition.producer_entry cimport ProducerEntry
from odradek._ext.partition.producer_runs cimport capacity_of, count_event, drop_producer, move_run, oldest_of_owner, order_for
from odradek._ext.partition.producers cimport (
    forget_producers,
    forget_transactions,
    restore_batch,
    restore_producer,
    settle_restored,
)
from odradek._ext.partition.slot_access cimport wait_slot
from odradek._ext.partition.slots cimport LOCK_PATIENCE_MS
from odradek._ext.shm.arena cimport ARENA_READY, order_of_run
from odradek._ext.shm.clock cimport coarse_ms, now_ms
from odradek._ext.shm.layout cimport DROPPED_AT_START, region
from odradek._ext.shm.locks cimport unlock
from odradek._ext.shm.owners cimport OWNER_NOBODY
from odradek._ext.shm.slot cimport SLOT_ONLINE, slot_at
from odradek._ext.storage.log_state cimport LoadedBatch


cdef int by_last_offset(const void* left, const void* right) noexcept nogil:
    cdef int64_t a = (<LoadedProducer**>left)[0].last_offset, b = (<LoadedProducer**>right)[0].last_offset
    return -1 if a < b else a > b


cdef int choose_producers(LogState* state, int64_t before_ms, RestorePlan* plan) noexcept nogil:
    cdef LoadedProducer* producer
    cdef int64_t i
    memset(plan, 0, sizeof(RestorePlan))
    plan.wall_less_monotonic = now_ms() - coarse_ms()
    plan.items = <LoadedProducer**>malloc(<size_t>max(state.producers.count, <int64_t>1) * sizeof(LoadedProducer*))
    if plan.items == NULL:
        return -ENOMEM
    for i in range(state.producers.count):
        producer = <LoadedProducer*>state.producers.items + i
        if producer.replayed or producer.current_txn_first_offset >= 0 or producer.last_timestamp >= before_ms:
            plan.items[plan.count] = producer
            plan.count += 1
    if plan.count:
        qsort(plan.items, <size_t>plan.count, sizeof(LoadedProducer*), &by_last_offset)
    return 0


cdef void free_plan(RestorePlan* plan) noexcept nogil:
    free(plan.items)
    plan.items = NULL


cdef inline bint is_left_out(RestorePlan* plan, int64_t number) noexcept nogil:
    return number < plan.first and plan.items[number].current_txn_first_offset < 0


cdef uint32_t count_restored(RestorePlan* plan) noexcept nogil:
    cdef uint32_t count = 0
    cdef int64_t i
    for i in range(plan.count):
        count += not is_left_out(plan, i)
    return count


cdef void restore_loaded(Slot* slot, LoadedProducer* producer, RestorePlan* plan) noexcept nogil:
    cdef int64_t now = coarse_ms(), heard_ms = now
    cdef LoadedBatch* batch
    cdef ProducerEntry* entry
    cdef int k
    if not producer.replayed:           # the snapshot has the wall clock time
        heard_ms = min(now, producer.last_timestamp - plan.wall_less_monotonic)
    entry = restore_producer(slot, producer.producer_id, producer.producer_epoch, producer.coordinator_epoch,
                             producer.last_timestamp, producer.current_txn_first_offset, heard_ms)
    if entry == NULL:
        return
    for k in range(producer.batch_count):
        batch = &producer.batches[k]
        restore_batch(entry, batch.base_sequence, batch.last_sequence, batch.base_offset, batch.last_offset, batch.timestamp)


cdef bint restore_plan(uint32_t index, Slot* slot, RestorePlan* plan) noexcept nogil:
    cdef uint64_t former = slot.producer_run, units = region().header.arena_units
    cdef uint32_t count = count_restored(plan)
    cdef int64_t i
    if former:
        forget_producers(slot)
    forget_transactions(slot)
    if count == 0:
        return True
    # The last quarter of the arena is reserved for later producers; only open transactions may use all of it.
    if move_run(index, slot, order_for(count), True, units if plan.first == plan.count else units - units // 4) != ARENA_READY:
        return False
    for i in range(plan.count):
        if not is_left_out(plan, i):
            restore_loaded(slot, plan.items[i], plan)
    settle_restored(slot)
    return True


# -- room --------------------------------------------------------------------------------------------------------------

cdef int64_t largest_run(uint32_t but, int order) noexcept nogil:
    """The slot with the largest run above that order, except slot `but`; -1 if there is none."""
    cdef uint64_t i, word
    cdef int64_t largest = -1
    for i in range(region().header.slots_used):
        word = slot_at(<uint32_t>i).producer_run
        if i != but and word and order_of_run(word) > order and slot_at(<uint32_t>i).state == SLOT_ONLINE:
            largest = <int64_t>i
            order = order_of_run(word)
    return largest


cdef bint halve(uint32_t index, int64_t* dropped) noexcept nogil:
    """Drop producers that were not used since the start until half of the partition's run is enough. Returns whether that made
    room."""
    cdef Slot* slot = slot_at(index)
    cdef ProducerEntry* entry
    cdef uint32_t enough
    cdef bint halved = False
    if wait_slot(index, slot, LOCK_PATIENCE_MS) != 0:
        return False
    if slot.state == SLOT_ONLINE and slot.producer_run and order_of_run(slot.producer_run) > 0:
        enough = capacity_of(order_of_run(slot.producer_run) - 1)
        while slot.producer_count > enough:
            entry = oldest_of_owner(slot, OWNER_NOBODY)
            if entry == NULL:
                break
            drop_producer(slot, entry)
            dropped[0] += 1
        halved = slot.producer_count <= enough and move_run(index, slot, order_for(slot.producer_count), True, 0) == ARENA_READY
    unlock(index, slot)
    return halved


cdef int64_t make_restore_room(RestorePlan* plan, uint32_t index, bint of_others, int64_t* dropped) noexcept nogil:
    cdef int64_t other = largest_run(index, order_for(count_restored(plan))) if of_others else -1
    cdef int64_t before = count_restored(plan)
    dropped[0] = 0
    if other < 0 or not halve(<uint32_t>other, dropped):
        if dropped[0] == 0:
            other = index if plan.first < plan.count else -1
        while dropped[0] == 0 and plan.first < plan.count:
            plan.first += (plan.count - plan.first + 1) // 2
            dropped[0] = before - count_restored(plan)
    count_event(DROPPED_AT_START, dropped[0])
    return other
