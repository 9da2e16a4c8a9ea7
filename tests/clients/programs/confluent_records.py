"""confluent-kafka under the tests' contract: `python -m tests.clients.programs.confluent_records [BROKER_VERSION] write|read`.

With a broker version it speaks to the broker as to one of that version (0.8.2, 0.9.0, 0.10.0), without asking it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.clients.contract import Record, Settings, Unread, parse_input, print_offset


def write(settings: Settings, lines: Iterable[str]) -> None:
    """Produce every record with a producer per codec and print the offsets of the delivery reports."""
    producers: dict[str, Producer] = {}
    records = [Record.from_line(line) for line in lines]
    offsets: list[int | None] = [None] * len(records)
    failures: list[KafkaError] = []

    def delivered(index: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)
        offsets[index] = message.offset()

    for index, record in enumerate(records):
        if record.codec not in producers:
            producers[record.codec] = _producer(settings, record.codec)
        producer = producers[record.codec]
        while True:
            try:
                producer.produce(
                    record.topic,
                    partition=record.partition,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    timestamp=record.timestamp or 0,
                    on_delivery=lambda error, message, index=index: delivered(index, error, message),
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    for producer in producers.values():
        if producer.flush(settings.timeout_s):
            raise TimeoutError("not all records were acknowledged")
    if failures:
        raise KafkaException(failures[0])
    for record, offset in zip(records, offsets, strict=True):
        print_offset(record, offset)


def read(settings: Settings, lines: Iterable[str]) -> None:
    """Read the assigned spans."""
    unread = Unread(lines)
    consumer = Consumer(
        {
            "bootstrap.servers": settings.bootstrap_servers,
            "group.id": "unused",  # the library wants one; nothing is committed and no group joined
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 20,
            **_old_protocol(),
        }
    )
    consumer.assign([TopicPartition(span.topic, span.partition, span.start) for span in unread.spans])
    deadline = time.monotonic() + settings.timeout_s
    while unread:
        if time.monotonic() > deadline:
            raise TimeoutError("not all records arrived")
        for message in consumer.consume(1000, 0.1):
            if message.error() is not None:
                raise KafkaException(message.error())
            unread.take(
                Record(
                    topic=message.topic(),
                    partition=message.partition(),
                    offset=message.offset(),
                    timestamp=message.timestamp()[1],
                    key=message.key(),
                    value=message.value(),
                    headers=tuple(message.headers() or ()),
                )
            )
    consumer.close()


def _producer(settings: Settings, codec: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": settings.bootstrap_servers,
            "compression.type": codec,
            "enable.idempotence": settings.idempotence,
            "acks": "all",
            "linger.ms": settings.linger_ms,
            "batch.size": settings.batch_bytes,
            "max.in.flight.requests.per.connection": settings.in_flight,
            **_old_protocol(),
        }
    )


def _old_protocol() -> dict[str, str | bool]:
    versions = sys.argv[1:-1]
    return {"api.version.request": False, "broker.version.fallback": versions[0]} if versions else {}


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[-1]](*parse_input())
