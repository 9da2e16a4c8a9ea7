"""A consumer that processes records in many threads, each record at least once, and commits only offsets that are safe.

One thread polls and puts the records into one buffer per partition. A pool of workers processes them in order by partition,
by key, or in no order; partitions take turns. The poll thread commits the newest offset below which all records are
processed. It pauses partitions whose buffers are full and keeps polling, so that slow processing never makes the member
leave the group. One limit covers the memory of all buffers and of the records that the client library reads ahead: see
`odradek.clients.consumer_memory`. A crash at any point loses no record and repeats only uncommitted records: at most
`max_uncommitted` of each partition.

Needs `confluent-kafka` (the extra `clients`). Its methods may be called from any thread; the caller of `run` is the poll
thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from odradek.backoff import Backoff
from odradek.clients.consumer_memory import OFFSET_BYTES, share_out, size_of
from odradek.clients.offset_manager import OffsetManager
from odradek.clients.work_queues import Hand, Order, Work, WorkQueues, drained
from odradek.topic_partition import TopicPartition

log = logging.getLogger("odradek.parallel_consumer")

POLL_S = 0.05
POLL_WHILE_PAUSED_S = 0.01
POLL_RECORDS = 500
"""Polled records that are put into the buffers together, if so many wait in the library and have room."""
MOST_TAKEN = 256
"""The most records that a worker takes at once."""
BRIEF_S = 0.001
"""A worker takes as many records at once as it processes in about this time, and reports what it has processed after it."""
PAUSE_AFTER_S = 0.05
"""A partition is paused if its buffer stays full for this time. The library drops what it has read ahead of a paused one."""
FIRST_BACKOFF_S, BACKOFF_JITTER = 0.1, 0.5
RESUME_AT = 0.5
"""A paused partition is resumed when its load falls to this."""
RESUME_ALL_AT = 0.75
"""While the load of all partitions is above this, only partitions without waiting records are resumed."""

Handler = Callable[[Any], None]
"""Processes one `confluent_kafka.Message`; after an exception the record is retried."""

DeadLetter = Callable[[Any, Exception], None]
"""Receives a message that failed after all retries, and the exception; when it returns, the message counts as processed."""


@dataclass
class Counters:
    """Counts of events since the start; may be read at any time.

    :param dropped: records dropped before processing, at a rebalance or the stop; they are not committed and are read again.
    :param late: records finished after their partition was revoked; another member processes them again.
    """

    polled: int = 0
    processed: int = 0
    retried: int = 0
    dead_letters: int = 0
    dropped: int = 0
    late: int = 0
    lost_partitions: int = 0
    rebalances: int = 0
    rewinds: int = 0
    commits: int = 0
    commit_failures: int = 0
    pauses: int = 0


class ProcessingFailed(RuntimeError):
    """A record failed after all retries and there is no dead-letter handler: the consumer stopped without committing
    the record.
    """


class ParallelConsumer:
    """A group member that processes records in parallel; see the module.

    :param config: configuration of `confluent_kafka.Consumer`; `enable.auto.commit` is always false, and the default of
        `auto.offset.reset` is `earliest`.
    :param topics: topics to subscribe to; a name that begins with ^ is a pattern.
    :param handler: called by several workers at the same time.
    :param workers: number of worker threads.
    :param order: "key" (records of a key are processed one after the other), "partition" or "none".
    :param buffer_records: a partition with this many records waiting or in flight is paused.
    :param buffer_bytes: a partition with this many bytes waiting or in flight, including the overhead of each record, is
        paused; the last record may exceed the limit.
    :param memory_bytes: memory limit for the records of all partitions, including those that the client library reads ahead;
        the library's limits are set accordingly unless `config` has them (see docs/develop/python-clients.md).
    :param max_uncommitted: the largest number of records that a partition may be ahead of its oldest unprocessed record.
    :param retries: number of retries of a failed record, with growing pauses from 0.1 s up to `longest_backoff_s`; no worker
        waits meanwhile.
    :param dead_letter: see `DeadLetter`; None stops the consumer with ProcessingFailed.
    :param commit_interval_s: interval between commits, in seconds.
    :param drain_s: the longest time that a rebalance or the stop waits for records in flight, in seconds; default: half of
        `max.poll.interval.ms`, at most 30.
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
        buffer_bytes: int = 16 << 20,
        memory_bytes: int = 256 << 20,
        max_uncommitted: int = 10_000,
        retries: int = 5,
        longest_backoff_s: float = 10.0,
        dead_letter: DeadLetter | None = None,
        commit_interval_s: float = 1.0,
        drain_s: float | None = None,
    ) -> None:
        try:
            import confluent_kafka
        except ImportError as error:
            from odradek.clients.errors import INSTALL_LIBRARY

            raise ImportError(f"ParallelConsumer needs confluent-kafka: {INSTALL_LIBRARY}") from error
        if workers < 1 or buffer_records < 1 or retries < 0:
            raise ValueError(
                f"workers={workers}, buffer_records={buffer_records}, retries={retries}: use at least 1, 1 and 0"
            )
        if buffer_bytes < 1 or max_uncommitted < 1:
            raise ValueError(f"buffer_bytes={buffer_bytes}, max_uncommitted={max_uncommitted}: use at least 1")
        if isinstance(topics, str):
            raise ValueError(f"topics={topics!r} is a string: use a list of topic names")
        share = share_out(memory_bytes, config)
        fixed_settings = {**share.settings, "enable.auto.commit": False, "on_commit": self._commit_completed}
        self._kafka = confluent_kafka
        self._consumer = confluent_kafka.Consumer({"auto.offset.reset": "earliest", **config, **fixed_settings})
        self._topics = list(topics)
        self._handler = handler
        self._workers = workers
        self._buffer_records = buffer_records
        self._buffer_bytes = buffer_bytes
        self._buffers_bytes = share.buffers
        self._max_uncommitted = max_uncommitted
        self._retries = retries
        self._backoff = Backoff(FIRST_BACKOFF_S, longest_backoff_s, jitter=BACKOFF_JITTER)
        self._dead_letter = dead_letter
        self._commit_interval_s = commit_interval_s
        if drain_s is None:
            drain_s = min(30.0, int(config.get("max.poll.interval.ms", 300_000)) / 2000)
        self._drain_s = drain_s
        self._commit_in_flight = False
        self._batch: list[Work] = []  # polled, and not in the buffers yet
        self._room: dict[TopicPartition, list[int]] = {}  # what may still be added to the batch: records, bytes
        self._room_of_all = 0  # bytes
        self._last: dict[TopicPartition, int] = {}  # the newest polled offsets
        self._hands: list[Hand] = []
        self._queues = WorkQueues(Order(order))
        self._offsets: dict[TopicPartition, OffsetManager] = {}
        self._uncommitted = 0  # the sum of `waiting` of all OffsetManagers
        self._offsets_lock = threading.Lock()
        self._counters_lock = threading.Lock()
        self._paused: set[TopicPartition] = set()
        self._stop = threading.Event()
        self._failure: ProcessingFailed | None = None
        self.counters = Counters()

    def run(self) -> None:
        """Poll until `stop`. Raises ProcessingFailed, or `confluent_kafka.KafkaException` for a fatal error."""
        self._hands = [self._queues.hand() for _ in range(self._workers)]
        threads = [
            threading.Thread(target=self._work, args=(hand,), name=f"worker-{number}", daemon=True)
            for number, hand in enumerate(self._hands)
        ]
        for thread in threads:
            thread.start()
        self._consumer.subscribe(self._topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        due = time.monotonic() + self._commit_interval_s
        try:
            while not self._stop.is_set():
                self._poll()
                self._pause_and_resume()
                if not self._commit_in_flight and (time.monotonic() >= due or self._begun_uncommitted()):
                    self._commit(list(self._offsets), wait=False)
                    due = time.monotonic() + self._commit_interval_s
            self._drain()
        finally:
            self._stop.set()
            self._release(list(self._offsets))
            self._queues.close()
            self._consumer.close()
            until = time.monotonic() + self._drain_s
            for thread in threads:
                thread.join(max(0.0, until - time.monotonic()))
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Make `run` finish the records in flight, commit, leave the group and return. May be called by a signal handler."""
        self._stop.set()

    # -- the poll thread ------------------------------------------------------------------------------------------

    def _poll(self) -> None:
        """Poll record by record: `consume` would also return records of partitions that a rebalance revokes during the call."""
        wait_s = POLL_WHILE_PAUSED_S if self._paused else POLL_S
        for _ in range(POLL_RECORDS):
            message = self._consumer.poll(wait_s)
            if message is None:
                break
            self._buffer(message)
            wait_s = 0
        self._hand_over_and_pause()

    def _drain(self) -> None:
        """Start no more records, and keep polling while records are in flight, so that the member stays in the group."""
        until = time.monotonic() + self._drain_s
        self._hold(list(self._offsets))
        running = [place for place in self._offsets if place not in self._paused]
        if running:
            self._pause(running)
        while not self._queues.wait_until_idle(list(self._offsets), POLL_S) and time.monotonic() < until:
            self._consumer.poll(0)

    def _buffer(self, message: Any) -> None:
        error = message.error()
        if error is not None:
            if error.fatal():
                raise self._kafka.KafkaException(error)
            log.warning("the client library reports an error: %s; consumption continues", error)
            return
        if self._stop.is_set():
            return  # the record is not committed and will be read again
        place, offset = (message.topic(), message.partition()), message.offset()
        if place not in self._offsets:
            return  # the partition was revoked meanwhile
        if offset <= self._last.get(place, -1):
            self._hand_over()
            self._rewind(place, offset)
            return
        self._last[place] = offset
        if not self._batch:
            self._room_of_all = self._buffers_bytes - self._bytes_of_all()
        room = self._room.get(place)
        if room is None:
            room = self._room[place] = self._room_of(place)
        size_bytes = size_of(message)
        self._batch.append(Work(place, offset, message.key(), message, size_bytes=size_bytes))
        room[0] -= 1
        room[1] -= size_bytes + OFFSET_BYTES
        self._room_of_all -= size_bytes + OFFSET_BYTES
        if room[0] <= 0 or room[1] <= 0 or self._room_of_all <= 0:
            self._hand_over_and_pause()

    def _hand_over(self) -> None:
        """Put the polled records into the buffers. Done before each rebalance and rewind, too."""
        batch, self._batch = self._batch, []
        if not batch:
            return
        with self._offsets_lock:
            for work in batch:
                self._offsets[work.place].take(work.offset)
            self._uncommitted += len(batch)
        self._count("polled", len(batch))
        self._queues.put(batch)
        self._room.clear()

    def _hand_over_and_pause(self) -> None:
        """Put the polled records into the buffers, and pause the partitions whose buffers stay full."""
        places = {work.place for work in self._batch}
        self._hand_over()
        if not places:
            return
        self._wait_for_room(places)
        if self._load_of_all() >= 1:
            self._pause([place for place in self._offsets if place not in self._paused])
        else:
            self._pause([place for place in places if self._load(place) >= 1])

    def _wait_for_room(self, places: Collection[TopicPartition]) -> None:
        """If a buffer is full, let the workers empty it, unless they are slow."""
        full = [place for place in places if self._load(place) >= 1]
        until = time.monotonic() + PAUSE_AFTER_S
        while (full or self._load_of_all() >= 1) and not self._stop.is_set():
            left_s = until - time.monotonic()
            if left_s <= 0:
                return
            self._queues.wait_until_finished(left_s)
            full = [place for place in full if self._load(place) > RESUME_AT]

    def _room_of(self, place: TopicPartition) -> list[int]:
        """Records and bytes that fit into the buffer of a partition before it must be paused."""
        with self._offsets_lock:
            waiting, partitions = self._offsets[place].waiting, len(self._offsets)
        size, size_bytes = self._queues.fill(place)
        return [
            min(self._buffer_records - size, self._max_uncommitted - waiting),
            min(
                self._buffer_bytes - size_bytes,
                self._buffers_bytes // partitions - size_bytes - waiting * OFFSET_BYTES,
            ),
        ]

    def _rewind(self, place: TopicPartition, offset: int) -> None:
        """The log was truncated or the position was reset: restart the partition there, as after an assignment."""
        log.warning(
            "the log of %s-%d was truncated or its offset reset: consumption restarts at offset %d", *place, offset
        )
        self._count("rewinds")
        self._hold([place])
        self._queues.revoke([place])
        with self._offsets_lock:
            self._uncommitted -= self._offsets[place].waiting
            self._offsets[place] = OffsetManager()
        self._queues.assign([place])
        self._last.pop(place, None)
        self._consumer.seek(self._kafka.TopicPartition(*place, offset))

    def _load(self, place: TopicPartition) -> float:
        """The fill level of a partition's buffer; at 1 it is paused. Each partition may use an equal part of the memory."""
        with self._offsets_lock:
            waiting, partitions = self._offsets[place].waiting, len(self._offsets)
        size, size_bytes = self._queues.fill(place)
        return max(
            size / self._buffer_records,
            size_bytes / self._buffer_bytes,
            waiting / self._max_uncommitted,
            (size_bytes + waiting * OFFSET_BYTES) * partitions / self._buffers_bytes,
        )

    def _load_of_all(self) -> float:
        """The fill level of all buffers together; at 1 all partitions are paused."""
        return self._bytes_of_all() / self._buffers_bytes

    def _bytes_of_all(self) -> int:
        return self._queues.total_bytes + self._uncommitted * OFFSET_BYTES

    def _pause_and_resume(self) -> None:
        if not self._paused or (load := self._load_of_all()) >= 1:
            return
        free = [place for place in self._paused if self._load(place) <= RESUME_AT]
        if load > RESUME_ALL_AT:
            free = [place for place in free if self._queues.fill(place)[0] == 0]
        if free:
            self._consumer.resume(self._partitions(free))
            self._paused.difference_update(free)

    def _pause(self, places: Sequence[TopicPartition]) -> None:
        if not places:
            return
        self._consumer.pause(self._partitions(places))
        self._paused.update(places)
        self._count("pauses", len(places))

    def _begun_uncommitted(self) -> bool:
        with self._offsets_lock:
            return any(offsets.begun_uncommitted for offsets in self._offsets.values())

    def _partitions(self, places: Sequence[TopicPartition]) -> list[Any]:
        return [self._kafka.TopicPartition(topic, partition) for topic, partition in places]

    def _commit(self, places: Sequence[TopicPartition], wait: bool) -> None:
        for hand in self._hands:
            self._report(hand)
        with self._offsets_lock:
            positions = {place: offset for place in places if (offset := self._offsets[place].to_commit) is not None}
        if not positions:
            return
        partitions = [self._kafka.TopicPartition(*place, offset) for place, offset in positions.items()]
        try:
            if wait:
                self._commit_completed(None, self._consumer.commit(offsets=partitions, asynchronous=False) or [])
            else:
                self._consumer.commit(offsets=partitions, asynchronous=True)
                self._commit_in_flight = True
        except self._kafka.KafkaException as error:
            self._count("commit_failures")
            log.warning("cannot request a commit of offsets: %s; retrying with the next commit", error)

    def _commit_completed(self, error: Any, partitions: Sequence[Any]) -> None:
        """Handle the result of a commit. The client library calls it in the poll thread."""
        self._commit_in_flight = False
        error = error or next((partition.error for partition in partitions if partition.error is not None), None)
        if error is not None:
            self._count("commit_failures")
            log.warning("a commit of offsets failed: %s; retrying with the next commit", error)
        else:
            self._count("commits")
        with self._offsets_lock:
            for partition in partitions:
                offsets = self._offsets.get((partition.topic, partition.partition))
                if offsets is not None and partition.error is None:
                    offsets.committed(partition.offset)

    def _assigned(self, _: Any, partitions: Sequence[Any]) -> None:
        places = [(partition.topic, partition.partition) for partition in partitions]
        self._count("rebalances")
        self._hand_over()
        with self._offsets_lock:
            for place in places:
                self._last.pop(place, None)
                self._uncommitted -= self._offsets[place].waiting if place in self._offsets else 0
                self._offsets[place] = OffsetManager()
        self._queues.assign(places)

    def _revoked(self, _: Any, partitions: Sequence[Any]) -> None:
        """Finish the records in flight, commit them, and drop the rest, before another member gets the partitions."""
        self._release([(partition.topic, partition.partition) for partition in partitions])

    def _lost(self, _: Any, partitions: Sequence[Any]) -> None:
        """Another member has the partitions already: the records in flight are processed twice."""
        self._count("lost_partitions", len(partitions))
        places = [(partition.topic, partition.partition) for partition in partitions]
        self._hand_over()
        self._hold(places)
        self._forget(places)

    def _release(self, places: Sequence[TopicPartition]) -> None:
        self._hand_over()
        known = [place for place in places if place in self._offsets]
        self._hold(known)
        if not self._queues.wait_until_idle(known, self._drain_s):
            log.warning(
                "records in flight did not finish within drain_s (%g s); they are not committed and will be processed again",
                self._drain_s,
            )
        self._commit(known, wait=True)
        self._forget(known)

    def _hold(self, places: Sequence[TopicPartition]) -> None:
        self._count("dropped", self._queues.hold(places))

    def _forget(self, places: Sequence[TopicPartition]) -> None:
        self._queues.revoke(places)
        with self._offsets_lock:
            for place in places:
                offsets = self._offsets.pop(place, None)
                self._uncommitted -= offsets.waiting if offsets is not None else 0
        paused = self._paused.intersection(places)
        if paused:
            self._consumer.resume(self._partitions(list(paused)))  # so that the next assignment does not begin paused
        self._paused -= paused

    # -- workers --------------------------------------------------------------------------------------------------

    def _work(self, hand: Hand) -> None:
        most = 1
        while self._queues.take(hand, most):
            began = reported = now = time.monotonic()
            count = 0
            while (work := hand.next()) is not None:
                try:
                    self._handler(work.message)
                except (
                    BaseException
                ) as error:  # the application's handler may raise anything; each exception fails this record
                    self._fail_record(hand, work, error)
                else:
                    hand.done.append(work)
                count += 1
                now = time.monotonic()
                if now - reported > BRIEF_S:
                    self._report(hand)
                    reported = now
            self._report(hand)
            enough = int(count * BRIEF_S / max(now - began, 1e-6))
            most = max(1, min(MOST_TAKEN, 2 * most, enough))

    def _report(self, hand: Hand) -> None:
        """Finish the records that a worker has processed. Its thread calls this, and the poll thread before it commits."""
        works = drained(hand.done)
        if works:
            self._finish(works, True)

    def _fail_record(self, hand: Hand, work: Work, error: BaseException) -> None:
        """Retry a record, or finish it. The records behind it in its lane must not pass it."""
        self._queues.give_back(hand)
        self._report(hand)
        processed = self._failed(work, error)
        if processed is not None:
            self._finish([work], processed)

    def _finish(self, works: Sequence[Work], processed: bool) -> None:
        with self._offsets_lock:
            current = self._queues.finished(works, open_lane=processed or self._failure is None)
            if processed:
                for work, is_current in zip(works, current, strict=True):
                    if is_current:
                        offsets = self._offsets[work.place]
                        self._uncommitted -= offsets.waiting
                        offsets.done(work.offset)
                        self._uncommitted += offsets.waiting
        late = current.count(False)
        if late:
            self._count("late", late)
        if processed and late < len(works):
            self._count("processed", len(works) - late)

    def _failed(self, work: Work, failure: BaseException) -> bool | None:
        """Handle a failure: None if the record is retried, True if it counts as processed, False if it must not be
        committed.
        """
        work.failures += 1
        if not isinstance(failure, Exception) or work.failures > self._retries:
            return self._dead_letter_or_fail(work, failure)
        if not self._queues.retry(work, self._backoff.after(work.failures)):
            return False  # the partition is being revoked, or the consumer stops: the next owner processes the record
        self._count("retried")
        return None

    def _dead_letter_or_fail(self, work: Work, failure: BaseException) -> bool:
        where = f"{work.place[0]}-{work.place[1]} at offset {work.offset}"
        if self._dead_letter is None or not isinstance(failure, Exception):
            self._fail(f"the record of {where} failed after {work.failures} attempt(s): {failure!r}", failure)
            return False
        try:
            self._dead_letter(work.message, failure)
        except BaseException as error:  # the application's code may raise anything
            self._fail(f"the dead-letter handler failed for the record of {where}: {error!r}", error)
            return False
        self._count("dead_letters")
        return True

    def _fail(self, message: str, cause: BaseException) -> None:
        failure = ProcessingFailed(message)
        failure.__cause__ = cause
        self._failure = failure
        self._stop.set()

    def _count(self, what: str, by: int = 1) -> None:
        with self._counters_lock:
            setattr(self.counters, what, getattr(self.counters, what) + by)
