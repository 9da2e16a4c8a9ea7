"""A partition's leader epochs: the newest are in the slot, all are in `leader-epoch-checkpoint`, which is always written first
[R 3].

Called under the slot's lock by appends, truncations, recoveries and role changes.
"""

from libc.stdint cimport int32_t, int64_t

from odradek._ext.shm.slot cimport EPOCHS_KEPT, EpochStart, Slot


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


cdef struct EpochRing:            # a slot's newest epochs and offsets, all of one moment
    int count                     # of the entries, ascending
    bint complete                 # the log has no older epochs
    int64_t log_end_offset
    int64_t log_start_offset
    int64_t high_watermark
    EpochStart[EPOCHS_KEPT] entries

# Copy the epochs without the lock. Returns False if they were being changed all the time, or their writer died: the next process
# that takes the lock completes the change.
cdef bint copy_epochs(Slot* slot, EpochRing* out) noexcept nogil


cdef enum:
    EPOCH_FOUND = 0
    EPOCH_UNDEFINED = 1           # the epoch is newer than all of the log, or the log has none
    EPOCH_IN_FILE = 2             # older than the slot's epochs, or these are being changed: ask odradek.shm.epochs

# The end offset of the largest epoch in a leader's log that is not above `epoch` (KIP-279), and this epoch. For an epoch below the
# first one: itself, and the start offset of the first one. No lock is needed. Both results are -1 for EPOCH_UNDEFINED.
cdef int end_offset_for(Slot* slot, int32_t epoch, int32_t* found_epoch, int64_t* end_offset) noexcept nogil


cdef inline bint new_epoch(Slot* slot, int32_t epoch) noexcept nogil:
    """Whether `epoch` is newer than every epoch in the slot."""
    return slot.epoch_count == 0 or slot.epochs[(slot.epoch_count - 1) % EPOCHS_KEPT].epoch < epoch
