"""What consumers of the classic protocol put into the bytes that brokers pass on unread: subscriptions and assignments.

Pure functions. A group of such consumers is the only one whose members the coordinator understands.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any

from odradek.groups.assignors import Place
from odradek.groups.consumer_member import by_topic
from odradek.protocol import ProtocolError, decode, encode
from odradek.protocol.schemas.consumer_protocol import Assignment, Subscription

CONSUMER = "consumer"
"""The protocol type of consumers."""

NEWEST = 3
_VERSION = struct.Struct(">h")


def version_of(metadata: bytes) -> int:
    """The version that a consumer's subscription is written in, as far as it is known here."""
    return min(int(_VERSION.unpack_from(metadata)[0]), NEWEST)


def subscription_of(metadata: bytes) -> Any | None:
    """What a consumer says in its JoinGroup; None if it cannot be read."""
    return _read(Subscription, metadata)


def topics_of(metadata: bytes) -> set[str] | None:
    """The topics of a consumer's subscription; None if it cannot be read."""
    subscription = subscription_of(metadata)
    return None if subscription is None else set(subscription.topics)


def assignment_of(data: bytes) -> Any | None:
    """What a consumer was told in its SyncGroup; None if it cannot be read."""
    return _read(Assignment, data)


def _read(kind: Any, data: bytes) -> Any | None:
    if len(data) < _VERSION.size:
        return None
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        return None
    try:
        message, _ = decode(kind, min(version, NEWEST), data, _VERSION.size)
    except ProtocolError:
        return None
    return message


def encode_assignment(places: Iterable[Place], names: Callable[[bytes], str | None], version: int) -> bytes:
    """An assignment as consumers of the classic protocol read it; topics that are gone are left out."""
    make = Assignment.TopicPartition
    told = [
        make(topic=name, partitions=partitions)
        for topic_id, partitions in by_topic(places).items()
        if (name := names(topic_id)) is not None
    ]
    return _VERSION.pack(version) + encode(Assignment(assigned_partitions=told, user_data=None), version)
