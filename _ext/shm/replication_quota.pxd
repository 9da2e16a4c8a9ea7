"""The rates of throttled replication of this broker, and their limits (KIP-73) [R 11].

A rate is that of the whole broker: bytes are counted in shared windows of time, without a lock. The limits are words of each
process. `now_ms` is always the monotonic clock.
"""

from libc.stdint cimport int32_t, int64_t

from odradek._ext.shm.slot cimport Slot


cpdef enum QuotaSide:             # index of the quotas, and of their limits
    QUOTA_LEADER = 0
    QUOTA_FOLLOWER = 1

cdef enum:
    QUOTA_SIDES = 2


# Return whether a limit is set: the only test that replication costs without one.
cdef bint quota_limited(int side) noexcept nogil
# Return the bytes that the caller may send now; 0: wait. There is room if the limit permits at least a tenth of the bytes of a second,
# so that many small responses are not sent instead of one.
cdef int64_t quota_room(int side, int64_t now_ms) noexcept nogil
# Return after how many ms there may be room again.
cdef int64_t quota_wait_ms(int side, int64_t now_ms) noexcept nogil
cdef void quota_record(int side, int64_t bytes_, int64_t now_ms) noexcept nogil

# Count bytes for a replica that a reassignment adds.
cdef void count_reassigned(int side, int64_t bytes_) noexcept nogil
# Return whether a reassignment adds a replica in this broker to a slot's partition. Without the lock, as of some moment.
cdef bint is_adding(Slot* slot, int32_t broker_id) noexcept nogil
# Return whether the controller's in-sync replicas of a slot contain a broker. Without the lock, as of some moment.
cdef bint is_in_sync(Slot* slot, int32_t broker_id) noexcept nogil
