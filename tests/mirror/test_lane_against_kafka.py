"""A lane from Kafka 4.3 to Odradek and on to Kafka: every record is equal in the end, and compacted logs keep their records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.mirror.routes import LaneOptions
from odradek.testing import Broker
from tests.clients.kafka_peer import Peer
from tests.mirror.lanes import Watcher, offsets_of, records_of, routes_of, running, wait_until_moved
from tests.mirror.test_lane import CODECS, producer, write
from tests.waiting import until

CONFIG = {
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 2,
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 2,
    "group.initial.rebalance.delay.ms": 0,
    "auto.create.topics.enable": "false",
    "log.cleaner.backoff.ms": 100,
    "log.retention.ms": -1,
}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.001",
    "segment.ms": "200",
    "delete.retention.ms": "86400000",
}


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with (
        Peer(tmp_path_factory.mktemp("kafka"), CONFIG) as kafka,
        Broker({"log.cleaner.backoff.ms": 100, "log.retention.ms": -1}) as ours,
    ):
        yield {"kafka": kafka.bootstrap_servers, "ours": ours.bootstrap_servers}


def create(servers: str, name: str, partitions: int = 1, **config: str) -> None:
    made = {key.replace("_", "."): value for key, value in config.items()}
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, partitions, 1, config=made)])[name].result()


def write_transactions(servers: str, topic: str, partitions: int) -> None:
    writer = Producer({"bootstrap.servers": servers, "transactional.id": f"t-{topic}"})
    writer.init_transactions()
    for number in range(6):
        writer.begin_transaction()
        write(writer, topic, partitions, range(10_000 + 100 * number, 10_000 + 100 * number + 30))
        if number % 3 == 1:
            writer.abort_transaction()
        else:
            writer.commit_transaction()


def mirror(source: str, target: str, routes: Any, exactly_once: bool = True) -> None:
    watcher = Watcher()
    with running(source, target, routes, LaneOptions(fetch_wait_ms=100, exactly_once=exactly_once), watcher):
        if exactly_once:
            wait_until_moved(watcher, source, target, routes)
        else:
            watcher.wait(
                lambda: len(watcher.at) == len(routes) and all(at[0] >= at[1] for at in watcher.at.values()), "all"
            )
    assert not watcher.stops


def test_a_round_trip_over_odradek_to_kafka_is_equal_for_every_codec(sides: dict[str, str]) -> None:
    names = [f"round-{codec}" for codec in CODECS]
    for name, codec in zip(names, CODECS, strict=True):
        create(sides["kafka"], name, 2)
        create(sides["ours"], f"a.{name}", 2)
        create(sides["kafka"], f"b.a.{name}", 2)
        write(producer(sides["kafka"], **{"compression.type": codec}), name, 2, range(1000))
        write_transactions(sides["kafka"], name, 2)
        write(producer(sides["kafka"], **{"compression.type": codec}), name, 2, range(1000, 1200))
    there = routes_of(sides["kafka"], names)
    mirror(sides["kafka"], sides["ours"], there)
    back = routes_of(sides["ours"], [f"a.{name}" for name in names], prefix="b.")
    mirror(sides["ours"], sides["kafka"], back)
    for route, next_route in zip(there, back, strict=True):
        original = records_of(sides["kafka"], route.source)
        assert len(original) == 600 + 4 * 15
        assert records_of(sides["ours"], route.target) == original
        assert records_of(sides["kafka"], next_route.target) == original


@pytest.mark.parametrize("source", ["kafka", "ours"])
def test_compacted_topics_with_gaps_are_copied(sides: dict[str, str], source: str) -> None:
    target = "ours" if source == "kafka" else "kafka"
    names = [f"compacted-{source}-{codec}" for codec in ("none", "lz4", "zstd")]
    for name in names:
        create(sides[source], name, **COMPACTED)
        create(sides[target], f"a.{name}", cleanup_policy="compact")
        made = producer(sides[source], **{"compression.type": name.rsplit("-", 1)[1], "linger.ms": 50})
        for number in range(400):
            made.produce(name, b"value %d" % number, b"key %d" % (number % 40 if number % 3 else number))
        made.flush()

    def compacted() -> bool:
        for name in names:
            # each record begins another segment after segment.ms, so that the ones before can be compacted
            made = producer(sides[source])
            made.produce(name, b"last", b"roll")
            made.flush()
        return all(len(offsets_of(sides[source], (name, 0))) < 300 for name in names)

    until(compacted, "the cleaner leaves gaps in all topics")
    routes = routes_of(sides[source], names)
    mirror(sides[source], sides[target], routes)
    for route in routes:
        latest = {seen.key: seen for seen in records_of(sides[source], route.source)}
        copied = records_of(sides[target], route.target)
        assert {seen.key: seen for seen in copied} == latest
        assert all(seen.codec == latest[seen.key].codec for seen in copied if seen.key != b"roll")


def test_log_append_time_of_kafka_is_kept_as_consumers_see_it(sides: dict[str, str]) -> None:
    create(sides["kafka"], "stamped", message_timestamp_type="LogAppendTime")
    create(sides["ours"], "a.stamped")
    write(producer(sides["kafka"], **{"compression.type": "zstd"}), "stamped", 1, range(300))
    routes = routes_of(sides["kafka"], ["stamped"], convert=True)
    mirror(sides["kafka"], sides["ours"], routes)
    assert records_of(sides["ours"], ("a.stamped", 0)) == records_of(sides["kafka"], ("stamped", 0))


def test_without_transactions_kafka_takes_the_records_too(sides: dict[str, str]) -> None:
    create(sides["ours"], "plain")
    create(sides["kafka"], "a.plain")
    write(producer(sides["ours"]), "plain", 1, range(500))
    routes = routes_of(sides["ours"], ["plain"])
    mirror(sides["ours"], sides["kafka"], routes, exactly_once=False)
    assert records_of(sides["kafka"], ("a.plain", 0)) == records_of(sides["ours"], ("plain", 0))


def test_many_batches_of_one_record_do_not_block_kafka(sides: dict[str, str]) -> None:
    create(sides["ours"], "small")
    create(sides["kafka"], "a.small")
    made = producer(sides["ours"], **{"batch.num.messages": 1, "linger.ms": 0, "queue.buffering.max.messages": 0})
    for number in range(30_000):
        made.produce("small", b"%d" % number)
    made.flush()
    routes = routes_of(sides["ours"], ["small"])
    watcher = Watcher()
    options = LaneOptions(fetch_wait_ms=100, partition_fetch_bytes=16 << 20, fetch_max_bytes=16 << 20)
    with running(sides["ours"], sides["kafka"], routes, options, watcher):
        wait_until_moved(watcher, sides["ours"], sides["kafka"], routes)
    assert not watcher.failures
    assert len(watcher.batches) > 20_000
    assert [seen.value for seen in records_of(sides["kafka"], ("a.small", 0))] == [b"%d" % at for at in range(30_000)]
