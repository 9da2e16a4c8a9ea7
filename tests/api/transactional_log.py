"""The log of a partition with transactions, for tests of readers, and a model that knows which records are committed.

The tests append as a follower, so that they can choose every batch and every marker.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from odradek.storage.batch import (
    ABORT,
    COMMIT,
    TRANSACTIONAL,
    Record,
    RecordBatch,
    build_batch,
    build_end_marker,
    read_batches,
)

EPOCH = 1
Step = tuple[Any, ...]


@dataclass
class Decided:
    """A transaction that was committed or aborted."""

    producer: int
    first_offset: int
    marker: int
    aborted: bool


@dataclass
class TransactionalLog:
    """The batches of a log, and what the model knows of them. `values` has the offset and value of each record.

    Steps: ("plain", count), ("data", producer, count), ("abort", producer), ("commit", producer).
    """

    end: int = 0
    data: bytes = b""
    open: dict[int, int] = field(default_factory=dict)
    decided: list[Decided] = field(default_factory=list)
    values: list[tuple[int, int, bytes]] = field(default_factory=list)  # offset, producer or -1, value
    sequences: dict[int, int] = field(default_factory=dict)

    def take(self, steps: Iterable[Step], size: int = 20) -> bytes:
        """Append the batches of `steps` to the model; their bytes."""
        added = b"".join(self._batch(step, size) for step in steps)
        self.data += added
        return added

    def _batch(self, step: Step, size: int) -> bytes:
        place = {"base_offset": self.end, "partition_leader_epoch": EPOCH}
        if step[0] in ("abort", "commit"):
            producer = step[1]
            first = self.open.pop(producer, -1)
            if first >= 0:
                self.decided.append(Decided(producer, first, self.end, step[0] == "abort"))
            self.end += 1
            kind = ABORT if step[0] == "abort" else COMMIT
            identity = {"producer_id": producer, "producer_epoch": 0, "coordinator_epoch": 0}
            return build_end_marker(kind, timestamp=1000 + self.end - 1, **identity, **place)
        producer, count = (step[1], step[2]) if step[0] == "data" else (-1, step[1])
        records = []
        for number in range(count):
            value = b"%d" % (self.end + number)
            records.append(Record(value=value.ljust(size, b"."), timestamp=1000 + self.end + number))
            self.values.append((self.end + number, producer, records[-1].value))
        if producer >= 0:
            self.open.setdefault(producer, self.end)
            sequence = self.sequences.get(producer, 0)
            self.sequences[producer] = sequence + count
            place |= {
                "producer_id": producer,
                "producer_epoch": 0,
                "base_sequence": sequence,
                "attributes": TRANSACTIONAL,
            }
        self.end += count
        return build_batch(records, **place)

    def committed(self, start: int, end: int) -> list[tuple[int, bytes]]:
        """The records in [start, end) that a reader of committed records gets; `end` is at most the last stable offset."""
        return [
            (offset, value)
            for offset, producer, value in self.values
            if start <= offset < end and self._stays(offset, producer)
        ]

    def _stays(self, offset: int, producer: int) -> bool:
        if producer < 0:
            return True
        (found,) = (one for one in self.decided if one.producer == producer and one.first_offset <= offset < one.marker)
        return not found.aborted

    def aborted(self, start: int, end: int) -> set[tuple[int, int]]:
        """(producer, first offset) of the aborted transactions with records in [start, end)."""
        return {
            (one.producer, one.first_offset)
            for one in self.decided
            if one.aborted and one.marker >= start and one.first_offset < end
        }

    @property
    def first_open(self) -> int:
        """The first offset of the oldest open transaction; the log end if there is none."""
        return min(self.open.values(), default=self.end)


def filtered(records: bytes, aborted: Sequence[Any] | None, start: int) -> list[tuple[int, bytes]]:
    """(offset, value) of the records of a response that a Kafka consumer at read_committed returns: it drops markers, and the
    batches of the listed producers from the first offset in the list to the abort marker."""
    waiting = [(one.first_offset, one.producer_id) for one in aborted or ()]
    heapq.heapify(waiting)
    dropped: set[int] = set()
    out = []
    for batch in read_batches(records):
        while waiting and waiting[0][0] <= batch.last_offset:
            dropped.add(heapq.heappop(waiting)[1])
        if batch.is_control:
            if _is_abort(batch):
                dropped.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in dropped):
            out += [(record.offset, record.value) for record in batch.records() if record.offset >= start]
    return out


def _is_abort(batch: RecordBatch) -> bool:
    return int.from_bytes(batch.records()[0].key[2:4], "big") == ABORT
