"""The segment that compaction writes: log and indexes in `.cleaned` files, which become a segment by a swap.

Owned by one pass. Nothing is written (`descriptor` is -1) as long as the new segment has the same bytes as the only source
segment.
"""

from libc.stdint cimport int64_t, uint8_t

from odradek._ext.storage.log_state cimport Array


cdef struct Output:               # the segment that is being written
    int descriptor                # -1: not begun, because nothing differs so far
    int source                    # descriptor of the group's only segment, -1 if there are several
    int64_t base_offset
    int64_t position              # bytes of the new segment so far, including those in `buffer`
    uint8_t* buffer
    size_t filled
    size_t room
    int64_t started_writeback
    int64_t interval
    int64_t indexed_position
    int64_t max_timestamp
    int64_t max_timestamp_offset
    int64_t timeindexed_timestamp
    Array index
    Array times
    Array transactions


cdef int init_output(Output* out) noexcept nogil
cdef void free_output(Output* out) noexcept nogil
cdef void start_output(Output* out, int64_t base_offset, int64_t interval) noexcept nogil

# Create the `.cleaned` log and copy the unchanged part before this position from the source, because the next bytes differ. Returns
# 0, or -errno.
cdef int begin_output(Output* out, int directory) noexcept nogil

# Add the index entries that are due before a batch is written at the current position (by the rules of an append). Returns 0, or
# -ENOMEM.
cdef int note_batch(Output* out, int64_t last_offset, int64_t max_timestamp) noexcept nogil
cdef int put_bytes(Output* out, const uint8_t* data, size_t n) noexcept nogil

# Write the rest of the new segment and sync all of it in `.cleaned` files; *files receives their FILE_ bits. Returns 0, or -errno.
cdef int finish_output(Output* out, int directory, int* files) noexcept nogil

# Remove the files of a new segment that will not be swapped in.
cdef void remove_unswapped(int directory, int64_t base_offset) noexcept nogil
