"""Records that tests send, and what a load made of them: compared record by record."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.dataset
from confluent_kafka import Consumer, Producer, TopicPartition
from deltalake import DeltaTable

from tests.markers import wait_for_markers

_TYPES = {1: "CreateTime", 2: "LogAppendTime"}


class Loaded(NamedTuple):
    """A record with everything that must be equal."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def send(servers: str, topic: str, first: int, count: int, **settings: Any) -> None:
    """Send records of all kinds: without a key, without a value, with headers."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, **settings})
    for number in range(first, first + count):
        producer.produce(
            topic,
            key=None if number % 5 == 0 else f"k{number}".encode(),
            value=None if number % 7 == 0 else f"value {number}".encode() * (1 + number % 3),
            headers=[("n", str(number).encode()), ("n", None), ("", b"")] if number % 3 == 0 else None,
        )
        producer.poll(0)
    assert producer.flush(60) == 0


def send_transactions(servers: str, topic: str, first: int, count: int) -> None:
    """Send `count` records in transactions, every second of which is aborted; the aborted ones come on top."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": f"load-{first}"})
    producer.init_transactions(60)
    for number in range(first, first + count, 10):
        for commit in (False, True):
            producer.begin_transaction()
            for part in range(number, min(number + 10, first + count)):
                producer.produce(topic, value=f"{'value' if commit else 'aborted'} {part}".encode())
            producer.commit_transaction(60) if commit else producer.abort_transaction(60)
    wait_for_markers(servers, topic)


def in_topic(servers: str, topic: str, partitions: int, **settings: Any) -> list[Loaded]:
    """All committed records of a topic, as another client reads them."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "check", "enable.partition.eof": True, **settings})
    places = [TopicPartition(topic, number, 0) for number in range(partitions)]
    consumer.assign(places)
    found, left = [], set(range(partitions))
    while left:
        (message,) = consumer.consume(1, 60) or (None,)
        assert message is not None, "no record within a minute"
        if message.error() is not None:
            left.discard(message.partition())
            continue
        kind, at_ms = message.timestamp()
        headers = tuple(tuple(header) for header in message.headers() or ())
        found.append(
            Loaded(
                topic, message.partition(), message.offset(), at_ms, _TYPES[kind], message.key(), message.value(), headers
            )
        )  # fmt: skip
    consumer.close()
    return sorted(found)


def in_files(version: Path) -> list[Loaded]:
    """All records that a reader of the files finds."""
    files = [str(path) for path in sorted(version.glob("topic=*/date=*/*.parquet"))]
    if not files:
        return []
    return _loaded(pyarrow.dataset.dataset(files, partition_base_dir=str(version), partitioning="hive"))


def in_table(version: Path) -> list[Loaded]:
    """All records that a reader of the Delta table finds."""
    if not DeltaTable.is_deltatable(str(version)):
        return []
    return _loaded(DeltaTable(version).to_pyarrow_dataset())


def _loaded(dataset: pyarrow.dataset.Dataset) -> list[Loaded]:
    rows = dataset.to_table().to_pylist()
    return sorted(
        Loaded(
            str(row["topic"]), row["partition"], row["offset"], round(row["timestamp"].timestamp() * 1000),
            row["timestamp_type"], row["key"], row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"] or ()),
        )
        for row in rows
    )  # fmt: skip
