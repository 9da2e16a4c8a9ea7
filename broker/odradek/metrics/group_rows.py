"""The format in which the coordinator sends groups to the reporter: name, state, members and committed offsets.

Pure functions. Big-endian. A group: two texts (u16 length), members u32, topics u32; then for each topic its name, a number n
(u32), n partitions (i32) and n offsets (i64). The coordinator encodes group by group, so that its event loop can run in
between.
"""

import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from odradek.metrics.client_labels import cut

_LENGTH = struct.Struct(">H")
_COUNTS = struct.Struct(">II")
_COUNT = struct.Struct(">I")


class MalformedGroups(ValueError):
    """Bytes that are not in this format."""


class GroupRow(NamedTuple):
    """A group. :param offsets: {topic: {partition: committed offset}}."""

    group_id: str
    state: str
    members: int
    offsets: Mapping[str, Mapping[int, int]]


def _text(value: str) -> bytes:
    data = value.encode("utf-8", "surrogatepass")
    return _LENGTH.pack(len(data)) + data


def encode_group(group_id: str, state: str, members: int, topics: int) -> bytes:
    """Return the beginning of a group, with a long group id cut; `topics` results of `encode_offsets` must follow."""
    return _text(cut(group_id)) + _text(state) + _COUNTS.pack(members, topics)


def encode_offsets(topic: str, offsets: Mapping[int, int]) -> bytes:
    """Return the encoded committed offsets of a group in one topic."""
    count = len(offsets)
    return b"".join(
        (
            _text(topic),
            _COUNT.pack(count),
            struct.pack(f">{count}i", *offsets.keys()),
            struct.pack(f">{count}q", *offsets.values()),
        )
    )


def decode_groups(payload: bytes) -> Iterator[GroupRow]:
    """Yield all groups. Raises MalformedGroups."""
    position = 0
    try:
        while position < len(payload):
            group_id, position = _read_text(payload, position)
            state, position = _read_text(payload, position)
            members, topics = _COUNTS.unpack_from(payload, position)
            position += _COUNTS.size
            offsets = {}
            for _ in range(topics):
                topic, position = _read_text(payload, position)
                (count,) = _COUNT.unpack_from(payload, position)
                position += _COUNT.size
                partitions = struct.unpack_from(f">{count}i", payload, position)
                position += 4 * count
                offsets[topic] = dict(zip(partitions, struct.unpack_from(f">{count}q", payload, position), strict=True))
                position += 8 * count
            yield GroupRow(group_id, state, members, offsets)
    except struct.error as error:
        raise MalformedGroups(f"the data end within a field: {error}") from None


def _read_text(payload: bytes, position: int) -> tuple[str, int]:
    (length,) = _LENGTH.unpack_from(payload, position)
    end = position + _LENGTH.size + length
    if end > len(payload):
        raise MalformedGroups(f"a text of {length} bytes exceeds the data")
    return payload[position + _LENGTH.size : end].decode("utf-8", "replace"), end
