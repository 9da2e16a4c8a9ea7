"""The commit of a change: the block in use, its replacement, and how far it is applied [R 1]. Under the slot's mutex.

Inline, because an append passes through all of them.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

from odradek._ext.shm.atomics cimport fence_release, store_release_64
from odradek._ext.shm.faults cimport APPEND_BLOCK_FILLED, fault
from odradek._ext.shm.layout cimport Commit, Slot


cdef inline Commit* current(Slot* slot) noexcept nogil:
    return &slot.commits[slot.sequence & 1]


cdef inline void publish(Slot* slot, const Commit* commit) noexcept nogil:
    """Replace the commit block: fill the one not in use, then one release-store."""
    fence_release()     # who sees the block being filled sees that the other one was published before, and tries again
    memcpy(&slot.commits[(slot.sequence + 1) & 1], commit, sizeof(Commit))
    fault(APPEND_BLOCK_FILLED)
    store_release_64(&slot.sequence, slot.sequence + 1)


cdef inline void new_generation(Slot* slot) noexcept nogil:
    store_release_64(&slot.generation, slot.generation + 1)


cdef inline int64_t applied_position(Slot* slot, Commit* commit) noexcept nogil:
    """Where in the active segment the redo begins: what was applied of another segment does not count."""
    return slot.applied_position if slot.applied_base == commit.segment_base else 0


cdef inline void set_applied(Slot* slot, int64_t base, int64_t position) noexcept nogil:
    # The position first: with the old base it is not looked at, so that no mix of the two skips a batch.
    if slot.applied_base != base:
        store_release_64(<uint64_t*>&slot.applied_base, <uint64_t>-1)
    store_release_64(<uint64_t*>&slot.applied_position, <uint64_t>position)
    store_release_64(<uint64_t*>&slot.applied_base, <uint64_t>base)


cdef inline bint within_flush_messages(Slot* slot, const Commit* commit, int64_t flushed_offset) noexcept nogil:
    """Whether fewer records than flush.messages are behind `flushed_offset`: nobody need wait for the device."""
    return commit.log_end_offset - flushed_offset < slot.settings.flush_messages


cdef inline void commit_to_log_end(Commit* commit) noexcept nogil:
    """A lone leader's high watermark follows its log end."""
    commit.high_watermark = commit.log_end_offset
    commit.high_watermark_base = commit.segment_base
    commit.high_watermark_position = commit.size
