"""MirrorMaker 2 in both directions, exactly once, with kills: records, partitions, settings, rights, offsets of groups."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from odradek.testing import Broker
from tests.clients.kafka_peer import Peer
from tests.ecosystem.mirror_maker import MirrorMaker, until_mirrored
from tests.ecosystem.records import Reader, assert_equal
from tests.faults import process_faults
from tests.waiting import until

pytestmark = [pytest.mark.xdist_group("mirror-maker"), pytest.mark.timeout(900), pytest.mark.java]

SEED = 20261127
PARTITIONS = 3
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
AT_ONCE = 2000
READER = "User:reader"
PATIENCE_S = 120.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(AUTHORIZER | {"num.network.threads": "2"}, directory=tmp_path / "broker") as started:
        yield started


class Cluster:
    """A cluster that MirrorMaker copies from and to. ``alias``: MirrorMaker's name for it."""

    def __init__(self, alias: str, servers: str) -> None:
        self.alias = alias
        self.servers = servers
        self._admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})

    def create(self, topic: str, **settings: str) -> None:
        """Create a topic and wait until it is there."""
        made = self._admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=settings)], operation_timeout=60)
        made[topic].result(PATIENCE_S)

    def write(self, topic: str, start_ms: int, keyed: bool) -> None:
        """Write `AT_ONCE` records with keys, headers and timestamps, some of each without a value, in every codec.

        :param keyed: every record has a key, as a compacted topic needs it.
        """
        rng = random.Random(f"{topic} {start_ms}")
        refused = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                refused.append(error)

        for codec in CODECS:
            settings = {"compression.type": codec, "linger.ms": 20, "log_level": 0}
            producer = Producer({"bootstrap.servers": self.servers, **settings})
            for number in range(AT_ONCE // len(CODECS)):
                headers: list[tuple[str, str | bytes | None]] = [
                    ("codec", codec.encode()),
                    ("n", None),
                    ("n", b"%d" % number),
                ]
                producer.produce(
                    topic,
                    key=None if number % 7 == 0 and not keyed else f"key {number % 50}".encode(),
                    value=None if number % 11 == 10 and number % 7 else rng.randbytes(20) * rng.randrange(8),
                    headers=headers[: number % 4],
                    partition=rng.randrange(PARTITIONS),
                    timestamp=start_ms + rng.randrange(60_000),
                    on_delivery=delivered,
                )
                producer.poll(0)
            assert producer.flush(PATIENCE_S) == 0
        assert not refused, refused[0]

    def write_a_few(self, topic: str) -> None:
        """Write a record to each partition."""
        producer = Producer({"bootstrap.servers": self.servers, "log_level": 0})
        for partition in range(PARTITIONS):
            producer.produce(topic, b"last", b"key", partition)
        assert producer.flush(PATIENCE_S) == 0

    def settings(self, topic: str) -> dict[str, str]:
        """The settings of a topic."""
        (future,) = self._admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        return {name: entry.value for name, entry in future.result(60).items()}

    def allow_reading(self, topic: str) -> None:
        """Allow `READER` to read a topic."""
        exact, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
        right = AclBinding(ResourceType.TOPIC, topic, exact, READER, "*", AclOperation.READ, allow)
        self._admin.create_acls([right])[right].result(60)

    def rights(self, topic: str) -> list[AclOperation]:
        """What `READER` may do with a topic."""
        exact, any_type = ResourcePatternType.LITERAL, AclPermissionType.ANY
        wanted = AclBindingFilter(ResourceType.TOPIC, topic, exact, READER, "*", AclOperation.ANY, any_type)
        return [right.operation for right in self._admin.describe_acls(wanted).result(60)]

    def commit(self, group: str, topic: str, offsets: Sequence[int]) -> None:
        """Commit offsets of a group that has no members, by partition."""
        places = [TopicPartition(topic, number, offset) for number, offset in enumerate(offsets)]
        with self._consumer(group) as consumer:
            for place in consumer.commit(offsets=places, asynchronous=False) or []:
                assert place.error is None, place

    def committed(self, group: str, topic: str) -> list[int]:
        """The committed offsets of a group, by partition."""
        with self._consumer(group) as consumer:
            places = consumer.committed([TopicPartition(topic, number) for number in range(PARTITIONS)], 60)
            return [place.offset for place in places]

    @contextmanager
    def _consumer(self, group: str) -> Iterator[Consumer]:
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": group, "log_level": 0})
        try:
            yield consumer
        finally:
            consumer.close()


def until_copied(source: Cluster, topic: str, target: Cluster, maker: MirrorMaker) -> None:
    """Wait until a copy has as many records as its topic; they must be equal, in order, but for their offsets."""
    count, copy = 2 * AT_ONCE, f"{source.alias}.{topic}"
    with Reader(source.servers, topic, PARTITIONS) as original, Reader(target.servers, copy, PARTITIONS) as mirror:
        original.until(count)
        until(lambda: mirror.read() >= count, lambda: f"{mirror.read()} of {count}: {maker.log()}", PATIENCE_S)
        assert_equal(mirror.contents(), original.contents())


def until_alike(source: Cluster, topic: str, target: Cluster, settings: dict[str, str]) -> None:
    """Wait until a copy has the settings and the rights of its topic."""
    copy = f"{source.alias}.{topic}"
    until(lambda: settings.items() <= target.settings(copy).items(), lambda: f"{target.settings(copy)}", PATIENCE_S)
    until(lambda: target.rights(copy) == [AclOperation.READ], lambda: f"{target.rights(copy)}", PATIENCE_S)


def check_offsets(source: Cluster, topic: str, target: Cluster, maker: MirrorMaker) -> None:
    """Move a group that has read all records: in the copy it continues with the next one.

    MirrorMaker delays an offset sync while others are in flight, and forgets it when the partition's next one comes. The one of
    the last of many records may therefore be missing, but not that of a single record.
    """
    source.write_a_few(topic)
    copy, group = f"{source.alias}.{topic}", f"readers of {topic}"
    with Reader(target.servers, copy, PARTITIONS) as mirror:
        mirror.until(2 * AT_ONCE + PARTITIONS)
        ends = [len(records) for records in mirror.records]
        positions = [records[-1][0] + 1 for records in mirror.records]
    source.commit(group, topic, ends)
    wanted = ", ".join(f"{copy}-{number}={position}" for number, position in enumerate(positions))
    found = until_mirrored(target.servers, source.alias, group, f"{{{wanted}}}")
    assert found["upstream"] == f"[{source.alias}]"
    assert found["hops"] == "1"
    assert found["heartbeats"] == f"[heartbeats, {source.alias}.heartbeats]"
    assert found["checkpoints"] == f"[{source.alias}.checkpoints.internal]"
    assert found["remote"] == f"[{source.alias}.heartbeats, {copy}]"
    until(lambda: target.committed(group, copy) == positions, lambda: f"{group} follows: {maker.log()}", PATIENCE_S)


def mirror_both_ways(broker: Broker, other_servers: str, directory: Path) -> None:
    """Copy between this broker and another cluster, with kills of MirrorMaker and of the broker's processes."""
    rng = random.Random(SEED)
    # recent, because a control batch is of now: a record that is older than segment.ms would be in a segment that is compacted
    start_ms = int(time.time() * 1000) - 600_000
    other, ours = Cluster("other", other_servers), Cluster("ours", broker.bootstrap_servers)
    topics = {
        "orders": (other, ours, {"retention.ms": "-1", "max.message.bytes": "2000000"}),
        "states": (ours, other, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.9"}),
    }
    for topic, (source, _, settings) in topics.items():
        source.create(topic, **settings)
        source.allow_reading(topic)
        source.write(topic, start_ms, keyed=topic == "states")
    clusters = {"other": other.servers, "ours": ours.servers}
    with MirrorMaker(directory / "mm2", clusters) as maker:
        with Reader(ours.servers, "other.orders", PARTITIONS) as copy:
            until(lambda: copy.read() > 0, lambda: f"the copy begins: {maker.log()}", PATIENCE_S)
        maker.kill()
        print(process_faults.kill_one(broker, rng, "coordinator"))
        for topic, (source, _, _) in topics.items():
            source.write(topic, start_ms + 100_000, keyed=topic == "states")
        maker.start()
        print(process_faults.kill_one(broker, rng, "worker"))
        for topic, (source, target, settings) in topics.items():
            until_copied(source, topic, target, maker)
            until_alike(source, topic, target, settings)
            check_offsets(source, topic, target, maker)
        maker.stop()


def test_both_ways_between_two_brokers_of_ours(broker: Broker, tmp_path: Path) -> None:
    with Broker(AUTHORIZER, directory=tmp_path / "other") as other:
        mirror_both_ways(broker, other.bootstrap_servers, tmp_path)


def test_both_ways_between_kafka_and_this_broker(broker: Broker, tmp_path: Path) -> None:
    with Peer(tmp_path / "kafka", AUTHORIZER) as kafka:
        mirror_both_ways(broker, kafka.bootstrap_servers, tmp_path)
