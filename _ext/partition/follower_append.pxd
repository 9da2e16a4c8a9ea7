"""A follower's changes to its log: it appends the records that its leader sent, and removes records that the leader does not
have. `follower_position` tells where the next fetch begins.

The replicator's threads call these functions, each with its own lane. A response of the leader is appended only by the thread that
sent the request: it alone appends to and truncates the log while the leader epoch stays the same.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint8_t

from odradek._ext.partition.log_writing cimport AppendOutcome
from odradek._ext.partition.slot_access cimport AppendResult
from odradek._ext.shm.slot cimport Slot


cdef struct FollowerPosition:     # what a Fetch request says about a follower's log; all values are of one moment
    int64_t log_end_offset
    int64_t log_start_offset
    int64_t high_watermark
    int32_t last_epoch            # of the last batch in the log; -1 if the log is empty, or has no leader epochs
    int32_t leader_epoch
    int32_t leader_id
    uint32_t incarnation
    uint32_t role                 # Role
    uint32_t state                # SlotState
    bint on_device                # fewer than flush.messages records before `log_end_offset` may be missing on the device

# Copy the position of a follower's log. Its log end offset may be reported to the leader only if it is on the device: to fetch from there
# acknowledges everything before it. Returns False if the slot was being changed all the time: try again later.
cdef bint follower_position(Slot* slot, FollowerPosition* out) noexcept nogil

# `leader_log_start_offset` and `leader_high_watermark` are those of the leader's response; `size` may be 0.


cdef AppendResult append_as_follower(uint32_t index, uint32_t incarnation, int32_t leader_epoch, uint8_t* data, int64_t size,
                                     int64_t leader_high_watermark, int64_t leader_log_start_offset, int64_t wall_ms, int spins,
                                     AppendOutcome* outcome) noexcept nogil
# Drop the whole log and begin it at `offset`, above or below its present offsets. The caller then writes the checkpoints.
cdef AppendResult restart_log(uint32_t index, uint32_t incarnation, int32_t leader_epoch, int64_t offset, int64_t wall_ms,
                              int spins) noexcept nogil
cdef AppendResult truncate_to(uint32_t index, uint32_t incarnation, int32_t leader_epoch, int64_t offset, int64_t wall_ms,
                              int spins) noexcept nogil
