"""The segment that compaction writes: log and indexes, in `.cleaned` files that become a segment by a swap.

Owned by one pass. Nothing is written as long as the only source segment has the same bytes (`descriptor` is -1).
"""

from libc.stdint cimport int64_t, uint8_t

from odradek._ext.storage.log_state cimport Array


cdef struct Output:               # the segment being written
    int descriptor                # -1: not begun, nothing differs so far
    int source                    # of the group's only segment, -1 if there are more
    int64_t base_offset
    int64_t position              # bytes of the new segment so far, those in `buffer` included
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

# Something differs from here on: create the `.cleaned` log, with what came before as it is in the source. 0, or -errno.
cdef int begin_output(Output* out, int directory) noexcept nogil

# The index entries that fall due before a batch is put at the present position (the rules of an append); 0, or -ENOMEM.
cdef int note_batch(Output* out, int64_t last_offset, int64_t max_timestamp) noexcept nogil
cdef int put_bytes(Output* out, const uint8_t* data, size_t n) noexcept nogil

# All of the new segment on the device, in `.cleaned` files; *files says which (FILE_ bits). 0, or -errno.
cdef int finish_output(Output* out, int directory, int* files) noexcept nogil

# Remove the files of a new segment that nobody will swap in.
cdef void remove_unswapped(int directory, int64_t base_offset) noexcept nogil
