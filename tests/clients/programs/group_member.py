"""A member of a consumer group in one of the Python libraries, as a process: `group_member.py LIBRARY SETTINGS`.

Settings, as JSON: bootstrap_servers, group, topic, and for confluent-kafka protocol ("classic" or "consumer"). It prints a line
[partition, first offset, last offset] for each partition that a poll returned, and then commits. After a failed commit, for
example without a coordinator, it commits again even if no more records arrive. On SIGTERM it leaves the group and exits.
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


def report(partition: int, offsets: list[int]) -> None:
    """Print the partition and the offsets that were read."""
    print(json.dumps([partition, offsets[0], offsets[-1]]), flush=True)


def by_partition(messages: list[tuple[int, int]]) -> dict[int, list[int]]:
    """Offsets by partition."""
    offsets: dict[int, list[int]] = {}
    for partition, offset in messages:
        offsets.setdefault(partition, []).append(offset)
    return offsets


def confluent(settings: dict[str, Any]) -> None:
    """confluent-kafka, in either protocol."""
    from confluent_kafka import Consumer, KafkaError, KafkaException

    config: dict[str, Any] = {
        "bootstrap.servers": settings["bootstrap_servers"],
        "group.id": settings["group"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    if settings.get("protocol") == "consumer":
        config["group.protocol"] = "consumer"
    else:
        config |= {"partition.assignment.strategy": "range", "session.timeout.ms": SESSION_MS}
    consumer = Consumer(config)
    consumer.subscribe([settings["topic"]])
    commit_pending = False
    while not stopping:
        messages = consumer.consume(200, POLL_S)
        read = by_partition(
            [(message.partition(), message.offset()) for message in messages if message.error() is None]
        )
        for partition, offsets in read.items():
            report(partition, offsets)
        if read or commit_pending:
            try:
                consumer.commit(asynchronous=False)
                commit_pending = False
            except KafkaException as error:  # after a rebalance, the partition's next owner reads the records again
                print(error, file=sys.stderr, flush=True)
                commit_pending = error.args[0].code() != KafkaError._NO_OFFSET
    consumer.close()


def classic_options(settings: dict[str, Any]) -> dict[str, Any]:
    """The configuration keys that kafka-python and aiokafka have in common."""
    return {
        "bootstrap_servers": settings["bootstrap_servers"],
        "group_id": settings["group"],
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": SESSION_MS,
        "heartbeat_interval_ms": 1000,
    }


def kafka_python(settings: dict[str, Any]) -> None:
    """kafka-python, in the classic protocol."""
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import KafkaError

    consumer = KafkaConsumer(
        settings["topic"], partition_assignment_strategy=[RangePartitionAssignor], **classic_options(settings)
    )
    commit_pending = False
    while not stopping:
        read = consumer.poll(timeout_ms=int(POLL_S * 1000), max_records=200)
        for place, records in read.items():
            report(place.partition, [record.offset for record in records])
        if read or commit_pending:
            try:
                consumer.commit()
                commit_pending = False
            except KafkaError as error:
                print(error, file=sys.stderr, flush=True)
                commit_pending = True
    consumer.close()


async def _aiokafka(settings: dict[str, Any]) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.errors import KafkaError

    consumer = AIOKafkaConsumer(
        settings["topic"], partition_assignment_strategy=[RangePartitionAssignor], **classic_options(settings)
    )
    await consumer.start()
    commit_pending = False
    while not stopping:
        read = await consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=200)
        for place, records in read.items():
            report(place.partition, [record.offset for record in records])
        if read or commit_pending:
            try:
                await consumer.commit()
                commit_pending = False
            except KafkaError as error:
                print(error, file=sys.stderr, flush=True)
                commit_pending = True
    await consumer.stop()


def aiokafka(settings: dict[str, Any]) -> None:
    """aiokafka, in the classic protocol."""
    asyncio.run(_aiokafka(settings))


LIBRARIES = {"confluent-kafka": confluent, "kafka-python": kafka_python, "aiokafka": aiokafka}

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    LIBRARIES[sys.argv[1]](json.loads(sys.argv[2]))
