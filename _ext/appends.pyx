"""Append, roll, truncate, recover; see appends.pxd.

Every function here that changes a log runs with the slot's mutex held by the calling thread, allocates nothing and needs no
GIL.
"""

from libc.errno cimport EBADMSG, EIO, ENOENT, ENOMEM, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy, memmove, memset
from posix.fcntl cimport O_CREAT, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY
from posix.unistd cimport close

from broker._ext.append_files cimport (
    AppendFiles,
    directory_path,
    drop_files,
    index_file,
    open_at,
    open_directory,
    open_in_slot,
    release_files,
    segment_path,
    take_files,
)
from broker._ext.atomics cimport fault_point, fence, fence_release, store_release_32, store_release_64
from broker._ext.faults cimport *
from broker._ext.file_calls cimport (
    file_pwrite,
    file_pwritev,
    file_rename,
    file_sync,
    file_truncate,
    file_unlink,
    iovec,
)
from broker._ext.locks cimport LOCK_BUSY, LOCK_OWNER_DIED, LOCK_TAKEN, LockResult, mark_consistent, try_lock, unlock
from broker._ext.log_dirs cimport is_device_failure, is_full, note_device
from broker._ext.log_scan cimport SCAN_BATCH, SCAN_END, Scanner, read_at, scan_batch, scan_file, scan_window, write_at
from broker._ext.log_state cimport FILE_INDEX, FILE_LOG, FILE_SNAPSHOT, FILE_TIME_INDEX, FILE_TXN_INDEX
from broker._ext.lookup cimport LOOKUP_FOUND, FoundBatch, find_position
from broker._ext.old_messages cimport MESSAGE_HEADER_BYTES, message_crc_matches, parse_message
from broker._ext.producers cimport (
    ARENA_BUSY,
    ARENA_FULL,
    ARENA_READY,
    PRODUCER_DUPLICATE,
    PRODUCER_FENCED,
    PRODUCER_NEXT,
    PRODUCER_OUT_OF_ORDER,
    ArenaResult,
    ProducerBatch,
    ProducerCheck,
    ProducerEntry,
    apply_batch,
    apply_marker,
    check_sequence,
    find_producer,
    first_unstable_without,
    forget_producers,
    read_snapshot,
    recount_producers,
    reserve_producer,
    settle_last_stable,
    write_snapshot,
)
from broker._ext.records cimport (
    AT_BASE_OFFSET,
    AT_PARTITION_LEADER_EPOCH,
    AT_RECORDS,
    BATCH_HEADER_BYTES,
    ERROR_INVALID_RECORD,
    BatchInfo,
    check_batch,
    load16,
    load32,
    load64,
    parse_batch_header,
    read_varint,
    read_varlong,
    set_max_timestamp,
    store32,
    store64,
)
from broker._ext.removal cimport INTENT_REMOVE, finish_removal
from broker._ext.shared cimport (
    DISK_FULL,
    EPOCHS_KEPT,
    RECENT_KEPT,
    ROLE_FOLLOWER,
    ROLE_LEADER,
    SLOT_LOADING,
    SLOT_OFFLINE,
    SLOT_ONLINE,
    Commit,
    RecentBatch,
    Slot,
    region,
    slot_at,
    wake_slot,
)
from broker._ext.swapping cimport INTENT_SWAP, drop_swaps, finish_swap


cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef extern from "<dirent.h>" nogil:
    ctypedef struct DIR:
        pass
    struct dirent:
        char d_name[256]
    DIR* fdopendir(int fd)
    dirent* readdir(DIR*)
    int closedir(DIR*)

cdef extern from "<stdlib.h>" nogil:
    long long strtoll(const char* text, char** end, int radix)

cdef extern from "<string.h>" nogil:
    int strcmp(const char* a, const char* b)


cdef enum:
    ERROR_OUT_OF_ORDER_SEQUENCE = 45
    ERROR_INVALID_PRODUCER_EPOCH = 47
    ERROR_STORAGE = 56
    ERROR_NOT_ENOUGH_REPLICAS = 19    # what producers are told of a full disk; see docs/decisions/0011
    ERROR_BATCH_TOO_LARGE = 18    # RECORD_LIST_TOO_LARGE: larger than a segment can be

cdef enum Intent:                 # of a structural change, for whoever must finish it [R 4]; 2 is in removal.pxd, 3 in swapping.pxd
    INTENT_NONE = 0
    INTENT_TRUNCATE = 1           # arguments: offset, segment that holds it, position in it

cdef enum:
    EPOCH_FILE_BYTES = 65536      # of the leader-epoch checkpoint that are kept: thousands of epochs


cdef inline void fault(int point) noexcept nogil:
    fault_point(region().header.fault, <uint64_t>point)


# -- commit -------------------------------------------------------------------------------------------------------

cdef inline Commit* current(Slot* slot) noexcept nogil:
    return &slot.commits[slot.sequence & 1]


cdef void publish(Slot* slot, const Commit* commit) noexcept nogil:
    fence_release()     # who sees the block being filled sees that the other one was published before, and tries again
    memcpy(&slot.commits[(slot.sequence + 1) & 1], commit, sizeof(Commit))
    fault(APPEND_BLOCK_FILLED)
    store_release_64(&slot.sequence, slot.sequence + 1)


cdef inline void new_generation(Slot* slot) noexcept nogil:
    store_release_64(&slot.generation, slot.generation + 1)


cdef void wake_after(uint32_t index, Slot* slot, bint log_end, bint committed) noexcept nogil:
    """Wake who waits for what moved [R 6]. The fence pairs with the waiter's between setting its bit and its second look."""
    cdef uint64_t mask = 0
    fence()
    if log_end and slot.waiters_log_end:
        mask |= swap_mask(&slot.waiters_log_end)
    if committed and slot.waiters_committed:
        mask |= swap_mask(&slot.waiters_committed)
    if mask:
        wake_slot(index, mask)


cdef void wake_flushed(uint32_t index, Slot* slot) noexcept nogil:
    cdef uint64_t mask
    fence()
    if slot.waiters_flushed:
        mask = swap_mask(&slot.waiters_flushed)
        if mask:
            wake_slot(index, mask)


cdef void wake_everyone(uint32_t index, Slot* slot) noexcept nogil:
    wake_after(index, slot, True, True)
    wake_flushed(index, slot)


cdef extern from *:
    """
    static inline uint64_t swap_mask(uint64_t *p) { return __atomic_exchange_n(p, 0, __ATOMIC_SEQ_CST); }
    """
    uint64_t swap_mask(uint64_t* p) noexcept nogil


# -- redo and recovery --------------------------------------------------------------------------------------------

cdef int read_marker(Scanner* scanner, int64_t position, BatchInfo* info, int32_t* coordinator_epoch, int* kind) noexcept nogil:
    """The kind (0 abort, 1 commit) and coordinator epoch of a control batch's record; 0, or -1 if it is no marker."""
    cdef int error = 0
    cdef const uint8_t* p = scan_window(scanner, position, min(info.size, 512), &error)
    return -1 if p == NULL else parse_marker(p, min(info.size, 512), coordinator_epoch, kind)


cdef int parse_marker(const uint8_t* batch, int64_t size, int32_t* coordinator_epoch, int* kind) noexcept nogil:
    cdef const uint8_t* p = batch + AT_RECORDS
    cdef const uint8_t* end = batch + size
    cdef int32_t n = 0
    cdef int64_t wide = 0
    if size < BATCH_HEADER_BYTES + 1:
        return -1
    if read_varint(&p, end, &n) != 0 or end - p < 1:
        return -1
    p += 1
    if read_varlong(&p, end, &wide) != 0 or read_varint(&p, end, &n) != 0 or read_varint(&p, end, &n) != 0:
        return -1
    if n < 4 or end - p < n:
        return -1
    kind[0] = load16(p + 2)
    p += n
    if read_varint(&p, end, &n) != 0 or n < 6 or end - p < 6:
        return -1
    coordinator_epoch[0] = <int32_t>((<uint32_t>p[2] << 24) | (<uint32_t>p[3] << 16) | (<uint32_t>p[4] << 8) | p[5])
    return 0


cdef void apply_one(Slot* slot, BatchInfo* info, int64_t base_offset, int32_t coordinator_epoch,
                    int64_t timestamp) noexcept nogil:
    """Take one committed batch into the producers' and transactions' state; doing it again changes nothing."""
    cdef int64_t last_offset = base_offset + info.last_offset_delta
    if info.producer_id < 0:
        return
    if info.control:
        apply_marker(slot, info.producer_id, info.producer_epoch, coordinator_epoch, last_offset, timestamp)
    else:
        apply_batch(slot, info.producer_id, info.producer_epoch, info.base_sequence, base_offset, last_offset, timestamp,
                    info.transactional)


cdef inline int64_t applied_position(Slot* slot, Commit* commit) noexcept nogil:
    """Where in the active segment the redo begins: what was applied of another segment does not count."""
    return slot.applied_position if slot.applied_base == commit.segment_base else 0


cdef inline void set_applied(Slot* slot, int64_t base, int64_t position) noexcept nogil:
    # The position first: with the old base it is not looked at, so that no mix of the two skips a batch.
    if slot.applied_base != base:
        store_release_64(<uint64_t*>&slot.applied_base, <uint64_t>-1)
    store_release_64(<uint64_t*>&slot.applied_position, <uint64_t>position)
    store_release_64(<uint64_t*>&slot.applied_base, <uint64_t>base)


cdef int reserve_patiently(uint32_t index, Slot* slot, int64_t producer_id) noexcept nogil:
    """Room for a producer where there is no turning back: 0, or -ENOMEM when the arena is full of open transactions.

    Who has the arena's mutex chooses a run and is done; if it was stopped, the supervisor ends it, for it holds a slot's lock.
    """
    cdef ArenaResult result = reserve_producer(index, slot, producer_id, 0)
    while result == ARENA_BUSY:
        sched_yield()
        result = reserve_producer(index, slot, producer_id, 0)
    return 0 if result == ARENA_READY else -ENOMEM


cdef int redo(uint32_t index, Slot* slot) noexcept nogil:
    """Apply the committed batches from `applied` to the committed size; 0, or -errno. Idempotent."""
    cdef uint8_t[4096] buffer
    cdef Scanner scanner
    cdef BatchInfo info
    cdef Commit* commit = current(slot)
    cdef int64_t position = applied_position(slot, commit), size = commit.size
    cdef int32_t coordinator_epoch = -1
    cdef int fd, result, kind = 0
    if position < size:
        fd = open_in_slot(slot, commit.segment_base, FILE_LOG, O_RDONLY)
        if fd < 0:
            return fd
        scan_file(&scanner, fd, size, buffer, sizeof(buffer))
        while position < size:
            result = scan_batch(&scanner, position, &info)
            if result != SCAN_BATCH:
                close(fd)
                return result if result < 0 else -EBADMSG
            if info.control:
                read_marker(&scanner, position, &info, &coordinator_epoch, &kind)
            if info.producer_id >= 0:
                result = reserve_patiently(index, slot, info.producer_id)
                if result != 0:
                    close(fd)
                    return result
            apply_one(slot, &info, info.base_offset, coordinator_epoch, info.max_timestamp)
            fault(RECOVER_APPLIED_ONE)
            position += info.size
        close(fd)
    recount_producers(slot)             # a batch may be in its entry, and not in what is derived from the entries
    set_applied(slot, commit.segment_base, size)
    settle_last_stable(slot, commit.high_watermark)
    return 0


cdef void clear_recent(Slot* slot) noexcept nogil:
    if slot.recent_sequence & 1 == 0:
        store_release_32(&slot.recent_sequence, slot.recent_sequence + 1)
        fence_release()
    memset(slot.recent, 0xFF, sizeof(slot.recent))
    store_release_32(&slot.recent_sequence, slot.recent_sequence + 1)


cdef int cut_file(Slot* slot, int64_t base, int kind, int64_t size) noexcept nogil:
    cdef int fd = open_in_slot(slot, base, kind, O_RDWR)
    cdef int result
    if fd < 0:
        return 0 if fd == -ENOENT and kind != FILE_LOG and size == 0 else fd
    result = file_truncate(fd, size)
    close(fd)
    return 0 if result == 0 else -errno


cdef int cut_to_commit(Slot* slot, const Commit* commit) noexcept nogil:
    """The active segment's files end where the commit says; 0, or -errno."""
    cdef int result = cut_file(slot, commit.segment_base, FILE_LOG, commit.size)
    if result == 0:
        result = cut_file(slot, commit.segment_base, FILE_INDEX, <int64_t>commit.index_entries * 8)
    if result == 0:
        result = cut_file(slot, commit.segment_base, FILE_TIME_INDEX, <int64_t>commit.timeindex_entries * 12)
    if result == 0:
        result = cut_file(slot, commit.segment_base, FILE_TXN_INDEX, <int64_t>commit.txnindex_entries * 34)
    return result


cdef void unlink_segment(Slot* slot, int64_t base) noexcept nogil:
    cdef char[384] path
    cdef int* kinds = [FILE_LOG, FILE_INDEX, FILE_TIME_INDEX, FILE_TXN_INDEX]
    cdef int i
    for i in range(4):
        segment_path(slot, base, kinds[i], path)
        file_unlink(region().header.log_dir_fds[slot.log_dir], path)


cdef int cut_leftover(Slot* slot) noexcept nogil:
    """Cut what a failed write left behind the commit, if that could not be done then; 0, or -errno."""
    cdef int result = 0
    if slot.uncut:
        result = cut_to_commit(slot, current(slot))
        slot.uncut = result != 0
    return result


cdef void give_up(Slot* slot, int result) noexcept nogil:
    """A change that stopped half way: the slot is OFFLINE, or waits to be loaded anew if only room was missing."""
    note_device(slot.log_dir, result)
    if is_full(result):
        store_release_64(&slot.intent, INTENT_NONE)     # loading finds the log as far as it is cut
        store_release_32(&slot.state, SLOT_LOADING)
    else:
        store_release_32(&slot.state, SLOT_OFFLINE)


cdef int recover(uint32_t index, Slot* slot) noexcept nogil:
    """Bring a slot whose holder died back to its last commit; 0, or -errno. Safe to die in, at any point."""
    cdef Commit* commit = current(slot)
    cdef int result = 0
    slot.lock_recoveries += 1
    fault(RECOVER_STARTED)
    drop_files(index)
    if slot.state == SLOT_ONLINE:
        if slot.intent == INTENT_TRUNCATE:
            result = finish_truncation(index, slot)
            commit = current(slot)
        elif slot.intent == INTENT_REMOVE:
            result = finish_removal(slot)
        elif slot.intent == INTENT_SWAP:
            result = finish_swap(slot)
        if result == 0:
            result = read_epochs(slot)
        if result == 0:
            if commit.log_end_offset != commit.segment_base:
                unlink_segment(slot, commit.log_end_offset)     # of a roll that was not committed
            slot.uncut = 1
            result = cut_leftover(slot)
        fault(RECOVER_FILES_CUT)
        if result == 0:
            result = redo(index, slot)
        if slot.recent_sequence & 1:
            clear_recent(slot)
        new_generation(slot)            # the dead may have published a roll, and not said so
    fault(RECOVER_BEFORE_CONSISTENT)
    if result != 0:
        give_up(slot, result)
    return result


cdef LockResult take_slot(uint32_t index, Slot* slot, int spins) noexcept nogil:
    cdef LockResult taken = try_lock(index, slot, spins)
    if taken == LOCK_OWNER_DIED:
        recover(index, slot)
        mark_consistent(slot)           # after a failure, too: the slot is offline by then
        wake_everyone(index, slot)
        return LOCK_TAKEN
    return taken


# -- leader epochs ------------------------------------------------------------------------------------------------

cdef void assign_epoch(Slot* slot, int32_t epoch, int64_t start_offset) noexcept nogil:
    """Note a leader epoch, above and behind all others, in the slot: the newest EPOCHS_KEPT, in a ring that only grows;
    `epoch_count` counts all of them. What takes epochs away reads the ring anew from the file."""
    cdef int at = slot.epoch_count % EPOCHS_KEPT
    slot.epochs[at].epoch = epoch
    slot.epochs[at].start_offset = start_offset
    slot.epoch_count += 1


cdef int read_epoch_lines(Slot* slot, char* content) noexcept nogil:
    """The lines "<epoch> <start offset>" of the checkpoint file, the newest EPOCH_FILE_BYTES of them; 0, or -errno."""
    cdef char[384] directory
    cdef char[512] path
    cdef char* at
    cdef int64_t size, start, length
    cdef int fd
    content[0] = 0
    directory_path(slot, directory)
    snprintf(path, 512, "%s/leader-epoch-checkpoint", directory)
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
    at = skip_line(content)             # the version, or what is left of a line
    if start == 0:
        at = skip_line(at)              # the count
    memmove(content, at, <size_t>(content + length - at) + 1)
    return 0


cdef int change_epoch_file(Slot* slot, int32_t epoch, int64_t start_offset, bint add, bint* dropped) noexcept nogil:
    """Drop the entries of `epoch` and above and those that begin at `start_offset` or behind, and add this one if wanted;
    by a temporary file, fsync (unless the log is empty) and rename. 0, or -errno."""
    cdef char[384] directory
    cdef char[512] path
    cdef char[512] temporary
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
    directory_path(slot, directory)
    snprintf(path, 512, "%s/leader-epoch-checkpoint", directory)
    snprintf(temporary, 512, "%s/leader-epoch-checkpoint.tmp", directory)
    fd = open_at(slot, temporary, O_WRONLY | O_CREAT | O_TRUNC)
    if fd < 0:
        return fd
    length = snprintf(head, 64, "0\n%d\n", kept)
    result = write_at(fd, head, <size_t>length, 0)
    if result == 0:
        result = write_at(fd, fresh, <size_t>body, length)
    # Of an empty log nothing is lost with this file: the next load notes the epoch again. 10,000 such syncs take seconds.
    if result == 0 and current(slot).log_end_offset > slot.log_start_offset and file_sync(fd) != 0:
        result = -errno
    close(fd)
    if result == 0 and file_rename(log_dir, temporary, path) != 0:
        result = -errno
    if result != 0:
        file_unlink(log_dir, temporary)
    return result


cdef int read_epochs(Slot* slot) noexcept nogil:
    """Take the newest EPOCHS_KEPT epochs from the checkpoint file into the slot; 0, or -errno."""
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
    """Forget the epochs that begin at `end_offset` or behind, as of a log that ends there: the file, then the slot."""
    cdef bint dropped
    cdef int result = change_epoch_file(slot, 0x7FFFFFFF, end_offset, False, &dropped)
    return read_epochs(slot) if result == 0 else result


cdef char* skip_line(char* at) noexcept nogil:
    while at[0] != 0 and at[0] != 10:
        at += 1
    return at + 1 if at[0] == 10 else at


cdef inline bint new_epoch(Slot* slot, int32_t epoch) noexcept nogil:
    return slot.epoch_count == 0 or slot.epochs[(slot.epoch_count - 1) % EPOCHS_KEPT].epoch < epoch


cdef int note_epoch(Slot* slot, int32_t epoch, int64_t start_offset) noexcept nogil:
    """The file first, then the slot; nothing where the epoch is known. 0, or -errno."""
    cdef bint dropped
    cdef int result
    if epoch < 0 or not new_epoch(slot, epoch):
        return 0
    result = change_epoch_file(slot, epoch, start_offset, True, &dropped)
    if result == 0:
        fault(APPEND_EPOCH_FILE_WRITTEN)
        if dropped:                     # an epoch that began here and left no batch never was
            return read_epochs(slot)
        assign_epoch(slot, epoch, start_offset)
    return result


cdef int write_epoch_file(Slot* slot) noexcept nogil:
    """Note the slot's own leader epoch from its log end on (becoming leader); 0, or -errno."""
    return note_epoch(slot, slot.leader_epoch, current(slot).log_end_offset)


# -- roll ---------------------------------------------------------------------------------------------------------

cdef int snapshot_producers(Slot* slot, int64_t offset) noexcept nogil:
    cdef char[384] path
    cdef char[400] temporary
    segment_path(slot, offset, FILE_SNAPSHOT, path)
    snprintf(temporary, 400, "%s.tmp", path)
    return write_snapshot(slot, region().header.log_dir_fds[slot.log_dir], path, temporary)


cdef int put_time_entry(Slot* slot, AppendFiles* files, Commit* commit) noexcept nogil:
    """An entry of the time index for the largest timestamp so far, if it is larger than the last entry's; 0, or -errno."""
    cdef uint8_t[12] entry
    cdef int fd, result
    if commit.max_timestamp <= commit.timeindexed_timestamp or commit.max_timestamp < 0:
        return 0
    fd = index_file(files, slot, FILE_TIME_INDEX)
    if fd < 0:
        return fd
    store64(entry, <uint64_t>commit.max_timestamp)
    store32(entry + 8, <uint32_t>(commit.max_timestamp_offset - commit.segment_base))
    result = write_at(fd, entry, 12, <int64_t>commit.timeindex_entries * 12)
    if result != 0:
        slot.uncut = 1
    else:
        commit.timeindex_entries += 1
        commit.timeindexed_timestamp = commit.max_timestamp
        commit.timeindexed_offset = commit.max_timestamp_offset
    return result


cdef int end_segment(uint32_t index, Slot* slot) noexcept nogil:
    """The last entry of the active segment's time index, as an ordered stop leaves it; a commit of its own. 0, or -errno."""
    cdef Commit commit = current(slot)[0]
    cdef AppendFiles* files
    cdef int32_t entries = commit.timeindex_entries
    cdef int result = 0
    result = cut_leftover(slot)
    if result != 0 or commit.max_timestamp <= commit.timeindexed_timestamp:
        return result
    files = take_files(index, slot, commit.segment_base, &result)
    if files == NULL:
        return result
    result = put_time_entry(slot, files, &commit)
    release_files(files)
    if result == 0 and commit.timeindex_entries != entries:
        publish(slot, &commit)
    return result


cdef int create_file(Slot* slot, int64_t base, int kind) noexcept nogil:
    cdef int fd = open_in_slot(slot, base, kind, O_RDWR | O_CREAT | O_TRUNC)
    if fd < 0:
        return fd
    close(fd)
    return 0


cdef void start_segment(Commit* commit, int64_t base, int64_t wall_ms) noexcept nogil:
    commit.segment_base = base
    commit.size = 0
    commit.log_end_offset = base
    commit.index_entries = commit.timeindex_entries = commit.txnindex_entries = 0
    commit.first_timestamp = commit.max_timestamp = commit.max_timestamp_offset = -1
    commit.indexed_position = 0
    commit.timeindexed_timestamp = commit.timeindexed_offset = -1
    commit.created_ms = wall_ms
    commit.rolls += 1


cdef int roll_now(uint32_t index, Slot* slot, int64_t wall_ms) noexcept nogil:
    """Begin a new active segment at the log end offset; a commit of its own, with everything applied before. 0, or -errno."""
    cdef Commit commit = current(slot)[0]
    cdef AppendFiles* files
    cdef int result = 0, i
    cdef int* kinds = [FILE_LOG, FILE_INDEX, FILE_TIME_INDEX]
    cdef int64_t base = commit.log_end_offset
    fault(ROLL_STARTED)
    if base == commit.segment_base:
        return 0                        # the active segment is empty
    result = cut_leftover(slot)         # nothing is behind the end of a segment that is no longer the active one
    if result != 0:
        return result
    files = take_files(index, slot, commit.segment_base, &result)
    if files == NULL:
        return result
    result = put_time_entry(slot, files, &commit)
    release_files(files)
    if result != 0:
        return result
    fault(ROLL_TIME_INDEX_WRITTEN)
    publish(slot, &commit)
    fault(ROLL_TIME_INDEX_COMMITTED)
    if slot.producer_run != 0:
        result = snapshot_producers(slot, base)
        if result != 0:
            return result
    fault(ROLL_SNAPSHOT_WRITTEN)
    for i in range(3):
        result = create_file(slot, base, kinds[i])
        if result != 0:
            unlink_segment(slot, base)
            return result
        if i == 0:
            fault(ROLL_LOG_CREATED)
    fault(ROLL_INDEXES_CREATED)
    if commit.high_watermark == base:
        commit.high_watermark_base = base
        commit.high_watermark_position = 0
    start_segment(&commit, base, wall_ms)
    publish(slot, &commit)
    fault(ROLL_COMMITTED)
    set_applied(slot, base, 0)
    new_generation(slot)
    return 0


cdef int64_t drawn_jitter(Slot* slot, int64_t segment_base) noexcept nogil:
    """In [0, segment.jitter.ms], the same for a segment whoever asks, and different for segments that began together."""
    cdef uint64_t mixed
    if slot.settings.segment_jitter_ms <= 0:
        return 0
    memcpy(&mixed, &slot.topic_id[8], sizeof(mixed))
    mixed ^= (<uint64_t>segment_base << 16) ^ <uint64_t>slot.partition
    mixed = (mixed ^ (mixed >> 29)) * <uint64_t>0xBF58476D1CE4E5B9
    return <int64_t>((mixed >> 8) % (<uint64_t>min(slot.settings.segment_jitter_ms, slot.settings.segment_ms) + 1))


cdef bint must_roll(Slot* slot, Commit* commit, BatchInfo* info, int64_t last_offset, int64_t wall_ms) noexcept nogil:
    """Whether the batch, which ends at `last_offset`, belongs to a new segment: size, time, full index, offset overflow
    (Kafka's rules)."""
    cdef int64_t limit_ms = slot.settings.segment_ms - drawn_jitter(slot, commit.segment_base)
    cdef int64_t batch_timestamp = info.max_timestamp
    cdef int64_t index_limit = slot.settings.index_max_bytes // 8
    if commit.size == 0:
        return False
    if commit.size > slot.settings.segment_bytes - info.size:
        return True
    if commit.first_timestamp >= 0 and batch_timestamp >= 0:
        if batch_timestamp - commit.first_timestamp > limit_ms:
            return True
    elif wall_ms - commit.created_ms > limit_ms:
        return True
    if commit.index_entries >= index_limit or commit.timeindex_entries >= slot.settings.index_max_bytes // 12 - 1:
        return True
    return last_offset - commit.segment_base > 0x7FFFFFFF


# -- append -------------------------------------------------------------------------------------------------------

cdef int check_producer(uint32_t index, Slot* slot, AppendItem* items, int at, uint32_t* pending) noexcept nogil:
    """Whether items[at] may be appended, given the slot and the items before it that will be: 1 yes, 0 no, APPEND_BUSY.

    `pending` counts the producers of this write.
    """
    cdef AppendItem* item = &items[at]
    cdef AppendItem* before
    cdef ProducerBatch duplicate
    cdef ProducerCheck check = PRODUCER_NEXT
    cdef ArenaResult arena
    cdef int64_t expected
    cdef int32_t last_sequence
    cdef bint decided = False
    cdef int i = at - 1
    if item.info.producer_id < 0:
        return 1
    expected = <int64_t>item.info.base_sequence + item.info.last_offset_delta
    last_sequence = <int32_t>(expected - 0x80000000LL if expected > 0x7FFFFFFF else expected)
    while i >= 0 and not item.info.control:     # provisional state: what this very write will have made of the producer
        before = &items[i]
        i -= 1
        if before.error != 0 or before.duplicate or before.info.producer_id != item.info.producer_id:
            continue
        if item.info.producer_epoch < before.info.producer_epoch:
            check = PRODUCER_FENCED     # by a newer epoch of this write: nothing older makes it a duplicate
            decided = True
            break
        elif item.info.producer_epoch > before.info.producer_epoch:
            if not decided:
                check = PRODUCER_NEXT if item.info.base_sequence == 0 else PRODUCER_OUT_OF_ORDER
            decided = True
            break                       # what is older is of older epochs as well
        elif item.info.base_sequence == before.info.base_sequence \
                and item.info.last_offset_delta == before.info.last_offset_delta:
            item.duplicate = 2          # of an item of this write: answered with its offset, once that is known
            item.base_offset = i + 1
            return 0
        elif not decided:
            expected = (<int64_t>before.info.base_sequence + before.info.last_offset_delta + 1) & 0x7FFFFFFF
            check = PRODUCER_NEXT if item.info.base_sequence == expected else PRODUCER_OUT_OF_ORDER
            decided = True
        if check == PRODUCER_NEXT and decided:
            break
    if (not decided or check == PRODUCER_OUT_OF_ORDER) and not item.info.control:
        duplicate.base_offset = -1
        if not decided:
            check = check_sequence(find_producer(slot, item.info.producer_id), item.info.producer_epoch,
                                   item.info.base_sequence, last_sequence, &duplicate)
        elif check_sequence(find_producer(slot, item.info.producer_id), item.info.producer_epoch, item.info.base_sequence,
                            last_sequence, &duplicate) == PRODUCER_DUPLICATE:
            check = PRODUCER_DUPLICATE
        if check == PRODUCER_DUPLICATE:
            item.duplicate = 1
            item.base_offset = duplicate.base_offset
            if slot.settings.log_append_time:
                item.append_time = duplicate.timestamp
            return 0
    if check != PRODUCER_NEXT:
        item.error = ERROR_INVALID_PRODUCER_EPOCH if check == PRODUCER_FENCED else ERROR_OUT_OF_ORDER_SEQUENCE
        return 0
    if decided:
        return 1                        # room was reserved for an item before
    arena = reserve_producer(index, slot, item.info.producer_id, pending[0])
    if arena == ARENA_BUSY:
        return APPEND_BUSY
    if arena == ARENA_FULL:
        item.error = ERROR_STORAGE      # retriable: a producer's state has room again when another's expires
        return 0
    pending[0] += 1
    return 1


cdef int put_transaction_entry(Slot* slot, Commit* commit, AppendItem* item, int64_t offset) noexcept nogil:
    """An aborted transaction's entry in the transaction index, before its marker is committed; 0, or -errno."""
    cdef uint8_t[34] entry
    cdef ProducerEntry* producer
    cdef int32_t coordinator_epoch = -1
    cdef int kind = 1, fd, result
    cdef int64_t stable
    if parse_marker(item.data, item.info.size, &coordinator_epoch, &kind) != 0 or kind != 0:
        return 0
    producer = find_producer(slot, item.info.producer_id)
    if producer == NULL or producer.transaction_first_offset < 0:
        return 0
    stable = first_unstable_without(slot, item.info.producer_id)
    if stable < 0:
        stable = offset + 1             # this marker ends the only one
    entry[0] = entry[1] = 0
    store64(entry + 2, <uint64_t>item.info.producer_id)
    store64(entry + 10, <uint64_t>producer.transaction_first_offset)
    store64(entry + 18, <uint64_t>offset)
    store64(entry + 26, <uint64_t>stable)
    fd = open_in_slot(slot, commit.segment_base, FILE_TXN_INDEX, O_RDWR | O_CREAT)
    if fd < 0:
        return fd
    result = write_at(fd, entry, 34, <int64_t>commit.txnindex_entries * 34)
    close(fd)
    if result == 0:
        commit.txnindex_entries += 1
        fault(APPEND_TXN_INDEX_WRITTEN)
    return result


cdef int write_batches(AppendFiles* files, AppendItem** batches, int count, int64_t position) noexcept nogil:
    """All batches with one pwritev (more, if the kernel takes less); 0, or -errno."""
    cdef iovec[MAX_JOINED] parts
    cdef int i, first = 0
    cdef ssize_t written
    cdef size_t left
    for i in range(count):
        parts[i].iov_base = batches[i].data
        parts[i].iov_len = <size_t>batches[i].info.size
    while first < count:
        if count - first == 1:
            written = file_pwrite(files.log_fd, parts[first].iov_base, parts[first].iov_len, position)
        else:
            written = file_pwritev(files.log_fd, &parts[first], count - first, position)
        if written <= 0:
            return -errno if written < 0 else -EIO
        position += written
        left = <size_t>written
        while first < count and left >= parts[first].iov_len:
            left -= parts[first].iov_len
            first += 1
        if left:
            parts[first].iov_base = <char*>parts[first].iov_base + left
            parts[first].iov_len -= left
    return 0


cdef int write_indexes(Slot* slot, AppendFiles* files, Commit* commit, AppendItem** batches, int count) noexcept nogil:
    """Advance `commit` over the batches (sizes, timestamps) and write the index entries that fall due; 0, or -errno."""
    cdef uint8_t[MAX_JOINED * 8] entries
    cdef uint8_t[MAX_JOINED * 12] times
    cdef int i, due = 0, due_times = 0, fd, result
    cdef AppendItem* item
    cdef int64_t timestamp
    for i in range(count):
        item = batches[i]
        timestamp = item.info.max_timestamp
        if timestamp > commit.max_timestamp:
            commit.max_timestamp = timestamp
            commit.max_timestamp_offset = item.base_offset + item.info.last_offset_delta
        if commit.size - commit.indexed_position > slot.settings.index_interval_bytes:
            store32(entries + due * 8, <uint32_t>(item.base_offset + item.info.last_offset_delta - commit.segment_base))
            store32(entries + due * 8 + 4, <uint32_t>commit.size)
            due += 1
            if commit.max_timestamp > commit.timeindexed_timestamp and commit.max_timestamp >= 0:
                store64(times + due_times * 12, <uint64_t>commit.max_timestamp)
                store32(times + due_times * 12 + 8, <uint32_t>(commit.max_timestamp_offset - commit.segment_base))
                due_times += 1
                commit.timeindexed_timestamp = commit.max_timestamp
                commit.timeindexed_offset = commit.max_timestamp_offset
            commit.indexed_position = commit.size
        if commit.size == 0:
            commit.first_timestamp = timestamp
        commit.size += item.info.size
        commit.log_end_offset = item.base_offset + item.info.last_offset_delta + 1
    if due:
        fd = index_file(files, slot, FILE_INDEX)
        if fd < 0:
            return fd
        result = write_at(fd, entries, due * 8, <int64_t>commit.index_entries * 8)
        if result != 0:
            return result
        commit.index_entries += due
        fault(APPEND_INDEX_WRITTEN)
    if due_times:
        fd = index_file(files, slot, FILE_TIME_INDEX)
        if fd < 0:
            return fd
        result = write_at(fd, times, due_times * 12, <int64_t>commit.timeindex_entries * 12)
        if result != 0:
            return result
        commit.timeindex_entries += due_times
        fault(APPEND_TIME_INDEX_WRITTEN)
    return 0


cdef void note_recent(Slot* slot, int64_t segment_base, int64_t position, AppendItem** batches, int count) noexcept nogil:
    """Put the newest batches into the ring that answers reads at the tail."""
    cdef int i = 0
    cdef RecentBatch* recent
    if count > RECENT_KEPT:
        for i in range(count - RECENT_KEPT):
            position += batches[i].info.size
        i = count - RECENT_KEPT
    store_release_32(&slot.recent_sequence, slot.recent_sequence + 1)
    fence()
    fault(APPEND_RECENT_HALF_WRITTEN)
    while i < count:
        recent = &slot.recent[slot.recent_next % RECENT_KEPT]
        recent.base_offset = batches[i].base_offset
        recent.last_offset = batches[i].base_offset + batches[i].info.last_offset_delta
        recent.position = position
        recent.segment_base = segment_base
        recent.max_timestamp = batches[i].info.max_timestamp
        position += batches[i].info.size
        slot.recent_next += 1
        i += 1
    store_release_32(&slot.recent_sequence, slot.recent_sequence + 1)


cdef int write_and_commit(uint32_t index, Slot* slot, AppendItem** batches, int count,
                          bint follow_high_watermark) noexcept nogil:
    """Log, transaction index, indexes, commit, apply: the batches fit the active segment. 0, or -errno and nothing happened."""
    cdef Commit commit = current(slot)[0]
    cdef int64_t position = commit.size
    cdef int32_t coordinator_epoch
    cdef AppendFiles* files
    cdef int result = 0, i, kind
    result = cut_leftover(slot)
    if result != 0:
        return result
    files = take_files(index, slot, commit.segment_base, &result)
    if files == NULL:
        return result
    result = write_batches(files, batches, count, position)
    fault(APPEND_LOG_WRITTEN)
    for i in range(count):
        if result == 0 and batches[i].info.control:
            result = put_transaction_entry(slot, &commit, batches[i], batches[i].base_offset)
    if result == 0:
        result = write_indexes(slot, files, &commit, batches, count)
    if result != 0:
        # Unpublished bytes are nobody's; the next append writes over them, a roll or a clean stop must not find them.
        release_files(files)
        slot.uncut = 1
        cut_leftover(slot)
        return result
    release_files(files)
    if follow_high_watermark:
        commit.high_watermark = commit.log_end_offset
        commit.high_watermark_base = commit.segment_base
        commit.high_watermark_position = commit.size
    publish(slot, &commit)
    fault(APPEND_COMMITTED)
    if slot.producer_run != 0:
        slot.producers_changed = 1      # the last snapshot is no longer one of the log's end
    for i in range(count):
        coordinator_epoch = -1
        if batches[i].info.control:
            parse_marker(batches[i].data, batches[i].info.size, &coordinator_epoch, &kind)
        apply_one(slot, &batches[i].info, batches[i].base_offset, coordinator_epoch, batches[i].info.max_timestamp)
        fault(APPEND_PRODUCER_APPLIED)
        batches[i].appended = 1
    settle_last_stable(slot, commit.high_watermark)
    set_applied(slot, commit.segment_base, commit.size)
    fault(APPEND_APPLIED)
    note_recent(slot, commit.segment_base, position, batches, count)
    return 0


cdef inline bint leads_alone(Slot* slot) noexcept nogil:
    return slot.in_sync_count <= 1


cdef void note_failure(Slot* slot, int result) noexcept nogil:
    """A device that fails takes its whole log directory out of use; a full one does not, and may be tried again."""
    note_device(slot.log_dir, result)
    if is_device_failure(result):
        store_release_32(&slot.state, SLOT_OFFLINE)


cdef AppendResult check_slot(Slot* slot, uint32_t incarnation, int32_t leader_epoch, uint32_t role) noexcept nogil:
    if slot.incarnation != incarnation:
        return APPEND_STALE
    if slot.state != SLOT_ONLINE:
        if slot.state == SLOT_LOADING:
            return APPEND_NOT_LEADER        # its log could not be finished for lack of room, and is to be opened anew
        return APPEND_OFFLINE if slot.state == SLOT_OFFLINE else APPEND_STALE
    if region().header.log_dir_offline[slot.log_dir]:
        return APPEND_OFFLINE
    if slot.role != role:
        return APPEND_NOT_LEADER
    if leader_epoch >= 0 and slot.leader_epoch != leader_epoch:
        return APPEND_FENCED_EPOCH
    return APPEND_OK


cdef AppendResult append_as_leader(uint32_t index, uint32_t incarnation, int32_t leader_epoch, AppendItem* items, int count,
                                   int64_t wall_ms, int spins, AppendOutcome* outcome) noexcept nogil:
    """Append `count` checked batches (at most MAX_JOINED) in order; what became of each is in its `error`, `duplicate` and
    `base_offset`. Every result but APPEND_OK concerns all of them that are not `appended` yet."""
    cdef Slot* slot = slot_at(index)
    cdef AppendItem* ready[MAX_JOINED]
    cdef AppendResult checked
    cdef Commit commit
    cdef uint32_t pending = 0
    cdef int i, n, result = 0, verdict, refused = 0
    cdef bint failed = False, alone, full
    outcome.error_number = 0
    if take_slot(index, slot, spins) == LOCK_BUSY:
        return APPEND_BUSY
    fault(APPEND_LOCKED)
    checked = check_slot(slot, incarnation, leader_epoch, ROLE_LEADER)
    if checked != APPEND_OK:
        unlock(index, slot)
        return checked
    # What the broker itself writes goes on: commits of offsets, transactions' ends.
    full = region().header.disk_state[slot.log_dir] == DISK_FULL and not slot.internal
    for i in range(count):
        items[i].log_start_offset = slot.log_start_offset
        items[i].error = 0
        items[i].duplicate = items[i].appended = 0
        items[i].base_offset = items[i].append_time = -1
    for i in range(count):
        verdict = check_producer(index, slot, items, i, &pending)
        if verdict == APPEND_BUSY:
            unlock(index, slot)
            return APPEND_BUSY
        if verdict == 1 and items[i].info.size > slot.settings.segment_bytes:
            items[i].error = ERROR_BATCH_TOO_LARGE
        if full and not items[i].duplicate and items[i].error in (0, ERROR_OUT_OF_ORDER_SEQUENCE):
            items[i].error = ERROR_NOT_ENOUGH_REPLICAS      # also where one before it is missing because it was refused
            refused += 1
    if refused == count:
        unlock(index, slot)
        return APPEND_OK
    result = note_epoch(slot, slot.leader_epoch, current(slot).log_end_offset)
    alone = leads_alone(slot)
    i = 0
    while result == 0 and i < count:
        # The longest run of batches that the active segment takes, with the offsets they will have.
        commit = current(slot)[0]
        n = 0
        while i < count:
            if items[i].error != 0 or items[i].duplicate:
                i += 1
                continue
            if slot.settings.log_append_time:
                items[i].append_time = wall_ms
                set_max_timestamp(items[i].data, &items[i].info, wall_ms, True)
            if n and (items[i].info.control or ready[n - 1].info.control):
                break                   # a marker speaks of what is applied: it is committed alone
            if must_roll(slot, &commit, &items[i].info, commit.log_end_offset + items[i].info.last_offset_delta, wall_ms):
                break
            items[i].base_offset = commit.log_end_offset
            store64(items[i].data + AT_BASE_OFFSET, <uint64_t>commit.log_end_offset)
            store32(items[i].data + AT_PARTITION_LEADER_EPOCH, <uint32_t>slot.leader_epoch)
            if commit.size == 0:
                commit.first_timestamp = items[i].info.max_timestamp
            commit.size += items[i].info.size
            commit.log_end_offset += items[i].info.last_offset_delta + 1
            ready[n] = &items[i]
            n += 1
            i += 1
        if n:
            result = write_and_commit(index, slot, ready, n, alone)
        elif i < count:
            result = roll_now(index, slot, wall_ms)
    for i in range(count):
        if items[i].duplicate == 2:
            n = <int>items[i].base_offset
            items[i].base_offset = items[n].base_offset
            items[i].append_time = items[n].append_time
            if not items[n].appended:
                items[i].duplicate = 0
    if result != 0:
        outcome.error_number = -result
        failed = True
    commit = current(slot)[0]
    outcome.log_end_offset = commit.log_end_offset
    outcome.high_watermark = commit.high_watermark
    outcome.leader_epoch = slot.leader_epoch
    note_failure(slot, result)
    fault(APPEND_BEFORE_UNLOCK)
    unlock(index, slot)
    fault(APPEND_UNLOCKED)
    wake_after(index, slot, True, alone)
    fault(APPEND_WOKEN)
    return APPEND_IO_ERROR if failed else APPEND_OK


cdef enum:
    BATCH_SOUND = 0
    BATCH_INCOMPLETE = 1          # the last one of a fetch
    BATCH_BAD = 2


cdef int check_replicated(const uint8_t* p, size_t n, BatchInfo* out) noexcept nogil:
    """What a leader sent: a batch, or a message of format v0 or v1, which a follower keeps as it is."""
    cdef int error = parse_batch_header(p, n, out)
    if error == ERROR_INVALID_RECORD:       # another magic than 2
        if n < MESSAGE_HEADER_BYTES and out.magic in (0, 1):
            return BATCH_INCOMPLETE
        if parse_message(p, n, out) != 0:
            return BATCH_BAD
        if <size_t>out.size > n:
            return BATCH_INCOMPLETE
        return BATCH_SOUND if message_crc_matches(p, out) else BATCH_BAD
    if error != 0 or <size_t>out.size > n:
        return BATCH_INCOMPLETE
    return BATCH_SOUND if check_batch(p, n, False, out) == 0 else BATCH_BAD


cdef AppendResult append_as_follower(uint32_t index, uint32_t incarnation, int32_t leader_epoch, uint8_t* data, int64_t size,
                                     int64_t leader_high_watermark, int64_t leader_log_start_offset, int64_t wall_ms, int spins,
                                     AppendOutcome* outcome) noexcept nogil:
    """Append what a leader sent, offsets and epochs as they are; whole batches only, an incomplete one at the end is left out.

    The first batch must begin at the log end offset, or behind it where compaction left a gap; else APPEND_OUT_OF_RANGE.
    """
    cdef Slot* slot = slot_at(index)
    cdef AppendItem[MAX_JOINED] items
    cdef AppendItem* ready[MAX_JOINED]
    cdef AppendResult checked
    cdef ArenaResult arena
    cdef Commit commit
    cdef int64_t at = 0
    cdef int n = 0, result = 0, found
    cdef bint roll
    outcome.error_number = 0
    if take_slot(index, slot, spins) == LOCK_BUSY:
        return APPEND_BUSY
    checked = check_slot(slot, incarnation, leader_epoch, ROLE_FOLLOWER)
    if checked != APPEND_OK:
        unlock(index, slot)
        return checked
    while result == 0:
        commit = current(slot)[0]
        n = 0
        roll = False
        while n < MAX_JOINED and at < size:
            memset(&items[n], 0, sizeof(AppendItem))
            found = check_replicated(data + at, <size_t>(size - at), &items[n].info)
            if found == BATCH_SOUND and items[n].info.base_offset < commit.log_end_offset:
                found = BATCH_BAD
            if found != BATCH_SOUND:
                checked = APPEND_OUT_OF_RANGE if found == BATCH_BAD else checked
                at = size
                break
            if must_roll(slot, &commit, &items[n].info, items[n].info.base_offset + items[n].info.last_offset_delta, wall_ms):
                roll = True
                break
            if n and (items[n].info.control or ready[n - 1].info.control
                      or (items[n].info.magic == 2 and new_epoch(slot, items[n].info.partition_leader_epoch))):
                break                   # a marker is committed alone; an epoch is noted where the log ends
            if items[n].info.producer_id >= 0:
                arena = reserve_producer(index, slot, items[n].info.producer_id, <uint32_t>n)
                if arena != ARENA_READY:
                    result = -ENOMEM if arena == ARENA_FULL else 0
                    checked = APPEND_BUSY
                    at = size           # after what was taken so far
                    break
            items[n].data = data + at
            items[n].base_offset = items[n].info.base_offset
            if commit.size == 0:
                commit.first_timestamp = items[n].info.max_timestamp
            commit.size += items[n].info.size
            commit.log_end_offset = items[n].base_offset + items[n].info.last_offset_delta + 1
            result = note_epoch(slot, items[n].info.partition_leader_epoch, items[n].base_offset)
            if result != 0:
                break
            ready[n] = &items[n]
            at += items[n].info.size
            n += 1
        if result == 0 and n:
            result = write_and_commit(index, slot, ready, n, False)
        if result == 0 and roll:
            result = roll_now(index, slot, wall_ms)
        if at >= size:
            break
    if result == 0:
        commit = current(slot)[0]
        set_high_watermark(slot, min(leader_high_watermark, commit.log_end_offset))
        if leader_log_start_offset > slot.log_start_offset and leader_log_start_offset <= commit.log_end_offset:
            store_release_64(<uint64_t*>&slot.log_start_offset, <uint64_t>leader_log_start_offset)
    note_failure(slot, result)
    commit = current(slot)[0]
    outcome.log_end_offset = commit.log_end_offset
    outcome.high_watermark = commit.high_watermark
    outcome.leader_epoch = slot.leader_epoch
    outcome.error_number = -result
    unlock(index, slot)
    wake_after(index, slot, True, True)
    return APPEND_IO_ERROR if result != 0 else checked


# -- high watermark -----------------------------------------------------------------------------------------------

cdef int locate(Slot* slot, int64_t segment_base, int64_t index_entries, int64_t size, int64_t offset,
                int64_t* position) noexcept nogil:
    """Where in a segment the batch that holds `offset` begins; 0, or -errno."""
    cdef FoundBatch found
    cdef int log_fd, index_fd, result
    log_fd = open_in_slot(slot, segment_base, FILE_LOG, O_RDONLY)
    if log_fd < 0:
        return log_fd
    index_fd = open_in_slot(slot, segment_base, FILE_INDEX, O_RDONLY)
    result = find_position(log_fd, index_fd, index_entries if index_fd >= 0 else 0, segment_base, size, offset, &found)
    close(log_fd)
    if index_fd >= 0:
        close(index_fd)
    if result == LOOKUP_FOUND:
        position[0] = found.position
        return 0
    return result if result < 0 else -ENOENT


cdef void set_high_watermark(Slot* slot, int64_t offset) noexcept nogil:
    """Publish a high watermark, with its position where that costs little; never backwards."""
    cdef Commit commit = current(slot)[0]
    if offset <= commit.high_watermark:
        return
    commit.high_watermark = offset
    if offset == commit.log_end_offset:
        commit.high_watermark_base = commit.segment_base
        commit.high_watermark_position = commit.size
    else:
        commit.high_watermark_base = commit.high_watermark_position = -1
        if offset >= commit.segment_base and locate(slot, commit.segment_base, commit.index_entries, commit.size, offset,
                                                    &commit.high_watermark_position) == 0:
            commit.high_watermark_base = commit.segment_base
    publish(slot, &commit)
    settle_last_stable(slot, offset)


cdef AppendResult advance_high_watermark(uint32_t index, uint32_t incarnation, int32_t leader_epoch, int64_t offset,
                                         int spins) noexcept nogil:
    """Raise the high watermark to `offset` (at most the log end offset); lower values change nothing."""
    cdef Slot* slot = slot_at(index)
    cdef AppendResult checked
    if take_slot(index, slot, spins) == LOCK_BUSY:
        return APPEND_BUSY
    checked = check_slot(slot, incarnation, leader_epoch, slot.role)
    if checked == APPEND_OK:
        if offset > current(slot).log_end_offset:
            checked = APPEND_OUT_OF_RANGE
        else:
            set_high_watermark(slot, offset)
    unlock(index, slot)
    if checked == APPEND_OK:
        wake_after(index, slot, False, True)
    return checked


# -- truncation ---------------------------------------------------------------------------------------------------

cdef int64_t segment_holding(Slot* slot, int64_t offset, int64_t beyond) noexcept nogil:
    """The largest segment base that is not above `offset`, of those below `beyond`; -1 if there is none, or -errno - 1."""
    return newest_file(slot, ".log", offset, beyond)


cdef int64_t newest_file(Slot* slot, const char* extension, int64_t offset, int64_t beyond) noexcept nogil:
    """The largest number in front of an extension that is not above `offset` and below `beyond`; -1 if there is none, or
    -errno - 1."""
    cdef int fd = open_directory(slot)
    cdef DIR* directory
    cdef dirent* entry
    cdef int64_t best = -1, base
    cdef char* end
    if fd < 0:
        return fd - 1
    directory = fdopendir(fd)
    if directory == NULL:
        close(fd)
        return -ENOMEM - 1
    while True:
        entry = readdir(directory)
        if entry == NULL:
            break
        base = strtoll(entry.d_name, &end, 10)
        if end != entry.d_name and strcmp(end, extension) == 0 and best < base <= offset and base < beyond:
            best = base
    closedir(directory)
    return best


cdef int remove_segments_above(Slot* slot, int64_t base, int64_t log_end_offset) noexcept nogil:
    """Remove the files of every segment above `base`, and every snapshot above `log_end_offset`; 0, or -errno.

    Doing it again changes nothing.
    """
    cdef int fd, removed = 1
    cdef int64_t found
    cdef DIR* directory
    cdef dirent* entry
    cdef char* end
    cdef char[384] path
    cdef char[700] full
    directory_path(slot, path)
    while removed:
        removed = 0
        fd = open_directory(slot)
        if fd < 0:
            return fd
        directory = fdopendir(fd)
        if directory == NULL:
            close(fd)
            return -ENOMEM
        while True:
            entry = readdir(directory)
            if entry == NULL:
                break
            found = strtoll(entry.d_name, &end, 10)
            if found <= base or end == entry.d_name or end[0] != 46:
                continue
            if found <= log_end_offset and strcmp(end, ".snapshot") == 0:
                continue
            snprintf(full, 700, "%s/%s", path, entry.d_name)
            if file_unlink(region().header.log_dir_fds[slot.log_dir], full) == 0:
                removed = 1
            elif errno != ENOENT:
                fd = -errno
                closedir(directory)
                return fd
        closedir(directory)
    return 0


cdef int finish_truncation(uint32_t index, Slot* slot) noexcept nogil:
    """Carry out the truncation that the intent names {offset, segment, position in it}; 0, or -errno. Restartable.

    The bytes that stay were published and are never rewritten: the file is cut, and the log goes on in a new segment at
    `offset`.
    """
    cdef int64_t offset = slot.intent_arguments[0], base = slot.intent_arguments[1], position = slot.intent_arguments[2]
    cdef int64_t wall_ms = slot.intent_arguments[3]
    cdef Commit commit = current(slot)[0]
    cdef int result, i
    cdef int* kinds = [FILE_LOG, FILE_INDEX, FILE_TIME_INDEX]
    drop_files(index)
    store_release_64(&slot.truncations, slot.truncations + 1)
    result = drop_swaps(slot)           # made of what the log held, to be swapped in by nobody
    if result != 0:
        return result
    if commit.segment_base != offset or commit.size != 0:
        # A segment that begins at `offset` goes too: its bytes were published, and its file is not written again [R 4].
        result = remove_segments_above(slot, base if base < offset else offset - 1, offset)
        if result != 0:
            return result
        fault(TRUNCATE_SEGMENTS_REMOVED)
        if base < offset:
            result = cut_file(slot, base, FILE_LOG, position)
            if result != 0:
                return result
            fault(TRUNCATE_FILE_CUT)
            result = cut_indexes(slot, base, offset, position)
            if result != 0:
                return result
        for i in range(3):
            result = create_file(slot, offset, kinds[i])
            if result != 0:
                return result
        fault(TRUNCATE_SEGMENT_CREATED)
        start_segment(&commit, offset, wall_ms)
        if commit.high_watermark >= offset:
            commit.high_watermark = offset
            commit.high_watermark_base = offset
            commit.high_watermark_position = 0
        publish(slot, &commit)
        fault(TRUNCATE_COMMITTED)
    set_applied(slot, offset, 0)
    if slot.log_start_offset > offset:
        store_release_64(<uint64_t*>&slot.log_start_offset, <uint64_t>offset)
    if slot.flushed_offset > offset:
        slot.flushed_offset = offset
    if base >= offset:
        slot.synced_base = -1           # not even the new segment's name is synced
    elif slot.synced_base > base or (slot.synced_base < 0 and slot.flushed_offset > base):
        slot.synced_base = base         # the segment that was cut is synced as a whole again
    slot.synced_end = min(slot.synced_end, offset)
    if slot.recovery_point > offset:
        slot.recovery_point = offset
    store_release_64(&slot.flusher, 0)  # who is flushing now must not say that what follows is on the device
    result = cut_epochs(slot, offset)
    if result == 0:
        result = rebuild_producers(index, slot, offset)
    fault(TRUNCATE_STATE_REBUILT)
    clear_recent(slot)
    settle_last_stable(slot, current(slot).high_watermark)
    new_generation(slot)
    if result == 0:
        store_release_64(&slot.intent, INTENT_NONE)
    return result


cdef int cut_indexes(Slot* slot, int64_t base, int64_t offset, int64_t position) noexcept nogil:
    """Drop the entries of a segment's indexes that speak of what was cut: at or above `offset`; 0, or -errno."""
    cdef uint8_t[34] entry
    cdef int64_t low, high, middle, said, got
    cdef int fd, width, which, result
    cdef int* kinds = [FILE_INDEX, FILE_TIME_INDEX, FILE_TXN_INDEX]
    cdef int* widths = [8, 12, 34]
    for which in range(3):
        width = widths[which]
        fd = open_in_slot(slot, base, kinds[which], O_RDWR)
        if fd == -ENOENT:
            continue
        if fd < 0:
            return fd
        low = 0
        high = end_of(fd) // width
        while low < high:               # the first entry whose offset is not below the cut
            middle = (low + high) // 2
            got = read_at(fd, entry, <size_t>width, middle * width)
            if got != width:
                close(fd)
                return <int>got if got < 0 else -EBADMSG
            if which == 2:
                said = <int64_t>load64(entry + 18)      # the aborted transaction's last offset
            else:
                said = base + <int64_t>load32(&entry[0] if which == 0 else &entry[8])
            if said >= offset:
                high = middle
            else:
                low = middle + 1
        if file_truncate(fd, low * width) != 0:
            result = -errno
            close(fd)
            return result
        close(fd)
    return 0


cdef extern from "<unistd.h>" nogil:
    int64_t lseek(int fd, int64_t offset, int whence)
    int SEEK_END


cdef inline int64_t end_of(int fd) noexcept nogil:
    return lseek(fd, 0, SEEK_END)


cdef int restore_before(uint32_t index, Slot* slot, int64_t offset, int64_t* from_offset) noexcept nogil:
    """Producers from the newest sound snapshot that is not above `offset`: 0 and *from_offset, the offset that it speaks of,
    or the log's start if there is none; or -errno."""
    cdef char[384] path
    cdef int64_t at = offset + 1
    cdef int result
    forget_producers(slot)
    from_offset[0] = slot.log_start_offset
    while True:
        at = newest_file(slot, ".snapshot", offset, at)
        if at < 0:
            return 0 if at == -1 else <int>(at + 1)
        segment_path(slot, at, FILE_SNAPSHOT, path)
        result = read_snapshot(index, slot, region().header.log_dir_fds[slot.log_dir], path)
        if result == 0:
            from_offset[0] = at
            return 0
        forget_producers(slot)
        if result < 0 and result != -ENOENT:
            return result


cdef int rebuild_producers(uint32_t index, Slot* slot, int64_t offset) noexcept nogil:
    """Producer state as of `offset`: the newest snapshot before, and the batches behind it (the log is the redo log); 0, or
    -errno. Of what a snapshot tells only each producer's last batch is known, as after a start."""
    cdef int64_t from_offset = 0, base, position = 0
    cdef int result = restore_before(index, slot, offset, &from_offset)
    if result != 0 or from_offset >= offset:
        return result
    base = segment_holding(slot, from_offset, offset)
    if base < -1:
        return <int>(base + 1)
    if base < 0:
        base = next_segment(slot, -1, offset)
    elif base < from_offset:
        result = locate_for_cut(slot, current(slot), base, from_offset, &position)
    while result == 0 and base >= 0 and base < offset:
        result = replay_segment(index, slot, base, position, from_offset)
        position = 0
        base = next_segment(slot, base, offset)
    return <int>(base + 1) if result == 0 and base < -1 else result


cdef int replay_segment(uint32_t index, Slot* slot, int64_t base, int64_t position, int64_t from_offset) noexcept nogil:
    """Take the batches of a segment that is left, from `position` and `from_offset` on, into the producers; 0, or -errno."""
    cdef uint8_t[4096] buffer
    cdef Scanner scanner
    cdef BatchInfo info
    cdef int32_t coordinator_epoch = -1
    cdef int kind = 0, result
    cdef int fd = open_in_slot(slot, base, FILE_LOG, O_RDONLY)
    if fd < 0:
        return fd
    scan_file(&scanner, fd, end_of(fd), buffer, sizeof(buffer))
    result = scan_batch(&scanner, position, &info)
    while result == SCAN_BATCH:
        if info.producer_id >= 0 and info.base_offset >= from_offset:
            if info.control:
                read_marker(&scanner, position, &info, &coordinator_epoch, &kind)
            result = reserve_patiently(index, slot, info.producer_id)
            if result != 0:
                break
            apply_one(slot, &info, info.base_offset, coordinator_epoch, info.max_timestamp)
        position += info.size
        result = scan_batch(&scanner, position, &info)
    close(fd)
    if result == SCAN_END:
        return 0
    return result if result < 0 else -EBADMSG


cdef int64_t next_segment(Slot* slot, int64_t after, int64_t beyond) noexcept nogil:
    """The smallest segment base above `after` and below `beyond`; -1 if there is none, or -errno - 1."""
    cdef int fd = open_directory(slot)
    cdef DIR* directory
    cdef dirent* entry
    cdef int64_t best = -1, base
    cdef char* end
    if fd < 0:
        return fd - 1
    directory = fdopendir(fd)
    if directory == NULL:
        close(fd)
        return -ENOMEM - 1
    while True:
        entry = readdir(directory)
        if entry == NULL:
            break
        base = strtoll(entry.d_name, &end, 10)
        if end != entry.d_name and strcmp(end, ".log") == 0 and after < base < beyond and (best < 0 or base < best):
            best = base
    closedir(directory)
    return best


cdef AppendResult truncate_to(uint32_t index, uint32_t incarnation, int32_t leader_epoch, int64_t offset, int64_t wall_ms,
                              int spins) noexcept nogil:
    """Cut the log so that it ends at `offset`, which must be the base of a batch or the log end; as a follower.

    The intent is stored before the first file is touched, so that whoever takes the lock after a death finishes it.
    """
    cdef Slot* slot = slot_at(index)
    cdef AppendResult checked
    cdef Commit* commit
    cdef int64_t base, position = 0
    cdef int result = 0
    if take_slot(index, slot, spins) == LOCK_BUSY:
        return APPEND_BUSY
    checked = check_slot(slot, incarnation, leader_epoch, ROLE_FOLLOWER)
    commit = current(slot)
    if checked == APPEND_OK and (offset > commit.log_end_offset or offset < 0):
        checked = APPEND_OUT_OF_RANGE
    if checked == APPEND_OK and offset == commit.log_end_offset:
        # An epoch that begins where the log ends is of a leader that left no batch.
        if slot.epoch_count and slot.epochs[(slot.epoch_count - 1) % EPOCHS_KEPT].start_offset >= offset:
            result = cut_epochs(slot, offset)
            note_failure(slot, result)
        unlock(index, slot)
        return APPEND_OK if result == 0 else APPEND_IO_ERROR
    if checked != APPEND_OK:
        unlock(index, slot)
        return checked
    base = segment_holding(slot, offset, 0x7FFFFFFFFFFFFFFF)
    if base < -1:
        result = <int>(base + 1)
    elif base < 0:
        base = offset                   # before every segment: all go, the log begins anew
    elif base < offset:
        result = locate_for_cut(slot, commit, base, offset, &position)
    if result == 0:
        slot.intent_arguments[0] = offset
        slot.intent_arguments[1] = base
        slot.intent_arguments[2] = position
        slot.intent_arguments[3] = wall_ms
        store_release_64(&slot.intent, INTENT_TRUNCATE)
        fault(TRUNCATE_INTENT_STORED)
        result = finish_truncation(index, slot)
        if result != 0:
            give_up(slot, result)       # half done
    note_failure(slot, result)
    unlock(index, slot)
    wake_everyone(index, slot)
    return APPEND_OK if result == 0 else APPEND_IO_ERROR


cdef int locate_for_cut(Slot* slot, Commit* commit, int64_t base, int64_t offset, int64_t* position) noexcept nogil:
    cdef int log_fd, index_fd, result
    cdef int64_t entries, size
    if base == commit.segment_base:
        return locate(slot, base, commit.index_entries, commit.size, offset, position)
    log_fd = open_in_slot(slot, base, FILE_LOG, O_RDONLY)
    if log_fd < 0:
        return log_fd
    size = end_of(log_fd)
    close(log_fd)
    index_fd = open_in_slot(slot, base, FILE_INDEX, O_RDONLY)
    entries = 0
    if index_fd >= 0:
        entries = end_of(index_fd) // 8
        close(index_fd)
    result = locate(slot, base, entries, size, offset, position)
    if result == -ENOENT:               # the segment ends before `offset`: a truncation cut it there
        position[0] = size
        return 0
    return result
