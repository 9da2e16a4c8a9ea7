"""Which log is compacted next, the content of the checkpoint, and that a corrupt log does not block others."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path

import pytest

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import slot_upkeep
from odradek._ext.partition.slots import SlotChanged
from odradek.cleaner.compaction import OFTEN, Throttle
from odradek.storage.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from tests.shm.compaction_harness import CompactedLog, compaction, record
from tests.shm.one_broker import OneBroker
from tests.waiting import until


def two_segments(broker: OneBroker, topic: str, dirty: int, **settings: int) -> CompactedLog:
    """A log with one clean segment's worth of bytes and `dirty` times as many dirty ones."""
    log = CompactedLog(broker, topic=topic, **settings)
    log.append([record("a", "v" * 1000)])
    log.roll()
    for _ in range(dirty):
        log.append([record("a", "v" * 1000)])
    log.roll()
    return log


def checkpoint(broker: OneBroker) -> dict[tuple[str, int], int]:
    return read_offset_checkpoint(Path(broker.path) / "cleaner-offset-checkpoint")


def compacted_before(broker: OneBroker, offsets: dict[CompactedLog, int]) -> None:
    """As if passes had gone over these logs up to there."""
    lines = {}
    for log, offset in offsets.items():
        log.allow_gaps(offset)
        lines[log.path.name.removesuffix("-0"), 0] = offset
    write_offset_checkpoint(Path(broker.path) / "cleaner-offset-checkpoint", lines)


def test_the_dirtiest_log_comes_first_and_the_checkpoint_says_how_far(broker: OneBroker) -> None:
    little, much = two_segments(broker, "little", 1), two_segments(broker, "much", 4)
    two_segments(broker, "deleted-only", 4, compact=0)
    cleaning = compaction(broker)
    compacted_before(broker, {little: 1, much: 1})
    compactor = cleaning.make_compactor()
    chosen = cleaning.choose(5000)
    assert chosen is not None
    assert (chosen.partition, chosen.first_dirty_offset, chosen.first_uncleanable_offset) == (("much", 0), 1, 5)
    assert 0.79 < chosen.ratio < 0.81
    other = cleaning.choose(5000)
    assert other is not None
    assert other.partition == ("little", 0)
    assert cleaning.choose(5000) is None, "both are taken"
    again = compaction(broker)
    assert [again.run_once(compactor, 5000) for _ in range(3)] == [True, True, False]
    assert checkpoint(broker) == {("little", 0): 2, ("much", 0): 5}


def test_a_log_is_let_be_until_it_is_dirty_enough_or_overdue(broker: OneBroker) -> None:
    log = two_segments(broker, "t", 1, min_cleanable_dirty_millionths=600_000, max_compaction_lag_ms=10_000)
    compacted_before(broker, {log: 1})
    cleaning = compaction(broker)
    assert cleaning.choose(11_000) is None
    chosen = cleaning.choose(11_001)
    assert chosen is not None
    assert chosen.overdue
    log.append([record("a", "v" * 3000)])
    log.roll()
    chosen = compaction(broker).choose(5000)
    assert chosen is not None
    assert not chosen.overdue


def test_a_log_that_nobody_writes_to_is_compacted_when_the_lag_is_over(broker: OneBroker) -> None:
    """Its only segment is the active one, which no append rolls any more."""
    log = CompactedLog(broker, max_compaction_lag_ms=10_000, min_cleanable_dirty_millionths=1_000_000)
    created_ms = slot_facts.describe(log.slot).created_ms
    first = created_ms - 100_000
    log.append([record("a", "1", first)])
    log.append([record("a", "2", first + 9_000)])
    cleaning = compaction(broker)
    compactor = cleaning.make_compactor()
    for now_ms in (first + 10_000, created_ms + 9_999):
        assert not cleaning.run_once(compactor, now_ms)
        assert log.bases() == [0], "not yet, or not so soon after it was made"
    assert cleaning.run_once(compactor, created_ms + 10_000)
    assert log.bases() == [0, 2]
    assert [r.value for one in log.batches() for r in one.records()] == [b"2"]
    assert not cleaning.run_once(compactor, created_ms + 10_000_000), "the active segment is empty"
    log.append([record("a", None, created_ms)])
    assert cleaning.run_once(compactor, created_ms + 10_000_000)
    assert log.bases()[-1] == 3


def test_records_that_are_old_when_they_come_do_not_roll_a_segment_each(broker: OneBroker) -> None:
    log = CompactedLog(broker, max_compaction_lag_ms=3_600_000, min_cleanable_dirty_millionths=1_000_000)
    cleaning = compaction(broker)
    created_ms = slot_facts.describe(log.slot).created_ms
    log.append([record("a", "1", 1000)])
    assert cleaning.choose(created_ms + 59_999) is None
    assert log.bases() == [0]
    assert cleaning.choose(created_ms + 60_000) is not None
    assert log.bases() == [0, 1]


def test_records_without_a_timestamp_wait_no_longer_than_others(broker: OneBroker) -> None:
    log = CompactedLog(broker, max_compaction_lag_ms=10_000, min_cleanable_dirty_millionths=1_000_000)
    for value in ("1", "2"):
        log.append([record("a", value, -1)])
        log.roll()
    written_ms = max(path.stat().st_mtime_ns for path in log.path.glob("*.log")) // 1_000_000
    cleaning = compaction(broker)
    assert cleaning.choose(written_ms - 60_000) is None
    chosen = cleaning.choose(written_ms + 10_001)
    assert chosen is not None and chosen.overdue


def test_a_pass_leaves_no_line_of_a_partition_that_was_deleted_meanwhile(broker: OneBroker) -> None:
    """The next topic of that name would be taken for compacted up to there."""
    log = two_segments(broker, "t", 4)
    cleaning = compaction(broker)
    compactor = cleaning.make_compactor()

    class Deleting:
        def run(self, slot: int, **given: int) -> object:
            result = compactor.run(slot, **given)
            broker.table.delete(slot)
            return result

    assert cleaning.run_once(Deleting(), 5000)  # type: ignore[arg-type]
    assert checkpoint(broker) == {}
    assert not log.path.exists()


def test_young_segments_wait_for_min_compaction_lag(broker: OneBroker) -> None:
    log = CompactedLog(broker, min_compaction_lag_ms=1000)
    for timestamp in (1000, 2000, 3000):
        log.append([record("a", "1", timestamp)])
        log.roll()
    cleaning = compaction(broker)
    for now_ms, border in ((1999, None), (2000, 1), (3500, 2), (4000, 3)):
        chosen = compaction(broker).choose(now_ms)
        assert (chosen.first_uncleanable_offset if chosen else None) == border
    assert cleaning.run_once(cleaning.make_compactor(), 3500)
    assert checkpoint(broker) == {("t", 0): 2}


def test_a_corrupt_log_is_left_alone_and_others_go_on(broker: OneBroker, caplog: pytest.LogCaptureFixture) -> None:
    bad = two_segments(broker, "bad", 8)
    two_segments(broker, "good", 1)
    path = bad.path / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    cleaning = compaction(broker)
    compactor = cleaning.make_compactor()
    assert [cleaning.run_once(compactor, 5000) for _ in range(3)] == [True, True, False]
    assert list(cleaning.failures()) == ["bad-0"]
    assert checkpoint(broker) == {("good", 0): 2}
    assert "cannot compact bad-0: " in caplog.text
    assert f"{0:020d}.log: no valid batch at position 0" in caplog.text


def test_a_log_whose_passes_always_end_early_or_find_no_room_is_named_until_one_ends(broker: OneBroker) -> None:
    two_segments(broker, "t", 4)
    cleaning = compaction(broker)
    compactor = cleaning.make_compactor()

    class Failing:
        def __init__(self, error: Exception) -> None:
            self.error = error

        def run(self, slot: int, **given: int) -> object:
            raise self.error

    for _ in range(OFTEN):
        assert cleaning.failures() == {}
        assert not cleaning.run_once(Failing(SlotChanged("it was truncated")), 5000)  # type: ignore[arg-type]
    reason = "10 passes in a row ended early, the last one because it was truncated"
    assert cleaning.failures() == {"t-0": reason}
    assert not cleaning.run_once(Failing(OSError(errno.ENOSPC, "No space left")), 5000)  # type: ignore[arg-type]
    assert cleaning.failures() == {"t-0": "compaction has no disk space: [Errno 28] No space left"}
    assert cleaning.run_once(compactor, 5000)
    assert cleaning.failures() == {}


def test_a_log_that_cannot_be_read_and_a_thread_that_fails_are_named(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_segments(broker, "t", 4)
    cleaning = compaction(broker)

    def refused(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", refused)
        assert cleaning.choose(5000) is None
    assert cleaning.failures() == {"t-0": "compaction cannot read the log: [Errno 13] Permission denied"}
    assert cleaning.choose(5000) is not None
    assert cleaning.failures() == {}

    def no_memory() -> None:
        raise MemoryError("no map")

    monkeypatch.setattr(cleaning, "make_compactor", no_memory)
    before_ms = cleaning.worked_ms
    cleaning.start()
    until(
        lambda: cleaning.failures() == {"": "compaction failed: MemoryError('no map')"},
        lambda: f"{cleaning.failures()}",
    )
    cleaning.stop()
    assert cleaning.worked_ms == before_ms, "a thread that fails before it looks for work makes no progress"


def test_a_checkpoint_beyond_the_log_begins_anew(broker: OneBroker) -> None:
    two_segments(broker, "t", 1)
    (Path(broker.path) / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 99\n")
    chosen = compaction(broker).choose(5000)
    assert chosen is not None
    assert chosen.first_dirty_offset == 0


def test_entries_of_partitions_that_are_gone_go_and_others_stay(broker: OneBroker) -> None:
    two_segments(broker, "t", 1)
    two_segments(broker, "no-longer-compacted", 1, compact=0)
    (Path(broker.path) / "cleaner-offset-checkpoint").write_text("0\n2\ngone 0 5\nno-longer-compacted 0 1\n")
    cleaning = compaction(broker)
    assert cleaning.run_once(cleaning.make_compactor(), 5000)
    assert checkpoint(broker) == {("t", 0): 2, ("no-longer-compacted", 0): 1}


def test_threads_end_with_the_pass_under_way(broker: OneBroker) -> None:
    log = two_segments(broker, "t", 4)
    cleaning = compaction(broker, **{"log.cleaner.io.max.bytes.per.second": 1, "log.cleaner.threads": 2})
    cleaning.start()
    until(lambda: slot_facts.describe(log.slot).gap_limit > 0, "a pass has begun")
    cleaning.stop()
    assert checkpoint(broker) == {}
    assert sum(batch.record_count for batch in log.batches()) == 5
    assert not slot_upkeep.swap_under_way(log.slot)


def test_the_throttle_lets_no_more_than_its_rate_through() -> None:
    throttle = Throttle(1_000_000, threading.Event())
    began = time.monotonic()
    for _ in range(10):
        throttle(20_000, lambda: None)
    assert time.monotonic() - began >= 0.19


def test_a_log_with_only_an_active_segment_is_left_alone(broker: OneBroker) -> None:
    log = CompactedLog(broker)
    log.append([record("a", "1")])
    assert compaction(broker).choose(5000) is None
