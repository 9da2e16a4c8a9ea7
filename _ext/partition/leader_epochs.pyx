"""A partition's leader epochs; see leader_epochs.pxd.

Changes run with the slot's mutex held, allocate nothing and need no GIL: the newest EPOCH_FILE_BYTES of the file are read and
written on the stack. Readers of the slot's epochs need no lock: `epochs_sequence` tells them of changes.
"""

from libc.errno cimport ENOENT, errno
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.stdio cimport snprintf
from libc.stdlib cimport strtoll
from libc.string cimport memcpy, memmove
from posix.fcntl cimport O_CREAT, O_RDONLY, O_TRUNC, O_WRONLY
from posix.unistd cimport close

from odradek._ext.partition.append_files cimport directory_path, open_at
from odradek._ext.partition.segment_files cimport end_of
from odradek._ext.shm.atomics cimport (
    copy_words,
    count_i32,
    cpu_pause,
    fence_acquire,
    fence_release,
    fill_words,
    load_acquire_32,
    load_relaxed_32,
    store_relaxed_32,
    store_relaxed_i32,
    store_release_32,
)
from odradek._ext.shm.faults cimport APPEND_EPOCH_FILE_WRITTEN, EPOCHS_HALF_CHANGED, fault
from odradek._ext.shm.layout cimport region
from odradek._ext.shm.slot cimport EPOCHS_KEPT, ROLE_LEADER, Commit, Slot, read_commit, slot_at
from odradek._ext.storage.file_calls cimport file_error, file_rename, file_truncate, file_unlink
from odradek._ext.storage.log_scan cimport read_at, write_at


cdef enum:
    COPY_TRIES = 1000             # of a copy of the ring while it is changed, which takes less than a microsecond
    GROWING_FILE_BYTES = 4096     # a page: larger files are replaced
    EPOCH_FILE_BYTES = 65536      # newest part of the leader-epoch checkpoint that is kept: thousands of epochs


cdef void epoch_path(Slot* slot, char* out) noexcept nogil:
    cdef char[384] directory
    directory_path(slot, directory)
    snprintf(out, 512, "%s/leader-epoch-checkpoint", directory)


cdef void begin_change(Slot* slot) noexcept nogil:
    """Tell readers that the ring is being changed; it may still be so because its last writer died."""
    if slot.epochs_sequence & 1 == 0:
        store_relaxed_32(&slot.epochs_sequence, slot.epochs_sequence + 1)
    fence_release()


cdef void end_change(Slot* slot) noexcept nogil:
    store_release_32(&slot.epochs_sequence, slot.epochs_sequence + 1)


cdef void put_epoch(Slot* slot, int32_t epoch, int64_t start_offset) noexcept nogil:
    """The ring only grows: `epoch_count` counts all its epochs. Functions that remove epochs read the ring from the file again.
    """
    cdef EpochStart entry
    entry.epoch = epoch
    entry.spare = 0
    entry.start_offset = start_offset
    fill_words(&slot.epochs[slot.epoch_count % EPOCHS_KEPT], &entry, sizeof(entry))
    count_i32(&slot.epoch_count, 1)


cdef void assign_epoch(Slot* slot, int32_t epoch, int64_t start_offset) noexcept nogil:
    begin_change(slot)
    put_epoch(slot, epoch, start_offset)
    fault(EPOCHS_HALF_CHANGED)
    end_change(slot)


cdef char* skip_line(char* at) noexcept nogil:
    while at[0] != 0 and at[0] != 10:
        at += 1
    return at + 1 if at[0] == 10 else at


cdef int read_epoch_lines(Slot* slot, char* content) noexcept nogil:
    """Read the lines "<epoch> <start offset>" of the checkpoint file, the newest EPOCH_FILE_BYTES of them. Returns 0, or
    -errno."""
    cdef char[512] path
    cdef char* at
    cdef int64_t size, start, length
    cdef int fd
    content[0] = 0
    epoch_path(slot, path)
    fd = open_at(slot, path, O_RDONLY)
    if fd < 0:
        return 0 if fd == -ENOENT else fd
    size = end_of(fd)
    start = max(0, size - (EPOCH_FILE_BYTES - 1))
    length = read_at(fd, content, <size_t>(size - start), start)
    close(fd)
    if length < 0:
        content[0] = 0
        return <int>length
    content[length] = 0
    at = skip_line(content)             # the version, or the rest of a cut line
    if start == 0:
        at = skip_line(at)              # the count
    memmove(content, at, <size_t>(content + length - at) + 1)
    return 0


cdef int grow_epoch_file(Slot* slot, const char* lines, int old_bytes, int new_bytes, int count) noexcept nogil:
    """Add lines to the end of a small file by one write of its whole content, which costs a hundredth of a renamed file. Returns
    whether this was possible, or -errno.

    It is possible if the file has exactly the lines before, and its header keeps its length: then the write changes only the digits of
    the count, which readers of the slot's epochs ignore, and bytes behind the end of the file, which readers see only when the write is
    complete. It is in one page, so that a death cannot leave a part of it.

    :param lines: the lines, `new_bytes` bytes; the file already has the first `old_bytes` of them. :param count: the number of lines.
    """
    cdef char[512] path
    cdef char[GROWING_FILE_BYTES] whole
    cdef char[64] head
    cdef int head_bytes = snprintf(head, 64, "0\n%d\n", count - 1), fd, result = 0
    if old_bytes == 0 or head_bytes != snprintf(whole, 64, "0\n%d\n", count) or head_bytes + new_bytes > GROWING_FILE_BYTES:
        return 0
    memcpy(whole + head_bytes, lines, new_bytes)
    epoch_path(slot, path)
    fd = open_at(slot, path, O_WRONLY)
    if fd < 0:
        return fd
    if end_of(fd) == head_bytes + old_bytes:
        result = write_at(fd, whole, <size_t>(head_bytes + new_bytes), 0)
        if result == 0:
            result = 1
        else:
            file_truncate(fd, head_bytes + old_bytes)       # a part of a number must not look like a smaller one
    close(fd)
    return result


cdef int change_epoch_file(Slot* slot, int32_t epoch, int64_t start_offset, bint add, bint* dropped) noexcept nogil:
    """Remove the entries of `epoch` and above and those that begin at `start_offset` or later, and add this epoch if `add`.
    The file is not synced [R 3]. Returns 0, or -errno."""
    cdef char[512] path
    cdef char[520] temporary
    cdef char[EPOCH_FILE_BYTES] content
    cdef char[EPOCH_FILE_BYTES + 64] fresh
    cdef char[64] head
    cdef char* at = content
    cdef char* line
    cdef char* number_end
    cdef int fd, log_dir = region().header.log_dir_fds[slot.log_dir], kept = 0, body = 0, before, length, result
    cdef int64_t value
    dropped[0] = False
    result = read_epoch_lines(slot, content)
    if result != 0:
        return result
    while at[0] != 0:
        line = at
        at = skip_line(at)
        value = strtoll(line, &number_end, 10)
        if number_end == line:
            continue
        if value >= epoch or strtoll(number_end, NULL, 10) >= start_offset:
            dropped[0] = True
            continue
        memcpy(fresh + body, line, at - line)
        body += <int>(at - line)
        if fresh[body - 1] != b'\n':            # another program wrote the file without it
            fresh[body] = b'\n'
            body += 1
        kept += 1
    before = body
    if add:
        body += snprintf(fresh + body, 64, "%d %lld\n", epoch, <long long>start_offset)
        kept += 1
        result = 0 if dropped[0] else grow_epoch_file(slot, fresh, before, body, kept)
        if result != 0:
            return min(result, 0)
    elif not dropped[0]:
        return 0
    epoch_path(slot, path)
    snprintf(temporary, 520, "%s.tmp", path)
    fd = open_at(slot, temporary, O_WRONLY | O_CREAT | O_TRUNC)
    if fd < 0:
        return fd
    length = snprintf(head, 64, "0\n%d\n", kept)
    result = write_at(fd, head, <size_t>length, 0)
    if result == 0:
        result = write_at(fd, fresh, <size_t>body, length)
    close(fd)
    if result == 0 and file_rename(log_dir, temporary, path) != 0:
        result = -errno
    if result != 0:
        file_unlink(log_dir, temporary)
    return result


cdef int read_epochs(Slot* slot) noexcept nogil:
    cdef char[EPOCH_FILE_BYTES] content
    cdef char* at = content
    cdef char* line
    cdef char* number_end
    cdef int64_t value
    cdef int result = read_epoch_lines(slot, content)
    if result != 0:
        return result
    begin_change(slot)
    store_relaxed_i32(&slot.epoch_count, 0)
    fault(EPOCHS_HALF_CHANGED)
    while at[0] != 0:
        line = at
        at = skip_line(at)
        value = strtoll(line, &number_end, 10)
        if number_end != line:
            put_epoch(slot, <int32_t>value, strtoll(number_end, NULL, 10))
    end_change(slot)
    return 0


cdef int cut_epochs(Slot* slot, int64_t end_offset) noexcept nogil:
    cdef bint dropped
    cdef int result = change_epoch_file(slot, 0x7FFFFFFF, end_offset, False, &dropped)
    return read_epochs(slot) if result == 0 else result


cdef int note_epoch(Slot* slot, int32_t epoch, int64_t start_offset) noexcept nogil:
    cdef bint dropped
    cdef int result
    if epoch < 0 or not new_epoch(slot, epoch):
        return 0
    result = change_epoch_file(slot, epoch, start_offset, True, &dropped)
    if result == 0:
        fault(APPEND_EPOCH_FILE_WRITTEN)
        if dropped:                     # an epoch that began here and left no batch is removed
            return read_epochs(slot)
        assign_epoch(slot, epoch, start_offset)
    return result


# -- reading without the lock -----------------------------------------------------------------------------------------

cdef bint copy_epochs(Slot* slot, EpochRing* out) noexcept nogil:
    """An epoch is in the ring before its first batch is committed. So a log end offset that is read between two equal values of
    the sequence has no batch of an epoch that is not in the copy."""
    cdef uint32_t sequence
    cdef int32_t total
    cdef int _attempt, i, first
    cdef Commit commit
    for _attempt in range(COPY_TRIES):
        sequence = load_acquire_32(&slot.epochs_sequence)
        if sequence & 1:
            cpu_pause()
            continue
        total = slot.epoch_count
        first = max(0, total - EPOCHS_KEPT)
        out.count = total - first
        out.complete = first == 0
        for i in range(out.count):
            copy_words(&out.entries[i], &slot.epochs[(first + i) % EPOCHS_KEPT], sizeof(EpochStart))
        read_commit(slot, &commit)
        out.log_end_offset = commit.log_end_offset
        out.high_watermark = commit.high_watermark
        out.log_start_offset = slot.log_start_offset
        fence_acquire()
        if load_relaxed_32(&slot.epochs_sequence) == sequence:
            return True
    return False


cdef void add_current(Slot* slot, EpochRing* ring) noexcept nogil:
    """Add the leader's epoch if it is not noted yet, because nothing was appended in it: it begins at the log end."""
    cdef int i
    cdef int32_t epoch = slot.leader_epoch
    if slot.role != ROLE_LEADER or (ring.count and ring.entries[ring.count - 1].epoch >= epoch):
        return
    if ring.count == EPOCHS_KEPT:
        ring.complete = False
        for i in range(EPOCHS_KEPT - 1):
            ring.entries[i] = ring.entries[i + 1]
        ring.count -= 1
    ring.entries[ring.count].epoch = epoch
    ring.entries[ring.count].start_offset = ring.log_end_offset
    ring.count += 1


cdef int end_offset_for(Slot* slot, int32_t epoch, int32_t* found_epoch, int64_t* end_offset) noexcept nogil:
    """Epochs that end at or before the log start offset are ignored; the first of the others begins there [R 3.4]."""
    cdef EpochRing ring
    cdef int first = 0, i
    found_epoch[0] = -1
    end_offset[0] = -1
    if not copy_epochs(slot, &ring):
        return EPOCH_IN_FILE
    while first < ring.count - 1 and ring.entries[first + 1].start_offset <= ring.log_start_offset:
        first += 1
    if first > 0 or (ring.count and ring.entries[0].start_offset <= ring.log_start_offset):
        ring.complete = True
        ring.entries[first].start_offset = max(ring.entries[first].start_offset, ring.log_start_offset)
    for i in range(first, ring.count):
        ring.entries[i - first] = ring.entries[i]
    ring.count -= first
    add_current(slot, &ring)
    if epoch < 0 or ring.count == 0 or epoch > ring.entries[ring.count - 1].epoch:
        return EPOCH_UNDEFINED
    if epoch < ring.entries[0].epoch and not ring.complete:
        return EPOCH_IN_FILE
    found_epoch[0] = epoch
    end_offset[0] = ring.log_end_offset
    for i in range(ring.count - 1, -1, -1):
        if ring.entries[i].epoch <= epoch:
            found_epoch[0] = ring.entries[i].epoch
            break
        end_offset[0] = min(ring.entries[i].start_offset, ring.log_end_offset)
    return EPOCH_FOUND


# -- for Python -------------------------------------------------------------------------------------------------------

def find_end_offset(uint32_t index, int epoch) -> tuple[int, int] | None:
    """`end_offset_for` of a slot: (epoch, end offset), (-1, -1) if it is undefined, None if only the file knows it."""
    cdef int32_t found = -1
    cdef int64_t end = -1
    return None if end_offset_for(slot_at(index), epoch, &found, &end) == EPOCH_IN_FILE else (found, end)


def epochs_with_ends(uint32_t index) -> tuple[list[tuple[int, int]], int, int, int] | None:
    """([(leader epoch, start offset)] of all epochs in the file, log start offset, log end offset, number of changes); None if
    the slot's epochs are being changed.

    The number of changes differs after a change: the file may have been read before or after it.

    :raises OSError: the file cannot be read.
    """
    cdef EpochRing ring
    cdef Slot* slot = slot_at(index)
    cdef char[EPOCH_FILE_BYTES] content
    cdef char* at = content
    cdef char* line
    cdef char* number_end
    cdef int64_t value
    cdef uint32_t changes = load_acquire_32(&slot.epochs_sequence)
    cdef int result
    with nogil:
        result = read_epoch_lines(slot, content)
    if result != 0:
        raise file_error(-result, "leader-epoch-checkpoint")
    if not copy_epochs(slot, &ring):
        return None
    entries = []
    while at[0] != 0:
        line = at
        at = skip_line(at)
        value = strtoll(line, &number_end, 10)
        if number_end != line:
            entries.append((value, strtoll(number_end, NULL, 10)))
    return entries, ring.log_start_offset, ring.log_end_offset, changes


def epoch_changes(uint32_t index) -> int:
    """How often the slot's epochs were changed; odd during a change."""
    return load_acquire_32(&slot_at(index).epochs_sequence)
