"""The result of a compaction pass, in plain Python: Kafka's rules (LogCleaner, KIP-98, KIP-534) over parsed batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from odradek.storage.batch import ABORT, DELETE_HORIZON, Record, RecordBatch, read_batches


@dataclass(frozen=True)
class Kept:
    """A batch as it should be: what of its header matters, and its records with their offsets and timestamps."""

    base_offset: int
    last_offset: int
    producer: tuple[int, int, int]
    epoch: int
    flags: int
    codec: int
    horizon: int | None
    max_timestamp: int
    records: tuple[Record, ...]


def parse(log: bytes) -> list[RecordBatch]:
    """The batches of a log, offsets ascending, CRCs right; raises CorruptBatchError, AssertionError."""
    batches = list(read_batches(log))
    ends = [-1, *(batch.last_offset for batch in batches)]
    for batch, before in zip(batches, ends, strict=False):
        assert batch.base_offset > before, "offsets repeat or go back"
    return batches


def seen(batch: RecordBatch) -> Kept:
    """A batch as a reader finds it."""
    records = tuple(batch.records())
    return Kept(
        batch.base_offset,
        batch.last_offset,
        (batch.producer_id, batch.producer_epoch, batch.base_sequence),
        batch.partition_leader_epoch,
        batch.attributes & 0x38,
        batch.codec if records else 0,
        batch.base_timestamp if batch.attributes & DELETE_HORIZON else None,
        batch.max_timestamp,
        records,
    )


def aborted_transactions(batches: Sequence[RecordBatch]) -> list[tuple[int, int, int]]:
    """[(producer id, first offset, offset of the marker)] of a log that was never compacted."""
    first: dict[int, int] = {}
    found = []
    for batch in batches:
        if batch.is_control:
            start = first.pop(batch.producer_id, None)
            if start is not None and control_type(batch) == ABORT:
                found.append((batch.producer_id, start, batch.base_offset))
        elif batch.is_transactional:
            first.setdefault(batch.producer_id, batch.base_offset)
    return found


def control_type(batch: RecordBatch) -> int:
    """0 abort, 1 commit; -1 for a control batch without record."""
    records = batch.records()
    return int.from_bytes((records[0].key or b"")[2:4], "big") if records else -1


def compacted(
    batches: Sequence[RecordBatch],
    aborted: Sequence[tuple[int, int, int]],
    last_of_producers: Mapping[int, tuple[int, int]],
    *,
    first_dirty: int,
    border: int,
    now_ms: int,
    retention_ms: int,
) -> list[Kept]:
    """What a pass leaves of `batches`, those at `border` and behind as they are.

    :param aborted: as from `aborted_transactions`, of the log as it was written.
    :param last_of_producers: {producer id: (last offset of its last batch or -1, epoch)}.
    """

    def is_aborted(batch: RecordBatch) -> bool:
        return batch.is_transactional and any(
            producer == batch.producer_id and start <= batch.base_offset < end for producer, start, end in aborted
        )

    newest: dict[bytes, int] = {}
    for batch in batches:
        if batch.base_offset < border and not batch.is_control and not is_aborted(batch):
            newest.update(
                (one.key, one.offset) for one in batch.records() if one.key is not None and one.offset >= first_dirty
            )
    kept: list[Kept] = []
    open_data: set[int] = set()  # producers of whose present transaction a batch was met
    for batch in batches:
        if batch.base_offset >= border:
            kept.append(seen(batch))
            continue
        horizon = batch.base_timestamp if batch.attributes & DELETE_HORIZON else None
        idle = False
        if batch.is_control:
            idle = batch.record_count == 0 or batch.producer_id not in open_data
            open_data.discard(batch.producer_id)
            discard = idle and horizon is not None and horizon <= now_ms
        else:
            discard = is_aborted(batch)
            if batch.is_transactional:
                open_data.add(batch.producer_id)
        last, epoch = last_of_producers.get(batch.producer_id, (None, None))
        lives = batch.producer_id >= 0 and last is not None
        if lives:
            lives = batch.last_offset == last if last >= 0 else batch.is_control and batch.producer_epoch == epoch
        stay = [
            one
            for one in batch.records()
            if not discard and (batch.is_control or _stays(one, newest, horizon is None or now_ms < horizon))
        ]
        whole = seen(batch)
        if stay:
            if horizon is None and (idle or any(one.value is None for one in stay)):
                horizon = now_ms + retention_ms
            largest = whole.max_timestamp if batch.attributes & 8 else max(one.timestamp for one in stay)
            if len(stay) == len(whole.records):
                largest = whole.max_timestamp
            kept.append(dataclasses.replace(whole, records=tuple(stay), horizon=horizon, max_timestamp=largest))
        elif lives or batch.last_offset + 1 == border:
            kept.append(dataclasses.replace(whole, records=(), horizon=None, codec=0))
    return kept


def _stays(record: Record, newest: Mapping[bytes, int], tombstones_stay: bool) -> bool:
    if record.key is None:
        return False
    if record.value is None and not tombstones_stay:
        return False
    return record.offset >= newest.get(record.key, -1)
