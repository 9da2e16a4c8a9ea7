"""Transactions with the Python libraries under the contract of `tests.clients.transactions`: `transactions.py LIBRARY
SERVERS`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

PATIENCE_S = 90.0
Command = dict[str, Any]


class Librdkafka:
    """confluent-kafka."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._producers: dict[str, Any] = {}

    async def open(self, command: Command) -> None:
        from confluent_kafka import Producer

        producer = self._producers[command["instance"]] = Producer(
            {
                "bootstrap.servers": self._servers,
                "transactional.id": command["transactional_id"],
                "transaction.timeout.ms": command["timeout_ms"],
                "message.timeout.ms": command["timeout_ms"],
                "socket.timeout.ms": min(command["request_timeout_ms"], command["timeout_ms"] - 1),
                "linger.ms": 0,
                "log_level": 0,
                "error_cb": lambda error: None,
            }
        )
        producer.init_transactions(PATIENCE_S)

    async def begin(self, command: Command) -> None:
        self._producers[command["instance"]].begin_transaction()

    async def write(self, command: Command) -> None:
        from confluent_kafka import KafkaException

        errors: list[Any] = []
        producer = self._producers[command["instance"]]
        for value in command["values"]:
            producer.produce(
                command["topic"],
                value.encode(),
                partition=command["partition"],
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )
        producer.flush(PATIENCE_S)
        if errors:
            raise KafkaException(errors[0])

    async def offsets(self, command: Command) -> None:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": command["group"], "log_level": 0})
        places = [TopicPartition(command["topic"], command["partition"], command["offset"])]
        producer = self._producers[command["instance"]]
        producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), PATIENCE_S)
        consumer.close()

    async def commit(self, command: Command) -> None:
        self._producers[command["instance"]].commit_transaction(PATIENCE_S)

    async def abort(self, command: Command) -> None:
        self._producers[command["instance"]].abort_transaction(PATIENCE_S)

    async def close(self, command: Command) -> None:
        self._producers.pop(command["instance"]).purge()

    async def read(self, command: Command) -> list[list[str]]:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "not-joined",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 20,
            }
        )
        consumer.assign([TopicPartition(command["topic"], n, OFFSET_BEGINNING) for n in range(command["partitions"])])
        found = Found(command)
        while not found.complete():
            for message in consumer.consume(100, 0.1):
                if message.error() is None:
                    found.take(message.partition(), message.value())
        consumer.close()
        return found.values


class AioKafka:
    """aiokafka."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._producers: dict[str, Any] = {}

    async def open(self, command: Command) -> None:
        from aiokafka import AIOKafkaProducer

        producer = self._producers[command["instance"]] = AIOKafkaProducer(
            bootstrap_servers=self._servers,
            transactional_id=command["transactional_id"],
            transaction_timeout_ms=command["timeout_ms"],
            request_timeout_ms=command["request_timeout_ms"],
        )
        await producer.start()

    async def begin(self, command: Command) -> None:
        await self._producers[command["instance"]].begin_transaction()

    async def write(self, command: Command) -> None:
        producer = self._producers[command["instance"]]
        sent = [
            await producer.send(command["topic"], value.encode(), partition=command["partition"])
            for value in command["values"]
        ]
        for future in sent:
            await asyncio.wait_for(future, PATIENCE_S)

    async def offsets(self, command: Command) -> None:
        from aiokafka import TopicPartition

        place = TopicPartition(command["topic"], command["partition"])
        producer = self._producers[command["instance"]]
        await producer.send_offsets_to_transaction({place: command["offset"]}, command["group"])

    async def commit(self, command: Command) -> None:
        await self._producers[command["instance"]].commit_transaction()

    async def abort(self, command: Command) -> None:
        await self._producers[command["instance"]].abort_transaction()

    async def close(self, command: Command) -> None:
        self._producers.pop(command["instance"])  # its stop would wait for what a fenced producer cannot do

    async def read(self, command: Command) -> list[list[str]]:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._servers,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=20,
        )
        await consumer.start()
        consumer.assign([TopicPartition(command["topic"], n) for n in range(command["partitions"])])
        found = Found(command)
        while not found.complete():
            for messages in (await consumer.getmany(timeout_ms=100)).values():
                for message in messages:
                    found.take(message.partition, message.value)
        await consumer.stop()
        return found.values


class KafkaPython:
    """kafka-python."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._producers: dict[str, Any] = {}

    async def open(self, command: Command) -> None:
        from kafka import KafkaProducer

        producer = self._producers[command["instance"]] = KafkaProducer(
            bootstrap_servers=self._servers,
            transactional_id=command["transactional_id"],
            transaction_timeout_ms=command["timeout_ms"],
            request_timeout_ms=command["request_timeout_ms"],
            max_block_ms=PATIENCE_S * 1000,
        )
        producer.init_transactions()

    async def begin(self, command: Command) -> None:
        self._producers[command["instance"]].begin_transaction()

    async def write(self, command: Command) -> None:
        producer = self._producers[command["instance"]]
        sent = [
            producer.send(command["topic"], value.encode(), partition=command["partition"])
            for value in command["values"]
        ]
        for future in sent:
            future.get(PATIENCE_S)

    async def offsets(self, command: Command) -> None:
        from kafka import TopicPartition
        from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata

        offsets = {TopicPartition(command["topic"], command["partition"]): OffsetAndMetadata(command["offset"], "", -1)}
        group = ConsumerGroupMetadata(command["group"], -1, "", None)
        self._producers[command["instance"]].send_offsets_to_transaction(offsets, group)

    async def commit(self, command: Command) -> None:
        self._producers[command["instance"]].commit_transaction()

    async def abort(self, command: Command) -> None:
        self._producers[command["instance"]].abort_transaction()

    async def close(self, command: Command) -> None:
        self._producers.pop(command["instance"]).close(0)

    async def read(self, command: Command) -> list[list[str]]:
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(
            bootstrap_servers=self._servers,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=20,
        )
        consumer.assign([TopicPartition(command["topic"], n) for n in range(command["partitions"])])
        found = Found(command)
        while not found.complete():
            for messages in consumer.poll(timeout_ms=100).values():
                for message in messages:
                    found.take(message.partition, message.value)
        consumer.close()
        return found.values


class Found:
    """What a reader has found, up to the last value of each partition."""

    def __init__(self, command: Command) -> None:
        self._last = command["last"].encode()
        self.values: list[list[str]] = [[] for _ in range(command["partitions"])]
        self._left = set(range(command["partitions"]))
        self._deadline = time.monotonic() + PATIENCE_S

    def take(self, partition: int, value: bytes) -> None:
        if value == self._last:
            self._left.discard(partition)
        else:
            self.values[partition].append(value.decode())

    def complete(self) -> bool:
        if self._left and time.monotonic() > self._deadline:
            raise TimeoutError(f"the partitions {self._left} were not read to the end: {self.values}")
        return not self._left


LIBRARIES = {"confluent-kafka": Librdkafka, "aiokafka": AioKafka, "kafka-python": KafkaPython}


async def main(library: str, servers: str) -> None:
    """Execute the commands of standard input."""
    logging.disable()
    client = LIBRARIES[library](servers)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command = json.loads(line)
        method: Callable[[Command], Awaitable[Any]] = getattr(client, command["do"])
        answer = {}
        try:
            values = await method(command)
            if values is not None:
                answer["values"] = values
        except Exception as error:
            answer["error"] = f"{type(error).__name__}: {error}"
        print(json.dumps(answer), flush=True)
    os._exit(0)  # without waiting for transactions that a test left open


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
