"""Reads the metadata of a KRaft cluster from its metadata log, `__cluster_metadata-0`. Does not write.

`odradek adopt` uses it. The reader loads the newest snapshot and replays the log after it. The end of the log may be
incomplete, if Kafka was killed. In a quorum of several controllers, the last records may not be committed; this reader cannot
detect that and applies them.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odradek.protocol import ProtocolError
from odradek.protocol.schemas import cluster_metadata
from odradek.storage import batch_file
from odradek.storage.batch import RecordBatch
from odradek.storage.file_names import LOG, parse_segment_file_name

DIRECTORY = "__cluster_metadata-0"
_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint", re.ASCII)


class ClusterMetadataError(ValueError):
    """The metadata log cannot be read or decoded. The message contains the file."""


@dataclass
class KraftPartition:
    """A partition, as the log describes it."""

    replicas: list[int]
    in_sync_replicas: list[int]
    leader: int
    leader_epoch: int
    partition_epoch: int
    leader_recovery_state: int = 0
    eligible_leader_replicas: list[int] = field(default_factory=list)

    def has_all(self, broker_id: int) -> bool:
        """Whether the replica of a broker has all acknowledged records."""
        return broker_id in self.in_sync_replicas or broker_id in self.eligible_leader_replicas


@dataclass
class KraftTopic:
    """A topic and its partitions by index."""

    name: str
    topic_id: uuid.UUID
    partitions: dict[int, KraftPartition] = field(default_factory=dict)


Entity = tuple[tuple[str, str | None], ...]
"""The entity of a client quota: pairs of type ("user", "client-id", "ip") and name, sorted; None is the default entity."""


@dataclass
class KraftCluster:
    """The content of the log.

    :param quotas: the quotas of an entity, by key. :param acls: records by their ids.
    :param scram_credentials: records by user and mechanism (1: SCRAM-SHA-256, 2: SCRAM-SHA-512).
    :param delegation_tokens: records by the ids of the tokens.
    """

    topics: dict[uuid.UUID, KraftTopic] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    brokers: set[int] = field(default_factory=set)
    next_producer_id: int = 0
    quotas: dict[Entity, dict[str, float]] = field(default_factory=dict)
    scram_credentials: dict[tuple[str, int], Any] = field(default_factory=dict)
    acls: dict[uuid.UUID, Any] = field(default_factory=dict)
    delegation_tokens: dict[str, Any] = field(default_factory=dict)
    end_offset: int = 0
    torn: bool = False

    def topic_configs(self, name: str) -> dict[str, str]:
        """The settings of a topic."""
        return self.configs.get((cluster_metadata.TOPIC_RESOURCE, name), {})

    def apply(self, kind: cluster_metadata.Kind, record: Any) -> None:
        """Apply one record."""
        handler = _HANDLERS.get(kind.number)
        if handler is not None:
            handler(self, record)

    def _topic(self, record: Any) -> None:
        topic = KraftTopic(record.name, uuid.UUID(bytes=bytes(record.topic_id)))
        self.topics[topic.topic_id] = topic

    def _remove_topic(self, record: Any) -> None:
        topic = self.topics.pop(uuid.UUID(bytes=bytes(record.topic_id)), None)
        if topic is not None:
            self.configs.pop((cluster_metadata.TOPIC_RESOURCE, topic.name), None)

    def _partition(self, record: Any) -> None:
        self.topics[uuid.UUID(bytes=bytes(record.topic_id))].partitions[record.partition_id] = KraftPartition(
            list(record.replicas),
            list(record.isr),
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            record.leader_recovery_state,
            list(record.eligible_leader_replicas or []),
        )

    def _change(self, record: Any) -> None:
        partition = self.topics[uuid.UUID(bytes=bytes(record.topic_id))].partitions[record.partition_id]
        if record.isr is not None:
            partition.in_sync_replicas = list(record.isr)
        if record.eligible_leader_replicas is not None:
            partition.eligible_leader_replicas = list(record.eligible_leader_replicas)
        if record.replicas is not None:
            partition.replicas = list(record.replicas)
        if record.leader != cluster_metadata.UNCHANGED:
            partition.leader = record.leader
            partition.leader_epoch += 1
        if record.leader_recovery_state >= 0:
            partition.leader_recovery_state = record.leader_recovery_state
        partition.partition_epoch += 1

    def _config(self, record: Any) -> None:
        settings = self.configs.setdefault((record.resource_type, record.resource_name), {})
        if record.value is None:
            settings.pop(record.name, None)
        else:
            settings[record.name] = record.value

    def _feature(self, record: Any) -> None:
        self.features[record.name] = record.feature_level

    def _producer_ids(self, record: Any) -> None:
        self.next_producer_id = max(self.next_producer_id, record.next_producer_id)

    def _register(self, record: Any) -> None:
        self.brokers.add(record.broker_id)

    def _unregister(self, record: Any) -> None:
        self.brokers.discard(record.broker_id)

    def _quota(self, record: Any) -> None:
        entity = tuple(sorted(((part.entity_type, part.entity_name) for part in record.entity), key=str))
        values = self.quotas.setdefault(entity, {})
        if record.remove:
            values.pop(record.key, None)
            if not values:
                del self.quotas[entity]
        else:
            values[record.key] = record.value

    def _scram_credential(self, record: Any) -> None:
        self.scram_credentials[record.name, record.mechanism] = record

    def _remove_scram_credential(self, record: Any) -> None:
        self.scram_credentials.pop((record.name, record.mechanism), None)

    def _acl(self, record: Any) -> None:
        self.acls[uuid.UUID(bytes=bytes(record.id))] = record

    def _remove_acl(self, record: Any) -> None:
        self.acls.pop(uuid.UUID(bytes=bytes(record.id)), None)

    def _token(self, record: Any) -> None:
        self.delegation_tokens[record.token_id] = record

    def _remove_token(self, record: Any) -> None:
        self.delegation_tokens.pop(record.token_id, None)


_HANDLERS = {
    cluster_metadata.REGISTER_BROKER.number: KraftCluster._register,
    cluster_metadata.UNREGISTER_BROKER.number: KraftCluster._unregister,
    cluster_metadata.TOPIC.number: KraftCluster._topic,
    cluster_metadata.REMOVE_TOPIC.number: KraftCluster._remove_topic,
    cluster_metadata.PARTITION.number: KraftCluster._partition,
    cluster_metadata.PARTITION_CHANGE.number: KraftCluster._change,
    cluster_metadata.CONFIG.number: KraftCluster._config,
    cluster_metadata.FEATURE_LEVEL.number: KraftCluster._feature,
    cluster_metadata.PRODUCER_IDS.number: KraftCluster._producer_ids,
    cluster_metadata.CLIENT_QUOTA.number: KraftCluster._quota,
    cluster_metadata.USER_SCRAM_CREDENTIAL.number: KraftCluster._scram_credential,
    cluster_metadata.REMOVE_USER_SCRAM_CREDENTIAL.number: KraftCluster._remove_scram_credential,
    cluster_metadata.ACCESS_CONTROL_ENTRY.number: KraftCluster._acl,
    cluster_metadata.REMOVE_ACCESS_CONTROL_ENTRY.number: KraftCluster._remove_acl,
    cluster_metadata.DELEGATION_TOKEN.number: KraftCluster._token,
    cluster_metadata.REMOVE_DELEGATION_TOKEN.number: KraftCluster._remove_token,
}


def read_cluster(directory: str | os.PathLike[str]) -> KraftCluster:
    """Read the metadata log in `directory`. Raises ClusterMetadataError, OSError."""
    path = Path(directory)
    names = [child.name for child in path.iterdir()]
    snapshots = sorted((int(match[1]), name) for name in names if (match := _SNAPSHOT.fullmatch(name)))
    segments = sorted(
        (parsed.base_offset, name)
        for name in names
        if (parsed := parse_segment_file_name(name)) and parsed.kind == LOG and not parsed.state
    )
    cluster = KraftCluster()
    if snapshots:
        cluster.end_offset, name = snapshots[-1]
        _replay(cluster, path / name, 0)
        if cluster.torn:
            raise ClusterMetadataError(f"{path / name}: the snapshot is damaged")
    elif segments and segments[0][0] > 0:
        raise ClusterMetadataError(
            f"{path}: the log begins at offset {segments[0][0]}, and a snapshot of the records before it is missing"
        )
    for number, (base, name) in enumerate(segments):
        last = number == len(segments) - 1
        if not last and segments[number + 1][0] <= cluster.end_offset:
            continue
        if base > cluster.end_offset:
            raise ClusterMetadataError(
                f"{path / name}: the offsets {cluster.end_offset} to {base - 1} before this segment are missing"
            )
        _replay(cluster, path / name, cluster.end_offset)
        if cluster.torn and not last:
            raise ClusterMetadataError(
                f"{path / name}: damaged at offset {cluster.end_offset}, which is not the end of the log"
            )
    return cluster


def _replay(cluster: KraftCluster, path: Path, from_offset: int) -> None:
    """Apply the records of a file from `from_offset` on. The records of a transaction are applied when it ends."""
    snapshot = path.suffix != LOG
    pending: list[tuple[cluster_metadata.Kind, Any]] | None = None
    for offset, kind, record in _records(cluster, path, from_offset, snapshot):
        if kind is cluster_metadata.BEGIN_TRANSACTION:
            pending = []
        elif kind is cluster_metadata.END_TRANSACTION:
            for pending_kind, pending_record in pending or []:
                _apply(cluster, path, offset, pending_kind, pending_record)
            pending = None
        elif kind is cluster_metadata.ABORT_TRANSACTION:
            pending = None
        elif pending is not None:
            pending.append((kind, record))
        else:
            _apply(cluster, path, offset, kind, record)


def _apply(cluster: KraftCluster, path: Path, offset: int, kind: cluster_metadata.Kind, record: Any) -> None:
    try:
        cluster.apply(kind, record)
    except KeyError as error:
        raise ClusterMetadataError(
            f"{path}: the {kind.name} at offset {offset} refers to a topic or partition that does not exist: {error}"
        ) from error


def _records(
    cluster: KraftCluster, path: Path, from_offset: int, snapshot: bool
) -> Iterator[tuple[int, cluster_metadata.Kind, Any]]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for item in batch_file.read_file(descriptor, os.fstat(descriptor).st_size):
            if isinstance(item, batch_file.Damage):
                cluster.torn = True
                return
            assert isinstance(item.content, RecordBatch), "metadata logs contain only record batches of format v2"
            if not snapshot:
                if item.content.last_offset < from_offset:
                    continue
                cluster.end_offset = item.content.last_offset + 1
            if item.content.is_control:
                continue
            for record in item.content.records():
                if record.offset >= from_offset or snapshot:
                    yield record.offset, *_read(path, record.offset, record.value)
    except (ValueError, AssertionError) as error:
        raise error if isinstance(error, ClusterMetadataError) else ClusterMetadataError(f"{path}: {error}") from error
    finally:
        os.close(descriptor)


def _read(path: Path, offset: int, value: bytes | None) -> tuple[cluster_metadata.Kind, Any]:
    try:
        kind, _, record = cluster_metadata.read_record(value or b"")
    except (ProtocolError, cluster_metadata.UnknownMetadataRecord) as error:
        raise ClusterMetadataError(f"{path}: the record at offset {offset}: {error}") from error
    return kind, record
