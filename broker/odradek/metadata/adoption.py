"""Adoption of log directories that Kafka wrote: surveys their content, reports obstacles, and creates the metadata store.

`odradek adopt` runs it while no broker runs on the directories. It does not change Kafka's files (logs, `meta.properties`, the
metadata log), so that Kafka can be started on them again. It adds the metadata store: it writes the store under another name,
syncs it and renames it, so that a crash leaves either the directory as Kafka wrote it or a complete store.
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
from odradek.config.features import LEVEL_KEY, NEWEST_TRANSACTION_VERSION, TRANSACTION_VERSION
from odradek.metadata import znodes
from odradek.metadata.adopted_security import AdoptedSecurity, security_of
from odradek.metadata.cluster import ADOPTED_PRODUCER_IDS_FROM, machine_boot, new_uuid
from odradek.metadata.kafka_tree import KafkaTree
from odradek.metadata.kraft_log import DIRECTORY as METADATA_DIRECTORY
from odradek.metadata.kraft_log import KraftCluster, KraftPartition, KraftTopic, read_cluster
from odradek.metadata.sqlite import FILE_NAME, SqliteStore
from odradek.metadata.znodes import NO_LEADER, PartitionState, ProducerIdBlock, TopicAssignment
from odradek.storage.atomic_file import fsync_directory
from odradek.storage.checkpoints import write_gap_limit
from odradek.storage.file_names import CLEANER_CHECKPOINT, CLUSTER_METADATA, partition_directory_name
from odradek.storage.log_directory import MetaProperties, encode_uuid, read_meta_properties, read_partition_metadata
from odradek.storage.verify import ALWAYS_COMPACTED, DirectoryFiles, DirectoryReport
from odradek.topic_partition import TopicPartition

UNFINISHED = FILE_NAME + ".adopting"
FORMER = FILE_NAME + ".former"
PRODUCER_IDS_FROM = ADOPTED_PRODUCER_IDS_FROM
"""The first producer id after an adoption. If Kafka runs on the directories again, it continues with its own blocks and must
never allocate an id that a producer had here, because partitions would take the new producer's batches for duplicates."""
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
    """The directories cannot be adopted, even with --force. The message is one line."""


@dataclass
class AdoptedPartition:
    """A partition after the adoption. `directory`: index of the log directory with its files, or None."""

    replicas: list[int]
    state: PartitionState
    partition_epoch: int
    directory: int | None


@dataclass
class AdoptedTopic:
    """A topic after the adoption."""

    name: str
    topic_id: uuid.UUID
    configs: dict[str, str]
    partitions: dict[int, AdoptedPartition] = field(default_factory=dict)


@dataclass
class Adoption:
    """The content of the directories, and the metadata to store.

    `obstacles` prevent the adoption unless it is forced, `warnings` are consequences, `left` is not adopted. `again`: one of
    them already has a store of an earlier adoption. `gap_limits`: by partition directory, for logs in which offsets may be
    missing. `security`: quotas, ACLs, SCRAM credentials and delegation tokens.
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
    transaction_version: int | None = None
    again: bool = False
    gap_limits: dict[Path, int] = field(default_factory=dict)
    security: AdoptedSecurity = field(default_factory=AdoptedSecurity)

    @property
    def compacted(self) -> set[str]:
        """The topics in whose logs offsets may be missing."""
        return {name for name, topic in self.topics.items() if "compact" in topic.configs.get("cleanup.policy", "")}


def survey(
    directories: Sequence[DirectoryFiles], config: BrokerConfig, kafka_tree: KafkaTree | None = None
) -> Adoption:
    """Determine the content of the directories from file names, `meta.properties` and the KRaft metadata log.

    :param config: the configuration of the broker that will serve them; if `node.id` is set, it must match the directories.
    :param kafka_tree: the content of the cluster's ZooKeeper; None if it was not read.
    :raises AdoptionError: the directories do not belong to one Kafka broker.
    :raises ClusterMetadataError: the KRaft metadata log is damaged.
    """
    meta = _identity(directories, config)
    assert meta.cluster_id is not None and meta.node_id is not None
    metadata_dir = _metadata_directory(directories, config)
    if meta.version == 1 and metadata_dir is None:
        with_store = [files.path for files in directories if Path(files.path, FILE_NAME).exists()]
        if with_store:
            raise AdoptionError(
                f"{with_store[0]} is a directory of Odradek, which keeps its metadata in {FILE_NAME}: there is nothing to adopt"
            )
        raise AdoptionError(
            f"{directories[0].path} belongs to a KRaft broker but does not contain {METADATA_DIRECTORY} with its topics: "
            "specify the directory that contains it as well, or set metadata.log.dir"
        )
    kraft = meta.version == 1
    _check_tree(directories, meta, kafka_tree)
    adoption = Adoption(list(directories), "KRaft" if kraft else "ZooKeeper", meta.cluster_id, meta.node_id)
    adoption.again = any(Path(files.path, FILE_NAME).exists() for files in directories)
    where = _directories_of_partitions(adoption)
    if kraft:
        assert metadata_dir is not None
        _from_kraft(adoption, read_cluster(metadata_dir), where)
    else:
        _from_names(adoption, where, kafka_tree)
    _warn_of_security(adoption, config)
    _check_configs(adoption, config)
    _warn_of_replicas(adoption)
    for files in directories:
        if files.locked:
            adoption.obstacles.append(f"a broker is running on {files.path}: stop it first")
        elif not files.clean:
            adoption.warnings.append(
                f"{files.path} was not shut down cleanly: the first start of this broker recovers its logs"
            )
        adoption.left += [f"{files.path}/{name}" for name in files.unknown_files if not name.startswith("odradek")]
    return adoption


def _identity(directories: Sequence[DirectoryFiles], config: BrokerConfig) -> MetaProperties:
    """The broker to which all directories belong. Raises AdoptionError, CorruptMetadataError."""
    metas = []
    for files in directories:
        meta = read_meta_properties(files.path)
        if meta is None:
            raise AdoptionError(f"{files.path} contains no meta.properties: it is not a log directory of Kafka")
        if meta.cluster_id is None or meta.node_id is None:
            raise AdoptionError(f"{files.path}/meta.properties must contain cluster.id and broker.id (or node.id)")
        metas.append(meta)
    first = metas[0]
    for files, meta in zip(directories, metas, strict=True):
        if meta.cluster_id != first.cluster_id:
            raise AdoptionError(
                f"{files.path} belongs to cluster {meta.cluster_id}, {directories[0].path} to {first.cluster_id}: "
                "only directories of one broker can be adopted together"
            )
        if (meta.node_id, meta.version) != (first.node_id, first.version):
            raise AdoptionError(f"{files.path} and {directories[0].path} belong to different brokers")
    if config.node_id_is_configured and config.node_id != first.node_id:
        raise AdoptionError(
            f"{directories[0].path} belongs to node {first.node_id}, but node.id is {config.node_id}: "
            f"set node.id={first.node_id}, or leave it unset"
        )
    return first


def _check_tree(directories: Sequence[DirectoryFiles], meta: MetaProperties, tree: KafkaTree | None) -> None:
    """Check that the directories and ZooKeeper are of one cluster. Raises AdoptionError."""
    path = directories[0].path
    if tree is None:
        return
    if meta.version == 1:
        raise AdoptionError(f"{path} belongs to a KRaft broker, which keeps nothing in ZooKeeper: omit --zookeeper")
    if tree.cluster_id != meta.cluster_id:
        raise AdoptionError(
            f"{path} belongs to cluster {meta.cluster_id}, but ZooKeeper contains cluster {tree.cluster_id}: check the address "
            "and the chroot of --zookeeper"
        )


def _metadata_directory(directories: Sequence[DirectoryFiles], config: BrokerConfig) -> Path | None:
    configured = config.get("metadata.log.dir")
    candidates = ([str(configured)] if configured else []) + [files.path for files in directories]
    return next((path for parent in candidates if (path := Path(parent, METADATA_DIRECTORY)).is_dir()), None)


def _directories_of_partitions(adoption: Adoption) -> dict[TopicPartition, int]:
    """The index of the log directory with the files of each partition."""
    where: dict[TopicPartition, int] = {}
    for index, files in enumerate(adoption.directories):
        for key in files.logs:
            if key[0] == CLUSTER_METADATA:
                adoption.left.append(
                    f"{files.path}/{partition_directory_name(CLUSTER_METADATA, key[1])} (needed only for the return to Kafka)"
                )
            elif where.setdefault(key, index) != index:
                first = adoption.directories[where[key]].path
                adoption.obstacles.append(
                    f"{key[0]}-{key[1]} is in {first} and in {files.path}: remove one of the two directories"
                )
    return where


# -- KRaft -----------------------------------------------------------------------------------------------------------


def _from_kraft(adoption: Adoption, cluster: KraftCluster, where: Mapping[TopicPartition, int]) -> None:
    adoption.next_producer_id = cluster.next_producer_id
    adoption.metadata_version = cluster.features.get("metadata.version")
    adoption.transaction_version = cluster.features.get(TRANSACTION_VERSION, 0)
    others = sorted(cluster.brokers - {adoption.node_id})
    if others:
        adoption.warnings.append(
            f"the cluster has other brokers, {others}: partitions that only they have will not be served"
        )
    for topic in sorted(cluster.topics.values(), key=lambda topic: topic.name):
        adopted = AdoptedTopic(topic.name, topic.topic_id, dict(cluster.topic_configs(topic.name)))
        for index in sorted(topic.partitions):
            adopted.partitions[index] = _kraft_partition(adoption, topic, index, where)
        adoption.topics[topic.name] = adopted
    strays = [key for key in where if key[0] not in adoption.topics or key[1] not in adoption.topics[key[0]].partitions]
    adoption.left += [
        f"{adoption.directories[where[key]].path}/{partition_directory_name(*key)} (belongs to no topic in the metadata)"
        for key in sorted(strays)
    ]
    adoption.security = security_of(cluster)
    adoption.left += adoption.security.left
    for (kind, name), settings in sorted(cluster.configs.items()):
        if kind != 2 and settings:
            adoption.left.append(
                f"settings of {_RESOURCES.get(kind, 'resource')} {name or '(default)'}: {', '.join(settings)}"
            )


_RESOURCES = {4: "broker", 8: "broker logger", 16: "client metrics", 32: "group"}


def _kraft_partition(
    adoption: Adoption, topic: KraftTopic, index: int, where: Mapping[TopicPartition, int]
) -> AdoptedPartition:
    """A partition with this broker as a replica gets this broker as its only replica; another one keeps its replicas."""
    old: KraftPartition = topic.partitions[index]
    log_dir = where.get((topic.name, index))
    name = partition_directory_name(topic.name, index)
    if log_dir is not None:
        directory = Path(adoption.directories[log_dir].path, name)
        owner = read_partition_metadata(directory)
        if owner not in (None, topic.topic_id):
            adoption.left.append(f"{directory} (belongs to a former topic of the same name)")
            log_dir = None
    if adoption.node_id not in old.replicas:
        adoption.obstacles.append(f"{name} is on the brokers {old.replicas} only, and will not be served")
        return AdoptedPartition(
            old.replicas,
            PartitionState(0, NO_LEADER, old.leader_epoch, old.in_sync_replicas),
            old.partition_epoch,
            None,
        )
    if log_dir is None:
        adoption.obstacles.append(f"{name} has no directory here: it would be created empty")
    elif not old.has_all(adoption.node_id):
        adoption.obstacles.append(
            f"{name} was not in sync here (in-sync replicas {old.in_sync_replicas}): acknowledged records may be missing"
        )
    state = PartitionState(0, adoption.node_id, old.leader_epoch, [adoption.node_id], old.leader_recovery_state)
    return AdoptedPartition([adoption.node_id], state, old.partition_epoch, log_dir)


# -- ZooKeeper -------------------------------------------------------------------------------------------------------


def _from_names(adoption: Adoption, where: Mapping[TopicPartition, int], tree: KafkaTree | None) -> None:
    """Take the topics from the names of directories. In ZooKeeper mode, their settings are in ZooKeeper."""
    for key in sorted(where):
        directory = Path(adoption.directories[where[key]].path, partition_directory_name(*key))
        topic = adoption.topics.get(key[0])
        if topic is None:
            topic = AdoptedTopic(key[0], read_partition_metadata(directory) or new_uuid(), {})
            adoption.topics[key[0]] = topic
        topic.partitions[key[1]] = _fresh_partition(adoption, where[key])
    cleaned = {topic for files in adoption.directories for topic, _ in files.checkpoints.get(CLEANER_CHECKPOINT, {})}
    kept, compacted = [], []
    for topic in adoption.topics.values():
        missing = sorted(set(range(max(topic.partitions))) - set(topic.partitions))
        if missing:
            adoption.obstacles.append(
                f"partitions {missing} of {topic.name} have no directory here: they would be created empty"
            )
            topic.partitions |= {index: _fresh_partition(adoption, None) for index in missing}
            topic.partitions = dict(sorted(topic.partitions.items()))
        if tree is not None and topic.name in tree.topic_configs:
            topic.configs = dict(tree.topic_configs[topic.name])
        elif topic.name in INTERNAL_SETTINGS:
            topic.configs = dict(INTERNAL_SETTINGS[topic.name])
        elif topic.name in cleaned or topic.name in ALWAYS_COMPACTED:
            topic.configs = dict(COMPACT)
            compacted.append(topic.name)
        else:
            topic.configs = dict(KEEP)
            kept.append(topic.name)
    _describe_settings(adoption, kept, compacted, tree)


def _describe_settings(
    adoption: Adoption, kept: Sequence[str], compacted: Sequence[str], tree: KafkaTree | None
) -> None:
    """Tell which topics got other settings than their own, and what was taken from ZooKeeper.

    :param kept: topics without known settings. :param compacted: those of them that Kafka's cleaner compacted.
    """
    where = "are not in ZooKeeper (the topics were deleted, or ZooKeeper is not theirs)" if tree else "are in ZooKeeper"
    if kept:
        adoption.warnings.append(
            f"the settings of {len(kept)} topic(s) {where}, and unknown: these topics get retention.ms=-1 and "
            "retention.bytes=-1 (no deletion) until you set other values" + ("" if tree else "; --zookeeper reads them")
        )
    if compacted:
        adoption.warnings.append(
            f"topics that get cleanup.policy=compact, because Kafka's cleaner compacted them: {', '.join(sorted(compacted))}"
        )
    if tree is None:
        adoption.left.append(
            "quotas, ACLs, SCRAM credentials and delegation tokens, if there are any: --zookeeper takes them over"
        )
        return
    adoption.security = tree.security
    for broker, keys in sorted(tree.broker_settings.items()):
        name = "(default)" if broker == znodes.DEFAULT_ENTITY else broker
        adoption.left.append(f"settings of broker {name}: {', '.join(keys)}")


def _fresh_partition(adoption: Adoption, directory: int | None) -> AdoptedPartition:
    return AdoptedPartition(
        [adoption.node_id], PartitionState(0, adoption.node_id, 0, [adoption.node_id]), 0, directory
    )


# -- both ------------------------------------------------------------------------------------------------------------


def _check_configs(adoption: Adoption, config: BrokerConfig) -> None:
    """Remove settings that this broker refuses: with one of them, no setting of the topic would be used."""
    for topic in adoption.topics.values():
        for name, value in list(topic.configs.items()):
            try:
                config.topic_config({name: value})
            except ConfigError as error:
                adoption.left.append(f"setting of topic {topic.name}: {error}")
                del topic.configs[name]
        if topic.configs.get("remote.storage.enable") == "true":
            adoption.obstacles.append(f"{topic.name} has segments in remote storage, which cannot be adopted")


def _warn_of_security(adoption: Adoption, config: BrokerConfig) -> None:
    """Warn of what adopted ACLs and tokens need in the configuration before they have an effect."""
    words = " ".join(adoption.security.taken)
    if "ACL" in words and not config.text("authorizer.class.name"):
        adoption.warnings.append(
            "ACLs have an effect only if authorizer.class.name is set; set super.users too, or nobody may change the ACLs"
        )
    if "token" in words and config.get("delegation.token.secret.key") is None:
        adoption.warnings.append("delegation tokens are valid only with Kafka's delegation.token.secret.key")


def _warn_of_replicas(adoption: Adoption) -> None:
    """Warn of topics with more min.insync.replicas than the one replica that their partitions get."""
    key, names = "min.insync.replicas", []
    for topic in adoption.topics.values():
        required = int(topic.configs.get(key, 1))
        if any(len(partition.replicas) < required for partition in topic.partitions.values()):
            names.append(f"{topic.name} ({key}={required})")
    if names:
        adoption.warnings.append(
            f"these topics get one replica, fewer than their {key}: {', '.join(sorted(names))}; acks=all waits for this "
            "broker only"
        )


def judge(adoption: Adoption, reports: Sequence[DirectoryReport]) -> None:
    """Add the results of the verification of the logs: errors as obstacles, and the highest leader epochs and producer ids."""
    for index, report in enumerate(reports):
        for finding in report.errors:
            place = "" if finding.offset is None else f", offset {finding.offset}"
            adoption.obstacles.append(f"{finding.file}{place}: {finding.what}")
        for key, log in report.logs.items():
            adoption.next_producer_id = max(adoption.next_producer_id, log.max_producer_id + 1 - PRODUCER_IDS_FROM)
            cleaned = report.files.checkpoints.get(CLEANER_CHECKPOINT, {}).get(key)
            if key[0] != CLUSTER_METADATA and (log.gaps_end or cleaned is not None):
                adoption.gap_limits[Path(log.directory)] = max(log.gaps_end, cleaned or 0)
            topic = adoption.topics.get(key[0])
            partition = topic.partitions.get(key[1]) if topic else None
            if partition is not None and partition.directory == index:
                epoch = max(partition.state.leader_epoch, log.leader_epoch)
                partition.state = partition.state._replace(leader_epoch=epoch)


def first_producer_id(adoption: Adoption) -> int:
    """The first producer id to allocate: above all ids of Kafka and of earlier adoptions."""
    return PRODUCER_IDS_FROM + -(-max(adoption.next_producer_id, 0) // BLOCK_SIZE) * BLOCK_SIZE


def carry_out(adoption: Adoption) -> None:
    """Create the store in the first directory. It can be repeated after a crash at any point. Raises StoreError, OSError.

    :raises AdoptionError: the store of an earlier adoption belongs to another cluster.
    """
    home = Path(adoption.directories[0].path)
    _keep_producer_ids(adoption)
    for directory, limit in adoption.gap_limits.items():
        # Kafka keeps all gaps in a log. A recovery here keeps those up to this limit.
        write_gap_limit(directory, limit)
    for name in (UNFINISHED, f"{UNFINISHED}-wal", f"{UNFINISHED}-shm"):
        (home / name).unlink(missing_ok=True)
    store = SqliteStore(home / UNFINISHED)
    try:
        store.fill(_nodes(adoption))
    finally:
        store.close()  # closing the last connection moves the write-ahead log into the file
    descriptor = os.open(home / UNFINISHED, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    for files in adoption.directories:
        old = Path(files.path, FILE_NAME)
        if old.exists():
            SqliteStore(old).close()  # moves the write-ahead log into the file: a rename would lose it
            old.replace(Path(files.path, FORMER))
            fsync_directory(files.path)
    (home / UNFINISHED).replace(home / FILE_NAME)
    fsync_directory(home)


def _keep_producer_ids(adoption: Adoption) -> None:
    """Add the producer ids that stores of earlier adoptions allocated, also a store that a crashed adoption renamed."""
    stores = [Path(files.path, name) for files in adoption.directories for name in (FILE_NAME, FORMER)]
    for path in filter(Path.exists, stores):
        store = SqliteStore(path)
        try:
            (cluster, block) = store.get_many([znodes.CLUSTER_ID, znodes.PRODUCER_ID_BLOCK])
        finally:
            store.close()
        if cluster is not None and znodes.decode_cluster_id(cluster[0]) != adoption.cluster_id:
            raise AdoptionError(
                f"{path} belongs to cluster {znodes.decode_cluster_id(cluster[0])}, its directory to {adoption.cluster_id}: "
                "move the file away if you do not need it"
            )
        latest = znodes.decode_producer_id_block(block[0]) if block is not None else None
        if latest is not None:
            adoption.next_producer_id = max(adoption.next_producer_id, latest.last + 1 - PRODUCER_IDS_FROM)


def _nodes(adoption: Adoption) -> list[tuple[str, bytes, int]]:
    first = first_producer_id(adoption)
    block = ProducerIdBlock(adoption.node_id, first - BLOCK_SIZE, first - 1)
    nodes = [(path, b"", 0) for path in znodes.PERSISTENT if path != znodes.PRODUCER_ID_BLOCK]
    nodes.append((znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_id_block(block), 0))
    nodes.append((znodes.CLUSTER_ID, znodes.encode_cluster_id(adoption.cluster_id), 0))
    if _written_since_boot(adoption):
        nodes.append((znodes.MACHINE_BOOT, machine_boot(), 0))
    if adoption.transaction_version is not None:
        level = min(adoption.transaction_version, NEWEST_TRANSACTION_VERSION)
        nodes.append((znodes.broker_config_path(None), znodes.encode_config({LEVEL_KEY: str(level)}), 0))
    nodes += [(path, data, 0) for path, data in sorted(adoption.security.nodes)]  # parents before their children
    for topic in adoption.topics.values():
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


def _written_since_boot(adoption: Adoption) -> bool:
    """Whether Kafka ran since the machine was booted, so that no write is lost. Kafka writes its checkpoints
    continuously, so their modification times show it."""
    booted_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    checkpoints = [path for files in adoption.directories for path in Path(files.path).glob("*-checkpoint")]
    return any(path.stat().st_mtime > booted_s for path in checkpoints)


def describe(adoption: Adoption) -> dict[str, object]:
    """The adoption as JSON values, for scripts."""
    return {
        "mode": adoption.mode,
        "cluster_id": adoption.cluster_id,
        "node_id": adoption.node_id,
        "metadata_version": adoption.metadata_version,
        "again": adoption.again,
        "topics": [
            {
                "name": topic.name,
                "topic_id": encode_uuid(topic.topic_id),
                "partitions": len(topic.partitions),
                "here": sum(partition.directory is not None for partition in topic.partitions.values()),
                "configs": topic.configs,
            }
            for topic in adoption.topics.values()
        ],
        "security": adoption.security.taken,
        "obstacles": adoption.obstacles,
        "warnings": adoption.warnings,
        "left": adoption.left,
    }
