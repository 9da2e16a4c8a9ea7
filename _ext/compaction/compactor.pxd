"""Compaction of one log: a pass. Each thread of the cleaner has its own Compactor.

The rules are those of Kafka's LogCleaner (KIP-58, KIP-98, KIP-354, KIP-534); `docs/decisions/0009` describes the differences. A
Compactor composes four objects and owns the swap:

    log        `CompactedLog`: the slot, its lock, the log's directory, producers and transactions
    reader     `BatchReader`: the open segment and the read buffer
    keys       `KeyMap`: the newest offset of each key
    rewriter   `SegmentRewriter`: the new segment
"""

from libc.stdint cimport int64_t, uint64_t

from odradek._ext.compaction.batch_reader cimport BatchReader
from odradek._ext.compaction.compaction_log cimport CompactedLog
from odradek._ext.compaction.compaction_map cimport KeyMap
from odradek._ext.compaction.segment_rewriting cimport SegmentRewriter
from odradek._ext.storage.log_state cimport Array


cdef struct ReplacedSegment:      # a segment that the new one replaces
    int64_t base_offset
    int64_t size
    uint64_t inode


cdef class Compactor:
    cdef CompactedLog log
    cdef BatchReader reader
    cdef KeyMap keys
    cdef SegmentRewriter rewriter
    cdef Array replaced           # of ReplacedSegment
    cdef bint swap_begun          # in this group: its `.swap` files no longer belong to the pass, which must not remove them

    cdef int clean_group(self, group, int64_t old_horizon_ns) except -1
    cdef bint sources_unchanged(self) noexcept nogil
    cdef int swap(self, int64_t last_base, int files) except -1
