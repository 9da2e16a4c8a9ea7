"""The segment that compaction writes; see compacted_segment.pxd. No GIL, no lock: only the pass uses these files."""

from libc.errno cimport EIO, ENOMEM, errno
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from posix.fcntl cimport O_CREAT, O_RDWR, O_TRUNC
from posix.unistd cimport close

from odradek._ext.storage.file_calls cimport file_data_sync, file_open, file_unlink
from odradek._ext.storage.index_entries cimport (
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    TXN_ENTRY_BYTES,
    AbortedEntry,
    pack_offset_entry,
    pack_time_entry,
    pack_txn_entry,
)
from odradek._ext.storage.log_scan cimport read_at, write_at
from odradek._ext.storage.log_state cimport FILE_INDEX, FILE_LOG, FILE_TIME_INDEX, FILE_TXN_INDEX, append_item
from odradek._ext.storage.state_files cimport file_name


cdef extern from *:
    """
    #define _GNU_SOURCE
    #include <fcntl.h>
    #include <sys/types.h>
    #include <unistd.h>
    /* Early write-back, so that the sync at the end has little to do. This is advice; its result does not matter. */
    static inline void start_writeback(int fd, int64_t from, int64_t n) {
    #ifdef SYNC_FILE_RANGE_WRITE
        sync_file_range(fd, from, n, SYNC_FILE_RANGE_WRITE);
    #endif
    }
    """
    void start_writeback(int fd, int64_t start, int64_t n) noexcept nogil


cdef enum:
    WRITEBACK_BYTES = 8 << 20
    OUTPUT_BYTES = 1 << 18


cdef int init_output(Output* out) noexcept nogil:
    memset(out, 0, sizeof(Output))
    out.descriptor = out.source = -1
    out.index.item_bytes = OFFSET_ENTRY_BYTES
    out.times.item_bytes = TIME_ENTRY_BYTES
    out.transactions.item_bytes = sizeof(AbortedEntry)
    out.room = OUTPUT_BYTES
    out.buffer = <uint8_t*>malloc(OUTPUT_BYTES)
    return 0 if out.buffer != NULL else -ENOMEM


cdef void free_output(Output* out) noexcept nogil:
    free(out.buffer)
    free(out.index.items)
    free(out.times.items)
    free(out.transactions.items)


cdef void start_output(Output* out, int64_t base_offset, int64_t interval) noexcept nogil:
    out.descriptor = out.source = -1
    out.base_offset = base_offset
    out.interval = interval
    out.position = out.started_writeback = out.indexed_position = 0
    out.filled = 0
    out.max_timestamp = out.max_timestamp_offset = out.timeindexed_timestamp = -1
    out.index.count = 0
    out.times.count = 0
    out.transactions.count = 0


cdef void remove_unswapped(int directory, int64_t base_offset) noexcept nogil:
    """The log is removed last: without it the other files would be misinterpreted."""
    cdef char[64] name
    cdef int* kinds = [FILE_INDEX, FILE_TIME_INDEX, FILE_TXN_INDEX, FILE_LOG]
    cdef int i
    for i in range(4):
        file_name(name, base_offset, kinds[i], b".swap")
        file_unlink(directory, name)
        file_name(name, base_offset, kinds[i], b".cleaned")
        file_unlink(directory, name)


cdef int flush_output(Output* out) noexcept nogil:
    cdef int error
    if out.filled == 0:
        return 0
    error = write_at(out.descriptor, out.buffer, out.filled, out.position - <int64_t>out.filled)
    out.filled = 0
    if error == 0 and out.position - out.started_writeback >= WRITEBACK_BYTES:
        start_writeback(out.descriptor, out.started_writeback, out.position - out.started_writeback)
        out.started_writeback = out.position
    return error


cdef int begin_output(Output* out, int directory) noexcept nogil:
    cdef char[64] name
    cdef int64_t copied = 0, part
    cdef int error
    if out.descriptor >= 0:
        return 0
    file_name(name, out.base_offset, FILE_LOG, b".cleaned")
    out.descriptor = file_open(directory, name, O_RDWR | O_CREAT | O_TRUNC)
    if out.descriptor < 0:
        return -errno
    while copied < out.position:
        part = read_at(out.source, out.buffer, min(out.room, <size_t>(out.position - copied)), copied)
        if part <= 0:
            return <int>part if part < 0 else -EIO
        error = write_at(out.descriptor, out.buffer, <size_t>part, copied)
        if error:
            return error
        copied += part
    return 0


cdef int put_time(Output* out) noexcept nogil:
    cdef uint8_t* entry
    if out.max_timestamp <= out.timeindexed_timestamp or out.max_timestamp < 0:
        return 0
    entry = <uint8_t*>append_item(&out.times)
    if entry == NULL:
        return -ENOMEM
    pack_time_entry(entry, out.max_timestamp, out.max_timestamp_offset - out.base_offset)
    out.timeindexed_timestamp = out.max_timestamp
    return 0


cdef int note_batch(Output* out, int64_t last_offset, int64_t max_timestamp) noexcept nogil:
    cdef uint8_t* entry
    if max_timestamp > out.max_timestamp:
        out.max_timestamp = max_timestamp
        out.max_timestamp_offset = last_offset
    if out.position - out.indexed_position > out.interval:
        entry = <uint8_t*>append_item(&out.index)
        if entry == NULL:
            return -ENOMEM
        pack_offset_entry(entry, last_offset - out.base_offset, out.position)
        out.indexed_position = out.position
        return put_time(out)
    return 0


cdef int put_bytes(Output* out, const uint8_t* data, size_t n) noexcept nogil:
    cdef int error
    if out.descriptor < 0:
        out.position += <int64_t>n      # equal to the source so far: copied when something differs
        return 0
    if n > out.room - out.filled:
        error = flush_output(out)
        if error:
            return error
    if n > out.room:
        error = write_at(out.descriptor, data, n, out.position)
        out.position += <int64_t>n
        return error
    memcpy(out.buffer + out.filled, data, n)
    out.filled += n
    out.position += <int64_t>n
    return 0


cdef int write_whole(int directory, int64_t base_offset, int kind, const void* data, size_t n) noexcept nogil:
    """Write a `.cleaned` file with this content and sync it. Returns 0, or -errno."""
    cdef char[64] name
    cdef int error, descriptor
    file_name(name, base_offset, kind, b".cleaned")
    descriptor = file_open(directory, name, O_RDWR | O_CREAT | O_TRUNC)
    if descriptor < 0:
        return -errno
    error = write_at(descriptor, data, n, 0)
    if error == 0 and file_data_sync(descriptor) != 0:
        error = -errno
    close(descriptor)
    return error


cdef int finish_output(Output* out, int directory, int* files) noexcept nogil:
    cdef uint8_t* packed
    cdef AbortedEntry* entries = <AbortedEntry*>out.transactions.items
    cdef int64_t i
    cdef int error = flush_output(out)
    if error == 0 and file_data_sync(out.descriptor) != 0:
        error = -errno
    if error == 0:
        error = put_time(out)
    if error == 0:
        error = write_whole(directory, out.base_offset, FILE_INDEX, out.index.items, <size_t>out.index.count * OFFSET_ENTRY_BYTES)
    if error == 0:
        error = write_whole(directory, out.base_offset, FILE_TIME_INDEX, out.times.items,
                            <size_t>out.times.count * TIME_ENTRY_BYTES)
    files[0] = FILE_LOG | FILE_INDEX | FILE_TIME_INDEX
    if error == 0 and out.transactions.count:
        packed = <uint8_t*>malloc(<size_t>out.transactions.count * TXN_ENTRY_BYTES)
        if packed == NULL:
            return -ENOMEM
        for i in range(out.transactions.count):
            pack_txn_entry(packed + i * TXN_ENTRY_BYTES, &entries[i])
        error = write_whole(directory, out.base_offset, FILE_TXN_INDEX, packed, <size_t>out.transactions.count * TXN_ENTRY_BYTES)
        free(packed)
        files[0] |= FILE_TXN_INDEX
    return error
