"""The transaction index of a segment: its summary, and the look-up of the aborted transactions of a range of offsets."""

from libc.stdint cimport int64_t, uint8_t

from odradek._ext.protocol.byte_order cimport load16
from odradek._ext.protocol.cursor cimport WriteBuffer
from odradek._ext.storage.index_entries cimport AbortedEntry, unpack_txn_entry


cdef enum:
    ENTRIES_OF_RANGE = 256


cdef struct AbortedRange:         # adjacent entries of an index: ENTRIES_OF_RANGE, or less at its end
    int64_t first_offset          # the smallest first offset
    int64_t last_offset           # the largest last offset, which is that of the last entry
    int64_t stable_offset         # the largest last stable offset


cdef inline bint read_aborted(const uint8_t* entry, int64_t base_offset, int64_t end_offset, AbortedEntry* out) noexcept nogil:
    """Read an entry of the index of a segment with the offsets from `base_offset` to `end_offset`. Return False if it is damaged."""
    unpack_txn_entry(entry, out)
    return load16(entry) == 0 and out.producer_id >= 0 and 0 <= out.first_offset < out.last_offset and \
        base_offset <= out.last_offset < end_offset and 0 <= out.last_stable_offset <= out.last_offset + 1


# The summary of a transaction index in the memory of a process. Owned by one thread at a time.
cdef class TxnIndexSummary:
    cdef AbortedRange* ranges
    cdef int64_t room                 # allocated ranges
    cdef readonly int64_t entries     # which the summary covers, from the beginning of the index
    cdef bint closed                  # the segment is closed, and the summary covers all of its index
    cdef int64_t failed_at            # position in the file of the entries that the last `collect` could not read
    cdef int64_t counted_bytes        # memory that the cache of summaries counts for it

    # The number of ranges in use.
    cdef int64_t count(self) noexcept nogil
    # The largest last stable offset of all entries; -1 without entries.
    cdef int64_t stable_offset(self) noexcept nogil
    # Cover the index up to `entries`. The segment has the offsets from base_offset to end_offset. Returns 0; -EBADMSG if an entry is
    # missing or damaged; or -errno. What was read before an error stays covered.
    cdef int extend(self, int fd, int64_t entries, int64_t base_offset, int64_t end_offset) noexcept nogil
    # Add the aborted transactions with records from from_offset to upper_offset, the latter excluded, to `out`: producer id, first
    # offset and `tail_bytes` zero bytes for each. Adds the number of entries that were read to *read. Returns 1 if the indexes of
    # later segments contain no further ones, 0 if they may, or -errno. After an error, `out` contains only a part of them.
    cdef int collect(self, int fd, int64_t from_offset, int64_t upper_offset, int tail_bytes, WriteBuffer* out,
                     int64_t* read) noexcept nogil
