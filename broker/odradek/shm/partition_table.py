"""The shared partition table as the control path uses it: create, open, configure, delete, announce, find.

One process writes it: the coordinator (the first loader while the broker starts, which has ended by then). A slot's own lock
protects it against the data path of the other processes. Every verb may be repeated by a successor of a writer that died half
way; the truth of which partitions there are is in the metadata store.
"""

import logging
import os
import uuid
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

import odradek._ext.partition.flushing as flushing
import odradek._ext.partition.slot_life as slot_life
import odradek._ext.partition.slots as slots
from odradek._ext.shm.layout import BegunEpoch, SlotState
from odradek._ext.shm.shared_memory import SharedMemory
from odradek._ext.shm.topics import Topic, TopicDirectory
from odradek._ext.storage.log_dirs import note_error
from odradek._ext.storage.segments import ANY_GAP, LoadedLog, UnsupportedLogError, load_log
from odradek.shm.checkpoints import forget_partitions
from odradek.storage import file_names
from odradek.storage.atomic_file import NO_ROOM
from odradek.storage.log_directory import write_partition_metadata

log = logging.getLogger("odradek.storage")

NEVER_MS = -(1 << 63)
DROPPED = (
    "dropped the %d least recently used producers of %s: the state of all producers exceeds "
    "odradek.producer.state.max.bytes; a retry of one of these producers may be appended twice. Raise that key"
)


class SlotsInUse:
    """(topic, partition) -> slot: an array a topic, because a dictionary of tuples takes 170 bytes a partition."""

    def __init__(self, in_use: Iterable[tuple[str, int, int]]) -> None:
        self._slots: dict[str, array[int]] = {}
        self.count = 0
        for topic, partition, slot in in_use:
            self.put(topic, partition, slot)

    def get(self, topic: str, partition: int) -> int:
        """-1 if there is none."""
        found = self._slots.get(topic)
        return found[partition] if found is not None and 0 <= partition < len(found) else -1

    def put(self, topic: str, partition: int, slot: int) -> None:
        """Note a slot; -1 forgets what is noted of the partition."""
        found = self._slots.setdefault(topic, array("i"))
        if partition >= len(found):
            found.extend([-1] * (partition + 1 - len(found)))
        self.count += (slot >= 0) - (found[partition] >= 0)
        found[partition] = slot
        while found and found[-1] < 0:
            found.pop()
        if not found:
            del self._slots[topic]


class PartitionTable:
    """:param log_dirs: paths of the log directories, in the order in which the supervisor announced them."""

    def __init__(self, shm: SharedMemory, log_dirs: Sequence[str | os.PathLike[str]]) -> None:
        self.shm = shm
        self.log_dirs = [Path(path) for path in log_dirs]
        self.directory = TopicDirectory()
        self._slots: SlotsInUse | None = None

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
        """Give a slot (state LOADING) to a partition; the slot. Raises ValueError when none is free.

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
            settings=settings,
            internal=internal,
            epoch_unstored=epoch_unstored,
        )
        self._in_use().put(topic, partition, slot)
        return slot

    def _in_use(self) -> SlotsInUse:
        """All partitions in the table, announced or not; kept up to date by this process, the table's one writer."""
        if self._slots is None:
            self._slots = SlotsInUse(slots.in_use())
        return self._slots

    def room(self) -> int:
        """How many partitions more the table can hold."""
        return self.shm.max_slots - self._in_use().count

    def path(self, slot: int) -> Path:
        """The partition's directory."""
        topic, partition, _, log_dir = slots.log_of(slot)
        return self.log_dirs[log_dir] / f"{topic}-{partition}"

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
    ) -> LoadedLog | None:
        """Make or load the partition's log and put the slot ONLINE; None if it was open already.

        :param log_start_offset: from the log-start-offset checkpoint, 0 without entry.
        :param recovery_point: from the recovery-point checkpoint, 0 without entry.
        :param cleaner_offset: from the cleaner's checkpoint, -1 without entry; None: it is not known which logs were compacted.
        :param clean: whether the log directory was closed in order.
        :param producers_before_ms: producers of a snapshot of which the broker has not heard since then (wall clock) have
            expired; None keeps all.
        :param at_start: whether the broker starts: the bytes recovered are counted in the shared header, and if the memory for
            producers is short, partitions that have more of them than this one lose some.
        :param is_made: its directory is known to be there, with the topic's id in it.
        :param begin_epoch: called before the log is served, if it must be led in a new leader epoch because it lost records or
            contains batches of a newer epoch than the slot's. It makes the given epoch durable and puts it into the slot. What
            it raises is raised here, and the slot stays LOADING. None: nobody is served yet, and the slot gets the epoch
            marked EPOCH_UNSTORED.
        :raises OSError: the log cannot be read or written, or holds what this broker does not open; the slot is
            OFFLINE then, or still LOADING if only room on its disk was missing.
        """
        if slots.state_of(slot) in (SlotState.SLOT_ONLINE, SlotState.SLOT_DELETED):
            return None
        topic, partition, topic_id, log_dir = slots.log_of(slot)
        path = f"{self.log_dirs[log_dir]}/{topic}-{partition}"
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
            for place, dropped in slot_life.fill(slot, loaded, flushed, before_ms, at_start, lost=lost):
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
        """Take over settings of a topic's new configuration, at once and in all processes."""
        slot_life.configure(slot, settings)

    def delete(self, slot: int) -> None:
        """Take a partition out of service; its directory is renamed, the cleaner removes it later."""
        state = slots.describe(slot)
        if state["state"] in (SlotState.SLOT_FREE, SlotState.SLOT_DELETED):
            return
        slot_life.delete(
            slot, os.fsencode(file_names.marked_directory_name(state["topic"], state["partition"], "delete"))
        )
        self._in_use().put(state["topic"], state["partition"], -1)

    def forget(self, deleted: Collection[tuple[str, int]]) -> None:
        """Remove deleted partitions from the checkpoints of all log directories, for good. Raises OSError."""
        forget_partitions(self.shm, self.log_dirs, deleted)

    def announce(self, changed: Iterable[int]) -> int:
        """Publish what became of these slots to every process; the metadata version that holds it."""
        return slot_life.announce(list(changed))

    def topics(self) -> dict[bytes, Topic]:
        """All topics announced so far, by name."""
        self.directory.refresh()
        return self.directory.by_name

    def find(self, topic: str, partition: int) -> int:
        """The slot of a partition, announced or not; -1 if there is none."""
        return self._in_use().get(topic, partition)


def _epoch_to_begin(slot: int, loaded: LoadedLog, lost: bool) -> int | None:
    """The leader epoch that must begin before a loaded log is served; None if the slot's epoch may be used.

    A log that was open before has lost records if it ends before its last commit: this is still known after an attempt that cut
    the log and failed.
    """
    state = slots.describe(slot)
    current: int = state["leader_epoch"]
    newest: int = loaded.epochs[-1][0] if loaded.epochs else -1
    if newest > current:
        return newest + 1
    lost = lost or loaded.log_end_offset < state["log_end_offset"]
    return current + 1 if lost and state["begun_epoch"] == BegunEpoch.EPOCH_KEPT else None


def _sync(slot: int, path: str) -> None:
    """Sync what a recovery found, where flush.messages demands that consumers read only what is on the device.

    The high watermark follows. What fails here is repeated by the cleaner, unless it was the device that failed.
    """
    try:
        flushing.flush(slot, True)
    except OSError as error:
        log.error(
            "cannot sync %s: %s; consumers do not receive its unsynced records until a sync succeeds", path, error
        )
