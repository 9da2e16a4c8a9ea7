"""The renamings of a swap; see swapping.pxd.

Runs with the slot's mutex held, allocates nothing and needs no GIL. The caller of `prepare_swap` holds the mutex too, unless no
other process uses the log. Readers check the slot's generation: it contains SWAP_UNDER_WAY from before the first renaming until
after the last.
"""

from libc.errno cimport ENOENT, errno
from libc.stdint cimport int64_t
from libc.stdlib cimport strtoll
from libc.string cimport strcmp, strrchr
from posix.unistd cimport F_OK

from odradek._ext.partition.append_files cimport read_directory
from odradek._ext.partition.removed_files cimport note_removed_files
from odradek._ext.partition.segment_files cimport set_aside
from odradek._ext.shm.atomics cimport fence, store_release_64
from odradek._ext.shm.faults cimport *
from odradek._ext.shm.slot cimport Slot
from odradek._ext.storage.directories cimport DIR, closedir, dirent, dirfd, readdir, rewinddir
from odradek._ext.storage.file_calls cimport file_rename, file_unlink
from odradek._ext.storage.log_state cimport FILE_INDEX, FILE_LOG, FILE_TIME_INDEX, FILE_TXN_INDEX
from odradek._ext.storage.state_files cimport file_name


cdef enum:
    SWAPPED_KINDS = 4


cdef inline int kind_at(int number) noexcept nogil:
    """The log comes last: an index without a log is ignored, a log without an index would be used."""
    if number == 0:
        return FILE_INDEX
    if number == 1:
        return FILE_TIME_INDEX
    return FILE_TXN_INDEX if number == 2 else FILE_LOG


cdef int prepare_swap(int directory, int64_t base, int files) noexcept nogil:
    cdef char[64] cleaned
    cdef char[64] swap
    cdef int number
    for number in range(SWAPPED_KINDS):
        if not files & kind_at(number):
            continue
        file_name(cleaned, base, kind_at(number), b".cleaned")
        file_name(swap, base, kind_at(number), b".swap")
        if file_rename(directory, cleaned, swap) != 0:
            return -errno
        fault(SWAP_PREPARED_ONE)
    return 0


cdef bint is_segment_file(const char* suffix) noexcept nogil:
    return strcmp(suffix, b".log") == 0 or strcmp(suffix, b".index") == 0 or strcmp(suffix, b".timeindex") == 0 \
        or strcmp(suffix, b".txnindex") == 0 or strcmp(suffix, b".snapshot") == 0


cdef int set_others_aside(DIR* stream, int64_t base, int64_t last_base) noexcept nogil:
    """Rename the files of the replaced segments after the first one, and their snapshots, to `.deleted`. Returns 0, or -errno.
    """
    cdef dirent* entry
    cdef int64_t number
    cdef char* end
    cdef int result
    cdef bint again = True
    while again:                        # a directory stream may skip entries while others are renamed
        again = False
        rewinddir(stream)
        while True:
            entry = readdir(stream)
            if entry == NULL:
                break
            number = strtoll(entry.d_name, &end, 10)
            if end == entry.d_name or not base < number <= last_base or not is_segment_file(end):
                continue
            result = set_aside(dirfd(stream), entry.d_name)
            if result != 0:
                return result
            again = True
            fault(SWAP_OLD_RENAMED)
    return 0


cdef int take_names(int directory, int64_t base, int files) noexcept nogil:
    """Rename the files of the first replaced segment to `.deleted`, and the `.swap` files to their names. Returns 0, or -errno.
    """
    cdef char[64] name
    cdef char[64] swap
    cdef int number, kind, result
    for number in range(SWAPPED_KINDS):
        kind = kind_at(number)
        file_name(name, base, kind, b"")
        file_name(swap, base, kind, b".swap")
        if files & kind and not exists(directory, swap):
            continue                    # renamed before the author of the swap died
        result = set_aside(directory, name)
        fault(SWAP_FIRST_SET_ASIDE)
        if result != 0:
            return result
        if files & kind and file_rename(directory, swap, name) != 0:
            return -errno
        fault(SWAP_NAME_TAKEN)
    return 0


cdef extern from "<unistd.h>" nogil:
    int faccessat(int directory, const char* path, int mode, int flags)


cdef inline bint exists(int directory, const char* name) noexcept nogil:
    return faccessat(directory, name, F_OK, 0) == 0


cdef int swap_segments(Slot* slot, int64_t base, int64_t last_base, int files) noexcept nogil:
    slot.intent_arguments[0] = base
    slot.intent_arguments[1] = last_base
    slot.intent_arguments[2] = files
    store_release_64(&slot.intent, INTENT_SWAP)
    fault(SWAP_INTENT_STORED)
    return finish_swap(slot)


cdef int finish_swap(Slot* slot) noexcept nogil:
    cdef int64_t base = slot.intent_arguments[0], last_base = slot.intent_arguments[1]
    cdef int files = <int>slot.intent_arguments[2], result
    cdef DIR* stream
    store_release_64(&slot.generation, slot.generation | SWAP_UNDER_WAY)
    fence()
    stream = read_directory(slot, &result)
    if stream != NULL:
        result = set_others_aside(stream, base, last_base)
        if result == 0:
            result = take_names(dirfd(stream), base, files)
        closedir(stream)
    fault(SWAP_FILES_RENAMED)
    store_release_64(&slot.generation, (slot.generation & ~SWAP_UNDER_WAY) + 1)
    note_removed_files()
    fault(SWAP_GENERATION_CHANGED)
    if result == 0:                     # otherwise the slot is given up, and the next load completes the swap
        store_release_64(&slot.intent, 0)
    return result


cdef int drop_swaps(Slot* slot) noexcept nogil:
    cdef int result
    cdef DIR* stream = read_directory(slot, &result)
    cdef dirent* entry
    cdef char* end
    cdef char* suffix
    cdef int64_t _number
    cdef bint again = True
    if stream == NULL:
        return result
    while again and result == 0:
        again = False
        rewinddir(stream)
        while result == 0:
            entry = readdir(stream)
            if entry == NULL:
                break
            _number = strtoll(entry.d_name, &end, 10)
            suffix = strrchr(entry.d_name, c'.')
            if end == entry.d_name or suffix == NULL or end[0] != c'.':
                continue
            if strcmp(suffix, b".cleaned") != 0 and strcmp(suffix, b".swap") != 0:
                continue
            if file_unlink(dirfd(stream), entry.d_name) == 0:
                again = True
            elif errno != ENOENT:
                result = -errno
    closedir(stream)
    return result
