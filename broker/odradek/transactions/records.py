"""The records of `__transaction_state`: encodes and decodes `Facts`.

The format is that of `protocol.schemas.transaction_records`. This module does not use the schema, which is slower: each
step of a transaction writes a record, and a load reads all records. As in Kafka 4.3, a value has version 0 while the
server's transaction.version is 0, otherwise version 1, whose tagged fields are written if they differ from their defaults.

An idle id is kept in memory as the value of its last record (`pack`): this is small, and a load need not decode it.
"""

from __future__ import annotations

import struct
from sys import intern

from odradek._ext.records.transaction_values import encode_value
from odradek.coordination.environment import Record
from odradek.protocol import ProtocolError
from odradek.protocol.schemas.group_records import UnknownRecord
from odradek.topic_partition import TopicPartition
from odradek.transactions.states import BY_NUMBER, COMPLETE_OF, EMPTY, ONGOING, State
from odradek.transactions.transaction import NO_EPOCH, NO_ID, Facts

_HEAD = struct.Struct(">hqhib")  # version, producer id, epoch, timeout, status
_TIMES = struct.Struct(">qq")  # last update, start
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_ID = struct.Struct(">q")

_STATUS_AT = _HEAD.size - 1
_PARTITIONS_AT = _HEAD.size
_KEY_HEAD = struct.Struct(">hh")  # kind, length of the transactional id
_KIND = b"\x00\x00"
_NEWEST = 1
_FLEXIBLE = 1
_NO_PARTITIONS_0 = (b"\xff\xff\xff\xff", b"\x00\x00\x00\x00")
_SMALLEST = _HEAD.size + 1 + _TIMES.size + 1
_PREVIOUS_ID, _NEXT_ID, _CLIENT_VERSION = 0, 1, 2
_BUSY = frozenset(int(state) for state in (ONGOING, *COMPLETE_OF))
_STATES = len((EMPTY, ONGOING, *COMPLETE_OF, *COMPLETE_OF.values()))
"""The number of states that the log may contain; these have the smallest numbers."""


def key_of(transactional_id: str) -> bytes:
    """The key of a transactional id."""
    name = transactional_id.encode()
    return _KEY_HEAD.pack(0, len(name)) + name


def id_of(key: bytes) -> str:
    """The transactional id of a key.

    :raises UnknownRecord: the kind is unknown. :raises ProtocolError: the bytes are not in this format.
    """
    if key[:2] != _KIND:
        if len(key) < 2:
            raise ProtocolError("a key that is shorter than its version field")
        raise UnknownRecord(f"a record has the unknown kind {_SHORT.unpack_from(key)[0]}")
    if len(key) < _KEY_HEAD.size or _SHORT.unpack_from(key, 2)[0] != len(key) - _KEY_HEAD.size:
        raise ProtocolError("a key whose length differs from its length field")
    try:
        return key[_KEY_HEAD.size :].decode()
    except UnicodeDecodeError as error:
        raise ProtocolError(f"a transactional id that is not UTF-8: {error}") from error


# -- writing ---------------------------------------------------------------------------------------------------------------


def value_of(facts: Facts, server_version: int) -> bytes:
    """The value of a record. :param server_version: the finalized level of transaction.version."""
    return encode_value(
        1 if server_version else 0,
        facts.producer_id,
        facts.previous_producer_id,
        facts.next_producer_id,
        facts.epoch,
        facts.timeout_ms,
        facts.state,
        None if facts.state is EMPTY else facts.places,
        facts.updated_ms,
        facts.start_ms,
        facts.client_version,
    )


# -- reading ---------------------------------------------------------------------------------------------------------------


def check(value: bytes) -> None:
    """Check the beginning of a value, as `transaction_values.apply_records` does; the functions below require this check.

    :raises UnknownRecord: the version or the state is unknown. :raises ProtocolError: the value is too short.
    """
    if len(value) < 2:
        raise ProtocolError("a value that is shorter than its version field")
    if value[0] or value[1] > _NEWEST:
        version = _SHORT.unpack_from(value)[0]
        raise UnknownRecord(f"a value has version {version}; versions 0 to {_NEWEST} are supported")
    if len(value) < _SMALLEST:
        raise ProtocolError(f"a value has {len(value)} bytes, but needs at least {_SMALLEST}")
    if value[_STATUS_AT] >= _STATES:
        raise UnknownRecord(f"a value has the unknown state {value[_STATUS_AT]}")


def busy_ids(values: dict[str, bytes]) -> list[str]:
    """The ids that have a transaction: ONGOING or PREPARE_*."""
    return [name for name, value in values.items() if value[_STATUS_AT] in _BUSY]


def is_idle(value: bytes) -> bool:
    """Whether the id has no transaction, so that it may expire."""
    return value[_STATUS_AT] not in _BUSY


def state_of(value: bytes) -> State:
    """The state in a value."""
    return BY_NUMBER[value[_STATUS_AT]]


def producer_of(value: bytes) -> tuple[int, int]:
    """The producer id and the epoch in a value."""
    _, producer_id, epoch, _, _ = _HEAD.unpack_from(value)
    return producer_id, epoch


def times_of(value: bytes) -> tuple[int, int]:
    """The times of the last update and of the start in the value of an idle id."""
    if value[1] >= _FLEXIBLE:
        if value[_PARTITIONS_AT] <= 1:
            return _TIMES.unpack_from(value, _PARTITIONS_AT + 1)
    elif value[_PARTITIONS_AT : _PARTITIONS_AT + _INT.size] in _NO_PARTITIONS_0:
        return _TIMES.unpack_from(value, _PARTITIONS_AT + _INT.size)
    facts = facts_of(value)
    return facts.updated_ms, facts.start_ms


def facts_of(value: bytes) -> Facts:
    """Decode a value that `check` has passed, or that `pack` has made.

    :raises ProtocolError: the bytes are not in this format.
    """
    try:
        return _facts_of(value)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ProtocolError(f"a malformed value: {error}") from error


def _facts_of(value: bytes) -> Facts:
    version, producer_id, epoch, timeout_ms, status = _HEAD.unpack_from(value)
    places: tuple[TopicPartition, ...] = ()
    previous_id = next_id = NO_ID
    client_version = 0
    if version < _FLEXIBLE:
        at = _PARTITIONS_AT + _INT.size
        if value[_PARTITIONS_AT:at] not in _NO_PARTITIONS_0:
            places, at = _places_0(value)
    else:
        at = _PARTITIONS_AT + 1
        if value[_PARTITIONS_AT] > 1:
            places, at = _places_1(value)
    updated_ms, start_ms = _TIMES.unpack_from(value, at)
    at += _TIMES.size
    if version >= _FLEXIBLE:
        count, at = _read_uvarint(value, at)
        for _ in range(count):
            tag, at = _read_uvarint(value, at)
            size, at = _read_uvarint(value, at)
            if tag == _PREVIOUS_ID:
                (previous_id,) = _ID.unpack_from(value, at)
            elif tag == _NEXT_ID:
                (next_id,) = _ID.unpack_from(value, at)
            elif tag == _CLIENT_VERSION:
                (client_version,) = _SHORT.unpack_from(value, at)
            at += size
    last_epoch = NO_EPOCH
    if len(value) == at + _SHORT.size:  # by `pack`
        (last_epoch,) = _SHORT.unpack_from(value, at)
    elif len(value) < at:
        raise ProtocolError(f"a value that ends {at - len(value)} bytes early")
    return Facts(
        producer_id,
        previous_id,
        next_id,
        epoch,
        last_epoch,
        timeout_ms,
        BY_NUMBER[status],
        places,
        start_ms,
        updated_ms,
        client_version,
    )


def _places_0(value: bytes) -> tuple[tuple[TopicPartition, ...], int]:
    """The partitions of a value of version 0, and the position after them."""
    places: list[TopicPartition] = []
    (topics,) = _INT.unpack_from(value, _PARTITIONS_AT)
    at = _PARTITIONS_AT + _INT.size
    for _ in range(topics):
        (length,) = _SHORT.unpack_from(value, at)
        at += _SHORT.size
        topic = intern(_text(value, at, length))
        at += length
        (count,) = _INT.unpack_from(value, at)
        at += _INT.size
        places += [(topic, partition) for partition in _partitions(value, at, count)]
        at += count * _INT.size
    return tuple(places), at


def _places_1(value: bytes) -> tuple[tuple[TopicPartition, ...], int]:
    """The partitions of a value of version 1, and the position after them."""
    places: list[TopicPartition] = []
    topics, at = _read_uvarint(value, _PARTITIONS_AT)
    for _ in range(topics - 1):
        length, at = _read_uvarint(value, at)
        topic = intern(_text(value, at, length - 1))
        count, at = _read_uvarint(value, at + length - 1)
        places += [(topic, partition) for partition in _partitions(value, at, count - 1)]
        at += (count - 1) * _INT.size
        tags, at = _read_uvarint(value, at)
        for _ in range(tags):
            _, at = _read_uvarint(value, at)
            size, at = _read_uvarint(value, at)
            at += size
    return tuple(places), at


def _text(value: bytes, at: int, length: int) -> str:
    if length < 0 or at + length > len(value):
        raise ProtocolError(f"a text has {length} bytes, but the value has only {len(value) - at} more")
    return value[at : at + length].decode()


def _partitions(value: bytes, at: int, count: int) -> tuple[int, ...]:
    if count < 0 or at + count * _INT.size > len(value):
        raise ProtocolError(f"an array has {count} partitions, but the value has only {len(value) - at} more bytes")
    return struct.unpack_from(f">{count}i", value, at)


def _read_uvarint(value: bytes, at: int) -> tuple[int, int]:
    byte = value[at]
    at += 1
    if byte < 0x80:
        return byte, at
    number, shift = byte & 0x7F, 7
    while True:
        byte = value[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
        if shift > 28:
            raise ProtocolError("a length has more than five bytes")


def why_unreadable(record: Record) -> str:
    """Why `transaction_values.apply_records` returned a record."""
    key, value = record
    try:
        id_of(key)
        check(value or b"")
    except (UnknownRecord, ProtocolError) as error:
        return str(error)
    return "it has another format"


# -- idle ids --------------------------------------------------------------------------------------------------------------


def pack(facts: Facts) -> bytes:
    """Encode the facts of an idle id for memory: a value of version 1, followed by the last epoch if the id has one."""
    value = value_of(facts, 1)
    return value if facts.last_epoch == NO_EPOCH else value + _SHORT.pack(facts.last_epoch)
