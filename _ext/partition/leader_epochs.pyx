"""A partition's leader epochs; see leader_epochs.pxd.

Runs with the slot's mutex held, allocates nothing and needs no GIL: the newest EPOCH_FILE_BYTES of the file are read and
written on the stack.
"""

from libc.errno cimport ENOENT, errno
from libc.stdint cimport int32_t, int64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport strtoll
from libc.string cimport memcpy, memmove
from posix.fcntl cimport O_CREAT, O_RDONLY, O_TRUNC, O_WRONLY
from posix.unistd cimport close

from odradek._ext.partition.append_files cimport directory_path, open_at
from odradek._ext.partition.segment_files cimport end_of
from odradek._ext.shm.faults cimport APPEND_EPOCH_FILE_WRITTEN, fault
from odradek._ext.shm.layout cimport EPOCHS_KEPT, Slot, region
from odradek._ext.storage.file_calls cimport file_rename, file_unlink
from odradek._ext.storage.log_scan cimport read_at, write_at


cdef enum:
    EPOCH_FILE_BYTES = 65536      # newest part of the leader-epoch checkpoint that is kept: thousands of epochs


cdef void epoch_path(Slot* slot, char* out) noexcept nogil:
    cdef char[384] directory
    directory_path(slot, directory)
    snprintf(out, 512, "%s/leader-epoch-checkpoint", directory)


cdef void assign_epoch(Slot* slot, int32_t epoch, int64_t start_offset) noexcept nogil:
    """The ring only grows: `epoch_count` counts all its epochs. Functions that remove epochs read the ring from the file again.
    """
    cdef int at = slot.epoch_count % EPOCHS_KEPT
    slot.epochs[at].epoch = epoch
    slot.epochs[at].start_offset = start_offset
    slot.epoch_count += 1


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


cdef int change_epoch_file(Slot* slot, int32_t epoch, int64_t start_offset, bint add, bint* dropped) noexcept nogil:
    """Remove the entries of `epoch` and above and those that begin at `start_offset` or later, and add this epoch if `add`.
    Writes a temporary file and renames it, without fsync [R 3]. Returns 0, or -errno."""
    cdef char[512] path
    cdef char[520] temporary
    cdef char[EPOCH_FILE_BYTES] content
    cdef char[EPOCH_FILE_BYTES + 64] fresh
    cdef char[64] head
    cdef char* at = content
    cdef char* line
    cdef char* number_end
    cdef int fd, log_dir = region().header.log_dir_fds[slot.log_dir], kept = 0, body = 0, length, result
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
        kept += 1
    if add:
        body += snprintf(fresh + body, 64, "%d %lld\n", epoch, <long long>start_offset)
        kept += 1
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
    slot.epoch_count = 0
    while at[0] != 0:
        line = at
        at = skip_line(at)
        value = strtoll(line, &number_end, 10)
        if number_end != line:
            assign_epoch(slot, <int32_t>value, strtoll(number_end, NULL, 10))
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
