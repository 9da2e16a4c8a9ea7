"""Clients of a round that use librdkafka: a transactional producer, a reader of assigned partitions, and members of a
group.
"""

from __future__ import annotations

import random
import time
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.transactions.checker.history import Outcome, Place, Poll, Record, Transaction, Value, Write
from tests.transactions.rounds.scene import Client, Scene

CALL_S = 60.0
CONNECTING: dict[str, Any] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 1000,
    "log_level": 0,
    "error_cb": lambda error: None,
}


class LibraryWriter(Client):
    """Writes transactions with librdkafka's producer, which speaks transaction version 1."""

    def __init__(self, scene: Scene, name: str, seed: int, *ending: object) -> None:
        super().__init__(scene, name, *ending)  # type: ignore[arg-type]
        self.rng = random.Random(seed)
        self.producer: Producer | None = None

    def begin(self) -> None:
        self._renew()

    def _renew(self) -> None:
        scene = self.scene
        while not self.ending.is_set():
            self.producer = None
            self.producer = Producer(
                CONNECTING
                | {
                    "bootstrap.servers": scene.bootstrap_servers,
                    "transactional.id": f"{scene.name}-{self.name}",
                    "transaction.timeout.ms": max(scene.timeout_ms, 2000),
                    "socket.timeout.ms": max(int(scene.timing.answer_s * 1000), 300),
                    "message.timeout.ms": max(scene.timeout_ms, 2000),
                    "linger.ms": 0,
                }
            )
            try:
                self.producer.init_transactions(CALL_S)
            except KafkaException as error:
                scene.note(f"librdkafka init: {error.args[0].name()}")
            else:
                return

    def step(self) -> None:
        assert self.producer is not None
        transaction = self.scene.take(Transaction(self.scene.number(), f"{self.scene.name}-{self.name}"))
        commit = self.rng.random() < 0.8
        try:
            self.producer.begin_transaction()
            for number in range(self.rng.randrange(1, 5)):
                place = self.rng.choice(self.scene.written)
                write = Write(place, Value(transaction.number, number))
                transaction.writes.append(write)
                self.producer.produce(
                    place.topic,
                    write.value.encode(),
                    partition=place.partition,
                    on_delivery=lambda error, message, write=write: _delivered(write, error, message),
                )
                if self.rng.random() < 0.3:
                    self.producer.flush(CALL_S)
            if commit:
                self.producer.flush(CALL_S)
                transaction.commit_sent_ns = time.monotonic_ns()
                transaction.outcome = Outcome.UNKNOWN
                self._until_final(self.producer.commit_transaction)
                transaction.outcome = Outcome.COMMITTED
            else:
                self._until_final(self.producer.abort_transaction)
        except KafkaException as raised:
            error: KafkaError = raised.args[0]
            transaction.note = error.str()
            self.scene.note(f"librdkafka: {error.name()}")
            self._recover(transaction, error)
        else:
            self.scene.note(f"librdkafka: {transaction.outcome.value}")

    def _recover(self, transaction: Transaction, error: KafkaError) -> None:
        assert self.producer is not None
        if error.txn_requires_abort() and not error.fatal():
            try:
                self._until_final(self.producer.abort_transaction)
            except KafkaException as other:
                self.scene.note(f"librdkafka abort: {other.args[0].name()}")
            else:
                return
        self._renew()

    def _until_final(self, call: Any) -> None:
        """Repeat a call as long as librdkafka says that it may be repeated."""
        deadline = time.monotonic() + CALL_S
        while True:
            try:
                return call(CALL_S)
            except KafkaException as raised:
                if not raised.args[0].retriable() or time.monotonic() > deadline:
                    raise

    def end(self) -> None:
        self.producer = None


def _delivered(write: Write, error: KafkaError | None, message: Message) -> None:
    if error is None:
        offset = message.offset()
        write.offset = -1 if offset is None else offset


class LibraryReader(Client):
    """Reads with librdkafka's consumer: assigned partitions from their starts on, or as a member of a group."""

    def __init__(self, scene: Scene, name: str, *ending: object, group: str | None = None) -> None:
        super().__init__(scene, name, *ending)  # type: ignore[arg-type]
        self.into = scene.add_reader(name, group)
        self.group = group

    def begin(self) -> None:
        places = [*self.scene.written, *self.scene.output]
        self.consumer = Consumer(
            CONNECTING
            | {
                "bootstrap.servers": self.scene.bootstrap_servers,
                "group.id": self.group or "unused",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                "socket.timeout.ms": max(int(self.scene.timing.answer_s * 1000), 300),
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
            }
        )
        if self.group is None:
            self.consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in places])
        else:
            self.consumer.subscribe(sorted({place.topic for place in places}))

    def end(self) -> None:
        self.consumer.close()

    def step(self) -> None:
        messages = self.consumer.consume(200, 0.1)
        received_ns = time.monotonic_ns()
        polls: dict[Place, Poll] = {}
        for message in messages:
            if message.error() is None:
                place = Place(message.topic(), message.partition())
                record = Record(message.offset(), Value.decode(message.value()))
                polls.setdefault(place, Poll(place, [], received_ns)).records.append(record)
        self.into.polls += polls.values()
        if polls and self.group is not None:
            try:
                self.consumer.commit(asynchronous=False)
            except KafkaException as error:
                self.scene.note(f"group commit: {error.args[0].name()}")
