"""Walking through a log file batch by batch with few reads: headers alone, or with their CRC.

Used by recovery, by opening a log and by look-ups, in any process. The scanner is on its caller's stack; the file is
only read, at positions below a size that its caller knows to be committed or owns.
"""

from libc.errno cimport EINTR, errno
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t
from posix.types cimport off_t

from broker._ext.crc32c cimport crc32c
from broker._ext.records cimport (
    AT_ATTRIBUTES,
    BATCH_HEADER_BYTES,
    BATCH_OVERHEAD_BYTES,
    BatchInfo,
    ERROR_INVALID_RECORD,
    ERROR_NONE,
    load32,
    parse_batch_header,
)


cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int descriptor, void* buffer, size_t n, off_t position)
    ssize_t pwrite(int descriptor, const void* buffer, size_t n, off_t position)


cdef enum:
    OLD_HEADER_BYTES = 26       # of a message v0: offset, size, crc, magic, attributes, key and value length


cdef int64_t read_at(int descriptor, void* buffer, size_t n, int64_t position) noexcept nogil:
    cdef size_t done = 0
    cdef ssize_t got
    while done < n:
        got = pread(descriptor, <uint8_t*>buffer + done, n - done, position + <int64_t>done)
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
        put = pwrite(descriptor, <const uint8_t*>buffer + done, n - done, position + <int64_t>done)
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


cdef uint32_t OLD_POLYNOMIAL = 0xEDB88320     # CRC-32, which messages before v2 carry


cdef bint is_old_message(Scanner* scanner, int64_t position, const uint8_t* p) noexcept nogil:
    """Whether a message of format v0 or v1 fits here: by magic and size, and by its CRC-32 if it is in one window."""
    cdef int64_t size = <int64_t>load32(p + 8) + BATCH_OVERHEAD_BYTES
    cdef int error
    cdef uint32_t crc = 0xFFFFFFFF
    cdef int64_t at
    cdef int _bit
    if p[16] > 1 or size < OLD_HEADER_BYTES or size > scanner.size - position:
        return False
    if size > <int64_t>scanner.capacity:
        return True
    p = scan_window(scanner, position, <size_t>size, &error)
    if p == NULL:
        return False
    for at in range(16, size):
        crc ^= p[at]
        for _bit in range(8):
            crc = (crc >> 1) ^ (OLD_POLYNOMIAL * (crc & 1))
    return ~crc == load32(p + 12)


cdef int scan_batch(Scanner* scanner, int64_t position, BatchInfo* out) noexcept nogil:
    cdef int error
    cdef int64_t left = scanner.size - position
    cdef const uint8_t* p
    out.size = 0
    if left == 0:
        return SCAN_END
    if left < OLD_HEADER_BYTES:
        return SCAN_CORRUPT
    p = scan_window(scanner, position, BATCH_HEADER_BYTES if left >= BATCH_HEADER_BYTES else OLD_HEADER_BYTES, &error)
    if p == NULL:
        return error if error else SCAN_CORRUPT
    error = parse_batch_header(p, BATCH_HEADER_BYTES if left >= BATCH_HEADER_BYTES else OLD_HEADER_BYTES, out)
    if error == ERROR_INVALID_RECORD:
        return SCAN_OLD_FORMAT if is_old_message(scanner, position, p) else SCAN_CORRUPT
    if error != ERROR_NONE or out.size > left or out.base_offset < 0 or out.last_offset_delta < 0:
        return SCAN_CORRUPT
    if out.base_offset > INT64_MAX - 1 - <int64_t>out.last_offset_delta:
        return SCAN_CORRUPT
    return SCAN_BATCH


cdef int scan_crc(Scanner* scanner, int64_t position, const BatchInfo* info) noexcept nogil:
    cdef uint32_t crc = 0
    cdef int64_t at = position + AT_ATTRIBUTES
    cdef int64_t end = position + info.size
    cdef size_t piece
    cdef int error
    cdef const uint8_t* p
    # Ask for the batch from its start if it fits, so that the buffer is read once a stretch and not twice a batch.
    if <size_t>info.size <= scanner.capacity:
        p = scan_window(scanner, position, <size_t>info.size, &error)
        if p == NULL:
            return error
        return crc32c(0, p + AT_ATTRIBUTES, <size_t>info.size - AT_ATTRIBUTES) == info.crc
    while at < end:
        piece = scanner.capacity if end - at > <int64_t>scanner.capacity else <size_t>(end - at)
        p = scan_window(scanner, at, piece, &error)
        if p == NULL:
            return error
        crc = crc32c(crc, p, piece)
        at += <int64_t>piece
    return crc == info.crc
