"""A leader's append: checks under the slot's lock, division into segments, and a result for each batch."""

from libc.stdint cimport int32_t, int64_t, uint32_t

from odradek._ext.partition.log_writing cimport AppendItem, AppendOutcome
from odradek._ext.partition.slot_access cimport AppendResult
from odradek._ext.shm.slot cimport Slot


cdef AppendResult append_as_leader(uint32_t index, uint32_t incarnation, int32_t leader_epoch, AppendItem* items, int count,
                                   int64_t wall_ms, int spins, AppendOutcome* outcome) noexcept nogil

# The end of an append whose items are checked, under the slot's lock: write and commit the items without an error, in as many parts as
# rolls and control batches require [R 1.5, R 1.7]. `alone`: as of `is_lone_leader`. Returns 0, or -errno.
cdef int write_items(uint32_t index, Slot* slot, AppendItem* items, int count, bint alone, int64_t wall_ms) noexcept nogil

# After the last `write_items`, which returned `result`: move the high watermark, which was `before`; store the outcome; release the
# lock; wake the waiters.
cdef AppendResult finish_append(uint32_t index, Slot* slot, int result, bint alone, int64_t before, AppendOutcome* outcome) noexcept nogil
