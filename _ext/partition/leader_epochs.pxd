"""A partition's leader epochs: the newest in the slot, all in `leader-epoch-checkpoint`, the file always first [R 3].

Under the slot's lock, by whoever appends, truncates, recovers or changes the role.
"""

from libc.stdint cimport int32_t, int64_t

from odradek._ext.shm.layout cimport EPOCHS_KEPT, Slot


# "<topic>-<partition>/leader-epoch-checkpoint" relative to the log directory; out has 512 bytes.
cdef void epoch_path(Slot* slot, char* out) noexcept nogil

# Note a leader epoch, above and behind all others, in the slot only: what its file says already.
cdef void assign_epoch(Slot* slot, int32_t epoch, int64_t start_offset) noexcept nogil

# Note that `epoch` begins at `start_offset`, in the file, then in the slot; nothing where it is known. 0, or -errno.
cdef int note_epoch(Slot* slot, int32_t epoch, int64_t start_offset) noexcept nogil

# Forget the epochs that begin at `end_offset` or behind, as of a log that ends there; 0, or -errno.
cdef int cut_epochs(Slot* slot, int64_t end_offset) noexcept nogil

# Take the newest EPOCHS_KEPT epochs from the file into the slot; 0, or -errno.
cdef int read_epochs(Slot* slot) noexcept nogil


cdef inline bint new_epoch(Slot* slot, int32_t epoch) noexcept nogil:
    """Whether `epoch` is newer than all that the slot knows."""
    return slot.epoch_count == 0 or slot.epochs[(slot.epoch_count - 1) % EPOCHS_KEPT].epoch < epoch
