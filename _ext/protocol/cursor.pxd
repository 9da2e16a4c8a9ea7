"""Bounded reads and growing writes of the wire protocol's primitive types, all big-endian.

Used by every process that speaks the protocol. There is no state except the two structures, which belong to the caller.

Errors are sticky, so that a caller reads a whole header and checks once. A read that fails sets `error` (the first
failure remains), returns 0, -1 or NULL, and moves `end` to `ptr`: every later read fails too, and `ptr` remains at the
start of the refused value. Values read from a cursor with an error are meaningless. A write that cannot allocate memory
sets `error`; later writes do nothing.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, int8_t, uint16_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy


cdef extern from "<endian.h>" nogil:
    uint16_t be16toh(uint16_t)
    uint32_t be32toh(uint32_t)
    uint64_t be64toh(uint64_t)
    uint16_t htobe16(uint16_t)
    uint32_t htobe32(uint32_t)
    uint64_t htobe64(uint64_t)


cdef enum CursorError:
    CURSOR_OK = 0
    CURSOR_TRUNCATED = 1                # the value is longer than the remaining bytes
    CURSOR_VARINT = 2                   # a varint is longer than its type
    CURSOR_LENGTH = 3                   # a length or count is below -1, or above its limit
    CURSOR_NULL = 4                     # a value is null, but not nullable in the schema
    CURSOR_UTF8 = 5                     # a string is not UTF-8
    CURSOR_TAGGED = 6                   # the size of a tagged field differs from the size of its value
    CURSOR_MARKER = 7                   # the marker of a nullable structure is neither -1 nor 1
    CURSOR_ELEMENTS = 8                 # the message's arrays have too many elements


cdef struct Cursor:
    const uint8_t* ptr                  # the next byte
    const uint8_t* end                  # one past the last byte
    int64_t refused                     # if `error` is set: the refused length or value, where it has one
    int error                           # a CursorError


cdef struct WriteBuffer:
    uint8_t* data                       # from malloc; the owner frees it with `buffer_free`
    Py_ssize_t size                     # bytes written
    Py_ssize_t capacity
    int error                           # 1: out of memory, or more than 2 GiB


cdef enum:
    STRING_MAX_BYTES = 0x7fff           # limit of every string, including compact strings, as in Kafka
    BUFFER_MAX_BYTES = 0x7fffffff


# -- Reading ---------------------------------------------------------------------------------------------------------

cdef inline void cursor_init(Cursor* c, const void* data, Py_ssize_t size) noexcept nogil:
    c.ptr = <const uint8_t*>data
    c.end = c.ptr + size
    c.refused = 0
    c.error = CURSOR_OK


cdef inline void cursor_fail(Cursor* c, int error, int64_t refused) noexcept nogil:
    if c.error == CURSOR_OK:
        c.error = error
        c.refused = refused
    c.end = c.ptr


cdef inline Py_ssize_t cursor_left(const Cursor* c) noexcept nogil:
    return c.end - c.ptr


cdef inline const uint8_t* read_bytes(Cursor* c, int64_t size) noexcept nogil:
    """Return a pointer to the next `size` bytes; NULL if fewer remain, or `size` is negative."""
    cdef const uint8_t* at = c.ptr
    if size < 0 or size > c.end - at:
        cursor_fail(c, CURSOR_TRUNCATED if size >= 0 else CURSOR_LENGTH, size)
        return NULL
    c.ptr = at + size
    return at


cdef inline int8_t read_int8(Cursor* c) noexcept nogil:
    if c.end - c.ptr < 1:
        cursor_fail(c, CURSOR_TRUNCATED, 1)
        return 0
    c.ptr += 1
    return <int8_t>(c.ptr - 1)[0]


cdef inline uint16_t read_uint16(Cursor* c) noexcept nogil:
    cdef uint16_t raw
    if c.end - c.ptr < 2:
        cursor_fail(c, CURSOR_TRUNCATED, 2)
        return 0
    memcpy(&raw, c.ptr, 2)
    c.ptr += 2
    return be16toh(raw)


cdef inline uint32_t read_uint32(Cursor* c) noexcept nogil:
    cdef uint32_t raw
    if c.end - c.ptr < 4:
        cursor_fail(c, CURSOR_TRUNCATED, 4)
        return 0
    memcpy(&raw, c.ptr, 4)
    c.ptr += 4
    return be32toh(raw)


cdef inline uint64_t read_uint64(Cursor* c) noexcept nogil:
    cdef uint64_t raw
    if c.end - c.ptr < 8:
        cursor_fail(c, CURSOR_TRUNCATED, 8)
        return 0
    memcpy(&raw, c.ptr, 8)
    c.ptr += 8
    return be64toh(raw)


cdef inline int16_t read_int16(Cursor* c) noexcept nogil:
    return <int16_t>read_uint16(c)


cdef inline int32_t read_int32(Cursor* c) noexcept nogil:
    return <int32_t>read_uint32(c)


cdef inline int64_t read_int64(Cursor* c) noexcept nogil:
    return <int64_t>read_uint64(c)


cdef inline double read_float64(Cursor* c) noexcept nogil:
    cdef uint64_t bits = read_uint64(c)
    cdef double value
    memcpy(&value, &bits, 8)
    return value


cdef inline const uint8_t* read_uuid(Cursor* c) noexcept nogil:
    """Return a pointer to the 16 bytes, or NULL."""
    return read_bytes(c, 16)


cdef inline uint64_t read_uvarint_of(Cursor* c, int bits) noexcept nogil:
    """Read an unsigned varint of at most `bits` bits (32 or 64). A longer varint is refused, even if the additional bits are zero."""
    cdef const uint8_t* at = c.ptr
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    while True:
        if at >= c.end:
            cursor_fail(c, CURSOR_TRUNCATED, (at - c.ptr) + 1)
            return 0
        byte = at[0]
        at += 1
        if bits - shift < 7 and byte >> (bits - shift) != 0:
            cursor_fail(c, CURSOR_VARINT, bits)
            return 0
        value |= <uint64_t>(byte & 0x7f) << shift
        if byte < 0x80:
            c.ptr = at
            return value
        shift += 7


cdef inline uint32_t read_uvarint(Cursor* c) noexcept nogil:
    if c.ptr < c.end and c.ptr[0] < 0x80:
        c.ptr += 1
        return (c.ptr - 1)[0]
    return <uint32_t>read_uvarint_of(c, 32)


cdef inline uint64_t read_uvarlong(Cursor* c) noexcept nogil:
    return read_uvarint_of(c, 64)


cdef inline int32_t read_varint(Cursor* c) noexcept nogil:
    """Read a zigzag-encoded varint, as in records."""
    cdef uint32_t raw = read_uvarint(c)
    return <int32_t>((raw >> 1) ^ (~(raw & 1) + 1))


cdef inline int64_t read_varlong(Cursor* c) noexcept nogil:
    """Read a zigzag-encoded varlong, as in records."""
    cdef uint64_t raw = read_uvarint_of(c, 64)
    return <int64_t>((raw >> 1) ^ (~(raw & 1) + 1))


cdef inline int64_t read_length(Cursor* c, bint compact) noexcept nogil:
    """Read the length of bytes or records, or the count of an array; -1 is null. Does not check that so many bytes remain."""
    cdef int64_t length
    if compact:
        return <int64_t>read_uvarint(c) - 1
    length = read_int32(c)
    if length < -1:
        c.ptr -= 4
        cursor_fail(c, CURSOR_LENGTH, length)
        return -1
    return length


cdef inline int64_t read_string_length(Cursor* c, bint compact) noexcept nogil:
    """Read the length of a string in bytes; -1 is null. If it sets no error, so many bytes remain."""
    cdef const uint8_t* at = c.ptr
    cdef int64_t length
    if compact:
        length = <int64_t>read_uvarint(c) - 1
    else:
        length = read_int16(c)
    if c.error:
        return -1
    if length < -1 or length > STRING_MAX_BYTES:
        c.ptr = at
        cursor_fail(c, CURSOR_LENGTH, length)
        return -1
    if length > c.end - c.ptr:
        c.ptr = at
        cursor_fail(c, CURSOR_TRUNCATED, length)
        return -1
    return length


cdef inline int skip_tagged_fields(Cursor* c) noexcept nogil:
    """Skip the section of tagged fields at the end of a structure of a flexible version. Return `c.error`."""
    cdef uint32_t count = read_uvarint(c)
    while count > 0 and c.error == CURSOR_OK:
        read_uvarint(c)
        read_bytes(c, read_uvarint(c))
        count -= 1
    return c.error


# -- Writing ---------------------------------------------------------------------------------------------------------

cdef inline void buffer_init(WriteBuffer* b) noexcept nogil:
    b.data = NULL
    b.size = 0
    b.capacity = 0
    b.error = 0


cdef inline void buffer_free(WriteBuffer* b) noexcept nogil:
    free(b.data)
    buffer_init(b)


cdef inline int buffer_grow(WriteBuffer* b, Py_ssize_t more) noexcept nogil:
    cdef Py_ssize_t capacity = 256 if b.capacity == 0 else b.capacity * 2
    cdef uint8_t* data
    if b.error:
        return 0
    if b.size + more > BUFFER_MAX_BYTES:
        b.error = 1
        return 0
    while capacity < b.size + more:
        capacity *= 2
    data = <uint8_t*>realloc(b.data, capacity)
    if data == NULL:
        b.error = 1
        return 0
    b.data = data
    b.capacity = capacity
    return 1


cdef inline uint8_t* buffer_reserve(WriteBuffer* b, Py_ssize_t more) noexcept nogil:
    """Return a pointer to room for `more` bytes, which count as written; NULL without memory. It is valid until the next write."""
    if b.capacity - b.size < more or b.error:
        if not buffer_grow(b, more):
            return NULL
    b.size += more
    return b.data + b.size - more


cdef inline void write_bytes(WriteBuffer* b, const void* data, Py_ssize_t size) noexcept nogil:
    cdef uint8_t* to = buffer_reserve(b, size)
    if to != NULL and size > 0:
        memcpy(to, data, size)


cdef inline void write_int8(WriteBuffer* b, int8_t value) noexcept nogil:
    cdef uint8_t* to = buffer_reserve(b, 1)
    if to != NULL:
        to[0] = <uint8_t>value


cdef inline void write_int16(WriteBuffer* b, int16_t value) noexcept nogil:
    cdef uint16_t raw = htobe16(<uint16_t>value)
    cdef uint8_t* to = buffer_reserve(b, 2)
    if to != NULL:
        memcpy(to, &raw, 2)


cdef inline void write_int32(WriteBuffer* b, int32_t value) noexcept nogil:
    cdef uint32_t raw = htobe32(<uint32_t>value)
    cdef uint8_t* to = buffer_reserve(b, 4)
    if to != NULL:
        memcpy(to, &raw, 4)


cdef inline void write_int64(WriteBuffer* b, int64_t value) noexcept nogil:
    cdef uint64_t raw = htobe64(<uint64_t>value)
    cdef uint8_t* to = buffer_reserve(b, 8)
    if to != NULL:
        memcpy(to, &raw, 8)


cdef inline void write_float64(WriteBuffer* b, double value) noexcept nogil:
    cdef uint64_t raw
    memcpy(&raw, &value, 8)
    write_int64(b, <int64_t>raw)


cdef inline int uvarint_put(uint8_t* to, uint64_t value) noexcept nogil:
    """Write a varint at `to`, which must have room for 10 bytes. Return the number of written bytes."""
    cdef int size = 0
    while value >= 0x80:
        to[size] = <uint8_t>(value | 0x80)
        value >>= 7
        size += 1
    to[size] = <uint8_t>value
    return size + 1


cdef inline void write_uvarlong(WriteBuffer* b, uint64_t value) noexcept nogil:
    cdef uint8_t raw[10]
    write_bytes(b, raw, uvarint_put(raw, value))


cdef inline void write_uvarint(WriteBuffer* b, uint32_t value) noexcept nogil:
    cdef uint8_t* to
    if value < 0x80:
        to = buffer_reserve(b, 1)
        if to != NULL:
            to[0] = <uint8_t>value
    else:
        write_uvarlong(b, value)


cdef inline void write_varint(WriteBuffer* b, int32_t value) noexcept nogil:
    """Write a zigzag-encoded varint, as in records."""
    write_uvarint(b, (<uint32_t>value << 1) ^ <uint32_t>(value >> 31))


cdef inline void write_varlong(WriteBuffer* b, int64_t value) noexcept nogil:
    """Write a zigzag-encoded varlong, as in records."""
    write_uvarlong(b, (<uint64_t>value << 1) ^ <uint64_t>(value >> 63))


cdef inline void write_length(WriteBuffer* b, int32_t length, bint compact) noexcept nogil:
    """Write the length of bytes or records, or the count of an array; -1 is null."""
    if compact:
        write_uvarint(b, <uint32_t>length + 1)
    else:
        write_int32(b, length)


cdef inline void write_string_length(WriteBuffer* b, int32_t length, bint compact) noexcept nogil:
    """Write the length of a string in bytes; -1 is null. The caller checks that it is at most STRING_MAX_BYTES."""
    if compact:
        write_uvarint(b, <uint32_t>length + 1)
    else:
        write_int16(b, <int16_t>length)
