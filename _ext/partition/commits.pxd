"""Commits: the current commit block, its replacement, and the position up to which it is applied [R 1]. Under the slot's mutex.

Inline, because every append uses all of these functions.
"""

from libc.stdint cimport int64_t, uint64_t

from odradek._ext.shm.atomics cimport fence_release, fill_words, load_relaxed_64, store_release_64, store_release_i64
from odradek._ext.shm.faults cimport APPEND_BLOCK_FILLED, fault
from odradek._ext.shm.slot cimport Commit, Slot


cdef inline Commit* current(Slot* slot) noexcept nogil:
    return &slot.commits[load_relaxed_64(&slot.sequence) & 1]


cdef inline void publish(Slot* slot, const Commit* commit) noexcept nogil:
    """Publish a new commit block: fill the block that is not in use, then switch to it with one release-store."""
    cdef uint64_t sequence = load_relaxed_64(&slot.sequence)
    fence_release()     # a reader that sees the block being filled also sees that the other one was published before, and tries again
    fill_words(&slot.commits[(sequence + 1) & 1], commit, sizeof(Commit))
    fault(APPEND_BLOCK_FILLED)
    store_release_64(&slot.sequence, sequence + 1)


cdef inline void new_generation(Slot* slot) noexcept nogil:
    store_release_64(&slot.generation, load_relaxed_64(&slot.generation) + 1)


cdef inline int64_t applied_position(Slot* slot, Commit* commit) noexcept nogil:
    """The position in the active segment at which redo begins. What was applied in another segment does not count."""
    return slot.applied_position if slot.applied_base == commit.segment_base else 0


cdef inline void set_applied(Slot* slot, int64_t base, int64_t position) noexcept nogil:
    # Store the position before the base: while the base is that of another segment the position is ignored, so no mix of old and
    # new skips a batch.
    if slot.applied_base != base:
        store_release_i64(&slot.applied_base, -1)
    store_release_i64(&slot.applied_position, position)
    store_release_i64(&slot.applied_base, base)


cdef inline bint within_flush_messages(Slot* slot, const Commit* commit, int64_t flushed_offset) noexcept nogil:
    """Whether fewer than flush.messages records follow `flushed_offset`, so that no append has to wait for the device."""
    return commit.log_end_offset - flushed_offset < slot.settings.flush_messages


cdef inline void commit_to_log_end(Commit* commit) noexcept nogil:
    """Raise the high watermark of a lone leader to the log end."""
    commit.high_watermark = commit.log_end_offset
    commit.high_watermark_base = commit.segment_base
    commit.high_watermark_position = commit.size
