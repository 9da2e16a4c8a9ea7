"""The log as the redo log of producers and transactions: committed batches are applied to their state [R 1, R 2].

Called under the slot's lock: by each append after its commit, by a process that recovers a dead owner's slot, by a truncation.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint8_t

from odradek._ext.partition.producers cimport apply_batch, apply_marker
from odradek._ext.records.record_batch cimport BatchInfo
from odradek._ext.shm.clock cimport coarse_ms
from odradek._ext.shm.slot cimport Slot


cdef enum:
    MARKER_ABORT = 0
    MARKER_COMMIT = 1


cdef struct Marker:               # what the record of a control batch says
    int16_t kind                  # MARKER_ABORT or MARKER_COMMIT
    int32_t coordinator_epoch


# Read the record of a control batch in memory. Returns 0, or -1 if it is no marker: a control record of another kind, or a batch
# from which compaction removed the marker.
cdef int parse_marker(const uint8_t* batch, int64_t size, Marker* marker) noexcept nogil

# Repair what is derived from the producers' entries, then apply the committed batches from `applied` to the committed size.
# Idempotent. Returns 0, or -errno.
cdef int redo(uint32_t index, Slot* slot) noexcept nogil

# Apply the batches of a whole segment, from `position` and `from_offset` on, to the producers. Returns 0, or -errno.
cdef int replay_segment(uint32_t index, Slot* slot, int64_t base, int64_t position, int64_t from_offset) noexcept nogil


cdef inline int32_t marks_ended_by(int16_t epoch, uint8_t transaction_version) noexcept nogil:
    """A marker clears marks of producer epochs below the result. With version 2, a marker has the epoch of the producer's next
    transaction. A version that is not known (0) counts as an older one: this may clear a mark too early, and then the worker asks again."""
    return epoch if transaction_version >= 2 else <int32_t>epoch + 1


cdef inline void apply_committed(Slot* slot, BatchInfo* info, int64_t base_offset, int64_t segment_base, int64_t position,
                                 uint32_t owner, uint32_t place) noexcept nogil:
    """Apply one committed batch that is no control batch to the state of producers and transactions; applying it again changes
    nothing."""
    if info.producer_id >= 0:
        apply_batch(slot, info.producer_id, info.producer_epoch, info.base_sequence, base_offset, base_offset + info.last_offset_delta,
                    info.max_timestamp, info.transactional, owner, place, segment_base, position, coarse_ms())


cdef inline void apply_control(Slot* slot, BatchInfo* info, int64_t base_offset, const uint8_t* data, int64_t size,
                               uint8_t transaction_version) noexcept nogil:
    """Apply one committed control batch, of which data[0:size] is in memory."""
    cdef Marker marker
    if info.producer_id >= 0 and parse_marker(data, size, &marker) == 0:
        apply_marker(slot, info.producer_id, info.producer_epoch, marker.coordinator_epoch, base_offset + info.last_offset_delta,
                     info.max_timestamp, marks_ended_by(info.producer_epoch, transaction_version), coarse_ms())
