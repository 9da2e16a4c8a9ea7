# cython: language_level=3, boundscheck=False, wraparound=False
"""Calls the inline functions of `cursor.pxd` for tests/protocol/test_cursor.py, which compiles this file."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from odradek._ext.protocol cimport cursor as c


def read(str kind, bytes data, *sizes):
    """Read a value: the value (None for NULL), the position after it, the error and the refused value."""
    cdef c.Cursor cursor
    cdef const unsigned char* data_ptr
    c.cursor_init(&cursor, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    value = None
    if kind == "int8":
        value = c.read_int8(&cursor)
    elif kind == "int16":
        value = c.read_int16(&cursor)
    elif kind == "uint16":
        value = c.read_uint16(&cursor)
    elif kind == "int32":
        value = c.read_int32(&cursor)
    elif kind == "uint32":
        value = c.read_uint32(&cursor)
    elif kind == "int64":
        value = c.read_int64(&cursor)
    elif kind == "uint64":
        value = c.read_uint64(&cursor)
    elif kind == "float64":
        value = c.read_float64(&cursor)
    elif kind == "uvarint":
        value = c.read_uvarint(&cursor)
    elif kind == "uvarlong":
        value = c.read_uvarlong(&cursor)
    elif kind == "varint":
        value = c.read_varint(&cursor)
    elif kind == "varlong":
        value = c.read_varlong(&cursor)
    elif kind == "length":
        value = c.read_length(&cursor, False)
    elif kind == "compact length":
        value = c.read_length(&cursor, True)
    elif kind == "string length":
        value = c.read_string_length(&cursor, False)
    elif kind == "compact string length":
        value = c.read_string_length(&cursor, True)
    elif kind == "tagged fields":
        value = c.skip_tagged_fields(&cursor)
    elif kind == "uuid":
        data_ptr = c.read_uuid(&cursor)
        value = None if data_ptr == NULL else PyBytes_FromStringAndSize(<const char*>data_ptr, 16)
    elif kind == "bytes":
        for size in sizes:
            data_ptr = c.read_bytes(&cursor, size)
            value = None if data_ptr == NULL else PyBytes_FromStringAndSize(<const char*>data_ptr, size)
    else:
        raise ValueError(kind)
    if cursor.error:
        assert c.cursor_left(&cursor) == 0
        assert c.read_int8(&cursor) == 0 and c.read_bytes(&cursor, 1) == NULL and c.read_uvarint(&cursor) == 0
    return value, <const char*>cursor.ptr - PyBytes_AS_STRING(data), cursor.error, cursor.refused


def write(list values):
    """Encode (kind, value) pairs in sequence."""
    cdef c.WriteBuffer b
    c.buffer_init(&b)
    try:
        for kind, value in values:
            if kind == "int8":
                c.write_int8(&b, value)
            elif kind == "int16":
                c.write_int16(&b, value)
            elif kind == "int32":
                c.write_int32(&b, value)
            elif kind == "int64":
                c.write_int64(&b, value)
            elif kind == "float64":
                c.write_float64(&b, value)
            elif kind == "uvarint":
                c.write_uvarint(&b, value)
            elif kind == "uvarlong":
                c.write_uvarlong(&b, value)
            elif kind == "varint":
                c.write_varint(&b, value)
            elif kind == "varlong":
                c.write_varlong(&b, value)
            elif kind == "length":
                c.write_length(&b, value, False)
            elif kind == "compact length":
                c.write_length(&b, value, True)
            elif kind == "string length":
                c.write_string_length(&b, value, False)
            elif kind == "compact string length":
                c.write_string_length(&b, value, True)
            elif kind == "bytes":
                c.write_bytes(&b, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
            else:
                raise ValueError(kind)
        assert not b.error and b.size <= b.capacity
        return PyBytes_FromStringAndSize(<const char*>b.data, b.size)
    finally:
        c.buffer_free(&b)


def write_too_much():
    """Write beyond the limit of the buffer: whether that fails, the error, and the size after one more write."""
    cdef c.WriteBuffer b
    c.buffer_init(&b)
    try:
        c.write_int32(&b, 1)
        refused = c.buffer_reserve(&b, <Py_ssize_t>1 << 31) == NULL
        c.write_int32(&b, 2)
        return refused, b.error, b.size
    finally:
        c.buffer_free(&b)
