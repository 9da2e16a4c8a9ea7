"""The shared partition table for the control path: creates, opens, configures, deletes, announces and finds partitions.

One process writes it: the coordinator, or the first loader while the broker starts, which ends before the coordinator starts.
A slot's lock protects the slot against the data path of other processes. If the writer dies halfway, its successor may repeat
every method; the metadata store is the authority on which partitions exist.
"""

import logging
import os
import uuid
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

import odradek._ext.partition.flushing as flushing
import odradek._ext.partition.slot_facts as slot_facts
import odradek._ext.partition.slot_life as slot_life
import odradek._ext.partition.slot_loading as slot_loading
import odradek._ext.partition.slots as slots
import odradek._ext.shm.views as views
from odradek._ext.shm.shared_memory import SharedMemory
from odradek._ext.shm.slot import BegunEpoch, SlotState
from odradek._ext.shm.topics import Topic, TopicDirectory
from odradek._ext.storage.log_dirs import note_error
from odradek._ext.storage.segments import ANY_GAP, LoadedLog, UnsupportedLogError, load_log
from odradek.shm.checkpoints import forget_partitions
from odradek.shm.slot_settings import of_partition
from odradek.storage import file_names
from odradek.storage.atomic_file import NO_ROOM
from odradek.storage.log_directory import write_partition_metadata
from odradek.topic_partition import TopicPartition

log = logging.getLogger("odradek.storage")

NEVER_MS = -(1 << 63)
DROPPED = (
    "dropped the %d least recently used producers of %s: the state of all producers exceeds "
    "odradek.producer.state.max.bytes; a retry of one of these producers may be appended twice. Raise that key"
)


NOT_PUBLISHED = -2
"""The leader in the view of a partition that clients do not see: not published yet, or being deleted."""


class SlotsInUse:
    """The mapping (topic, partition) -> slot, with one array per topic: a dictionary of tuples would take 170 bytes per
    partition."""

    def __init__(self, in_use: Iterable[tuple[str, int, int]]) -> None:
        self._slots: dict[str, array[int]] = {}
        self.count = 0
        for topic, partition, slot in in_use:
            self.put(topic, partition, slot)

    def get(self, topic: str, partition: int) -> int:
        """The slot of a partition; -1 if it has none."""
        numbers = self._slots.get(topic)
        return numbers[partition] if numbers is not None and 0 <= partition < len(numbers) else -1

    def of_topic(self, topic: str) -> list[int]:
        """The slots of a topic's partitions."""
        return [slot for slot in self._slots.get(topic, ()) if slot >= 0]

    def last(self, topic: str) -> int:
        """The slot of a topic's last partition; -1 if it has none."""
        numbers = self._slots.get(topic)
        return numbers[-1] if numbers else -1

    def put(self, topic: str, partition: int, slot: int) -> None:
        """Set the slot of a partition; -1 removes the partition."""
        numbers = self._slots.setdefault(topic, array("i"))
        if partition >= len(numbers):
            numbers.extend([-1] * (partition + 1 - len(numbers)))
        self.count += (slot >= 0) - (numbers[partition] >= 0)
        numbers[partition] = slot
        while numbers and numbers[-1] < 0:
            numbers.pop()
        if not numbers:
            del self._slots[topic]


class PartitionTable:
    """The partition table as one process sees it.

    :param log_dirs: paths of the log directories, in the order in which the supervisor added them to the shared memory.
    :param writes: whether the user of this object is the only writer of the table. Other users find announced partitions only.
    """

    def __init__(self, shm: SharedMemory, log_dirs: Sequence[str | os.PathLike[str]], *, writes: bool = True) -> None:
        self.shm = shm
        self.log_dirs = [Path(path) for path in log_dirs]
        self.directory = TopicDirectory()
        self._slots: SlotsInUse | None = None
        self._writes = writes

    def create(
        self,
        topic: str,
        topic_id: bytes,
        partition: int,
        *,
        log_dir: int,
        replicas: Sequence[int],
        in_sync: Sequence[int],
        leader_id: int,
        leader_epoch: int,
        partition_epoch: int,
        settings: Mapping[str, int],
        internal: bool = False,
        epoch_unstored: bool = False,
    ) -> int:
        """Give a slot (in state LOADING) to a partition. Returns the slot. Raises ValueError if no slot is free.

        :param epoch_unstored: the metadata store does not have this leader epoch yet.
        """
        slot = slot_life.allocate(
            topic,
            topic_id,
            partition,
            log_dir=log_dir,
            replicas=replicas,
            in_sync=in_sync,
            leader_id=leader_id,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            settings=of_partition(settings, partition),
            internal=internal,
            epoch_unstored=epoch_unstored,
        )
        self._in_use().put(topic, partition, slot)
        return slot

    # -- slots in a cluster ---------------------------------------------------------------------------------------

    def create_remote(self, topic: str, topic_id: bytes, partition: int, internal: bool = False) -> int:
        """Give a slot to a partition that has no log here. Returns the slot. Raises ValueError if no slot is free."""
        slot = slot_life.allocate_remote(topic, topic_id, partition, internal=internal)
        views.publish_view(slot, leader_id=NOT_PUBLISHED, leader_epoch=-1, partition_epoch=-1, replicas=(), in_sync=())
        self._in_use().put(topic, partition, slot)
        return slot

    def begin_local(self, slot: int, log_dir: int, settings: Mapping[str, int]) -> None:
        """Set a REMOTE slot LOADING, because this broker gets a log of the partition.

        :param log_dir: the number of the log directory that has, or gets, the partition's directory.
        """
        slot_life.begin_local(slot, log_dir, of_partition(settings, slots.partition_of(slot)))

    def retire(self, slot: int) -> None:
        """Delete the log of a partition: rename its directory, which the cleaner removes later. The slot is REMOTE afterwards.
        Raises OSError."""
        state = slot_facts.describe(slot)
        marked = file_names.marked_directory_name(state.topic, state.partition, "delete")
        slot_life.go_remote(slot, state.incarnation, os.fsencode(marked))

    def set_aside(self, slot: int) -> Path | None:
        """Take the log of a former topic out of service and rename its directory, which stays until an operator deletes it. The
        slot is REMOTE afterwards. May be repeated. Returns the new path; None if the directory keeps its name, because its log
        directory cannot be written: the log that is opened under this name later renames it."""
        state = slot_facts.describe(slot)
        marked = file_names.marked_directory_name(state.topic, state.partition, file_names.STRAY)
        log_dir = slots.log_dir_of(slot)
        if not self.shm.log_dir_offline(log_dir):
            try:
                slot_life.go_remote(slot, state.incarnation, os.fsencode(marked))
            except OSError as error:
                log.error("cannot rename %s to %s: %s; it keeps its name", self.path(slot), marked, error)
            else:
                return self.log_dirs[log_dir] / marked
        slot_life.go_remote(slot, state.incarnation, None)
        return None

    def drop_remote(self, slot: int) -> None:
        """Free the slot of a partition without a log here, because the partition was deleted."""
        topic, partition, *_ = slots.log_of(slot)
        slot_life.drop_remote(slot)
        self._in_use().put(topic, partition, -1)

    def _in_use(self) -> SlotsInUse:
        """All partitions in the table, announced or not. This process keeps the mapping up to date, as the table's only
        writer."""
        if self._slots is None:
            self._slots = SlotsInUse(slots.in_use())
        return self._slots

    def slots_of(self, topic: str) -> list[int]:
        """The slots of a topic's partitions, announced or not."""
        return self._in_use().of_topic(topic)

    def last_slot(self, topic: str) -> int:
        """The slot of the topic's last partition, announced or not; -1 if it has none."""
        return self._in_use().last(topic)

    def room(self) -> int:
        """The number of free slots."""
        return self.shm.max_slots - self._in_use().count

    def path(self, slot: int) -> Path:
        """The partition's directory."""
        topic, partition, _, log_dir = slots.log_of(slot)
        return self.log_dirs[log_dir] / file_names.partition_directory_name(topic, partition)

    def open(
        self,
        slot: int,
        *,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        cleaner_offset: int | None = -1,
        clean: bool = True,
        producers_before_ms: int | None = None,
        at_start: bool = False,
        is_made: bool = False,
        begin_epoch: Callable[[int], None] | None = None,
        high_watermark: int = 0,
    ) -> LoadedLog | None:
        """Create or load the partition's log and set the slot ONLINE. Returns None if the slot was ONLINE already, or is
        DELETED.

        :param log_start_offset: from the log-start-offset checkpoint; 0 without an entry.
        :param recovery_point: from the recovery-point checkpoint; 0 without an entry.
        :param cleaner_offset: from the cleaner checkpoint; -1 without an entry; None if it is unknown which logs were
            compacted.
        :param clean: whether the log directory was shut down cleanly.
        :param producers_before_ms: producers of a snapshot that have sent nothing since this time (wall clock) have expired;
            None keeps all.
        :param at_start: whether the broker starts: the recovered bytes are counted in the shared header, and if the memory for
            producers is short, partitions with more producers than this one lose some.
        :param is_made: whether its directory is known to exist, with the topic's id in it.
        :param begin_epoch: called before the log is served, if it must be led in a new leader epoch because it lost records or
            contains batches of a newer epoch than the slot's. It makes the given epoch durable and puts it into the slot. Its
            exceptions are raised here, and the slot stays LOADING. None: no client is served yet, and the slot gets the epoch
            marked EPOCH_UNSTORED.
        :param high_watermark: from the replication-offset checkpoint; 0 without an entry. Used in a cluster.
        :raises OSError: the log cannot be read or written, or has a format that this broker does not open. The slot is OFFLINE
            then, or still LOADING if only disk space was missing.
        """
        if slots.state_of(slot) in (SlotState.SLOT_ONLINE, SlotState.SLOT_DELETED):
            return None
        topic, partition, topic_id, log_dir = slots.log_of(slot)
        path = f"{self.log_dirs[log_dir]}/{file_names.partition_directory_name(topic, partition)}"
        try:
            if not is_made:
                directory = Path(path)
                directory.mkdir(exist_ok=True)
                if not (directory / file_names.PARTITION_METADATA).exists():
                    write_partition_metadata(directory, uuid.UUID(bytes=topic_id))
            progress_dir = log_dir if at_start else -1
            cleaner_offset = ANY_GAP if cleaner_offset is None else cleaner_offset
            loaded = load_log(
                path,
                log_start_offset,
                recovery_point,
                clean,
                cleaner_offset=cleaner_offset,
                progress_dir=progress_dir,
                producer_limit=self.shm.producer_limit,
            )
            before_ms = NEVER_MS if producers_before_ms is None else producers_before_ms
            shortened = loaded.shortened
            lost = shortened or loaded.lost_bytes > 0
            flushed = clean and not shortened
            if begin_epoch is not None and (epoch := _epoch_to_begin(slot, loaded, lost)) is not None:
                begin_epoch(epoch)
            for place, dropped in slot_loading.fill(
                slot, loaded, flushed, before_ms, at_start, lost=lost, high_watermark=high_watermark
            ):
                log.error(DROPPED, dropped, place)
            if slots.awaits_flush(slot):
                _sync(slot, path)
        except OSError as error:
            note_error(log_dir, error.errno or 0)
            if error.errno not in NO_ROOM:
                slot_life.set_offline(slot)
            raise
        except UnsupportedLogError as error:
            slot_life.set_offline(slot)
            raise OSError(str(error)) from error
        return loaded

    def configure(self, slot: int, settings: Mapping[str, int]) -> None:
        """Apply the settings of a topic's new configuration, immediately and for all processes."""
        slot_life.configure(slot, of_partition(settings, slots.partition_of(slot)))

    def delete(self, slot: int) -> None:
        """Take a partition out of service and rename its directory, which the cleaner removes later."""
        state = slot_facts.describe(slot)
        if state.state in (SlotState.SLOT_FREE, SlotState.SLOT_DELETED):
            return
        slot_life.delete(slot, os.fsencode(file_names.marked_directory_name(state.topic, state.partition, "delete")))
        self._in_use().put(state.topic, state.partition, -1)

    def forget(self, deleted: Collection[TopicPartition]) -> None:
        """Remove the lines of deleted partitions from the checkpoints of all log directories. Raises OSError."""
        forget_partitions(self.shm, self.log_dirs, deleted)

    def announce(self, changed: Iterable[int]) -> int:
        """Publish the changes of these slots to every process. Returns the metadata version that contains them."""
        return slot_life.announce(list(changed))

    def topics(self) -> dict[bytes, Topic]:
        """All announced topics, by name."""
        self.directory.refresh()
        return self.directory.by_name

    def find(self, topic: str, partition: int) -> int:
        """The slot of a partition, announced or not; -1 if it has none."""
        if not self._writes:
            self.directory.refresh()
            known = self.directory.get(topic)
            return -1 if known is None else int(known.slot(partition))
        return self._in_use().get(topic, partition)


def _epoch_to_begin(slot: int, loaded: LoadedLog, lost: bool) -> int | None:
    """The leader epoch that must begin before a loaded log is served; None if the slot's epoch may be used.

    A log that was open before has lost records if it ends before its last commit. The slot still contains this commit after an
    attempt that truncated the log and failed.
    """
    state = slot_facts.describe(slot)
    current: int = state.leader_epoch
    newest: int = loaded.epochs[-1][0] if loaded.epochs else -1
    if newest > current:
        return newest + 1
    lost = lost or loaded.log_end_offset < state.log_end_offset
    return current + 1 if lost and state.begun_epoch == BegunEpoch.EPOCH_KEPT else None


def _sync(slot: int, path: str) -> None:
    """Sync recovered records if flush.messages requires that consumers read only synced records; the high watermark follows.

    If this fails, the cleaner repeats it, unless the device failed.
    """
    try:
        flushing.flush(slot, True)
    except OSError as error:
        log.error(
            "cannot sync %s: %s; consumers do not receive its unsynced records until a sync succeeds", path, error
        )
