"""File descriptors of the active segments to which this process appends: a bounded cache, filled under the slot's lock [R 4].
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from odradek._ext.shm.atomics cimport shared_u32
from odradek._ext.shm.slot cimport Slot
from odradek._ext.storage.directories cimport DIR


cdef struct AppendFiles:          # descriptors of one slot, private to this process
    uint32_t incarnation
    shared_u32 busy               # 1 while a thread that holds the slot's lock uses them, or the evictor closes them
    int64_t segment_base
    uint64_t generation           # a truncation may have put another file in place under the old name
    int32_t log_fd                # 0: not open (descriptor 0 never belongs to a log)
    int32_t index_fd
    int32_t time_fd
    int32_t txn_fd
    shared_u32 used               # used since the clock hand last passed


# Returns the files of the slot's active segment and opens them if necessary; NULL with *error = -errno. The caller holds the slot's
# lock and calls `release_files` afterwards.
cdef AppendFiles* take_files(uint32_t index, Slot* slot, int64_t segment_base, int* error) noexcept nogil
cdef int index_file(AppendFiles* files, Slot* slot, int kind) noexcept nogil     # also the transaction index; -errno
cdef void release_files(AppendFiles* files) noexcept nogil
cdef void drop_files(uint32_t index) noexcept nogil

# Write "<topic>-<partition>" or "<topic>-<partition>/<20 digits>.<kind>", relative to the log directory; `out` has 384 bytes.
cdef void directory_path(Slot* slot, char* out) noexcept nogil
cdef void segment_path(Slot* slot, int64_t base_offset, int kind, char* out) noexcept nogil
cdef int open_at(Slot* slot, const char* path, int flags) noexcept nogil
cdef int open_in_slot(Slot* slot, int64_t base_offset, int kind, int flags) noexcept nogil
cdef int open_directory(Slot* slot) noexcept nogil
cdef DIR* read_directory(Slot* slot, int* error) noexcept nogil     # the caller calls `closedir`; NULL with *error = -errno
