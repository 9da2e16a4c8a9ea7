"""Changing the gap limit of a partition's log, in its file and then in its slot; see gap_limit.pxd."""

from libc.errno cimport ENOENT
from libc.stdint cimport INT64_MAX, int64_t
from libc.stdio cimport snprintf
from posix.unistd cimport close

from odradek._ext.partition.append_files cimport directory_path, open_directory
from odradek._ext.shm.atomics cimport store_release_i64
from odradek._ext.shm.slot cimport Slot
from odradek._ext.storage.gap_limit_file cimport (
    GAP_LIMIT_NAME,
    name_prepared_gap_limit,
    read_gap_limit_file,
    write_gap_limit_file,
)


cdef void gap_limit_path(Slot* slot, char* out) noexcept nogil:
    cdef char[384] directory
    directory_path(slot, directory)
    snprintf(out, 512, "%s/%s", directory, GAP_LIMIT_NAME)


cdef int put_gap_limit(Slot* slot, int64_t limit, bint durable) noexcept nogil:
    cdef int directory = open_directory(slot), result
    if directory < 0:
        return directory
    result = write_gap_limit_file(directory, limit, durable)
    close(directory)
    if result == 0:
        store_release_i64(&slot.gap_limit, limit)
    return result


cdef int name_gap_limit(Slot* slot, int directory, int64_t limit) noexcept nogil:
    cdef int result = name_prepared_gap_limit(directory)
    if result == 0:
        store_release_i64(&slot.gap_limit, limit)
    return result


cdef int lower_gap_limit(Slot* slot, int64_t limit) noexcept nogil:
    cdef int directory = open_directory(slot), result
    cdef int64_t present = -1
    if directory < 0:
        return directory
    # Read the file: a process that raised the limit may have died before it changed the slot.
    result = read_gap_limit_file(directory, &present)
    close(directory)
    if result == -ENOENT:
        # An unknown limit would become known here, so a start must find it in the file as well.
        result = put_gap_limit(slot, limit, True) if slot.gap_limit == INT64_MAX else 0
    elif result == 0 and not 0 <= present <= limit:
        result = put_gap_limit(slot, limit, True)
    if result == 0 and slot.gap_limit > limit:
        store_release_i64(&slot.gap_limit, limit)
    return result
