"""Logs that lost records at their end, as recovery found when they were loaded, in a broker of a cluster [R 13]."""

from libc.stdint cimport int32_t, int64_t, uint32_t

from odradek._ext.shm.slot cimport Slot


# Note that records are missing at the end of a log that is being loaded. The caller holds the slot's mutex.
# `lost_bytes`: that recovery cut off; 0: not known how many.
cdef void note_lost_tail(Slot* slot, int64_t lost_bytes, int64_t log_end_offset) noexcept nogil

# Note that this broker becomes the leader in a new leader epoch. The caller holds the slot's mutex.
cdef void lead_without_tail(Slot* slot, int32_t replica_count) noexcept nogil

# Note that the log of a follower has all records that its leader knows to be committed. Does nothing if the role has changed, or if the
# leader's high watermark is below the one of this log: a leader that was just elected does not know all that is committed. Does
# nothing either if the lock is taken: the next response repeats it.
cdef void note_caught_up(uint32_t index, uint32_t incarnation, int32_t leader_epoch, int64_t high_watermark) noexcept nogil
