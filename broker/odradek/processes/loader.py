"""A loader: fills the partition table when the broker starts, before anything serves.

The first loader reads the metadata store, finds each partition's directory and gives it a slot; then all loaders open
logs in parallel, each taking the next slot of its log directory that nobody took, after they measured together what there
is to recover in directories that were not closed in order. Afterwards every slot is ONLINE or OFFLINE (or
LOADING still, where the disk had no room for what recovery writes: the coordinator tries again) and the loaders end.
Does not: remove or change directories that belong to no known topic, or write the store beyond the cluster's first
nodes. A loader that dies is started again and goes on; the log that it was opening is opened by the coordinator, with
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
from odradek.controller.partitions import NO_CHECKPOINTS, LocalPartitions
from odradek.controller.topic_names import CLUSTER_METADATA
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
from odradek.storage.file_names import ForeignNameError, parse_directory_name

log = logging.getLogger("odradek.loader")


def main(context: ProcessContext) -> int:
    """Load until nothing is left; the exit code, EX_CONFIG if no successor could do better."""
    shm = context.shm
    table = PartitionTable(shm, context.log_dirs)
    config = context.config
    partitions = LocalPartitions(table, config, config.node_id, lambda index: not shm.log_dir_offline(index))
    if context.ordinal == 0 and not loading.begun():
        try:
            with closing(SqliteStore(Path(context.log_dirs[0]) / sqlite.FILE_NAME, keeps_room=True)) as store:
                begun = prepare(context, partitions, store)
                loading.begin(shm.slots_used)
                for info in shm.processes():
                    if info.kind == ProcessKind.LOADER and info.index != context.index:
                        shm.wake(info.index)
                begun.store(store)
        except (StoreError, WrongCluster) as error:
            log.error("cannot load the partitions: %s", error)
            return os.EX_CONFIG if isinstance(error, WrongCluster) else 1
    shm.set_state(ProcessState.SERVING)
    _wait_until_begun(context)
    Loading(context, partitions).run()
    return 0


def _wait_until_begun(context: ProcessContext) -> None:
    poll = select.poll()
    poll.register(context.shm.event_fd(), select.POLLIN)
    while not loading.begun():
        poll.poll()
        context.shm.drain_event()


# -- the first loader ---------------------------------------------------------------------------------------------


class BegunEpochs:
    """The leader epochs that this start begins: in the slots at once, in the metadata store by `store`, all in one
    transaction."""

    def __init__(self) -> None:
        self.complete = True
        """Whether all log directories are there. If not, a later start of this boot begins the epochs of the others: what the
        page cache held of them is lost all the same."""
        self._changes: list[tuple[str, bytes, int]] = []
        self._slots: list[tuple[int, int]] = []
        # By the former state's id: of thousands of states most are one object.
        self._next: dict[int, tuple[PartitionState, PartitionState, bytes]] = {}

    def of(self, state: PartitionState) -> PartitionState:
        """The state of a partition in the epoch that begins."""
        known = self._next.get(id(state))
        if known is None:
            new = state._replace(leader_epoch=state.leader_epoch + 1)
            known = self._next[id(state)] = (state, new, znodes.encode_state(new))
        return known[1]

    def note(self, slot: int, name: str, partition: int, state: PartitionState, version: int) -> None:
        """A slot is in the epoch that follows `state`, which the node says in this version."""
        _, new, data = self._next[id(state)]
        self._changes.append((znodes.state_path(name, partition), data, version))
        self._slots.append((slot, new.leader_epoch))

    def store(self, store: SqliteStore) -> None:
        """Make them durable, while other loaders open logs already: nobody is served before.

        What is not stored when this process dies, or fails to, the coordinator stores before it serves.
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
    """Give a slot to every partition of the store that this broker keeps; the leader epochs that are to be stored.

    A log that was not closed in order may have lost records, with the page cache of a machine that went down, and so
    has one whose directory is not there: the broker leads it in a new leader epoch, by which clients that had read
    further notice (KIP-320). Raises StoreError, WrongCluster.
    """
    began = time.monotonic()
    ensure_cluster_id(store, context.shm.cluster_id or None)
    show_running(store, context.config, context.running)
    image = load_image(store)
    give_ids(store, image)
    mine = {
        topic.name: [p for p, replicas in topic.assignment.partitions.items() if context.config.node_id in replicas]
        for topic in image.topics.values()
    }
    states = load_states(store, mine.items())
    directories = find_directories(context)
    report_strays(context, image, directories)
    offline = [index for index in range(len(context.log_dirs)) if context.shm.log_dir_offline(index)]
    begun = BegunEpochs()
    begun.complete = not offline
    cache_lost = may_have_lost_cache(store)
    for name, indexes in mine.items():
        topic = image.topics[name]
        for partition in indexes:
            log_dir = directories.get((name, partition))
            if name in image.deleting:
                if log_dir is not None:
                    partitions.discard(topic, partition, log_dir)
            elif (name, partition) in states:  # else its creation is completed by the coordinator
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


def find_directories(context: ProcessContext) -> dict[tuple[str, int], int]:
    """The log directory of every partition directory found, by topic and partition."""
    found: dict[tuple[str, int], int] = {}
    for index, path in enumerate(context.log_dirs):
        if context.shm.log_dir_offline(index):
            continue
        for name in _names(context, index, path):
            try:
                parsed = parse_directory_name(name)
            except ForeignNameError as error:
                log.warning("ignoring a directory in %s: %s", path, error)
                continue
            if parsed.fate is None and found.setdefault((parsed.topic, parsed.partition), index) != index:
                first = context.log_dirs[found[parsed.topic, parsed.partition]]
                log.error("%s exists in %s and in %s: ignoring the second one; remove one of them", name, first, path)
    return found


def _names(context: ProcessContext, index: int, path: Path) -> list[str]:
    """The subdirectories; of a directory that cannot be read none, and it is offline."""
    try:
        return list(_subdirectories(path))
    except OSError as error:
        log.error("cannot read log directory %s, it goes offline: %s", path, error.strerror)
        context.shm.set_log_dir_offline(index)
        return []


def _subdirectories(path: Path) -> Iterator[str]:
    with os.scandir(path) as entries:
        yield from (entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))


def report_strays(context: ProcessContext, image: ClusterImage, directories: dict[tuple[str, int], int]) -> None:
    """Tell of directories that belong to no topic of the store; they stay."""
    strays: Counter[str] = Counter()
    for (name, partition), index in directories.items():
        if name == CLUSTER_METADATA:
            continue  # of Kafka's controller, kept for the way back to it (docs/adopt.md)
        topic = image.topics.get(name)
        if topic is None or partition not in topic.assignment.partitions:
            strays[str(context.log_dirs[index] / f"{name}-{partition}")] += 1
    for path in sorted(strays):
        log.warning("ignoring %s, which belongs to no topic in the metadata: move it away or delete it", path)


# -- all loaders --------------------------------------------------------------------------------------------------


class Loading:
    """Opens logs until none is left, with the offsets of the checkpoint files."""

    def __init__(self, context: ProcessContext, partitions: LocalPartitions) -> None:
        self._context = context
        self._partitions = partitions
        self._checkpoints = [
            NO_CHECKPOINTS if context.shm.log_dir_offline(index) else checkpoints_to_load_by(path)
            for index, path in enumerate(context.log_dirs)
        ]

    def run(self) -> int:
        """How many slots were taken."""
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
        logs.report_failures()
        log.info("opened %d partitions in %.0f ms", count, (time.monotonic() - began) * 1000)
        return count

    def directories(self) -> list[int]:
        """The log directories that this loader opens logs in: one, or several if there are fewer loaders than those."""
        directories, loaders = len(self._context.log_dirs), int(str(self._context.notes.get("count", 1)))
        mine = self._context.ordinal
        return list(range(mine, directories, loaders)) if mine < directories else [mine % directories]

    def _measure(self, slot: int, log_dir: int) -> None:
        """Add what is to be recovered to the count, so that the status can say how much is left."""
        name, partition, *_ = slots.log_of(slot)
        path = self._context.log_dirs[log_dir] / f"{name}-{partition}"
        points = self._checkpoints[log_dir].recovery_points, self._checkpoints[log_dir].log_start_offsets
        try:
            size = bytes_to_recover(path, max(one.get((name, partition), 0) for one in points))
        except OSError as error:
            log.warning("cannot measure how much of %s must be recovered: %s; the status omits it", path, error)
            return
        loading.measured(log_dir, size)

    def _open(self, slot: int) -> int:
        """The bytes that had to be cut off."""
        log_dir = slots.log_dir_of(slot)
        clean = bool(self._context.clean[log_dir])
        return self._partitions.open(slot, self._checkpoints[log_dir], clean=clean, at_start=True)
