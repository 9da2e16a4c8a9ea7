"""Taking over log directories that Kafka wrote: what they hold, whether it can be served, and the store made of it.

Run by `odradek adopt`, while no broker runs on the directories. Nothing of Kafka's is changed: its logs, its
`meta.properties` and its metadata log stay, so that Kafka can be started on them again. What is added is the metadata store,
made under another name, flushed and then renamed: a crash leaves a directory that is Kafka's or one that is ours.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from odradek.config.broker_config import BrokerConfig
from odradek.config.errors import ConfigError
from odradek.metadata import znodes
from odradek.metadata.cluster import ADOPTED_PRODUCER_IDS_FROM, machine_boot, new_uuid
from odradek.metadata.kraft_log import DIRECTORY as METADATA_DIRECTORY
from odradek.metadata.kraft_log import KraftCluster, KraftPartition, KraftTopic, read_cluster
from odradek.metadata.sqlite import FILE_NAME, SqliteStore
from odradek.metadata.znodes import NO_LEADER, PartitionState, ProducerIdBlock, TopicAssignment
from odradek.storage.atomic_file import fsync_directory
from odradek.storage.checkpoints import write_gap_limit
from odradek.storage.file_names import CLEANER_CHECKPOINT, TXN_INDEX
from odradek.storage.log_directory import MetaProperties, encode_uuid, read_meta_properties, read_partition_metadata
from odradek.storage.verify import ALWAYS_COMPACTED, CLUSTER_METADATA, DirectoryFiles, DirectoryReport, Partition

UNFINISHED = FILE_NAME + ".adopting"
FORMER = FILE_NAME + ".former"
PRODUCER_IDS_FROM = ADOPTED_PRODUCER_IDS_FROM
"""Where the ids of producers begin after a take-over: Kafka, once it is back, goes on from its own block and must never
give out an id that a producer had here, because its partitions would take the new producer's batches for repeated ones."""
BLOCK_SIZE = 1000
KEEP = {"retention.ms": "-1", "retention.bytes": "-1"}
COMPACT = {"cleanup.policy": "compact"}
INTERNAL_SETTINGS = {
    "__consumer_offsets": {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"},
    "__transaction_state": {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    },
}


class AdoptionError(Exception):
    """Directories that cannot be taken over whatever is forced; one line."""


@dataclass
class AdoptedPartition:
    """A partition as it will be. `directory`: index of the log directory that has it, None where none has."""

    replicas: list[int]
    state: PartitionState
    partition_epoch: int
    directory: int | None


@dataclass
class AdoptedTopic:
    """A topic as it will be."""

    name: str
    topic_id: uuid.UUID
    configs: dict[str, str]
    partitions: dict[int, AdoptedPartition] = field(default_factory=dict)


@dataclass
class Adoption:
    """What was found and what will be made of it.

    `obstacles` must be forced, `warnings` should be known, `left` will not be taken over. `again`: the first directory has a
    store of ours from before. `gap_limits`: of the logs in which offsets may be missing, by the partition's directory.
    """

    directories: list[DirectoryFiles]
    mode: str
    cluster_id: str
    node_id: int
    topics: dict[str, AdoptedTopic] = field(default_factory=dict)
    obstacles: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    next_producer_id: int = 0
    metadata_version: int | None = None
    again: bool = False
    gap_limits: dict[Path, int] = field(default_factory=dict)

    @property
    def compacted(self) -> set[str]:
        """Topics in whose logs offsets may be missing."""
        return {name for name, topic in self.topics.items() if "compact" in topic.configs.get("cleanup.policy", "")}


def survey(directories: Sequence[DirectoryFiles], config: BrokerConfig) -> Adoption:
    """What the directories are, from their files' names, `meta.properties` and, of KRaft, the metadata log.

    :param config: of the broker that will serve them; its `node.id`, where it is set, must be theirs.
    :raises AdoptionError: they are no directories of one Kafka broker. :raises ClusterMetadataError: KRaft's log is damaged.
    """
    meta = _identity(directories, config)
    assert meta.cluster_id is not None and meta.node_id is not None
    metadata_dir = _metadata_directory(directories, config)
    if meta.version == 1 and metadata_dir is None:
        ours = [files.path for files in directories if Path(files.path, FILE_NAME).exists()]
        if ours:
            raise AdoptionError(
                f"{ours[0]} is a directory of Odradek, which keeps its metadata in {FILE_NAME}: there is nothing to adopt"
            )
        raise AdoptionError(
            f"{directories[0].path} belongs to a KRaft broker but does not contain {METADATA_DIRECTORY}, which has its topics: "
            "name the directory that contains it as well, or set metadata.log.dir"
        )
    kraft = meta.version == 1
    found = Adoption(list(directories), "KRaft" if kraft else "ZooKeeper", meta.cluster_id, meta.node_id)
    found.again = any(Path(files.path, FILE_NAME).exists() for files in directories)
    where = _places(found)
    if kraft:
        assert metadata_dir is not None
        _from_kraft(found, read_cluster(metadata_dir), where)
    else:
        _from_names(found, where)
    _check_configs(found, config)
    _warn_of_replicas(found)
    for files in directories:
        if files.locked:
            found.obstacles.append(f"a broker runs on {files.path}: stop it first")
        elif not files.clean:
            found.warnings.append(f"{files.path} was not closed in order: the first start recovers its logs")
        found.left += [f"{files.path}/{name}" for name in files.unknown_files if not name.startswith("odradek")]
    _warn_of_aborted(found)
    if "__transaction_state" in found.topics:
        found.warnings.append(
            "__transaction_state is kept as it is: transactions that are open now stay open until Kafka is back"
        )
    return found


def _identity(directories: Sequence[DirectoryFiles], config: BrokerConfig) -> MetaProperties:
    """The one broker whose all directories are. Raises AdoptionError, CorruptMetadataError."""
    found = []
    for files in directories:
        meta = read_meta_properties(files.path)
        if meta is None:
            raise AdoptionError(f"{files.path} has no meta.properties: it is no log directory of Kafka")
        if meta.cluster_id is None or meta.node_id is None:
            raise AdoptionError(f"{files.path}/meta.properties names no cluster.id or no broker.id (node.id)")
        found.append(meta)
    first = found[0]
    for files, meta in zip(directories, found, strict=True):
        if meta.cluster_id != first.cluster_id:
            raise AdoptionError(
                f"{files.path} belongs to cluster {meta.cluster_id}, {directories[0].path} to {first.cluster_id}: "
                "only directories of one broker can be taken over together"
            )
        if (meta.node_id, meta.version) != (first.node_id, first.version):
            raise AdoptionError(f"{files.path} belongs to another broker than {directories[0].path}")
    if config.node_id_is_configured and config.node_id != first.node_id:
        raise AdoptionError(
            f"{directories[0].path} belongs to node {first.node_id}, but node.id is {config.node_id}: "
            "set node.id to that number, or not at all"
        )
    return first


def _metadata_directory(directories: Sequence[DirectoryFiles], config: BrokerConfig) -> Path | None:
    configured = config.get("metadata.log.dir")
    candidates = ([str(configured)] if configured else []) + [files.path for files in directories]
    return next((path for one in candidates if (path := Path(one, METADATA_DIRECTORY)).is_dir()), None)


def _places(found: Adoption) -> dict[Partition, int]:
    """Which directory has which partition."""
    where: dict[Partition, int] = {}
    for index, files in enumerate(found.directories):
        for key in files.logs:
            if key[0] == CLUSTER_METADATA:
                found.left.append(f"{files.path}/{CLUSTER_METADATA}-{key[1]} (stays for the way back to Kafka)")
            elif where.setdefault(key, index) != index:
                first = found.directories[where[key]].path
                found.obstacles.append(f"{key[0]}-{key[1]} is in {first} and in {files.path}: remove one of them")
    return where


# -- KRaft -----------------------------------------------------------------------------------------------------------


def _from_kraft(found: Adoption, cluster: KraftCluster, where: Mapping[Partition, int]) -> None:
    found.next_producer_id = cluster.next_producer_id
    found.metadata_version = cluster.features.get("metadata.version")
    others = sorted(cluster.brokers - {found.node_id})
    if others:
        found.warnings.append(f"the cluster has other brokers, {others}: what only they keep is not served")
    for topic in sorted(cluster.topics.values(), key=lambda one: one.name):
        adopted = AdoptedTopic(topic.name, topic.topic_id, dict(cluster.topic_configs(topic.name)))
        for index in sorted(topic.partitions):
            adopted.partitions[index] = _kraft_partition(found, topic, index, where)
        found.topics[topic.name] = adopted
    strays = [key for key in where if key[0] not in found.topics or key[1] not in found.topics[key[0]].partitions]
    found.left += [
        f"{found.directories[where[key]].path}/{key[0]}-{key[1]} (of no topic in the metadata)"
        for key in sorted(strays)
    ]
    found.left += [f"{count} {name}" for name, count in sorted(cluster.other.items()) if count > 0]
    for (kind, name), settings in sorted(cluster.configs.items()):
        if kind != 2 and settings:
            found.left.append(
                f"settings of {_RESOURCES.get(kind, 'resource')} {name or '(default)'}: {', '.join(settings)}"
            )


_RESOURCES = {4: "broker", 8: "broker logger", 16: "client metrics", 32: "group"}


def _kraft_partition(
    found: Adoption, topic: KraftTopic, index: int, where: Mapping[Partition, int]
) -> AdoptedPartition:
    """A partition that has a directory here becomes this broker's alone; one that is elsewhere keeps its replicas."""
    old: KraftPartition = topic.partitions[index]
    place = where.get((topic.name, index))
    name = f"{topic.name}-{index}"
    if place is not None:
        directory = Path(found.directories[place].path, name)
        stated = read_partition_metadata(directory)
        if stated not in (None, topic.topic_id):
            found.left.append(f"{directory} (of a former topic of that name)")
            place = None
    if found.node_id not in old.replicas:
        found.obstacles.append(f"{name} is on the brokers {old.replicas} only, and will not be served")
        return AdoptedPartition(
            old.replicas,
            PartitionState(0, NO_LEADER, old.leader_epoch, old.in_sync_replicas),
            old.partition_epoch,
            None,
        )
    if place is None:
        found.obstacles.append(f"{name} has no directory here: it would begin empty")
    elif not old.has_all(found.node_id):
        found.obstacles.append(
            f"{name} was not in sync here (in-sync replicas {old.in_sync_replicas}): acknowledged records may be missing"
        )
    state = PartitionState(0, found.node_id, old.leader_epoch, [found.node_id], old.leader_recovery_state)
    return AdoptedPartition([found.node_id], state, old.partition_epoch, place)


# -- ZooKeeper -------------------------------------------------------------------------------------------------------


def _from_names(found: Adoption, where: Mapping[Partition, int]) -> None:
    """Topics by the names of directories: in ZooKeeper mode their settings are in ZooKeeper, where nobody looks."""
    for key in sorted(where):
        directory = Path(found.directories[where[key]].path, f"{key[0]}-{key[1]}")
        topic = found.topics.get(key[0])
        if topic is None:
            topic = AdoptedTopic(key[0], read_partition_metadata(directory) or new_uuid(), {})
            found.topics[key[0]] = topic
        topic.partitions[key[1]] = _fresh_partition(found, where[key])
    cleaned = {topic for files in found.directories for topic, _ in files.checkpoints.get(CLEANER_CHECKPOINT, {})}
    kept = []
    for topic in found.topics.values():
        missing = sorted(set(range(max(topic.partitions))) - set(topic.partitions))
        if missing:
            found.obstacles.append(
                f"partitions {missing} of {topic.name} have no directory here: they would begin empty"
            )
            topic.partitions |= {index: _fresh_partition(found, None) for index in missing}
            topic.partitions = dict(sorted(topic.partitions.items()))
        if topic.name in INTERNAL_SETTINGS:
            topic.configs = dict(INTERNAL_SETTINGS[topic.name])
        elif topic.name in cleaned or topic.name in ALWAYS_COMPACTED:
            topic.configs = dict(COMPACT)
        else:
            topic.configs = dict(KEEP)
            kept.append(topic.name)
    if kept:
        found.warnings.append(
            f"the settings of {len(kept)} topic(s) are in ZooKeeper and not known: they keep everything "
            "(retention.ms=-1, retention.bytes=-1) until they are set"
        )
    if cleaned:
        found.warnings.append(f"compacted, because Kafka's cleaner was at them: {', '.join(sorted(cleaned))}")


def _fresh_partition(found: Adoption, place: int | None) -> AdoptedPartition:
    return AdoptedPartition([found.node_id], PartitionState(0, found.node_id, 0, [found.node_id]), 0, place)


# -- both ------------------------------------------------------------------------------------------------------------


def _check_configs(found: Adoption, config: BrokerConfig) -> None:
    """Leave out settings that this broker would refuse: one of them would take the others of its topic with it."""
    for topic in found.topics.values():
        for name, value in list(topic.configs.items()):
            try:
                config.topic_config({name: value})
            except ConfigError as error:
                found.left.append(f"setting of topic {topic.name}: {error}")
                del topic.configs[name]
        if topic.configs.get("remote.storage.enable") == "true":
            found.obstacles.append(f"{topic.name} has segments in remote storage, which are not taken over")


def _warn_of_replicas(found: Adoption) -> None:
    """Of topics whose writes with acks=all were acknowledged by more brokers until now."""
    key, single = "min.insync.replicas", []
    for topic in found.topics.values():
        wanted = int(topic.configs.get(key, 1))
        if any(len(partition.replicas) < wanted for partition in topic.partitions.values()):
            single.append(f"{topic.name} ({key}={wanted})")
    if single:
        found.warnings.append(
            f"these topics get one replica, fewer than their {key}: {', '.join(sorted(single))}; a write with acks=all is "
            "acknowledged when this broker alone has it"
        )


def judge(found: Adoption, reports: Sequence[DirectoryReport]) -> None:
    """Take in what the verification of the logs found: errors are obstacles, epochs and producer ids go on from there."""
    for index, report in enumerate(reports):
        for finding in report.errors:
            place = "" if finding.offset is None else f", offset {finding.offset}"
            found.obstacles.append(f"{finding.file}{place}: {finding.what}")
        for key, log in report.logs.items():
            found.next_producer_id = max(found.next_producer_id, log.max_producer_id + 1 - PRODUCER_IDS_FROM)
            cleaned = report.files.checkpoints.get(CLEANER_CHECKPOINT, {}).get(key)
            if key[0] != CLUSTER_METADATA and (log.gaps_end or cleaned is not None):
                found.gap_limits[Path(log.directory)] = max(log.gaps_end, cleaned or 0)
            topic = found.topics.get(key[0])
            partition = topic.partitions.get(key[1]) if topic else None
            if partition is not None and partition.directory == index:
                epoch = max(partition.state.leader_epoch, log.leader_epoch)
                partition.state = partition.state._replace(leader_epoch=epoch)


def _warn_of_aborted(found: Adoption) -> None:
    """Fetch does not tell consumers which transactions were aborted; they must know before they rely on it."""
    names = sorted(
        {
            topic
            for files in found.directories
            for (topic, _), log in files.logs.items()
            if topic in found.topics and any(name.endswith(TXN_INDEX) and size for name, size in log.names.items())
        }
    )
    if names:
        found.warnings.append(
            f"consumers with isolation.level=read_committed will see the records of aborted transactions in {', '.join(names)}"
        )


def first_producer_id(found: Adoption) -> int:
    """The first id that will be given out: of no producer that Kafka or a former take-over knew."""
    return PRODUCER_IDS_FROM + -(-max(found.next_producer_id, 0) // BLOCK_SIZE) * BLOCK_SIZE


def carry_out(found: Adoption) -> None:
    """Make the store in the first directory. May be repeated after a crash at any point. Raises StoreError, OSError.

    :raises AdoptionError: a store of ours from before belongs to another cluster.
    """
    home = Path(found.directories[0].path)
    _keep_producer_ids(found)
    for directory, limit in found.gap_limits.items():
        # Kafka keeps all gaps in a log, and so does a recovery here up to this limit.
        write_gap_limit(directory, limit)
    for name in (UNFINISHED, f"{UNFINISHED}-wal", f"{UNFINISHED}-shm"):
        (home / name).unlink(missing_ok=True)
    store = SqliteStore(home / UNFINISHED)
    try:
        store.fill(_nodes(found))
    finally:
        store.close()  # the last connection folds the write-ahead log into the file
    descriptor = os.open(home / UNFINISHED, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    for files in found.directories:
        old = Path(files.path, FILE_NAME)
        if old.exists():
            SqliteStore(old).close()  # folds its write-ahead log in, which a rename would leave behind
            old.replace(Path(files.path, FORMER))
            fsync_directory(files.path)
    (home / UNFINISHED).replace(home / FILE_NAME)
    fsync_directory(home)


def _keep_producer_ids(found: Adoption) -> None:
    """What stores of ours from before gave out, one that a crashed take-over had put aside included."""
    stores = [Path(files.path, name) for files in found.directories for name in (FILE_NAME, FORMER)]
    for path in filter(Path.exists, stores):
        store = SqliteStore(path)
        try:
            (cluster, block) = store.get_many([znodes.CLUSTER_ID, znodes.PRODUCER_ID_BLOCK])
        finally:
            store.close()
        if cluster is not None and znodes.decode_cluster_id(cluster[0]) != found.cluster_id:
            raise AdoptionError(
                f"{path} is of cluster {znodes.decode_cluster_id(cluster[0])}, the directory of {found.cluster_id}: "
                "move the file away if it is not needed"
            )
        latest = znodes.decode_producer_id_block(block[0]) if block is not None else None
        if latest is not None:
            found.next_producer_id = max(found.next_producer_id, latest.last + 1 - PRODUCER_IDS_FROM)


def _nodes(found: Adoption) -> list[tuple[str, bytes, int]]:
    first = first_producer_id(found)
    block = ProducerIdBlock(found.node_id, first - BLOCK_SIZE, first - 1)
    nodes = [(path, b"", 0) for path in znodes.PERSISTENT if path != znodes.PRODUCER_ID_BLOCK]
    nodes.append((znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_id_block(block), 0))
    nodes.append((znodes.CLUSTER_ID, znodes.encode_cluster_id(found.cluster_id), 0))
    if _written_since_boot(found):
        nodes.append((znodes.MACHINE_BOOT, machine_boot(), 0))
    for topic in found.topics.values():
        assignment = TopicAssignment(
            topic.topic_id, {index: partition.replicas for index, partition in topic.partitions.items()}
        )
        nodes.append((znodes.topic_config_path(topic.name), znodes.encode_config(topic.configs), 0))
        nodes.append((znodes.topic_path(topic.name), znodes.encode_topic(assignment), 0))
        nodes.append((znodes.partitions_path(topic.name), b"", 0))
        for index, partition in topic.partitions.items():
            nodes.append((znodes.partition_path(topic.name, index), b"", 0))
            nodes.append(
                (znodes.state_path(topic.name, index), znodes.encode_state(partition.state), partition.partition_epoch)
            )
    return nodes


def _written_since_boot(found: Adoption) -> bool:
    """Whether Kafka ran since the machine was booted, so that nothing of what it wrote is lost: it renews its
    checkpoints all the time."""
    booted_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    checkpoints = [path for files in found.directories for path in Path(files.path).glob("*-checkpoint")]
    return any(path.stat().st_mtime > booted_s for path in checkpoints)


def describe(found: Adoption) -> dict[str, object]:
    """The numbers of it, for scripts."""
    return {
        "mode": found.mode,
        "cluster_id": found.cluster_id,
        "node_id": found.node_id,
        "metadata_version": found.metadata_version,
        "again": found.again,
        "topics": [
            {
                "name": topic.name,
                "topic_id": encode_uuid(topic.topic_id),
                "partitions": len(topic.partitions),
                "here": sum(partition.directory is not None for partition in topic.partitions.values()),
                "configs": topic.configs,
            }
            for topic in found.topics.values()
        ],
        "obstacles": found.obstacles,
        "warnings": found.warnings,
        "left": found.left,
    }
