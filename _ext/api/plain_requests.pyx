"""Reading headers and strings of requests; see `plain_requests.pxd`."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t

from odradek._ext.protocol.cursor cimport (
    CURSOR_NULL,
    CURSOR_OK,
    Cursor,
    WriteBuffer,
    cursor_fail,
    cursor_init,
    read_bytes,
    read_int16,
    read_int32,
    read_string_length,
    skip_tagged_fields,
)


cdef object text(Cursor* c, bint compact, bint nullable):
    cdef int64_t length = read_string_length(c, compact)
    if length < 0:
        if not nullable:
            cursor_fail(c, CURSOR_NULL, 0)
        return None
    return PyUnicode_DecodeUTF8(<const char*>read_bytes(c, length), length, NULL)


cdef int header(Cursor* c, bytes frame, int16_t api_key, int newest, int flexible, int32_t* correlation_id) except -2:
    cdef int16_t version
    cursor_init(c, <const char*>frame, len(frame))
    if read_int16(c) != api_key:
        return -1
    version = read_int16(c)
    correlation_id[0] = read_int32(c)
    if c.error != CURSOR_OK or version < 0 or version > newest:
        return -1
    text(c, False, True)                # the client id, unused: the forwarded context contains it
    if version >= flexible:
        skip_tagged_fields(c)
    return version


cdef bytes finished(WriteBuffer* out):
    if out.error:
        raise MemoryError("no memory for a response")
    return PyBytes_FromStringAndSize(<const char*>out.data, out.size)
