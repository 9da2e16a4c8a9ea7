"""A log to compact, and a compaction pass over it, in the test's process without a supervisor."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import odradek._ext.partition.flushing as flushing
import odradek._ext.partition.slot_facts as slot_facts
import odradek._ext.partition.slot_upkeep as slot_upkeep
from odradek._ext.compaction.compactor import Compactor, PassResult
from odradek._ext.testing import slot_probe
from odradek.cleaner.compaction import Compaction
from odradek.config.broker_config import load
from odradek.storage import compression, old_messages
from odradek.storage.batch import TRANSACTIONAL, Record, RecordBatch, build_batch, build_end_marker
from tests.shm.compaction_model import Kept, aborted_transactions, compacted, parse, seen
from tests.shm.one_broker import OneBroker

MAP_BYTES = 1 << 20


def record(key: str | None, value: str | None, timestamp: int = 1000) -> Record:
    """A record; None as value is a tombstone."""
    return Record(None if key is None else key.encode(), None if value is None else value.encode(), timestamp)


def compactor(
    map_bytes: int = MAP_BYTES,
    buffer_bytes: int = 4096,
    load_factor: float = 0.9,
    pace: Callable[[int, Callable[[], None]], None] = lambda count, look: None,
) -> Compactor:
    """A Compactor as a thread of the cleaner has one."""
    return Compactor(
        map_bytes,
        load_factor,
        buffer_bytes,
        compression.decompress,
        compression.compress,
        old_messages.contents,
        old_messages.reduced,
        pace,
        threading.Lock(),
    )


class CompactedLog:
    """A partition with cleanup.policy=compact; `original` is every batch as it was appended."""

    def __init__(self, broker: OneBroker, *, topic: str = "t", retention_ms: int = 1000, **settings: int) -> None:
        self.broker = broker
        self.retention_ms = retention_ms
        defaults = {"compact": 1, "delete_": 0, "max_compaction_lag_ms": 1 << 62, "delete_retention_ms": retention_ms}
        self.slot = broker.create(topic, **(defaults | settings))
        self.path = broker.table.path(self.slot)
        self.original: list[RecordBatch] = []
        self.first_dirty = 0
        self._sequences: dict[tuple[int, int], int] = {}

    def append(
        self,
        records: Iterable[Record],
        *,
        codec: int = 0,
        producer: int = -1,
        epoch: int = 0,
        transactional: bool = False,
    ) -> int:
        """Append one batch; its base offset."""
        content = list(records)
        fields = {}
        if producer >= 0:
            fields = {
                "producer_id": producer,
                "producer_epoch": epoch,
                "base_sequence": self._sequences.get((producer, epoch), 0),
            }
            self._sequences[producer, epoch] = fields["base_sequence"] + len(content)
        data = build_batch(content, codec=codec, attributes=TRANSACTIONAL if transactional else 0, **fields)
        return self._put(data)

    def end(self, producer: int, control_type: int, *, epoch: int = 0, timestamp: int = 1000) -> int:
        """Append the marker that ends a producer's transaction; its offset."""
        return self._put(
            build_end_marker(
                control_type,
                base_offset=0,
                producer_id=producer,
                producer_epoch=epoch,
                coordinator_epoch=1,
                timestamp=timestamp,
            )
        )

    def _put(self, data: bytes) -> int:
        ((error, end, _),) = slot_probe.append(self.slot, [data])
        assert error == 0
        self.original.append(self.batches()[-1])
        return int(end)

    def roll(self) -> None:
        """Begin a new segment."""
        slot_probe.roll(self.slot)

    def batches(self) -> list[RecordBatch]:
        """The log as it lies on the disk."""
        return parse(self.broker.log_bytes(self.slot))

    def content(self) -> list[Kept]:
        """The log as a reader finds it."""
        return [seen(batch) for batch in self.batches()]

    def last_of_producers(self) -> dict[int, tuple[int, int]]:
        """As a pass reads them from the slot."""
        return {
            producer: (batches[0][3] if batches else -1, epoch)
            for producer, (epoch, batches) in slot_probe.producers(self.slot).items()
        }

    def border(self) -> int:
        """Up to where a pass may go: whole segments below the last stable offset, not the active one."""
        facts = slot_facts.of_open_log(self.slot)
        limit = min(facts.segment_base, facts.last_stable_offset, facts.high_watermark)
        return max(base for base in self.bases() if base <= limit)

    def bases(self) -> list[int]:
        """Base offsets of the segments."""
        return sorted(int(path.name[:20]) for path in self.path.glob("*.log"))

    def expected(self, now_ms: int) -> list[Kept]:
        """What a pass now should leave."""
        return compacted(
            self.batches(),
            aborted_transactions(self.original),
            self.last_of_producers(),
            first_dirty=self.first_dirty,
            border=self.border(),
            now_ms=now_ms,
            retention_ms=self.retention_ms,
        )

    def allow_gaps(self, limit: int | None = None) -> None:
        """What comes before a pass: the log is on the device, and offsets may be missing below `limit`, its border if None."""
        if slot_facts.describe(self.slot).synced_base < self.border():
            flushing.flush(self.slot, whole=True)
        state = slot_facts.describe(self.slot)
        slot_upkeep.raise_gap_limit(
            self.slot,
            self.border() if limit is None else limit,
            incarnation=state.incarnation,
            truncations=state.truncations,
        )

    def clean(self, now_ms: int = 5000, using: Compactor | None = None) -> PassResult:
        """One pass, by `using` or a new Compactor, and what comes before it."""
        self.allow_gaps()
        return self.sweep(now_ms, using)

    def sweep(self, now_ms: int = 5000, using: Compactor | None = None) -> PassResult:
        """One pass over a log that may have gaps already."""
        result = (using or compactor()).run(
            self.slot,
            incarnation=slot_probe.incarnation_of(self.slot),
            first_dirty_offset=self.first_dirty,
            first_uncleanable_offset=self.border(),
            now_ms=now_ms,
        )
        self.first_dirty = result.end_offset
        return result


def compaction(broker: OneBroker, **config: object) -> Compaction:
    """The cleaner's compaction over the broker's logs, without threads of its own."""
    given = [f"log.dirs={broker.path}", *(f"{key}={value}" for key, value in config.items())]
    return Compaction(load(None, given), broker.shm, [Path(broker.path)])
