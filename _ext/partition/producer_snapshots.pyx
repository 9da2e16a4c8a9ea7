"""Writes and reads the producer snapshots of a slot; see producer_snapshots.pxd. No GIL, nothing is allocated.

The timestamp of an entry is the wall clock time at which the broker last heard of the producer, not the client's time, because
a start drops expired producers by it. With LogAppendTime it is the record's timestamp, which comes from the broker's clock.
"""

from libc.errno cimport errno
from libc.stdint cimport int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t, uint8_t
from libc.stdio cimport snprintf
from posix.fcntl cimport O_CREAT, O_RDONLY, O_TRUNC, O_WRONLY
from posix.unistd cimport close

from odradek._ext.partition.append_files cimport segment_path
from odradek._ext.partition.producer_entry cimport (
    ProducerBatch,
    ProducerEntry,
    coordinator_epoch_of,
    entry_epoch,
    is_known,
    newest_batch,
)
from odradek._ext.partition.producer_room cimport PendingProducers, reserve_anyhow
from odradek._ext.partition.producer_runs cimport find_producer, next_producer
from odradek._ext.partition.producers cimport restore_batch, restore_producer, settle_restored
from odradek._ext.protocol.byte_order cimport load16, load32, load64, store16, store32, store64
from odradek._ext.records.crc32c cimport crc32c
from odradek._ext.records.record_batch cimport base_sequence_of
from odradek._ext.shm.atomics cimport store_relaxed_i64
from odradek._ext.shm.clock cimport coarse_ms, now_ms
from odradek._ext.shm.faults cimport SNAPSHOT_WRITTEN, fault
from odradek._ext.shm.layout cimport region
from odradek._ext.storage.file_calls cimport file_open, file_unlink
from odradek._ext.storage.log_scan cimport read_at, write_at
from odradek._ext.storage.log_state cimport FILE_SNAPSHOT


cdef enum:
    HEAD_BYTES = 10
    ENTRY_BYTES = 46
    ENTRIES_AT_ONCE = 64
    SNAPSHOT_VERSION = 1


cdef void snapshot_paths(Slot* slot, int64_t offset, char* path, char* temporary_path) noexcept nogil:
    segment_path(slot, offset, FILE_SNAPSHOT, path)
    snprintf(temporary_path, 400, "%s.tmp", path)


# -- writing -----------------------------------------------------------------------------------------------------------

cdef void encode_entry(ProducerEntry* entry, int64_t timestamp, uint8_t* out) noexcept nogil:
    """Encode one entry of the file: only the producer's newest batch."""
    cdef ProducerBatch* newest = newest_batch(entry)
    store64(out, entry.key - 1)
    store16(out + 8, <uint16_t>entry_epoch(entry))
    store32(out + 10, <uint32_t>(newest.last_sequence if newest != NULL else -1))
    store64(out + 14, <uint64_t>(newest.last_offset if newest != NULL else -1))
    store32(out + 22, <uint32_t>(<int32_t>(newest.last_offset - newest.base_offset) if newest != NULL else 0))
    store64(out + 26, <uint64_t>timestamp)
    store32(out + 34, <uint32_t>coordinator_epoch_of(entry))
    store64(out + 38, <uint64_t>entry.transaction_first_offset)


cdef ProducerEntry* next_known(Slot* slot, uint32_t* place) noexcept nogil:
    """The next producer from place *place on that belongs to a snapshot; NULL after the last one."""
    cdef ProducerEntry* entry = next_producer(slot, place)
    while entry != NULL and not is_known(entry):
        entry = next_producer(slot, place)
    return entry


cdef uint32_t count_known(Slot* slot) noexcept nogil:
    cdef uint32_t place = 0, count = 0
    while next_known(slot, &place) != NULL:
        count += 1
    return count


cdef int write_entries(Slot* slot, int fd) noexcept nogil:
    """Write the whole file. Returns 0, or -errno."""
    cdef uint8_t[ENTRIES_AT_ONCE * ENTRY_BYTES] buffer
    cdef uint8_t[HEAD_BYTES] head
    cdef ProducerEntry* entry
    cdef int64_t at = HEAD_BYTES, wall_less_monotonic = now_ms() - coarse_ms()
    cdef uint32_t place = 0, filled = 0, crc
    cdef int result = 0
    store16(head, SNAPSHOT_VERSION)
    store32(head + 6, count_known(slot))
    crc = crc32c(0, head + 6, 4)
    entry = next_known(slot, &place)
    while entry != NULL and result == 0:
        encode_entry(entry, entry.last_timestamp if slot.settings.log_append_time else entry.heard_ms + wall_less_monotonic,
                     buffer + filled * ENTRY_BYTES)
        filled += 1
        entry = next_known(slot, &place)
        if filled == ENTRIES_AT_ONCE or entry == NULL:
            crc = crc32c(crc, buffer, filled * ENTRY_BYTES)
            result = write_at(fd, buffer, filled * ENTRY_BYTES, at)
            at += filled * ENTRY_BYTES
            filled = 0
    store32(head + 2, crc)
    return result if result != 0 else write_at(fd, head, HEAD_BYTES, 0)


cdef int snapshot_producers(Slot* slot, int64_t offset) noexcept nogil:
    cdef char[384] path
    cdef char[400] temporary
    cdef int directory = region().header.log_dir_fds[slot.log_dir], fd, result
    slot.snapshot_writes += 1           # before the file changes: its former content may be being synced
    snapshot_paths(slot, offset, path, temporary)
    fd = file_open(directory, temporary, O_WRONLY | O_CREAT | O_TRUNC)
    if fd < 0:
        return -errno
    result = write_entries(slot, fd)
    close(fd)
    if result != 0:
        file_unlink(directory, temporary)
        return result
    fault(SNAPSHOT_WRITTEN)
    store_relaxed_i64(&slot.pending_snapshot, offset + 1)
    return 0


# -- reading -----------------------------------------------------------------------------------------------------------

cdef int restore_entry(uint32_t index, Slot* slot, const uint8_t* p) noexcept nogil:
    """Restore one entry of a snapshot, as heard of now. Returns 0, or -ENOMEM if the arena is full of open transactions."""
    cdef int64_t producer_id = <int64_t>load64(p), last_offset = <int64_t>load64(p + 14), timestamp = <int64_t>load64(p + 26)
    cdef int32_t last_sequence = <int32_t>load32(p + 10), delta = <int32_t>load32(p + 22)
    cdef ProducerEntry* entry
    cdef PendingProducers pending
    cdef int result
    if find_producer(slot, producer_id) != NULL:
        return 0                        # the file contains it twice
    pending.producers = pending.fresh = 0
    result = reserve_anyhow(index, slot, NULL, &pending)
    if result != 0:
        return result
    entry = restore_producer(slot, producer_id, <int16_t>load16(p + 8), <int32_t>load32(p + 34), timestamp, <int64_t>load64(p + 38),
                             coarse_ms())
    if entry != NULL and last_offset >= 0:
        restore_batch(entry, base_sequence_of(last_sequence, delta), last_sequence, last_offset - delta, last_offset, timestamp)
    return 0


cdef int walk_snapshot(int fd, uint32_t index, Slot* slot) noexcept nogil:
    """Check a snapshot, and restore its producers if `slot` is not NULL. Returns 0, 1 if it is corrupt, or -errno."""
    cdef uint8_t[ENTRIES_AT_ONCE * ENTRY_BYTES] buffer
    cdef uint8_t[HEAD_BYTES] head
    cdef int64_t length = read_at(fd, head, HEAD_BYTES, 0), at = HEAD_BYTES, left
    cdef uint32_t crc
    cdef int number, result = 0
    if length < 0:
        return <int>length
    left = <int32_t>load32(head + 6)
    if length != HEAD_BYTES or load16(head) != SNAPSHOT_VERSION or left < 0:
        return 1
    crc = crc32c(0, head + 6, 4)
    while result == 0 and left > 0:
        number = <int>min(left, <int64_t>ENTRIES_AT_ONCE)
        length = read_at(fd, buffer, <size_t>number * ENTRY_BYTES, at)
        if length != number * ENTRY_BYTES:
            return <int>length if length < 0 else 1
        crc = crc32c(crc, buffer, <size_t>length)
        at += length
        left -= number
        while slot != NULL and result == 0 and number > 0:
            number -= 1
            result = restore_entry(index, slot, buffer + number * ENTRY_BYTES)
    if result == 0 and (crc != load32(head + 2) or read_at(fd, buffer, 1, at) > 0):
        return 1
    return result


cdef int check_snapshot(int fd) noexcept nogil:
    return walk_snapshot(fd, 0, NULL)


cdef int read_snapshot(uint32_t index, Slot* slot, int directory_fd, const char* path) noexcept nogil:
    cdef int fd = file_open(directory_fd, path, O_RDONLY), result
    if fd < 0:
        return -errno
    result = walk_snapshot(fd, 0, NULL)     # verify its checksum first
    if result == 0:
        result = walk_snapshot(fd, index, slot)
        settle_restored(slot)
    close(fd)
    return result
