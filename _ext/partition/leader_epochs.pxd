"""A partition's leader epochs: the newest are in the slot, all are in `leader-epoch-checkpoint`, which is always written first
[R 3].

Called under the slot's lock by appends, truncations, recoveries and role changes.
"""

from libc.stdint cimport int32_t, int64_t

from odradek._ext.shm.layout cimport EPOCHS_KEPT, Slot


# Write "<topic>-<partition>/leader-epoch-checkpoint", relative to the log directory; `out` has 512 bytes.
cdef void epoch_path(Slot* slot, char* out) noexcept nogil

# Add a leader epoch to the slot only, because the file contains it already. It is higher and begins later than all others.
cdef void assign_epoch(Slot* slot, int32_t epoch, int64_t start_offset) noexcept nogil

# Record in the file and then in the slot that `epoch` begins at `start_offset`; does nothing if the epoch is known. Returns 0, or
# -errno.
cdef int note_epoch(Slot* slot, int32_t epoch, int64_t start_offset) noexcept nogil

# Remove the epochs that begin at `end_offset` or later, for a log that ends there. Returns 0, or -errno.
cdef int cut_epochs(Slot* slot, int64_t end_offset) noexcept nogil

# Copy the newest EPOCHS_KEPT epochs from the file to the slot. Returns 0, or -errno.
cdef int read_epochs(Slot* slot) noexcept nogil


cdef inline bint new_epoch(Slot* slot, int32_t epoch) noexcept nogil:
    """Whether `epoch` is newer than every epoch in the slot."""
    return slot.epoch_count == 0 or slot.epochs[(slot.epoch_count - 1) % EPOCHS_KEPT].epoch < epoch
