"""aiokafka under the tests' contract: `python -m tests.clients.programs.aiokafka_records write|read`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.clients.contract import Record, Settings, Unread, parse_input, print_offset


async def write(settings: Settings, lines: Iterable[str]) -> None:
    """Produce every record with a producer per codec and print the offsets of the futures."""
    producers: dict[str, AIOKafkaProducer] = {}
    sent = []
    for line in lines:
        record = Record.from_line(line)
        if record.codec not in producers:
            producers[record.codec] = await _producer(settings, record.codec)
        future = await producers[record.codec].send(
            record.topic,
            partition=record.partition,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            timestamp_ms=record.timestamp,
        )
        sent.append((record, future))
    for producer in producers.values():
        await producer.flush()
    for record, future in sent:
        print_offset(record, (await future).offset)
    for producer in producers.values():
        await producer.stop()


async def read(settings: Settings, lines: Iterable[str]) -> None:
    """Read the assigned spans."""
    unread = Unread(lines)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=settings.bootstrap_servers,
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="none",
        fetch_max_wait_ms=20,
    )
    await consumer.start()
    consumer.assign([TopicPartition(span.topic, span.partition) for span in unread.spans])
    for span in unread.spans:
        consumer.seek(TopicPartition(span.topic, span.partition), span.start)
    while unread:
        for messages in (await consumer.getmany(timeout_ms=100, max_records=5000)).values():
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
    await consumer.stop()


async def _producer(settings: Settings, codec: str) -> AIOKafkaProducer:
    # aiokafka keeps one request under way per broker: it has no setting for more
    producer = AIOKafkaProducer(
        bootstrap_servers=settings.bootstrap_servers,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=settings.idempotence,
        acks="all",
        linger_ms=settings.linger_ms,
        max_batch_size=settings.batch_bytes,
    )
    await producer.start()
    return producer


async def main(mode: str) -> None:
    """Run `write` or `read` within the time that the settings give."""
    settings, lines = parse_input()
    async with asyncio.timeout(settings.timeout_s):
        await {"write": write, "read": read}[mode](settings, lines)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
