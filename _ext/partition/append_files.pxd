"""Descriptors of the active segments that this process appends to: opened under the slot's lock, a bounded cache [R 4]."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from odradek._ext.shm.layout cimport Slot
from odradek._ext.storage.directories cimport DIR


cdef struct AppendFiles:          # of one slot, in this process only
    uint32_t incarnation
    uint32_t busy                 # 1 while its user holds the slot's lock, or the evictor closes it
    int64_t segment_base
    uint64_t generation           # a truncation may have put another file under the same name
    int32_t log_fd                # 0: not open (0 is never a file of ours)
    int32_t index_fd
    int32_t time_fd
    uint32_t used                 # for the clock hand


# The files of the slot's active segment, opened where needed; NULL with *error = -errno.
# To be given back with `release_files`. The caller holds the slot's lock.
cdef AppendFiles* take_files(uint32_t index, Slot* slot, int64_t segment_base, int* error) noexcept nogil
cdef int index_file(AppendFiles* files, Slot* slot, int kind) noexcept nogil
cdef void release_files(AppendFiles* files) noexcept nogil
cdef void drop_files(uint32_t index) noexcept nogil

# "<topic>-<partition>" and "<topic>-<partition>/<20 digits>.<kind>" relative to the log directory; out has 384 bytes.
cdef void directory_path(Slot* slot, char* out) noexcept nogil
cdef void segment_path(Slot* slot, int64_t base_offset, int kind, char* out) noexcept nogil
cdef int open_at(Slot* slot, const char* path, int flags) noexcept nogil
cdef int open_in_slot(Slot* slot, int64_t base_offset, int kind, int flags) noexcept nogil
cdef int open_directory(Slot* slot) noexcept nogil
cdef DIR* read_directory(Slot* slot, int* error) noexcept nogil     # to be closed by `closedir`; NULL with *error = -errno
