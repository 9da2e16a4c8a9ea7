"""A process's list of a partition's segments, and its cache of open descriptors.

Every process has its own; nothing here is shared. The slot's generation shows when a list is out of date (a roll, a deletion, a
swap after compaction), so the caller compares generations first: a segment is opened under the slot's lock, or the generation
is compared again afterwards. A descriptor is closed when the cache has dropped it and the last sender has finished.
"""

import os
import resource
from collections import OrderedDict

from libc.errno cimport EMFILE, ENFILE, ENOENT
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from posix.unistd cimport close

from odradek._ext.storage.txn_index cimport TxnIndexSummary

DEFAULT_SHARE = 0.5
DESCRIPTORS_PER_SEGMENT = 4


cdef enum:
    SUMMARIES_BYTES = 64 << 20      # limit of a process: those of 700 million aborted transactions
    SUMMARY_BYTES = 200             # memory of a summary without its ranges


def descriptor_share(double share=DEFAULT_SHARE) -> int:
    """How many segments may be open if they use `share` of this process's limit of descriptors."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        limit = 1 << 20
    return max(int(limit * share) // DESCRIPTORS_PER_SEGMENT, 1)


cdef class OpenSegment:
    def __cinit__(self):
        self.log_fd = self.index_fd = self.time_fd = self.txn_fd = -1

    def __dealloc__(self):
        for descriptor in (self.log_fd, self.index_fd, self.time_fd, self.txn_fd):
            if descriptor >= 0:
                close(descriptor)

    cdef bytes path(self, bytes extension):
        if self.segments is None:
            raise ValueError(f"segment {self.base_offset} was dropped from its list: open it again")
        return b"%b/%020d%b" % (self.segments.directory, self.base_offset, extension)

    cdef int index(self) except -1:
        if self.index_fd < 0:
            self.index_fd = self.open_file(b".index")
        return self.index_fd

    cdef int time_index(self) except -1:
        if self.time_fd < 0:
            self.time_fd = self.open_file(b".timeindex")
        return self.time_fd

    cdef int txn_index(self) except -1:
        cdef int descriptor
        if self.txn_fd < 0:
            descriptor = self.open_file(b".txnindex", True)
            if descriptor < 0:
                return -2
            self.txn_fd = descriptor
        return self.txn_fd

    cdef int open_file(self, bytes extension, bint may_be_absent=False) except -1:
        """Open one of the segment's files. Returns its descriptor, or -2 if the file is absent and `may_be_absent`."""
        cdef bytes path = self.path(extension)
        cdef SegmentList segments = self.segments
        cdef SegmentCache cache = segments.cache        # makes room by dropping segments, perhaps the last ones of their list
        return cache.open_file(path, may_be_absent, self)

    # The number of a descriptor is valid only while its segment is referenced: callers keep the segment, not the number.

    def index_descriptor(self) -> int:
        """The descriptor of the offset index, opened if necessary. Raises OSError; ValueError if the segment was dropped before
        it was opened."""
        return self.index()

    def time_index_descriptor(self) -> int:
        """The descriptor of the time index; see `index_descriptor`."""
        return self.time_index()

cdef class SegmentCache:
    def __init__(self, limit=None):
        """limit: most segments to hold open; by default a share of the process's limit of descriptors."""
        self.limit = descriptor_share() if limit is None else limit
        self.ring = OrderedDict()
        self.summaries = OrderedDict()

    def __len__(self) -> int:
        return len(self.ring)

    cdef int make_room(self, Py_ssize_t room, OpenSegment keep=None) except -1:
        """Drop segments, starting with those not recently used, until at most `room` are left, or only `keep`."""
        cdef OpenSegment candidate
        while len(self.ring) > room and not (len(self.ring) == 1 and keep in self.ring):
            candidate = next(iter(self.ring))
            if candidate.used or candidate is keep:
                candidate.used = False
                self.ring.move_to_end(candidate)
                continue
            self.drop(candidate)
        return 0

    cdef int drop(self, OpenSegment segment) except -1:
        self.ring.pop(segment, None)
        if segment.segments is not None:
            segment.segments.opened.pop(segment.base_offset, None)
            segment.segments = None
        return 0

    cdef int open_file(self, bytes path, bint may_be_absent, OpenSegment owner) except -1:
        cdef Py_ssize_t others
        while True:
            try:
                return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                if error.errno == ENOENT and may_be_absent:
                    return -2
                others = len(self.ring) - (1 if owner in self.ring else 0)
                # If the process has too many open files, the cache closes half of its segments and the request continues. The
                # segment whose file is being opened is kept, because its other files must belong to the same state of the log.
                if error.errno not in (EMFILE, ENFILE) or not others:
                    raise
                self.make_room(len(self.ring) - (others + 1) // 2, owner)

    cdef int keep_summary(self, SegmentList segments, int64_t base_offset, TxnIndexSummary summary) except -1:
        """Keep a summary that is new or has grown, and drop those that were used least recently if all need too much memory."""
        self.drop_summary(segments, base_offset)
        summary.counted_bytes = SUMMARY_BYTES + summary.bytes
        self.summary_bytes += summary.counted_bytes
        segments.summaries[base_offset] = summary
        self.summaries[segments, base_offset] = summary
        while self.summary_bytes > SUMMARIES_BYTES and len(self.summaries) > 1:
            least, base = next(iter(self.summaries))
            self.drop_summary(least, base)
        return 0

    cdef int drop_summary(self, SegmentList segments, int64_t base_offset) except -1:
        cdef TxnIndexSummary summary = self.summaries.pop((segments, base_offset), None)
        if summary is not None:
            self.summary_bytes -= summary.counted_bytes
            del segments.summaries[base_offset]
        return 0


cdef Py_ssize_t lower_bound(const int64_t* numbers, Py_ssize_t count, int64_t least) noexcept nogil:
    """Return the index of the first number that is not below `least`; `count` if there is none."""
    cdef Py_ssize_t low = 0
    cdef Py_ssize_t high = count
    cdef Py_ssize_t middle
    while low < high:
        middle = (low + high) // 2
        if numbers[middle] < least:
            low = middle + 1
        else:
            high = middle
    return low


cdef int64_t* array_of(list numbers) except NULL:
    cdef int64_t* out = <int64_t*>malloc(max(len(numbers), 1) * sizeof(int64_t))
    cdef Py_ssize_t at
    if out == NULL:
        raise MemoryError
    for at in range(len(numbers)):
        out[at] = numbers[at]
    return out


cdef class SegmentList:
    def __cinit__(self, directory, SegmentCache cache not None):
        """directory: the partition's, str or bytes. cache: the process's. The list is empty until `refresh`."""
        self.directory = os.fsencode(directory)
        self.cache = cache
        self.opened = {}
        self.summaries = {}
        self.read_aside = []
        self.generation = self.closed_before = -1

    def __dealloc__(self):
        free(self.bases)
        free(self.indexed)

    cdef int refresh(self, int64_t generation) except -1:
        cdef list offsets = [], indexed = []
        if generation == self.generation:
            return 0
        for name in os.listdir(self.directory):
            if len(name) >= 24 and name[:20].isdigit():
                if name[20:] == b".log":
                    offsets.append(int(name[:20]))
                elif name[20:] == b".txnindex":
                    indexed.append(int(name[:20]))
        offsets.sort()
        indexed.sort()
        cdef int64_t* bases = array_of(offsets)
        free(self.bases)
        self.bases = bases
        self.count = len(offsets)
        bases = array_of(indexed)
        free(self.indexed)
        self.indexed = bases
        self.indexed_count = len(indexed)
        self.closed_before = -1
        self.close()
        self.generation = generation
        return 0

    cdef int64_t floor(self, int64_t offset) noexcept:
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = self.count
        cdef Py_ssize_t middle
        if self.count == 0:
            return -1
        while high - low > 1:
            middle = (low + high) // 2
            if self.bases[middle] <= offset:
                low = middle
            else:
                high = middle
        return self.bases[low]

    cdef int64_t following(self, int64_t base_offset) noexcept:
        cdef Py_ssize_t at = lower_bound(self.bases, self.count, base_offset + 1)
        return self.bases[at] if at < self.count else -1

    cdef int64_t next_indexed(self, int64_t base_offset) noexcept:
        cdef Py_ssize_t listed = lower_bound(self.indexed, self.indexed_count, base_offset)
        cdef Py_ssize_t unsure = lower_bound(self.bases, self.count, max(base_offset, self.closed_before))
        if listed == self.indexed_count:
            return self.bases[unsure] if unsure < self.count else -1
        return min(self.indexed[listed], self.bases[unsure]) if unsure < self.count else self.indexed[listed]

    cdef TxnIndexSummary summary(self, int64_t base_offset):
        cdef TxnIndexSummary summary, known
        while self.read_aside:
            base, summary = self.read_aside.pop()
            known = self.summaries.get(base)
            if known is None or summary.closed or known.entries < summary.entries:
                self.keep_summary(base, summary)
        summary = self.summaries.get(base_offset)
        if summary is not None:
            self.cache.summaries.move_to_end((self, base_offset))
        return summary

    cdef int keep_summary(self, int64_t base_offset, TxnIndexSummary summary) except -1:
        return self.cache.keep_summary(self, base_offset, summary)

    cdef OpenSegment segment(self, int64_t base_offset):
        cdef OpenSegment segment = self.opened.get(base_offset)
        if segment is not None:
            segment.used = True
            return segment
        self.cache.make_room(self.cache.limit - 1)
        segment = OpenSegment.__new__(OpenSegment)
        segment.base_offset = base_offset
        segment.segments = self
        segment.log_fd = segment.open_file(b".log")
        self.opened[base_offset] = segment
        self.cache.ring[segment] = None
        return segment

    def close(self) -> None:
        """Drop all open segments of the list and all summaries; descriptors that are used for sending stay open until that is done."""
        for segment in list(self.opened.values()):
            self.cache.drop(segment)
        for base_offset in list(self.summaries):
            self.cache.drop_summary(self, base_offset)
        self.read_aside = []

    def see(self, int64_t generation) -> None:
        """`refresh` for Python. Raises OSError."""
        self.refresh(generation)

    def base_offsets(self) -> list[int]:
        """The segments' base offsets, ascending."""
        return [self.bases[number] for number in range(self.count)]

    def open(self, int64_t base_offset) -> OpenSegment:
        """The OpenSegment at a base offset. Raises OSError."""
        return self.segment(base_offset)
