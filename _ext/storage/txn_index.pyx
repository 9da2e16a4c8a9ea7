"""Finds the aborted transactions of a range of offsets in the transaction index of a segment, only with pread.

The entries of an index ascend by last offset, which is the offset of the abort marker. A transaction has records in the range [from,
upper) if its last offset is at least `from` and its first offset is below `upper`. Its entry may be far behind the range, in a later
segment: the search ends at the first entry whose last stable offset is at least `upper`, because no transaction that was open at that
time has records below `upper`. While one transaction stays open for long, this may be the last entry of the log.

Therefore a reader reads an index once as a whole and keeps a summary, 24 bytes for every 256 entries. Later look-ups read only the
ranges that contain a result. The summary of an active segment grows with its index; the index of a closed segment does not change
while the slot's generation stays the same.

Used by workers for Fetch, on descriptors and committed counts that the caller took from one copy of the commit block.
"""

from libc.errno cimport EBADMSG, ENOMEM
from libc.stdint cimport int64_t, uint64_t, uint8_t
from libc.stdlib cimport free, realloc

from odradek._ext.protocol.cursor cimport WriteBuffer, buffer_reserve
from odradek._ext.protocol.byte_order cimport store64
from odradek._ext.storage.index_entries cimport TXN_ENTRY_BYTES, AbortedEntry
from odradek._ext.storage.log_scan cimport read_at


cdef enum:
    LEAST_ROOM = 4                # ranges


cdef inline int read_entries(int fd, uint8_t* out, int64_t first, int64_t count) noexcept nogil:
    """Read `count` entries from the number `first` on. Return 0, -EBADMSG if the file ends earlier, or -errno."""
    cdef int64_t n = read_at(fd, out, <size_t>(count * TXN_ENTRY_BYTES), first * TXN_ENTRY_BYTES)
    if n < 0:
        return <int>n
    return 0 if n == count * TXN_ENTRY_BYTES else -EBADMSG


cdef class TxnIndexSummary:
    def __dealloc__(self):
        free(self.ranges)

    @property
    def bytes(self) -> int:
        """Size of the ranges."""
        return self.room * <int64_t>sizeof(AbortedRange)

    cdef int64_t count(self) noexcept nogil:
        return (self.entries + ENTRIES_OF_RANGE - 1) // ENTRIES_OF_RANGE

    cdef int64_t stable_offset(self) noexcept nogil:
        cdef int64_t largest = -1, number
        for number in range(self.count()):
            largest = max(largest, self.ranges[number].stable_offset)
        return largest

    cdef int extend(self, int fd, int64_t entries, int64_t base_offset, int64_t end_offset) noexcept nogil:
        cdef uint8_t[ENTRIES_OF_RANGE * TXN_ENTRY_BYTES] buffer
        cdef AbortedEntry aborted
        cdef AbortedRange* at
        cdef int64_t wanted = (entries + ENTRIES_OF_RANGE - 1) // ENTRIES_OF_RANGE, last = -1, number, count
        cdef void* grown
        cdef int result
        if wanted > self.room:
            wanted = max(wanted, max(self.room * 2, <int64_t>LEAST_ROOM))
            grown = realloc(self.ranges, <size_t>wanted * sizeof(AbortedRange))
            if grown == NULL:
                return -ENOMEM
            self.ranges = <AbortedRange*>grown
            self.room = wanted
        if self.entries:
            last = self.ranges[self.count() - 1].last_offset
        while self.entries < entries:
            at = &self.ranges[self.entries // ENTRIES_OF_RANGE]
            count = min(entries - self.entries, ENTRIES_OF_RANGE - self.entries % ENTRIES_OF_RANGE)
            result = read_entries(fd, buffer, self.entries, count)
            if result != 0:
                return result
            for number in range(count):
                if not read_aborted(buffer + number * TXN_ENTRY_BYTES, base_offset, end_offset, &aborted) or aborted.last_offset <= last:
                    return -EBADMSG
                last = aborted.last_offset
                if self.entries % ENTRIES_OF_RANGE == 0:
                    at.first_offset = aborted.first_offset
                    at.stable_offset = aborted.last_stable_offset
                at.first_offset = min(at.first_offset, aborted.first_offset)
                at.stable_offset = max(at.stable_offset, aborted.last_stable_offset)
                at.last_offset = last
                self.entries += 1
        return 0

    cdef int collect(self, int fd, int64_t from_offset, int64_t upper_offset, int tail_bytes, WriteBuffer* out,
                     int64_t* read) noexcept nogil:
        cdef uint8_t[ENTRIES_OF_RANGE * TXN_ENTRY_BYTES] buffer
        cdef AbortedEntry aborted
        cdef AbortedRange* at
        cdef int64_t low = 0, high = self.count(), middle, entries, number
        cdef int result
        while low < high:                   # the first range that may contain a transaction that ended at from_offset or later
            middle = (low + high) // 2
            if self.ranges[middle].last_offset < from_offset:
                low = middle + 1
            else:
                high = middle
        for middle in range(low, self.count()):
            at = &self.ranges[middle]
            if at.first_offset >= upper_offset:
                if at.stable_offset >= upper_offset:
                    return 1
                continue
            entries = min(<int64_t>ENTRIES_OF_RANGE, self.entries - middle * ENTRIES_OF_RANGE)
            result = read_entries(fd, buffer, middle * ENTRIES_OF_RANGE, entries)
            if result != 0:
                self.failed_at = middle * ENTRIES_OF_RANGE * TXN_ENTRY_BYTES
                return result
            read[0] += entries
            for number in range(entries):
                if not read_aborted(buffer + number * TXN_ENTRY_BYTES, 0, at.last_offset + 1, &aborted):
                    return -EBADMSG
                if aborted.last_offset >= from_offset and aborted.first_offset < upper_offset and \
                        not put_aborted(out, &aborted, tail_bytes):
                    return -ENOMEM
                if aborted.last_stable_offset >= upper_offset:
                    return 1
        return 0


cdef inline bint put_aborted(WriteBuffer* out, const AbortedEntry* aborted, int tail_bytes) noexcept nogil:
    """Write an element of AbortedTransactions. Return False without memory."""
    cdef uint8_t* to = buffer_reserve(out, 16 + tail_bytes)
    if to == NULL:
        return False
    store64(to, <uint64_t>aborted.producer_id)
    store64(to + 8, <uint64_t>aborted.first_offset)
    while tail_bytes:
        tail_bytes -= 1
        to[16 + tail_bytes] = 0
    return True
