"""Look-ups of a Fetch that need pages which are not in the page cache: a reader's thread repeats them."""

from libc.stdint cimport int64_t

from odradek._ext.api.fetch_context cimport FetchContext
from odradek._ext.storage.segment_list cimport OpenSegment


# Each notes a look-up for a reader and raises ColdRead: of an offset through an offset index; of the offset behind a position; of bytes.
cdef int cold_position(FetchContext context, OpenSegment segment, int index_fd, int64_t entries, int64_t size, int64_t offset) except -1
cdef int cold_offset_behind(FetchContext context, OpenSegment segment, int index_fd, int64_t entries, int64_t position,
                            int64_t size) except -1
cdef int cold_bytes(FetchContext context, OpenSegment segment, int fd, int64_t position, int64_t length) except -1
# The transaction indexes of `wanted`: [(base offset, end offset, number of entries or -1, whether the file may be absent)] in
# `directory`, until one has a last stable offset that is not below upper_offset. Adds (base offset, TxnIndexSummary) to `out`.
cdef int cold_txn_indexes(FetchContext context, bytes directory, list wanted, int64_t upper_offset, list out) except -1
