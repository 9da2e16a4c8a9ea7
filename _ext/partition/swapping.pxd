"""Replaces segments by the compacted segment made from them, so that a death at any point loses neither [R 4].

A leaf module: `slot_access` calls it in its recovery, `truncation` drops swaps that were not begun; `compaction` begins a swap.
Names and order are Kafka's: `.cleaned` while it is written, `.swap` once it is complete and on the device, then under an intent
the old files become `.deleted` and the `.swap` files take their names.
"""

from libc.stdint cimport int64_t, uint64_t

from odradek._ext.shm.slot cimport Slot


cdef enum:
    INTENT_SWAP = 3               # arguments: base of the new segment, base of the last one it replaces, FILE_ bits of its files

cdef extern from *:
    """
    #define ODRADEK_SWAP_UNDER_WAY (1ULL << 62)
    """
    # Set in a slot's generation while its files are renamed: files opened meanwhile may not belong together.
    uint64_t SWAP_UNDER_WAY "ODRADEK_SWAP_UNDER_WAY"

# Rename `.cleaned` to `.swap` for those files of a segment that `files` names, the log last. Returns 0, or -errno.
cdef int prepare_swap(int directory, int64_t base, int files) noexcept nogil

# Store the intent of a swap and carry it out; under the slot's lock. Returns 0, or -errno.
cdef int swap_segments(Slot* slot, int64_t base, int64_t last_base, int files) noexcept nogil

# Carry out the swap in the slot's intent. The caller holds the slot's lock. May be repeated. Returns 0, or -errno.
cdef int finish_swap(Slot* slot) noexcept nogil

# Remove the `.cleaned` and `.swap` files of a swap that was not begun; under the slot's lock. Returns 0, or -errno.
cdef int drop_swaps(Slot* slot) noexcept nogil
