"""Parsing of JoinGroup, SyncGroup and Heartbeat requests, and encoding of their responses. Most of the cost of a rebalance is here.

Pure functions, used in the coordinator's event loop. The schemas (`broker/odradek/protocol/schemas/join_group.py`, `sync_group.py`,
`heartbeat.py`) and the Python handlers define the behaviour; the tests compare this module with them. A request that this module does
not parse is left to them: the functions return None for malformed requests, whose error messages the schemas make, and for unsupported
versions. A response that cannot be encoded raises ValueError.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from odradek._ext.api.plain_requests cimport finished, header, text
from odradek._ext.protocol.api_versions cimport (
    HEARTBEAT,
    HEARTBEAT_FLEXIBLE,
    HEARTBEAT_NEWEST,
    JOIN_GROUP,
    JOIN_GROUP_FLEXIBLE,
    JOIN_GROUP_NEWEST,
    SYNC_GROUP,
    SYNC_GROUP_FLEXIBLE,
    SYNC_GROUP_NEWEST,
)
from odradek._ext.protocol.cursor cimport (
    CURSOR_NULL,
    CURSOR_OK,
    CURSOR_TRUNCATED,
    STRING_MAX_BYTES,
    Cursor,
    WriteBuffer,
    buffer_free,
    buffer_init,
    cursor_fail,
    cursor_left,
    read_bytes,
    read_int32,
    read_length,
    skip_tagged_fields,
    write_bytes,
    write_int16,
    write_int32,
    write_int8,
    write_length,
    write_string_length,
)

cdef enum:
    MOST_PROTOCOLS = 1000               # of a JoinGroup; a request with more is left to the schema, which refuses it
    MOST_ASSIGNMENTS = 1 << 16          # of a SyncGroup; a request with more is left to the schema, which refuses it
    LEAST_ELEMENT_BYTES = 2             # two empty values


# -- Reading ---------------------------------------------------------------------------------------------------------

cdef bytes data(Cursor* c, bint compact):
    """Read bytes. Return None, with the cursor's error set, if they are null or truncated."""
    cdef int64_t length = read_length(c, compact)
    cdef const uint8_t* at
    if length < 0:
        cursor_fail(c, CURSOR_NULL, 0)
        return None
    at = read_bytes(c, length)
    return PyBytes_FromStringAndSize(<const char*>at, length) if at != NULL else None


cdef int64_t array_length(Cursor* c, bint compact, int64_t most) noexcept:
    """Read the number of an array's elements. Return -1, with the cursor's error set, if it is malformed or above `most`."""
    cdef int64_t count = read_length(c, compact)
    if c.error != CURSOR_OK:
        return -1
    if count < 0 or count > most or count > cursor_left(c) // LEAST_ELEMENT_BYTES:
        cursor_fail(c, CURSOR_TRUNCATED, count)
        return -1
    return count


cdef list named_data(Cursor* c, bint compact, int64_t most):
    """Read an array of names and bytes: [(name, bytes)]. If the array is malformed, the cursor's error is set."""
    cdef list elements = []
    cdef int64_t count = array_length(c, compact, most)
    while count > 0 and c.error == CURSOR_OK:
        name = text(c, compact, False)
        elements.append((name, data(c, compact)))
        if compact:
            skip_tagged_fields(c)
        count -= 1
    return elements


def read_join(bytes frame not None) -> tuple[int, int, str, int, int, str, str | None, str, list[tuple[str, bytes]], str | None] | None:
    """Parse a JoinGroup request with its header. Return (version, correlation id, group id, session timeout, rebalance timeout or -1,
    both in ms, member id, instance id or None, protocol type, [(name, metadata)], reason or None); None to leave it to the schema.
    """
    cdef Cursor c
    cdef int32_t correlation_id = 0, session_ms, rebalance_ms
    cdef int version
    cdef bint compact
    try:
        version = header(&c, frame, JOIN_GROUP, JOIN_GROUP_NEWEST, JOIN_GROUP_FLEXIBLE, &correlation_id)
        if version < 0:
            return None
        compact = version >= JOIN_GROUP_FLEXIBLE
        group_id = text(&c, compact, False)
        session_ms = read_int32(&c)
        rebalance_ms = read_int32(&c) if version >= 1 else -1
        member_id = text(&c, compact, False)
        instance_id = text(&c, compact, True) if version >= 5 else None
        protocol_type = text(&c, compact, False)
        protocols = named_data(&c, compact, MOST_PROTOCOLS)
        reason = text(&c, compact, True) if version >= 8 else None
        if compact:
            skip_tagged_fields(&c)
    except UnicodeDecodeError:
        return None
    if c.error != CURSOR_OK:
        return None
    return (
        version, correlation_id, group_id, session_ms, rebalance_ms, member_id, instance_id, protocol_type, protocols, reason,
    )


def read_sync(bytes frame not None) -> tuple[int, int, str, int, str, str | None, str | None, str | None, dict[str, bytes]] | None:
    """Parse a SyncGroup request with its header. Return (version, correlation id, group id, generation id, member id, instance id or
    None, protocol type or None, protocol name or None, {member id: assignment}); None to leave it to the schema.
    """
    cdef Cursor c
    cdef int32_t correlation_id = 0, generation_id
    cdef int version
    cdef bint compact
    try:
        version = header(&c, frame, SYNC_GROUP, SYNC_GROUP_NEWEST, SYNC_GROUP_FLEXIBLE, &correlation_id)
        if version < 0:
            return None
        compact = version >= SYNC_GROUP_FLEXIBLE
        group_id = text(&c, compact, False)
        generation_id = read_int32(&c)
        member_id = text(&c, compact, False)
        instance_id = text(&c, compact, True) if version >= 3 else None
        protocol_type = text(&c, compact, True) if version >= 5 else None
        protocol_name = text(&c, compact, True) if version >= 5 else None
        assignments = dict(named_data(&c, compact, MOST_ASSIGNMENTS))
        if compact:
            skip_tagged_fields(&c)
    except UnicodeDecodeError:
        return None
    if c.error != CURSOR_OK:
        return None
    return (
        version, correlation_id, group_id, generation_id, member_id, instance_id, protocol_type, protocol_name, assignments,
    )


def read_heartbeat(bytes frame not None) -> tuple[int, int, str, int, str, str | None] | None:
    """Parse a Heartbeat request with its header. Return (version, correlation id, group id, generation id, member id, instance id or
    None); None to leave it to the schema.
    """
    cdef Cursor c
    cdef int32_t correlation_id = 0, generation_id
    cdef int version
    cdef bint compact
    try:
        version = header(&c, frame, HEARTBEAT, HEARTBEAT_NEWEST, HEARTBEAT_FLEXIBLE, &correlation_id)
        if version < 0:
            return None
        compact = version >= HEARTBEAT_FLEXIBLE
        group_id = text(&c, compact, False)
        generation_id = read_int32(&c)
        member_id = text(&c, compact, False)
        instance_id = text(&c, compact, True) if version >= 3 else None
        if compact:
            skip_tagged_fields(&c)
    except UnicodeDecodeError:
        return None
    if c.error != CURSOR_OK:
        return None
    return version, correlation_id, group_id, generation_id, member_id, instance_id


# -- Writing ---------------------------------------------------------------------------------------------------------

cdef int put_text(WriteBuffer* out, str value, bint compact) except -1:
    cdef Py_ssize_t length
    cdef const char* at
    if value is None:
        write_string_length(out, -1, compact)
        return 0
    at = PyUnicode_AsUTF8AndSize(value, &length)
    if length > STRING_MAX_BYTES:
        raise ValueError(f"a string of {length} bytes cannot be encoded, the limit is {STRING_MAX_BYTES} bytes")
    write_string_length(out, <int32_t>length, compact)
    write_bytes(out, at, length)
    return 0


cdef int put_data(WriteBuffer* out, bytes value, bint compact) except -1:
    write_length(out, <int32_t>len(value), compact)
    write_bytes(out, <const char*>value, len(value))
    return 0


cdef int begin(WriteBuffer* out, int32_t correlation_id, bint compact, bint throttled, int16_t error) except -1:
    write_int32(out, correlation_id)
    if compact:
        write_int8(out, 0)              # no tagged fields in the header
    if throttled:
        write_int32(out, 0)
    write_int16(out, error)
    return 0


def join_response(
    int version, int32_t correlation_id, int16_t error, int32_t generation_id, str protocol_type, str protocol_name,
    str leader not None, bint skip_assignment, str member_id not None, members,
) -> bytes:
    """Return a JoinGroup response with its header.

    :param protocol_name: None becomes "" in versions below 7. :param members: [(member id, instance id or None, metadata)].
    """
    cdef bint compact = version >= JOIN_GROUP_FLEXIBLE
    cdef WriteBuffer out
    buffer_init(&out)
    try:
        begin(&out, correlation_id, compact, version >= 2, error)
        write_int32(&out, generation_id)
        if version >= 7:
            put_text(&out, protocol_type, compact)
            put_text(&out, protocol_name, compact)
        else:
            put_text(&out, protocol_name or "", compact)
        put_text(&out, leader, compact)
        if version >= 9:
            write_int8(&out, skip_assignment)
        put_text(&out, member_id, compact)
        write_length(&out, <int32_t>len(members), compact)
        for group_member_id, instance_id, metadata in members:
            put_text(&out, group_member_id, compact)
            if version >= 5:
                put_text(&out, instance_id, compact)
            put_data(&out, metadata, compact)
            if compact:
                write_int8(&out, 0)
        if compact:
            write_int8(&out, 0)
        return finished(&out)
    finally:
        buffer_free(&out)


def sync_response(
    int version, int32_t correlation_id, int16_t error, str protocol_type, str protocol_name, bytes assignment not None
) -> bytes:
    """Return a SyncGroup response with its header."""
    cdef bint compact = version >= SYNC_GROUP_FLEXIBLE
    cdef WriteBuffer out
    buffer_init(&out)
    try:
        begin(&out, correlation_id, compact, version >= 1, error)
        if version >= 5:
            put_text(&out, protocol_type, compact)
            put_text(&out, protocol_name, compact)
        put_data(&out, assignment, compact)
        if compact:
            write_int8(&out, 0)
        return finished(&out)
    finally:
        buffer_free(&out)


def heartbeat_response(int version, int32_t correlation_id, int16_t error) -> bytes:
    """Return a Heartbeat response with its header."""
    cdef bint compact = version >= HEARTBEAT_FLEXIBLE
    cdef WriteBuffer out
    buffer_init(&out)
    try:
        begin(&out, correlation_id, compact, version >= 1, error)
        if compact:
            write_int8(&out, 0)
        return finished(&out)
    finally:
        buffer_free(&out)
