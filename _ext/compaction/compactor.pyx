"""One pass of compaction over one log: build the map of newest offsets from the dirty part, rewrite the segments, swap them in.

Runs in a thread of the cleaner. A slot's lock is held to check the log at the beginning of a pass, to read the producers, and
for the two halves of a swap, which only rename files. Concurrent changes of the log have these effects:

    append, roll         none, because the pass does not use the active segment
    truncation           `Slot.truncations` changes: the pass ends before its next swap; `.cleaned` and `.swap` files were removed
    deletion of the log  the incarnation or state differs: the pass ends
    retention            a source is missing at the swap's check: the pass ends, and a later pass begins again
    death                the next pass or start removes `.cleaned` files; the next process that takes the lock finishes a swap
"""

from collections import namedtuple

from libc.errno cimport errno
from libc.stdint cimport int64_t, uint32_t, uint64_t
from posix.stat cimport fstatat, struct_stat

from odradek._ext.compaction.batch_reader cimport BatchReader
from odradek._ext.compaction.compaction_log cimport ABORTED_SOURCE, CompactedLog
from odradek._ext.compaction.compaction_map cimport KeyMap
from odradek._ext.compaction.segment_rewriting cimport SegmentRewriter
from odradek._ext.partition.slot_access cimport give_up
from odradek._ext.partition.swapping cimport prepare_swap, swap_segments
from odradek._ext.shm.faults cimport *
from odradek._ext.shm.locks cimport unlock
from odradek._ext.shm.slot cimport Slot, slot_at
from odradek._ext.shm.waking cimport wake_after
from odradek._ext.storage.file_calls cimport file_sync
from odradek._ext.storage.log_dirs cimport note_device
from odradek._ext.storage.log_state cimport FILE_LOG, append_item, clear_array, free_array
from odradek._ext.storage.state_files cimport file_name


class MapTooSmallError(Exception):
    """The keys of the first dirty batch do not fit into the map."""


PassResult = namedtuple(
    "PassResult",
    "end_offset segments_before segments_after bytes_read bytes_written map_bytes_read records_read records_kept keyless keys map_full",
)
"""The results of a pass. `end_offset`: everything before it is compacted. The bytes are those of the rewriting,
`map_bytes_read` those of building the map; `keyless`: removed records without a key."""


cdef class Compactor:
    """The resources of a thread that compacts one log after another.

    :param map_bytes: memory for the map (`log.cleaner.dedupe.buffer.size` / threads); `load_factor`: the part of it that may be
    filled.
    :param buffer_bytes: size of the read buffer, which grows for a larger batch and shrinks afterwards.
    :param decompress: called with (codec, bytes, limit), returns a batch's records; `compress` is called with (codec, bytes).
    :param open_old: called with a message of format v0 or v1, which may be a wrapper; returns [(offset, key, whether it is a
    tombstone)].
    :param reduce_old: called with such a message and a set of offsets; returns the message with only these.
    :param pace: called with the number of bytes read or written since the last call, and with `look`; it waits if the pass is
    too fast, and calls `look` while it waits.
    :param swap_lock: a lock of this process: its compacting threads take the mutexes of slots one after another [R 5].
    :raises MemoryError: there is no memory for the map. :raises ValueError: the map would not hold two keys.
    """

    def __cinit__(self, size_t map_bytes, double load_factor, size_t buffer_bytes, decompress, compress, open_old, reduce_old,
                  pace, swap_lock):
        self.log = CompactedLog(swap_lock)
        self.reader = BatchReader(self.log, buffer_bytes, decompress, open_old, pace)
        self.keys = KeyMap(self.log, self.reader, map_bytes, load_factor)
        self.rewriter = SegmentRewriter(self.log, self.reader, self.keys, compress, reduce_old)
        self.replaced.item_bytes = sizeof(ReplacedSegment)

    def __dealloc__(self):
        free_array(&self.replaced)

    def abort(self) -> None:
        """Make the current pass end soon with CompactionAborted. May be called from any thread."""
        self.log.stop = 1

    def run(self, uint32_t slot, *, uint32_t incarnation, int64_t first_dirty_offset, int64_t first_uncleanable_offset,
            int64_t now_ms) -> PassResult:
        """Compact the records of a log before `first_uncleanable_offset` by the keys from `first_dirty_offset` on. Returns a
        PassResult.

        :param first_uncleanable_offset: base offset of the active segment or of an earlier one; all records before it are below
        the last stable offset.
        :raises CompactionAborted: see there; no change is left half done.
        :raises CorruptSegmentError: the log cannot be compacted until it is repaired.
        :raises MapTooSmallError: the map cannot hold the keys of one batch.
        :raises OSError: a file, which it names, could not be read or written; the log directory is out of use if its device
        failed.
        """
        cdef int64_t old_horizon_ns = 0
        segments, after = 0, 0
        try:
            self.log.begin_pass(slot, incarnation)
            sources = self.log.list_sources(first_uncleanable_offset)
            self.log.read_aborted()
            full = self.keys.build(sources, first_dirty_offset, first_uncleanable_offset)
            end = self.keys.latest_offset + 1
            if end <= first_dirty_offset:
                raise MapTooSmallError(f"the map holds {self.keys.map.limit} keys, too few for the batch at offset "
                                       f"{first_dirty_offset}")
            # Old messages have no horizon: a tombstone is removed once its segment is that much older than the newest clean one.
            clean = [source.modified_ns for source in sources if source.base_offset < first_dirty_offset]
            if clean:
                old_horizon_ns = clean[len(clean) - 1] - self.log.delete_retention_ms * 1_000_000
            self.rewriter.begin_pass(now_ms, first_uncleanable_offset)
            for group in self.log.group(sources, end):
                self.clean_group(group, old_horizon_ns)
                segments += len(group)
                after += 1
        except OSError as error:
            note_device(slot_at(slot).log_dir, -<int>(error.errno or 0))
            raise
        finally:
            self.log.end_pass()
            self.reader.end_pass()
            self.rewriter.end_pass()
        return PassResult(end, segments, after, self.rewriter.bytes_read, self.rewriter.bytes_written, self.keys.bytes_read,
                          self.rewriter.records_read, self.rewriter.records_kept, self.rewriter.keyless, self.keys.map.count, full)

    cdef int clean_group(self, group, int64_t old_horizon_ns) except -1:
        """Make one segment of these, and swap it in unless it equals the only source."""
        cdef ReplacedSegment* item
        cdef int files
        cdef bint done = False
        self.log.read_producers()
        clear_array(&self.replaced)
        for source in group:
            item = <ReplacedSegment*>append_item(&self.replaced)
            if item == NULL:
                raise MemoryError
            item.base_offset = source.base_offset
            item.size = source.size
            item.inode = source.inode
        self.swap_begun = False
        try:
            files = self.rewriter.rewrite(group, old_horizon_ns)
            if files:
                self.swap(group[len(group) - 1].base_offset, files)
            done = True
        finally:
            # The next load finishes a swap that stopped half way, so its files must be kept: the replaced files are set aside
            # already.
            self.rewriter.end_segment(not done and not self.swap_begun)
        return 0

    cdef bint sources_unchanged(self) noexcept nogil:
        """Whether the segments to replace are those that were read: the same files with the same sizes."""
        cdef ReplacedSegment* item = <ReplacedSegment*>self.replaced.items
        cdef char[64] name
        cdef struct_stat status
        cdef int64_t i
        for i in range(self.replaced.count):
            file_name(name, item[i].base_offset, FILE_LOG, b"")
            if fstatat(self.log.directory, name, &status, 0) != 0 or <int64_t>status.st_size != item[i].size \
                    or <uint64_t>status.st_ino != item[i].inode:
                return False
        return True

    cdef int swap(self, int64_t last_base, int files) except -1:
        """Replace the old segments by the new one. The lock is held twice, for renamings; the directory is synced in between.
        """
        cdef CompactedLog log = self.log
        cdef Slot* slot = slot_at(log.slot)
        cdef int64_t base = self.rewriter.output.base_offset
        cdef int result
        cdef bint changed = False
        with log.swap_lock, nogil:
            result = log.lock()
            if result == 0:
                result = prepare_swap(log.directory, base, files) if self.sources_unchanged() else ABORTED_SOURCE
                fault(SWAP_PREPARED)
                unlock(log.slot, slot)
        log.check(result)
        with nogil:
            if file_sync(log.directory) != 0:
                result = -errno
        log.check(result)
        fault(SWAP_DIRECTORY_SYNCED)
        with log.swap_lock, nogil:
            result = log.lock()
            if result == 0:
                if self.sources_unchanged():
                    changed = self.swap_begun = True
                    result = swap_segments(slot, base, last_base, files)
                    if result != 0:             # half done: the next load completes it
                        give_up(slot, result)
                else:
                    result = ABORTED_SOURCE
                unlock(log.slot, slot)
            if changed:
                fault(SWAP_UNLOCKED)
                wake_after(log.slot, slot, True, True)
        log.check(result)
        return 0
