"""What the clients of one run did and saw: transactions, reads, and the logs at the end.

All times are of one monotonic clock, in ns. Each value is written by one transaction only, and is unique.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Value(NamedTuple):
    """The value of a record: the number of its transaction, and the number of the record in the transaction."""

    transaction: int
    number: int

    def encode(self) -> bytes:
        """The value as bytes of a record."""
        return b"%d.%d" % self

    @classmethod
    def decode(cls, data: bytes) -> Value:
        """The value of a record. Raises ValueError if the bytes are none."""
        transaction, number = data.split(b".")
        return cls(int(transaction), int(number))

    def __str__(self) -> str:
        return f"{self.transaction}.{self.number}"


class Outcome(Enum):
    """The outcome of a transaction as its client knows it."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    """The client never asked for a commit, or each attempt to commit was refused."""
    UNKNOWN = "unknown"
    """The client asked for a commit, and an answer was lost, or did not tell what happened."""


@dataclass
class Write:
    """A record that a transaction appended. ``offset`` is None if the client does not know that it was appended, -1
    if the client knows it, but not where."""

    place: Place
    value: Value
    offset: int | None = None
    input: Value | None = (
        None  # of a transaction that consumes, transforms and produces: the value from which it was made
    )


class Record(NamedTuple):
    """A record as a reader received it."""

    offset: int
    value: Value


@dataclass
class Poll:
    """Records of a partition that a reader received at once, in order."""

    place: Place
    records: list[Record]
    received_ns: int


@dataclass
class Transaction:
    """A transaction of a client.

    ``commit_sent_ns``: the time just before the first request to commit was sent; None if there was none. ``reads``:
    the records that the client received while the transaction was open, as part of it. ``fenced_ns``: the time when a
    newer instance of the producer had been initialised; None if there was none while the transaction was open.
    """

    number: int
    producer: str
    writes: list[Write] = field(default_factory=list)
    reads: list[Poll] = field(default_factory=list)
    outcome: Outcome = Outcome.ABORTED
    commit_sent_ns: int | None = None
    fenced_ns: int | None = None
    note: str = ""  # what happened, for reports

    def __str__(self) -> str:
        return (
            f"transaction {self.number} of {self.producer} ({self.outcome.value}{', ' if self.note else ''}{self.note})"
        )


@dataclass
class Reader:
    """A read_committed consumer: of assigned partitions, from offset 0 on without a seek; or a member of ``group``."""

    name: str
    group: str | None = None
    polls: list[Poll] = field(default_factory=list)


@dataclass
class Log:
    """A partition after all clients have ended.

    ``end``: the log end offset; ``last_stable``: the last stable offset after all time-outs; ``committed`` and
    ``everything``: all records, as read_committed and read_uncommitted consumers receive them.
    """

    end: int
    last_stable: int
    committed: list[Record]
    everything: list[Record]


@dataclass
class History:
    """What the clients of one run did and saw.

    ``groups``: by group, the topics that its members must have read to their ends. ``copies``: topics whose values
    were made from the values of another topic, each from exactly one: by output topic, the input topic.
    """

    transactions: dict[int, Transaction] = field(default_factory=dict)
    readers: list[Reader] = field(default_factory=list)
    logs: dict[Place, Log] = field(default_factory=dict)
    groups: dict[str, frozenset[str]] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)

    def polls(self) -> Iterator[tuple[str, Poll]]:
        """What every client received before the end, and the client's name."""
        for reader in self.readers:
            for poll in reader.polls:
                yield reader.name, poll
        for transaction in self.transactions.values():
            for poll in transaction.reads:
                yield f"transaction {transaction.number}", poll
