"""The partitions of one internal topic that this broker coordinates: it loads the state of those that it leads from their logs.

Used for `__consumer_offsets` and for `__transaction_state`. The slots say which partitions this broker leads, and in which
leader epoch it began to lead them. The process looks at them after a change of the metadata version, after a wake-up, and
when an append is refused. Used only in the coordinator's event loop; only the logs are read in a separate thread, which
hands over the records in pieces.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import NamedTuple, Protocol

import odradek._ext.partition.slot_facts as slot_facts
import odradek._ext.partition.slots as slots
from odradek._ext.shm.topics import TopicDirectory
from odradek.coordination.environment import LogBatch
from odradek.processes import own_tasks
from odradek.processes.coordinator.internal_topics.coordinator_log import CoordinatorLog
from odradek.processes.coordinator.internal_topics.log_replay import LogMoved, read_records
from odradek.processes.slices import TURN_S
from odradek.protocol.errors import ErrorCode

LOAD_RETRY_S = 1.0
GROUP_LOAD_LANE, TRANSACTION_LOAD_LANE = 23, 24
"""Lock lanes of the threads that load the logs of the two topics [R 5.4]: after those of the threads that sync. The process
of the replicator has other threads in them."""


class LedPartition(NamedTuple):
    """Where this broker leads a partition. ``leader_epoch``: in which it began to lead, without interruption since. A new
    epoch in which it leads on changes nothing: no other broker wrote to the log."""

    slot: int
    incarnation: int
    leader_epoch: int


class Shards(Protocol):
    """The state that is loaded from the partitions of the topic."""

    def begin(self, partition: int, log: CoordinatorLog) -> None:
        """Begin to load a partition, again or for the first time. Until `loaded`, its requests receive an error."""

    def replay(self, partition: int, batches: list[LogBatch]) -> Iterator[None]:
        """Apply batches of the log, in order; yield after each short step."""

    def loaded(self, partition: int) -> Iterator[None]:
        """Serve a partition whose records are all applied; yield after each short step."""

    def lead_on(self, partition: int, leader_epoch: int) -> None:
        """The partition, loaded or not, has this leader epoch now, and no other broker has led it since `begin`."""

    def resign(self, partition: int) -> None:
        """Drop a partition that this broker does not lead any more."""


class CoordinatedTopic:
    """See the module.

    :param name: the name of the topic. :param log: the logger. :param state: the name of the loaded state in log lines
        ("groups"). :param reader: the thread that reads logs. :param make_log: makes the log of a partition.
    :param waits_for_commit: whether a loaded partition is served only when the high watermark has reached the end of the
        records that were read. Before that, a loss of power with the embedded metadata store, or another change of the leader,
        can remove records that a predecessor appended but did not acknowledge. In a cluster, groups do not wait, as in Kafka:
        the high watermark of a new leader waits for its followers, and does not move while too few replicas are in sync.
        Transactions always wait: markers of a decision that is removed afterwards would end only a part of the transaction.
    :param note_load: called with the time in ms that the load of a partition took.
    :param refresh: called before a partition is loaded again: takes over changes of the topics.
    """

    def __init__(
        self,
        name: str,
        log: logging.Logger,
        state: str,
        log_dirs: Sequence[Path],
        reader: Executor,
        make_log: Callable[[LedPartition], CoordinatorLog],
        waits_for_commit: bool,
        note_load: Callable[[int], None] = lambda took_ms: None,
        refresh: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self._log = log
        self._state = state
        self._log_dirs = log_dirs
        self._reader = reader
        self._make_log = make_log
        self._waits_for_commit = waits_for_commit
        self._note_load = note_load
        self._refresh = refresh
        self._loop = asyncio.get_running_loop()
        self._led: dict[int, tuple[CoordinatorLog, asyncio.Task[None]]] = {}
        self._failed_loads: dict[int, str] = {}  # by partition, until it is loaded
        self._executing = asyncio.Lock()
        self._shards: Shards | None = None
        self._topics: TopicDirectory | None = None

    @property
    def started(self) -> bool:
        """Whether `serve` was called."""
        return self._shards is not None

    @property
    def loading(self) -> int:
        """The number of partitions that are being loaded."""
        return sum(not task.done() for _, task in self._led.values())

    def serve(self, shards: Shards) -> None:
        """Begin to keep the state of led partitions in `shards`."""
        self._shards = shards

    def log_of(self, partition: int) -> CoordinatorLog | None:
        """The log of a led partition, loaded or not."""
        entry = self._led.get(partition)
        return None if entry is None else entry[0]

    def load_of(self, partition: int) -> asyncio.Task[None] | None:
        """The load of a led partition, possibly done; None if this broker does not lead the partition."""
        entry = self._led.get(partition)
        return None if entry is None else entry[1]

    def led(self, topics: TopicDirectory) -> dict[int, LedPartition]:
        """The partitions that this broker leads now."""
        topic = topics.get(self.name)
        places: dict[int, LedPartition] = {}
        for partition, slot in topic.partitions() if topic is not None else ():
            leadership = slots.leadership(slot)
            if leadership is not None:
                places[partition] = LedPartition(slot, *leadership)
        return places

    def follow(self, topics: TopicDirectory) -> None:
        """Compare with the topics and the slots: begin to load new partitions, resign lost ones, and acknowledge appends."""
        self._topics = topics
        if self._shards is None:
            return
        places = self.led(topics)
        for partition, (partition_log, _) in list(self._led.items()):
            if places.get(partition) != partition_log.place:
                self._resign(partition)
        for partition, place in places.items():
            if partition not in self._led:
                self._begin(partition, place)
            self._shards.lead_on(partition, slots.present_epoch(place.slot))
        for partition_log, _ in list(self._led.values()):
            partition_log.look()

    def look(self, moved: Collection[int]) -> None:
        """Acknowledge appends to those partitions whose slots are in `moved`."""
        for partition_log, _ in list(self._led.values()):
            if partition_log.place[0] in moved:
                partition_log.look()

    def close(self) -> None:
        """Stop: acknowledge what can be acknowledged now, and resign all partitions."""
        for partition, (partition_log, _) in list(self._led.items()):
            partition_log.look()
            self._resign(partition)

    def diverged(self, partition: int) -> None:
        """Drop the partition's state after a failed append, and load it from the log again. If several appends failed, it is
        loaded only once."""
        if partition not in self._led:
            return
        partition_log, _ = self._led[partition]
        if partition_log.closed:  # `close` below fails the waiting appends, and their callbacks call this method again
            return
        self._log.warning(
            "an append to %s-%d failed; loading its %s from the log again", self.name, partition, self._state
        )
        partition_log.look()
        partition_log.close()  # no append that depends on the failed one may follow it
        self._loop.call_soon(self._reload, partition, partition_log)

    # -- one partition --------------------------------------------------------------------------------------------

    def _begin(self, partition: int, place: LedPartition) -> None:
        assert self._shards is not None
        partition_log = self._make_log(place)
        self._shards.begin(partition, partition_log)
        task = self._loop.create_task(self._load(partition, partition_log))
        task.add_done_callback(lambda task: self._load_ended(partition, task))
        self._led[partition] = partition_log, task

    def _resign(self, partition: int) -> None:
        assert self._shards is not None
        partition_log, task = self._led.pop(partition)
        task.cancel()
        partition_log.close()
        self._shards.resign(partition)
        self._note_outcome(partition, None)

    def _reload(self, partition: int, partition_log: CoordinatorLog) -> None:
        """Load the partition again, unless this broker leads it with another log by now, or no longer leads it."""
        self._refresh()
        if self._topics is not None:
            self.follow(self._topics)
        if partition in self._led and self._led[partition][0] is partition_log:
            _, task = self._led[partition]
            task.cancel()
            partition_log.close()
            self._begin(partition, LedPartition(*partition_log.place))

    def _load_ended(self, partition: int, task: asyncio.Task[None]) -> None:
        """Log a load that failed with an internal error, and retry it, so that the partition does not stay unavailable."""
        if task.cancelled():
            return
        error = task.exception()
        self._note_outcome(partition, error)
        if error is None:
            return
        self._log.error(
            "cannot load %s-%d: internal error; retrying in %g s", self.name, partition, LOAD_RETRY_S, exc_info=error
        )
        self._loop.call_later(LOAD_RETRY_S, self._load_again, partition, task)

    def _note_outcome(self, partition: int, error: BaseException | None) -> None:
        """Note that a load failed with `error`, or that the partition is loaded or resigned (None)."""
        if error is not None:
            self._failed_loads[partition] = f"cannot load the partition: {error!r}"
        elif self._failed_loads.pop(partition, None) is None:
            return
        failures = {f"{self.name}-{number}": reason for number, reason in self._failed_loads.items()}
        own_tasks.ran(f"load of {self.name}", failures)

    def _load_again(self, partition: int, failed: asyncio.Task[None]) -> None:
        if partition in self._led and self._led[partition][1] is failed:
            self._reload(partition, self._led[partition][0])

    async def _load(self, partition: int, partition_log: CoordinatorLog) -> None:
        """Read the partition's log and replay it; again from the log start if the log's files changed while they were read."""
        assert self._shards is not None
        began, records = self._loop.time(), 0
        while True:
            try:
                end = slot_facts.describe(partition_log.place[0]).log_end_offset
                pieces = read_records(partition_log.place[0], self._log_dirs)
                records = 0
                while (piece := await self._loop.run_in_executor(self._reader, next, pieces, None)) is not None:
                    await self._execute(self._shards.replay(partition, piece))
                    records += sum(len(batch.records) for batch in piece)
                break
            except LogMoved as error:
                self._log.info("reading %s-%d again from its start: %s", self.name, partition, error)
            except OSError as error:
                self._log.error("cannot read %s-%d: %s; retrying in %g s", self.name, partition, error, LOAD_RETRY_S)
                await asyncio.sleep(LOAD_RETRY_S)
            self._shards.begin(partition, partition_log)
        if self._waits_for_commit:
            committed: asyncio.Future[ErrorCode] = self._loop.create_future()
            partition_log.when_committed(end, lambda error: None if committed.done() else committed.set_result(error))
            if await committed is ErrorCode.NOT_COORDINATOR:
                return  # the log was closed: this process no longer coordinates the partition
        if partition_log.closed:
            return
        await self._execute(self._shards.loaded(partition))
        took_ms = round((self._loop.time() - began) * 1000)
        self._note_load(took_ms)
        if records:
            self._log.info("loaded %d records of %s-%d in %d ms", records, self.name, partition, took_ms)

    async def _execute(self, steps: Iterator[None]) -> None:
        """Execute the steps of a load, other work of the loop between them. The loads of several partitions take turns, so that
        together they delay other work no longer than one."""
        async with self._executing:
            until = time.monotonic() + TURN_S
            for _ in steps:
                if time.monotonic() >= until:
                    await asyncio.sleep(0)
                    until = time.monotonic() + TURN_S
