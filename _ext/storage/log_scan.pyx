"""Walks through a log file batch by batch with few reads: headers only, or headers with a check of the CRC.

A message of format v0 or v1 counts as a batch; the messages inside a compressed one are not read.

Used by recovery, by opening a log and by look-ups, in any process. The scanner is on its caller's stack. The file is only read,
below a size that is committed or below the end of a file that only the caller uses.
"""

from libc.errno cimport EINTR, errno
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint8_t

from odradek._ext.protocol.kafka_errors cimport INVALID_RECORD, NO_ERROR
from odradek._ext.records.crc32 cimport crc32
from odradek._ext.records.crc32c cimport crc32c
from odradek._ext.records.old_messages cimport MESSAGE_HEADER_BYTES, parse_message
from odradek._ext.records.record_batch cimport AT_ATTRIBUTES, AT_MAGIC, BATCH_HEADER_BYTES, BatchInfo, parse_batch_header
from odradek._ext.storage.file_calls cimport file_pread, file_pwrite


cdef int64_t read_at(int descriptor, void* buffer, size_t n, int64_t position) noexcept nogil:
    cdef size_t done = 0
    cdef ssize_t length
    while done < n:
        length = file_pread(descriptor, <uint8_t*>buffer + done, n - done, position + <int64_t>done)
        if length < 0:
            if errno == EINTR:
                continue
            return -errno
        if length == 0:
            break
        done += <size_t>length
    return <int64_t>done


cdef int write_at(int descriptor, const void* buffer, size_t n, int64_t position) noexcept nogil:
    cdef size_t done = 0
    cdef ssize_t length
    while done < n:
        length = file_pwrite(descriptor, <const uint8_t*>buffer + done, n - done, position + <int64_t>done)
        if length < 0:
            if errno == EINTR:
                continue
            return -errno
        done += <size_t>length
    return 0


cdef void scan_file(Scanner* scanner, int descriptor, int64_t size, uint8_t* buffer, size_t capacity) noexcept nogil:
    scanner.descriptor = descriptor
    scanner.size = size
    scanner.buffer = buffer
    scanner.capacity = capacity
    scanner.at = 0
    scanner.filled = 0


cdef const uint8_t* scan_window(Scanner* scanner, int64_t position, size_t need, int* error) noexcept nogil:
    cdef int64_t left = scanner.size - position
    cdef int64_t length
    error[0] = 0
    if left < <int64_t>need or need > scanner.capacity:
        return NULL
    if position < scanner.at or position + <int64_t>need > scanner.at + <int64_t>scanner.filled:
        length = left if left < <int64_t>scanner.capacity else <int64_t>scanner.capacity
        length = read_at(scanner.descriptor, scanner.buffer, <size_t>length, position)
        scanner.at = position
        scanner.filled = 0
        if length < 0:
            error[0] = <int>length
            return NULL
        scanner.filled = <size_t>length
        if length < <int64_t>need:
            return NULL
    return scanner.buffer + (position - scanner.at)


cdef int scan_batch(Scanner* scanner, int64_t position, BatchInfo* out) noexcept nogil:
    cdef int error
    cdef int64_t left = scanner.size - position
    cdef size_t n
    cdef const uint8_t* p
    out.size = 0
    if left == 0:
        return SCAN_END
    if left < MESSAGE_HEADER_BYTES:
        return SCAN_CORRUPT
    n = BATCH_HEADER_BYTES if left >= BATCH_HEADER_BYTES else MESSAGE_HEADER_BYTES
    p = scan_window(scanner, position, n, &error)
    if p == NULL:
        return error if error else SCAN_CORRUPT
    error = parse_batch_header(p, n, out)
    if error == INVALID_RECORD:   # the magic is not 2
        error = parse_message(p, n, out)
    if error != NO_ERROR or out.size > left or out.base_offset < 0 or out.last_offset_delta < 0:
        return SCAN_CORRUPT
    if out.base_offset > INT64_MAX - 1 - <int64_t>out.last_offset_delta:
        return SCAN_CORRUPT
    return SCAN_BATCH


cdef int scan_crc(Scanner* scanner, int64_t position, const BatchInfo* info) noexcept nogil:
    cdef bint old = info.magic < 2
    cdef int64_t covered = AT_MAGIC if old else AT_ATTRIBUTES       # the CRC covers the batch from there on
    cdef uint32_t crc = 0
    cdef int64_t at = position + covered
    cdef int64_t end = position + info.size
    cdef size_t piece
    cdef int error
    cdef const uint8_t* p
    # Request the batch from its start if it fits, so that the buffer is filled once for many batches instead of twice for each.
    if <size_t>info.size <= scanner.capacity:
        p = scan_window(scanner, position, <size_t>info.size, &error)
        if p == NULL:
            return error
        p += covered
        return (crc32(0, p, <size_t>(end - at)) if old else crc32c(0, p, <size_t>(end - at))) == info.crc
    while at < end:
        piece = scanner.capacity if end - at > <int64_t>scanner.capacity else <size_t>(end - at)
        p = scan_window(scanner, at, piece, &error)
        if p == NULL:
            return error
        crc = crc32(crc, p, piece) if old else crc32c(crc, p, piece)
        at += <int64_t>piece
    return crc == info.crc
