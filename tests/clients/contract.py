"""The contract between the tests and the programs that drive one client library each.

Every program is called as `PROGRAM write` or `PROGRAM read` and speaks lines of JSON; runs in a process of its own, and
shares nothing. The first line of its standard input holds its `Settings`. Then

- to `write`, a line per record: topic, partition, codec, timestamp (ms, or null: the client's clock), key, value and
  headers. The program sends them by a producer per codec, in that order, waits for `acks=all`, and prints for each
  record in the same order its topic, partition and acknowledged offset (null where the client does not tell);
- to `read`, a line per span of a partition: topic, partition, start, end. The program assigns itself these partitions,
  without a consumer group, and prints each record with `start <= offset < end`, in the order in which the client
  delivers a partition's.

Keys, values and values of headers are base64, or null. Headers are a list of pairs, since keys repeat and order counts.
A program that fails ends with a non-zero code and its reason on standard error.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TextIO

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

_REPOSITORY = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Settings:
    """How a program runs its client.

    Args:
        bootstrap_servers: `host:port`.
        idempotence: whether the producer is idempotent.
        linger_ms: how long a producer gathers a batch.
        batch_bytes: where a producer ends a batch.
        in_flight: how many requests a producer keeps under way on a connection.
        timeout_s: how long the program may take before it gives up.
    """

    bootstrap_servers: str
    idempotence: bool = True
    linger_ms: int = 10
    batch_bytes: int = 500_000
    in_flight: int = 5
    timeout_s: int = 240


@dataclass(frozen=True)
class Record:
    """A record to be written, or as it was read; `offset` and `timestamp` (ms) are None where nobody knows them yet."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None
    offset: int | None = None
    codec: str = "none"

    def to_line(self) -> str:
        """Return the record as a line of the contract."""
        fields = {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "timestamp": self.timestamp,
            "key": _to_text(self.key),
            "value": _to_text(self.value),
            "headers": [[key, _to_text(value)] for key, value in self.headers],
            "codec": self.codec,
        }
        return json.dumps(fields) + "\n"

    @classmethod
    def from_line(cls, line: str) -> Record:
        """Return the record that a line of the contract holds. Raises KeyError or ValueError if it holds none."""
        fields = json.loads(line)
        return cls(
            topic=fields["topic"],
            partition=fields["partition"],
            offset=fields.get("offset"),
            timestamp=fields.get("timestamp"),
            key=_to_bytes(fields["key"]),
            value=_to_bytes(fields["value"]),
            headers=tuple((key, _to_bytes(value)) for key, value in fields["headers"]),
            codec=fields.get("codec", "none"),
        )

    def as_read(self) -> Record:
        """Return the record as a reader can know it: the codec stays with the batch."""
        return replace(self, codec="none")


@dataclass(frozen=True)
class Span:
    """The offsets `start <= offset < end` of one partition."""

    topic: str
    partition: int
    start: int
    end: int


class ProgramFailed(AssertionError):
    """A client's program ended with an error, or did not end in time."""


def run(command: Sequence[str], mode: str, settings: Settings, lines: Iterable[str]) -> list[str]:
    """Run a program of the contract from the root of the repository and return the lines it printed.

    Args:
        command: the program and its first arguments.
        mode: `write` or `read`.
        settings: what its first line of input says.
        lines: its further lines.

    Raises:
        ProgramFailed: with what the program wrote on standard error.
    """
    text = json.dumps(asdict(settings)) + "\n" + "".join(lines)
    try:
        done = subprocess.run(
            [*command, mode],
            input=text,
            capture_output=True,
            text=True,
            cwd=_REPOSITORY,
            timeout=settings.timeout_s + 60,
        )
    except subprocess.TimeoutExpired as expired:
        errors = expired.stderr.decode(errors="replace") if isinstance(expired.stderr, bytes) else expired.stderr or ""
        raise ProgramFailed(
            f"{command} {mode} is not done after {expired.timeout} s; it said:\n{errors[-4000:]}"
        ) from None
    if done.returncode != 0:
        raise ProgramFailed(f"{command} {mode} ended with {done.returncode}; it said:\n{done.stderr[-4000:]}")
    return done.stdout.splitlines(keepends=True)


def write(command: Sequence[str], settings: Settings, records: Sequence[Record]) -> list[int | None]:
    """Have a program write `records`; return the acknowledged offset of each. Raises ProgramFailed."""
    acknowledged = [
        json.loads(line) for line in run(command, "write", settings, (record.to_line() for record in records))
    ]
    sent = [(record.topic, record.partition) for record in records]
    answered = [(each["topic"], each["partition"]) for each in acknowledged]
    if sent != answered:
        raise ProgramFailed(
            f"{command} write: {len(answered)} acknowledgements for {len(sent)} records, or in another order"
        )
    return [each["offset"] for each in acknowledged]


def read(command: Sequence[str], settings: Settings, spans: Sequence[Span]) -> dict[tuple[str, int], list[Record]]:
    """Have a program read `spans`; return each partition's records in the order delivered. Raises ProgramFailed."""
    partitions: dict[tuple[str, int], list[Record]] = {(span.topic, span.partition): [] for span in spans}
    for line in run(command, "read", settings, (json.dumps(asdict(span)) + "\n" for span in spans)):
        record = Record.from_line(line)
        partitions[record.topic, record.partition].append(record)
    return partitions


def parse_input(lines: TextIO = sys.stdin) -> tuple[Settings, Iterator[str]]:
    """Return the settings and the further lines of a program's input."""
    settings = Settings(**json.loads(next(lines)))
    return settings, iter(lines)


def print_offset(record: Record, offset: int | None) -> None:
    """Print a record's acknowledgement."""
    line: dict[str, Any] = {"topic": record.topic, "partition": record.partition, "offset": offset}
    sys.stdout.write(json.dumps(line) + "\n")


class Unread:
    """What a reading program still waits for: prints the records asked for, knows when it is done."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.spans = [Span(**json.loads(line)) for line in lines]
        self._next = {(span.topic, span.partition): span.start for span in self.spans}
        self._end = {(span.topic, span.partition): span.end for span in self.spans}

    def __bool__(self) -> bool:
        return any(offset < self._end[partition] for partition, offset in self._next.items())

    def take(self, record: Record) -> None:
        """Print `record` if its offset lies in its partition's span, and remember how far that partition is read."""
        assert record.offset is not None
        partition = record.topic, record.partition
        if record.offset < self._end[partition]:
            self._next[partition] = record.offset + 1
            sys.stdout.write(record.to_line())


def _to_text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _to_bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)
