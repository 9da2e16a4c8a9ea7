"""A leader's append: checks under the slot's lock, division into segments, and a result for each batch."""

from libc.stdint cimport int32_t, int64_t, uint32_t

from odradek._ext.partition.log_writing cimport AppendItem, AppendOutcome
from odradek._ext.partition.slot_access cimport AppendResult


cdef AppendResult append_as_leader(uint32_t index, uint32_t incarnation, int32_t leader_epoch, AppendItem* items, int count,
                                   int64_t wall_ms, int spins, AppendOutcome* outcome) noexcept nogil
