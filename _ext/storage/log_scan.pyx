"""Walking through a log file batch by batch with few reads: headers alone, or with their CRC.
A message of format v0 or v1 counts as a batch of its own; what it is compressed of is not opened.

Used by recovery, by opening a log and by look-ups, in any process. The scanner is on its caller's stack; the file is
only read, at positions below a size that its caller knows to be committed or owns.
"""

from libc.errno cimport EINTR, errno
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint8_t

from odradek._ext.records.crc32 cimport crc32
from odradek._ext.records.crc32c cimport crc32c
from odradek._ext.records.old_messages cimport MESSAGE_HEADER_BYTES, parse_message
from odradek._ext.records.record_batch cimport (
    AT_ATTRIBUTES,
    AT_MAGIC,
    BATCH_HEADER_BYTES,
    ERROR_INVALID_RECORD,
    ERROR_NONE,
    BatchInfo,
    parse_batch_header,
)
from odradek._ext.storage.file_calls cimport file_pread, file_pwrite


cdef int64_t read_at(int descriptor, void* buffer, size_t n, int64_t position) noexcept nogil:
    cdef size_t done = 0
    cdef ssize_t got
    while done < n:
        got = file_pread(descriptor, <uint8_t*>buffer + done, n - done, position + <int64_t>done)
        if got < 0:
            if errno == EINTR:
                continue
            return -errno
        if got == 0:
            break
        done += <size_t>got
    return <int64_t>done


cdef int write_at(int descriptor, const void* buffer, size_t n, int64_t position) noexcept nogil:
    cdef size_t done = 0
    cdef ssize_t put
    while done < n:
        put = file_pwrite(descriptor, <const uint8_t*>buffer + done, n - done, position + <int64_t>done)
        if put < 0:
            if errno == EINTR:
                continue
            return -errno
        done += <size_t>put
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
    cdef int64_t got
    error[0] = 0
    if left < <int64_t>need or need > scanner.capacity:
        return NULL
    if position < scanner.at or position + <int64_t>need > scanner.at + <int64_t>scanner.filled:
        got = left if left < <int64_t>scanner.capacity else <int64_t>scanner.capacity
        got = read_at(scanner.descriptor, scanner.buffer, <size_t>got, position)
        scanner.at = position
        scanner.filled = 0
        if got < 0:
            error[0] = <int>got
            return NULL
        scanner.filled = <size_t>got
        if got < <int64_t>need:
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
    if error == ERROR_INVALID_RECORD:   # another magic than 2
        error = parse_message(p, n, out)
    if error != ERROR_NONE or out.size > left or out.base_offset < 0 or out.last_offset_delta < 0:
        return SCAN_CORRUPT
    if out.base_offset > INT64_MAX - 1 - <int64_t>out.last_offset_delta:
        return SCAN_CORRUPT
    return SCAN_BATCH


cdef int scan_crc(Scanner* scanner, int64_t position, const BatchInfo* info) noexcept nogil:
    cdef bint old = info.magic < 2
    cdef int64_t covered = AT_MAGIC if old else AT_ATTRIBUTES       # from there on
    cdef uint32_t crc = 0
    cdef int64_t at = position + covered
    cdef int64_t end = position + info.size
    cdef size_t piece
    cdef int error
    cdef const uint8_t* p
    # Ask for the batch from its start if it fits, so that the buffer is read once a stretch and not twice a batch.
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
