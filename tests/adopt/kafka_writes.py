"""Writes data with a real Kafka before its adoption, and reads everything back from any broker."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.committing import commit
from tests.markers import wait_for_markers

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = 400
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "plain": (3, {}),
    "compacted": (1, {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}),
    "txn": (2, {}),
    "deleted": (1, {"retention.ms": "-1"}),
    "gone": (1, {}),
}
LONGEST_TRANSACTION_MS = 900_000
"""The largest that Kafka allows: of transactions that stay open while other things happen, however slow the machine is."""
KAFKA_CONFIG: dict[str, str | int] = {
    "log.segment.bytes": 1 << 20,
    "log.index.interval.bytes": 256,
    "log.cleaner.backoff.ms": 100,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
}

#: By topic and partition: log start offset, log end offset, records.
Contents = dict[tuple[str, int], tuple[int, int, list[tuple[Any, ...]]]]


def write(servers: str) -> None:
    """Every codec, idempotent and transactional producers, compaction, deleted records, a deleted topic, a group."""
    admin = AdminClient({"bootstrap.servers": servers})
    wishes = [NewTopic(name, count, config=config) for name, (count, config) in TOPICS.items()]
    for future in admin.create_topics(wishes).values():
        future.result()
    for codec in CODECS:
        append(servers, codec, codec)
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "t"})
    producer.init_transactions()
    for aborted in (False, True, False):
        producer.begin_transaction()
        for number in range(50):
            producer.produce("txn", f"{aborted}-{number}".encode(), key=str(number))
        producer.flush()
        if aborted:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    wait_for_markers(servers, "txn")
    commit(servers, "g", "plain", 0, 7)
    for future in admin.delete_records([TopicPartition("deleted", 0, RECORDS + 10)]).values():
        future.result()
    for future in admin.delete_topics(["gone"]).values():
        future.result()


def append(servers: str, word: str, codec: str) -> None:
    """Write RECORDS more to each of three topics with an idempotent producer."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "compression.type": codec})
    for number in range(RECORDS):
        for topic in ("plain", "compacted", "deleted"):
            value = f"{word} {number} ".encode() * 20
            producer.produce(topic, value, key=str(number % 7), headers={"word": word.encode()})
    assert producer.flush(60) == 0


def read(servers: str, isolation: str = "read_committed") -> Contents:
    """All records of the existing topics of TOPICS."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # each partition is read to its end on its own
            "isolation.level": isolation,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
        }
    )
    found: Contents = {}
    known = consumer.list_topics(timeout=90).topics
    for topic in sorted(set(known) & set(TOPICS)):
        for partition in sorted(known[topic].partitions):
            place = TopicPartition(topic, partition)
            start, end = consumer.get_watermark_offsets(place, timeout=90)
            found[topic, partition] = (start, end, _records(consumer, topic, partition, start))
    consumer.close()
    return found


def _records(consumer: Consumer, topic: str, partition: int, start: int) -> list[tuple[Any, ...]]:
    consumer.assign([TopicPartition(topic, partition, start)])
    records = []
    while True:
        message = consumer.poll(90)
        assert message is not None, f"{topic}-{partition} gives nothing for 90 s"
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            return records
        headers = tuple(message.headers() or ())
        records.append((message.offset(), message.key(), message.value(), message.timestamp(), headers))


def group_offset(servers: str) -> int:
    """The offset that the group committed for plain-0."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "enable.auto.commit": False})
    (found,) = consumer.committed([TopicPartition("plain", 0)], timeout=90)
    consumer.close()
    assert found.error is None
    return found.offset


def fingerprint(directory: Path) -> dict[str, tuple[int, int, str]]:
    """Size, time of change and digest of every file, and the names of all directories."""
    return {
        str(path.relative_to(directory)): (
            (0, path.stat().st_mtime_ns, "")
            if path.is_dir()
            else (path.stat().st_size, path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        )
        for path in sorted(directory.rglob("*"))
    }
