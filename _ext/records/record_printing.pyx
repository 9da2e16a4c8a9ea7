"""Formats records, by a template or as lines of JSON, into one growing buffer.

Runs in the process of the command, in one thread. The JSON equals, byte for byte, the output of `json.dumps(record,
ensure_ascii=False)` for the objects that `odradek.cli.records.record_json` describes; that is the reference in the tests.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_Clear, PyErr_ExceptionMatches
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from libc.stdint cimport int32_t, int64_t, uint64_t, uint8_t

from odradek._ext.protocol.cursor cimport (
    Cursor,
    buffer_free,
    buffer_init,
    cursor_init,
    read_bytes,
    read_varint,
    write_bytes,
    write_varint,
)

import json
from base64 import b64encode

cdef extern from "Python.h":
    PyObject* PyUnicode_DecodeUTF8(const char* data, Py_ssize_t size, const char* errors)

cdef enum:
    TEXT, TOPIC, PARTITION, OFFSET, TIMESTAMP, TIME, KEY, VALUE, HEADERS, JSON

cdef dict FIELDS = {
    "topic": TOPIC, "partition": PARTITION, "offset": OFFSET, "timestamp": TIMESTAMP, "time": TIME, "key": KEY,
    "value": VALUE, "headers": HEADERS, "json": JSON,
}
cdef const char* DIGITS = b"0123456789abcdef"


cdef inline void write_text(WriteBuffer* out, const char* text, Py_ssize_t size) noexcept nogil:
    write_bytes(out, text, size)


cdef void write_decimal(WriteBuffer* out, int64_t value) noexcept nogil:
    cdef char digits[20]
    cdef int at = 20
    cdef uint64_t left = <uint64_t>value
    if value < 0:
        left = 0 - left
    while True:
        at -= 1
        digits[at] = <char>(48 + left % 10)
        left //= 10
        if left == 0:
            break
    if value < 0:
        write_text(out, b"-", 1)
    write_text(out, digits + at, 20 - at)


cdef bint is_ascii(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef uint8_t seen = 0
    cdef Py_ssize_t i
    for i in range(size):
        seen |= data[i]
    return seen < 0x80


cdef bint is_utf8(const uint8_t* data, Py_ssize_t size) except -1:
    cdef PyObject* text = PyUnicode_DecodeUTF8(<const char*>data, size, NULL)
    if text != NULL:
        Py_XDECREF(text)
        return True
    if not PyErr_ExceptionMatches(UnicodeDecodeError):
        PyErr_Clear()
        raise MemoryError(f"no memory to decode a text of {size} bytes")
    PyErr_Clear()
    return False


cdef void write_escaped(WriteBuffer* out, uint8_t byte) noexcept nogil:
    cdef char escaped[6]
    cdef char short_form = 0
    if byte == 34 or byte == 92:        # quotation mark, backslash
        short_form = <char>byte
    elif byte == 10:
        short_form = b"n"
    elif byte == 13:
        short_form = b"r"
    elif byte == 9:
        short_form = b"t"
    elif byte == 12:
        short_form = b"f"
    elif byte == 8:
        short_form = b"b"
    escaped[0] = 92
    if short_form:
        escaped[1] = short_form
        write_text(out, escaped, 2)
        return
    escaped[1] = b"u"
    escaped[2] = escaped[3] = b"0"
    escaped[4] = DIGITS[byte >> 4]
    escaped[5] = DIGITS[byte & 15]
    write_text(out, escaped, 6)


cdef void write_quoted(WriteBuffer* out, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Write valid UTF-8 as a JSON string."""
    cdef Py_ssize_t begin = 0
    cdef Py_ssize_t i
    write_text(out, b'"', 1)
    for i in range(size):
        if data[i] < 32 or data[i] == 34 or data[i] == 92:
            write_bytes(out, data + begin, i - begin)
            write_escaped(out, data[i])
            begin = i + 1
    write_bytes(out, data + begin, size - begin)
    write_text(out, b'"', 1)


cdef int write_json(WriteBuffer* out, const uint8_t* data, int32_t size) except -1:
    """Write a key or a value: text, null for -1, or an object with base64 for bytes that are not UTF-8."""
    cdef bytes encoded
    if size < 0:
        write_text(out, b"null", 4)
    elif is_ascii(data, size) or is_utf8(data, size):
        write_quoted(out, data, size)
    else:
        encoded = b64encode(PyBytes_FromStringAndSize(<const char*>data, size))
        write_text(out, b'{"base64": "', 12)
        write_bytes(out, <const char*>encoded, len(encoded))
        write_text(out, b'"}', 2)
    return 0


cdef int write_json_name(WriteBuffer* out, const uint8_t* data, int32_t size) except -1:
    """Write the name of a header, which must be a JSON string."""
    cdef bytes name
    if is_ascii(data, size) or is_utf8(data, size):
        write_quoted(out, data, size)
    else:
        name = PyBytes_FromStringAndSize(<const char*>data, size).decode("utf-8", "backslashreplace").encode()
        write_quoted(out, <const uint8_t*><const char*>name, len(name))
    return 0


cdef int write_headers(WriteBuffer* out, const RecordView* record, bint as_json) except -1:
    """Write headers as `[["name", "value"], ...]`, or as name=value,name=value. Raises ValueError."""
    cdef Cursor c
    cdef const uint8_t* name
    cdef const uint8_t* value
    cdef int32_t name_bytes, value_bytes, i
    cursor_init(&c, record.headers, record.headers_end - record.headers)
    for i in range(record.header_count):
        name_bytes = read_varint(&c)
        name = read_bytes(&c, name_bytes)
        value_bytes = read_varint(&c)
        value = read_bytes(&c, value_bytes) if value_bytes != -1 else NULL
        if c.error:
            raise ValueError(f"the record at offset {record.offset} has headers that cannot be read")
        if as_json:
            write_text(out, b", [" if i else b"[", 3 if i else 1)
            write_json_name(out, name, name_bytes)
            write_text(out, b", ", 2)
            write_json(out, value, value_bytes)
            write_text(out, b"]", 1)
        else:
            if i:
                write_text(out, b",", 1)
            write_bytes(out, name, name_bytes)
            write_text(out, b"=", 1)
            write_bytes(out, value, max(value_bytes, 0))
    return 0


cdef class RecordPrinter:
    """:param steps: the template: bytes that are copied, and names of fields; "json" is the whole record.

    :param when: a function of ms since 1970 that returns the text of the field "time".
    """

    def __cinit__(self, steps=(), when=str):
        buffer_init(&self.out)
        self.texts = [step if isinstance(step, bytes) else None for step in steps]
        self.fields = [TEXT if isinstance(step, bytes) else FIELDS[step] for step in steps]
        self.when = when
        self.time_of = -1
        self.time_text = str(when(-1)).encode()
        self.set_partition("", 0)

    def __dealloc__(self):
        buffer_free(&self.out)

    @property
    def size(self) -> int:
        """Number of bytes that `take` will return."""
        return self.out.size

    cpdef set_partition(self, str topic, int32_t partition):
        """Set the partition of the following records."""
        self.topic = topic.encode()
        self.partition = partition
        self.json_begin = f'{{"topic": {json.dumps(topic, ensure_ascii=False)}, "partition": {partition}, "offset": '.encode()

    def add(self, int64_t offset, int64_t timestamp, key, value, headers) -> None:
        """Format a record of the current partition: key and value are bytes or None; headers a list of (str, bytes or None)."""
        cdef RecordView record
        cdef WriteBuffer packed
        cdef bytes key_bytes = key
        cdef bytes value_bytes = value
        cdef bytes part
        buffer_init(&packed)
        try:
            for name, content in headers or ():
                part = name.encode()
                write_varint(&packed, len(part))
                write_bytes(&packed, <const char*>part, len(part))
                part = content
                write_varint(&packed, -1 if part is None else len(part))
                if part is not None:
                    write_bytes(&packed, <const char*>part, len(part))
            if packed.error:
                raise MemoryError("no memory for the headers of a record")
            record.offset = offset
            record.timestamp = timestamp
            record.timestamp_type = 0
            record.key_bytes = -1 if key_bytes is None else len(key_bytes)
            record.key = <const uint8_t*>NULL if key_bytes is None else <const uint8_t*><const char*>key_bytes
            record.value_bytes = -1 if value_bytes is None else len(value_bytes)
            record.value = <const uint8_t*>NULL if value_bytes is None else <const uint8_t*><const char*>value_bytes
            record.headers = packed.data
            record.headers_end = packed.data + packed.size
            record.header_count = len(headers or ())
            self.put(&record)
        finally:
            buffer_free(&packed)

    cdef int put(self, const RecordView* record) except -1:
        cdef WriteBuffer* out = &self.out
        cdef Py_ssize_t i
        cdef int field
        cdef bytes text
        for i in range(len(self.fields)):
            field = self.fields[i]
            if field == VALUE:
                write_bytes(out, record.value, max(record.value_bytes, 0))
            elif field == TEXT:
                text = self.texts[i]
                write_bytes(out, <const char*>text, len(text))
            elif field == JSON:
                self.put_json(record)
            elif field == KEY:
                write_bytes(out, record.key, max(record.key_bytes, 0))
            elif field == TOPIC:
                write_bytes(out, <const char*>self.topic, len(self.topic))
            elif field == PARTITION:
                write_decimal(out, self.partition)
            elif field == OFFSET:
                write_decimal(out, record.offset)
            elif field == TIMESTAMP:
                write_decimal(out, record.timestamp)
            elif field == TIME:
                if record.timestamp != self.time_of:
                    self.time_text = str(self.when(record.timestamp)).encode()
                    self.time_of = record.timestamp
                write_bytes(out, <const char*>self.time_text, len(self.time_text))
            else:
                write_headers(out, record, False)
        if out.error:
            raise MemoryError(f"no memory for {out.size} bytes of records")
        return 0

    cdef int put_json(self, const RecordView* record) except -1:
        cdef WriteBuffer* out = &self.out
        write_bytes(out, <const char*>self.json_begin, len(self.json_begin))
        write_decimal(out, record.offset)
        write_text(out, b', "timestamp": ', 15)
        write_decimal(out, record.timestamp)
        write_text(out, b', "key": ', 9)
        write_json(out, record.key, record.key_bytes)
        write_text(out, b', "value": ', 11)
        write_json(out, record.value, record.value_bytes)
        write_text(out, b', "headers": [', 14)
        write_headers(out, record, True)
        write_text(out, b"]}", 2)
        return 0

    def take(self) -> bytes:
        """The records formatted since the last call, as bytes."""
        cdef bytes data = PyBytes_FromStringAndSize(<const char*>self.out.data, self.out.size)
        self.out.size = 0
        return data
