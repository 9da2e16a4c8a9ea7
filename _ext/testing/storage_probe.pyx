"""Look-ups in files of a log, and the content of a loaded log and of a list of segments, for tests."""

from libc.stdint cimport int64_t

from odradek._ext.storage.log_state cimport Segment
from odradek._ext.storage.lookup cimport LOOKUP_CORRUPT, LOOKUP_FOUND, FoundBatch, find_position
from odradek._ext.storage.page_cache cimport resident
from odradek._ext.storage.segment_list cimport OpenSegment, SegmentList
from odradek._ext.storage.segments cimport LoadedLog

from odradek._ext.storage.lookup import CorruptLogError


def position_of(int log_fd, int index_fd, int64_t index_entries, int64_t segment_base, int64_t size_limit,
                int64_t target_offset) -> FoundBatch | None:
    """The batch that contains `target_offset`, or the first one after it, as a dict of FoundBatch; None beyond the limit.

    Raises CorruptLogError, OSError.
    """
    cdef FoundBatch batch
    cdef int result
    with nogil:
        result = find_position(log_fd, index_fd, index_entries, segment_base, size_limit, target_offset, &batch)
    if result < 0:
        raise OSError(-result, "looking up an offset")
    if result == LOOKUP_CORRUPT:
        raise CorruptLogError(f"no batch where offset {target_offset} should be, segment {segment_base}")
    return batch if result == LOOKUP_FOUND else None


def is_resident(int fd, int64_t position, int64_t length) -> bool:
    """Whether `length` bytes of `fd` at `position` are in the page cache."""
    return resident(fd, position, length)


def txn_index_descriptor(OpenSegment segment not None) -> int | None:
    """The descriptor of the segment's transaction index, opened if necessary; None if the segment has none. Raises OSError."""
    descriptor = segment.txn_index()
    return descriptor if descriptor >= 0 else None


def floor_of(SegmentList segments not None, int64_t offset) -> int | None:
    """The base offset of the segment that contains `offset`, as of `SegmentList.floor`; None without segments."""
    base_offset = segments.floor(offset)
    return base_offset if base_offset >= 0 else None


def following_of(SegmentList segments not None, int64_t base_offset) -> int | None:
    """The base offset of the segment after `base_offset`; None after the last segment."""
    following = segments.following(base_offset)
    return following if following >= 0 else None


def segment_base_offsets(LoadedLog loaded not None) -> list[int]:
    """Base offsets of all segments, ascending; the last one is the active segment's."""
    cdef Segment* items = <Segment*>loaded.state.segments.items
    return [items[number].base_offset for number in range(loaded.state.segments.count)]


def segment_sizes(LoadedLog loaded not None) -> list[int]:
    """Sizes of the segments' log files in bytes, in the order of segment_base_offsets."""
    cdef Segment* items = <Segment*>loaded.state.segments.items
    return [items[number].size for number in range(loaded.state.segments.count)]
