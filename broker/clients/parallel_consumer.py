"""A consumer that processes records in many threads, each at least once, and commits only what is safe.

One thread polls; records go into a buffer a partition; a pool of workers processes them, partitions taking turns, in order by
partition, by key, or in none; the newest offset with everything before it processed is committed. While buffers are full
their partitions are paused and polling goes on, so that slow work never costs the membership. A crash at any point loses no
record and repeats only what was not committed. Source: the fifth document, on consumption at least once.

Needs `confluent-kafka` (the extra `clients`). Used from any thread; `run` is the poll thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from broker.clients.offset_manager import OffsetManager
from broker.clients.work_queues import Order, Place, Work, WorkQueues

log = logging.getLogger(__name__)

POLL_S = 0.05
POLL_RECORDS = 500
FIRST_BACKOFF_S = 0.1

Handler = Callable[[Any], None]
"""Processes one `confluent_kafka.Message`; an exception means that it is to be tried again."""

DeadLetter = Callable[[Any, Exception], None]
"""Gets a message that could not be processed, and why; the message counts as processed when this returns."""


@dataclass
class Counters:
    """What happened so far; read at any time.

    :param late: records finished after their partition had been given to another member, who processes them again.
    """

    polled: int = 0
    processed: int = 0
    retried: int = 0
    dead_letters: int = 0
    late: int = 0
    commits: int = 0
    pauses: int = 0


class ProcessingFailed(RuntimeError):
    """A record could not be processed and nobody takes dead letters: the consumer stopped, the record is not committed."""


class ParallelConsumer:
    """:param config: of `confluent_kafka.Consumer`; `enable.auto.commit` is turned off.
    :param topics: to subscribe to; a name that begins with ^ is a pattern.
    :param handler: called by workers, several at a time.
    :param workers: how many threads process.
    :param order: "key" (records of a key one after the other), "partition" or "none".
    :param buffer_records: how many records of a partition wait at most, about; beyond it the partition is paused.
    :param retries: how often a record is tried again, with growing pauses from 0.1 s on up to `longest_backoff_s`.
    :param dead_letter: see `DeadLetter`; None stops the consumer with ProcessingFailed.
    :param commit_interval_s: how often offsets are committed.
    :param drain_s: how long a rebalance or the stop waits for the records that workers have at hand.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topics: Sequence[str],
        handler: Handler,
        *,
        workers: int = 8,
        order: Order | str = Order.KEY,
        buffer_records: int = 1000,
        retries: int = 5,
        longest_backoff_s: float = 10.0,
        dead_letter: DeadLetter | None = None,
        commit_interval_s: float = 1.0,
        drain_s: float = 30.0,
    ) -> None:
        try:
            import confluent_kafka
        except ImportError as error:
            raise ImportError("ParallelConsumer needs confluent-kafka: pip install 'odradek[clients]'") from error
        if workers < 1 or buffer_records < 1 or retries < 0:
            raise ValueError(
                f"workers={workers}, buffer_records={buffer_records}, retries={retries}: at least 1, 1 and 0 are needed"
            )
        self._kafka = confluent_kafka
        self._consumer = confluent_kafka.Consumer(
            {**config, "enable.auto.commit": False, "on_commit": self._commit_answered}
        )
        self._topics = list(topics)
        self._handler = handler
        self._workers = workers
        self._buffer_records = buffer_records
        self._retries = retries
        self._longest_backoff_s = longest_backoff_s
        self._dead_letter = dead_letter
        self._commit_interval_s = commit_interval_s
        self._drain_s = drain_s
        self._queues = WorkQueues(Order(order))
        self._offsets: dict[Place, OffsetManager] = {}
        self._offsets_lock = threading.Lock()
        self._counters_lock = threading.Lock()
        self._paused: set[Place] = set()
        self._stop = threading.Event()
        self._failure: ProcessingFailed | None = None
        self.counters = Counters()

    def run(self) -> None:
        """Poll until `stop`. Raises ProcessingFailed, or `confluent_kafka.KafkaException` for a fatal error."""
        threads = [threading.Thread(target=self._work, name=f"worker-{n}", daemon=True) for n in range(self._workers)]
        for thread in threads:
            thread.start()
        self._consumer.subscribe(self._topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        due = time.monotonic() + self._commit_interval_s
        try:
            while not self._stop.is_set():
                for message in self._consumer.consume(POLL_RECORDS, POLL_S):
                    self._buffer(message)
                self._pause_and_resume()
                if time.monotonic() >= due:
                    self._commit(list(self._offsets), wait=False)
                    due = time.monotonic() + self._commit_interval_s
        finally:
            self._give_up(list(self._offsets))
            self._queues.close()
            self._consumer.close()
            for thread in threads:
                thread.join(self._drain_s)
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Finish the records at hand, commit, leave the group; `run` returns then. From any thread or a signal handler."""
        self._stop.set()

    # -- the poll thread ------------------------------------------------------------------------------------------

    def _buffer(self, message: Any) -> None:
        error = message.error()
        if error is not None:
            if error.fatal():
                raise self._kafka.KafkaException(error)
            log.warning("the consumer reports: %s", error)
            return
        place = (message.topic(), message.partition())
        with self._offsets_lock:
            offsets = self._offsets.get(place)
            if offsets is None:
                return  # it was revoked while this was on its way
            offsets.take(message.offset())
        self._count("polled")
        self._queues.put(Work(place, message.offset(), message.key(), message))

    def _pause_and_resume(self) -> None:
        full, free = [], []
        for place in self._offsets:
            size = self._queues.size(place)
            if place not in self._paused and size >= self._buffer_records:
                full.append(place)
            elif place in self._paused and size <= self._buffer_records // 2:
                free.append(place)
        if full:
            self._consumer.pause(self._partitions(full))
            self._paused.update(full)
            self._count("pauses", len(full))
        if free:
            self._consumer.resume(self._partitions(free))
            self._paused.difference_update(free)

    def _partitions(self, places: Sequence[Place]) -> list[Any]:
        return [self._kafka.TopicPartition(topic, partition) for topic, partition in places]

    def _commit(self, places: Sequence[Place], wait: bool) -> None:
        with self._offsets_lock:
            positions = {place: offset for place in places if (offset := self._offsets[place].committable) is not None}
        if not positions:
            return
        partitions = [self._kafka.TopicPartition(*place, offset) for place, offset in positions.items()]
        try:
            if wait:
                self._consumer.commit(offsets=partitions, asynchronous=False)
            else:
                self._consumer.commit(offsets=partitions, asynchronous=True)
        except self._kafka.KafkaException as error:
            log.warning("offsets could not be committed, they are committed with the next ones: %s", error)

    def _commit_answered(self, error: Any, partitions: Sequence[Any]) -> None:
        """Called by the client, in the poll thread."""
        if error is not None:
            log.warning("offsets were not committed, they are committed with the next ones: %s", error)
            return
        self._count("commits")
        with self._offsets_lock:
            for one in partitions:
                offsets = self._offsets.get((one.topic, one.partition))
                if offsets is not None and one.error is None:
                    offsets.committed(one.offset)

    def _assigned(self, _: Any, partitions: Sequence[Any]) -> None:
        places = [(one.topic, one.partition) for one in partitions]
        with self._offsets_lock:
            self._offsets.update({place: OffsetManager() for place in places})
        self._queues.assign(places)

    def _revoked(self, _: Any, partitions: Sequence[Any]) -> None:
        """Before another member gets them: let what is at hand finish, commit it, forget the rest."""
        self._give_up([(one.topic, one.partition) for one in partitions])

    def _lost(self, _: Any, partitions: Sequence[Any]) -> None:
        """Another member has them already: what is at hand will be processed twice."""
        self._forget([(one.topic, one.partition) for one in partitions])

    def _give_up(self, places: Sequence[Place]) -> None:
        known = [place for place in places if place in self._offsets]
        self._queues.hold(known)
        if not self._queues.wait_until_idle(known, self._drain_s):
            log.warning("records at hand took longer than %g s: they will be processed again", self._drain_s)
        self._commit(known, wait=True)
        self._forget(known)

    def _forget(self, places: Sequence[Place]) -> None:
        self._queues.revoke(places)
        with self._offsets_lock:
            for place in places:
                self._offsets.pop(place, None)
        self._paused.difference_update(places)

    # -- workers --------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (work := self._queues.take()) is not None:
            processed = self._process(work)
            with self._offsets_lock:
                current = self._queues.finished(work)
                if current and processed:
                    self._offsets[work.place].done(work.offset)
            if not current:
                self._count("late")
            elif processed:
                self._count("processed")

    def _process(self, work: Work) -> bool:
        """Whether the record is through; False stops the consumer, and the record stays uncommitted."""
        backoff_s = FIRST_BACKOFF_S
        for tries_left in range(self._retries, -1, -1):
            try:
                self._handler(work.message)
                return True
            except Exception as error:  # the handler is not ours: whatever it raises means "again"
                failure = error
            if tries_left and not self._stop.wait(backoff_s):
                self._count("retried")
                backoff_s = min(2 * backoff_s, self._longest_backoff_s)
            elif tries_left:
                return False  # the consumer stops: another one will try
        return self._bury(work, failure)

    def _bury(self, work: Work, failure: Exception) -> bool:
        where = f"{work.place[0]}-{work.place[1]} at offset {work.offset}"
        if self._dead_letter is None:
            self._failure = ProcessingFailed(f"the record of {where} failed {self._retries + 1} times: {failure!r}")
            self._failure.__cause__ = failure
            self._stop.set()
            return False
        try:
            self._dead_letter(work.message, failure)
        except Exception as error:
            self._failure = ProcessingFailed(f"the record of {where} could not be put aside: {error!r}")
            self._failure.__cause__ = error
            self._stop.set()
            return False
        self._count("dead_letters")
        return True

    def _count(self, what: str, by: int = 1) -> None:
        with self._counters_lock:
            setattr(self.counters, what, getattr(self.counters, what) + by)
