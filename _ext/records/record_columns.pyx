"""Collects records as columns of Python objects, for a program that makes tables of them.

Runs in the process of a job, in one thread.
"""

import re

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t

from odradek._ext.protocol.cursor cimport Cursor, cursor_init, read_bytes, read_varint
from odradek._ext.records.record_printing cimport RecordPrinter, RecordView

cdef enum:
    MOST_HEADERS = 1 << 20              # of a record; as objects they need about 250 MB, and two bytes each in a batch

SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
"""A surrogate, which UTF-8 does not allow; also one that is cut off after two bytes."""


cdef class RecordColumns(RecordPrinter):
    """The records since the last `take`, one list for each column. Takes the place of a `RecordPrinter`, and prints nothing."""

    cdef list keys, values, offsets, timestamps, types, all_headers

    def __cinit__(self):
        self.clear()

    cdef void clear(self):
        self.keys, self.values, self.offsets = [], [], []
        self.timestamps, self.types, self.all_headers = [], [], []

    cpdef set_partition(self, str topic, int32_t partition):
        """The partition is no column: the caller knows it."""

    cdef int put(self, const RecordView* record) except -1:
        headers = headers_of(record)
        self.keys.append(bytes_of(<const char*>record.key, record.key_bytes))
        self.values.append(bytes_of(<const char*>record.value, record.value_bytes))
        self.offsets.append(record.offset)
        self.timestamps.append(record.timestamp)
        self.types.append(record.timestamp_type)
        self.all_headers.append(headers)
        return 0

    def take(self) -> tuple[
        list[bytes | None], list[bytes | None], list[int], list[int], list[int], list[list[tuple[str, bytes | None]] | None],
    ]:
        """Lists of keys, values (bytes or None), offsets, timestamps (ms), timestamp types (-1 none, 0 CreateTime, 1
        LogAppendTime), and headers: a list of (name, bytes or None), or None if there are none. Bytes of names that are not
        UTF-8 are replaced, as Kafka's Java client does."""
        columns = self.keys, self.values, self.offsets, self.timestamps, self.types, self.all_headers
        self.clear()
        return columns


cdef bytes_of(const char* data, int32_t size):
    return None if size < 0 else PyBytes_FromStringAndSize(data, size)


cdef name_of(const char* data, Py_ssize_t size):
    """The name of a header as Java decodes it: a surrogate becomes one U+FFFD; Python would replace each of its bytes."""
    try:
        return PyUnicode_DecodeUTF8(data, size, NULL)
    except UnicodeDecodeError:
        return SURROGATE.sub("\ufffd".encode(), PyBytes_FromStringAndSize(data, size)).decode("utf-8", "replace")


cdef headers_of(const RecordView* record):
    """Raises ValueError if the headers do not end with the record, or are too many."""
    cdef Cursor c
    cdef int32_t size
    cdef const char* data
    if record.header_count == 0 and record.headers == record.headers_end:
        return None
    if record.header_count > MOST_HEADERS:
        raise ValueError(f"the record at offset {record.offset} has {record.header_count} headers; at most {MOST_HEADERS} are read")
    cdef list headers = []
    cursor_init(&c, record.headers, record.headers_end - record.headers)
    for _ in range(record.header_count):
        size = read_varint(&c)
        data = <const char*>read_bytes(&c, size)
        if c.error:
            break
        name = name_of(data, size)
        size = read_varint(&c)
        if size == -1 and not c.error:
            headers.append((name, None))
            continue
        data = <const char*>read_bytes(&c, size)
        if c.error:
            break
        headers.append((name, PyBytes_FromStringAndSize(data, size)))
    if c.error or c.ptr != c.end:
        raise ValueError(f"the headers of the record at offset {record.offset} cannot be read")
    return headers
