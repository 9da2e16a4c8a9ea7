"""kafka-python 1.4.7 under the tests' contract: `python -m tests.clients.programs.old_kafka_python_records VERSION write|read`.

It speaks as to a broker of VERSION, 0.8.2 to 0.10; runs with that version of the library first in PYTHONPATH.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.clients.contract import Record, Settings, Unread, parse_input, print_offset


def write(settings: Settings, lines: Iterable[str]) -> None:
    """Produce every record with a producer per codec and print the offsets of the futures."""
    producers: dict[str, Any] = {}
    sent = []
    for line in lines:
        record = Record.from_line(line)
        if record.codec not in producers:
            producers[record.codec] = KafkaProducer(
                bootstrap_servers=settings.bootstrap_servers,
                api_version=_version(),
                compression_type=None if record.codec == "none" else record.codec,
                acks="all",
                linger_ms=settings.linger_ms,
                batch_size=settings.batch_bytes,
            )
        future = producers[record.codec].send(
            record.topic,
            partition=record.partition,
            key=record.key,
            value=record.value,
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
        api_version=_version(),
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
                    )
                )
    consumer.close()


def _version() -> tuple[int, ...]:
    return tuple(map(int, sys.argv[1].split(".")))


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[-1]](*parse_input())
