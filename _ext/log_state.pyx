"""What opening a partition's log finds out: offsets, leader epochs, producers, and what had to be repaired.

Owned by the thread that loads one log; nothing is shared. The producers' rules are those of Kafka's
ProducerAppendInfo for batches that are in the log already: no check of sequences, the last five batches a producer,
transactions from their first batch to their marker.
"""

from libc.errno cimport ENOENT, ENOMEM, errno
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memmove, memset
from posix.fcntl cimport O_CREAT, O_RDONLY, O_TRUNC, O_WRONLY

from broker._ext.crc32c cimport crc32c
from broker._ext.log_scan cimport read_at, write_at
from broker._ext.records cimport (
    BatchInfo,
    load16,
    load32,
    load64,
    read_varint,
    read_varlong,
    store16,
    store32,
    store64,
)


cdef extern from "<errno.h>" nogil:
    int ECANCELED


cdef extern from "<fcntl.h>" nogil:
    int O_CLOEXEC
    int openat(int directory, const char* path, int flags, ...)


cdef extern from "<unistd.h>" nogil:
    int close(int descriptor)


cdef extern from "<sys/stat.h>" nogil:
    struct stat_result "stat":
        int64_t st_size
    int fstat(int descriptor, stat_result* out)


cdef extern from "<stdio.h>" nogil:
    int renameat(int from_directory, const char* from_path, int to_directory, const char* to_path)


cdef enum:
    BATCHES_KEPT = 5
    SNAPSHOT_HEAD_BYTES = 10        # version i16, crc u32, count i32
    SNAPSHOT_ENTRY_BYTES = 46
    SNAPSHOT_VERSION = 1
    EPOCHS_LIMIT = 1 << 26          # bytes of a leader-epoch-checkpoint that we are willing to read
    MARKER_ABORT = 0
    MARKER_COMMIT = 1

cdef const char* EPOCHS_NAME = b"leader-epoch-checkpoint"
cdef const char* EPOCHS_TEMPORARY = b"leader-epoch-checkpoint.tmp"


cdef void init_state(LogState* state) noexcept nogil:
    memset(state, 0, sizeof(LogState))
    state.segments.item_bytes = sizeof(Segment)
    state.epochs.item_bytes = sizeof(EpochEntry)
    state.producers.item_bytes = sizeof(LoadedProducer)
    state.events.item_bytes = sizeof(Event)
    state.slots.item_bytes = sizeof(int32_t)
    state.first_open_txn_offset = -1
    state.changes_left = -1


cdef void free_state(LogState* state) noexcept nogil:
    free(state.segments.items)
    free(state.epochs.items)
    free(state.producers.items)
    free(state.events.items)
    free(state.slots.items)
    init_state(state)


cdef void* append_item(Array* array) noexcept nogil:
    cdef int64_t room
    cdef void* items
    cdef void* item
    if array.count == array.room:
        room = array.room * 2 if array.room else 8
        items = realloc(array.items, <size_t>room * array.item_bytes)
        if items == NULL:
            return NULL
        array.items = items
        array.room = room
    item = <char*>array.items + array.count * <int64_t>array.item_bytes
    memset(item, 0, array.item_bytes)
    array.count += 1
    return item


cdef int add_event(LogState* state, int what, int kind, int64_t base_offset, int64_t offset, int64_t position,
                   int64_t lost_bytes) noexcept nogil:
    cdef Event* event = <Event*>append_item(&state.events)
    if event == NULL:
        return -ENOMEM
    event.what = what
    event.kind = kind
    event.base_offset = base_offset
    event.offset = offset
    event.position = position
    event.lost_bytes = lost_bytes
    return 0


cdef int about_to_change(LogState* state) noexcept nogil:
    if state.changes_left == 0:
        return -ECANCELED
    if state.changes_left > 0:
        state.changes_left -= 1
    return 0


# -- producers --------------------------------------------------------------------------------------------------------


cdef void clear_producers(LogState* state) noexcept nogil:
    state.producers.count = 0
    if state.slots.items != NULL:
        memset(state.slots.items, 0xFF, <size_t>state.slots.room * sizeof(int32_t))


cdef inline int64_t home_slot(int64_t producer_id, int64_t room) noexcept nogil:
    cdef uint64_t mixed = <uint64_t>producer_id * <uint64_t>11400714819323198485u
    return <int64_t>(mixed >> 32) & (room - 1)


cdef int grow_slots(LogState* state) noexcept nogil:
    """Twice the room, at least 16, all producers hashed anew."""
    cdef int64_t room = state.slots.room * 2 if state.slots.room else 16
    cdef int32_t* slots = <int32_t*>malloc(<size_t>room * sizeof(int32_t))
    cdef LoadedProducer* producers = <LoadedProducer*>state.producers.items
    cdef int64_t at
    cdef int64_t number
    if slots == NULL:
        return -ENOMEM
    memset(slots, 0xFF, <size_t>room * sizeof(int32_t))
    for number in range(state.producers.count):
        at = home_slot(producers[number].producer_id, room)
        while slots[at] >= 0:
            at = (at + 1) & (room - 1)
        slots[at] = <int32_t>number
    free(state.slots.items)
    state.slots.items = slots
    state.slots.room = room
    return 0


cdef LoadedProducer* find_loaded(LogState* state, int64_t producer_id, bint create) noexcept nogil:
    cdef int32_t* slots
    cdef LoadedProducer* producer
    cdef int64_t at
    if state.producers.count * 2 >= state.slots.room and grow_slots(state):
        return NULL
    slots = <int32_t*>state.slots.items
    at = home_slot(producer_id, state.slots.room)
    while slots[at] >= 0:
        producer = <LoadedProducer*>state.producers.items + slots[at]
        if producer.producer_id == producer_id:
            return producer
        at = (at + 1) & (state.slots.room - 1)
    if not create:
        return NULL
    producer = <LoadedProducer*>append_item(&state.producers)
    if producer == NULL:
        return NULL
    slots[at] = <int32_t>(state.producers.count - 1)
    producer.producer_id = producer_id
    producer.producer_epoch = -1
    producer.coordinator_epoch = -1
    producer.last_timestamp = -1
    producer.current_txn_first_offset = -1
    return producer


cdef inline int32_t sequence_after(int32_t base_sequence, int32_t delta) noexcept nogil:
    """Sequences run from 0 to 2^31-1 and begin again; -1 (no sequence) stays."""
    if base_sequence < 0:
        return -1
    return <int32_t>((<int64_t>base_sequence + delta) & 0x7FFFFFFF)


cdef inline int32_t sequence_before(int32_t last_sequence, int32_t delta) noexcept nogil:
    if last_sequence < 0:
        return -1
    return <int32_t>((<int64_t>last_sequence - delta) & 0x7FFFFFFF)


cdef void set_epoch(LoadedProducer* producer, int16_t epoch) noexcept nogil:
    if producer.producer_epoch != epoch:
        producer.batch_count = 0
        producer.producer_epoch = epoch


cdef void add_batch(LoadedProducer* producer, const BatchInfo* info) noexcept nogil:
    cdef LoadedBatch* batch
    set_epoch(producer, info.producer_epoch)
    if producer.batch_count == BATCHES_KEPT:
        memmove(&producer.batches[0], &producer.batches[1], (BATCHES_KEPT - 1) * sizeof(LoadedBatch))
        producer.batch_count -= 1
    batch = &producer.batches[producer.batch_count]
    producer.batch_count += 1
    batch.base_sequence = info.base_sequence
    batch.last_sequence = sequence_after(info.base_sequence, info.last_offset_delta)
    batch.base_offset = info.base_offset
    batch.last_offset = info.base_offset + info.last_offset_delta
    batch.timestamp = info.max_timestamp
    producer.last_timestamp = info.max_timestamp
    if info.transactional and producer.current_txn_first_offset < 0:
        producer.current_txn_first_offset = info.base_offset


cdef int parse_marker(const BatchInfo* info, const uint8_t* record, size_t n, int* control_type,
                      int32_t* coordinator_epoch, int64_t* timestamp) noexcept nogil:
    """The end marker in a control batch's first record; -1 when it is none."""
    cdef const uint8_t* p = record
    cdef const uint8_t* end = record + n
    cdef int32_t length = 0
    cdef int64_t delta = 0
    if record == NULL or read_varint(&p, end, &length) or length < 1 or length > end - p:
        return -1
    end = p + length
    p += 1
    if read_varlong(&p, end, &delta) or read_varint(&p, end, &length):
        return -1
    if read_varint(&p, end, &length) or length < 4 or length > end - p:
        return -1
    control_type[0] = load16(p + 2)
    p += length
    if read_varint(&p, end, &length) or length < 6 or length > end - p:
        return -1
    coordinator_epoch[0] = <int32_t>load32(p + 2)
    timestamp[0] = info.max_timestamp if info.log_append_time else info.base_timestamp + delta
    return 0


cdef int replay_batch(LogState* state, const BatchInfo* info, const uint8_t* record, size_t n,
                      bint* aborted, int64_t* first_offset) noexcept nogil:
    cdef LoadedProducer* producer
    cdef int control_type = -1
    cdef int32_t coordinator_epoch = -1
    cdef int64_t timestamp = -1
    aborted[0] = False
    if info.producer_id < 0:
        return 0
    if info.control:
        if parse_marker(info, record, n, &control_type, &coordinator_epoch, &timestamp):
            return 0    # An emptied batch: compaction removed the whole transaction.
        if control_type != MARKER_ABORT and control_type != MARKER_COMMIT:
            return 0
    producer = find_loaded(state, info.producer_id, True)
    if producer == NULL:
        return -ENOMEM
    if not info.control:
        add_batch(producer, info)
        return 0
    if producer.current_txn_first_offset >= 0:
        first_offset[0] = producer.current_txn_first_offset
        aborted[0] = control_type == MARKER_ABORT
    set_epoch(producer, info.producer_epoch)
    producer.coordinator_epoch = coordinator_epoch
    producer.last_timestamp = timestamp
    producer.current_txn_first_offset = -1
    return 0


cdef int64_t first_open_txn(LogState* state, int64_t except_producer_id) noexcept nogil:
    cdef LoadedProducer* producers = <LoadedProducer*>state.producers.items
    cdef int64_t found = -1
    cdef int64_t number
    cdef int64_t first
    for number in range(state.producers.count):
        first = producers[number].current_txn_first_offset
        if first >= 0 and (found < 0 or first < found) and producers[number].producer_id != except_producer_id:
            found = first
    return found


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
        if last_offset >= 0:
            batch = &producer.batches[0]
            batch.base_sequence = sequence_before(last_sequence, delta)
            batch.last_sequence = last_sequence
            batch.base_offset = last_offset - delta
            batch.last_offset = last_offset
            batch.timestamp = producer.last_timestamp
            producer.batch_count = 1
        p += SNAPSHOT_ENTRY_BYTES
        count -= 1
    return 0


cdef int parse_snapshot(LogState* state, const uint8_t* p, int64_t n) noexcept nogil:
    cdef int64_t count
    clear_producers(state)
    if n < SNAPSHOT_HEAD_BYTES or load16(p) != SNAPSHOT_VERSION or load32(p + 2) != crc32c(0, p + 6, <size_t>n - 6):
        return 1
    count = <int32_t>load32(p + 6)
    if count < 0 or n != SNAPSHOT_HEAD_BYTES + count * SNAPSHOT_ENTRY_BYTES:
        return 1
    return load_snapshot_entries(state, p + SNAPSHOT_HEAD_BYTES, count)


cdef int read_small_file(int directory, const char* name, uint8_t** content, int64_t* n) noexcept nogil:
    """The whole file in malloc'ed memory, which the caller frees: 0, or -errno."""
    cdef stat_result status
    cdef int error = 0
    cdef int descriptor = openat(directory, name, O_RDONLY | O_CLOEXEC)
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


cdef int write_snapshot(LogState* state, int directory, int64_t offset) noexcept nogil:
    cdef char[64] name
    cdef char[64] temporary
    cdef size_t n = SNAPSHOT_HEAD_BYTES + <size_t>state.producers.count * SNAPSHOT_ENTRY_BYTES
    cdef uint8_t* content = <uint8_t*>malloc(n)
    cdef uint8_t* p = content + SNAPSHOT_HEAD_BYTES
    cdef LoadedProducer* producer
    cdef LoadedBatch* last
    cdef int64_t number
    cdef int error
    if content == NULL:
        return -ENOMEM
    for number in range(state.producers.count):
        producer = <LoadedProducer*>state.producers.items + number
        last = &producer.batches[producer.batch_count - 1] if producer.batch_count else NULL
        store64(p, <uint64_t>producer.producer_id)
        store16(p + 8, <uint16_t>producer.producer_epoch)
        store32(p + 10, <uint32_t>(last.last_sequence if last else -1))
        store64(p + 14, <uint64_t>(last.last_offset if last else -1))
        store32(p + 22, <uint32_t>(last.last_offset - last.base_offset if last else 0))
        store64(p + 26, <uint64_t>producer.last_timestamp)
        store32(p + 34, <uint32_t>producer.coordinator_epoch)
        store64(p + 38, <uint64_t>producer.current_txn_first_offset)
        p += SNAPSHOT_ENTRY_BYTES
    store16(content, SNAPSHOT_VERSION)
    store32(content + 6, <uint32_t>state.producers.count)
    store32(content + 2, crc32c(0, content + 6, n - 6))
    file_name(name, offset, FILE_SNAPSHOT, b"")
    file_name(temporary, offset, FILE_SNAPSHOT, b".cleaned")
    error = replace_small_file(state, directory, name, temporary, content, n)
    free(content)
    return error


# -- leader epochs ----------------------------------------------------------------------------------------------------


cdef int parse_number(const uint8_t** p, const uint8_t* end, int64_t* out) noexcept nogil:
    """A decimal number and the white space behind it; -1 when there is none."""
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
    state.epochs.count = 0
    if error == -ENOENT:
        return 0
    if error == 0:
        error = 1 if n > EPOCHS_LIMIT else parse_epochs(state, content, content + n)
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
    """Notes the first batch of an epoch above all known."""
    cdef EpochEntry* entry = <EpochEntry*>state.epochs.items + state.epochs.count - 1
    if epoch < 0 or (state.epochs.count and entry.epoch >= epoch):
        return 0
    # An epoch that began at or behind this offset without leaving a batch never was.
    while state.epochs.count and entry.start_offset >= start_offset:
        state.epochs.count -= 1
        entry -= 1
    entry = <EpochEntry*>append_item(&state.epochs)
    if entry == NULL:
        return -ENOMEM
    entry.epoch = epoch
    entry.start_offset = start_offset
    state.epochs_changed = True
    return 0


cdef int fit_epochs(LogState* state, int64_t log_start_offset, int64_t log_end_offset) noexcept nogil:
    """Drops epochs that begin at the log's end or later, and all but the last that end before its start."""
    cdef EpochEntry* entries = <EpochEntry*>state.epochs.items
    cdef int64_t gone = 0
    while state.epochs.count and entries[state.epochs.count - 1].start_offset >= log_end_offset:
        state.epochs.count -= 1
        state.epochs_changed = True
    while gone + 1 < state.epochs.count and entries[gone + 1].start_offset <= log_start_offset:
        gone += 1
    if gone:
        state.epochs.count -= gone
        memmove(entries, entries + gone, <size_t>state.epochs.count * sizeof(EpochEntry))
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
    descriptor = openat(directory, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o644)
    if descriptor < 0:
        return -errno
    error = write_at(descriptor, content, n, 0)
    close(descriptor)
    if error:
        return error
    error = about_to_change(state)
    if error:
        return error
    return -errno if renameat(directory, temporary, directory, name) < 0 else 0


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
