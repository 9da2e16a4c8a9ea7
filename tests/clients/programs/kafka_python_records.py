"""kafka-python under the tests' contract: `python -m tests.clients.programs.kafka_python_records write|read`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.clients.contract import Record, Settings, Unread, parse_input, print_offset


def write(settings: Settings, lines: Iterable[str]) -> None:
    """Produce every record with a producer per codec and print the offsets of the futures."""
    producers: dict[str, KafkaProducer] = {}
    sent = []
    for line in lines:
        record = Record.from_line(line)
        if record.codec not in producers:
            producers[record.codec] = _producer(settings, record.codec)
        future = producers[record.codec].send(
            record.topic,
            partition=record.partition,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            timestamp_ms=record.timestamp,
        )
        sent.append((record, future))
    for producer in producers.values():
        producer.flush(timeout=settings.timeout_s)
    for record, future in sent:
        print_offset(record, future.get(timeout=settings.timeout_s).offset)
    for producer in producers.values():
        producer.close()


def read(settings: Settings, lines: Iterable[str]) -> None:
    """Read the assigned spans."""
    unread = Unread(lines)
    consumer = KafkaConsumer(
        bootstrap_servers=settings.bootstrap_servers,
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="none",
        fetch_max_wait_ms=20,
    )
    consumer.assign([TopicPartition(span.topic, span.partition) for span in unread.spans])
    for span in unread.spans:
        consumer.seek(TopicPartition(span.topic, span.partition), span.start)
    deadline = time.monotonic() + settings.timeout_s
    while unread:
        if time.monotonic() > deadline:
            raise TimeoutError("not all records arrived")
        for messages in consumer.poll(timeout_ms=100, max_records=5000).values():
            for message in messages:
                unread.take(
                    Record(
                        topic=message.topic,
                        partition=message.partition,
                        offset=message.offset,
                        timestamp=message.timestamp,
                        key=message.key,
                        value=message.value,
                        headers=tuple(message.headers),
                    )
                )
    consumer.close()


def _producer(settings: Settings, codec: str) -> KafkaProducer:
    return KafkaProducer(
        bootstrap_servers=settings.bootstrap_servers,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=settings.idempotence,
        acks="all",
        linger_ms=settings.linger_ms,
        batch_size=settings.batch_bytes,
        max_in_flight_requests_per_connection=settings.in_flight,
    )


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](*parse_input())
