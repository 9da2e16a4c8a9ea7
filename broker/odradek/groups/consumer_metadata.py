"""Parses and encodes the subscriptions and assignments of classic consumers, which brokers otherwise pass on as opaque bytes.

Pure functions. Consumers are the only protocol type whose metadata the coordinator parses.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any

from odradek.groups.consumer_member import by_topic
from odradek.protocol import ProtocolError, decode, decode_in_steps, encode
from odradek.protocol.schemas.consumer_protocol import Assignment, Subscription
from odradek.stepwise import Steps
from odradek.topic_partition import TopicIdPartition

CONSUMER = "consumer"
"""The protocol type of consumers."""

NEWEST = 3
_VERSION = struct.Struct(">h")


def version_of(metadata: bytes) -> int:
    """The version of a consumer's subscription, at most NEWEST."""
    return min(int(_VERSION.unpack_from(metadata)[0]), NEWEST)


def subscription_of(metadata: bytes) -> Any | None:
    """Parse a consumer's subscription in JoinGroup; None if it is malformed."""
    return _read(Subscription, metadata)


def subscription_in_steps(metadata: bytes) -> Steps:
    """As `subscription_of`, in steps."""
    version = _version_in(metadata)
    if version is None:
        return None
    try:
        return (yield from decode_in_steps(Subscription, version, metadata, _VERSION.size))
    except ProtocolError:
        return None


def topics_of(metadata: bytes) -> set[str] | None:
    """The topics of a consumer's subscription; None if it is malformed."""
    subscription = subscription_of(metadata)
    return None if subscription is None else set(subscription.topics)


def assignment_of(data: bytes) -> Any | None:
    """Parse a consumer's assignment in SyncGroup; None if it is malformed."""
    return _read(Assignment, data)


def _version_in(data: bytes) -> int | None:
    """The version in which data is read; None if it has none."""
    if len(data) < _VERSION.size:
        return None
    (version,) = _VERSION.unpack_from(data)
    return min(version, NEWEST) if version >= 0 else None


def _read(kind: Any, data: bytes) -> Any | None:
    version = _version_in(data)
    if version is None:
        return None
    try:
        message, _ = decode(kind, version, data, _VERSION.size)
    except ProtocolError:
        return None
    return message


def encode_assignment(places: Iterable[TopicIdPartition], names: Callable[[bytes], str | None], version: int) -> bytes:
    """Encode an assignment for classic consumers; deleted topics are omitted."""
    make = Assignment.TopicPartition
    assigned = [
        make(topic=name, partitions=partitions)
        for topic_id, partitions in by_topic(places).items()
        if (name := names(topic_id)) is not None
    ]
    return _VERSION.pack(version) + encode(Assignment(assigned_partitions=assigned, user_data=None), version)
