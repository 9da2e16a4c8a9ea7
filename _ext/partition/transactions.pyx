"""Marks and markers of transactions; see transactions.pxd.

Called by the coordinator process. The slot's lock is taken and released here; in between nothing is allocated and no GIL is needed.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t

from odradek._ext.partition.producer_entry cimport ProducerEntry, entry_epoch, pack_mark
from odradek._ext.partition.producer_room cimport ROOM_BUSY, ROOM_READY, PendingProducers, Room, reserve_producer
from odradek._ext.partition.producer_runs cimport find_producer
from odradek._ext.partition.producers cimport put_mark
from odradek._ext.partition.slot_access cimport APPEND_BUSY, APPEND_OK, AppendResult, check_slot, take_slot
from odradek._ext.protocol.kafka_errors cimport INVALID_PRODUCER_EPOCH, NOT_ENOUGH_REPLICAS
from odradek._ext.shm.layout cimport ROLE_LEADER, Slot, coarse_ms, slot_at
from odradek._ext.shm.locks cimport LOCK_BUSY, unlock


# -- marks -------------------------------------------------------------------------------------------------------------

cdef AppendResult mark_producer(uint32_t index, Slot* slot, int64_t producer_id, int16_t producer_epoch, bint version_2, uint32_t owner,
                                int16_t* error) noexcept nogil:
    cdef ProducerEntry* entry = find_producer(slot, producer_id)
    cdef PendingProducers pending
    cdef Room room
    pending.producers = pending.fresh = 0
    error[0] = 0
    if entry != NULL and producer_epoch < entry_epoch(entry):
        error[0] = INVALID_PRODUCER_EPOCH
        return APPEND_OK
    if entry == NULL:
        room = reserve_producer(index, slot, entry, owner, &pending)
        if room == ROOM_BUSY:
            return APPEND_BUSY
        if room != ROOM_READY:
            error[0] = NOT_ENOUGH_REPLICAS
            return APPEND_OK
    put_mark(slot, entry, producer_id, pack_mark(producer_epoch, slot.leader_epoch, version_2), owner, coarse_ms())
    return APPEND_OK


cdef AppendResult allow_transaction(uint32_t index, uint32_t incarnation, int32_t leader_epoch, int64_t producer_id,
                                    int16_t producer_epoch, bint version_2, uint32_t owner, int spins, int16_t* error) noexcept nogil:
    cdef Slot* slot = slot_at(index)
    cdef AppendResult result
    if take_slot(index, slot, spins) == LOCK_BUSY:
        return APPEND_BUSY
    result = check_slot(slot, incarnation, leader_epoch, ROLE_LEADER)
    if result == APPEND_OK:
        result = mark_producer(index, slot, producer_id, producer_epoch, version_2, owner, error)
    unlock(index, slot)
    return result
