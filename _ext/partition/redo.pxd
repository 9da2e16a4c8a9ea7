"""The log as the redo log of producers and transactions: committed batches are applied to their state [R 1, R 2].

Called under the slot's lock: by each append after its commit, by a process that recovers a dead owner's slot, by a truncation.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint8_t

from odradek._ext.partition.producers cimport apply_batch, apply_marker
from odradek._ext.records.record_batch cimport BatchInfo
from odradek._ext.shm.layout cimport Slot, coarse_ms


# Read the record of a control batch in memory: its kind (0 abort, 1 commit) and coordinator epoch. Returns 0, or -1 if it is no
# marker.
cdef int parse_marker(const uint8_t* batch, int64_t size, int32_t* coordinator_epoch, int* kind) noexcept nogil

# Repair what is derived from the producers' entries, then apply the committed batches from `applied` to the committed size.
# Idempotent. Returns 0, or -errno.
cdef int redo(uint32_t index, Slot* slot) noexcept nogil

# Apply the batches of a whole segment, from `position` and `from_offset` on, to the producers. Returns 0, or -errno.
cdef int replay_segment(uint32_t index, Slot* slot, int64_t base, int64_t position, int64_t from_offset) noexcept nogil


cdef inline void apply_committed(Slot* slot, BatchInfo* info, int64_t base_offset, int32_t coordinator_epoch,
                                 uint32_t owner, uint32_t place) noexcept nogil:
    """Apply one committed batch to the state of producers and transactions; applying it again changes nothing."""
    cdef int64_t last_offset = base_offset + info.last_offset_delta
    if info.producer_id < 0:
        return
    if info.control:
        apply_marker(slot, info.producer_id, info.producer_epoch, coordinator_epoch, last_offset, info.max_timestamp, coarse_ms())
    else:
        apply_batch(slot, info.producer_id, info.producer_epoch, info.base_sequence, base_offset, last_offset, info.max_timestamp,
                    info.transactional, owner, place, coarse_ms())
