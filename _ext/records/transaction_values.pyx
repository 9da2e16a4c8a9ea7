"""Writes the values of `__transaction_state`, and applies records to the values by transactional id during a load.

Runs in the coordinator's loop. The format is that of `odradek.protocol.schemas.transaction_records`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_SetItem
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, int8_t, uint8_t

from odradek._ext.protocol.byte_order cimport load16
from odradek._ext.protocol.cursor cimport (
    WriteBuffer,
    buffer_free,
    buffer_init,
    write_bytes,
    write_int16,
    write_int32,
    write_int64,
    write_int8,
    write_length,
    write_string_length,
    write_uvarint,
)

cdef enum:
    KEY_HEAD_BYTES = 4                  # kind and length of the transactional id
    STATUS_AT = 16
    LEAST_BYTES = 35                    # the smallest value
    NEWEST_VERSION = 1
    STATES = 6                          # states that a value may have
    NO_ID = -1
    TAG_PREVIOUS_ID = 0
    TAG_NEXT_ID = 1
    TAG_CLIENT_VERSION = 2


def apply_records(dict values not None, list records not None) -> list[tuple[bytes, bytes | None]]:
    """Apply records, which are pairs of a key and a value or None, in order. Return those that cannot be read."""
    cdef list others = []
    cdef const uint8_t* key
    cdef const uint8_t* value
    cdef Py_ssize_t size
    for record in records:
        key_bytes, value_bytes = <tuple?>record
        if not PyBytes_CheckExact(key_bytes) or not (value_bytes is None or PyBytes_CheckExact(value_bytes)):
            raise TypeError("keys and values are bytes")
        key = <const uint8_t*>PyBytes_AS_STRING(key_bytes)
        size = PyBytes_GET_SIZE(key_bytes)
        if size < KEY_HEAD_BYTES or load16(key) != 0 or load16(key + 2) != size - KEY_HEAD_BYTES:
            others.append(record)
            continue
        try:
            name = PyUnicode_DecodeUTF8(<const char*>key + KEY_HEAD_BYTES, size - KEY_HEAD_BYTES, NULL)
        except UnicodeDecodeError:
            others.append(record)
            continue
        if value_bytes is None:
            values.pop(name, None)
            continue
        value = <const uint8_t*>PyBytes_AS_STRING(value_bytes)
        if PyBytes_GET_SIZE(value_bytes) < LEAST_BYTES or load16(value) > NEWEST_VERSION or value[STATUS_AT] >= STATES:
            others.append(record)
            continue
        PyDict_SetItem(values, name, value_bytes)
    return others


def encode_value(int16_t version, int64_t producer_id, int64_t previous_producer_id, int64_t next_producer_id, int16_t epoch,
                 int32_t timeout_ms, int8_t status, places, int64_t updated_ms, int64_t start_ms, int16_t client_version) -> bytes:
    """Return a value. Tagged fields are written if they differ from their defaults, and only in version 1.

    :param places: tuples of a topic and a partition; None in the state Empty.
    """
    cdef WriteBuffer out
    cdef bint flexible = version > 0
    cdef dict topics
    cdef int tags
    topics = None if places is None else by_topic(places)
    buffer_init(&out)
    try:
        write_int16(&out, version)
        write_int64(&out, producer_id)
        write_int16(&out, epoch)
        write_int32(&out, timeout_ms)
        write_int8(&out, status)
        if topics is None:
            write_length(&out, -1, flexible)
        else:
            write_topics(&out, topics, flexible)
        write_int64(&out, updated_ms)
        write_int64(&out, start_ms)
        if flexible:
            tags = (previous_producer_id != NO_ID) + (next_producer_id != NO_ID) + (client_version != 0)
            write_uvarint(&out, tags)
            if previous_producer_id != NO_ID:
                write_tag(&out, TAG_PREVIOUS_ID, 8)
                write_int64(&out, previous_producer_id)
            if next_producer_id != NO_ID:
                write_tag(&out, TAG_NEXT_ID, 8)
                write_int64(&out, next_producer_id)
            if client_version != 0:
                write_tag(&out, TAG_CLIENT_VERSION, 2)
                write_int16(&out, client_version)
        if out.error:
            raise MemoryError("no memory for a record")
        return PyBytes_FromStringAndSize(<const char*>out.data, out.size)
    finally:
        buffer_free(&out)


cpdef dict by_topic(places):
    """Return the partitions by topic, both in their order."""
    cdef dict topics = {}
    for topic, partition in places:
        partitions = topics.get(topic)
        if partitions is None:
            topics[topic] = [partition]
        else:
            (<list>partitions).append(partition)
    return topics


cdef inline void write_tag(WriteBuffer* out, int tag, int size) noexcept nogil:
    write_uvarint(out, tag)
    write_uvarint(out, size)


cdef int write_topics(WriteBuffer* out, dict topics, bint flexible) except -1:
    cdef Py_ssize_t size
    cdef const char* name
    cdef list partitions
    write_length(out, <int32_t>len(topics), flexible)
    for topic, of_topic in topics.items():
        name = PyUnicode_AsUTF8AndSize(topic, &size)
        write_string_length(out, <int32_t>size, flexible)
        write_bytes(out, name, size)
        partitions = of_topic
        write_length(out, <int32_t>len(partitions), flexible)
        for partition in partitions:
            write_int32(out, partition)
        if flexible:
            write_uvarint(out, 0)       # tagged fields
    return 0
