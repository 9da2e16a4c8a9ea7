"""The small files beside a partition's segments, for opening a log: producer snapshots and the leader-epoch checkpoint.

Runs in the thread that opens the log, while no other process uses the partition. Formats: `odradek.storage.producer_snapshot`
and `odradek.storage.checkpoints`. Snapshots are only read. Files are replaced by rename; no fsync is needed, because lost
content is made again.
"""

from libc.errno cimport ENOENT, ENOMEM, errno
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport memmove
from posix.fcntl cimport O_CREAT, O_RDONLY, O_TRUNC, O_WRONLY
from posix.stat cimport fstat, struct_stat
from posix.unistd cimport close

from odradek._ext.protocol.byte_order cimport load16, load32, load64
from odradek._ext.records.crc32c cimport crc32c
from odradek._ext.records.record_batch cimport base_sequence_of
from odradek._ext.storage.file_calls cimport file_open, file_rename
from odradek._ext.storage.log_scan cimport read_at, write_at
from odradek._ext.storage.log_state cimport (
    EVENT_CORRUPT_EPOCHS,
    FILE_EPOCHS,
    FILE_INDEX,
    FILE_SNAPSHOT,
    FILE_TIME_INDEX,
    FILE_TXN_INDEX,
    EpochEntry,
    LoadedBatch,
    LoadedProducer,
    LogState,
    about_to_change,
    add_event,
    append_item,
    clear_producers,
    find_loaded,
)


cdef enum:
    SNAPSHOT_HEAD_BYTES = 10        # version i16, crc u32, count i32
    SNAPSHOT_ENTRY_BYTES = 46
    SNAPSHOT_VERSION = 1
    EPOCHS_LIMIT = 1 << 26          # largest leader-epoch-checkpoint that is read

cdef const char* EPOCHS_NAME = b"leader-epoch-checkpoint"
cdef const char* EPOCHS_TEMPORARY = b"leader-epoch-checkpoint.tmp"


# -- snapshots --------------------------------------------------------------------------------------------------------


cdef int load_snapshot_entries(LogState* state, const uint8_t* p, int64_t count) noexcept nogil:
    cdef LoadedProducer* producer
    cdef LoadedBatch* batch
    cdef int32_t last_sequence
    cdef int32_t delta
    cdef int64_t last_offset
    while count > 0:
        producer = find_loaded(state, <int64_t>load64(p), True)
        if producer == NULL:
            return -ENOMEM
        producer.producer_epoch = <int16_t>load16(p + 8)
        last_sequence = <int32_t>load32(p + 10)
        last_offset = <int64_t>load64(p + 14)
        delta = <int32_t>load32(p + 22)
        producer.last_timestamp = <int64_t>load64(p + 26)
        producer.coordinator_epoch = <int32_t>load32(p + 34)
        producer.current_txn_first_offset = <int64_t>load64(p + 38)
        producer.batch_count = 0
        producer.last_offset = last_offset
        if last_offset >= 0:
            batch = &producer.batches[0]
            batch.base_sequence = base_sequence_of(last_sequence, delta)
            batch.last_sequence = last_sequence
            batch.base_offset = last_offset - delta
            batch.last_offset = last_offset
            batch.timestamp = producer.last_timestamp
            producer.batch_count = 1
        p += SNAPSHOT_ENTRY_BYTES
        count -= 1
    return 0


cdef bint is_snapshot(const uint8_t* p, int64_t n) noexcept nogil:
    """Whether these bytes are a complete snapshot."""
    if n < SNAPSHOT_HEAD_BYTES or load16(p) != SNAPSHOT_VERSION or load32(p + 2) != crc32c(0, p + 6, <size_t>n - 6):
        return False
    return n == SNAPSHOT_HEAD_BYTES + <int64_t>load32(p + 6) * SNAPSHOT_ENTRY_BYTES


cdef int parse_snapshot(LogState* state, const uint8_t* p, int64_t n) noexcept nogil:
    clear_producers(state)
    if not is_snapshot(p, n):
        return 1
    return load_snapshot_entries(state, p + SNAPSHOT_HEAD_BYTES, <int64_t>load32(p + 6))


cdef int read_small_file(int directory, const char* name, uint8_t** content, int64_t* n) noexcept nogil:
    """Read the whole file into malloc'ed memory, which the caller frees. Returns 0, or -errno."""
    cdef struct_stat status
    cdef int error = 0
    cdef int descriptor = file_open(directory, name, O_RDONLY)
    content[0] = NULL
    n[0] = 0
    if descriptor < 0:
        return -errno
    if fstat(descriptor, &status) < 0:
        error = -errno
    else:
        content[0] = <uint8_t*>malloc(<size_t>status.st_size + 1)
        if content[0] == NULL:
            error = -ENOMEM
        else:
            n[0] = read_at(descriptor, content[0], <size_t>status.st_size, 0)
            if n[0] < 0:
                error = <int>n[0]
    close(descriptor)
    return error


cdef int read_snapshot(LogState* state, int directory, int64_t offset) noexcept nogil:
    cdef char[64] name
    cdef uint8_t* content = NULL
    cdef int64_t n = 0
    cdef int error
    file_name(name, offset, FILE_SNAPSHOT, b"")
    error = read_small_file(directory, name, &content, &n)
    if error == 0:
        error = parse_snapshot(state, content, n)
        if error:
            clear_producers(state)
    free(content)
    return error


cdef int check_snapshot(int directory, int64_t offset) noexcept nogil:
    cdef char[64] name
    cdef uint8_t* content = NULL
    cdef int64_t n = 0
    cdef int error
    file_name(name, offset, FILE_SNAPSHOT, b"")
    error = read_small_file(directory, name, &content, &n)
    if error == 0 and not is_snapshot(content, n):
        error = 1
    free(content)
    return error


# -- leader epochs ----------------------------------------------------------------------------------------------------


cdef int parse_number(const uint8_t** p, const uint8_t* end, int64_t* out) noexcept nogil:
    """Parse a decimal number and the white space after it; -1 if there is none."""
    cdef const uint8_t* at = p[0]
    cdef int64_t value = 0
    cdef bint negative = at < end and at[0] == c"-"
    cdef int digits = 0
    if negative:
        at += 1
    while at < end and c"0" <= at[0] <= c"9" and digits < 18:
        value = value * 10 + (at[0] - c"0")
        digits += 1
        at += 1
    if digits == 0 or (at < end and at[0] != c" " and at[0] != c"\n" and at[0] != c"\r"):
        return -1
    while at < end and (at[0] == c" " or at[0] == c"\n" or at[0] == c"\r"):
        at += 1
    p[0] = at
    out[0] = -value if negative else value
    return 0


cdef int parse_epochs(LogState* state, const uint8_t* p, const uint8_t* end) noexcept nogil:
    cdef int64_t version = -1
    cdef int64_t count = 0
    cdef int64_t epoch = 0
    cdef int64_t start_offset = 0
    cdef EpochEntry* entry
    if p == end:
        return 0
    if parse_number(&p, end, &version) or version != 0 or parse_number(&p, end, &count) or count < 0:
        return 1
    while p < end:
        if parse_number(&p, end, &epoch) or parse_number(&p, end, &start_offset) or not 0 <= epoch <= 0x7FFFFFFF:
            return 1
        entry = <EpochEntry*>append_item(&state.epochs)
        if entry == NULL:
            return -ENOMEM
        entry.epoch = <int32_t>epoch
        entry.start_offset = start_offset
        count -= 1
    return 0 if count == 0 else 1


cdef int read_epochs(LogState* state, int directory) noexcept nogil:
    cdef uint8_t* content = NULL
    cdef int64_t n = 0
    cdef int error = read_small_file(directory, EPOCHS_NAME, &content, &n)
    cdef bint zeros = False, torn
    state.epochs.count = 0
    if error == -ENOENT:
        return 0
    while n > 0 and content[n - 1] == 0:        # after a power loss a file may end in zeros, where the last epoch was not written yet
        n -= 1
        zeros = True
    if zeros:
        state.epochs_changed = True
    if error == 0:
        torn = zeros and n > 0 and content[n - 1] != 10     # a part of a number must not look like a smaller one
        error = 1 if torn or n > EPOCHS_LIMIT else parse_epochs(state, content, content + n)
        if error == 1:
            state.epochs.count = 0
            state.epochs_changed = True
            error = add_event(state, EVENT_CORRUPT_EPOCHS, FILE_EPOCHS, 0, 0, 0, n)
    free(content)
    return error


cdef int write_epochs(LogState* state, int directory) noexcept nogil:
    cdef size_t room = 64 + <size_t>state.epochs.count * 40
    cdef char* text = <char*>malloc(room)
    cdef EpochEntry* entry
    cdef size_t n
    cdef int64_t number
    cdef int error
    if text == NULL:
        return -ENOMEM
    n = <size_t>snprintf(text, room, b"0\n%lld\n", <long long>state.epochs.count)
    for number in range(state.epochs.count):
        entry = <EpochEntry*>state.epochs.items + number
        n += <size_t>snprintf(text + n, room - n, b"%d %lld\n", entry.epoch, <long long>entry.start_offset)
    error = replace_small_file(state, directory, EPOCHS_NAME, EPOCHS_TEMPORARY, text, n)
    free(text)
    return error


cdef int assign_epoch(LogState* state, int32_t epoch, int64_t start_offset) noexcept nogil:
    """Add an epoch that is above all known ones, with its first batch."""
    cdef EpochEntry* entries = <EpochEntry*>state.epochs.items
    cdef EpochEntry* entry
    if epoch < 0 or (state.epochs.count and entries[state.epochs.count - 1].epoch >= epoch):
        return 0
    # An epoch that began at or after this offset has left no batch; remove it.
    while state.epochs.count and entries[state.epochs.count - 1].start_offset >= start_offset:
        state.epochs.count -= 1
    entry = <EpochEntry*>append_item(&state.epochs)
    if entry == NULL:
        return -ENOMEM
    entry.epoch = epoch
    entry.start_offset = start_offset
    state.epochs_changed = True
    return 0


cdef int fit_epochs(LogState* state, int64_t log_start_offset, int64_t log_end_offset) noexcept nogil:
    """Drop epochs that begin at `log_end_offset` or later, and all but the last of those that begin at or before the log start.
    """
    cdef EpochEntry* entries = <EpochEntry*>state.epochs.items
    cdef int64_t dropped = 0
    while state.epochs.count and entries[state.epochs.count - 1].start_offset >= log_end_offset:
        state.epochs.count -= 1
        state.epochs_changed = True
    while dropped + 1 < state.epochs.count and entries[dropped + 1].start_offset <= log_start_offset:
        dropped += 1
    if dropped:
        state.epochs.count -= dropped
        memmove(entries, entries + dropped, <size_t>state.epochs.count * sizeof(EpochEntry))
        state.epochs_changed = True
    if state.epochs.count and entries[0].start_offset < log_start_offset:
        entries[0].start_offset = log_start_offset
        state.epochs_changed = True
    return 0


# -- files ------------------------------------------------------------------------------------------------------------


cdef int replace_small_file(LogState* state, int directory, const char* name, const char* temporary,
                            const void* content, size_t n) noexcept nogil:
    cdef int descriptor
    cdef int error = about_to_change(state)
    if error:
        return error
    descriptor = file_open(directory, temporary, O_WRONLY | O_CREAT | O_TRUNC)
    if descriptor < 0:
        return -errno
    error = write_at(descriptor, content, n, 0)
    close(descriptor)
    if error:
        return error
    error = about_to_change(state)
    if error:
        return error
    return -errno if file_rename(directory, temporary, name) < 0 else 0


cdef void file_name(char* out, int64_t base_offset, int kind, const char* suffix) noexcept nogil:
    cdef const char* extension = b".log"
    if kind == FILE_INDEX:
        extension = b".index"
    elif kind == FILE_TIME_INDEX:
        extension = b".timeindex"
    elif kind == FILE_TXN_INDEX:
        extension = b".txnindex"
    elif kind == FILE_SNAPSHOT:
        extension = b".snapshot"
    snprintf(out, 64, b"%020lld%s%s", <long long>base_offset, extension, suffix)
