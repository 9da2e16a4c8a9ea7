"""The published view of a partition; see views.pyx."""

from libc.stdint cimport uint32_t

from odradek._ext.shm.partition_view cimport PartitionView
from odradek._ext.shm.slot cimport Slot


# Copy the view of a slot, consistently: what the controller published, or with an embedded metadata store the slot's role.
cdef void read_view(Slot* slot, PartitionView* out) noexcept nogil

# Replace the view. Only the one writer of the table calls this.
cdef void write_view(Slot* slot, const PartitionView* view) noexcept nogil

cdef object view_tuple(const PartitionView* view)
