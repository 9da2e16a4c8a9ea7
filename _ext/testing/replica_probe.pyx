"""Replication of a slot for tests: what the native code of other processes calls, for Python.

Any process of a test. The functions wait for the slot's lock.
"""

from libc.stdint cimport int16_t, int64_t, uint32_t

from odradek._ext.partition.follower_append cimport FollowerPosition, follower_position
from odradek._ext.partition.followers cimport begin_followers, note_follower_fetch
from odradek._ext.partition.lost_tails cimport note_caught_up, note_lost_tail
from odradek._ext.partition.slot_access cimport wait_slot
from odradek._ext.partition.slots cimport LOCK_PATIENCE_MS, busy, checked_slot
from odradek._ext.shm.atomics cimport store_release_i64
from odradek._ext.shm.clock cimport monotonic_ms
from odradek._ext.shm.layout cimport region
from odradek._ext.shm.locks cimport SPINS_OF_THREAD, unlock
from odradek._ext.shm.pauses cimport in_doubt
from odradek._ext.shm.slot cimport Slot, slot_at

import odradek._ext.shm.brokers as brokers


def note_fetch(uint32_t index, int broker_id, int64_t fetch_offset, *, int leader_epoch=-1, int64_t broker_epoch=-1,
               int64_t log_start_offset=0, now_ms=None, incarnation=None) -> int:
    """Note a follower's fetch as a worker does. Returns Kafka's error code, 0, or LOCK_BUSY_RESULT."""
    cdef uint32_t expected = slot_at(index).incarnation if incarnation is None else incarnation
    cdef int64_t now = monotonic_ms() if now_ms is None else now_ms
    cdef int16_t error
    with nogil:
        error = note_follower_fetch(index, expected, leader_epoch, broker_id, broker_epoch, fetch_offset, log_start_offset, now,
                                    SPINS_OF_THREAD)
    return error


def begin_term(uint32_t index, *, now_ms=None) -> None:
    """Forget what the leader knows of its followers, as at the beginning of a leader epoch."""
    cdef Slot* slot = checked_slot(index)
    cdef int64_t now = monotonic_ms() if now_ms is None else now_ms
    cdef bint taken
    with nogil:
        taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
        if taken:
            begin_followers(slot, now)
            unlock(index, slot)
    if not taken:
        raise busy(index)


def cluster(alive, *, int64_t lag_limit_ms=30000) -> None:
    """Make the mapping that of a broker in a cluster in which these brokers are alive."""
    brokers.publish_brokers([brokers.BrokerInfo(broker_id, -1, None, ()) for broker_id in alive])
    region().header.clustered = 1
    region().header.lag_limit_ms = lag_limit_ms


def position(uint32_t index) -> FollowerPosition | None:
    """The follower's position as its fetcher reads it: a dict of FollowerPosition; None if the slot is being changed all the time."""
    cdef FollowerPosition found
    return found if follower_position(slot_at(index), &found) else None


def may_be_deposed() -> bool:
    """Whether a worker finds that this broker may have been deposed during a pause."""
    return in_doubt()


def keep_session(int64_t now_ms) -> None:
    """The coordinator has kept the session without a pause until now."""
    store_release_i64(&region().header.session_beat_ms, now_ms)


def lose_tail(uint32_t index, int64_t lost_bytes, int64_t log_end_offset) -> None:
    """Note that a log lost its end, as loading does."""
    cdef Slot* slot = checked_slot(index)
    cdef bint taken
    with nogil:
        taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
        if taken:
            note_lost_tail(slot, lost_bytes, log_end_offset)
            unlock(index, slot)
    if not taken:
        raise busy(index)


def catch_up(uint32_t index, int leader_epoch, int64_t high_watermark, *, incarnation=None) -> None:
    """Take note of a high watermark of the leader, as a replica fetcher does."""
    cdef uint32_t expected = slot_at(index).incarnation if incarnation is None else incarnation
    with nogil:
        note_caught_up(index, expected, leader_epoch, high_watermark)
