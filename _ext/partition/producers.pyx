"""Producer state: check, apply, restore, expire; see producers.pxd.

The caller holds the slot's mutex; nothing here takes it. No GIL.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t

from odradek._ext.partition.producer_entry cimport (
    ProducerBatch,
    ProducerEntry,
    batch_back,
    coordinator_epoch_of,
    entry_batches,
    entry_epoch,
    newest_batch,
    newest_index,
)
from odradek._ext.partition.producer_runs cimport (
    Run,
    adopt_producer,
    drop_producer,
    find_producer,
    free_place,
    move_run,
    name_producer,
    next_producer,
    open_run,
    order_for,
    producer_at,
    release_run,
    repair_run,
    run_capacity,
)
from odradek._ext.records.record_batch cimport last_sequence_of, sequence_behind
from odradek._ext.shm.atomics cimport fence_release, store_release_32, store_release_64
from odradek._ext.shm.faults cimport PRODUCER_BATCH_STORED, PRODUCER_MARK_STORED, PRODUCER_MARKER_HALF_STORED, fault
from odradek._ext.shm.layout cimport BATCHES_KEPT, Slot
from odradek._ext.shm.owners cimport OWNER_NOBODY


cdef enum:
    SPARSE = 4                    # a run of which less than one in this many entries is live is replaced by a smaller one


cdef inline uint64_t pack(int16_t epoch, int kept, int newest, int32_t coordinator_epoch) noexcept nogil:
    return (<uint64_t><uint16_t>epoch << 48) | (<uint64_t>kept << 40) | (<uint64_t>newest << 32) | <uint32_t>coordinator_epoch


cdef ProducerEntry* new_entry(Slot* slot) noexcept nogil:
    cdef ProducerEntry* entry = free_place(slot)
    if entry != NULL:
        entry.ring = pack(-1, 0, 0, -1)
        entry.transaction_first_offset = -1
        entry.last_marker_offset = -1
    return entry


cdef inline void count_open(Slot* slot, int change) noexcept nogil:
    cdef Run run
    open_run(slot.producer_run, &run)
    run.head.open_transactions += <uint32_t>change


# -- checks and updates -------------------------------------------------------------------------------------------

cdef ProducerCheck check_sequence(ProducerEntry* entry, int16_t epoch, int32_t base_sequence, int32_t last_sequence,
                                  ProducerBatch* duplicate_of) noexcept nogil:
    cdef ProducerBatch* batch
    cdef int back
    if entry == NULL or entry_epoch(entry) == -1:
        return PRODUCER_NEXT            # unknown producer: any sequence may be the first (KIP-360)
    if epoch < entry_epoch(entry):
        return PRODUCER_FENCED
    if base_sequence < 0:
        return PRODUCER_NEXT            # from a coordinator, whose requests have no sequence
    if epoch > entry_epoch(entry):
        return PRODUCER_NEXT if base_sequence == 0 else PRODUCER_OUT_OF_ORDER
    for back in range(entry_batches(entry)):
        batch = batch_back(entry, back)
        if batch.base_sequence == base_sequence and batch.last_sequence == last_sequence:
            duplicate_of[0] = batch[0]
            return PRODUCER_DUPLICATE
    batch = newest_batch(entry)
    if batch == NULL:
        return PRODUCER_NEXT if base_sequence == 0 else PRODUCER_OUT_OF_ORDER
    return PRODUCER_NEXT if base_sequence == sequence_behind(batch.last_sequence) else PRODUCER_OUT_OF_ORDER


cdef void put_batch(ProducerEntry* entry, int16_t epoch, int32_t coordinator_epoch, int32_t base_sequence,
                    int32_t last_sequence, int64_t base_offset, int64_t last_offset, int64_t timestamp) noexcept nogil:
    cdef int kept = 0 if entry_epoch(entry) != epoch else entry_batches(entry)
    cdef int newest = (newest_index(entry) + 1) % BATCHES_KEPT
    cdef ProducerBatch* batch = &entry.batches[newest]
    batch.base_sequence = base_sequence
    batch.last_sequence = last_sequence
    batch.base_offset = base_offset
    batch.last_offset = last_offset
    batch.timestamp = timestamp
    store_release_64(&entry.ring, pack(epoch, min(kept + 1, BATCHES_KEPT), newest, coordinator_epoch))


cdef void apply_batch(Slot* slot, int64_t producer_id, int16_t epoch, int32_t base_sequence, int64_t base_offset,
                      int64_t last_offset, int64_t timestamp, bint transactional, uint32_t owner, uint32_t place,
                      int64_t heard_ms) noexcept nogil:
    cdef ProducerEntry* entry = producer_at(slot, producer_id, place)
    cdef ProducerBatch* newest
    cdef bint created = entry == NULL, opened
    if created:
        entry = new_entry(slot)
        if entry == NULL:
            return
    else:
        newest = newest_batch(entry)
        if epoch < entry_epoch(entry) or (newest != NULL and newest.last_offset >= last_offset):
            return                      # a redo of a batch that was applied before
    opened = transactional and entry.transaction_first_offset < 0
    if opened:
        entry.transaction_first_offset = base_offset
    entry.last_timestamp = timestamp
    entry.heard_ms = heard_ms
    put_batch(entry, epoch, coordinator_epoch_of(entry), base_sequence,
              last_sequence_of(base_sequence, last_offset - base_offset), base_offset, last_offset, timestamp)
    if created:
        name_producer(slot, entry, producer_id, owner)
    else:
        if opened:
            count_open(slot, 1)
        if entry.owner == OWNER_NOBODY and owner != OWNER_NOBODY:
            adopt_producer(slot, entry, owner)
    fault(PRODUCER_BATCH_STORED)
    slot.producers_changed = 1
    if transactional and (slot.first_unstable_offset < 0 or entry.transaction_first_offset < slot.first_unstable_offset):
        slot.first_unstable_offset = entry.transaction_first_offset


cdef void apply_marker(Slot* slot, int64_t producer_id, int16_t epoch, int32_t coordinator_epoch, int64_t offset,
                       int64_t timestamp, int64_t heard_ms) noexcept nogil:
    cdef ProducerEntry* entry = find_producer(slot, producer_id)
    cdef bint created = entry == NULL
    if created:
        entry = new_entry(slot)
    if entry == NULL or (not created and entry.last_marker_offset >= offset):
        return
    entry.last_timestamp = timestamp
    entry.heard_ms = heard_ms
    if entry.transaction_first_offset >= 0:
        entry.transaction_first_offset = -1
        count_open(slot, -1)
    if epoch != entry_epoch(entry):
        store_release_64(&entry.ring, pack(epoch, 0, newest_index(entry), coordinator_epoch))
    else:
        store_release_64(&entry.ring, pack(epoch, entry_batches(entry), newest_index(entry), coordinator_epoch))
    fault(PRODUCER_MARKER_HALF_STORED)
    store_release_64(<uint64_t*>&entry.last_marker_offset, <uint64_t>offset)    # the last store: a redo after a death decides by it
    if created:
        name_producer(slot, entry, producer_id, OWNER_NOBODY)
    slot.producers_changed = 1
    settle_first_unstable(slot)


cdef void settle_first_unstable(Slot* slot) noexcept nogil:
    slot.first_unstable_offset = first_unstable_without(slot, -1)   # no producer has the id -1


cdef int64_t first_unstable_without(Slot* slot, int64_t producer_id) noexcept nogil:
    cdef Run run
    cdef ProducerEntry* entry
    cdef uint64_t key = <uint64_t>producer_id + 1
    cdef int64_t first = -1
    cdef uint32_t at = 0, left
    if slot.producer_run == 0:
        return -1
    open_run(slot.producer_run, &run)
    left = run.head.open_transactions
    while left:
        entry = next_producer(slot, &at)
        if entry == NULL:
            break
        if entry.transaction_first_offset < 0:
            continue
        left -= 1
        if entry.key != key and (first < 0 or entry.transaction_first_offset < first):
            first = entry.transaction_first_offset
    return first


cdef void settle_last_stable(Slot* slot, int64_t high_watermark) noexcept nogil:
    cdef int64_t stable = high_watermark
    if 0 <= slot.first_unstable_offset < stable:
        stable = max(slot.first_unstable_offset, slot.log_start_offset)     # its beginning may be deleted
    store_release_64(<uint64_t*>&slot.last_stable_offset, <uint64_t>stable)


cdef void repair_producers(Slot* slot) noexcept nogil:
    repair_run(slot)
    settle_first_unstable(slot)


cdef void put_mark(Slot* slot, ProducerEntry* entry, int64_t producer_id, uint64_t mark, uint32_t owner, int64_t heard_ms) noexcept nogil:
    cdef bint created = entry == NULL
    if created:
        entry = new_entry(slot)
        if entry == NULL:
            return
    entry.verification = mark
    entry.heard_ms = heard_ms
    fault(PRODUCER_MARK_STORED)
    if created:
        name_producer(slot, entry, producer_id, owner)
    elif entry.owner == OWNER_NOBODY and owner != OWNER_NOBODY:
        adopt_producer(slot, entry, owner)


# -- restoring ---------------------------------------------------------------------------------------------------------

cdef ProducerEntry* restore_producer(Slot* slot, int64_t producer_id, int16_t epoch, int32_t coordinator_epoch, int64_t timestamp,
                                     int64_t transaction_first_offset, int64_t heard_ms) noexcept nogil:
    cdef ProducerEntry* entry = new_entry(slot)
    if entry == NULL:
        return NULL
    entry.last_timestamp = timestamp
    entry.transaction_first_offset = transaction_first_offset
    entry.heard_ms = heard_ms
    entry.ring = pack(epoch, 0, 0, coordinator_epoch)
    name_producer(slot, entry, producer_id, OWNER_NOBODY)
    if transaction_first_offset >= 0 and (slot.first_unstable_offset < 0 or transaction_first_offset < slot.first_unstable_offset):
        slot.first_unstable_offset = transaction_first_offset
    return entry


cdef void restore_batch(ProducerEntry* entry, int32_t base_sequence, int32_t last_sequence, int64_t base_offset, int64_t last_offset,
                        int64_t timestamp) noexcept nogil:
    put_batch(entry, entry_epoch(entry), coordinator_epoch_of(entry), base_sequence, last_sequence, base_offset, last_offset, timestamp)


# -- forgetting --------------------------------------------------------------------------------------------------------

cdef void forget_producers(Slot* slot) noexcept nogil:
    release_run(slot)
    slot.producers_changed = 1
    forget_transactions(slot)


cdef void forget_transactions(Slot* slot) noexcept nogil:
    slot.unreplicated_first[0] = slot.unreplicated_first[1] = -1
    slot.unreplicated_last[0] = slot.unreplicated_last[1] = -1
    show_first_unstable(slot, -1, -1, -1)


cdef void show_first_unstable(Slot* slot, int64_t offset, int64_t segment_base, int64_t position) noexcept nogil:
    """Publish the first offset of the oldest open transaction, and where its batch is."""
    if slot.unstable_sequence & 1 == 0:     # odd: its writer died during a change
        store_release_32(&slot.unstable_sequence, slot.unstable_sequence + 1)
        fence_release()
    slot.first_unstable_offset = offset
    slot.unstable_base = segment_base
    slot.unstable_position = position
    store_release_32(&slot.unstable_sequence, slot.unstable_sequence + 1)


cdef int expire_producers(Slot* slot, int64_t before_ms, uint32_t* at, uint32_t most) noexcept nogil:
    cdef ProducerEntry* entry
    cdef uint32_t end = at[0] + most
    cdef int dropped = 0
    while at[0] < end:
        entry = next_producer(slot, at)
        if entry == NULL:
            break
        if entry.heard_ms < before_ms and entry.transaction_first_offset < 0:
            drop_producer(slot, entry)
            dropped += 1
    return dropped


cdef void shrink_producers(uint32_t index, Slot* slot) noexcept nogil:
    if slot.producer_run and slot.producer_count == 0:
        forget_producers(slot)
    elif slot.producer_count * SPARSE < run_capacity(slot):
        move_run(index, slot, order_for(slot.producer_count), True, 0)      # if the arena is full, the run is kept
