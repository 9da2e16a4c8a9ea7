"""Look-ups of a Fetch that need pages which are not in the page cache, or much work: a reader's thread repeats them.

The event loop plans a request without waiting for the disk. A look-up that would wait is noted in the request's context, and ColdRead
ends the planning of the partition. When all partitions were planned, a reader's thread repeats the look-ups. Then the loop plans the
request again, and finds the pages in the page cache. The functions below `look_up_cold` run on the reader's thread.
"""

import os

from libc.errno cimport EBADMSG
from libc.stdint cimport int64_t
from posix.fcntl cimport O_CLOEXEC, O_RDONLY

from odradek._ext.storage.file_calls cimport file_bytes
from odradek._ext.storage.index_entries cimport TXN_ENTRY_BYTES
from odradek._ext.storage.lookup cimport FoundBatch, find_offset_behind, find_position
from odradek._ext.storage.page_cache cimport fault_in
from odradek._ext.storage.txn_index cimport TxnIndexSummary


class ColdRead(Exception):
    """A look-up needs pages that are not in the page cache, or more work than the event loop may do at once."""


# -- in the loop --------------------------------------------------------------------------------------------------------

cdef int cold_position(FetchContext context, OpenSegment segment, int index_fd, int64_t entries, int64_t size,
                       int64_t offset) except -1:
    context.cold.append((read_position, (segment, index_fd, entries, size, offset)))
    raise ColdRead


cdef int cold_offset_behind(FetchContext context, OpenSegment segment, int index_fd, int64_t entries, int64_t position,
                            int64_t size) except -1:
    context.cold.append((read_offset_behind, (segment, index_fd, entries, position, size)))
    raise ColdRead


cdef int cold_bytes(FetchContext context, OpenSegment segment, int fd, int64_t position, int64_t length) except -1:
    context.cold.append((read_bytes, (segment, fd, position, length)))
    raise ColdRead


cdef int cold_txn_indexes(FetchContext context, bytes directory, list wanted, int64_t upper_offset, list out) except -1:
    context.cold.append((read_txn_indexes, (directory, wanted, upper_offset, out)))
    raise ColdRead


# -- on the reader's thread -----------------------------------------------------------------------------------------------

def look_up_cold(list jobs) -> None:
    """Repeat look-ups, waiting for the disk. Raises OSError.

    :param jobs: the context's `cold`, or a part of it.
    """
    for look_up, arguments in jobs:
        look_up(*arguments)


def read_position(OpenSegment segment, int index_fd, int64_t entries, int64_t size, int64_t offset) -> None:
    cdef FoundBatch batch
    cdef int log_fd = segment.log_fd, result
    cdef int64_t base = segment.base_offset
    with nogil:
        result = find_position(log_fd, index_fd, entries, base, size, offset, &batch)
    check(result, base)


def read_offset_behind(OpenSegment segment, int index_fd, int64_t entries, int64_t position, int64_t size) -> None:
    cdef int64_t base = segment.base_offset, offset
    cdef int result
    with nogil:
        result = find_offset_behind(index_fd, entries, base, position, size, &offset)
    check(result, base)


def read_bytes(OpenSegment segment, int fd, int64_t position, int64_t length) -> None:
    cdef int result
    with nogil:
        result = fault_in(fd, position, length)
    check(result, segment.base_offset)


def read_txn_indexes(bytes directory, list wanted, int64_t upper_offset, list out) -> None:
    cdef TxnIndexSummary summary
    for base, end, entries, may_be_absent in wanted:
        summary = TxnIndexSummary.__new__(TxnIndexSummary)
        try:
            fd = os.open(b"%b/%020d.txnindex" % (directory, base), O_RDONLY | O_CLOEXEC)
        except FileNotFoundError:
            if not may_be_absent:
                raise
            summary.closed = True
        else:
            try:
                read_txn_index(summary, fd, base, end, entries)
            finally:
                os.close(fd)
        out.append((base, summary))
        if summary.stable_offset() >= upper_offset:
            break


cdef int read_txn_index(TxnIndexSummary summary, int fd, int64_t base, int64_t end, int64_t entries) except -1:
    """Read an index; `entries` is -1 for the whole index of a closed segment."""
    cdef int64_t size = file_bytes(fd)
    cdef int result = 0
    if entries < 0:
        if size % TXN_ENTRY_BYTES:
            result = -EBADMSG
        entries = size // TXN_ENTRY_BYTES
        summary.closed = True
    if result == 0:
        with nogil:
            result = summary.extend(fd, entries, base, end)
    return check(result, base)


cdef int check(int result, int64_t base) except -1:
    if result < 0:
        raise OSError(-result, os.strerror(-result), f"segment {base}")
    return 0
