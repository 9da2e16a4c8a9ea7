"""Changes and reads of a slot for tests: appends as leader, rolls, all producers of a log.

Any process of a test. The functions wait for the slot's lock.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport int64_t, uint32_t, uint8_t
from libc.string cimport memset

from odradek._ext.partition.leader_append cimport append_as_leader
from odradek._ext.partition.log_writing cimport MAX_JOINED, AppendItem, AppendOutcome
from odradek._ext.partition.producer_entry cimport ProducerEntry, batch_back, entry_batches, entry_epoch, hash_of_id
from odradek._ext.partition.rolling cimport roll_now
from odradek._ext.partition.slot_access cimport AppendResult, note_failure, wait_slot
from odradek._ext.partition.slots cimport LOCK_PATIENCE_MS, ProducerCopies, busy, checked_slot, name_of, refused
from odradek._ext.records.record_batch cimport check_batch
from odradek._ext.shm.clock cimport now_ms
from odradek._ext.shm.locks cimport SPINS_OF_THREAD, unlock
from odradek._ext.shm.slot cimport Slot, slot_at
from odradek._ext.storage.file_calls cimport file_error


def append(uint32_t index, batches, *, incarnation=None, int leader_epoch=-1, wall_ms=None, uint32_t owner=0, bint trusted=True,
           bint after_refused=False, str transactional_id="id", transactional_ids=None) -> list[tuple[int, int, bool]]:
    """Append record batches (bytes-like, each one whole v2 batch) as leader: [(error, base offset, duplicate)] in order.

    :param owner: owner of new producers. :param trusted: transactional batches need no mark. :param after_refused: see AppendItem.
    :param transactional_id: of the request, for transactional batches that are not trusted. :param transactional_ids: of the request of
    each batch.
    :raises SlotChanged: the slot's checks failed, with the reason; no batch was checked.
    """
    cdef AppendItem[MAX_JOINED] items
    cdef AppendOutcome outcome
    cdef int n = len(batches), i, checked
    cdef AppendResult result
    cdef uint32_t expected = slot_at(index).incarnation if incarnation is None else incarnation
    cdef int64_t now = now_ms() if wall_ms is None else wall_ms
    cdef bytes name
    copies = [bytearray(batch) for batch in batches]
    if n > MAX_JOINED:
        raise ValueError(f"{n} batches are more than the maximum of {MAX_JOINED}")
    for i in range(n):
        memset(&items[i], 0, sizeof(AppendItem))
        items[i].data = <uint8_t*>PyByteArray_AS_STRING(copies[i])
        items[i].owner = owner
        items[i].trusted = trusted
        items[i].after_refused = after_refused
        name = (transactional_id if transactional_ids is None else transactional_ids[i]).encode()
        items[i].id_hash = hash_of_id(<const uint8_t*><const char*>name, len(name))
        checked = check_batch(items[i].data, len(copies[i]), False, &items[i].info)
        if checked != 0:
            raise ValueError(f"the checks refuse batch {i}: error {checked}")
    with nogil:
        result = append_as_leader(index, expected, leader_epoch, items, n, now, SPINS_OF_THREAD, &outcome)
    if result != 0:
        raise refused(result)
    return [(items[i].error, items[i].base_offset, bool(items[i].duplicate)) for i in range(n)]


def roll(uint32_t index) -> None:
    """Begin a new active segment if the current one is not empty. :raises SlotBusy: another thread holds the lock for long."""
    cdef Slot* slot = checked_slot(index)
    cdef int result = 0
    cdef bint taken
    with nogil:
        taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
        if taken:
            result = roll_now(index, slot, now_ms())
            note_failure(slot, result)
            unlock(index, slot)
    if not taken:
        raise busy(index)
    if result != 0:
        raise file_error(-result, name_of(slot))


def incarnation_of(uint32_t index) -> int:
    """The slot's incarnation, read without the lock."""
    return slot_at(index).incarnation


def producers(uint32_t index) -> dict[int, tuple[int, list[tuple[int, int, int, int]]]]:
    """Producer state: {producer id: (epoch, [(base sequence, last sequence, base offset, last offset)] newest first)}."""
    cdef ProducerCopies copies = ProducerCopies()
    cdef ProducerEntry* entry
    cdef uint32_t i
    result = {}
    copies.copy(index)
    for i in range(copies.count):
        entry = &copies.entries[i]
        result[entry.key - 1] = (
            entry_epoch(entry),
            [(batch_back(entry, k).base_sequence, batch_back(entry, k).last_sequence,
              batch_back(entry, k).base_offset, batch_back(entry, k).last_offset)
             for k in range(entry_batches(entry))],
        )
    return result


def producers_heard(uint32_t index) -> dict[int, tuple[int, int]]:
    """{producer id: (owner, when the broker last heard of it, in ms of CLOCK_MONOTONIC)}."""
    cdef ProducerCopies copies = ProducerCopies()
    cdef uint32_t i
    copies.copy(index)
    return {copies.entries[i].key - 1: (copies.entries[i].owner, copies.entries[i].heard_ms) for i in range(copies.count)}
