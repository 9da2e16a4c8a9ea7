"""The steps of an append that leader and follower share; see log_writing.pxd.

Runs with the slot's mutex held by the calling thread, allocates nothing and needs no GIL.
"""

from libc.errno cimport EIO, errno
from libc.stdint cimport int64_t, uint32_t, uint8_t
from libc.string cimport memset

from odradek._ext.partition.append_files cimport AppendFiles, index_file, release_files, take_files
from odradek._ext.partition.commits cimport commit_to_log_end, publish, set_applied, within_flush_messages
from odradek._ext.partition.producer_entry cimport ProducerEntry
from odradek._ext.partition.producer_runs cimport find_producer, next_open, oldest_open
from odradek._ext.partition.producers cimport settle_last_stable
from odradek._ext.partition.redo cimport MARKER_ABORT, Marker, apply_committed, apply_control, parse_marker
from odradek._ext.partition.segment_files cimport cut_leftover
from odradek._ext.shm.atomics cimport fence_release, fill_words, store_relaxed_32, store_release_32, store_release_i64
from odradek._ext.shm.faults cimport *
from odradek._ext.shm.slot cimport RECENT_KEPT, RecentBatch
from odradek._ext.storage.file_calls cimport file_pwrite, file_pwritev, iovec
from odradek._ext.storage.index_entries cimport (
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    TXN_ENTRY_BYTES,
    AbortedEntry,
    pack_offset_entry,
    pack_time_entry,
    pack_txn_entry,
)
from odradek._ext.storage.log_scan cimport write_at
from odradek._ext.storage.log_state cimport FILE_INDEX, FILE_TIME_INDEX, FILE_TXN_INDEX


# -- files ----------------------------------------------------------------------------------------------------------


cdef inline bint is_among(ProducerEntry** entries, int count, ProducerEntry* entry) noexcept nogil:
    cdef int i
    for i in range(count):
        if entries[i] == entry:
            return True
    return False


cdef int pack_aborted(Slot* slot, AppendItem** batches, int count, uint8_t* entries, int64_t* newest) noexcept nogil:
    """The entries of the transactions that the markers abort. Returns their number; *newest is the offset of the last marker.

    Each entry describes the open transactions after the markers before it [R 1.7]. `oldest` is the oldest transaction that none of these
    markers ends; it only moves forward in the list.
    """
    cdef ProducerEntry* ended[MAX_JOINED]
    cdef ProducerEntry* producer
    cdef ProducerEntry* oldest = oldest_open(slot)
    cdef AbortedEntry aborted
    cdef Marker marker
    cdef int i, n = 0, packed = 0
    for i in range(count):
        if batches[i].info.producer_id < 0 or parse_marker(batches[i].data, batches[i].info.size, &marker) != 0:
            continue
        producer = find_producer(slot, batches[i].info.producer_id)
        if producer == NULL or producer.transaction_first_offset < 0 or is_among(ended, n, producer):
            continue                    # it has no open transaction
        ended[n] = producer
        n += 1
        while oldest != NULL and is_among(ended, n, oldest):
            oldest = next_open(slot, oldest)
        if marker.kind != MARKER_ABORT:
            continue
        newest[0] = batches[i].base_offset
        aborted.producer_id = batches[i].info.producer_id
        aborted.first_offset = producer.transaction_first_offset
        aborted.last_offset = newest[0]
        aborted.last_stable_offset = newest[0] + 1 if oldest == NULL else oldest.transaction_first_offset
        pack_txn_entry(entries + packed * TXN_ENTRY_BYTES, &aborted)
        packed += 1
    return packed


cdef int put_transaction_entries(Slot* slot, AppendFiles* files, Commit* commit, AppendItem** batches, int count) noexcept nogil:
    """Write the entries of aborted transactions to the transaction index before their markers are committed. Returns 0, or -errno."""
    cdef uint8_t[MAX_JOINED * TXN_ENTRY_BYTES] entries
    cdef int64_t newest = -1
    cdef int packed = pack_aborted(slot, batches, count, entries, &newest), fd, result
    if packed == 0:
        return 0
    fd = index_file(files, slot, FILE_TXN_INDEX)
    if fd < 0:
        return fd
    result = write_at(fd, entries, packed * TXN_ENTRY_BYTES, <int64_t>commit.txnindex_entries * TXN_ENTRY_BYTES)
    if result == 0:
        commit.txnindex_entries += packed
        # Before the commit [R 1.8].
        store_release_i64(&slot.newest_abort_offset, newest)
        fault(APPEND_TXN_INDEX_WRITTEN)
    return result


cdef int write_batches(AppendFiles* files, AppendItem** batches, int count, int64_t position) noexcept nogil:
    """Write all batches with one pwritev (more if the kernel accepts less). Returns 0, or -errno."""
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


cdef inline int write_indexes(Slot* slot, AppendFiles* files, Commit* commit, AppendItem** batches, int count) noexcept nogil:
    """Advance `commit` by the batches (sizes, timestamps) and write the index entries that are due. Returns 0, or -errno."""
    cdef uint8_t[MAX_JOINED * OFFSET_ENTRY_BYTES] entries
    cdef uint8_t[MAX_JOINED * TIME_ENTRY_BYTES] times
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
            pack_offset_entry(entries + due * OFFSET_ENTRY_BYTES,
                              item.base_offset + item.info.last_offset_delta - commit.segment_base, commit.size)
            due += 1
            if commit.max_timestamp > commit.timeindexed_timestamp and commit.max_timestamp >= 0:
                pack_time_entry(times + due_times * TIME_ENTRY_BYTES, commit.max_timestamp,
                                commit.max_timestamp_offset - commit.segment_base)
                due_times += 1
                commit.timeindexed_timestamp = commit.max_timestamp
                commit.timeindexed_offset = commit.max_timestamp_offset
            commit.indexed_position = commit.size
        advance(commit, item)
    if due:
        fd = index_file(files, slot, FILE_INDEX)
        if fd < 0:
            return fd
        result = write_at(fd, entries, due * OFFSET_ENTRY_BYTES, <int64_t>commit.index_entries * OFFSET_ENTRY_BYTES)
        if result != 0:
            return result
        commit.index_entries += due
        fault(APPEND_INDEX_WRITTEN)
    if due_times:
        fd = index_file(files, slot, FILE_TIME_INDEX)
        if fd < 0:
            return fd
        result = write_at(fd, times, due_times * TIME_ENTRY_BYTES, <int64_t>commit.timeindex_entries * TIME_ENTRY_BYTES)
        if result != 0:
            return result
        commit.timeindex_entries += due_times
        fault(APPEND_TIME_INDEX_WRITTEN)
    return 0


# -- the ring of recent batches ---------------------------------------------------------------------------------------

cdef void clear_recent(Slot* slot) noexcept nogil:
    cdef RecentBatch[RECENT_KEPT] none
    if slot.recent_sequence & 1 == 0:
        store_relaxed_32(&slot.recent_sequence, slot.recent_sequence + 1)
        fence_release()
    memset(none, 0xFF, sizeof(none))
    fill_words(slot.recent, none, sizeof(none))
    store_release_32(&slot.recent_sequence, slot.recent_sequence + 1)


cdef void note_recent(Slot* slot, int64_t segment_base, int64_t position, AppendItem** batches, int count) noexcept nogil:
    """Add the newest batches to the ring that answers reads at the tail."""
    cdef int i = 0
    cdef RecentBatch recent
    if count > RECENT_KEPT:
        for i in range(count - RECENT_KEPT):
            position += batches[i].info.size
        i = count - RECENT_KEPT
    store_relaxed_32(&slot.recent_sequence, slot.recent_sequence + 1)
    fence_release()
    fault(APPEND_RECENT_HALF_WRITTEN)
    while i < count:
        recent.base_offset = batches[i].base_offset
        recent.last_offset = batches[i].base_offset + batches[i].info.last_offset_delta
        recent.position = position
        recent.segment_base = segment_base
        recent.max_timestamp = batches[i].info.max_timestamp
        fill_words(&slot.recent[slot.recent_next % RECENT_KEPT], &recent, sizeof(recent))
        position += batches[i].info.size
        slot.recent_next += 1
        i += 1
    store_release_32(&slot.recent_sequence, slot.recent_sequence + 1)


# -- the whole write ---------------------------------------------------------------------------------------------------

cdef int write_and_commit(uint32_t index, Slot* slot, AppendItem** batches, int count, bint alone) noexcept nogil:
    """Log, transaction index, indexes, commit, apply. The batches fit into the active segment. Returns 0, or -errno without an
    effect."""
    cdef Commit commit = current(slot)[0]
    cdef int64_t position = commit.size, apply_at
    cdef AppendFiles* files
    cdef int result = 0, i
    if slot.uncut:
        result = cut_leftover(slot)
        if result != 0:
            return result
    files = take_files(index, slot, commit.segment_base, &result)
    if files == NULL:
        return result
    result = write_batches(files, batches, count, position)
    fault(APPEND_LOG_WRITTEN)
    if result == 0 and batches[0].info.control:
        result = put_transaction_entries(slot, files, &commit, batches, count)
    if result == 0:
        result = write_indexes(slot, files, &commit, batches, count)
    if result != 0:
        # The unpublished bytes do not belong to the log. The next append would overwrite them, but a roll or a clean stop must not
        # find them.
        release_files(files)
        slot.uncut = 1
        cut_leftover(slot)
        return result
    release_files(files)
    if alone and within_flush_messages(slot, &commit, slot.flushed_offset):
        commit_to_log_end(&commit)      # otherwise the flush that is requested now moves the high watermark
    publish(slot, &commit)
    fault(APPEND_COMMITTED)
    if slot.producer_run != 0:
        slot.producers_changed = 1      # the last snapshot does not describe the log's end any more
    apply_at = position
    for i in range(count):
        if batches[i].info.control:
            apply_control(slot, &batches[i].info, batches[i].base_offset, batches[i].data, batches[i].info.size,
                          batches[i].transaction_version)
        else:
            apply_committed(slot, &batches[i].info, batches[i].base_offset, commit.segment_base, apply_at, batches[i].owner,
                            batches[i].place)
        fault(APPEND_PRODUCER_APPLIED)
        apply_at += batches[i].info.size
        batches[i].appended = 1
    settle_last_stable(slot, commit.high_watermark)
    set_applied(slot, commit.segment_base, commit.size)
    fault(APPEND_APPLIED)
    note_recent(slot, commit.segment_base, position, batches, count)
    return 0
