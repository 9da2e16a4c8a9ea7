"""Producer state: check, apply, restore, expire; see producers.pxd.

The caller holds the slot's mutex; nothing here takes it. No GIL.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t

from odradek._ext.partition.commits cimport current
from odradek._ext.partition.producer_entry cimport (
    BATCHES_KEPT,
    PLACE_UNKNOWN,
    ProducerBatch,
    ProducerEntry,
    batch_back,
    clear_mark,
    coordinator_epoch_of,
    entry_batches,
    entry_epoch,
    newest_batch,
    newest_index,
)
from odradek._ext.partition.producer_runs cimport (
    adopt_producer,
    delist_transaction,
    derive_transactions,
    drop_producer,
    find_producer,
    free_place,
    list_transaction,
    move_run,
    name_producer,
    next_producer,
    oldest_open,
    order_for,
    producer_at,
    release_run,
    repair_run,
    run_capacity,
)
from odradek._ext.records.record_batch cimport last_sequence_of, sequence_behind
from odradek._ext.shm.atomics cimport (
    fence_release,
    store_relaxed_32,
    store_relaxed_64,
    store_relaxed_i64,
    store_release_32,
    store_release_64,
    store_release_i64,
)
from odradek._ext.shm.faults cimport (
    PRODUCER_BATCH_STORED,
    PRODUCER_MARK_STORED,
    PRODUCER_MARKER_HALF_STORED,
    TRANSACTION_ENDED,
    TRANSACTION_OPENED,
    TRANSACTION_UNREPLICATED,
    UNREPLICATED_HALF_STORED,
    UNSTABLE_HALF_STORED,
    fault,
)
from odradek._ext.shm.owners cimport OWNER_NOBODY
from odradek._ext.shm.slot cimport Slot


cdef enum:
    SPARSE = 4                    # a run of which less than one in this many entries is live is replaced by a smaller one


cdef inline uint64_t pack(int16_t epoch, int kept, int newest, int32_t coordinator_epoch) noexcept nogil:
    return (<uint64_t><uint16_t>epoch << 48) | (<uint64_t>kept << 40) | (<uint64_t>newest << 32) | <uint32_t>coordinator_epoch


cdef ProducerEntry* new_entry(Slot* slot) noexcept nogil:
    cdef ProducerEntry* entry = free_place(slot)
    if entry != NULL:
        store_relaxed_64(&entry.ring, pack(-1, 0, 0, -1))
        store_relaxed_i64(&entry.transaction_first_offset, -1)
        store_relaxed_i64(&entry.last_marker_offset, -1)
    return entry


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


cdef inline void store_first_batch(ProducerEntry* entry, int64_t first_offset, int64_t segment_base, int64_t position) noexcept nogil:
    """Open a transaction. The first offset is stored last, so that after a death the other words belong to it."""
    cdef int64_t delta = first_offset - segment_base
    entry.first_delta = <uint32_t>delta if segment_base >= 0 and 0 <= delta < <int64_t>PLACE_UNKNOWN else PLACE_UNKNOWN
    entry.first_position = <uint32_t>position
    store_release_i64(&entry.transaction_first_offset, first_offset)
    fault(TRANSACTION_OPENED)


cdef void apply_batch(Slot* slot, int64_t producer_id, int16_t epoch, int32_t base_sequence, int64_t base_offset,
                      int64_t last_offset, int64_t timestamp, bint transactional, uint32_t owner, uint32_t place,
                      int64_t segment_base, int64_t position, int64_t heard_ms) noexcept nogil:
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
        store_first_batch(entry, base_offset, segment_base, position)
    entry.last_timestamp = timestamp
    entry.heard_ms = heard_ms
    put_batch(entry, epoch, coordinator_epoch_of(entry), base_sequence,
              last_sequence_of(base_sequence, last_offset - base_offset), base_offset, last_offset, timestamp)
    if created:
        name_producer(slot, entry, producer_id, owner)
    else:
        if opened:
            list_transaction(slot, entry)
        if entry.owner == OWNER_NOBODY and owner != OWNER_NOBODY:
            adopt_producer(slot, entry, owner)
    fault(PRODUCER_BATCH_STORED)
    slot.producers_changed = 1
    if opened:
        settle_first_unstable(slot)


cdef void apply_marker(Slot* slot, int64_t producer_id, int16_t epoch, int32_t coordinator_epoch, int64_t offset,
                       int64_t timestamp, int32_t marks_before, int64_t heard_ms) noexcept nogil:
    cdef ProducerEntry* entry = find_producer(slot, producer_id)
    cdef bint created = entry == NULL
    if created:
        entry = new_entry(slot)
    if entry == NULL or (not created and entry.last_marker_offset >= offset):
        return
    entry.last_timestamp = timestamp
    entry.heard_ms = heard_ms
    clear_mark(entry, marks_before)
    if entry.transaction_first_offset >= 0:
        note_unreplicated(slot, entry.transaction_first_offset, offset)
        fault(TRANSACTION_UNREPLICATED)
        store_release_i64(&entry.transaction_first_offset, -1)
        fault(TRANSACTION_ENDED)
        delist_transaction(slot, entry)
    if epoch != entry_epoch(entry):
        store_release_64(&entry.ring, pack(epoch, 0, newest_index(entry), coordinator_epoch))
    else:
        store_release_64(&entry.ring, pack(epoch, entry_batches(entry), newest_index(entry), coordinator_epoch))
    fault(PRODUCER_MARKER_HALF_STORED)
    store_release_i64(&entry.last_marker_offset, offset)    # the last store: a redo after a death decides by it
    if created:
        name_producer(slot, entry, producer_id, OWNER_NOBODY)
    slot.producers_changed = 1
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


# -- the last stable offset --------------------------------------------------------------------------------------------

cdef void forget_transactions(Slot* slot) noexcept nogil:
    store_relaxed_i64(&slot.unreplicated_first[0], -1)
    store_relaxed_i64(&slot.unreplicated_first[1], -1)
    store_relaxed_i64(&slot.unreplicated_last[0], -1)
    store_relaxed_i64(&slot.unreplicated_last[1], -1)
    show_first_unstable(slot, -1, -1, -1)


cdef void show_first_unstable(Slot* slot, int64_t offset, int64_t segment_base, int64_t position) noexcept nogil:
    """Publish the first offset of the oldest open transaction, and where its batch is, unless they are published already."""
    if slot.unstable_sequence & 1 == 0:     # odd: a writer died during a change
        if slot.first_unstable_offset == offset and slot.unstable_base == segment_base and slot.unstable_position == position:
            return
        store_relaxed_32(&slot.unstable_sequence, slot.unstable_sequence + 1)
        fence_release()
    store_relaxed_i64(&slot.first_unstable_offset, offset)
    fault(UNSTABLE_HALF_STORED)
    store_relaxed_i64(&slot.unstable_base, segment_base)
    store_relaxed_i64(&slot.unstable_position, position)
    store_release_32(&slot.unstable_sequence, slot.unstable_sequence + 1)


cdef void settle_first_unstable(Slot* slot) noexcept nogil:
    cdef ProducerEntry* oldest = oldest_open(slot)
    if oldest == NULL:
        show_first_unstable(slot, -1, -1, -1)
    elif oldest.first_delta == PLACE_UNKNOWN:
        show_first_unstable(slot, oldest.transaction_first_offset, -1, -1)
    else:
        show_first_unstable(slot, oldest.transaction_first_offset, oldest.transaction_first_offset - oldest.first_delta,
                            oldest.first_position)


cdef void note_unreplicated(Slot* slot, int64_t first_offset, int64_t marker_offset) noexcept nogil:
    """Note a transaction whose marker the high watermark has not passed: the last stable offset must not pass its first offset yet.

    Called before the transaction's first offset is cleared, so that a redo after a death repeats it [R 2.10]. The offset of the marker
    is stored first: a pair without a first offset has no effect.
    """
    cdef int which = slot.unreplicated_first[0] >= 0
    if current(slot).high_watermark > marker_offset:
        return
    store_release_i64(&slot.unreplicated_last[which], marker_offset)
    fault(UNREPLICATED_HALF_STORED)
    if slot.unreplicated_first[which] < 0 or first_offset < slot.unreplicated_first[which]:
        store_release_i64(&slot.unreplicated_first[which], first_offset)


cdef void drop_replicated(Slot* slot, int64_t high_watermark) noexcept nogil:
    """Clear the pairs whose last marker the high watermark has passed. The second pair takes the place of the first. After a death in
    between, the last stable offset may be too small until the next call."""
    while slot.unreplicated_first[0] >= 0 and high_watermark > slot.unreplicated_last[0]:
        store_release_i64(&slot.unreplicated_last[0], slot.unreplicated_last[1])
        store_release_i64(&slot.unreplicated_first[0], slot.unreplicated_first[1])
        store_release_i64(&slot.unreplicated_first[1], -1)
        store_release_i64(&slot.unreplicated_last[1], -1)


cdef void settle_last_stable(Slot* slot, int64_t high_watermark) noexcept nogil:
    cdef int64_t stable = high_watermark
    if slot.unreplicated_first[0] >= 0:
        drop_replicated(slot, high_watermark)
        if 0 <= slot.unreplicated_first[0] < stable:
            stable = slot.unreplicated_first[0]
        if 0 <= slot.unreplicated_first[1] < stable:
            stable = slot.unreplicated_first[1]
    if 0 <= slot.first_unstable_offset < stable:
        stable = slot.first_unstable_offset
    if stable < high_watermark:
        stable = max(stable, slot.log_start_offset)     # its beginning may be deleted
    store_release_i64(&slot.last_stable_offset, stable)


cdef void repair_producers(Slot* slot) noexcept nogil:
    repair_run(slot)
    settle_first_unstable(slot)


# -- restoring ---------------------------------------------------------------------------------------------------------

cdef ProducerEntry* restore_producer(Slot* slot, int64_t producer_id, int16_t epoch, int32_t coordinator_epoch, int64_t timestamp,
                                     int64_t transaction_first_offset, int64_t heard_ms) noexcept nogil:
    cdef ProducerEntry* entry = new_entry(slot)
    if entry == NULL:
        return NULL
    entry.last_timestamp = timestamp
    entry.heard_ms = heard_ms
    store_relaxed_64(&entry.ring, pack(epoch, 0, 0, coordinator_epoch))
    name_producer(slot, entry, producer_id, OWNER_NOBODY)
    if transaction_first_offset >= 0:   # `settle_restored` lists it
        store_first_batch(entry, transaction_first_offset, -1, 0)
    return entry


cdef void settle_restored(Slot* slot) noexcept nogil:
    derive_transactions(slot)
    settle_first_unstable(slot)


cdef void restore_batch(ProducerEntry* entry, int32_t base_sequence, int32_t last_sequence, int64_t base_offset, int64_t last_offset,
                        int64_t timestamp) noexcept nogil:
    put_batch(entry, entry_epoch(entry), coordinator_epoch_of(entry), base_sequence, last_sequence, base_offset, last_offset, timestamp)


# -- forgetting --------------------------------------------------------------------------------------------------------

cdef void forget_producers(Slot* slot) noexcept nogil:
    release_run(slot)
    slot.producers_changed = 1
    forget_transactions(slot)


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
        release_run(slot)
        slot.producers_changed = 1
    elif slot.producer_count * SPARSE < run_capacity(slot):
        move_run(index, slot, order_for(slot.producer_count), True, 0)      # if the arena is full, the run is kept
