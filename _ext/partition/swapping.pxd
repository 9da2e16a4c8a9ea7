"""Putting a compacted segment in the place of those that it was made from, so that a death at any point loses neither [R 4].

A leaf: `taking` calls it in its recovery, `truncation` drops what nobody began; `compaction` begins a swap. Names and order are Kafka's:
`.cleaned` while it is written, `.swap` once it is whole and on the device, then under an intent the old files become `.deleted` and
the `.swap` files take their names.
"""

from libc.stdint cimport int64_t, uint64_t

from odradek._ext.shm.layout cimport Slot


cdef enum:
    INTENT_SWAP = 3               # arguments: base of the new segment, base of the last one it replaces, FILE_ bits of its files

cdef extern from *:
    """
    #define ODRADEK_SWAP_UNDER_WAY (1ULL << 62)
    """
    # In a slot's generation while its files change their names: what is opened meanwhile may not belong together.
    uint64_t SWAP_UNDER_WAY "ODRADEK_SWAP_UNDER_WAY"

# `.cleaned` to `.swap` for those of a segment's files that `files` names, the log last; 0, or -errno.
cdef int prepare_swap(int directory, int64_t base, int files) noexcept nogil

# Under the slot's lock: store the intent and carry it out; 0, or -errno.
cdef int swap_segments(Slot* slot, int64_t base, int64_t last_base, int files) noexcept nogil

# Carry out the swap that the slot's intent names; 0, or -errno. The caller holds the slot's lock. Restartable.
cdef int finish_swap(Slot* slot) noexcept nogil

# Remove the `.cleaned` and `.swap` files of a swap that nobody has begun; under the slot's lock. 0, or -errno.
cdef int drop_swaps(Slot* slot) noexcept nogil
