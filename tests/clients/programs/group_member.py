"""A member of a consumer group in one of the Python libraries, as a process: `group_member.py LIBRARY SETTINGS`.

Settings, as JSON: bootstrap_servers, group, topic, and for confluent-kafka protocol ("classic" or "consumer"). It prints a line
[partition, first offset, last offset] for what each poll brought and commits behind it, again where that failed: without a
coordinator, say, and nothing more may come to be read. SIGTERM makes it leave in order.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from typing import Any

POLL_S = 0.2
SESSION_MS = 6000
stopping = False


def stop(*_: object) -> None:
    """End after the poll that is under way."""
    global stopping
    stopping = True


def tell(partition: int, offsets: list[int]) -> None:
    """Say what was read."""
    print(json.dumps([partition, offsets[0], offsets[-1]]), flush=True)


def by_partition(messages: list[tuple[int, int]]) -> dict[int, list[int]]:
    """Offsets by partition."""
    found: dict[int, list[int]] = {}
    for partition, offset in messages:
        found.setdefault(partition, []).append(offset)
    return found


def confluent(given: dict[str, Any]) -> None:
    """confluent-kafka, in either protocol."""
    from confluent_kafka import Consumer, KafkaError, KafkaException

    config: dict[str, Any] = {
        "bootstrap.servers": given["bootstrap_servers"],
        "group.id": given["group"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    if given.get("protocol") == "consumer":
        config["group.protocol"] = "consumer"
    else:
        config |= {"partition.assignment.strategy": "range", "session.timeout.ms": SESSION_MS}
    consumer = Consumer(config)
    consumer.subscribe([given["topic"]])
    owed = False
    while not stopping:
        messages = consumer.consume(200, POLL_S)
        read = by_partition([(one.partition(), one.offset()) for one in messages if one.error() is None])
        for partition, offsets in read.items():
            tell(partition, offsets)
        if read or owed:
            try:
                consumer.commit(asynchronous=False)
                owed = False
            except KafkaException as error:  # if a rebalance came between, who has the partition next reads it again
                print(error, file=sys.stderr, flush=True)
                owed = error.args[0].code() != KafkaError._NO_OFFSET
    consumer.close()


def classic_options(given: dict[str, Any]) -> dict[str, Any]:
    """What the two libraries in Python call alike."""
    return {
        "bootstrap_servers": given["bootstrap_servers"],
        "group_id": given["group"],
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": SESSION_MS,
        "heartbeat_interval_ms": 1000,
    }


def kafka_python(given: dict[str, Any]) -> None:
    """kafka-python, in the classic protocol."""
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import KafkaError

    consumer = KafkaConsumer(
        given["topic"], partition_assignment_strategy=[RangePartitionAssignor], **classic_options(given)
    )
    owed = False
    while not stopping:
        read = consumer.poll(timeout_ms=int(POLL_S * 1000), max_records=200)
        for place, records in read.items():
            tell(place.partition, [one.offset for one in records])
        if read or owed:
            try:
                consumer.commit()
                owed = False
            except KafkaError as error:
                print(error, file=sys.stderr, flush=True)
                owed = True
    consumer.close()


async def _aiokafka(given: dict[str, Any]) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.errors import KafkaError

    consumer = AIOKafkaConsumer(
        given["topic"], partition_assignment_strategy=[RangePartitionAssignor], **classic_options(given)
    )
    await consumer.start()
    owed = False
    while not stopping:
        read = await consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=200)
        for place, records in read.items():
            tell(place.partition, [one.offset for one in records])
        if read or owed:
            try:
                await consumer.commit()
                owed = False
            except KafkaError as error:
                print(error, file=sys.stderr, flush=True)
                owed = True
    await consumer.stop()


def aiokafka(given: dict[str, Any]) -> None:
    """aiokafka, in the classic protocol."""
    asyncio.run(_aiokafka(given))


LIBRARIES = {"confluent-kafka": confluent, "kafka-python": kafka_python, "aiokafka": aiokafka}

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    LIBRARIES[sys.argv[1]](json.loads(sys.argv[2]))
