"""Whether this broker, or its coordinator alone, stood still for so long that other brokers may lead its partitions [R 12].

A broker that is stopped, or whose machine is suspended, for longer than its session in ZooKeeper is a deposed leader when it continues,
and does not know it. The same is true for a broker whose coordinator stands still or is dead, because the coordinator keeps the session.
The supervisor notes every pause of the broker, and the coordinator's thread that keeps the session notes every pause of its own; the
coordinator confirms afterwards that the registration still exists, or that the broker has given up its leaderships. In between, a leader
must not acknowledge records that no other replica has.

The clock of these words is CLOCK_BOOTTIME, which also counts the time in which the machine was suspended.
"""

from libc.stdint cimport int64_t

from odradek._ext.shm.atomics cimport load_acquire_i64
from odradek._ext.shm.layout cimport Header, region


cdef int64_t pause_clock_ms() noexcept nogil


cdef inline bint unconfirmed_pause(Header* header) noexcept nogil:
    """Return whether a pause of the broker, or of its coordinator, was found that is not confirmed yet."""
    cdef int64_t confirmed = load_acquire_i64(&header.confirmed_ms)
    return confirmed < load_acquire_i64(&header.paused_ms) or confirmed < load_acquire_i64(&header.session_paused_ms)


cdef inline bint in_doubt() noexcept nogil:
    """Return whether this broker may have been deposed during a pause that ended before this call: found, or not found yet.

    The beats are read before the clock, and all before the pauses: a pause after one of these reads can only lead to the result True.
    Roles that are read after this call are those of a moment after the confirmation [R 12.3].
    """
    cdef Header* header = region().header
    cdef int64_t limit = header.pause_limit_ms
    cdef int64_t beat
    if limit == 0:
        return False
    beat = min(load_acquire_i64(&header.beat_ms), load_acquire_i64(&header.session_beat_ms))
    return pause_clock_ms() - beat > limit or unconfirmed_pause(header)
