"""A simple writer of logs in Kafka's format, with which the tests of loading and recovery compare.

It keeps in memory everything that a reader of its files should find.
"""

from __future__ import annotations

from pathlib import Path

from odradek.storage.batch import ABORT, CONTROL, RecordBatch, read_batch
from odradek.storage.checkpoints import write_leader_epochs
from odradek.storage.file_names import INDEX, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX, segment_file_name
from odradek.storage.indexes import OFFSET_ENTRY, TIME_ENTRY, AbortedTransaction
from odradek.storage.old_messages import is_old, read_message
from odradek.storage.producer_snapshot import ProducerBatch, ProducerState
from tests.storage.log_files import write_snapshot


def read_old(data: bytes) -> tuple[RecordBatch, int]:
    """A message of format v0 or v1, which a log treats as a batch: its offset is the last offset."""
    message, size = read_message(data)
    return RecordBatch(message.offset, -1, 0, 0, -1, message.timestamp, -1, -1, -1, 1, b""), size


class SegmentWriter:
    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.log = b""
        self.positions: list[tuple[int, int, int, int]] = []  # base offset, last offset, position, max timestamp
        self.index: list[tuple[int, int]] = []
        self.times: list[tuple[int, int]] = []
        self.txns: list[AbortedTransaction] = []
        self.largest = (-1, -1)

    def add_time(self) -> None:
        if self.largest[0] > (self.times[-1][0] if self.times else -1):
            self.times.append(self.largest)

    def index_bytes(self) -> bytes:
        return b"".join(OFFSET_ENTRY.pack(offset - self.base_offset, position) for offset, position in self.index)

    def time_bytes(self) -> bytes:
        return b"".join(TIME_ENTRY.pack(time, offset - self.base_offset) for time, offset in self.times)

    def txn_bytes(self) -> bytes:
        return b"".join(map(bytes, self.txns))


class LogWriter:
    """Appends batches (bytes that carry their base offset and leader epoch) and writes the files."""

    def __init__(self, directory: Path, interval: int = 200, base_offset: int = 0) -> None:
        self.directory = directory
        self.interval = interval
        self.segments = [SegmentWriter(base_offset)]
        self.end = base_offset
        self.epochs: list[tuple[int, int]] = []
        self.producers: dict[int, ProducerState] = {}
        self.snapshots: dict[int, list[ProducerState]] = {}

    def append(self, data: bytes) -> None:
        segment = self.segments[-1]
        batch, size = read_old(data) if is_old(data) else read_batch(data)
        assert size == len(data)
        assert batch.base_offset >= self.end
        position = len(segment.log)
        if batch.max_timestamp > segment.largest[0]:
            segment.largest = (batch.max_timestamp, batch.last_offset)
        if position - (segment.index[-1][1] if segment.index else 0) > self.interval:
            segment.index.append((batch.last_offset, position))
            segment.add_time()
        segment.log += data
        segment.positions.append((batch.base_offset, batch.last_offset, position, batch.max_timestamp))
        if batch.partition_leader_epoch > (self.epochs[-1][0] if self.epochs else -1):
            self.epochs.append((batch.partition_leader_epoch, batch.base_offset))
        if batch.producer_id >= 0:
            self._produce(segment, batch)
        self.end = batch.last_offset + 1

    def _produce(self, segment, batch) -> None:
        old = self.producers.get(batch.producer_id, ProducerState(batch.producer_id, -1))
        kept = old.batches if old.producer_epoch == batch.producer_epoch else ()
        txn = old.current_txn_first_offset
        if batch.attributes & CONTROL:
            (record,) = batch.records()
            if txn >= 0 and int.from_bytes(record.key[2:4], "big") == ABORT:
                others = [
                    state.current_txn_first_offset
                    for state in self.producers.values()
                    if state.producer_id != batch.producer_id and state.current_txn_first_offset >= 0
                ]
                stable = min(others, default=batch.base_offset + 1)
                segment.txns.append(AbortedTransaction(batch.producer_id, txn, batch.base_offset, stable))
            coordinator = int.from_bytes(record.value[2:6], "big")
            self.producers[batch.producer_id] = ProducerState(
                batch.producer_id, batch.producer_epoch, coordinator, record.timestamp, -1, kept
            )
            return
        last = (batch.base_sequence + batch.last_offset_delta) % (1 << 31)
        added = ProducerBatch(last, batch.last_offset, batch.last_offset_delta, batch.max_timestamp)
        if batch.is_transactional and txn < 0:
            txn = batch.base_offset
        self.producers[batch.producer_id] = ProducerState(
            batch.producer_id,
            batch.producer_epoch,
            old.coordinator_epoch,
            batch.max_timestamp,
            txn,
            (*kept, added)[-5:],
        )

    def snapshot(self) -> None:
        self.snapshots[self.end] = list(self.producers.values())

    def roll(self) -> None:
        self.segments[-1].add_time()
        self.snapshot()
        self.segments.append(SegmentWriter(self.end))

    def close(self) -> None:
        """Write the files as after a clean stop."""
        self.segments[-1].add_time()
        self.snapshot()
        self.write()

    def write(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        for segment in self.segments:
            self.path(segment, LOG).write_bytes(segment.log)
            self.path(segment, INDEX).write_bytes(segment.index_bytes())
            self.path(segment, TIME_INDEX).write_bytes(segment.time_bytes())
            if segment.txns:
                self.path(segment, TXN_INDEX).write_bytes(segment.txn_bytes())
        for offset, producers in self.snapshots.items():
            write_snapshot(self.directory / segment_file_name(offset, SNAPSHOT), producers, sync=False)
        write_leader_epochs(self.directory / "leader-epoch-checkpoint", self.epochs, sync=False)

    def path(self, segment: SegmentWriter, kind: str) -> Path:
        return self.directory / segment_file_name(segment.base_offset, kind)
