"""Finds the anomalies in a history: what Kafka promises to transactional producers and read_committed consumers, and
was not kept.

Not anomalies, because Kafka does not promise otherwise: writes of several transactions between each other in any
order (G0, and each cycle with a ww edge); a member of a group that reads twice or leaves records to another member
around a rebalance; either outcome of a transaction whose client does not know the outcome, as long as it is the
outcome of the whole transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from tests.transactions.checker.cycles import cycles
from tests.transactions.checker.history import History, Outcome, Place, Poll, Record, Transaction, Value, Write


class Kind(Enum):
    """The kinds of anomalies."""

    ABORTED_READ = "aborted read (G1a)"
    PRECOMMITTED_READ = "precommitted read"
    UNKNOWN_VALUE = "value that nobody wrote"
    LOST_WRITE = "lost write"
    DUPLICATE = "duplicate"
    INCONSISTENT_OFFSETS = "inconsistent offsets"
    REORDERED = "reordered writes of a transaction"
    SKIPPED = "internal gap: committed record that a reader skipped"
    BACKWARD = "reader that went back"
    TORN = "torn transaction"
    CIRCULAR = "circular information flow (G1c, wr edges)"
    ZOMBIE = "commit of a fenced producer"
    HANGING = "hanging transaction"
    NOT_READ_BY_GROUP = "committed record that a group never read"
    COPIED_TWICE = "input that was processed twice"
    NOT_COPIED = "input that was not processed"
    COPY_OF_INVISIBLE = "output of an input that is not committed"


@dataclass(frozen=True)
class Anomaly:
    """An anomaly and where it is."""

    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.text}"


Found = Iterator[Anomaly]


def anomalies(history: History) -> list[Anomaly]:
    """All anomalies of a history, ordered by kind."""
    return [anomaly for check in CHECKS for anomaly in check(history)]


# -- reads -------------------------------------------------------------------------------------------------------------


def _all_reads(history: History) -> Iterator[tuple[str, Place, Record]]:
    """All records that read_committed consumers received, the last consumer of each log included."""
    for name, poll in history.polls():
        for record in poll.records:
            yield name, poll.place, record
    for place, log in history.logs.items():
        for record in log.committed:
            yield "the last reader", place, record


def aborted_reads(history: History) -> Found:
    """A consumer received a record of a transaction that was not committed."""
    for name, place, record in _once(_all_reads(history)):
        transaction = history.transactions.get(record.value.transaction)
        if transaction is not None and transaction.outcome is Outcome.ABORTED:
            yield Anomaly(Kind.ABORTED_READ, f"{name} read {_at(place, record)} of {transaction}")


def unknown_values(history: History) -> Found:
    """A log or a consumer has a record that no transaction wrote to this partition."""
    written = {
        (write.place, write.value) for transaction in history.transactions.values() for write in transaction.writes
    }
    logs = (("the log", place, record) for place, log in history.logs.items() for record in log.everything)
    for name, place, record in _once([*_all_reads(history), *logs]):
        if (place, record.value) not in written:
            yield Anomaly(Kind.UNKNOWN_VALUE, f"{name} has {_at(place, record)}, which was not sent there")


def precommitted_reads(history: History) -> Found:
    """A consumer received a record before the client asked to commit its transaction."""
    for name, poll in history.polls():
        for record in poll.records:
            transaction = history.transactions.get(record.value.transaction)
            if transaction is None or transaction.commit_sent_ns is None:
                continue  # not committed: an aborted read, if anything
            early_ms = (transaction.commit_sent_ns - poll.received_ns) / 1e6
            if early_ms > 0:
                text = f"{name} read {_at(poll.place, record)} {early_ms:.1f} ms before the commit of {transaction}"
                yield Anomaly(Kind.PRECOMMITTED_READ, text)


def backward_and_skipped(history: History) -> Found:
    """A consumer of assigned partitions received an offset again, or did not receive a committed record before a
    later one.

    A consumer reads each partition from offset 0 on, and ends where its last record is.
    """
    for reader in history.readers:
        if reader.group is None:
            yield from _order(history, reader.name, reader.polls)


def _order(history: History, name: str, polls: list[Poll]) -> Found:
    by_place: dict[Place, list[Record]] = defaultdict(list)
    for poll in polls:
        by_place[poll.place] += poll.records
    for place, records in by_place.items():
        for before, record in pairwise(records):
            if record.offset <= before.offset:
                yield Anomaly(Kind.BACKWARD, f"{name} read {_at(place, record)} after offset {before.offset}")
        if not records or place not in history.logs:
            continue
        read = {record.offset for record in records}
        for record in history.logs[place].committed:
            if record.offset < records[-1].offset and record.offset not in read:
                writer = history.transactions.get(record.value.transaction)
                yield Anomaly(Kind.SKIPPED, f"{name} did not read {_at(place, record)} of {writer}")


def not_read_by_groups(history: History) -> Found:
    """No member of a group received a committed record."""
    for group, topics in history.groups.items():
        read = {
            (poll.place, record.offset)
            for reader in history.readers
            if reader.group == group
            for poll in reader.polls
            for record in poll.records
        }
        for place, log in history.logs.items():
            if place.topic in topics:
                for record in log.committed:
                    if (place, record.offset) not in read:
                        yield Anomaly(Kind.NOT_READ_BY_GROUP, f"{group} did not read {_at(place, record)}")


# -- writes ------------------------------------------------------------------------------------------------------------


def lost_writes(history: History) -> Found:
    """An acknowledged record of a committed transaction is not readable, or an acknowledged record is not in the log
    at all.
    """
    everything = {place: {record.value for record in log.everything} for place, log in history.logs.items()}
    committed = {place: {record.value for record in log.committed} for place, log in history.logs.items()}
    for transaction, write in _acknowledged(history):
        if write.place not in history.logs:
            continue
        if write.value not in everything[write.place]:
            yield Anomaly(Kind.LOST_WRITE, f"{_sent(write)} of {transaction} is not in the log")
        elif transaction.outcome is Outcome.COMMITTED and write.value not in committed[write.place]:
            yield Anomaly(Kind.LOST_WRITE, f"{_sent(write)} of {transaction} cannot be read")


def duplicates(history: History) -> Found:
    """A log has a value twice."""
    for place, log in history.logs.items():
        offsets: dict[Value, list[int]] = defaultdict(list)
        for record in log.everything:
            offsets[record.value].append(record.offset)
        for value, found in offsets.items():
            if len(found) > 1:
                yield Anomaly(Kind.DUPLICATE, f"{place} has {value} at the offsets {found}")


def inconsistent_offsets(history: History) -> Found:
    """Two clients saw different records at an offset, or a record is not at the offset that its producer was told."""
    seen: dict[tuple[Place, int], tuple[Value, str]] = {}
    told = (
        ("its producer", write.place, Record(write.offset, write.value))
        for _, write in _acknowledged(history)
        if write.offset is not None and write.offset >= 0
    )
    logs = (("the log", place, record) for place, log in history.logs.items() for record in log.everything)
    for name, place, record in [*told, *logs, *_all_reads(history)]:
        value, other = seen.setdefault((place, record.offset), (record.value, name))
        if value != record.value:
            yield Anomaly(Kind.INCONSISTENT_OFFSETS, f"{_at(place, record)} for {name}, and {value} for {other}")


def reordered(history: History) -> Found:
    """The records of a transaction are in a partition in another order than they were sent."""
    for place, log in history.logs.items():
        newest: dict[int, Record] = {}
        for record in log.everything:
            before = newest.get(record.value.transaction)
            if before is not None and record.value.number < before.value.number:
                yield Anomaly(Kind.REORDERED, f"{_at(place, record)} behind {before.value} at offset {before.offset}")
            newest[record.value.transaction] = record


def torn(history: History) -> Found:
    """One record of a transaction is readable, and another one that was acknowledged is not."""
    committed = {place: {record.value for record in log.committed} for place, log in history.logs.items()}
    for transaction in history.transactions.values():
        writes = [write for write in transaction.writes if write.place in committed]
        visible = [write for write in writes if write.value in committed[write.place]]
        hidden = [write for write in writes if write.offset is not None and write.value not in committed[write.place]]
        if visible and hidden:
            text = f"{transaction}: {_list(visible)} can be read, {_list(hidden)} not"
            yield Anomaly(Kind.TORN, text)


def circular(history: History) -> Found:
    """The read dependencies between transactions form a cycle."""
    edges: dict[int, set[int]] = defaultdict(set)
    for transaction in history.transactions.values():
        for poll in transaction.reads:
            for record in poll.records:
                writer = history.transactions.get(record.value.transaction)
                if writer is not None and writer is not transaction and _may_be_committed(writer, transaction):
                    edges[writer.number].add(transaction.number)
    for cycle in cycles(edges):
        yield Anomaly(Kind.CIRCULAR, " -> ".join(str(history.transactions[number]) for number in cycle))


def zombies(history: History) -> Found:
    """A producer asked to commit when a newer instance had been initialised, and committed."""
    for transaction in history.transactions.values():
        fenced_ns, sent_ns = transaction.fenced_ns, transaction.commit_sent_ns
        if transaction.outcome is Outcome.COMMITTED and fenced_ns is not None and (sent_ns or 0) > fenced_ns:
            yield Anomaly(Kind.ZOMBIE, str(transaction))


def hanging(history: History) -> Found:
    """The last stable offset did not reach the log end offset though all transactions have ended or timed out."""
    for place, log in history.logs.items():
        if log.last_stable < log.end:
            first = next((record for record in log.everything if record.offset >= log.last_stable), None)
            record = f", where {first.value} of {history.transactions.get(first.value.transaction)} is" if first else ""
            text = f"{place} has the last stable offset {log.last_stable} and the log end offset {log.end}{record}"
            yield Anomaly(Kind.HANGING, text)


# -- consume, transform, produce ----------------------------------------------------------------------------------------


def copies(history: History) -> Found:
    """A committed input has not exactly one committed output, or a committed output has no committed input."""
    made_from = {
        write.value: write.input
        for transaction in history.transactions.values()
        for write in transaction.writes
        if write.input is not None
    }
    for output_topic, input_topic in history.copies.items():
        outputs: dict[Value, list[str]] = defaultdict(list)
        for place, record in _committed_of(history, output_topic):
            source = made_from.get(record.value)
            if source is not None:
                transaction = history.transactions[record.value.transaction]
                outputs[source].append(f"{_at(place, record)} of {transaction}")
        inputs = {record.value: _at(place, record) for place, record in _committed_of(history, input_topic)}
        for value, text in inputs.items():
            if value not in outputs:
                yield Anomaly(Kind.NOT_COPIED, text)
        for value, made in outputs.items():
            if len(made) > 1:
                yield Anomaly(Kind.COPIED_TWICE, f"{inputs.get(value, value)}: {', '.join(made)}")
            if value not in inputs:
                yield Anomaly(Kind.COPY_OF_INVISIBLE, f"{made[0]} was made from {value}")


CHECKS: tuple[Callable[[History], Found], ...] = (
    aborted_reads, precommitted_reads, unknown_values, torn, lost_writes, duplicates, inconsistent_offsets, reordered,
    backward_and_skipped, circular, zombies, hanging, not_read_by_groups, copies,
)  # fmt: skip


# -- parts -------------------------------------------------------------------------------------------------------------


def _acknowledged(history: History) -> Iterator[tuple[Transaction, Write]]:
    for transaction in history.transactions.values():
        for write in transaction.writes:
            if write.offset is not None:
                yield transaction, write


def _committed_of(history: History, topic: str) -> Iterator[tuple[Place, Record]]:
    for place, log in history.logs.items():
        if place.topic == topic:
            for record in log.committed:
                yield place, record


def _may_be_committed(*transactions: Transaction) -> bool:
    return all(transaction.outcome is not Outcome.ABORTED for transaction in transactions)


def _once(reads: Iterable[tuple[str, Place, Record]]) -> Iterator[tuple[str, Place, Record]]:
    """The first read of each record of each partition."""
    seen: set[tuple[Place, Record]] = set()
    for name, place, record in reads:
        if (place, record) not in seen:
            seen.add((place, record))
            yield name, place, record


def _at(place: Place, record: Record) -> str:
    return f"{record.value} at offset {record.offset} of {place}"


def _sent(write: Write) -> str:
    return f"{write.value}, acknowledged at offset {write.offset} of {write.place},"


def _list(writes: list[Write]) -> str:
    return ", ".join(f"{write.value} in {write.place} at {write.offset}" for write in writes)
