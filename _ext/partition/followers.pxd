"""What a leader knows of its followers: their log end offsets and when they were caught up, from their Fetch requests [R 10]."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t

from odradek._ext.shm.slot cimport Follower, Slot


cdef enum:
    LOCK_BUSY_RESULT = -1000      # the slot's lock is taken: try again later

# Note that a follower fetches from `fetch_offset`, so that its log ends there, and move the high watermark. `leader_epoch` and
# `broker_epoch` are -1 if the request does not contain them. `now_ms`: the monotonic time at which the request arrived. Call it once
# for each request, when it arrives, and not if the response reports a diverging epoch. Returns Kafka's error code, 0, or
# LOCK_BUSY_RESULT.
cdef int16_t note_follower_fetch(uint32_t index, uint32_t incarnation, int32_t leader_epoch, int32_t broker_id, int64_t broker_epoch,
                                 int64_t fetch_offset, int64_t log_start_offset, int64_t now_ms, int spins) noexcept nogil

# Forget what earlier leader epochs knew of the followers: this broker is the leader in a new epoch. The members of the in-sync set
# count as caught up now. The caller holds the slot's lock and has stored replicas and in-sync set.
cdef void begin_followers(Slot* slot, int64_t now_ms) noexcept nogil

# Forget the followers that are not in the assignment any more. The caller holds the slot's lock.
cdef void drop_removed_followers(Slot* slot) noexcept nogil

# Whether a replica outside the in-sync set may join it: it is alive and has every committed record, and every record of the leader's
# earlier epochs. The caller holds the slot's lock.
cdef bint may_join(Slot* slot, const Follower* follower) noexcept nogil
