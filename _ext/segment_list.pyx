"""A process's view of a partition's segments, and its cache of open descriptors.

Every process has its own; nothing here is shared. The slot's generation says when a view is out of date (a roll, a
deletion, a swap after compaction), so the caller compares generations first: a segment is opened under the slot's
lock or its generation is looked at again afterwards. A descriptor is closed when the cache has dropped it and the
last sender is done with it.
"""

import os
import resource
from collections import OrderedDict

from libc.errno cimport EMFILE, ENFILE, ENOENT
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from posix.unistd cimport close

DEFAULT_SHARE = 0.5
DESCRIPTORS_A_SEGMENT = 4


def descriptor_share(double share=DEFAULT_SHARE):
    """How many segments may be open when they take `share` of the descriptors that this process may have."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        limit = 1 << 20
    return max(int(limit * share) // DESCRIPTORS_A_SEGMENT, 1)


cdef class OpenSegment:
    def __cinit__(self):
        self.log_fd = self.index_fd = self.time_fd = self.txn_fd = -1

    def __dealloc__(self):
        for descriptor in (self.log_fd, self.index_fd, self.time_fd, self.txn_fd):
            if descriptor >= 0:
                close(descriptor)

    cdef bytes path(self, bytes extension):
        if self.segments is None:
            raise ValueError(f"segment {self.base_offset} was dropped: open it anew")
        return b"%b/%020d%b" % (self.segments.directory, self.base_offset, extension)

    cdef int open_file(self, bytes extension, bint may_be_absent) except -1:
        """Open one of the segment's files: its descriptor, -2 for an absent one that may be absent."""
        cdef bytes path = self.path(extension)
        cdef SegmentList segments = self.segments
        cdef SegmentCache cache = segments.cache        # makes room by dropping segments, this one too, and perhaps their list
        return cache.open_file(path, may_be_absent)

    cdef int index(self) except -1:
        if self.index_fd < 0:
            self.index_fd = self.open_file(b".index", False)
        return self.index_fd

    cdef int time_index(self) except -1:
        if self.time_fd < 0:
            self.time_fd = self.open_file(b".timeindex", False)
        return self.time_fd

    cdef int txn_index(self) except -1:
        cdef int descriptor
        if self.txn_fd < 0:
            descriptor = self.open_file(b".txnindex", True)
            if descriptor < 0:
                return -2
            self.txn_fd = descriptor
        return self.txn_fd

    def descriptors(self):
        """(log, offset index, time index, txn index or None), opened where they were not yet. Raises OSError."""
        txn = self.txn_index()
        return self.log_fd, self.index(), self.time_index(), txn if txn >= 0 else None


cdef class SegmentCache:
    def __init__(self, limit=None):
        """limit: the most segments to hold open, by default a share of the process's limit of descriptors."""
        self.limit = descriptor_share() if limit is None else limit
        self.ring = OrderedDict()

    def __len__(self):
        return len(self.ring)

    cdef int make_room(self, Py_ssize_t room) except -1:
        """Drops segments, not recently used ones first, until at most `room` are left."""
        cdef OpenSegment candidate
        while len(self.ring) > room:
            candidate = next(iter(self.ring))
            if candidate.used:
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

    cdef int open_file(self, bytes path, bint may_be_absent) except -1:
        while True:
            try:
                return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                if error.errno == ENOENT and may_be_absent:
                    return -2
                # Too many open files costs the cache half of its own, never the request.
                if error.errno not in (EMFILE, ENFILE) or not self.ring:
                    raise
                self.make_room(len(self.ring) // 2)


cdef class SegmentList:
    def __cinit__(self, directory, SegmentCache cache not None):
        """directory: the partition's, str or bytes. cache: the process's. Empty until `refresh`."""
        self.directory = os.fsencode(directory)
        self.cache = cache
        self.opened = {}
        self.generation = -1

    def __dealloc__(self):
        free(self.bases)

    cdef int refresh(self, int64_t generation) except -1:
        if generation == self.generation:
            return 0
        found = sorted(
            int(name[:20])
            for name in os.listdir(self.directory)
            if len(name) == 24 and name.endswith(b".log") and name[:20].isdigit()
        )
        cdef int64_t* bases = <int64_t*>malloc(max(len(found), 1) * sizeof(int64_t))
        if bases == NULL:
            raise MemoryError
        for number, base_offset in enumerate(found):
            bases[<Py_ssize_t>number] = base_offset
        free(self.bases)
        self.bases = bases
        self.count = len(found)
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
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = self.count
        cdef Py_ssize_t middle
        while low < high:
            middle = (low + high) // 2
            if self.bases[middle] <= base_offset:
                low = middle + 1
            else:
                high = middle
        return self.bases[low] if low < self.count else -1

    cdef OpenSegment segment(self, int64_t base_offset):
        cdef OpenSegment found = self.opened.get(base_offset)
        if found is not None:
            found.used = True
            return found
        self.cache.make_room(self.cache.limit - 1)
        found = OpenSegment.__new__(OpenSegment)
        found.base_offset = base_offset
        found.segments = self
        found.log_fd = self.cache.open_file(found.path(b".log"), False)
        self.opened[base_offset] = found
        self.cache.ring[found] = None
        return found

    def close(self):
        """Drops all open segments of the list; descriptors that are being sent from stay open until that is done."""
        for found in list(self.opened.values()):
            self.cache.drop(found)

    def see(self, int64_t generation):
        """`refresh`, for Python. Raises OSError."""
        self.refresh(generation)

    def base_offsets(self):
        """The segments' base offsets, ascending."""
        return [self.bases[number] for number in range(self.count)]

    def floor_of(self, int64_t offset):
        """`floor`, for Python: a base offset, or None without segments."""
        found = self.floor(offset)
        return found if found >= 0 else None

    def following_of(self, int64_t base_offset):
        """`following`, for Python: a base offset, or None behind the last."""
        found = self.following(base_offset)
        return found if found >= 0 else None

    def open(self, int64_t base_offset):
        """The OpenSegment. Raises OSError."""
        return self.segment(base_offset)
