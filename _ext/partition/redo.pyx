"""Redo from the log; see redo.pxd. Runs with the slot's mutex held, allocates nothing and needs no GIL."""

from libc.errno cimport EBADMSG
from libc.stdint cimport int32_t, int64_t, uint32_t, uint8_t
from posix.fcntl cimport O_RDONLY
from posix.unistd cimport close

from odradek._ext.partition.append_files cimport open_in_slot
from odradek._ext.partition.commits cimport applied_position, current, set_applied
from odradek._ext.partition.producer_room cimport PendingProducers, reserve_anyhow
from odradek._ext.partition.producer_runs cimport find_producer
from odradek._ext.partition.producers cimport repair_producers, settle_last_stable
from odradek._ext.partition.segment_files cimport end_of
from odradek._ext.protocol.byte_order cimport load16, load32
from odradek._ext.records.record_batch cimport AT_RECORDS, BATCH_HEADER_BYTES, BatchInfo, read_varint, read_varlong
from odradek._ext.shm.faults cimport RECOVER_APPLIED_ONE, fault
from odradek._ext.shm.owners cimport OWNER_NOBODY
from odradek._ext.shm.slot cimport Commit, Slot
from odradek._ext.storage.log_scan cimport SCAN_BATCH, SCAN_END, Scanner, scan_batch, scan_file, scan_window
from odradek._ext.storage.log_state cimport FILE_LOG


cdef enum:
    MARKER_WINDOW = 512           # bytes of a control batch that are read; a marker has 78


cdef int parse_marker(const uint8_t* batch, int64_t size, Marker* marker) noexcept nogil:
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
    marker.kind = <int16_t>load16(p + 2)
    p += n
    if read_varint(&p, end, &n) != 0 or n < 6 or end - p < 6:
        return -1
    marker.coordinator_epoch = <int32_t>load32(p + 2)
    return 0 if marker.kind == MARKER_ABORT or marker.kind == MARKER_COMMIT else -1


cdef int redo_control(Slot* slot, Scanner* scanner, int64_t position, BatchInfo* info) noexcept nogil:
    """Apply a control batch in a file. Returns 0, or -errno."""
    cdef int error = 0
    cdef int64_t size = min(<int64_t>info.size, <int64_t>MARKER_WINDOW)
    cdef const uint8_t* p = scan_window(scanner, position, size, &error)
    if p == NULL:
        return error if error < 0 else -EBADMSG
    apply_control(slot, info, info.base_offset, p, size, 0)
    return 0


cdef int redo_batch(uint32_t index, Slot* slot, Scanner* scanner, int64_t segment_base, int64_t position, BatchInfo* info) noexcept nogil:
    """Apply a batch in a file to the state. Returns 0, or -errno."""
    cdef PendingProducers pending
    cdef int result
    if info.producer_id < 0:
        return 0
    pending.producers = pending.fresh = 0
    result = reserve_anyhow(index, slot, find_producer(slot, info.producer_id), &pending)
    if result != 0:
        return result
    if info.control:
        return redo_control(slot, scanner, position, info)
    apply_committed(slot, info, info.base_offset, segment_base, position, OWNER_NOBODY, 0)
    return 0


cdef int redo(uint32_t index, Slot* slot) noexcept nogil:
    cdef uint8_t[4096] buffer
    cdef Scanner scanner
    cdef BatchInfo info
    cdef Commit* commit = current(slot)
    cdef int64_t position = applied_position(slot, commit), size = commit.size
    cdef int fd, result
    repair_producers(slot)
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
            result = redo_batch(index, slot, &scanner, commit.segment_base, position, &info)
            if result != 0:
                close(fd)
                return result
            fault(RECOVER_APPLIED_ONE)
            position += info.size
        close(fd)
    set_applied(slot, commit.segment_base, size)
    settle_last_stable(slot, commit.high_watermark)
    return 0


cdef int replay_segment(uint32_t index, Slot* slot, int64_t base, int64_t position, int64_t from_offset) noexcept nogil:
    cdef uint8_t[4096] buffer
    cdef Scanner scanner
    cdef BatchInfo info
    cdef int result, applied = 0
    cdef int fd = open_in_slot(slot, base, FILE_LOG, O_RDONLY)
    if fd < 0:
        return fd
    scan_file(&scanner, fd, end_of(fd), buffer, sizeof(buffer))
    result = scan_batch(&scanner, position, &info)
    while result == SCAN_BATCH:
        if info.base_offset >= from_offset:
            applied = redo_batch(index, slot, &scanner, base, position, &info)
            if applied != 0:
                break
        position += info.size
        result = scan_batch(&scanner, position, &info)
    close(fd)
    if applied != 0 or result == SCAN_END:
        return applied
    return result if result < 0 else -EBADMSG
