"""The partitions of this broker: applies the metadata to the slots of the shared table and to the log directories.

Runs in the coordinator's store thread, and before that in the first loader. The lock of each slot protects it against
the workers. The table has one writer, because there is one coordinator. All functions can be repeated: the successor of a
coordinator that died in the middle of a change calls them again, and they complete the change.
"""

import logging
import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import odradek._ext.partition.slot_facts as slot_facts
import odradek._ext.partition.slot_life as slot_life
import odradek._ext.partition.slots as slots
from odradek._ext.shm.layout import DiskState
from odradek._ext.shm.slot import BegunEpoch, SlotState, ThrottledSide
from odradek.clock import now_ms
from odradek.codecs import COMPRESSION_TYPES
from odradek.config.broker_config import BrokerConfig
from odradek.config.errors import ConfigError
from odradek.config.key import Value
from odradek.config.table import TOPIC_KEYS
from odradek.controller.image import Topic
from odradek.controller.opening_report import OpeningReport
from odradek.controller.topic_names import INTERNAL
from odradek.metadata.znodes import NO_LEADER, PartitionState
from odradek.shm.checkpoints import Checkpoints, checkpoints_to_load_by
from odradek.shm.partition_names import partition_name
from odradek.shm.partition_table import PartitionTable
from odradek.shm.slot_settings import SlotSettings, throttled_partitions
from odradek.storage.atomic_file import NO_ROOM
from odradek.storage.file_names import PARTITION_METADATA, STRAY, marked_directory_name, partition_directory_name
from odradek.storage.log_directory import CorruptMetadataError, encode_uuid, read_partition_metadata
from odradek.topic_partition import TopicPartition

log = logging.getLogger("odradek.controller")

BeginEpoch = Callable[[str, int, int, int], None]
"""(topic, partition, slot, leader epoch): stores the epoch and writes it to the slot. Called before clients are served from a
log that needs a new leader epoch."""

NO_CHECKPOINTS = Checkpoints({}, {}, {})

_NUMBERS = {
    "segment_bytes": "segment.bytes",
    "segment_ms": "segment.ms",
    "segment_jitter_ms": "segment.jitter.ms",
    "retention_ms": "retention.ms",
    "retention_bytes": "retention.bytes",
    "flush_messages": "flush.messages",
    "flush_ms": "flush.ms",
    "file_delete_delay_ms": "file.delete.delay.ms",
    "delete_retention_ms": "delete.retention.ms",
    "min_compaction_lag_ms": "min.compaction.lag.ms",
    "max_compaction_lag_ms": "max.compaction.lag.ms",
    "index_interval_bytes": "index.interval.bytes",
    "index_max_bytes": "segment.index.bytes",
    "max_message_bytes": "max.message.bytes",
    "min_in_sync_replicas": "min.insync.replicas",
}

_BOUNDS = {
    "timestamp_before_max_ms": "message.timestamp.before.max.ms",
    "timestamp_after_max_ms": "message.timestamp.after.max.ms",
}

_THROTTLED = {
    ThrottledSide.THROTTLED_LEADER: "leader.replication.throttled.replicas",
    ThrottledSide.THROTTLED_FOLLOWER: "follower.replication.throttled.replicas",
}


class KeptTopic(NamedTuple):
    """A topic in the shared table: its partitions that are open or offline (settled), and those that are not open yet."""

    topic_id: bytes
    settled: list[int]
    unsettled: list[int]


class NoLogDirectory(Exception):
    """No log directory is online, so a partition cannot be created."""


def owner_of(directory: str, topic_id: bytes) -> bytes | None:
    """The id of the topic to which a partition directory belongs; None if it does not exist or contains no topic id.

    Compares bytes before it parses the file, because a start reads thousands of them. Raises CorruptMetadataError, OSError.
    """
    try:
        descriptor = os.open(f"{directory}/{PARTITION_METADATA}", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        content = os.read(descriptor, 4096)
    finally:
        os.close(descriptor)
    if content.endswith(_as_written(topic_id)):
        return topic_id
    owner = read_partition_metadata(directory)
    return None if owner is None else owner.bytes


@lru_cache(maxsize=1)  # callers handle the partitions of a topic one after the other
def _as_written(topic_id: bytes) -> bytes:
    return f" {encode_uuid(uuid.UUID(bytes=topic_id))}".encode()


def _entries(path: str) -> int:
    try:
        with os.scandir(path) as entries:
            return sum(entry.is_dir() for entry in entries)
    except OSError as error:
        log.warning("cannot count the partitions in %s: %s", path, error)
        return 0


def topic_settings(effective: Mapping[str, Value], broker_id: int) -> SlotSettings:
    """The fields of the TopicSettings of a topic's slots.

    :param effective: all values of the topic (`BrokerConfig.topic_config`). :param broker_id: of this broker.
    """
    settings = {name: int(str(effective[key])) for name, key in _NUMBERS.items()}
    policies = effective["cleanup.policy"]
    assert isinstance(policies, tuple)
    settings["log_append_time"] = int(effective["message.timestamp.type"] == "LogAppendTime")
    settings["compact"] = int("compact" in policies)
    settings["delete_"] = int("delete" in policies)
    settings["compression"] = COMPRESSION_TYPES[str(effective["compression.type"])]
    settings["min_cleanable_dirty_millionths"] = round(float(str(effective["min.cleanable.dirty.ratio"])) * 1_000_000)
    settings["compression_level"] = int(str(effective.get(f"compression.{effective['compression.type']}.level", 0)))
    settings.update(_timestamp_bounds(effective))
    settings["no_down_conversion"] = int(not effective["message.downconversion.enable"])
    settings["exact_retention"] = int(bool(effective["odradek.retention.exact"]))
    settings["unclean_election"] = int(bool(effective["unclean.leader.election.enable"]))
    throttled = {}
    for side, key in _THROTTLED.items():
        replicas = effective[key]
        assert isinstance(replicas, tuple)
        throttled[side] = throttled_partitions(replicas, broker_id)
    return SlotSettings(settings, throttled)


def _timestamp_bounds(effective: Mapping[str, Value]) -> dict[str, int]:
    """The limits of timestamps. ``message.timestamp.difference.max.ms`` applies if the keys that replace it have their
    defaults, as in Kafka 3.9."""
    bounds = {name: int(str(effective[key])) for name, key in _BOUNDS.items()}
    difference = int(str(effective["message.timestamp.difference.max.ms"]))
    if difference != TOPIC_KEYS["message.timestamp.difference.max.ms"].default:
        for name, key in _BOUNDS.items():
            if bounds[name] == TOPIC_KEYS[key].default:
                bounds[name] = difference
    return bounds


class LocalPartitions:
    """The partitions of this broker in the shared table.

    :param table: the PartitionTable of this process.
    :param log_dir_online: whether the log directory with an index in ``log.dirs`` is online.
    """

    def __init__(
        self, table: PartitionTable, config: BrokerConfig, broker_id: int, log_dir_online: Callable[[int], bool]
    ) -> None:
        self._table = table
        self._config = config
        self._broker_id = broker_id
        self._log_dir_online = log_dir_online
        self._last_settings: tuple[Topic, SlotSettings] | None = None  # of the last topic
        self._report = OpeningReport(config.clustered)
        self._directories: list[int] | None = None  # subdirectories of each log directory, counted on first use

    def settings_of(self, topic: Topic) -> SlotSettings:
        """The settings of a topic for its slots. If a stored value is invalid, logs an error and returns the defaults."""
        if self._last_settings is None or self._last_settings[0] is not topic:
            try:
                settings = topic_settings(self._config.topic_config(topic.config), self._broker_id)
            except ConfigError as error:
                log.error(
                    "topic %s uses the defaults of the broker, because one of its settings is invalid: %s",
                    topic.name,
                    error,
                )
                settings = topic_settings(self._config.topic_defaults, self._broker_id)
            self._last_settings = (topic, settings)
        return self._last_settings[1]

    def forget_settings(self) -> None:
        """Clear the cache of `settings_of` after a change of the broker's defaults."""
        self._last_settings = None

    def emptiest(self) -> int:
        """The online log directory with the fewest partitions; a full one only if all are full. Raises NoLogDirectory."""
        online = [index for index in range(len(self._config.log_dirs)) if self._log_dir_online(index)]
        if not online:
            raise NoLogDirectory("all log directories are offline")
        shm = self._table.shm
        online = [index for index in online if shm.disk(index)[0] != DiskState.DISK_FULL] or online
        if self._directories is None:
            self._directories = [_entries(path) for path in self._config.log_dirs]
        chosen = min(online, key=self._directories.__getitem__)
        self._directories[chosen] += 1
        return chosen

    def create(
        self,
        topic: Topic,
        partition: int,
        state: PartitionState,
        partition_epoch: int,
        log_dir: int | None = None,
        epoch_unstored: bool = False,
    ) -> int:
        """Create the slot of a partition, not yet open; return the slot.

        :param log_dir: index of the directory with its files; None for the directory with the fewest partitions.
        :param epoch_unstored: the state is newer than that in the metadata store.
        """
        chosen = self.emptiest() if log_dir is None else log_dir
        assert topic.topic_id is not None
        return self._table.create(
            topic.name,
            topic.topic_id.bytes,
            partition,
            log_dir=chosen,
            replicas=topic.assignment.partitions[partition],
            in_sync=state.in_sync_replicas,
            leader_id=state.leader,
            leader_epoch=state.leader_epoch,
            partition_epoch=partition_epoch,
            settings=self.settings_of(topic),
            internal=topic.name in INTERNAL,
            epoch_unstored=epoch_unstored,
        )

    def kept(self) -> dict[str, KeptTopic]:
        """All partitions in the table, announced or not, by topic name. Reads every slot."""
        topics: dict[str, KeptTopic] = {}
        for name, partition, slot in slots.in_use():
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = KeptTopic(bytes(slot_facts.describe(slot).topic_id), [], [])
            settled = slots.state_of(slot) != SlotState.SLOT_LOADING
            (topic.settled if settled else topic.unsettled).append(partition)
        return topics

    def room(self) -> int:
        """The number of partitions that this broker can still hold."""
        return self._table.room()

    def configure(self, topic: Topic) -> None:
        """Write the settings of a topic to the slots of its partitions, where all processes read them."""
        settings = self.settings_of(topic)
        for partition in topic.assignment.partitions:
            slot = self._table.find(topic.name, partition)
            if slot >= 0:
                self._table.configure(slot, settings)

    def ensure(
        self, topic: Topic, states: Mapping[int, tuple[PartitionState, int]], begin_epoch: BeginEpoch
    ) -> list[int]:
        """Create and open the partitions in `states` that this broker keeps and that are missing; return their slots.

        If the directory of a partition cannot be created, an error is logged and the partition is offline, but the topic
        exists. Raises the exceptions of `begin_epoch`.
        """
        opened = []
        known: dict[int, Checkpoints] = {}
        for partition, (state, partition_epoch) in states.items():
            if self._broker_id not in topic.assignment.partitions[partition]:
                continue
            slot = self._table.find(topic.name, partition)
            try:
                if slot < 0:
                    slot = self.create(topic, partition, state, partition_epoch)
            except (ValueError, NoLogDirectory) as error:
                log.error("cannot create partition %s-%d, it is offline: %s", topic.name, partition, error)
                continue
            # A predecessor that died, or a loader, may have created the directory: it is then recovered.
            self._open_existing(slot, known, begin_epoch)
            opened.append(slot)
        self.end_report()
        return opened

    def open_one(self, slot: int) -> None:
        """Open the log of a LOADING slot in a cluster, with recovery if its directory exists. Its leader epoch comes from the
        controller."""
        self._open_existing(slot, {}, None)

    def count_deleted(self, log_dir: int) -> None:
        """Note that a partition in a log directory was deleted. :param log_dir: its number."""
        if self._directories is not None:
            self._directories[log_dir] -= 1

    def _open_existing(self, slot: int, known: dict[int, Checkpoints], begin_epoch: BeginEpoch | None) -> None:
        """Open the log of a slot while the broker serves clients, with recovery if its directory exists."""
        if not self._table.path(slot).exists():
            self.open(slot, clean=True, begin_epoch=begin_epoch)
            return
        state = slot_facts.describe(slot)
        checkpoints, key = self._checkpoints(known, state.log_dir), (state.topic, state.partition)
        point, start = checkpoints.recovery_points.get(key, 0), checkpoints.log_start_offsets.get(key, 0)
        if state.log_end_offset > 0:  # it was open before, and the device may have less than the checkpoint says
            point = min(point, max(state.flushed_offset, 0))
        start = max(state.log_start_offset, start)
        checkpoints = Checkpoints({key: point}, {key: start}, checkpoints.cleaner_offsets, checkpoints.high_watermarks)
        self.open(slot, checkpoints, clean=False, begin_epoch=begin_epoch)

    def _checkpoints(self, known: dict[int, Checkpoints], log_dir: int) -> Checkpoints:
        """The checkpoints of a log directory, read once and then cached in `known`."""
        if log_dir not in known:
            known[log_dir] = checkpoints_to_load_by(self._table.log_dirs[log_dir])
        return known[log_dir]

    def open(
        self,
        slot: int,
        checkpoints: Checkpoints = NO_CHECKPOINTS,
        *,
        clean: bool,
        at_start: bool = False,
        begin_epoch: BeginEpoch | None = None,
    ) -> int:
        """Create or load the log of a LOADING slot. If that fails, an error is logged, and the slot becomes OFFLINE, or stays
        LOADING if the disk has no space.

        Returns the number of bytes that were cut off the log; warnings name them (`end_report` must follow). An existing
        directory that belongs to a former topic of the same name is renamed, as in Kafka, and the checkpoints of that topic are
        ignored.

        :param checkpoints: those of the log directory. :param clean: whether the log directory was shut down cleanly.
        :param begin_epoch: see `BeginEpoch`; None while the broker starts. Its exceptions are raised here.
        """
        if slots.state_of(slot) != SlotState.SLOT_LOADING:
            return 0
        topic, partition, topic_id, log_dir = slots.log_of(slot)
        path = f"{self._table.log_dirs[log_dir]}/{partition_directory_name(topic, partition)}"
        key = (topic, partition)
        cleaned = checkpoints.cleaner_offsets
        try:
            owner = owner_of(path, topic_id)
            if owner not in (topic_id, None):
                self._set_aside(path, topic, partition)
                checkpoints, cleaned = NO_CHECKPOINTS, {}
            loaded = self._table.open(
                slot,
                log_start_offset=checkpoints.log_start_offsets.get(key, 0),
                recovery_point=checkpoints.recovery_points.get(key, 0),
                cleaner_offset=None if cleaned is None else cleaned.get(key, -1),
                clean=clean,
                producers_before_ms=now_ms() - self._config.integer("producer.id.expiration.ms"),
                at_start=at_start,
                is_made=owner == topic_id,
                high_watermark=checkpoints.high_watermarks.get(key, 0),
                begin_epoch=None if begin_epoch is None else partial(begin_epoch, topic, partition, slot),
            )
        except (OSError, CorruptMetadataError) as error:
            if isinstance(error, OSError) and error.errno in NO_ROOM:
                log.error("cannot open %s: %s; opening it when the disk has space", path, error)
                return 0
            log.error("cannot open %s, the partition is offline: %s", path, error)
            slot_life.set_offline(slot)
            return 0
        if loaded is None or not loaded.events:
            return 0
        self._report.note(path, topic, loaded.events, int(loaded.lost_bytes))
        return int(loaded.lost_bytes)

    def end_report(self) -> None:
        """Summarise the repairs of the logs that were opened since the last call: the first of them were logged one by one."""
        self._report.finish()

    def to_open(self) -> list[tuple[str, int, int]]:
        """(topic, partition, slot) of the logs that wait for disk space and whose disk has space now."""
        shm = self._table.shm
        disks = [shm.disk(index) for index in range(shm.log_dir_count)]
        if not any(times for *_, times in disks):
            return []
        waiting = [(*slots.log_of(slot), slot) for slot in slot_life.waiting_for_room()]
        return [
            (topic, partition, slot)
            for topic, partition, _, log_dir, slot in waiting
            if disks[log_dir][0] != DiskState.DISK_FULL
        ]

    def with_slots(self, topic: str, partitions: Iterable[int]) -> list[tuple[str, int, int]]:
        """(topic, partition, slot) of the partitions of a topic that have a slot."""
        entries = [(topic, partition, self._table.find(topic, partition)) for partition in partitions]
        return [entry for entry in entries if entry[2] >= 0]

    def epochs_not_begun(self, waiting: Iterable[tuple[str, int, int]]) -> dict[TopicPartition, tuple[int, int]]:
        """{(topic, partition): (slot, leader epoch)} of the logs that may have lost records, and in whose leader epoch clients
        may have been served. It excludes logs without a directory, which were never written to.

        :param waiting: (topic, partition, slot).
        """
        epochs = {}
        for topic, partition, slot in waiting:
            state = slot_facts.describe(slot)
            if state.begun_epoch == BegunEpoch.EPOCH_KEPT and self._table.path(slot).exists():
                epochs[topic, partition] = (slot, int(state.leader_epoch))
        return epochs

    def open_waiting(self, waiting: Iterable[tuple[str, int, int]], begin_epoch: BeginEpoch) -> None:
        """Open logs that waited for disk space, with recovery.

        :param waiting: (topic, partition, slot). :param begin_epoch: see `BeginEpoch`; its exceptions are raised here.
        """
        known: dict[int, Checkpoints] = {}
        for _, _, slot in waiting:
            self._open_existing(slot, known, begin_epoch)
        self.end_report()

    def _set_aside(self, path: str, topic: str, partition: int) -> None:
        aside = Path(path).with_name(marked_directory_name(topic, partition, STRAY))
        log.warning("%s belongs to a former topic of the same name; renaming it to %s", path, aside.name)
        Path(path).rename(aside)

    # -- at start-up ----------------------------------------------------------------------------------------------

    def prepare(
        self,
        topic: Topic,
        partition: int,
        state: PartitionState,
        partition_epoch: int,
        log_dir: int | None,
        lost: bool = False,
        epoch_unstored: bool = False,
    ) -> int:
        """Create the slot of a partition, which any loader opens, unless it exists; return the slot, or -1 if that fails.

        :param log_dir: index of the log directory with its files; None if no directory has them: the log is empty.
        :param lost: the files may be in an offline log directory, so the partition is offline.
        :param epoch_unstored: the state is newer than that in the metadata store.
        """
        slot = self._table.find(topic.name, partition)
        if slot >= 0:
            return slot
        try:
            slot = self.create(topic, partition, state, partition_epoch, log_dir, epoch_unstored)
        except (ValueError, NoLogDirectory) as error:
            log.error("cannot create partition %s-%d, it is offline: %s", topic.name, partition, error)
            return -1
        if lost:
            slot_life.set_offline(slot)
        return slot

    def discard(self, topic: Topic, partition: int, log_dir: int) -> None:
        """Finish the deletion of a partition that began before the broker stopped: rename its directory.

        The coordinator removes its lines from the checkpoints before the topic name can be used again.
        """
        if self._table.find(topic.name, partition) < 0:
            self.create(topic, partition, PartitionState(0, NO_LEADER, 0, []), 0, log_dir)
        self._delete_slots(topic.name, [partition])

    def delete(self, topics: Mapping[str, Iterable[int]]) -> list[int]:
        """Stop serving the partitions of these topics and rename their directories; return the slots."""
        return [slot for name, partitions in topics.items() for slot in self._delete_slots(name, partitions)]

    def forget(self, topics: Mapping[str, Iterable[int]]) -> None:
        """Remove the partitions of deleted topics from all checkpoints, so that their lines are not used for a later topic of
        the same name.

        :raises OSError: a checkpoint could not be written, such as on a full disk: the topic names cannot be used again yet.
        """
        self._table.forget({(name, partition) for name, partitions in topics.items() for partition in partitions})

    def _delete_slots(self, name: str, partitions: Iterable[int]) -> list[int]:
        topic_slots = [slot for partition in partitions if (slot := self._table.find(name, partition)) >= 0]
        for slot in topic_slots:
            try:
                self._table.delete(slot)
                self.count_deleted(slots.log_dir_of(slot))
            except OSError as error:
                log.error(
                    "cannot delete partition %s until its log directory can be written: %s", partition_name(slot), error
                )
        return topic_slots

    # -- leader epochs that this start began --------------------------------------------------------------------------

    def unstored_epochs(self) -> dict[TopicPartition, tuple[int, int]]:
        """{(topic, partition): (slot, leader epoch)} of slots whose epoch is, or may be, newer than the stored one."""
        return {(topic, partition): (slot, epoch) for slot, topic, partition, epoch in slot_life.unstored_epochs()}

    def mark_epoch(self, slot: int, leader_epoch: int) -> None:
        """Set the new leader epoch of a LOADING slot, which is not in the metadata store yet."""
        slot_life.mark_epoch(slot, leader_epoch)

    def put_epoch(self, topic: str, partition: int, leader_epoch: int, partition_epoch: int) -> None:
        """Set the stored leader epoch of a partition. :param partition_epoch: the version of the state node."""
        slot = self._table.find(topic, partition)
        if slot >= 0:
            slot_life.put_epoch(slot, leader_epoch, partition_epoch)

    def announce(self, changed: Iterable[int]) -> int:
        """Notify all processes of created, changed or deleted slots; return the metadata version that they must reach."""
        return self._table.announce(changed)

    def announce_all(self) -> int:
        """`announce` every slot that was ever used: a predecessor may have died before it announced its last changes."""
        return self._table.announce(range(self._table.shm.slots_used))
