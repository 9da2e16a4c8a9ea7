"""Runs lanes of the mirror in tests, and compares what is in the source and in the target."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from odradek.clients.cluster import Cluster
from odradek.mirror.lane import Lane
from odradek.mirror.leaders import look_up
from odradek.mirror.routes import LaneOptions, Moved, Route
from odradek.protocol.schemas import fetch
from odradek.storage import compression
from odradek.storage.batch import read_batches
from odradek.storage.old_messages import is_old, read_messages
from odradek.topic_partition import TopicPartition
from tests.waiting import until

TRANSACTIONAL_ID = "odradek-mirror.a->b.1.0"
GROUP = "odradek-mirror.a->b"
SECONDS = 60


class Seen(NamedTuple):
    """A record as a consumer sees it, without its offset."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[bytes, bytes | None], ...]
    codec: int


class Watcher:
    """An Observer that keeps what it is told."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.batches: list[Moved] = []
        self.stops: dict[TopicPartition, str] = {}
        self.resumes: list[TopicPartition] = []
        self.failures: list[str] = []
        self.at: dict[TopicPartition, tuple[int, int, int]] = {}
        self.raised: list[BaseException] = []  # by lanes, whose threads have ended with it

    def _note(self, change: Any) -> None:
        with self.changed:
            change()
            self.changed.notify_all()

    def moved(self, batch: Moved) -> None:
        self._note(lambda: self.batches.append(batch))

    def progress(self, route: Route, position: int, high_watermark: int, log_start: int) -> None:
        self._note(lambda: self.at.update({route.target: (position, high_watermark, log_start)}))

    def stopped(self, route: Route, reason: str) -> None:
        self._note(lambda: self.stops.update({route.target: reason}))

    def resumed(self, route: Route) -> None:
        self._note(lambda: self.resumes.append(route.target))

    def failed(self, lane: int, reason: str, retry_s: float) -> None:
        self._note(lambda: self.failures.append(reason))

    def ended_with(self, error: BaseException) -> None:
        self._note(lambda: self.raised.append(error))  # raised in the test's thread

    def wait(self, condition: Any, what: str) -> None:
        with self.changed:
            reached = self.changed.wait_for(lambda: self.raised or condition(), SECONDS)
            self.check()
            assert reached, f"waited for: {what}; failures: {self.failures[-3:]}"

    def check(self) -> None:
        """Raise what a lane has raised."""
        if self.raised:
            raise self.raised.pop()


def routes_of(source: str, topics: Sequence[str], prefix: str = "a.", convert: bool = False) -> list[Route]:
    with Cluster(source) as cluster:
        found = look_up(cluster, topics)
        return [
            Route((name, part.number), (prefix + name, part.number), found.topics[name].topic_id, convert)
            for name in topics
            for part in found.topics[name].partitions
        ]


@contextmanager
def running(
    source: str,
    target: str,
    routes: Sequence[Route],
    options: LaneOptions | None = None,
    watcher: Watcher | None = None,
    transactional_id: str = TRANSACTIONAL_ID,
    clusters: Sequence[Callable[[], Cluster]] = (),
    ends: bool = False,
) -> Iterator[tuple[Lane, Watcher]]:
    """A lane in a thread; what it raises is raised at the end.

    :param clusters: how it reaches source and target. :param ends: do not stop the lane, but wait until it ends with
        an error. If a lane is stopped while it waits for its next session, it does not notice that it is fenced.
    """
    watcher = watcher or Watcher()
    lane = Lane(
        0,
        transactional_id,
        GROUP,
        clusters[0] if clusters else lambda: Cluster(source),
        clusters[1] if clusters else lambda: Cluster(target),
        options or LaneOptions(fetch_wait_ms=100),
        watcher,
    )
    raised: list[BaseException] = []

    def run() -> None:
        try:
            lane.run()
        except BaseException as error:
            raised.append(error)
            if isinstance(watcher, Watcher):  # otherwise it is raised at the end only
                watcher.ended_with(error)

    lane.route(routes)
    thread = threading.Thread(target=run)
    thread.start()
    ended = True
    try:
        yield lane, watcher
        if ends:
            thread.join(SECONDS)
            ended = not thread.is_alive()
    finally:
        lane.stop()
        thread.join(SECONDS)
        assert not thread.is_alive()
    assert ended, f"the lane has not ended by itself; failures: {watcher.failures[-3:]}"
    if raised:
        if isinstance(watcher, Watcher):
            watcher.raised.clear()  # it may watch another lane afterwards
        raise raised[0]


def committed_end(servers: str, place: TopicPartition) -> int:
    """The last stable offset of a partition."""
    return _fetched(servers, place, None, settled=False)[1]


def records_of(servers: str, place: TopicPartition, upto: int | None = None, settled: bool = True) -> list[Seen]:
    """The committed records of a partition, read at the wire, in order.

    :param upto: the offset to stop before. :param settled: wait until no transaction is open in the partition. A commit is
        answered, and its offsets can be read, before its marker is in each partition.
    """
    return [seen for _, seen in _fetched(servers, place, upto, settled)[0]]


def offsets_of(servers: str, place: TopicPartition) -> list[tuple[int, Seen]]:
    """As `records_of`, with the offsets."""
    return _fetched(servers, place, None, settled=True)[0]


NOT_YET = (5, 6)
"""LEADER_NOT_AVAILABLE and NOT_LEADER_OR_FOLLOWER: a broker does not know yet who leads a new topic."""


def _fetched(
    servers: str, place: TopicPartition, upto: int | None, settled: bool
) -> tuple[list[tuple[int, Seen]], int]:
    what = f"{place} has a leader{' and no open transaction' if settled else ''}"
    return until(lambda: _fetched_once(servers, place, upto, settled), what, SECONDS)


def _fetched_once(
    servers: str, place: TopicPartition, upto: int | None, settled: bool
) -> tuple[list[tuple[int, Seen]], int] | None:
    seen: list[tuple[int, Seen]] = []
    make = fetch.Request
    with Cluster(servers) as cluster:
        position = 0
        while True:
            partition = make.FetchPartition(partition=place[1], fetch_offset=position, partition_max_bytes=8 << 20)
            request = make(
                max_wait_ms=0,
                isolation_level=1,
                max_bytes=8 << 20,
                topics=[make.FetchTopic(topic=place[0], partitions=[partition])],
            )
            leader = cluster.partition(*place).leader
            answer = cluster.broker(leader).ask(fetch.SCHEMA, request, newest=12)
            part = answer.responses[0].partitions[0]
            if part.error_code == 1 and position == 0:
                position = part.log_start_offset = _start(cluster, place)
                continue
            if part.error_code in NOT_YET:
                return None
            assert not part.error_code, part
            if settled and 0 <= part.last_stable_offset < part.high_watermark:
                return None
            end = part.last_stable_offset if part.last_stable_offset >= 0 else part.high_watermark
            if position >= end or (upto is not None and position >= upto):
                return seen, end
            position = _read(part, position, seen)


def _start(cluster: Cluster, place: TopicPartition) -> int:
    from odradek.mirror.leaders import limits

    return limits(cluster, [place], "earliest").offsets[place]


def _read(part: Any, position: int, seen: list[tuple[int, Seen]]) -> int:
    data = bytes(part.records)
    if is_old(data):
        for outer in read_messages(data):
            for message in outer.opened():
                if message.offset >= position:
                    seen.append((message.offset, Seen(message.key, message.value, message.timestamp, (), outer.codec)))
                    position = message.offset + 1
        return position
    aborted = sorted((entry.first_offset, entry.producer_id) for entry in part.aborted_transactions or ())
    producers: set[int] = set()
    for batch in read_batches(data[: _whole(data)]):
        while aborted and aborted[0][0] <= batch.last_offset:
            producers.add(aborted.pop(0)[1])
        if batch.is_control:
            payload = compression.decompress(batch.codec, batch.payload, 1 << 20)
            if b"\0\0\0\0" in payload[:10]:
                producers.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in producers):
            append_time = batch.max_timestamp if batch.attributes & 8 else None
            for record in batch.records():
                if record.offset >= position:
                    timestamp = record.timestamp if append_time is None else append_time
                    seen.append((record.offset, Seen(record.key, record.value, timestamp, record.headers, batch.codec)))
        position = batch.last_offset + 1
    return position


def _whole(data: bytes) -> int:
    """The bytes of whole batches."""
    at = 0
    while len(data) - at >= 12 and at + 12 + int.from_bytes(data[at + 8 : at + 12], "big") <= len(data):
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return at


def wait_until_moved(watcher: Watcher, source: str, target: str, routes: Sequence[Route]) -> None:
    """Wait until the positions on the target are the ends of the source."""
    from odradek.clients.groups import fetch_offsets

    ends = {route.target: committed_end(source, route.source) for route in routes}

    def moved() -> bool:
        watcher.check()
        with Cluster(target) as cluster:
            found = fetch_offsets(cluster, GROUP)
        return all(place in found and found[place].offset >= end for place, end in ends.items())

    try:
        until(moved, f"the positions are {ends}", SECONDS)
    except Exception as error:
        raise AssertionError(f"{error}; failures {watcher.failures[-3:]}, stopped {watcher.stops}") from error
