"""What reviews of the lanes found: many small batches, partitions of the target that cannot be written, paused owners."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek._ext.records.batch_builder import BatchBuilder
from odradek.clients import topics
from odradek.clients.cluster import Cluster, Partition, TopicInfo
from odradek.clients.groups import CommittedOffset, commit_offsets, fetch_offsets
from odradek.clients.wire import Buffer
from odradek.mirror import lane, target
from odradek.mirror.commits import Commits, Producer
from odradek.mirror.leaders import LookedUp
from odradek.mirror.routes import LaneOptions, Route
from odradek.mirror.send_window import MOST_BATCHES as IN_FLIGHT
from odradek.mirror.target import Outgoing, PartitionRefusedError, TargetWriter
from odradek.protocol.errors import ErrorCode
from odradek.testing import Broker
from tests.mirror.lanes import GROUP, Watcher, routes_of, running, wait_until_moved
from tests.mirror.test_lane import Pair, check_equal, producer, write
from tests.waiting import until

ROUTE = Route(("t", 0), ("a.t", 0))


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with Broker() as source, Broker() as target:
        yield Pair(source, target)


class FullBuffers:
    """A broker that reads no more requests when as many answers as fit into the buffers wait for the client."""

    streams, buffered, address = False, False, "127.0.0.1:1"

    def __init__(self) -> None:
        self.waiting: deque[int] = deque()
        self.received = 0
        self.error_code = 0

    def version_of(self, *_: Any) -> int:
        return 8

    def send_parts(self, _: Any, version: int, bodies: Iterable[Sequence[Buffer]]) -> None:
        for body in bodies:
            self.waiting.append(sum(map(len, body)))
            assert len(self.waiting) <= IN_FLIGHT, "the broker waits for the client, and the client for the broker"

    def receive(self) -> Any:
        self.waiting.popleft()
        self.received += 1
        part = SimpleNamespace(index=0, error_code=self.error_code, error_message=None, base_offset=self.received - 1)
        return SimpleNamespace(responses=[SimpleNamespace(name="a.t", partition_responses=[part])])


def small_batch(offset: int) -> Outgoing:
    builder: Any = BatchBuilder()
    builder.add(None, b"v", 1)
    data = bytearray(builder.finish(0, lambda codec, payload: payload))
    return Outgoing(ROUTE, memoryview(data), 1, offset, offset + 1, 1)


def writer_to(broker: FullBuffers, monkeypatch: pytest.MonkeyPatch, leader: int = 1) -> TargetWriter:
    commits = SimpleNamespace(
        producer=Producer(1, 0), join=lambda places: {}, commit=lambda positions, meanwhile: meanwhile()
    )
    info = TopicInfo("a.t", bytes(16), False, (Partition("a.t", 0, leader, 0, (1,), (1,), (), ErrorCode.NONE),))
    monkeypatch.setattr(target, "look_up", lambda *_: LookedUp({"a.t": info}, {}))
    cluster = SimpleNamespace(broker=lambda _: broker)
    return TargetWriter(cast(Cluster, cluster), cast(Commits, commits), "id", LaneOptions())


def test_answers_are_received_while_many_small_batches_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = FullBuffers()
    writer = writer_to(broker, monkeypatch)
    count = 5 * IN_FLIGHT + 3
    for offset in range(count):
        writer.put(small_batch(offset))
    writer.flush()
    assert writer.unacknowledged == len(broker.waiting) <= IN_FLIGHT
    written = writer.commit({})
    assert [batch.source_offset for batch in written] == list(range(count))
    assert [batch.target_offset for batch in written] == list(range(count))


@pytest.mark.parametrize("code", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.LEADER_NOT_AVAILABLE])
def test_an_error_of_one_partition_names_it_so_that_it_can_stop_alone(
    code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = FullBuffers()
    broker.error_code = int(code)
    writer = writer_to(broker, monkeypatch)
    writer.put(small_batch(7))
    writer.flush()
    with pytest.raises(PartitionRefusedError, match=code.name) as raised:
        writer.commit({})
    assert raised.value.soon and raised.value.may_pass and raised.value.first_offset == 7


def test_a_partition_without_leader_can_stop_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = writer_to(FullBuffers(), monkeypatch, leader=-1)
    writer.put(small_batch(7))
    with pytest.raises(PartitionRefusedError, match="LEADER_NOT_AVAILABLE") as raised:
        writer.flush()
    assert raised.value.soon and raised.value.first_offset == 7


def test_an_absent_topic_of_the_target_stops_alone(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "ABSENT_S", 0.5)
    absent, good = pair.topic(), pair.topic()
    for topic in (absent, good):
        write(producer(pair.source), topic, 1, range(100))
    routes = [*routes_of(pair.source, [absent], prefix="never-made."), *routes_of(pair.source, [good])]
    with running(pair.source, pair.target, routes) as (_, watcher):
        watcher.wait(lambda: routes[0].target in watcher.stops, "the partition stops")
        wait_until_moved(watcher, pair.source, pair.target, routes[1:])
    assert "UNKNOWN_TOPIC_OR_PARTITION" in watcher.stops[routes[0].target]
    assert check_equal(pair, routes[1:]) == 100


class CountsAtStop(Watcher):
    """Knows how many batches were moved when a partition stopped."""

    moved_at_stop = -1

    def stopped(self, route: Route, reason: str) -> None:
        self.moved_at_stop = len(self.batches)
        super().stopped(route, reason)


def test_commits_of_other_partitions_do_not_delay_a_stop(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = pair.topic(), pair.topic()
    made = producer(pair.source, **{"linger.ms": 0, "batch.num.messages": 1})
    for number in range(300):
        made.produce(good, b"%d" % number)
    made.flush()
    write(producer(pair.source), bad, 1, range(100))
    routes = routes_of(pair.source, [good, bad])
    put = TargetWriter.put

    def refuse(self: TargetWriter, batch: Outgoing) -> None:
        if batch.route == routes[1]:
            raise PartitionRefusedError(batch.route, batch.first_offset, "no leader", True, True)
        put(self, batch)

    monkeypatch.setattr(TargetWriter, "put", refuse)
    monkeypatch.setattr(lane, "ABSENT_S", 0.5)
    options = LaneOptions(fetch_wait_ms=100, fetch_max_bytes=1, partition_fetch_bytes=1, commit_bytes=1)
    watcher = CountsAtStop()
    with running(pair.source, pair.target, routes, options, watcher):
        watcher.wait(lambda: watcher.stops, "the partition stops")
        wait_until_moved(watcher, pair.source, pair.target, routes[:1])
    assert 0 < watcher.moved_at_stop < 200
    assert check_equal(pair, routes[:1]) == 300


def test_a_paused_owner_that_had_another_number_of_lanes_is_fenced(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = pair.topic()
    routes = routes_of(pair.source, [topic])
    write(producer(pair.source), topic, 1, range(100))
    take, paused, resumed, ended = lane.Lane._take, threading.Event(), threading.Event(), threading.Event()

    def pause(self: lane.Lane, session: Any, event: Any) -> None:
        late = self._transactional_id.endswith(".8.0") and paused.is_set()
        if late:
            assert resumed.wait(60)
        try:
            take(self, session, event)
        finally:
            if late:
                ended.set()

    monkeypatch.setattr(lane.Lane, "_take", pause)
    name = "odradek-mirror.a->b.{}.0"
    with (
        pytest.raises(lane.LaneFencedError, match="has another owner"),
        running(pair.source, pair.target, routes, transactional_id=name.format(8), ends=True) as (_, first),
    ):
        try:
            wait_until_moved(first, pair.source, pair.target, routes)
            paused.set()
            with running(pair.source, pair.target, routes, transactional_id=name.format(4)) as (_, second):
                write(producer(pair.source), topic, 1, range(100, 200))
                wait_until_moved(second, pair.source, pair.target, routes)
        finally:
            resumed.set()
        assert ended.wait(60)
    assert check_equal(pair, routes) == 200


def test_the_position_of_a_former_topic_is_not_committed_again_as_one_of_the_new_topic(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = pair.topic()
    (route,) = routes_of(pair.source, [topic])
    former = CommittedOffset(5, -1, json.dumps({"topic_id": "ab" * 16}))
    with Cluster(pair.target) as cluster:
        commit_offsets(cluster, GROUP, {route.target: former})
    refresh, refreshed = lane.Lane._refresh, threading.Event()

    def note(self: lane.Lane, session: Any) -> None:
        refresh(self, session)
        refreshed.set()

    monkeypatch.setattr(lane, "REFRESH_S", 0.1)
    monkeypatch.setattr(lane.Lane, "_refresh", note)
    with running(pair.source, pair.target, [route]) as (_, watcher):
        watcher.wait(lambda: watcher.stops, "the partition stops")
        assert refreshed.wait(60)
    with Cluster(pair.target) as cluster:
        assert fetch_offsets(cluster, GROUP)[route.target].metadata == former.metadata


def test_a_transaction_that_was_open_for_too_long_is_not_said_to_have_another_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Broker() as source, Broker({"transaction.abort.timed.out.transaction.cleanup.interval.ms": 50}) as target:
        pair = Pair(source, target)
        topic = pair.topic()
        (route,) = routes_of(pair.source, [topic])
        write(producer(pair.source), topic, 1, range(100))
        commit, aborted = Commits.commit, threading.Event()

        def slow(self: Commits, *arguments: Any) -> None:
            if self._in_transaction:
                assert aborted.wait(60)
            commit(self, *arguments)

        monkeypatch.setattr(Commits, "commit", slow)
        options = LaneOptions(fetch_wait_ms=100, transaction_timeout_ms=1000)

        def ended() -> bool:
            """Whether the target has records and no open transaction."""
            with Cluster(pair.target) as cluster:
                partitions = [cluster.partition(*route.target)]
                stable, all_of_it = (
                    topics.list_offsets(cluster, partitions, topics.LATEST, committed_only=only)[route.target].offset
                    for only in (True, False)
                )
            return all_of_it > 0 and stable == all_of_it

        with (
            pytest.raises(
                lane.LaneFencedError, match=r"the target aborted the transaction of .*, which was open for \d"
            ),
            running(pair.source, pair.target, [route], options, ends=True),
        ):
            try:
                until(ended, "the target aborts the transaction")
            finally:
                aborted.set()
