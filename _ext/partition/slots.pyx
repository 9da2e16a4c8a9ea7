"""Slots for Python: the state of a slot, and the operations of the data path.

Any process. Functions that take the slot's lock wait for it and are not called from a worker's loop. The operations of the
control path are in `slot_life`, those of upkeep in `slot_upkeep`; the rules are in ``broker/odradek/shm/README.md``.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport int16_t, int64_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from odradek._ext.partition.commits cimport within_flush_messages
from odradek._ext.partition.follower_append cimport append_as_follower, restart_log, truncate_to
from odradek._ext.partition.high_watermark cimport advance_high_watermark
from odradek._ext.partition.leader_append cimport append_as_leader
from odradek._ext.partition.log_writing cimport AppendItem, AppendOutcome
from odradek._ext.partition.producer_entry cimport (
    ProducerEntry,
    batch_back,
    coordinator_epoch_of,
    entry_batches,
    entry_epoch,
    hash_of_id,
    is_known,
)
from odradek._ext.partition.producer_runs cimport next_open, next_producer, oldest_open, open_transactions
from odradek._ext.partition.slot_access cimport (
    APPEND_BEFORE_LOG,
    APPEND_BUSY,
    APPEND_CORRUPT,
    APPEND_FENCED_EPOCH,
    APPEND_IO_ERROR,
    APPEND_NOT_LEADER,
    APPEND_OFFLINE,
    APPEND_OK,
    APPEND_OUT_OF_RANGE,
    APPEND_STALE,
    APPEND_UNSETTLED,
    AppendResult,
    wait_slot,
)
from odradek._ext.partition.transactions cimport TransactionEnd
from odradek._ext.partition.transactions cimport allow_transaction as mark_in_slot
from odradek._ext.partition.transactions cimport append_markers as end_in_slot
from odradek._ext.protocol.kafka_errors cimport MESSAGE_TOO_LARGE
from odradek._ext.records.batch_builder cimport BatchBuilder
from odradek._ext.records.record_batch cimport NO_SEQUENCE, check_batch
from odradek._ext.shm.atomics cimport fence, fence_acquire, fetch_or_64, load_acquire_32, load_acquire_i32
from odradek._ext.shm.clock cimport now_ms
from odradek._ext.shm.layout cimport region
from odradek._ext.shm.locks cimport SPINS_OF_THREAD, unlock
from odradek._ext.shm.slot cimport (
    ROLE_LEADER,
    SLOT_DELETED,
    SLOT_FREE,
    SLOT_LOADING,
    SLOT_OFFLINE,
    SLOT_ONLINE,
    Commit,
    Slot,
    read_commit,
    slot_at,
    state_now,
)

cdef enum:
    MARK_TRIES = 3                    # attempts to set a mark while the leadership of its partition changes


class SlotBusy(Exception):
    """The slot's lock was not released in time: its holder is stopped or stuck (the supervisor ends such a process)."""


class SlotChanged(Exception):
    """The slot now has another partition, or its role or epoch differs from the expected one.

    `result`: the AppendResult of the slot's checks; None if another check refused the change.
    """

    result: AppendResult | None

    def __init__(self, reason, result=None):
        super().__init__(reason)
        self.result = result


class LogUnsettled(SlotChanged):
    """The log was truncated, and its recovery point is not written yet (`odradek.shm.truncation.settle` writes it)."""


RESULT_TEXTS = {
    APPEND_OK: "ok", APPEND_BUSY: "busy", APPEND_STALE: "stale", APPEND_NOT_LEADER: "not leader", APPEND_FENCED_EPOCH: "fenced epoch",
    APPEND_OFFLINE: "offline", APPEND_IO_ERROR: "i/o error", APPEND_OUT_OF_RANGE: "out of range",
    APPEND_CORRUPT: "corrupt", APPEND_BEFORE_LOG: "before the log", APPEND_UNSETTLED: "unsettled",
}
"""AppendResult -> a text for log lines: the log, or the change, is ..."""


cdef object refused(AppendResult result):
    """The exception to raise when the slot's checks have refused a change."""
    return SlotChanged(RESULT_TEXTS[result], result)


cdef object busy(uint32_t index):
    """The exception to raise when `wait_slot` has timed out."""
    return SlotBusy(f"the lock of {name_of(slot_at(index))} was not released within {LOCK_PATIENCE_MS // 1000} s")


cdef Slot* checked_slot(uint32_t index) except NULL:
    if index >= region().header.max_slots:
        raise IndexError(f"slot {index} does not exist: the table has {region().header.max_slots} slots")
    return slot_at(index)


cdef str topic_of(Slot* slot):
    return (<char*>slot.topic)[:slot.topic_bytes].decode()


cdef str name_of(Slot* slot):
    return f"{topic_of(slot)}-{slot.partition}" if slot.topic_bytes else "a slot without a partition"


# -- reading ----------------------------------------------------------------------------------------------------------

cdef class ProducerCopies:
    def __dealloc__(self):
        free(self.entries)

    cdef int copy(self, uint32_t index) except -1:
        cdef Slot* slot = checked_slot(index)
        cdef ProducerEntry* entry
        cdef uint32_t room = 0, known = 0, place
        cdef bint taken
        while True:
            with nogil:
                taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
                if taken:
                    known = slot.producer_count
                    self.count = place = 0
                    while self.count < known <= room:
                        entry = next_producer(slot, &place)
                        if entry == NULL:
                            break
                        memcpy(&self.entries[self.count], entry, sizeof(ProducerEntry))
                        self.count += 1
                    unlock(index, slot)
            if not taken:
                raise busy(index)
            if known <= room:
                return 0
            room = self.make_room(known)

    cdef int copy_open(self, uint32_t index) except -1:
        cdef Slot* slot = checked_slot(index)
        cdef ProducerEntry* entry
        cdef uint32_t room = 0, known = 0
        cdef bint taken
        while True:
            with nogil:
                taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
                if taken:
                    known = open_transactions(slot)
                    self.count = 0
                    entry = oldest_open(slot) if known <= room else NULL
                    while entry != NULL and self.count < known:
                        memcpy(&self.entries[self.count], entry, sizeof(ProducerEntry))
                        self.count += 1
                        entry = next_open(slot, entry)
                    unlock(index, slot)
            if not taken:
                raise busy(index)
            if known <= room:
                return 0
            room = self.make_room(known)

    cdef uint32_t make_room(self, uint32_t known) except 0:
        cdef uint32_t room = known + known // 8 + 16        # room for producers that are added meanwhile
        free(self.entries)
        self.entries = <ProducerEntry*>malloc(room * sizeof(ProducerEntry))
        if self.entries == NULL:
            raise MemoryError(f"no memory for {room} producers")
        return room


def active_producers(uint32_t index) -> list[dict[str, int]]:
    """The data that DescribeProducers reports of each producer: dicts of producer_id, epoch, last_sequence, last_timestamp
    (ms), coordinator_epoch and txn_start_offset; -1 for unknown values."""
    cdef ProducerCopies copies = ProducerCopies()
    cdef ProducerEntry* entry
    cdef uint32_t i
    result = []
    copies.copy(index)
    for i in range(copies.count):
        entry = &copies.entries[i]
        if not is_known(entry):
            continue
        result.append({
            "producer_id": entry.key - 1,
            "epoch": entry_epoch(entry),
            "last_sequence": batch_back(entry, 0).last_sequence if entry_batches(entry) else -1,
            "last_timestamp": entry.last_timestamp,
            "coordinator_epoch": coordinator_epoch_of(entry),
            "txn_start_offset": entry.transaction_first_offset,
        })
    return result


def transactions_of(uint32_t index) -> list[dict[str, int]]:
    """The open transactions of a partition, the oldest first: dicts of producer_id, epoch, first_offset, last_timestamp (of the
    producer's newest batch or marker, ms) and coordinator_epoch (-1 if not known)."""
    cdef ProducerCopies copies = ProducerCopies()
    cdef ProducerEntry* entry
    cdef uint32_t i
    result = []
    copies.copy_open(index)
    for i in range(copies.count):
        entry = &copies.entries[i]
        result.append({
            "producer_id": entry.key - 1,
            "epoch": entry_epoch(entry),
            "first_offset": entry.transaction_first_offset,
            "last_timestamp": entry.last_timestamp,
            "coordinator_epoch": coordinator_epoch_of(entry),
        })
    return result


def high_watermark(uint32_t index) -> int:
    """The high watermark: records before it are on all in-sync replicas."""
    cdef Commit commit
    read_commit(slot_at(index), &commit)
    return commit.high_watermark


def leads(uint32_t index, uint32_t incarnation, int leader_epoch) -> bool:
    """Whether this broker leads the partition, and has led it without interruption since it led it in this epoch. If so, everything
    that was read from the slot before this call, and after the leader had that epoch, is of one log [R 10.6]: a former leader gives up the
    role before it truncates its log."""
    cdef Slot* slot = slot_at(index)
    fence_acquire()
    return load_acquire_32(&slot.role) == ROLE_LEADER and slot.incarnation == incarnation \
        and load_acquire_i32(&slot.led_since) <= leader_epoch


def leadership(uint32_t index) -> tuple[int, int] | None:
    """(incarnation, leader epoch in which this broker began to lead) if this broker leads the slot's partition now and its log is open;
    else None. The result is another one only after the leadership was interrupted, not after each new leader epoch."""
    cdef Slot* slot = slot_at(index)
    cdef uint32_t incarnation = slot.incarnation
    cdef int led_since = slot.led_since
    if state_now(slot) != SLOT_ONLINE or not leads(index, incarnation, led_since):
        return None
    return incarnation, led_since


def present_epoch(uint32_t index) -> int:
    """The leader epoch of a partition. Reads without the lock: it may be another one by now, or this broker does not lead it."""
    return slot_at(index).leader_epoch


def has_min_in_sync(uint32_t index, *, bint maximal=False) -> bool:
    """Whether min.insync.replicas replicas, or all if fewer are assigned, are in sync.

    :param maximal: count also replicas that are about to join; they have all records below the high watermark.
    """
    cdef Slot* slot = slot_at(index)
    return (slot.max_in_sync_count if maximal else slot.in_sync_count) >= min(slot.settings.min_in_sync_replicas, slot.replica_count)


def await_committed(uint32_t index) -> None:
    """Make the slot wake this process when its high watermark moves; read the high watermark once more after this call [R 6.1].

    The process is also woken when a flush ends without moving it: a sync that this process requested during that flush was
    dropped [R 4.5].
    """
    cdef uint64_t own = <uint64_t>1 << region().self
    fetch_or_64(&slot_at(index).waiters_committed, own)
    fetch_or_64(&slot_at(index).waiters_flushed, own)
    fence()


def awaits_flush(uint32_t index) -> bool:
    """Whether flush.messages or more records of the log are not on the device yet."""
    cdef Slot* slot = slot_at(index)
    cdef Commit commit
    read_commit(slot, &commit)
    return slot.state == SLOT_ONLINE and not within_flush_messages(slot, &commit, slot.flushed_offset)


def state_of(uint32_t index) -> int:
    """The slot's SlotState; OFFLINE if its log directory is offline."""
    return state_now(slot_at(index))


def log_dir_of(uint32_t index) -> int:
    return slot_at(index).log_dir


def partition_of(uint32_t index) -> int:
    """The number of the slot's partition."""
    return checked_slot(index).partition


def log_of(uint32_t index) -> tuple[str, int, bytes, int]:
    """(topic, partition, topic id, log directory): the values needed to open the slot's log."""
    cdef Slot* slot = slot_at(index)
    return topic_of(slot), slot.partition, (<char*>slot.topic_id)[:16], slot.log_dir


def in_use() -> Iterator[tuple[str, int, int]]:
    """Yield (topic, partition, slot) for each slot that holds a partition, announced or not."""
    cdef uint64_t i
    cdef Slot* slot
    for i in range(region().header.slots_used):
        slot = slot_at(<uint32_t>i)
        if slot.state != SLOT_FREE and slot.state != SLOT_DELETED:
            yield topic_of(slot), slot.partition, i


def not_online() -> list[tuple[str, int, int]]:
    """[(topic, partition, log directory)] of the logs that have a slot but are not loaded, or failed."""
    cdef uint64_t i
    cdef Slot* slot
    logs = []
    for i in range(region().header.slots_used):
        slot = slot_at(<uint32_t>i)
        if slot.state == SLOT_LOADING or slot.state == SLOT_OFFLINE:
            logs.append((topic_of(slot), slot.partition, slot.log_dir))
    return logs


# -- operations of the data path --------------------------------------------------------------------------------------

def append_built(uint32_t index, BatchBuilder builder not None, incarnation, int leader_epoch, int codec, compress, int64_t max_bytes,
                 int64_t producer_id=-1, int producer_epoch=-1, bint transactional=False) -> tuple[int, int]:
    """Append the builder's records as one batch, as leader. Returns (error, base offset).

    A batch of a producer has the base sequence 0, as in Kafka; no sequence is checked, because the coordinator that appends it never
    repeats a batch, and has checked its transaction.

    :param compress: as of `BatchBuilder.finish`. :param max_bytes: a larger batch gets MESSAGE_TOO_LARGE.
    :param transactional: whether the batch belongs to a transaction of the producer.
    :raises SlotChanged: the slot's checks failed, with the reason; nothing was written.
    """
    cdef AppendItem item
    cdef AppendOutcome outcome
    cdef AppendResult result
    cdef uint32_t expected = incarnation
    cdef int64_t now = now_ms()
    cdef int checked
    builder.seal(codec, compress, producer_id, producer_epoch, 0 if producer_id >= 0 else NO_SEQUENCE, transactional)
    if builder.out.size > max_bytes:
        return MESSAGE_TOO_LARGE, -1
    memset(&item, 0, sizeof(AppendItem))
    item.data = builder.out.data
    item.trusted = item.by_coordinator = 1
    checked = check_batch(item.data, builder.out.size, False, &item.info)
    if checked != 0:
        raise ValueError(f"the checks refuse the batch that was built: error {checked}")
    with nogil:
        result = append_as_leader(index, expected, leader_epoch, &item, 1, now, SPINS_OF_THREAD, &outcome)
    if result != 0:
        raise refused(result)
    return item.error, item.base_offset


def append_markers(uint32_t index, incarnation, int leader_epoch, markers) -> list[tuple[int, int]]:
    """Append end markers to a partition that this broker leads. Returns (error, offset) for each marker, in order. With error 0 the
    transaction is ended; the offset is -1 if it had ended before, and the marker was not written.

    Errors: INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED: the partition has a newer epoch; INVALID_TXN_STATE: the transaction
    with this first offset is not open; INVALID_PRODUCER_ID_MAPPING: no producer can have the id; NOT_ENOUGH_REPLICAS and
    KAFKA_STORAGE_ERROR: the marker was not written, and may be sent again. A marker is committed when the high watermark is above its
    offset (`awaits_flush`, `await_committed`).

    :param markers: (producer id, producer epoch, coordinator epoch, commits, transaction version) for each; a version outside of 0 to 2
        counts as the nearest one. Behind these, if only one certain transaction must be ended, its first offset.
    :raises SlotChanged: the slot's checks failed, or the first write did, with the reason; nothing was appended.
    """
    cdef AppendOutcome outcome
    cdef AppendResult result
    cdef uint32_t expected = incarnation
    cdef int64_t now = now_ms()
    cdef int count = len(markers), i
    cdef TransactionEnd* ends
    if count == 0:
        return []
    ends = <TransactionEnd*>malloc(count * sizeof(TransactionEnd))
    if ends == NULL:
        raise MemoryError(f"no memory for {count} markers")
    try:
        for i, marker in enumerate(markers):
            ends[i].producer_id = marker[0]
            ends[i].producer_epoch = marker[1]
            ends[i].coordinator_epoch = marker[2]
            ends[i].commits = bool(marker[3])
            ends[i].transaction_version = max(0, min(marker[4], 2))
            ends[i].first_offset = marker[5] if len(marker) > 5 else -1
        with nogil:
            result = end_in_slot(index, expected, leader_epoch, ends, count, now, SPINS_OF_THREAD, &outcome)
        if result != 0:
            raise refused(result)
        return [(ends[i].error, ends[i].offset) for i in range(count)]
    finally:
        free(ends)


def allow_transactions(indexes not None, str transactional_id not None, int64_t producer_id, int producer_epoch, int transaction_version,
                       uint32_t owner, int coordinator_epoch) -> list[int | None]:
    """Set the mark of a producer, like `allow_transaction`, in those of these slots whose partition this broker leads now. The coordinator
    calls it. Returns a list with the error of each slot; 0 also if this broker does not lead the partition, or if the index is negative;
    None if another process holds the lock of the slot.
    """
    cdef AppendResult result
    cdef int64_t index
    cdef int16_t error
    cdef int _try, leader_epoch
    cdef uint32_t slot, incarnation
    cdef bytes name = transactional_id.encode()
    cdef uint64_t id_hash = hash_of_id(<const uint8_t*><const char*>name, len(name))
    cdef list errors = []
    for index in indexes:
        error = 0
        result = APPEND_OK
        for _try in range(MARK_TRIES):              # the leadership may change between the look and the lock
            if index < 0:
                break
            slot = <uint32_t>index
            incarnation = slot_at(slot).incarnation
            leader_epoch = slot_at(slot).led_since
            if state_now(slot_at(slot)) != SLOT_ONLINE or not leads(slot, incarnation, leader_epoch):
                break
            with nogil:
                result = mark_in_slot(slot, incarnation, leader_epoch, id_hash, producer_id, <int16_t>producer_epoch, coordinator_epoch,
                                      transaction_version >= 2, owner, SPINS_OF_THREAD, &error)
            if result == APPEND_OK or result == APPEND_BUSY:
                break
        errors.append(None if result == APPEND_BUSY else error)
    return errors


def allow_transaction(uint32_t index, incarnation, int leader_epoch, str transactional_id not None, int64_t producer_id,
                      int producer_epoch, int transaction_version, uint32_t owner=0, int coordinator_epoch=0x7FFFFFFF) -> int:
    """Set the mark of a producer in a partition that this broker leads: its coordinator has durably added the partition to its
    transaction. Used by tests; the coordinator calls `allow_transactions`. Returns an error: 0, INVALID_PRODUCER_EPOCH (the partition has
    a newer epoch), TRANSACTION_COORDINATOR_FENCED (the partition has a marker of a newer coordinator for the producer), or
    NOT_ENOUGH_REPLICAS (no room for the producer; retriable).

    :param transactional_id: the mark is valid for requests with this transactional id.
    :param coordinator_epoch: the leader epoch of the coordinator's partition of `__transaction_state`; without it, no marker is newer.
    :param owner: the owner of the producer if it has none yet; see `owners`.
    :raises SlotChanged: the slot's checks failed, with the reason.
    """
    cdef AppendResult result
    cdef uint32_t expected = incarnation
    cdef int16_t error = 0
    cdef bytes name = transactional_id.encode()
    cdef uint64_t id_hash = hash_of_id(<const uint8_t*><const char*>name, len(name))
    with nogil:
        result = mark_in_slot(index, expected, leader_epoch, id_hash, producer_id, <int16_t>producer_epoch, coordinator_epoch,
                              transaction_version >= 2, owner, SPINS_OF_THREAD, &error)
    if result != 0:
        raise refused(result)
    return error


def follow(uint32_t index, data, int64_t leader_high_watermark, *, int leader_epoch=-1, int64_t leader_log_start_offset=0) -> int:
    """Append what a leader sent, as a follower. Returns the log end offset afterwards. No caller yet: replication.

    :raises SlotChanged: with the reason.
    """
    cdef AppendOutcome outcome
    cdef AppendResult result
    cdef int64_t size = len(data), now = now_ms()
    cdef uint8_t* start = NULL
    cdef uint32_t expected = slot_at(index).incarnation
    copy = bytearray(data)
    if size:
        start = <uint8_t*>PyByteArray_AS_STRING(copy)
    with nogil:
        result = append_as_follower(index, expected, leader_epoch, start, size, leader_high_watermark, leader_log_start_offset,
                                    now, SPINS_OF_THREAD, &outcome)
    if result != 0:
        raise refused(result)
    return outcome.log_end_offset


def truncate(uint32_t index, int64_t offset, *, int leader_epoch=-1, incarnation=None) -> None:
    """Cut the log to end at `offset`, as a follower; `odradek.shm.truncation` also writes the checkpoints.

    :raises SlotChanged: with the reason.
    """
    cdef AppendResult result
    cdef uint32_t expected = slot_at(index).incarnation if incarnation is None else incarnation
    cdef int64_t now = now_ms()
    with nogil:
        result = truncate_to(index, expected, leader_epoch, offset, now, SPINS_OF_THREAD)
    if result != 0:
        raise refused(result)


def start_at(uint32_t index, int64_t offset, *, int leader_epoch=-1, incarnation=None) -> None:
    """Drop the whole log, as a follower, and begin it at `offset`; `odradek.shm.truncation` also writes the checkpoints.

    :raises SlotChanged: with the reason.
    """
    cdef AppendResult result
    cdef uint32_t expected = slot_at(index).incarnation if incarnation is None else incarnation
    cdef int64_t now = now_ms()
    with nogil:
        result = restart_log(index, expected, leader_epoch, offset, now, SPINS_OF_THREAD)
    if result != 0:
        raise refused(result)


def raise_high_watermark(uint32_t index, int64_t offset, *, int leader_epoch=-1) -> None:
    """Advance the high watermark. No caller yet: replication. :raises SlotChanged: with the reason."""
    cdef AppendResult result
    cdef uint32_t expected = slot_at(index).incarnation
    with nogil:
        result = advance_high_watermark(index, expected, leader_epoch, offset, SPINS_OF_THREAD)
    if result != 0:
        raise refused(result)
