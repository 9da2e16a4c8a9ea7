"""Spreads the lanes of a flow over its workers, and the bytes in which members of the group exchange this. Pure
functions.

Members use JSON, so that `odradek mirror status` and other tools can read it. The name of the group's protocol
contains the number of lanes: the coordinator refuses a member whose number differs from that of the members
(INCONSISTENT_GROUP_PROTOCOL).
"""

import json
import zlib
from collections.abc import Iterable, Mapping

from odradek.topic_partition import TopicPartition

VERSION = 1
_PROTOCOL = "lanes-"

Lanes = frozenset[int]


def lane_of(target: TopicPartition, lanes: int) -> int:
    """The lane of a partition of the target. It depends only on its name, its number and the number of lanes."""
    topic, partition = target
    return (zlib.crc32(topic.encode()) + partition) % lanes


def protocol_name(lanes: int) -> str:
    """The name of the group's protocol for a number of lanes."""
    return f"{_PROTOCOL}{lanes}"


def lanes_in(protocol: str) -> int | None:
    """The number of lanes in the name of a protocol; None if it is another protocol."""
    text = protocol.removeprefix(_PROTOCOL)
    return (
        int(text) if protocol.startswith(_PROTOCOL) and text.isascii() and text.isdigit() and len(text) < 10 else None
    )


def assign(owned: Mapping[str, Lanes], lanes: int) -> dict[str, Lanes]:
    """Give each lane to one member: numbers differ by at most one, and a member keeps what it owns as far as possible.

    :param owned: the lanes that each member has now, by member id; claims of two members for one lane are decided by
        their ids.
    """
    members = sorted(owned)
    if not members:
        return {}
    free = set(range(lanes))
    kept: dict[str, list[int]] = {}
    for member in members:
        kept[member] = sorted(free & owned[member])
        free -= owned[member]
    least, over = divmod(lanes, len(members))
    # Members that have the most keep the most: then the fewest lanes move.
    ordered = sorted(members, key=lambda member: (-len(kept[member]), member))
    limits = {member: least + (place < over) for place, member in enumerate(ordered)}
    for member, limit in limits.items():
        free.update(kept[member][limit:])
        del kept[member][limit:]
    rest = iter(sorted(free))
    for member, limit in limits.items():
        kept[member] += [next(rest) for _ in range(limit - len(kept[member]))]
    return {member: frozenset(numbers) for member, numbers in kept.items()}


def encode_member(worker: str, owned: Iterable[int]) -> bytes:
    """What a member says of itself when it joins. :param worker: its name for people."""
    return json.dumps({"version": VERSION, "worker": worker, "owned": sorted(owned)}).encode()


def encode_assignment(lanes: Iterable[int]) -> bytes:
    """The lanes of a member."""
    return json.dumps({"version": VERSION, "lanes": sorted(lanes)}).encode()


def owned_by(metadata: bytes) -> Lanes:
    """The lanes that a member owned when it joined; none if the bytes are not of a worker."""
    return _numbers(metadata, "owned")


def assigned_by(assignment: bytes) -> Lanes:
    """The lanes in an assignment; none if the bytes are empty or not of a worker."""
    return _numbers(assignment, "lanes")


def worker_in(metadata: bytes) -> str:
    """The name of the worker; "" if the bytes are not of a worker."""
    name = _document(metadata).get("worker")
    return name if isinstance(name, str) else ""


def _numbers(data: bytes, field: str) -> Lanes:
    numbers = _document(data).get(field)
    if not isinstance(numbers, list):
        return frozenset()
    return frozenset(number for number in numbers if type(number) is int and number >= 0)


def _document(data: bytes) -> dict[str, object]:
    try:
        document = json.loads(bytes(data))
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
