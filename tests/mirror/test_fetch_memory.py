"""How much memory the responses of a source may take, also those of a source that sends more than it should."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from odradek.clients.cluster import Cluster
from odradek.mirror import source
from odradek.mirror.routes import LaneOptions
from odradek.protocol.client_connection import Frames
from odradek.testing import Broker
from odradek.topic_partition import TopicPartition
from tests.mirror.lanes import Watcher, records_of, routes_of, running, wait_until_moved
from tests.mirror.test_lane import OldCluster, Pair, check_equal, producer, write, write_plain

MIB = 1 << 20
LARGE = {"max.message.bytes": str(16 * MIB)}
OPTIONS = LaneOptions(fetch_wait_ms=50, fetch_memory_bytes=4 * MIB, partition_fetch_bytes=64 << 10)


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with Broker() as source_, Broker({"socket.request.max.bytes": 64 * MIB}) as target:
        yield Pair(source_, target)


@pytest.fixture
def memories(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The memory of a connection after each answer."""
    seen: list[int] = []
    release = Frames.release

    def watched(self: Frames, most_bytes: int) -> None:
        release(self, most_bytes)
        seen.append(len(self._memory))

    monkeypatch.setattr(Frames, "release", watched)
    return seen


def write_batch(servers: str, place: TopicPartition, size: int) -> None:
    made = producer(servers, **{"message.max.bytes": 16 * MIB})
    made.produce(place[0], b"x" * size, partition=place[1])
    made.flush()


def test_a_batch_above_half_of_the_memory_stops_its_partition_and_no_other(pair: Pair) -> None:
    topic = pair.topic(3, LARGE, LARGE)
    routes = routes_of(pair.source, [topic])
    write(producer(pair.source), topic, 3, range(300))
    write_batch(pair.source, (topic, 1), 5 * MIB)
    watcher = Watcher()
    with running(pair.source, pair.target, routes, OPTIONS, watcher):
        watcher.wait(lambda: routes[1].target in watcher.stops, "the partition stops")
        write(producer(pair.source), topic, 3, range(300, 330))
        wait_until_moved(watcher, pair.source, pair.target, [routes[0], routes[2]])
    assert list(watcher.stops) == [routes[1].target]
    assert watcher.stops[routes[1].target].startswith(
        f"{topic}-1 of the source has at offset 100 a batch above {2 * MIB} bytes, half of odradek.mirror.fetch.memory.bytes ("
    )
    assert check_equal(pair, [routes[0], routes[2]]) == 220
    assert len(records_of(pair.target, routes[1].target)) == 100
    with running(pair.source, pair.target, routes, LaneOptions(fetch_wait_ms=50), watcher):
        wait_until_moved(watcher, pair.source, pair.target, routes)
    assert check_equal(pair, routes) == 331


def test_the_largest_batch_passes_and_its_memory_is_freed(pair: Pair, memories: list[int]) -> None:
    topic = pair.topic(2, LARGE, LARGE)
    routes = routes_of(pair.source, [topic])
    write_batch(pair.source, (topic, 0), 2 * MIB - 1000)
    watcher = Watcher()
    with running(pair.source, pair.target, routes, OPTIONS, watcher):
        wait_until_moved(watcher, pair.source, pair.target, routes)
    assert check_equal(pair, routes) == 1 and not watcher.stops
    assert memories and max(memories) <= 2 * MIB


def test_the_leaders_share_the_memory(pair: Pair) -> None:
    with Cluster(pair.source) as cluster:
        options = LaneOptions(fetch_max_bytes=16 * MIB, fetch_memory_bytes=64 * MIB)
        reader = source.SourceReader(cluster, options, None, None, None, None)  # type: ignore[arg-type]
        for leaders, share in ((1, 16), (2, 16), (4, 8), (32, 1)):
            reader._leaders.led = {node: [("t", node)] for node in range(leaders)} | {1000: []}
            assert reader._share() == share * MIB
        reader._leaders.led = {node: [("t", node)] for node in range(100_000)}
        assert reader._share() == source.LEAST_SHARE_BYTES


@dataclass(frozen=True)
class Receiving:
    """A connection in the middle of a response."""

    held_bytes: int
    begun_bytes: int


def test_one_leader_at_a_time_sends_more_than_its_share(pair: Pair) -> None:
    with Cluster(pair.source) as cluster:
        reader = source.SourceReader(cluster, LaneOptions(), None, None, None, None)  # type: ignore[arg-type]
        small, large, waits = Receiving(0, MIB), Receiving(0, 20 * MIB), Receiving(20 * MIB, 0)
        reader._pending = dict.fromkeys((small, large, waits))  # type: ignore[arg-type]
        assert reader.connections == [small, large]
        del reader._pending[large]  # type: ignore[arg-type]
        assert reader.connections == [small, waits]


def test_sources_that_do_not_limit_a_response_are_asked_for_less_of_each_partition(pair: Pair) -> None:
    topic = pair.topic(4, LARGE, LARGE)
    routes = routes_of(pair.source, [topic])
    write_plain(pair.source, topic, 200)
    write_batch(pair.source, (topic, 2), MIB)
    options = LaneOptions(
        fetch_wait_ms=50, fetch_memory_bytes=4 * MIB, fetch_max_bytes=MIB, partition_fetch_bytes=MIB // 2
    )
    clusters = (lambda: OldCluster(pair.source), lambda: Cluster(pair.target))
    watcher = Watcher()
    with running(pair.source, pair.target, routes, options, watcher, clusters=clusters):
        wait_until_moved(watcher, pair.source, pair.target, routes)
    assert sum(len(records_of(pair.target, route.target)) for route in routes) == 201 and not watcher.stops
