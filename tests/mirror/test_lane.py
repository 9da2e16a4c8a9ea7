"""A lane between two brokers: what arrives, where it goes on, and what stops a partition."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.clients.cluster import Cluster
from odradek.clients.groups import CommittedOffset, commit_offsets, fetch_offsets
from odradek.clients.wire import Connection
from odradek.mirror.lane import LaneFencedError
from odradek.mirror.routes import LaneOptions, Route
from odradek.testing import Broker
from tests.mirror.lanes import GROUP, Watcher, records_of, routes_of, running, wait_until_moved

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NUMBERS = itertools.count()
BEGAN_MS = int(time.time() * 1000) - 3_600_000
"""Time of the first record: young, so that no retention deletes it."""
OF_0_10_0 = {1: (0, 2), 2: (0, 0), 3: (0, 1), 18: (0, 0)}
"""The versions of Fetch, ListOffsets, Metadata and ApiVersions that Kafka 0.10.0 serves."""


class OldCluster(Cluster):
    """A cluster of brokers whose newest versions are those of Kafka 0.10.0: they answer with message sets of format v1."""

    def any_broker(self) -> Connection:
        return _limited(super().any_broker())

    def broker(self, node_id: int) -> Connection:
        return _limited(super().broker(node_id))


def _limited(connection: Connection) -> Connection:
    connection._protocol.ranges = OF_0_10_0
    return connection


class Pair:
    """Two brokers, and topics in both."""

    def __init__(self, source: Broker, target: Broker) -> None:
        self.source, self.target = source.bootstrap_servers, target.bootstrap_servers

    def topic(
        self, partitions: int = 1, source: dict[str, str] | None = None, target: dict[str, str] | None = None
    ) -> str:
        """Make a topic of a new name in both, with "a." before it in the target."""
        name = f"topic{next(NUMBERS)}"
        for servers, topic, config in ((self.source, name, source), (self.target, f"a.{name}", target)):
            admin = AdminClient({"bootstrap.servers": servers})
            for future in admin.create_topics([NewTopic(topic, partitions, 1, config=config or {})]).values():
                future.result()
        return name


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with Broker() as source, Broker() as target:
        yield Pair(source, target)


def producer(servers: str, **settings: object) -> Producer:
    return Producer({"bootstrap.servers": servers, "linger.ms": 1, **settings})


def write(made: Producer, topic: str, partitions: int, numbers: range) -> None:
    for number in numbers:
        made.produce(
            topic,
            b"value %d " % number * (1 + number % 30),
            None if number % 5 == 0 else b"key %d" % number,
            number % partitions,
            timestamp=BEGAN_MS + number,
            headers=[("h", b"%d" % number), ("n", None)] if number % 3 == 0 else None,
        )
    made.flush()


def write_plain(servers: str, topic: str, count: int) -> None:
    """Write records without headers, which the old formats do not have."""
    made = producer(servers)
    for number in range(count):
        made.produce(topic, b"%d" % number)
    made.flush()


def check_equal(pair: Pair, routes: list[Route]) -> int:
    """Compare the partitions record by record; return the number of records."""
    count = 0
    for route in routes:
        found = records_of(pair.target, route.target)
        assert found == records_of(pair.source, route.source)
        count += len(found)
    return count


@pytest.mark.parametrize("codec", CODECS)
def test_records_arrive_equal_with_their_codec_and_in_order(pair: Pair, codec: str) -> None:
    topic = pair.topic(partitions=3)
    routes = routes_of(pair.source, [topic])
    write(producer(pair.source, **{"compression.type": codec}), topic, 3, range(3000))
    with running(pair.source, pair.target, routes) as (_, watcher):
        wait_until_moved(watcher, pair.source, pair.target, routes)
        write(producer(pair.source, **{"compression.type": codec}), topic, 3, range(3000, 3300))
        wait_until_moved(watcher, pair.source, pair.target, routes)
    assert check_equal(pair, routes) == 3300
    codecs = {seen.codec for route in routes for seen in records_of(pair.target, route.target)}
    # librdkafka sends a batch without compression if that is smaller: one with a single record
    assert CODECS.index(codec) in codecs <= {CODECS.index(codec), 0}
    assert not watcher.failures
    assert sum(batch.records for batch in watcher.batches) == 3300
    for route in routes:
        batches = [batch for batch in watcher.batches if batch.route == route]
        assert [batch.next_source_offset for batch in batches][:-1] == [batch.source_offset for batch in batches][
            1:
        ]  # no gap, nothing twice


def test_aborted_transactions_and_markers_are_not_copied(pair: Pair) -> None:
    topic = pair.topic(partitions=2)
    routes = routes_of(pair.source, [topic])
    writers = [producer(pair.source, **{"transactional.id": f"{topic}-{index}"}) for index in range(2)]
    for writer in writers:
        writer.init_transactions()
    with running(pair.source, pair.target, routes) as (_, watcher):
        for round_number in range(12):
            writer = writers[round_number % 2]
            writer.begin_transaction()
            write(writer, topic, 2, range(100 * round_number, 100 * round_number + 40))
            if round_number % 3 == 1:
                writer.abort_transaction()
            else:
                writer.commit_transaction()
        wait_until_moved(watcher, pair.source, pair.target, routes)
    assert check_equal(pair, routes) == 8 * 40
    assert not watcher.failures


def test_a_lane_goes_on_where_it_stopped(pair: Pair) -> None:
    topic = pair.topic()
    routes = routes_of(pair.source, [topic])
    for start in range(0, 500, 100):
        write(producer(pair.source), topic, 1, range(start, start + 100))
        with running(pair.source, pair.target, routes) as (_, watcher):
            wait_until_moved(watcher, pair.source, pair.target, routes)
    assert check_equal(pair, routes) == 500


def test_a_position_inside_a_batch_copies_the_rest_of_it(pair: Pair) -> None:
    for codec in CODECS:
        topic = pair.topic()
        (route,) = routes_of(pair.source, [topic])
        write(producer(pair.source, **{"compression.type": codec, "linger.ms": 500}), topic, 1, range(100))
        with Cluster(pair.target) as cluster:
            commit_offsets(cluster, GROUP, {route.target: CommittedOffset(37, -1, "")})
        with running(pair.source, pair.target, [route]) as (_, watcher):
            wait_until_moved(watcher, pair.source, pair.target, [route])
        assert records_of(pair.target, route.target) == records_of(pair.source, route.source)[37:]
        assert watcher.batches[0][1:3] == (37, 0)


def test_records_of_log_append_time_keep_the_time_that_consumers_see(pair: Pair) -> None:
    topic = pair.topic(source={"message.timestamp.type": "LogAppendTime"})
    (route,) = routes_of(pair.source, [topic], convert=True)
    write(producer(pair.source, **{"compression.type": "lz4"}), topic, 1, range(200))
    with running(pair.source, pair.target, [route]) as (_, watcher):
        wait_until_moved(watcher, pair.source, pair.target, [route])
    assert check_equal(pair, [route]) == 200


def test_a_lane_without_transactions_copies_too(pair: Pair) -> None:
    topic = pair.topic(partitions=2)
    routes = routes_of(pair.source, [topic])
    write(producer(pair.source), topic, 2, range(1000))
    watcher = Watcher()
    with running(pair.source, pair.target, routes, LaneOptions(exactly_once=False), watcher):
        watcher.wait(lambda: sum(batch.records for batch in watcher.batches) == 1000, "all records are moved")
    assert check_equal(pair, routes) == 1000
    with Cluster(pair.target) as cluster:
        found = fetch_offsets(cluster, f"{GROUP}.positions")
    assert {route.target: found[route.target].offset for route in routes} == {route.target: 500 for route in routes}


def test_latest_begins_at_the_end_once_and_for_all(pair: Pair) -> None:
    topic = pair.topic()
    (route,) = routes_of(pair.source, [topic])
    write(producer(pair.source), topic, 1, range(50))
    for start in (50, 100):
        with running(pair.source, pair.target, [route], LaneOptions(start="latest")) as (_, watcher):
            wait_until_moved(watcher, pair.source, pair.target, [route])
        write(producer(pair.source), topic, 1, range(start, start + 50))
    with running(pair.source, pair.target, [route], LaneOptions(start="latest")) as (_, watcher):
        wait_until_moved(watcher, pair.source, pair.target, [route])
    assert records_of(pair.target, route.target) == records_of(pair.source, route.source)[50:]


def test_routes_change_while_the_lane_runs(pair: Pair) -> None:
    first, second = pair.topic(), pair.topic()
    write(producer(pair.source), first, 1, range(300))
    write(producer(pair.source), second, 1, range(300))
    routes = routes_of(pair.source, [first, second])
    with running(pair.source, pair.target, routes[:1]) as (lane, watcher):
        wait_until_moved(watcher, pair.source, pair.target, routes[:1])
        lane.route(routes)
        wait_until_moved(watcher, pair.source, pair.target, routes)
        lane.route(routes[1:])
        write(producer(pair.source), second, 1, range(300, 400))
        wait_until_moved(watcher, pair.source, pair.target, routes[1:])
    assert check_equal(pair, routes) == 700


def test_a_second_owner_fences_the_first(pair: Pair) -> None:
    topic = pair.topic()
    (route,) = routes_of(pair.source, [topic])
    write(producer(pair.source), topic, 1, range(100))
    with (
        pytest.raises(LaneFencedError, match="has another owner"),
        running(pair.source, pair.target, [route], ends=True) as (_, first),
    ):
        wait_until_moved(first, pair.source, pair.target, [route])
        with running(pair.source, pair.target, [route]) as (_, second):
            second.wait(lambda: second.at, "the second owner has fenced the first and reads")
            write(producer(pair.source), topic, 1, range(100, 300))
            wait_until_moved(second, pair.source, pair.target, [route])
            assert check_equal(pair, [route]) == 300


def test_a_batch_that_the_target_refuses_stops_its_partition_and_no_other(pair: Pair) -> None:
    small, large = pair.topic(), pair.topic(target={"max.message.bytes": "2000"})
    made = producer(pair.source, **{"compression.type": "none", "linger.ms": 0})
    for size in (100, 200, 5000, 300):
        made.produce(large, b"x" * size)
        made.flush()
    write(made, small, 1, range(100))
    routes = routes_of(pair.source, [small, large])
    with running(pair.source, pair.target, routes) as (_, watcher):
        watcher.wait(lambda: routes[1].target in watcher.stops, "the partition stops")
        write(made, small, 1, range(100, 200))
        wait_until_moved(watcher, pair.source, pair.target, routes[:1])
        assert "at the source's offset 2" in watcher.stops[routes[1].target]
        assert "MESSAGE_TOO_LARGE" in watcher.stops[routes[1].target]
        assert check_equal(pair, routes[:1]) == 200
        assert [len(seen.value or b"") for seen in records_of(pair.target, routes[1].target)] == [100, 200]
        with Cluster(pair.target) as cluster:
            assert fetch_offsets(cluster, GROUP)[routes[1].target].offset == 2


def test_a_topic_that_was_made_again_stops(pair: Pair) -> None:
    topic = pair.topic()
    routes = routes_of(pair.source, [topic])
    write(producer(pair.source), topic, 1, range(100))
    with running(pair.source, pair.target, routes) as (_, watcher):
        wait_until_moved(watcher, pair.source, pair.target, routes)
        admin = AdminClient({"bootstrap.servers": pair.source})
        admin.delete_topics([topic])[topic].result()
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
        write(producer(pair.source), topic, 1, range(1000, 1200))
        watcher.wait(lambda: watcher.stops, "the partition stops")
    assert "was deleted and created again" in watcher.stops[routes[0].target]
    assert len(records_of(pair.target, routes[0].target)) == 100
    again = routes_of(pair.source, [topic])
    with running(pair.source, pair.target, again) as (_, watcher):
        watcher.wait(lambda: watcher.stops, "the partition stops")
    assert "was deleted and created again" in watcher.stops[routes[0].target]
    assert len(records_of(pair.target, routes[0].target)) == 100


def test_a_position_of_another_cluster_stops(pair: Pair) -> None:
    topic = pair.topic()
    (route,) = routes_of(pair.source, [topic])
    write(producer(pair.source), topic, 1, range(100))
    with Cluster(pair.target) as cluster:
        commit_offsets(cluster, GROUP, {route.target: CommittedOffset(20, -1, '{"cluster_id":"another"}')})
    with running(pair.source, pair.target, [route]) as (_, watcher):
        watcher.wait(lambda: watcher.stops, "the partition stops")
    assert "one of the cluster 'another'" in watcher.stops[route.target]
    assert not records_of(pair.target, route.target)


def test_a_source_that_deleted_what_was_not_copied_stops_the_partition(pair: Pair) -> None:
    topic = pair.topic()
    (route,) = routes_of(pair.source, [topic])
    write(producer(pair.source), topic, 1, range(100))
    with Cluster(pair.source) as cluster:
        from odradek.clients.topics import delete_records

        delete_records(cluster, {route.source: 60})
    with Cluster(pair.target) as cluster:
        commit_offsets(cluster, GROUP, {route.target: CommittedOffset(20, -1, "")})
    with running(pair.source, pair.target, [route]) as (_, watcher):
        watcher.wait(lambda: watcher.stops, "the partition stops")
    assert "deleted 40 offsets" in watcher.stops[route.target]


def test_a_missing_target_topic_is_reported_and_copied_once_it_exists(pair: Pair) -> None:
    topic = pair.topic()
    (route,) = routes_of(pair.source, [topic], prefix=f"b{next(NUMBERS)}.")
    write(producer(pair.source), topic, 1, range(100))
    with running(pair.source, pair.target, [route]) as (_, watcher):
        watcher.wait(lambda: watcher.failures, "the lane reports the missing topic")
        assert f"{route.target[0]}-0" in watcher.failures[0]
        assert "UNKNOWN_TOPIC_OR_PARTITION" in watcher.failures[0]
        admin = AdminClient({"bootstrap.servers": pair.target})
        admin.create_topics([NewTopic(route.target[0], 1, 1)])[route.target[0]].result()
        wait_until_moved(watcher, pair.source, pair.target, [route])
    assert check_equal(pair, [route]) == 100


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_a_source_of_kafka_0_10_gives_messages_of_the_old_format(pair: Pair, codec: str) -> None:
    topic = pair.topic()
    (route,) = routes_of(pair.source, [topic])
    made = producer(pair.source, **{"compression.type": codec, "linger.ms": 20})
    for number in range(400):
        made.produce(topic, b"value %d " % number * 9, None if number % 3 else b"k", timestamp=BEGAN_MS + number)
    made.flush()
    made.produce(topic, b"x" * 900_000)  # larger than what is fetched of a partition
    made.flush()
    old = Route(route.source, route.target)
    with Cluster(pair.target) as cluster:
        commit_offsets(cluster, GROUP, {route.target: CommittedOffset(7, -1, "")})
    clusters = (lambda: OldCluster(pair.source), lambda: Cluster(pair.target))
    options = LaneOptions(partition_fetch_bytes=50_000)
    with running(pair.source, pair.target, [old], options, clusters=clusters) as (_, watcher):
        wait_until_moved(watcher, pair.source, pair.target, [route])
    assert not watcher.failures
    assert records_of(pair.target, route.target) == records_of(pair.source, route.source)[7:]


def test_a_source_of_kafka_0_10_begins_at_its_start_or_end(pair: Pair) -> None:
    for start, count in (("earliest", 150), ("latest", 50)):
        topic = pair.topic()
        (route,) = routes_of(pair.source, [topic])
        write_plain(pair.source, topic, 100)
        clusters = (lambda: OldCluster(pair.source), lambda: Cluster(pair.target))
        old = Route(route.source, route.target)
        with running(pair.source, pair.target, [old], LaneOptions(start=start), clusters=clusters) as (_, watcher):
            wait_until_moved(watcher, pair.source, pair.target, [route])
            write_plain(pair.source, topic, 50)
            wait_until_moved(watcher, pair.source, pair.target, [route])
        assert len(records_of(pair.target, route.target)) == count
