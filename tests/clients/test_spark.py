"""Spark with its own Kafka connector, batch and Structured Streaming, reads from and writes to this broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from odradek.testing import Broker
from tests import toolchains
from tests.api.group_talk import GroupTalk
from tests.clients.secured import secured_broker
from tests.spark_sessions import local_session

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(900), pytest.mark.java]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(directory=tmp_path_factory.mktemp("spark")) as started:
        with GroupTalk(started.host, started.port) as wire:
            for topic in ("numbers", "copies", "batches", "transactions", "committed"):
                wire.create(topic, 3)
        yield started


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """A session of one JVM in this process."""
    jars = ",".join(str(path) for path in toolchains.spark_kafka_jars().glob("*.jar"))
    session = local_session(
        {
            "spark.jars": jars,
            # the JVM outlives the broker: its producers must not connect to the port, which another broker may use by then
            "spark.kafka.producer.cache.timeout": "1s",
            "spark.kafka.producer.cache.evictorThreadRunInterval": "1s",
        }
    )
    yield session
    session.stop()


def write(spark: Any, broker: Broker, topic: str, first: int, count: int) -> None:
    """Write numbers as a batch."""
    numbers = spark.range(first, first + count).selectExpr("cast(id as string) as key", "cast(id as string) as value")
    numbers.write.format("kafka").options(
        **{"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic}
    ).save()


def values(spark: Any, broker: Broker, topic: str, **options: str) -> list[int]:
    """The values in a topic, read as a batch, in ascending order."""
    settings = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}
    frame = spark.read.format("kafka").options(**settings | options).load()
    return sorted(int(row.value) for row in frame.selectExpr("cast(value as string) as value").collect())


def test_a_batch_is_written_and_read(spark: Any, broker: Broker) -> None:
    write(spark, broker, "batches", 0, 1000)
    assert values(spark, broker, "batches") == [*range(1000)]
    # also by the consumer's older way of finding offsets, which has a group
    legacy = {"spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "true"}
    for name, value in legacy.items():
        spark.conf.set(name, value)
    assert values(spark, broker, "batches", groupIdPrefix="legacy") == [*range(1000)]
    for name in legacy:
        spark.conf.unset(name)


def test_a_stream_is_copied_and_goes_on_from_its_checkpoint(spark: Any, broker: Broker, tmp_path: Path) -> None:
    for start in (0, 500):
        write(spark, broker, "numbers", start, 500)
        stream = (
            spark.readStream.format("kafka")
            .options(**{"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "numbers"})
            .options(startingOffsets="earliest", maxOffsetsPerTrigger="200", failOnDataLoss="true")
            .load()
        )
        query = (
            stream.selectExpr("key", "value")
            .writeStream.format("kafka")
            .options(**{"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "copies"})
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(400), "the stream does not end"
        assert query.exception() is None
        assert values(spark, broker, "copies") == [*range(start + 500)]


def test_a_stream_reads_what_is_committed(spark: Any, broker: Broker, tmp_path: Path) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "spark"})
    producer.init_transactions(90)
    for first, commit in ((0, True), (10_000, False), (100, True), (20_000, False)):
        producer.begin_transaction()
        for number in range(first, first + 100):
            producer.produce("transactions", str(number), partition=number % 3)
        producer.commit_transaction(90) if commit else producer.abort_transaction(90)
    isolation = {"kafka.isolation.level": "read_committed"}
    assert values(spark, broker, "transactions", **isolation) == [*range(200)]
    query = (
        spark.readStream.format("kafka")
        .options(**{"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "transactions"} | isolation)
        .options(startingOffsets="earliest", maxOffsetsPerTrigger="60", failOnDataLoss="true")
        .load()
        .selectExpr("key", "value")
        .writeStream.format("kafka")
        .options(**{"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "committed"})
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(400), "the stream does not end"
    assert query.exception() is None
    assert values(spark, broker, "committed") == [*range(200)]


def test_a_batch_is_written_and_read_over_sasl_ssl(spark: Any, tmp_path: Path) -> None:
    with secured_broker(tmp_path, secured=2) as secured:
        options = {f"kafka.{key}": value for key, value in secured.java_settings().items()}
        options["kafka.bootstrap.servers"] = secured.servers
        numbers = spark.range(0, 100).selectExpr("cast(id as string) as value")
        numbers.write.format("kafka").options(**options, topic="secured").save()
        read = spark.read.format("kafka").options(**options, subscribe="secured", startingOffsets="earliest").load()
        values = sorted(int(row.value) for row in read.selectExpr("cast(value as string) as value").collect())
        assert values == [*range(100)]
