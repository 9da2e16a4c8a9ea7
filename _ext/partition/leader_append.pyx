"""A leader's append; see leader_append.pxd, and ``broker/odradek/shm/README.md``, rule 1, for the order of its steps.

Called by the loop and the append threads of workers, and by the coordinator for its own logs. The slot's lock is taken and
released here; in between nothing is allocated and no GIL is needed.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t

from odradek._ext.partition.commits cimport current
from odradek._ext.partition.high_watermark cimport is_lone_leader, move_high_watermark
from odradek._ext.partition.leader_epochs cimport new_epoch, note_epoch
from odradek._ext.partition.log_writing cimport (
    BEHIND_UNVERIFIED,
    MAX_JOINED,
    UNVERIFIED,
    AppendItem,
    AppendOutcome,
    advance,
    set_outcome,
    write_and_commit,
)
from odradek._ext.partition.producer_entry cimport (
    ProducerBatch,
    ProducerEntry,
    entry_epoch,
    has_mark,
    has_mark_of_epoch,
    mark_of_version_2,
)
from odradek._ext.partition.producer_room cimport ROOM_BUSY, ROOM_READY, PendingProducers, Room, count_refused, reserve_producer
from odradek._ext.partition.producer_runs cimport find_producer, place_of_entry
from odradek._ext.partition.producers cimport (
    PRODUCER_DUPLICATE,
    PRODUCER_FENCED,
    PRODUCER_NEXT,
    PRODUCER_OUT_OF_ORDER,
    ProducerCheck,
    check_sequence,
)
from odradek._ext.partition.rolling cimport must_roll, roll_now
from odradek._ext.partition.slot_access cimport (
    APPEND_BUSY,
    APPEND_IO_ERROR,
    APPEND_OK,
    AppendResult,
    check_slot,
    note_failure,
    take_slot,
)
from odradek._ext.protocol.byte_order cimport store32, store64
from odradek._ext.protocol.kafka_errors cimport (
    INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE,
    NOT_ENOUGH_REPLICAS,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    RECORD_LIST_TOO_LARGE,
)
from odradek._ext.records.record_batch cimport (
    AT_BASE_OFFSET,
    AT_PARTITION_LEADER_EPOCH,
    NO_SEQUENCE,
    last_sequence_of,
    sequence_behind,
    set_max_timestamp,
)
from odradek._ext.shm.clock cimport coarse_ms
from odradek._ext.shm.faults cimport *
from odradek._ext.shm.layout cimport DISK_FULL, region
from odradek._ext.shm.locks cimport LOCK_BUSY, unlock
from odradek._ext.shm.slot cimport ROLE_LEADER, Commit, Slot, slot_at
from odradek._ext.shm.waking cimport wake_after


cdef inline int32_t sequence_to_check(const AppendItem* item) noexcept nogil:
    return NO_SEQUENCE if item.by_coordinator else item.info.base_sequence


cdef bint check_before(AppendItem* items, int at, ProducerCheck* check, AppendItem** previous) noexcept nogil:
    """Check items[at] against earlier items of its producer that will be appended. Returns whether that decides the result, in
    *check. *previous, which must be NULL, is set to the last of those items; it remains NULL if there is none.

    If the item repeats an earlier one, it is a duplicate of kind 2 with that item's index as its base offset, and *check is
    PRODUCER_DUPLICATE; or it has an error, if that one is not of an open transaction but the item is (see `is_of_ended_transaction`).
    """
    cdef AppendItem* item = &items[at]
    cdef AppendItem* before
    cdef bint decided = False, ended = False
    cdef int i = at - 1
    while i >= 0:
        before = &items[i]
        i -= 1
        if before.error != 0 or before.duplicate or before.info.producer_id != item.info.producer_id:
            continue
        if previous[0] == NULL:
            previous[0] = before
        if item.info.producer_epoch < before.info.producer_epoch:
            check[0] = PRODUCER_FENCED      # fenced by a newer epoch in this write: no older item makes it a duplicate
            return True
        if item.info.producer_epoch > before.info.producer_epoch:
            if not decided:
                check[0] = PRODUCER_NEXT if sequence_to_check(item) <= 0 else PRODUCER_OUT_OF_ORDER
            return True                     # older items have older epochs as well
        if sequence_to_check(item) == NO_SEQUENCE:
            check[0] = PRODUCER_NEXT
            return True
        if before.info.control or not before.info.transactional:
            ended = True
        if item.info.base_sequence == before.info.base_sequence and item.info.last_offset_delta == before.info.last_offset_delta:
            check[0] = PRODUCER_DUPLICATE
            if item.info.transactional and ended:
                item.error = INVALID_TXN_STATE
                return True
            item.duplicate = 2              # the response gets that item's offset, once it is known
            item.base_offset = i + 1
            return True
        if not decided:
            check[0] = PRODUCER_OUT_OF_ORDER
            if item.info.base_sequence == sequence_behind(last_sequence_of(before.info.base_sequence, before.info.last_offset_delta)):
                check[0] = PRODUCER_NEXT
                return True
            decided = True
    return decided


cdef bint follows_refused(AppendItem* items, int at) noexcept nogil:
    """Whether an earlier batch of the producer of items[at] was refused, in this write or before. (`refused_before` handles those
    without room.)"""
    cdef int i
    if items[at].after_refused:
        return True
    for i in range(at):
        if items[i].error and not items[i].room and items[i].info.producer_id == items[at].info.producer_id \
                and items[i].info.producer_epoch == items[at].info.producer_epoch:
            return True
    return False


cdef inline bint in_same_transaction(AppendItem* item, AppendItem* previous) noexcept nogil:
    """Whether the producer's transaction is the same for both items: none for both, or one of their common epoch and id."""
    if item.info.transactional != previous.info.transactional:
        return False
    return not item.info.transactional or (item.info.producer_epoch == previous.info.producer_epoch and not previous.info.control
                                           and item.id_hash == previous.id_hash)


cdef inline bint check_transaction(Slot* slot, AppendItem* item, AppendItem* previous, ProducerEntry* known) noexcept nogil:
    """Whether the producer's transaction allows the item, which is no marker, and whose epoch is not older than the producer's.

    `known`: the producer's entry. `previous`: the last item of the producer that will be appended before this one. Each may be NULL.
    """
    cdef bint open, marked
    cdef int16_t epoch
    if previous != NULL:
        open = previous.info.transactional and not previous.info.control
        epoch = previous.info.producer_epoch
    else:
        open = known != NULL and known.transaction_first_offset >= 0
        epoch = entry_epoch(known) if open else -1
    if not item.info.transactional:
        if open:
            item.error = INVALID_TXN_STATE
        return not open
    if item.trusted:
        return True
    marked = known != NULL and has_mark(known, item.id_hash, item.info.producer_epoch, slot.led_since)
    if open and epoch == item.info.producer_epoch and (marked or known == NULL or not has_mark_of_epoch(known, epoch)):
        return True                                     # without a mark, it is not known which transactional id opened it
    if not marked:
        item.error = INVALID_TXN_STATE
        item.unverified = UNVERIFIED
        return False
    if mark_of_version_2(known) and previous == NULL and entry_epoch(known) == -1 and item.info.base_sequence > 0:
        item.error = OUT_OF_ORDER_SEQUENCE_NUMBER       # its first batch in this epoch is missing: sequences begin at 0 (KIP-890)
        return False
    return True


cdef inline bint is_of_ended_transaction(ProducerEntry* known, const ProducerBatch* batch) noexcept nogil:
    """Whether the transaction of a batch of the producer's current epoch has ended.

    Nobody waits for the answer to a retry of such a batch: a producer commits when all its batches are answered, and an abort by the
    coordinator raises the epoch. But a new batch may have the same sequence: librdkafka (2.16) uses the sequences of batches again
    that it gave up in an abort, although they may be in the log. To call that batch a duplicate would acknowledge records that are
    nowhere. With an error the producer aborts, and its next sequence is the right one.
    """
    return known.transaction_first_offset < 0 or batch.base_offset < known.transaction_first_offset


cdef bint check_producer(Slot* slot, AppendItem* items, int at, bint* needs_room, ProducerEntry** known) noexcept nogil:
    """Whether the sequence and the transaction of items[at] allow an append, given the slot and the earlier items that will be appended.

    `needs_room`: the caller must reserve room for its producer, whose entry is `known`; otherwise an earlier item has reserved
    it.
    """
    cdef AppendItem* item = &items[at]
    cdef ProducerBatch duplicate
    cdef AppendItem* previous = NULL
    cdef ProducerCheck check = PRODUCER_NEXT, by_slot
    cdef bint decided = not item.info.control and check_before(items, at, &check, &previous)
    if check == PRODUCER_DUPLICATE:
        return False
    if decided and check == PRODUCER_NEXT and in_same_transaction(item, previous):
        return True
    known[0] = find_producer(slot, item.info.producer_id)
    if (not decided or check == PRODUCER_OUT_OF_ORDER) and not item.info.control:
        by_slot = check_sequence(known[0], item.info.producer_epoch, sequence_to_check(item),
                                 last_sequence_of(sequence_to_check(item), item.info.last_offset_delta), &duplicate)
        if by_slot == PRODUCER_DUPLICATE and item.info.transactional and is_of_ended_transaction(known[0], &duplicate):
            item.error = INVALID_TXN_STATE
            return False
        if by_slot == PRODUCER_DUPLICATE:
            known[0].heard_ms = coarse_ms()
            item.duplicate = 1
            item.base_offset = duplicate.base_offset
            if slot.settings.log_append_time:
                item.append_time = duplicate.timestamp
            return False
        if not decided:
            check = by_slot
            if check == PRODUCER_NEXT and (known[0] == NULL or entry_epoch(known[0]) == -1) and item.info.base_sequence > 0 \
                    and follows_refused(items, at):
                check = PRODUCER_OUT_OF_ORDER       # a partition that does not know the producer accepts any first sequence
    if check == PRODUCER_FENCED:
        item.error = INVALID_PRODUCER_EPOCH
        return False
    if not item.info.control and not check_transaction(slot, item, previous, known[0]):
        return False
    if check != PRODUCER_NEXT:
        item.error = OUT_OF_ORDER_SEQUENCE_NUMBER
        return False
    needs_room[0] = not decided
    return True


cdef Room refused_before(AppendItem* items, int at) noexcept nogil:
    """Why a batch of the same producer before items[at] got no room; ROOM_READY if none was refused for lack of room.

    A partition that does not know a producer accepts any first sequence. If it accepted this batch, it would refuse the retry
    of the earlier one as out of order.
    """
    cdef int i
    for i in range(at):
        if items[i].room and items[i].info.producer_id == items[at].info.producer_id:
            return <Room>items[i].room
    return ROOM_READY


cdef int take_room(uint32_t index, Slot* slot, AppendItem* items, int at, ProducerEntry* known, PendingProducers* pending) noexcept nogil:
    """Reserve room for the producer of items[at], whose entry is `known` (NULL: none). Returns 1, 0 if refused, or APPEND_BUSY.
    """
    cdef AppendItem* item = &items[at]
    cdef Room room = ROOM_READY if known != NULL else refused_before(items, at)
    if room != ROOM_READY:
        count_refused(room)
    else:
        room = reserve_producer(index, slot, known, item.owner, pending)
    if room == ROOM_BUSY:
        return APPEND_BUSY
    if room != ROOM_READY:
        item.error = NOT_ENOUGH_REPLICAS      # retriable, and nothing of the batch was appended
        item.room = room
        return 0
    item.place = place_of_entry(slot, known)
    return 1


cdef int check_item(uint32_t index, Slot* slot, AppendItem* items, int at, bint full, PendingProducers* pending) noexcept nogil:
    """Whether items[at] may be appended, given the slot and the earlier items that will be: 1 yes, 0 no, or APPEND_BUSY.

    `full`: the disk is full, so nothing may be appended. `pending` counts the producers of this write. Room for a producer is
    reserved last, because it may evict another producer: a batch that is refused for another reason must not have that effect.
    """
    cdef AppendItem* item = &items[at]
    cdef ProducerEntry* known = NULL
    cdef bint needs_room = False
    if item.info.producer_id >= 0:
        item.place = 0
        if not check_producer(slot, items, at, &needs_room, &known):
            if full and item.error == OUT_OF_ORDER_SEQUENCE_NUMBER:
                item.error = NOT_ENOUGH_REPLICAS      # the previous batch may be missing because it was refused
            if not item.unverified or not (full or item.info.size > slot.settings.segment_bytes):
                return 0
            item.unverified = 0                       # it is refused below, so there is nothing to ask the coordinator
    if item.info.size > slot.settings.segment_bytes:
        item.error = RECORD_LIST_TOO_LARGE
        return 0
    if full:
        item.error = NOT_ENOUGH_REPLICAS
        return 0
    return take_room(index, slot, items, at, known, pending) if needs_room else 1


cdef bint behind_unverified(AppendItem* items, int at) noexcept nogil:
    """Whether an earlier batch of the producer of items[at] is unverified."""
    cdef int i
    for i in range(at):
        if items[i].unverified and items[i].info.producer_id == items[at].info.producer_id:
            return True
    return False


cdef inline int check_items(uint32_t index, Slot* slot, AppendItem* items, int count, bint full,
                            PendingProducers* pending) noexcept nogil:
    """Check the items in order. Returns how many a full disk refuses, or APPEND_BUSY."""
    cdef int i, refused = 0
    cdef bint unverified = False
    for i in range(count):
        items[i].log_start_offset = slot.log_start_offset
        items[i].error = 0
        items[i].duplicate = items[i].appended = items[i].room = items[i].unverified = 0
        items[i].base_offset = items[i].append_time = -1
    for i in range(count):
        if unverified and behind_unverified(items, i):
            items[i].error = INVALID_TXN_STATE
            items[i].unverified = BEHIND_UNVERIFIED
            continue
        if check_item(index, slot, items, i, full, pending) == APPEND_BUSY:
            return APPEND_BUSY
        unverified |= items[i].unverified != 0
        refused += full and items[i].error == NOT_ENOUGH_REPLICAS
    return refused


cdef inline int gather(Slot* slot, AppendItem* items, int count, int* at, AppendItem** ready, int64_t wall_ms) noexcept nogil:
    """Assign offsets to the longest sequence of batches from items[at] that fits into the active segment, and put them in `ready`.

    Returns their number, and the item after them in *at. It is 0 before `count` only if the segment must be rolled first.
    """
    cdef Commit commit = current(slot)[0]
    cdef int i = at[0], n = 0
    while i < count:
        if items[i].error != 0 or items[i].duplicate:
            i += 1
            continue
        if slot.settings.log_append_time:
            items[i].append_time = wall_ms
            set_max_timestamp(items[i].data, &items[i].info, wall_ms, True)
        if n and items[i].info.control != ready[n - 1].info.control:
            break                       # a write contains only markers, or none [R 1.7]
        if must_roll(slot, &commit, &items[i].info, commit.log_end_offset + items[i].info.last_offset_delta, wall_ms):
            break
        items[i].base_offset = commit.log_end_offset
        store64(items[i].data + AT_BASE_OFFSET, <uint64_t>commit.log_end_offset)
        store32(items[i].data + AT_PARTITION_LEADER_EPOCH, <uint32_t>slot.leader_epoch)
        advance(&commit, &items[i])
        ready[n] = &items[i]
        n += 1
        i += 1
    at[0] = i
    return n


cdef inline void copy_repeated(AppendItem* items, int count) noexcept nogil:
    """Copy the result of each repeated item to the items of the same write that repeat it (duplicates of kind 2)."""
    cdef int i, n
    for i in range(count):
        if items[i].duplicate == 2:
            n = <int>items[i].base_offset
            items[i].base_offset = items[n].base_offset
            items[i].append_time = items[n].append_time
            if not items[n].appended:
                items[i].duplicate = 0


cdef inline int write_ready(uint32_t index, Slot* slot, AppendItem* items, int count, bint alone, int64_t wall_ms) noexcept nogil:
    cdef AppendItem* ready[MAX_JOINED]
    cdef int i = 0, n, result = 0
    if new_epoch(slot, slot.leader_epoch):
        result = note_epoch(slot, slot.leader_epoch, current(slot).log_end_offset)
    while result == 0 and i < count:
        n = gather(slot, items, count, &i, ready, wall_ms)
        if n:
            result = write_and_commit(index, slot, ready, n, alone)
        elif i < count:
            result = roll_now(index, slot, wall_ms)
    return result


cdef inline AppendResult finish(uint32_t index, Slot* slot, int result, bint alone, int64_t before, AppendOutcome* outcome) noexcept nogil:
    if not alone:
        move_high_watermark(slot, coarse_ms())
    set_outcome(slot, result, outcome)
    if result != 0:
        note_failure(slot, result)
    fault(APPEND_BEFORE_UNLOCK)
    unlock(index, slot)
    fault(APPEND_UNLOCKED)
    wake_after(index, slot, True, outcome.high_watermark != before)
    fault(APPEND_WOKEN)
    return APPEND_IO_ERROR if result != 0 else APPEND_OK


# Functions for other modules. `append_as_leader` contains inlined copies, which saves calls in each append.

cdef int write_items(uint32_t index, Slot* slot, AppendItem* items, int count, bint alone, int64_t wall_ms) noexcept nogil:
    return write_ready(index, slot, items, count, alone, wall_ms)


cdef AppendResult finish_append(uint32_t index, Slot* slot, int result, bint alone, int64_t before, AppendOutcome* outcome) noexcept nogil:
    return finish(index, slot, result, alone, before, outcome)


cdef AppendResult append_as_leader(uint32_t index, uint32_t incarnation, int32_t leader_epoch, AppendItem* items, int count,
                                   int64_t wall_ms, int spins, AppendOutcome* outcome) noexcept nogil:
    """Append `count` checked batches (at most MAX_JOINED) in order. The result of each is in its `error`, `duplicate` and
    `base_offset`. Every return value but APPEND_OK concerns all batches that are not `appended` yet."""
    cdef Slot* slot = slot_at(index)
    cdef AppendResult checked
    cdef PendingProducers pending
    cdef int result, refused
    cdef int64_t before
    cdef bint alone, full
    outcome.error_number = 0
    pending.producers = pending.fresh = 0
    if take_slot(index, slot, spins) == LOCK_BUSY:
        return APPEND_BUSY
    fault(APPEND_LOCKED)
    checked = check_slot(slot, incarnation, leader_epoch, ROLE_LEADER)
    if checked != APPEND_OK:
        unlock(index, slot)
        return checked
    # The broker's internal writes continue on a full disk: offset commits and the ends of transactions.
    full = region().header.disk_state[slot.log_dir] == DISK_FULL and not slot.internal
    refused = check_items(index, slot, items, count, full, &pending)
    if refused == APPEND_BUSY:
        unlock(index, slot)
        return APPEND_BUSY
    if refused == count:
        set_outcome(slot, 0, outcome)
        unlock(index, slot)
        return APPEND_OK
    alone = is_lone_leader(slot)
    before = current(slot).high_watermark
    result = write_ready(index, slot, items, count, alone, wall_ms)
    copy_repeated(items, count)
    return finish(index, slot, result, alone, before, outcome)
