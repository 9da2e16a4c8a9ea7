"""The contract between the tests and the programs that run transactions with one client library each, and the table
of them.

A program is called with the address of the broker, and executes one command after another: a line of JSON on standard
input, a line of JSON as the answer, which has "error" if the client reported one: the name of its kind, and a text.
Commands ("do"), with the name of a producer as "instance" in all but the last:

- "open": make a producer and initialise its transactions ("transactional_id", "timeout_ms" of transactions,
  "request_timeout_ms");
- "begin", "commit", "abort";
- "write": send "values" to "partition" of "topic" and wait for the acknowledgements;
- "offsets": send the "offset" of "partition" of "topic" for "group" to the transaction, as a client that joined no
  group;
- "close": forget the producer, without waiting for anything;
- "read": read "partitions" partitions of "topic" from their starts at read_committed until each has brought the value
  "last"; the answer has "values", a list for each partition.

A program ends with its standard input.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tests import toolchains

ANSWER_S = 150.0
REQUEST_TIMEOUT_MS = 30_000
TIMEOUT_MS = 60_000


class ClientError(Exception):
    """A client reported an error."""


@dataclass(frozen=True)
class Library:
    """A client library with transactions.

    ``second_version``: whether it speaks transaction version 2 where the broker has it. ``repeats_end``: whether it
    sends an EndTxn again that was not answered in time. ``command``: the command line without the address of the
    broker, building or fetching what it needs; skips the test if a tool is missing.
    """

    name: str
    command: Callable[[], list[str]]
    second_version: bool = False
    repeats_end: bool = True


def _python(library: str) -> Callable[[], list[str]]:
    return lambda: [sys.executable, "-W", "ignore", "-m", "tests.clients.programs.transactions", library]


def _java(version: str) -> Callable[[], list[str]]:
    return lambda: toolchains.versioned_java_command("transactions", version)


LIBRARIES = (
    Library("confluent-kafka", _python("confluent-kafka")),
    Library("aiokafka", _python("aiokafka")),
    Library("kafka-python", _python("kafka-python"), repeats_end=False),
    Library("java-4.3", _java("4.3.0"), second_version=True),
    Library("java-3.9", _java("3.9.1")),
    Library("java-2.8", _java("2.8.2")),
    Library("java-0.11", _java("0.11.0.3")),
    Library("franz-go", lambda: [str(toolchains.go_program()), "transactions"], second_version=True),
    Library("sarama", lambda: [str(toolchains.sarama_program())]),
    Library(
        "kafkajs", lambda: ["node", str(toolchains.node_program().with_name("transactions.js"))], repeats_end=False
    ),
)
BY_NAME = {library.name: library for library in LIBRARIES}


class Program:
    """A running program. A context manager, which ends it."""

    def __init__(self, library: Library, servers: str) -> None:
        self.library = library
        self._process = subprocess.Popen(
            [*library.command(), servers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=Path(__file__).resolve().parent.parent.parent,
        )

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def run(self, do: str, **fields: Any) -> Any:
        """Execute a command; the values of "read". Raises ClientError with what the client reports."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **fields}) + "\n")
        self._process.stdin.flush()
        watchdog = threading.Timer(ANSWER_S, self._process.kill)
        watchdog.start()
        try:
            line = self._process.stdout.readline()
        finally:
            watchdog.cancel()
        assert line, f"{self.library.name} ended, or did not answer {do!r} within {ANSWER_S:g} s"
        answer = json.loads(line)
        if "error" in answer:
            raise ClientError(answer["error"])
        return answer.get("values")

    def open(self, instance: str, transactional_id: str, **fields: int) -> Producer:
        """A producer with initialised transactions."""
        fields = {"timeout_ms": TIMEOUT_MS, "request_timeout_ms": REQUEST_TIMEOUT_MS} | fields
        self.run("open", instance=instance, transactional_id=transactional_id, **fields)
        return Producer(self, instance)

    def read(self, topic: str, partitions: int, last: str) -> list[list[str]]:
        """What a read_committed consumer reads from each partition before the value ``last``."""
        found: list[list[str]] = self.run("read", topic=topic, partitions=partitions, last=last)
        return found


class Producer:
    """A producer of a program. All calls raise ClientError."""

    def __init__(self, program: Program, instance: str) -> None:
        self._program = program
        self._instance = instance

    def _run(self, do: str, **fields: Any) -> None:
        self._program.run(do, instance=self._instance, **fields)

    def begin(self) -> None:
        """Begin a transaction."""
        self._run("begin")

    def write(self, topic: str, partition: int, *values: str) -> None:
        """Write values and wait for the acknowledgements."""
        self._run("write", topic=topic, partition=partition, values=values)

    def offsets(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Send the offset of a group to the transaction."""
        self._run("offsets", group=group, topic=topic, partition=partition, offset=offset)

    def commit(self) -> None:
        """Commit the transaction."""
        self._run("commit")

    def abort(self) -> None:
        """Abort the transaction."""
        self._run("abort")

    def close(self) -> None:
        """Forget the producer."""
        self._run("close")
