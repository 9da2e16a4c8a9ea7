"""The files in a partition's directory: listing them, and finishing changes that a crash interrupted.

Runs when a log is opened, before any other process may use it. The rules are Kafka's (LogLoader): `.deleted` and `.cleaned`
files are removed; a `.swap` file whose offset is at or above that of a `.cleaned` file belongs to an interrupted split and is
removed; every other `.swap` file is complete, so the files that it replaces are removed and it is renamed. Snapshots that were
not put in place (`.snapshot.tmp`, which Kafka ignores) are removed. If this is interrupted, the next opening does it again.
"""

from libc cimport errno as c_errno
from libc.errno cimport ENOENT, ENOMEM, errno
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint32_t, uint8_t
from libc.stdlib cimport free, qsort, strtoll
from libc.string cimport memset, strcmp, strlen
from posix.fcntl cimport O_CREAT, O_DIRECTORY, O_RDONLY, O_RDWR
from posix.stat cimport fstat, fstatat, struct_stat
from posix.unistd cimport close

from odradek._ext.records.record_batch cimport BatchInfo
from odradek._ext.storage.directories cimport DIR, closedir, dirent, fdopendir, readdir
from odradek._ext.storage.file_calls cimport file_open, file_rename, file_unlink
from odradek._ext.storage.gap_limit_file cimport GAP_LIMIT_NAME
from odradek._ext.storage.log_scan cimport SCAN_BATCH, Scanner, scan_batch, scan_file
from odradek._ext.storage.log_state cimport (
    EVENT_COMPLETED_SWAP,
    EVENT_REMOVED_LEFTOVER,
    EVENT_REMOVED_ORPHAN,
    FILE_INDEX,
    FILE_LOG,
    FILE_SNAPSHOT,
    FILE_TIME_INDEX,
    FILE_TXN_INDEX,
    Array,
    LogState,
    Segment,
    about_to_change,
    add_event,
    append_item,
)
from odradek._ext.storage.state_files cimport file_name


cdef extern from *:
    """
    #include <sys/stat.h>
    #include <sys/syscall.h>
    #include <unistd.h>

    #ifndef STATX_MTIME      /* musl has statx since 1.2.5, and the wheels are for 1.2.0 */
    #include <linux/stat.h>
    #endif

    /* The creation time of a file, or its last write if that is earlier: a copy is created later, but may keep the times. */
    static long long earliest_ms(int directory, const char *name) {
        struct statx status;
        long long born, written;
        if (syscall(SYS_statx, directory, name, 0, STATX_BTIME | STATX_MTIME, &status) != 0 || !(status.stx_mask & STATX_MTIME))
            return -1;
        written = status.stx_mtime.tv_sec * 1000LL + status.stx_mtime.tv_nsec / 1000000;
        born = status.stx_btime.tv_sec * 1000LL + status.stx_btime.tv_nsec / 1000000;
        return (status.stx_mask & STATX_BTIME) && born < written ? born : written;
    }
    """
    long long earliest_ms(int directory, const char* name) noexcept nogil


cdef enum:
    OFFSET_DIGITS = 20
    STATE_PLAIN = 0
    STATE_DELETED = 1
    STATE_CLEANED = 2
    STATE_SWAP = 3
    STATE_TEMPORARY = 4             # a snapshot that was not put in place
    SWAP_BUFFER_BYTES = 8192


cdef struct SegmentFile:
    int64_t base_offset
    int32_t kind
    int32_t state


cdef int parse_state(const char* suffix) noexcept nogil:
    if suffix[0] == 0:
        return STATE_PLAIN
    if strcmp(suffix, b".deleted") == 0:
        return STATE_DELETED
    if strcmp(suffix, b".cleaned") == 0:
        return STATE_CLEANED
    if strcmp(suffix, b".swap") == 0:
        return STATE_SWAP
    if strcmp(suffix, b".tmp") == 0:
        return STATE_TEMPORARY
    return -1


cdef int parse_extension(const char* extension, size_t n) noexcept nogil:
    cdef char[16] text
    cdef size_t at
    if n >= sizeof(text):
        return 0
    for at in range(n):
        text[at] = extension[at]
    text[n] = 0
    if strcmp(text, b".log") == 0:
        return FILE_LOG
    if strcmp(text, b".index") == 0:
        return FILE_INDEX
    if strcmp(text, b".timeindex") == 0:
        return FILE_TIME_INDEX
    if strcmp(text, b".txnindex") == 0:
        return FILE_TXN_INDEX
    if strcmp(text, b".snapshot") == 0:
        return FILE_SNAPSHOT
    return 0


cdef bint parse_name(const char* name, SegmentFile* out) noexcept nogil:
    """Parse the name of a segment's file or snapshot. Returns False for any other name."""
    cdef int64_t offset = 0
    cdef size_t at
    cdef size_t end
    if strlen(name) < OFFSET_DIGITS + 4:
        return False
    for at in range(OFFSET_DIGITS):
        if not c"0" <= name[at] <= c"9" or offset > (INT64_MAX - 9) // 10:
            return False
        offset = offset * 10 + (name[at] - c"0")
    end = OFFSET_DIGITS + 1
    while name[end] != 0 and name[end] != c".":
        end += 1
    out.base_offset = offset
    out.kind = parse_extension(name + OFFSET_DIGITS, end - OFFSET_DIGITS)
    out.state = parse_state(name + end)
    return out.kind != 0 and out.state >= 0 and (out.state != STATE_TEMPORARY or out.kind == FILE_SNAPSHOT)


cdef int compare_files(const void* left, const void* right) noexcept nogil:
    cdef const SegmentFile* a = <const SegmentFile*>left
    cdef const SegmentFile* b = <const SegmentFile*>right
    if a.base_offset != b.base_offset:
        return -1 if a.base_offset < b.base_offset else 1
    return a.kind - b.kind


cdef int list_files(LogState* state, int directory, Array* files) noexcept nogil:
    """List all files of segments in any state, by offset and kind; check whether there is a gap limit."""
    cdef int descriptor = file_open(directory, b".", O_RDONLY | O_DIRECTORY)
    cdef DIR* stream
    cdef dirent* entry
    cdef SegmentFile file
    cdef SegmentFile* item
    cdef int error
    files.count = 0
    if descriptor < 0:
        return -errno
    stream = fdopendir(descriptor)
    if stream == NULL:
        error = -errno
        close(descriptor)
        return error
    while True:
        c_errno.errno = 0
        entry = readdir(stream)
        if entry == NULL:
            error = -errno
            break
        if not parse_name(entry.d_name, &file):
            if strcmp(entry.d_name, GAP_LIMIT_NAME) == 0:
                state.has_gap_limit = True
            continue
        item = <SegmentFile*>append_item(files)
        if item == NULL:
            error = -ENOMEM
            break
        item[0] = file
    closedir(stream)
    if files.count:
        qsort(files.items, <size_t>files.count, sizeof(SegmentFile), &compare_files)
    return error


cdef const char* suffix_of(int state) noexcept nogil:
    if state == STATE_DELETED:
        return b".deleted"
    if state == STATE_CLEANED:
        return b".cleaned"
    if state == STATE_SWAP:
        return b".swap"
    if state == STATE_TEMPORARY:
        return b".tmp"
    return b""


cdef int remove_file(LogState* state, int directory, int64_t base_offset, int kind,
                     const char* suffix) noexcept nogil:
    cdef char[64] name
    cdef int error = about_to_change(state)
    if error:
        return error
    file_name(name, base_offset, kind, suffix)
    if file_unlink(directory, name) < 0 and errno != ENOENT:
        return -errno
    return 0


cdef int remove_segment_files(LogState* state, int directory, int64_t base_offset, uint32_t files) noexcept nogil:
    cdef int kind = FILE_LOG
    cdef int error
    while kind <= FILE_TXN_INDEX:
        if files & <uint32_t>kind:
            error = remove_file(state, directory, base_offset, kind, b"")
            if error:
                return error
        kind *= 2
    return 0


cdef int64_t file_size(int directory, int64_t base_offset, int kind) noexcept nogil:
    cdef char[64] name
    cdef struct_stat status
    file_name(name, base_offset, kind, b"")
    if fstatat(directory, name, &status, 0) < 0:
        return -errno
    return status.st_size


cdef int64_t creation_time(int directory, int64_t base_offset) noexcept nogil:
    """The earliest time of the log and of its time index, because the time index of a log without timestamps is not written to.
    """
    cdef char[64] name
    cdef int64_t index_time, earliest
    file_name(name, base_offset, FILE_LOG, b"")
    earliest = earliest_ms(directory, name)
    file_name(name, base_offset, FILE_TIME_INDEX, b"")
    index_time = earliest_ms(directory, name)
    return index_time if index_time >= 0 and (earliest < 0 or index_time < earliest) else earliest


cdef int open_file(int directory, int64_t base_offset, int kind, int flags) noexcept nogil:
    cdef char[64] name
    cdef int descriptor
    file_name(name, base_offset, kind, b"")
    descriptor = file_open(directory, name, flags)
    return -errno if descriptor < 0 else descriptor


cdef int create_segment(LogState* state, int directory, int64_t base_offset) noexcept nogil:
    cdef int kind = FILE_LOG
    cdef int descriptor
    cdef Segment* segment
    cdef int error
    while kind <= FILE_TIME_INDEX:
        error = about_to_change(state)
        if error:
            return error
        descriptor = open_file(directory, base_offset, kind, O_RDWR | O_CREAT)
        if descriptor < 0:
            return descriptor
        close(descriptor)
        kind *= 2
    segment = <Segment*>append_item(&state.segments)
    if segment == NULL:
        return -ENOMEM
    segment.base_offset = base_offset
    segment.files = FILE_LOG | FILE_INDEX | FILE_TIME_INDEX
    return 0


cdef int64_t swap_end_offset(int directory, int64_t base_offset, int* error) noexcept nogil:
    """The offset after the last batch of a `.log.swap`, found by reading its headers."""
    cdef char[64] name
    cdef uint8_t[SWAP_BUFFER_BYTES] buffer
    cdef Scanner scanner
    cdef BatchInfo info
    cdef struct_stat status
    cdef int64_t position = 0
    cdef int64_t end = base_offset
    cdef int descriptor
    cdef int result
    file_name(name, base_offset, FILE_LOG, b".swap")
    descriptor = file_open(directory, name, O_RDONLY)
    if descriptor < 0 or fstat(descriptor, &status) < 0:
        error[0] = -errno
        if descriptor >= 0:
            close(descriptor)
        return -1
    scan_file(&scanner, descriptor, status.st_size, buffer, SWAP_BUFFER_BYTES)
    while True:
        result = scan_batch(&scanner, position, &info)
        if result != SCAN_BATCH:
            break
        end = info.base_offset + info.last_offset_delta + 1
        position += info.size
    close(descriptor)
    error[0] = result if result < 0 else 0
    return end


cdef int remove_leftovers(LogState* state, int directory, Array* files, bint* swaps) noexcept nogil:
    """Remove the files that no rule keeps; *swaps is set if valid swaps remain."""
    cdef SegmentFile* items = <SegmentFile*>files.items
    cdef int64_t lowest_cleaned = INT64_MAX
    cdef int64_t number
    cdef int error
    swaps[0] = False
    for number in range(files.count):
        if items[number].state == STATE_CLEANED and items[number].base_offset < lowest_cleaned:
            lowest_cleaned = items[number].base_offset
    # Remove swaps first: they are recognised as invalid only while the .cleaned file exists.
    for number in range(files.count):
        if items[number].state == STATE_SWAP:
            if items[number].base_offset < lowest_cleaned:
                swaps[0] = True
                continue
            error = remove_file(state, directory, items[number].base_offset, items[number].kind, b".swap")
            if error == 0:
                error = add_event(state, EVENT_REMOVED_LEFTOVER, items[number].kind, items[number].base_offset, 0, 0, 0)
            if error:
                return error
    for number in range(files.count):
        if items[number].state == STATE_DELETED or items[number].state == STATE_CLEANED or items[number].state == STATE_TEMPORARY:
            error = remove_file(state, directory, items[number].base_offset, items[number].kind,
                                suffix_of(items[number].state))
            if error == 0:
                error = add_event(state, EVENT_REMOVED_LEFTOVER, items[number].kind, items[number].base_offset, 0, 0, 0)
            if error:
                return error
    return 0


cdef int remove_replaced(LogState* state, int directory, Array* files) noexcept nogil:
    """Remove the segments that the swaps replace: base offsets from that of the first swapped log up to the end of the last
    one."""
    cdef SegmentFile* items = <SegmentFile*>files.items
    cdef int64_t low = INT64_MAX
    cdef int64_t high = -1
    cdef int64_t number
    cdef int64_t end
    cdef int error = 0
    for number in range(files.count):
        if items[number].state == STATE_SWAP and items[number].kind == FILE_LOG:
            end = swap_end_offset(directory, items[number].base_offset, &error)
            if error:
                return error
            low = items[number].base_offset if items[number].base_offset < low else low
            high = end if end > high else high
    for number in range(files.count):
        if items[number].state == STATE_PLAIN and items[number].kind != FILE_SNAPSHOT \
                and low <= items[number].base_offset < high:
            error = remove_file(state, directory, items[number].base_offset, items[number].kind, b"")
            if error:
                return error
    return 0


cdef int complete_swaps(LogState* state, int directory, Array* files) noexcept nogil:
    cdef SegmentFile* items = <SegmentFile*>files.items
    cdef char[64] from_name
    cdef char[64] to_name
    cdef int64_t number
    cdef int error = remove_replaced(state, directory, files)
    if error:
        return error
    for number in range(files.count):
        if items[number].state != STATE_SWAP:
            continue
        error = about_to_change(state)
        if error:
            return error
        file_name(from_name, items[number].base_offset, items[number].kind, b".swap")
        file_name(to_name, items[number].base_offset, items[number].kind, b"")
        if file_rename(directory, from_name, to_name) < 0:
            return -errno
        error = add_event(state, EVENT_COMPLETED_SWAP, items[number].kind, items[number].base_offset, 0, 0, 0)
        if error:
            return error
    return 0


cdef int fold_files(LogState* state, int directory, Array* files, Array* snapshots) noexcept nogil:
    """Combine files to segments; remove indexes without a log."""
    cdef SegmentFile* items = <SegmentFile*>files.items
    cdef Segment* segment = NULL
    cdef int64_t* offset
    cdef int64_t number
    cdef int error
    for number in range(files.count):
        if items[number].kind == FILE_SNAPSHOT:
            offset = <int64_t*>append_item(snapshots)
            if offset == NULL:
                return -ENOMEM
            offset[0] = items[number].base_offset
        elif items[number].kind == FILE_LOG:
            segment = <Segment*>append_item(&state.segments)
            if segment == NULL:
                return -ENOMEM
            segment.base_offset = items[number].base_offset
            segment.files = FILE_LOG
        elif segment != NULL and segment.base_offset == items[number].base_offset:
            segment.files |= <uint32_t>items[number].kind
        else:
            error = remove_file(state, directory, items[number].base_offset, items[number].kind, b"")
            if error == 0:
                error = add_event(state, EVENT_REMOVED_ORPHAN, items[number].kind, items[number].base_offset, 0, 0, 0)
            if error:
                return error
    return 0


cdef int settle_files(LogState* state, int directory, Array* snapshots) noexcept nogil:
    cdef Array files
    cdef SegmentFile* items
    cdef bint unsettled = False
    cdef bint swaps = False
    cdef int64_t number
    cdef int error
    memset(&files, 0, sizeof(Array))
    files.item_bytes = sizeof(SegmentFile)
    error = list_files(state, directory, &files)
    items = <SegmentFile*>files.items
    for number in range(files.count):
        if items[number].state != STATE_PLAIN:
            unsettled = True
    if error == 0 and unsettled:
        error = remove_leftovers(state, directory, &files, &swaps)
        if error == 0 and swaps:
            error = list_files(state, directory, &files)
            if error == 0:
                error = complete_swaps(state, directory, &files)
        if error == 0:
            error = list_files(state, directory, &files)
    if error == 0:
        error = fold_files(state, directory, &files, snapshots)
    free(files.items)
    return error


cdef int64_t bytes_to_recover(int directory, int64_t recovery_point) noexcept nogil:
    cdef char[64] name
    cdef struct_stat status
    cdef dirent* entry
    cdef char* end
    cdef Array bases                    # segments that may have to be read
    cdef int64_t first = 0              # base offset of the first segment to read
    cdef int64_t base
    cdef int64_t total = 0
    cdef int64_t number
    cdef int64_t* item
    cdef DIR* stream = fdopendir(file_open(directory, b".", O_RDONLY | O_DIRECTORY))
    if stream == NULL:
        return -errno
    memset(&bases, 0, sizeof(bases))
    bases.item_bytes = sizeof(int64_t)
    while True:
        entry = readdir(stream)
        if entry == NULL:
            break
        base = strtoll(entry.d_name, &end, 10)
        if end == entry.d_name or strcmp(end, b".log") != 0 or base < first:
            continue
        if base < recovery_point:
            first = base
        item = <int64_t*>append_item(&bases)
        if item == NULL:
            total = -ENOMEM
            break
        item[0] = base
    closedir(stream)
    for number in range(bases.count if total == 0 else 0):
        base = (<int64_t*>bases.items)[number]
        if base >= first:
            file_name(name, base, FILE_LOG, b"")
            if fstatat(directory, name, &status, 0) == 0:
                total += status.st_size
    free(bases.items)
    return total
