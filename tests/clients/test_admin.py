"""Admin requests of clients: topics are created, described, extended and deleted; offsets; unknown and invalid names."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonTopicPartition

from tests.clients.conftest import Cluster
from tests.clients.offsets import list_offset

pytestmark = [pytest.mark.xdist_group("clients"), pytest.mark.timeout(600)]

TIMEOUT_S = 90


def _error(call: Callable[[], object]) -> KafkaError:
    with pytest.raises(KafkaException) as raised:
        call()
    return raised.value.args[0]


def _create(admin: AdminClient, topic: NewTopic, **options: object) -> None:
    admin.create_topics([topic], operation_timeout=TIMEOUT_S, **options)[topic.topic].result(TIMEOUT_S)
    if not options:
        _until(lambda: topic.topic in admin.list_topics(timeout=TIMEOUT_S).topics)


def _delete(admin: AdminClient, topic: str) -> None:
    admin.delete_topics([topic], operation_timeout=TIMEOUT_S)[topic].result(TIMEOUT_S)


def _partitions(admin: AdminClient, topic: str) -> list[int]:
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(TIMEOUT_S)
    return [partition.id for partition in described.partitions]


def _now_ms() -> int:
    return int(time.time() * 1000)


def _until(met: Callable[[], bool]) -> None:
    """Repeat a request until `met`: a broker learns of the controller's changes a moment after the client."""
    deadline = time.monotonic() + TIMEOUT_S
    while not met():
        assert time.monotonic() < deadline


def _produce(cluster: Cluster, topic: str, partition: int, timestamps: list[int]) -> None:
    """Write a record per timestamp, each in a batch of its own."""
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 0})
    for timestamp in timestamps:
        producer.produce(topic, b"value", b"key", partition, timestamp=timestamp, on_delivery=delivered)
        assert producer.flush(TIMEOUT_S) == 0
    assert not failures


def test_a_topic_is_created_as_asked_and_described(cluster: Cluster) -> None:
    _create(
        cluster.admin, NewTopic("described", 4, 1, config={"retention.ms": "86400001", "max.message.bytes": "2097152"})
    )
    description = cluster.admin.describe_topics(TopicCollection(["described"]))["described"].result(TIMEOUT_S)
    assert description.name == "described"
    assert not description.is_internal
    assert str(description.topic_id) not in ("", "AAAAAAAAAAAAAAAAAAAAAA")
    assert [partition.id for partition in description.partitions] == [0, 1, 2, 3]
    brokers = {node.id for node in cluster.admin.describe_cluster().result(TIMEOUT_S).nodes}
    for partition in description.partitions:
        assert partition.leader.id in brokers
        assert [node.id for node in partition.replicas] == [node.id for node in partition.isr] == [partition.leader.id]

    resource = ConfigResource(ResourceType.TOPIC, "described")
    configs = cluster.admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert configs["retention.ms"].value == "86400001"
    assert not configs["retention.ms"].is_default
    assert configs["max.message.bytes"].value == "2097152"
    assert configs["cleanup.policy"].value == "delete"
    assert configs["cleanup.policy"].is_default


def test_a_broker_describes_its_configuration(cluster: Cluster) -> None:
    node = cluster.admin.describe_cluster().result(TIMEOUT_S).nodes[0]
    assert f"{node.host}:{node.port}" == cluster.bootstrap_servers
    resource = ConfigResource(ResourceType.BROKER, str(node.id))
    configs = cluster.admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert configs["log.index.interval.bytes"].value == "512"
    assert configs["num.partitions"].value == "2"


def test_creation_is_only_checked_when_so_asked(cluster: Cluster) -> None:
    _create(cluster.admin, NewTopic("only-checked", 1, 1), validate_only=True)
    assert "only-checked" not in cluster.admin.list_topics(timeout=TIMEOUT_S).topics


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("a/b", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("..", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("n" * 250, 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("no-partitions", 0, 1), KafkaError.INVALID_PARTITIONS),
        (NewTopic("many-replicas", 1, 3), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("bad-value", 1, 1, config={"retention.ms": "soon"}), KafkaError.INVALID_CONFIG),
        (NewTopic("bad-key", 1, 1, config={"no.such.key": "1"}), KafkaError.INVALID_CONFIG),
    ],
    ids=lambda value: value.topic[:20] if isinstance(value, NewTopic) else str(value),
)
def test_a_topic_that_cannot_be_is_refused_with_kafkas_code(cluster: Cluster, topic: NewTopic, code: int) -> None:
    assert _error(lambda: _create(cluster.admin, topic)).code() == code
    assert topic.topic not in cluster.admin.list_topics(timeout=TIMEOUT_S).topics


def test_a_topic_is_not_created_twice(cluster: Cluster) -> None:
    _create(cluster.admin, NewTopic("once", 1, 1))
    assert _error(lambda: _create(cluster.admin, NewTopic("once", 2, 1))).code() == KafkaError.TOPIC_ALREADY_EXISTS
    assert _partitions(cluster.admin, "once") == [0]


def test_partitions_are_added_and_take_records_and_are_never_taken_away(cluster: Cluster) -> None:
    _create(cluster.admin, NewTopic("growing", 1, 1))
    cluster.admin.create_partitions([NewPartitions("growing", 3)])["growing"].result(TIMEOUT_S)
    _until(lambda: _partitions(cluster.admin, "growing") == [0, 1, 2])
    _produce(cluster, "growing", 2, [_now_ms()])
    assert list_offset(cluster.admin, "growing", 2, OffsetSpec.latest())[0] == 1

    for count in (2, 3):
        futures = cluster.admin.create_partitions([NewPartitions("growing", count)])
        assert (
            _error(lambda futures=futures: futures["growing"].result(TIMEOUT_S)).code() == KafkaError.INVALID_PARTITIONS
        )
    futures = cluster.admin.create_partitions([NewPartitions("no-such-topic", 3)])
    assert _error(lambda: futures["no-such-topic"].result(TIMEOUT_S)).code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_deleted_topic_is_gone_and_its_name_is_free(cluster: Cluster) -> None:
    _create(cluster.admin, NewTopic("deleted", 2, 1))
    first = cluster.admin.describe_topics(TopicCollection(["deleted"]))["deleted"].result(TIMEOUT_S)
    _produce(cluster, "deleted", 0, [_now_ms(), _now_ms()])
    _delete(cluster.admin, "deleted")
    _until(lambda: "deleted" not in cluster.admin.list_topics(timeout=TIMEOUT_S).topics)
    _until(lambda: not (cluster.data_dir / "deleted-0").exists())
    assert _error(lambda: _partitions(cluster.admin, "deleted")).code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert _error(lambda: _delete(cluster.admin, "deleted")).code() == KafkaError.UNKNOWN_TOPIC_OR_PART

    _create(cluster.admin, NewTopic("deleted", 1, 1))
    second = cluster.admin.describe_topics(TopicCollection(["deleted"]))["deleted"].result(TIMEOUT_S)
    assert str(second.topic_id) != str(first.topic_id)
    assert list_offset(cluster.admin, "deleted", 0, OffsetSpec.latest())[0] == 0


def test_offsets_are_listed_at_the_ends_by_time_and_by_the_largest_time(cluster: Cluster) -> None:
    _create(cluster.admin, NewTopic("offsets", 1, 1))
    admin = cluster.admin
    assert list_offset(admin, "offsets", 0, OffsetSpec.earliest())[0] == 0
    assert list_offset(admin, "offsets", 0, OffsetSpec.latest())[0] == 0
    assert list_offset(admin, "offsets", 0, OffsetSpec.max_timestamp()) == (-1, -1)

    start_ms = _now_ms() - 3_600_000
    times = [start_ms + offset for offset in (100, 300, 200, 900, 400)]
    _produce(cluster, "offsets", 0, times)
    assert list_offset(admin, "offsets", 0, OffsetSpec.earliest())[0] == 0
    assert list_offset(admin, "offsets", 0, OffsetSpec.latest())[0] == 5
    assert list_offset(admin, "offsets", 0, OffsetSpec.max_timestamp()) == (3, times[3])
    # the first record that is not older
    for after_ms, number in ((0, 0), (100, 0), (101, 1), (300, 1), (301, 3), (900, 3)):
        spec = OffsetSpec.for_timestamp(start_ms + after_ms)
        assert list_offset(admin, "offsets", 0, spec) == (number, times[number]), after_ms
    assert list_offset(admin, "offsets", 0, OffsetSpec.for_timestamp(start_ms + 901)) == (-1, -1)


def test_consumers_find_offsets_by_time_over_many_segments(cluster: Cluster) -> None:
    _create(cluster.admin, NewTopic("offsets-by-time", 1, 1))
    start_ms = _now_ms() - 3_600_000
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=5, batch_size=4096)
    records = 12_000
    for number in range(records):
        producer.send("offsets-by-time", b"v" * 300, partition=0, timestamp_ms=start_ms + number * 10)
    producer.flush(TIMEOUT_S)
    producer.close()
    assert len(list((cluster.data_dir / "offsets-by-time-0").glob("*.log"))) >= 3

    partition = KafkaPythonTopicPartition("offsets-by-time", 0)
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: records}
        for number in range(0, records, 997):
            for early in (9, 0):
                result = consumer.offsets_for_times({partition: start_ms + number * 10 - early})[partition]
                assert (result.offset, result.timestamp) == (number, start_ms + number * 10)
        assert consumer.offsets_for_times({partition: start_ms + records * 10}) == {partition: None}

    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "unused", "log_level": 0})
    assert consumer.get_watermark_offsets(TopicPartition("offsets-by-time", 0), TIMEOUT_S) == (0, records)
    results = consumer.offsets_for_times([TopicPartition("offsets-by-time", 0, start_ms + 55_555)], TIMEOUT_S)
    assert results[0].offset == 5_556
    consumer.close()


def test_reading_behind_the_end_is_out_of_range(cluster: Cluster) -> None:
    _create(cluster.admin, NewTopic("short", 1, 1))
    _produce(cluster, "short", 0, [_now_ms()])
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "unused",
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition("short", 0, 100)])
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    assert message.error().code() == KafkaError._AUTO_OFFSET_RESET
    assert "out of range" in message.error().str().lower()
    consumer.close()


def test_producing_to_an_unknown_topic_creates_it(cluster: Cluster) -> None:
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
    metadata = producer.send("made-by-producing", b"value").get(TIMEOUT_S)
    producer.close()
    assert (metadata.topic, metadata.offset) == ("made-by-producing", 0)
    assert _partitions(cluster.admin, "made-by-producing") == [0, 1]


def test_asking_about_an_unknown_topic_creates_it_only_if_the_client_allows(cluster: Cluster) -> None:
    consumers = {}
    for topic, allowed in (("not-made-by-asking", False), ("made-by-asking", True)):
        settings = {"group.id": "unused", "log_level": 0, "allow.auto.create.topics": allowed}
        consumers[topic] = Consumer({"bootstrap.servers": cluster.bootstrap_servers, **settings})
        consumers[topic].assign([TopicPartition(topic, 0, 0)])
        assert consumers[topic].poll(0.5) is None
    _until(lambda: "made-by-asking" in cluster.admin.list_topics(timeout=TIMEOUT_S).topics)
    assert "not-made-by-asking" not in cluster.admin.list_topics(timeout=TIMEOUT_S).topics
    for consumer in consumers.values():
        consumer.close()


@pytest.mark.parametrize("name", ["bad name", "a/b", "n" * 250, "."])
def test_an_invalid_name_is_not_created_by_asking(cluster: Cluster, name: str) -> None:
    failures: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "message.timeout.ms": 60_000, "log_level": 0})
    producer.produce(name, b"value", on_delivery=lambda error, message: failures.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert failures[0] is not None
    assert failures[0].code() == KafkaError.TOPIC_EXCEPTION
    assert name not in cluster.admin.list_topics(timeout=TIMEOUT_S).topics
