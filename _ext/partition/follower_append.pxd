"""A follower's changes to its log: it appends the records that its leader sent, and cuts off records that the leader does not
have. No caller yet: replication."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint8_t

from odradek._ext.partition.log_writing cimport AppendOutcome
from odradek._ext.partition.slot_access cimport AppendResult


cdef AppendResult append_as_follower(uint32_t index, uint32_t incarnation, int32_t leader_epoch, uint8_t* data, int64_t size,
                                     int64_t leader_high_watermark, int64_t leader_log_start_offset, int64_t wall_ms, int spins,
                                     AppendOutcome* outcome) noexcept nogil
cdef AppendResult truncate_to(uint32_t index, uint32_t incarnation, int32_t leader_epoch, int64_t offset, int64_t wall_ms,
                              int spins) noexcept nogil
