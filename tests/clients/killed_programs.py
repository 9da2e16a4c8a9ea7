"""What tests of programs with transactions share: programs and a broker that are killed, and a reader of what is committed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.faults import process_faults
from tests.transactions.broker_under_test import STARTERS, UnderTest

PEER = os.environ.get("ODRADEK_TEST_PEER", "odradek")
"""`kafka` puts Apache Kafka in the broker's place, as control; it is not killed."""
SETTINGS: dict[str, str | int] = {
    "log.segment.bytes": 1 << 20,
    "num.partitions": 3,
    # as in Kafka 3.9, whose smoke test of Kafka Streams writes records of the day after tomorrow
    "log.message.timestamp.after.max.ms": 2**63 - 1,
}
PATIENCE_S = 240.0
KINDS = ("coordinator", "worker", "all")
"""What is killed of the broker: one process of a kind, or all of them."""


@contextmanager
def started_broker(directory: Path) -> Iterator[UnderTest]:
    """The broker under test, Odradek or Apache Kafka."""
    with STARTERS[PEER](directory, SETTINGS) as started:
        yield started


def address(broker: UnderTest) -> str:
    """The broker's own address: nothing is delayed here."""
    return f"{broker.server[0]}:{broker.server[1]}"


@contextmanager
def running(
    command: list[str], log: Path, stdin: int = subprocess.DEVNULL, cwd: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A program whose output goes to a file, and which is killed at the end."""
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, stdin=stdin, cwd=cwd)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


class Programs:
    """Programs that are killed and started again."""

    def __init__(self, commands: list[list[str]], directory: Path, stack: ExitStack) -> None:
        self._commands = commands
        self._directory = directory
        self._stack = stack
        self._processes = [self._start(number) for number in range(len(commands))]

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        return self._stack.enter_context(running(self._commands[number], self.log(number)))

    def log(self, number: int) -> Path:
        """What a program printed."""
        return self._directory / f"program-{number}.log"

    def kill(self, number: int) -> None:
        """Kill a program (SIGKILL), and start it again."""
        self._processes[number].kill()
        self._processes[number].wait()
        self._processes[number] = self._start(number)

    def close(self, number: int) -> None:
        """Let a program end in order (SIGTERM), and start it again."""
        self._processes[number].send_signal(signal.SIGTERM)
        self._processes[number].wait(PATIENCE_S)
        self._processes[number] = self._start(number)

    def look(self) -> None:
        """Start programs again that have ended, as a service manager does."""
        for number, process in enumerate(self._processes):
            if process.poll() is not None:
                self._processes[number] = self._start(number)

    def logs(self) -> str:
        """The ends of what the programs printed."""
        return "\n".join(self.log(number).read_text()[-1500:] for number in range(len(self._commands)))


def disturb(broker: UnderTest, rng: random.Random, kind: str) -> str:
    """Kill a process of the broker, or all of them (`KINDS`)."""
    if broker.broker is None:
        return "nothing"
    if kind == "all":
        return process_faults.kill_group(broker.broker, rng)
    return process_faults.kill_one(broker.broker, rng, kind)


def has_open_transaction(broker: UnderTest, topic: str, partitions: int) -> bool:
    """Whether a transaction is open in a partition of a topic."""
    admin = AdminClient({"bootstrap.servers": address(broker), "log_level": 0})
    asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}
    # the committed end first: it is never behind the end, whatever is written between the two requests
    ends = []
    for isolation in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
        found = admin.list_offsets(asked, isolation_level=isolation, request_timeout=PATIENCE_S)
        ends.append({place.partition: future.result(PATIENCE_S).offset for place, future in found.items()})
    return ends[0] != ends[1]


class CommittedRecords:
    """Reads a topic at read_committed as it grows. ``records``: key and value of each record, by partition."""

    def __init__(self, broker: UnderTest, topic: str, partitions: int) -> None:
        self.records: list[list[tuple[bytes | None, bytes]]] = [[] for _ in range(partitions)]
        self._consumer = Consumer(
            {
                "bootstrap.servers": address(broker),
                "group.id": "unused",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
                "error_cb": lambda error: None,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])

    def read(self) -> int:
        """Read on; the number of records so far."""
        for message in self._consumer.consume(1000, 0.1):
            error = message.error()
            if error is None:
                self.records[message.partition()].append((message.key(), message.value()))
            else:
                assert error.code() != KafkaError.OFFSET_OUT_OF_RANGE, error
        return sum(map(len, self.records))

    def values(self) -> list[list[str]]:
        """The values, which are text, by partition."""
        return [[value.decode() for _, value in partition] for partition in self.records]

    def close(self) -> None:
        self._consumer.close()
