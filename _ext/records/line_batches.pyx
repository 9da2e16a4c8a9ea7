"""Collects records into a batch for each partition of a topic: lines of text, or single records.

Runs in the process of `odradek produce`, in one thread. Partitions are chosen like in librdkafka's default partitioner: by the
CRC-32 of a key that is not empty; records without a key go to one partition until its batch is taken, then to another.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint32_t, uint8_t
from libc.string cimport memchr

from odradek._ext.protocol.cursor cimport WriteBuffer, buffer_free, buffer_init, write_bytes, write_varint
from odradek._ext.records.batch_builder cimport BatchBuilder
from odradek._ext.records.crc32 cimport crc32

import random

cdef extern from "<string.h>" nogil:
    void* memmem(const void* haystack, size_t size, const void* needle, size_t needle_size)

cdef enum:
    RECORD_OVERHEAD_BYTES = 40          # most bytes of a record's lengths, deltas and counts


class MissingSeparatorError(ValueError):
    """A line lacks the separator between key and value."""


cdef class RecordBatches:
    """:param partitions: number of the topic's partitions. :param batch_bytes: largest batch of more than one record.

    :param open_partitions: the partitions for records without a key. :param fixed: the partition of all records, or None.
    :param key: key of all lines, or None. :param separator: separates key and value of a line; None: a line is a value.
    :param empty_is_null: write an empty value as null. :param headers: headers of all records, as (str, bytes or None).
    """

    cdef list builders                  # by partition; None without records
    cdef list ready                     # (partition, BatchBuilder)
    cdef list open_partitions
    cdef WriteBuffer packed             # the headers of all lines in the format of a record, preceded by their number
    cdef bytes key
    cdef bytes separator
    cdef list headers
    cdef int32_t partitions
    cdef int32_t fixed
    cdef int32_t sticky
    cdef Py_ssize_t batch_bytes
    cdef bint empty_is_null
    cdef readonly int64_t records       # records so far
    cdef readonly int64_t bytes         # total size of their keys and values
    cdef readonly Py_ssize_t size       # total size of the batches that `take` would return

    def __cinit__(self):
        buffer_init(&self.packed)

    def __init__(self, int32_t partitions, Py_ssize_t batch_bytes, *, open_partitions, fixed=None, key=None, separator=None,
                 bint empty_is_null=False, headers=()):
        self.builders = [None] * partitions
        self.ready = []
        self.open_partitions = list(open_partitions)
        self.key, self.separator = key, separator
        self.headers = list(headers)
        self.partitions, self.batch_bytes = partitions, batch_bytes
        self.fixed = -1 if fixed is None else fixed
        self.sticky = random.choice(self.open_partitions)
        self.empty_is_null = empty_is_null
        self.records = self.bytes = 0
        self.size = 0
        pack_headers(&self.packed, self.headers)

    def __dealloc__(self):
        buffer_free(&self.packed)

    def add_lines(self, data not None, int64_t timestamp) -> None:
        """Add a record for each line of `data`, bytes that end at the end of a line; line ends (LF, CR LF) are removed.

        Raises MissingSeparatorError at the first line without a separator; `records` contains the number of lines added before.
        """
        cdef Py_buffer view
        cdef const uint8_t* p
        cdef const uint8_t* end
        cdef const uint8_t* stop
        cdef Py_ssize_t size
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            p = <const uint8_t*>view.buf
            end = p + view.len
            while p < end:
                stop = <const uint8_t*>memchr(p, 10, end - p)
                if stop == NULL:
                    stop = end
                size = stop - p
                if size and p[size - 1] == 13:
                    size -= 1
                self.add_line(p, size, timestamp)
                p = stop + 1
        finally:
            PyBuffer_Release(&view)

    cdef int add_line(self, const uint8_t* line, Py_ssize_t size, int64_t timestamp) except -1:
        cdef const uint8_t* key = NULL
        cdef Py_ssize_t key_bytes = -1
        cdef const uint8_t* divider
        if self.separator is not None:
            divider = <const uint8_t*>memmem(line, size, <const char*>self.separator, len(self.separator))
            if divider == NULL:
                raise MissingSeparatorError(f"it has no {self.separator.decode(errors='backslashreplace')!r} between key and value")
            key, key_bytes = line, divider - line
            line, size = divider + len(self.separator), size - key_bytes - len(self.separator)
        if self.key is not None:
            key, key_bytes = <const uint8_t*><const char*>self.key, len(self.key)
        if size == 0 and self.empty_is_null:
            size = -1
        return self.put(self.partition_of(key, key_bytes), key, key_bytes, line, size, timestamp, self.packed.data, self.packed.size)

    def add(self, key, value, int64_t timestamp, headers=()) -> None:
        """Add a record: key and value are bytes or None, timestamp in ms; its headers follow the headers of all records."""
        cdef bytes key_object = self.key if self.key is not None else key
        cdef bytes value_object = None if self.empty_is_null and not value else value
        cdef WriteBuffer packed
        cdef const uint8_t* key_at = NULL
        cdef const uint8_t* value_at = NULL
        cdef Py_ssize_t key_bytes = -1
        cdef Py_ssize_t value_bytes = -1
        if key_object is not None:
            key_at, key_bytes = <const uint8_t*><const char*>key_object, len(key_object)
        if value_object is not None:
            value_at, value_bytes = <const uint8_t*><const char*>value_object, len(value_object)
        if not headers:
            self.put(self.partition_of(key_at, key_bytes), key_at, key_bytes, value_at, value_bytes, timestamp,
                     self.packed.data, self.packed.size)
            return
        buffer_init(&packed)
        try:
            pack_headers(&packed, [*self.headers, *headers])
            self.put(self.partition_of(key_at, key_bytes), key_at, key_bytes, value_at, value_bytes, timestamp,
                     packed.data, packed.size)
        finally:
            buffer_free(&packed)

    cdef int32_t partition_of(self, const uint8_t* key, Py_ssize_t size) noexcept:
        if self.fixed >= 0:
            return self.fixed
        if size > 0:
            return <int32_t>(crc32(0, key, size) % <uint32_t>self.partitions)
        return self.sticky

    cdef int put(self, int32_t partition, const uint8_t* key, Py_ssize_t key_bytes, const uint8_t* value, Py_ssize_t value_bytes,
                 int64_t timestamp, const uint8_t* headers, Py_ssize_t header_bytes) except -1:
        cdef BatchBuilder builder
        cdef Py_ssize_t size = max(key_bytes, 0) + max(value_bytes, 0)
        cdef Py_ssize_t needed = size + header_bytes + RECORD_OVERHEAD_BYTES
        if self.close_if_full(partition, needed) and self.fixed < 0 and key_bytes <= 0:
            partition = self.sticky = random.choice(self.open_partitions)
            self.close_if_full(partition, needed)
        builder = self.builders[partition]
        if builder is None:
            builder = self.builders[partition] = BatchBuilder()
            self.size += builder.out.size
        self.size -= builder.out.size
        builder.put_with_headers(key, key_bytes, value, value_bytes, timestamp, headers, header_bytes)
        self.size += builder.out.size
        self.records += 1
        self.bytes += size
        return 0

    cdef bint close_if_full(self, int32_t partition, Py_ssize_t needed) except -1:
        """Whether the partition's batch had no room for that many bytes; it is then closed and ready."""
        cdef BatchBuilder builder = self.builders[partition]
        if builder is None or builder.out.size + needed <= self.batch_bytes:
            return False
        self.ready.append((partition, builder))
        self.builders[partition] = None
        return True

    def take(self, bint whole=True) -> list[tuple[int, BatchBuilder]]:
        """(partition, BatchBuilder) of the full batches, in the order in which they became full; with `whole` of all batches.
        """
        cdef list taken = self.ready
        cdef BatchBuilder builder
        self.ready = []
        if whole:
            for partition, builder in enumerate(self.builders):
                if builder is not None:
                    taken.append((partition, builder))
                    self.builders[partition] = None
            self.sticky = random.choice(self.open_partitions)
        for _, builder in taken:
            self.size -= builder.out.size
        return taken


cdef int pack_headers(WriteBuffer* packed, list headers) except -1:
    """Write the number of headers and the headers in the format of a record."""
    cdef bytes part
    write_varint(packed, len(headers))
    for name, content in headers:
        part = name.encode()
        write_varint(packed, len(part))
        write_bytes(packed, <const char*>part, len(part))
        part = content
        write_varint(packed, -1 if part is None else len(part))
        if part is not None:
            write_bytes(packed, <const char*>part, len(part))
    if packed.error:
        raise MemoryError("no memory for the headers of records")
    return 0
