"""Batches that the target does not take, in each way: their partition stops alone, and nothing behind them is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from odradek.clients import acls
from odradek.clients.cluster import Cluster
from odradek.clients.groups import fetch_offsets
from odradek.clients.wire import Buffer
from odradek.mirror import lane
from odradek.mirror.routes import LaneOptions, Route
from odradek.mirror.target import Outgoing, PartitionRefusedError, TargetWriter
from odradek.protocol.errors import ErrorCode
from odradek.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from odradek.testing import Broker
from tests.faults.small_disk import SmallDisk
from tests.mirror.lanes import GROUP, records_of, routes_of, running, wait_until_moved
from tests.mirror.test_lane import Pair, check_equal, producer, write
from tests.mirror.test_lane_findings import FullBuffers, small_batch, writer_to
from tests.waiting import until

MIB = 1 << 20
LARGEST_REQUEST = 300_000


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    config = {
        "socket.request.max.bytes": LARGEST_REQUEST,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with Broker() as source, Broker(config) as target:
        yield Pair(source, target)


def write_sizes(servers: str, topic: str, sizes: Sequence[int]) -> None:
    """One batch of each size."""
    made = producer(servers, **{"compression.type": "none", "linger.ms": 0})
    for size in sizes:
        made.produce(topic, b"x" * size)
        made.flush()


def sizes_of(servers: str, route: Route) -> list[int]:
    return [len(seen.value or b"") for seen in records_of(servers, route.target)]


def test_the_batches_of_several_partitions_share_requests(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = pair.topic(partitions=4)
    routes = routes_of(pair.source, [topic])
    made = producer(pair.source)
    for start in range(0, 1000, 200):
        write(made, topic, 4, range(start, start + 200))
    body, counts = TargetWriter._body, []

    def note(self: TargetWriter, chosen: list[Outgoing]) -> list[Buffer]:
        counts.append(len(chosen))
        return body(self, chosen)

    monkeypatch.setattr(TargetWriter, "_body", note)
    with running(pair.source, pair.target, routes) as (_, watcher):
        wait_until_moved(watcher, pair.source, pair.target, routes)
    assert max(counts) == 4
    assert check_equal(pair, routes) == 1000


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_batch_that_makes_the_target_close_the_connection_stops_its_partition(pair: Pair, exactly_once: bool) -> None:
    small, large = pair.topic(), pair.topic()
    write_sizes(pair.source, large, (100, 200, LARGEST_REQUEST + 100_000, 300))
    write(producer(pair.source), small, 1, range(100))
    routes = routes_of(pair.source, [small, large])
    options = LaneOptions(fetch_wait_ms=100, exactly_once=exactly_once)
    with running(pair.source, pair.target, routes, options) as (_, watcher):
        watcher.wait(lambda: routes[1].target in watcher.stops, "the partition stops")
        write(producer(pair.source), small, 1, range(100, 200))
        watcher.wait(lambda: records_moved(watcher, routes[0]) >= 200, "the other partition goes on")
    assert list(watcher.stops) == [routes[1].target]
    assert "at the source's offset 2 for" in watcher.stops[routes[1].target]
    assert "socket.request.max.bytes" in watcher.stops[routes[1].target]
    if exactly_once:
        assert check_equal(pair, routes[:1]) == 200
        assert sizes_of(pair.target, routes[1]) == [100, 200]
    else:
        assert set(sizes_of(pair.target, routes[1])) == {100, 200}
    with Cluster(pair.target) as cluster:
        group = lane.positions_group(GROUP, exactly_once)
        assert fetch_offsets(cluster, group)[routes[1].target].offset == 2


def records_moved(watcher: Any, route: Route) -> int:
    return max((batch.next_source_offset for batch in watcher.batches if batch.route == route), default=0)


def test_requests_that_are_too_large_together_are_sent_alone(pair: Pair) -> None:
    topic = pair.topic(partitions=4)
    routes = routes_of(pair.source, [topic])
    made = producer(pair.source, **{"compression.type": "none"})
    for number in range(4):
        made.produce(topic, b"x" * 200_000, partition=number)
    made.flush()
    with running(pair.source, pair.target, routes) as (_, watcher):
        wait_until_moved(watcher, pair.source, pair.target, routes)
    assert not watcher.stops
    assert check_equal(pair, routes) == 4


def test_without_transactions_no_batch_is_sent_behind_an_unanswered_first_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker has nothing of the producer, so it could take a batch behind a refused first one."""
    broker = FullBuffers()
    writer = writer_to(broker, monkeypatch)
    writer._options = LaneOptions(exactly_once=False)
    for offset in range(3):
        writer.put(small_batch(offset))
    broker.error_code = int(ErrorCode.MESSAGE_TOO_LARGE)
    with pytest.raises(PartitionRefusedError, match="offset 0"):
        writer.flush()
    assert (broker.received, len(broker.waiting)) == (1, 0)


def test_without_transactions_batches_behind_an_answered_first_one_are_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = FullBuffers()
    writer = writer_to(broker, monkeypatch)
    writer._options = LaneOptions(exactly_once=False)
    for offset in range(3):
        writer.put(small_batch(offset))
    writer.flush()
    assert (broker.received, len(broker.waiting)) == (1, 2)


@pytest.mark.parametrize("allowed", [(), (Operation.READ,), (Operation.WRITE,)])
def test_a_denied_topic_of_the_target_stops_alone(pair: Pair, allowed: tuple[Operation, ...]) -> None:
    """A position needs Read on the topic, records need Write; each is refused in another request."""
    denied, good = pair.topic(), pair.topic()
    for topic in (denied, good):
        write(producer(pair.source), topic, 1, range(100))
    routes = routes_of(pair.source, [denied, good])
    rights = [(operation, Permission.ALLOW) for operation in allowed] or [(Operation.ALL, Permission.DENY)]
    with Cluster(pair.target) as cluster:
        acls.create(
            cluster,
            [
                Acl(ResourceType.TOPIC, PatternType.LITERAL, f"a.{denied}", "User:*", "*", operation, permission)
                for operation, permission in rights
            ],
        )
    with running(pair.source, pair.target, routes) as (_, watcher):
        watcher.wait(lambda: routes[0].target in watcher.stops, "the partition stops")
        wait_until_moved(watcher, pair.source, pair.target, routes[1:])
    assert list(watcher.stops) == [routes[0].target]
    assert "TOPIC_AUTHORIZATION_FAILED" in watcher.stops[routes[0].target]
    assert check_equal(pair, routes[1:]) == 100


def test_a_timestamp_that_the_target_refuses_stops_its_partition(pair: Pair) -> None:
    old, good = pair.topic(target={"message.timestamp.before.max.ms": "1000"}), pair.topic()
    for topic in (old, good):
        write(producer(pair.source), topic, 1, range(100))  # an hour old
    routes = routes_of(pair.source, [old, good])
    with running(pair.source, pair.target, routes) as (_, watcher):
        watcher.wait(lambda: routes[0].target in watcher.stops, "the partition stops")
        wait_until_moved(watcher, pair.source, pair.target, routes[1:])
    assert list(watcher.stops) == [routes[0].target]
    assert "INVALID_TIMESTAMP" in watcher.stops[routes[0].target]
    assert check_equal(pair, routes[1:]) == 100


def test_a_lane_waits_at_a_full_disk_of_the_target_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "ABSENT_S", 0.5)
    with SmallDisk(tmp_path / "disk", 64 * MIB) as disk:
        config = {
            "log.dirs": f"{disk.path}/data",
            "log.segment.bytes": MIB,
            "odradek.log.dir.reserve.bytes": 256 * 1024,
            "odradek.log.dir.hard.free.percent": 4,
            "odradek.log.dir.soft.free.percent": 20,
        }
        with Broker() as source, Broker(config, directory=tmp_path / "broker") as full:
            both = Pair(source, full)
            topic = both.topic()
            routes = routes_of(both.source, [topic])
            options = LaneOptions(fetch_wait_ms=100, retry_stopped_s=0.5)
            with running(both.source, both.target, routes, options) as (_, watcher):
                write(producer(both.source), topic, 1, range(100))
                wait_until_moved(watcher, both.source, both.target, routes)
                taken = disk.fill(leave=MIB)
                until(lambda: full.status()["log_dirs"][0]["disk"] == "full", "the disk is full")
                write(producer(both.source), topic, 1, range(100, 300))
                watcher.wait(lambda: watcher.stops, "the partition stops")
                taken.unlink()
                wait_until_moved(watcher, both.source, both.target, routes)
            assert "NOT_ENOUGH_REPLICAS" in watcher.stops[routes[0].target]
            assert check_equal(both, routes) == 300
