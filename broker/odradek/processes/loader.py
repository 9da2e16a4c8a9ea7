"""A loader: fills the partition table when the broker starts, before any process serves.

What it does: the first loader reads the metadata store, finds each partition's directory and gives it a slot. In directories
that were not shut down cleanly, all loaders together measure how much there is to recover. Then they open the logs in
parallel: each takes the next free slot of its log directory.

In a cluster with ZooKeeper, the directories themselves say which partitions exist, and the metadata store is not read.

What it must not do: remove or change directories that belong to no known topic, or write to the metadata store, except for the
cluster's first nodes, the ids of topics, the new leader epochs and the machine's boot id.

How it ends: when no slot is left to open. Then every slot is ONLINE or OFFLINE, or still LOADING if the disk had no room for
what recovery writes; the coordinator retries these.

What its death causes: the supervisor starts it again, and it continues. The coordinator opens the log that it was opening, with
recovery.
"""

import logging
import os
import select
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import odradek._ext.partition.slot_life as slot_life
import odradek._ext.partition.slots as slots
import odradek._ext.shm.loading as loading
from odradek._ext.shm.layout import ProcessKind, ProcessState
from odradek._ext.storage.segments import bytes_to_recover
from odradek.controller.broker_settings import show_running
from odradek.controller.image import ClusterImage, load_image, load_states
from odradek.controller.partitions import NO_CHECKPOINTS, LocalPartitions, topic_settings
from odradek.controller.topic_names import CLUSTER_METADATA, INTERNAL
from odradek.controller.topics import give_ids
from odradek.metadata import sqlite, znodes
from odradek.metadata.cluster import WrongCluster, ensure_cluster_id, may_have_lost_cache, note_boot
from odradek.metadata.sqlite import SqliteStore
from odradek.metadata.store import StoreError
from odradek.metadata.znodes import PartitionState
from odradek.processes import logs
from odradek.processes.context import ProcessContext
from odradek.shm.checkpoints import checkpoints_to_load_by
from odradek.shm.partition_table import PartitionTable
from odradek.storage.file_names import ForeignNameError, parse_directory_name, partition_directory_name
from odradek.storage.log_directory import CorruptMetadataError, read_partition_metadata
from odradek.topic_partition import TopicPartition

log = logging.getLogger("odradek.loader")

KEEP_ALL = {"compact": 0, "delete_": 0, "retention_ms": -1, "retention_bytes": -1}
"""Settings of a slot by which no record is removed."""
NO_TOPIC_ID = bytes(16)


def main(context: ProcessContext) -> int:
    """Load until no slot is left. Returns the exit code: EX_CONFIG if a successor would fail for the same reason."""
    shm = context.shm
    table = PartitionTable(shm, context.log_dirs)
    config = context.config
    partitions = LocalPartitions(table, config, config.node_id, lambda index: not shm.log_dir_offline(index))
    if context.ordinal == 0 and not loading.begun():
        try:
            if config.clustered:
                prepare_in_cluster(context, table)
                _begin(context)
            else:
                with closing(SqliteStore(Path(context.log_dirs[0]) / sqlite.FILE_NAME, keeps_room=True)) as store:
                    begun = prepare(context, partitions, store)
                    _begin(context)
                    begun.store(store)
        except (StoreError, WrongCluster) as error:
            log.error("cannot load the partitions: %s", error)
            return os.EX_CONFIG if isinstance(error, WrongCluster) else 1
    shm.set_state(ProcessState.SERVING)
    _wait_until_begun(context)
    Loading(context, partitions).run()
    return 0


def _begin(context: ProcessContext) -> None:
    """Every partition has its slot: let all loaders open logs."""
    loading.begin(context.shm.slots_used)
    for info in context.shm.processes():
        if info.kind == ProcessKind.LOADER and info.index != context.index:
            context.shm.wake(info.index)


def _wait_until_begun(context: ProcessContext) -> None:
    poll = select.poll()
    poll.register(context.shm.event_fd(), select.POLLIN)
    while not loading.begun():
        poll.poll()
        context.shm.drain_event()


# -- the first loader ---------------------------------------------------------------------------------------------


class BegunEpochs:
    """The leader epochs that this start begins. They are in the slots immediately; `store` writes them to the metadata store,
    all in one transaction."""

    def __init__(self) -> None:
        self.complete = True
        """Whether all log directories are online. If not, a later start of this boot begins new epochs in the missing ones:
        their content of the page cache is lost, too."""
        self._changes: list[tuple[str, bytes, int]] = []
        self._slots: list[tuple[int, int]] = []
        # By id() of the former state: most of thousands of states are the same object.
        self._next: dict[int, tuple[PartitionState, PartitionState, bytes]] = {}

    def of(self, state: PartitionState) -> PartitionState:
        """The state of a partition in its new epoch."""
        known = self._next.get(id(state))
        if known is None:
            new = state._replace(leader_epoch=state.leader_epoch + 1)
            known = self._next[id(state)] = (state, new, znodes.encode_state(new))
        return known[1]

    def note(self, slot: int, name: str, partition: int, state: PartitionState, version: int) -> None:
        """Note that a slot is in the epoch after `state`, which the metadata node contains in this version."""
        _, new, data = self._next[id(state)]
        self._changes.append((znodes.state_path(name, partition), data, version))
        self._slots.append((slot, new.leader_epoch))

    def store(self, store: SqliteStore) -> None:
        """Make the epochs durable, while other loaders already open logs; no client is served before that.

        If this process dies or fails, the coordinator stores the missing epochs before it serves.
        """
        try:
            if self._changes:
                store.set_many(self._changes)
            if self.complete:
                note_boot(store)
        except StoreError as error:
            count = len(self._changes)
            log.error(
                "cannot store the new leader epochs of %d partitions: %s; the coordinator stores them before it serves",
                count, error,
            )  # fmt: skip
            return
        slot_life.epochs_stored(self._slots)


def prepare(context: ProcessContext, partitions: LocalPartitions, store: SqliteStore) -> BegunEpochs:
    """Give a slot to every partition of the store that this broker keeps. Returns the leader epochs that must be stored.

    A log may have lost records if it was not closed cleanly and the machine lost its page cache, or if its directory is
    missing. The broker leads such a log in a new leader epoch, by which clients that had read further notice the loss
    (KIP-320).

    :raises StoreError: the store cannot be read or written.
    :raises WrongCluster: the store belongs to another cluster.
    """
    began = time.monotonic()
    ensure_cluster_id(store, context.shm.cluster_id or None)
    show_running(store, context.config, context.running)
    image = load_image(store)
    give_ids(store, image)
    kept_here = {
        topic.name: [p for p, replicas in topic.assignment.partitions.items() if context.config.node_id in replicas]
        for topic in image.topics.values()
    }
    states = load_states(store, kept_here.items())
    directories = find_directories(context)
    report_strays(context, image, directories)
    offline = [index for index in range(len(context.log_dirs)) if context.shm.log_dir_offline(index)]
    begun = BegunEpochs()
    begun.complete = not offline
    cache_lost = may_have_lost_cache(store)
    for name, indexes in kept_here.items():
        topic = image.topics[name]
        for partition in indexes:
            log_dir = directories.get((name, partition))
            if name in image.deleting:
                if log_dir is not None:
                    partitions.discard(topic, partition, log_dir)
            elif (name, partition) in states:  # else the coordinator completes its creation
                state, version = states[name, partition]
                lost = log_dir is None and bool(offline)
                new = state.leader == context.config.node_id and not lost
                new = new and (log_dir is None or (cache_lost and not context.clean[log_dir]))
                slot = partitions.prepare(
                    topic,
                    partition,
                    begun.of(state) if new else state,
                    version + new,
                    offline[0] if lost else log_dir,
                    lost,
                    epoch_unstored=new,
                )
                if new and slot >= 0:
                    begun.note(slot, name, partition, state, version)
    for index in sorted(set(directories.values())):
        if not context.clean[index]:
            log.info("log directory %s was not shut down cleanly: recovering its logs", context.log_dirs[index])
    log.info(
        "found %d topics with %d partitions to load in %.0f ms",
        len(image.topics),
        context.shm.slots_used,
        (time.monotonic() - began) * 1000,
    )
    return begun


def prepare_in_cluster(context: ProcessContext, table: PartitionTable) -> None:
    """Give a slot to every partition directory; the topic ids are those in the directories.

    The metadata store is not read: a broker opens its logs also while ZooKeeper does not answer. It registers later, and leads
    no partition before the controller requests that. Until the coordinator has read the settings of the topics, nothing is
    removed from their logs.
    """
    began = time.monotonic()
    settings = topic_settings(context.config.topic_defaults, context.config.node_id) | KEEP_ALL
    for (name, partition), log_dir in find_directories(context).items():
        if name == CLUSTER_METADATA or table.find(name, partition) >= 0:
            continue
        path = context.log_dirs[log_dir] / partition_directory_name(name, partition)
        try:
            owner = read_partition_metadata(path)
            slot = table.create_remote(name, NO_TOPIC_ID if owner is None else owner.bytes, partition, name in INTERNAL)
            table.begin_local(slot, log_dir, settings)
        except (OSError, CorruptMetadataError, ValueError) as error:
            log.error("cannot open %s, the partition is offline: %s", path, error)
    for index in range(len(context.log_dirs)):
        if not context.shm.log_dir_offline(index) and not context.clean[index]:
            log.info("log directory %s was not shut down cleanly: recovering its logs", context.log_dirs[index])
    took = (time.monotonic() - began) * 1000
    log.info("found %d partitions to load in %.0f ms", context.shm.slots_used, took)


def find_directories(context: ProcessContext) -> dict[TopicPartition, int]:
    """The number of the log directory that contains each partition's directory, by topic and partition."""
    directories: dict[TopicPartition, int] = {}
    for index, path in enumerate(context.log_dirs):
        if context.shm.log_dir_offline(index):
            continue
        for name in _names(context, index, path):
            try:
                parsed = parse_directory_name(name)
            except ForeignNameError as error:
                log.warning("ignoring a directory in %s: %s", path, error)
                continue
            if parsed.fate is None and directories.setdefault((parsed.topic, parsed.partition), index) != index:
                first = context.log_dirs[directories[parsed.topic, parsed.partition]]
                log.error("%s exists in %s and in %s: ignoring the second one; remove one of them", name, first, path)
    return directories


def _names(context: ProcessContext, index: int, path: Path) -> list[str]:
    """The subdirectories. A directory that cannot be read goes offline, and the result is empty."""
    try:
        return list(_subdirectories(path))
    except OSError as error:
        log.error("cannot read log directory %s, it goes offline: %s", path, error.strerror)
        context.shm.set_log_dir_offline(index)
        return []


def _subdirectories(path: Path) -> Iterator[str]:
    with os.scandir(path) as entries:
        yield from (entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))


def report_strays(context: ProcessContext, image: ClusterImage, directories: dict[TopicPartition, int]) -> None:
    """Log a warning for each directory that belongs to no topic of the store. The directories are not changed."""
    strays: Counter[str] = Counter()
    for (name, partition), index in directories.items():
        if name == CLUSTER_METADATA:
            continue  # of Kafka's KRaft controller; kept so that Kafka can open the data again (docs/operate/from-kafka.md)
        topic = image.topics.get(name)
        if topic is None or partition not in topic.assignment.partitions:
            strays[str(context.log_dirs[index] / partition_directory_name(name, partition))] += 1
    for path in sorted(strays):
        log.warning("ignoring %s, which belongs to no topic in the metadata: move it away or delete it", path)


# -- all loaders --------------------------------------------------------------------------------------------------


class Loading:
    """Opens logs until none is left, using the offsets in the checkpoint files."""

    def __init__(self, context: ProcessContext, partitions: LocalPartitions) -> None:
        self._context = context
        self._partitions = partitions
        self._checkpoints = [
            NO_CHECKPOINTS if context.shm.log_dir_offline(index) else checkpoints_to_load_by(path)
            for index, path in enumerate(context.log_dirs)
        ]

    def run(self) -> int:
        """Measure and open logs until none is left. Returns the number of slots that this loader took."""
        count, began = 0, time.monotonic()
        for log_dir in self.directories():
            if not self._context.clean[log_dir]:
                while (slot := loading.take_to_measure(log_dir)) >= 0:
                    self._measure(slot, log_dir)
        for log_dir in self.directories():
            while (slot := loading.take_to_open(log_dir)) >= 0:
                loading.opened(log_dir, self._open(slot))
                self._context.shm.beat()
                count += 1
        self._partitions.end_report()
        logs.report_failures()
        log.info("opened %d partitions in %.0f ms", count, (time.monotonic() - began) * 1000)
        return count

    def directories(self) -> list[int]:
        """The numbers of the log directories in which this loader opens logs: one, or several if there are fewer loaders than
        log directories."""
        directories, loader = len(self._context.log_dirs), self._context.ordinal
        return list(range(loader, directories, self._context.count)) if loader < directories else [loader % directories]

    def _measure(self, slot: int, log_dir: int) -> None:
        """Add the bytes that must be recovered to the directory's count, so that the status can show how much is left."""
        name, partition, *_ = slots.log_of(slot)
        path = self._context.log_dirs[log_dir] / partition_directory_name(name, partition)
        points = self._checkpoints[log_dir].recovery_points, self._checkpoints[log_dir].log_start_offsets
        try:
            size = bytes_to_recover(path, max(offsets.get((name, partition), 0) for offsets in points))
        except OSError as error:
            log.warning("cannot measure how much of %s must be recovered: %s; the status omits it", path, error)
            return
        loading.measured(log_dir, size)

    def _open(self, slot: int) -> int:
        """Open the log in a slot. Returns the number of bytes that had to be truncated."""
        log_dir = slots.log_dir_of(slot)
        clean = bool(self._context.clean[log_dir])
        return self._partitions.open(slot, self._checkpoints[log_dir], clean=clean, at_start=True)
