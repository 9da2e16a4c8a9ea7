"""The records of MirrorMaker 2's internal topics: offset syncs, checkpoints and heartbeats, as keys and values in bytes.

Stateless; any thread of `odradek mirror`. The formats are those of Kafka 2.4 and later, and have not changed since: structures
of int16-prefixed strings and big-endian integers. The values of checkpoints and heartbeats begin with an int16 version, 0;
offset syncs have no version.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from odradek.protocol import ProtocolError, decode, encode
from odradek.protocol.schema import message
from odradek.topic_partition import TopicPartition

VERSION = 0
_VERSION = struct.Struct(">h")


def _structure(name: str, text: str) -> Any:
    return message(name, text, versions="0", flexible="none", module=__name__)


_SYNC_KEY = _structure("OffsetSyncKey", "Topic  string  0+\nPartition  int32  0+")
_SYNC_VALUE = _structure("OffsetSyncValue", "UpstreamOffset  int64  0+\nOffset  int64  0+")
_CHECKPOINT_KEY = _structure("CheckpointKey", "Group  string  0+\nTopic  string  0+\nPartition  int32  0+")
_CHECKPOINT_VALUE = _structure("CheckpointValue", "UpstreamOffset  int64  0+\nOffset  int64  0+\nMetadata  string  0+")
_HEARTBEAT_KEY = _structure("HeartbeatKey", "SourceClusterAlias  string  0+\nTargetClusterAlias  string  0+")
_HEARTBEAT_VALUE = _structure("HeartbeatValue", "Timestamp  int64  0+")


class MirrorRecordError(ValueError):
    """The bytes are not a record of MirrorMaker 2's internal topics, or one of an unknown version."""


class OffsetSync(NamedTuple):
    """The record at `upstream` in the source partition is the record at `downstream` in the target partition.

    :param source: topic and partition in the source.
    """

    source: TopicPartition
    upstream: int
    downstream: int

    def encoded(self) -> tuple[bytes, bytes]:
        """Key and value."""
        key = _SYNC_KEY(topic=self.source[0], partition=self.source[1])
        return encode(key, 0), encode(_SYNC_VALUE(upstream_offset=self.upstream, offset=self.downstream), 0)


class Checkpoint(NamedTuple):
    """A group that has committed `upstream` in the source may start at `downstream` in the target.

    :param target: topic and partition in the target. :param metadata: of the group's commit in the source.
    """

    group_id: str
    target: TopicPartition
    upstream: int
    downstream: int
    metadata: str

    def encoded(self) -> tuple[bytes, bytes]:
        """Key and value."""
        key = _CHECKPOINT_KEY(group=self.group_id, topic=self.target[0], partition=self.target[1])
        value = _CHECKPOINT_VALUE(upstream_offset=self.upstream, offset=self.downstream, metadata=self.metadata)
        return encode(key, 0), _VERSION.pack(VERSION) + encode(value, 0)


class Heartbeat(NamedTuple):
    """The flow from `source` to `target` (aliases of clusters) was running at `timestamp_ms`."""

    source: str
    target: str
    timestamp_ms: int

    def encoded(self) -> tuple[bytes, bytes]:
        """Key and value."""
        key = _HEARTBEAT_KEY(source_cluster_alias=self.source, target_cluster_alias=self.target)
        return encode(key, 0), _VERSION.pack(VERSION) + encode(_HEARTBEAT_VALUE(timestamp=self.timestamp_ms), 0)


def read_offset_sync(key: bytes | None, value: bytes | None) -> OffsetSync:
    """Decode an offset sync. Raises MirrorRecordError."""
    head, body = _decoded(_SYNC_KEY, key), _decoded(_SYNC_VALUE, value)
    return OffsetSync((head.topic, head.partition), body.upstream_offset, body.offset)


def read_checkpoint(key: bytes | None, value: bytes | None) -> Checkpoint:
    """Decode a checkpoint. Raises MirrorRecordError."""
    head, body = _decoded(_CHECKPOINT_KEY, key), _decoded(_CHECKPOINT_VALUE, value, versioned=True)
    return Checkpoint(head.group, (head.topic, head.partition), body.upstream_offset, body.offset, body.metadata)


def read_heartbeat(key: bytes | None, value: bytes | None) -> Heartbeat:
    """Decode a heartbeat. Raises MirrorRecordError."""
    head, body = _decoded(_HEARTBEAT_KEY, key), _decoded(_HEARTBEAT_VALUE, value, versioned=True)
    return Heartbeat(head.source_cluster_alias, head.target_cluster_alias, body.timestamp)


def _decoded(structure: Any, data: bytes | None, versioned: bool = False) -> Any:
    if data is None:
        raise MirrorRecordError(f"{structure.__name__} is null")
    start = 0
    if versioned:
        if len(data) < _VERSION.size:
            raise MirrorRecordError(f"{structure.__name__} of {len(data)} bytes is shorter than its version field")
        (version,) = _VERSION.unpack_from(data)
        if version != VERSION:
            raise MirrorRecordError(f"{structure.__name__} has version {version}; this program reads version {VERSION}")
        start = _VERSION.size
    try:
        decoded, end = decode(structure, 0, data, start)
    except ProtocolError as error:
        raise MirrorRecordError(f"{structure.__name__} cannot be decoded: {error}") from None
    if end != len(data):
        raise MirrorRecordError(f"{structure.__name__} has {len(data) - end} bytes after its end")
    return decoded
