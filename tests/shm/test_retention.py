"""Retention over a partition table in the test's process: removed segments, kept segments, and the result of a start."""

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import odradek._ext.partition.log_start as log_start
import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import flushing, slot_life, slot_upkeep, slots, snapshot_publishing
from odradek._ext.partition.slot_access import AppendResult
from odradek._ext.shm.slot import Role, SlotState
from odradek._ext.storage.segments import load_log
from odradek._ext.testing import slot_probe
from odradek.cleaner.retention import Retention
from odradek.cleaner.retention_rules import Segment, expired, period_of
from odradek.shm.checkpoints import read_checkpoints, write_checkpoints
from odradek.shm.log_starts import Deletion, delete_records
from tests.shm.one_broker import OneBroker, batch, retain_at_once

SIZE = len(batch(2))
FACTS = {
    "log_start_offset": 0,
    "high_watermark": 40,
    "log_end_offset": 40,
    "delete": True,
    "retention_ms": -1,
    "retention_bytes": -1,
}


class Made:
    """A segment that is nothing but its figures."""

    def __init__(self, base_offset: int, size: int = 100, largest_timestamp_ms: int = 0) -> None:
        self.base_offset = base_offset
        self.size = size
        self.largest_timestamp_ms = largest_timestamp_ms


def count(segments: list[Made], now_ms: int = 1000, **facts: object) -> int:
    return expired(segments, SimpleNamespace(**FACTS | facts), now_ms)[0]


FOUR = [Made(0), Made(10), Made(20), Made(30)]


@pytest.mark.parametrize(("start", "gone"), [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (30, 3), (39, 3), (40, 4)])
@pytest.mark.parametrize("delete", [True, False])
def test_segments_below_the_log_start_are_removed_whatever_the_policy(start, gone, delete):
    assert count(FOUR, log_start_offset=start, delete=delete) == gone


@pytest.mark.parametrize(
    ("limit", "gone"), [(401, 0), (400, 0), (301, 0), (300, 1), (299, 1), (200, 2), (100, 3), (1, 3), (0, 4)]
)
def test_by_size_what_is_left_is_at_least_the_limit(limit, gone):
    assert count(FOUR, retention_bytes=limit) == gone


def test_by_time_the_oldest_segments_expire_including_the_active_one():
    segments = [
        Made(0, largest_timestamp_ms=100),
        Made(10, largest_timestamp_ms=300),
        Made(20, largest_timestamp_ms=200),
    ]
    assert [count(segments, 1000, retention_ms=age) for age in (900, 899, 700, 699, 0)] == [0, 1, 1, 3, 3]
    segments[2].size = 0
    assert count(segments, 1000, retention_ms=0) == 2, "an empty active segment stays"


@pytest.mark.parametrize(
    ("times", "text"),
    [
        ((1_700_000_000_000,), "of 2023-11-14T22:13:20Z"),
        ((1_700_000_000_000, 5, 1_700_000_060_000), "of 2023-11-14T22:13:20Z to 2023-11-14T22:14:20Z"),
        ((-1, 0), "of no time to 1970-01-01T00:00:00Z"),
        ((2**62, 2**62), "of 4611686018427387904 ms since 1970"),
    ],
)
def test_the_line_of_a_deletion_says_from_when_the_records_are(times, text):
    assert period_of([SimpleNamespace(newest_ms=time_ms) for time_ms in times]) == text


def test_the_line_of_a_deletion_is_written_although_an_index_cannot_be_read(tmp_path):
    (tmp_path / "0".zfill(20)).with_suffix(".timeindex").mkdir()
    assert period_of([Segment(tmp_path, 0)]) == "of unknown times"


def test_uncommitted_records_and_logs_without_the_delete_policy_are_kept():
    for limits in ({"retention_ms": 0}, {"retention_bytes": 0}):
        assert count(FOUR, high_watermark=29, **limits) == 2
        assert count(FOUR, high_watermark=39, **limits) == 3
        assert count(FOUR, delete=False, **limits) == 0


def test_size_counts_only_segments_above_the_log_start():
    assert count(FOUR, log_start_offset=10, retention_bytes=300) == 1
    assert count(FOUR, log_start_offset=10, retention_bytes=200) == 2


def test_a_segment_without_timestamps_is_as_old_as_its_file(tmp_path):
    (tmp_path / f"{0:020d}.log").write_bytes(b"")
    (tmp_path / f"{0:020d}.timeindex").write_bytes(b"")
    os.utime(tmp_path / f"{0:020d}.log", (5, 5))
    assert Segment(tmp_path, 0).largest_timestamp_ms == 5000
    (tmp_path / f"{0:020d}.timeindex").write_bytes((7).to_bytes(8, "big") + bytes(4))
    assert Segment(tmp_path, 0).largest_timestamp_ms == 7


# -- over a real table ------------------------------------------------------------------------------------------------


def four_segments(broker: OneBroker, **settings: int) -> int:
    """Offsets 0 to 7, two a segment, a second apart; idempotent, so that there are snapshots."""
    slot = broker.create(segment_bytes=SIZE, **settings)
    for number in range(4):
        timestamp = 1000 * (number + 1)
        one = batch(2, timestamp=timestamp, producer_id=3, producer_epoch=0, base_sequence=2 * number)
        assert slot_probe.append(slot, [one]) == [(0, 2 * number, False)]
    return slot


def names(broker: OneBroker, slot: int, pattern: str = "*.log") -> list[str]:
    return sorted(path.name.lstrip("0") or path.name for path in broker.table.path(slot).glob(pattern))


def bases(broker: OneBroker, slot: int) -> list[int]:
    return sorted(int(path.stem) for path in broker.table.path(slot).glob("*.log"))


def aside(broker: OneBroker, slot: int) -> list[Path]:
    return sorted(broker.table.path(slot).glob("*.deleted"))


def test_by_size(broker):
    slot = four_segments(broker, retention_bytes=2 * SIZE, file_delete_delay_ms=10**9)
    snapshot_publishing.publish()
    retention = Retention(broker.shm, [broker.path])
    retention.run()
    state = slot_facts.describe(slot)
    assert (state.log_start_offset, state.log_end_offset, state.intent) == (4, 8, 0)
    assert bases(broker, slot) == [4, 6]
    assert retention.removed_segments == 2
    assert [path.name for path in aside(broker, slot)] == [
        f"{base:020d}.{kind}.deleted"
        for base, kinds in ((0, ("index", "log", "timeindex")), (2, ("index", "log", "snapshot", "timeindex")))
        for kind in kinds
    ]
    assert sorted(int(path.stem) for path in broker.table.path(slot).glob("*.snapshot")) == [4, 6]
    assert read_checkpoints(broker.path)[1] == {("t", 0): 4}
    generation = state.generation
    retention.run()
    assert slot_facts.describe(slot).generation == generation, "what is done is not done again"


def test_by_time_the_active_segment_is_rolled_and_removed(broker):
    slot = four_segments(broker, retention_ms=1000)
    retention = Retention(broker.shm, [broker.path])
    retention.run(now_ms=3500)
    assert (bases(broker, slot), slot_facts.describe(slot).log_start_offset) == ([4, 6], 4)
    retention.run(now_ms=10_000)
    state = slot_facts.describe(slot)
    assert (bases(broker, slot), state.log_start_offset, state.log_end_offset) == ([8], 8, 8)
    assert (state.size, state.high_watermark, state.last_stable_offset) == (0, 8, 8)
    retention.run(now_ms=10**9)
    assert bases(broker, slot) == [8]
    # The log goes on where it was, and the producer is still known.
    one = batch(2, timestamp=99_000, producer_id=3, producer_epoch=0, base_sequence=8)
    assert slot_probe.append(slot, [one]) == [(0, 8, False)]
    assert slot_probe.append(slot, [one]) == [(0, 8, True)]


def test_settings_that_change_take_effect(broker):
    slot = four_segments(broker)
    retention = Retention(broker.shm, [broker.path])
    retention.run(now_ms=10**12)
    assert bases(broker, slot) == [0, 2, 4, 6]
    broker.table.configure(slot, {"retention_bytes": 3 * SIZE})
    retention.run(now_ms=10**12)
    assert bases(broker, slot) == [2, 4, 6]


@pytest.mark.parametrize("compact_only", [True, False])
def test_a_compacted_topic_keeps_what_is_above_its_log_start(broker, compact_only):
    slot = four_segments(broker, retention_ms=0, retention_bytes=0, compact=1, delete_=0 if compact_only else 1)
    Retention(broker.shm, [broker.path]).run(now_ms=10**12)
    assert bases(broker, slot) == ([0, 2, 4, 6] if compact_only else [8])
    if compact_only:
        log_start.advance(slot, 5, incarnation=slot_probe.incarnation_of(slot))
        Retention(broker.shm, [broker.path]).run(now_ms=10**12)
        assert bases(broker, slot) == [4, 6]


def test_renamed_files_are_deleted_after_the_delay(broker):
    slot = four_segments(broker, retention_bytes=2 * SIZE, file_delete_delay_ms=60_000)
    now_ms = [1000]
    retention = Retention(broker.shm, [broker.path], clock=lambda: now_ms[0])
    retention.run()
    kept = len(aside(broker, slot))
    now_ms[0] += 40_000
    # A successor of the cleaner finds them as well, and lets readers have the delay from then on.
    successor = Retention(broker.shm, [broker.path], clock=lambda: now_ms[0])
    successor.remove_files()
    now_ms[0] += 19_999
    for one in (retention, successor):
        one.remove_files()
        assert len(aside(broker, slot)) == kept > 0
    now_ms[0] += 40_001
    successor.remove_files()
    assert aside(broker, slot) == []
    retention.remove_files()
    assert bases(broker, slot) == [4, 6]


def test_the_delay_of_renamed_files_uses_the_monotonic_clock(broker, monkeypatch):
    slot = four_segments(broker, retention_bytes=2 * SIZE, file_delete_delay_ms=60_000)
    now_ms = [1000]
    retention = Retention(broker.shm, [broker.path], clock=lambda: now_ms[0])
    retention.run()
    wall_ns = time.time_ns()
    for step_s in (-10 * 3600, 10 * 3600):
        monkeypatch.setattr(time, "time_ns", lambda step_s=step_s: wall_ns + step_s * 10**9)
        monkeypatch.setattr(time, "time", lambda step_s=step_s: wall_ns / 1e9 + step_s)
        retention.remove_files()
        assert aside(broker, slot)
    monkeypatch.setattr(time, "time", lambda: wall_ns / 1e9 - 10 * 3600)
    now_ms[0] += 60_000
    retention.remove_files()
    assert aside(broker, slot) == []


def test_renamed_files_are_deleted_at_once_where_the_directory_is_low_on_room(broker):
    slot = four_segments(broker, retention_bytes=2 * SIZE, file_delete_delay_ms=10**12)
    retain_at_once(broker)
    assert (bases(broker, slot), aside(broker, slot)) == ([4, 6], [])


def test_a_reader_that_has_the_segment_open_can_finish(broker):
    slot = four_segments(broker, retention_bytes=2 * SIZE)
    content = (broker.table.path(slot) / f"{0:020d}.log").read_bytes()
    descriptor = os.open(broker.table.path(slot) / f"{0:020d}.log", os.O_RDONLY)
    retain_at_once(broker)
    assert os.pread(descriptor, 1 << 20, 0) == content
    os.close(descriptor)


def test_more_segments_than_one_hold_of_the_lock_takes(broker):
    slot = broker.create(segment_bytes=SIZE, retention_bytes=0)
    for _ in range(70):
        slot_probe.append(slot, [batch(2)])
    retention = Retention(broker.shm, [broker.path])
    retention.run()
    assert (bases(broker, slot), retention.removed_segments) == ([140], 70)


def test_the_newest_snapshot_stays_wherever_it_is(broker):
    slot = broker.create(segment_bytes=SIZE, retention_bytes=0)
    path = broker.table.path(slot)
    for offset in (1, 2, 3):
        (path / f"{offset:020d}.snapshot").write_bytes(b"")
    for _ in range(4):
        slot_probe.append(slot, [batch(2)])
    retain_at_once(broker)
    assert bases(broker, slot) == [8]
    assert [int(one.stem) for one in path.glob("*.snapshot")] == [3]


def test_a_removal_requires_a_segment_boundary_at_or_below_the_log_start(broker):
    slot = four_segments(broker)
    incarnation = slot_probe.incarnation_of(slot)
    assert log_start.remove_before(slot, 2, incarnation=incarnation) == AppendResult.APPEND_OUT_OF_RANGE
    assert log_start.advance(slot, 3, incarnation=incarnation) == (AppendResult.APPEND_OK, 3)
    for keep in (1, 3, 4, 8):
        assert log_start.remove_before(slot, keep, incarnation=incarnation) == AppendResult.APPEND_OUT_OF_RANGE
    assert log_start.remove_before(slot, 2, incarnation=incarnation + 1) == AppendResult.APPEND_STALE
    assert bases(broker, slot) == [0, 2, 4, 6]
    assert log_start.remove_before(slot, 2, incarnation=incarnation) == AppendResult.APPEND_OK
    assert bases(broker, slot) == [2, 4, 6]


def test_an_active_segment_that_grew_is_not_rolled(broker):
    slot = four_segments(broker)
    incarnation = slot_probe.incarnation_of(slot)
    for base, end in ((6, 7), (4, 8), (6, 9)):
        assert log_start.roll(slot, base, end, incarnation=incarnation) == AppendResult.APPEND_OUT_OF_RANGE
    assert log_start.roll(slot, 6, 8, incarnation=incarnation) == AppendResult.APPEND_OK
    assert log_start.roll(slot, 8, 8, incarnation=incarnation) == AppendResult.APPEND_OUT_OF_RANGE, "it is empty"


def test_the_log_start_only_increases_up_to_the_high_watermark(broker):
    slot = broker.create(alone=False)
    incarnation = slot_probe.incarnation_of(slot)
    for _ in range(3):
        slot_probe.append(slot, [batch(2)])
    slots.raise_high_watermark(slot, 4)
    assert log_start.advance(slot, 5, incarnation=incarnation)[0] == AppendResult.APPEND_OUT_OF_RANGE
    assert log_start.advance(slot, -2, incarnation=incarnation)[0] == AppendResult.APPEND_OUT_OF_RANGE
    assert log_start.advance(slot, 3, incarnation=incarnation) == (AppendResult.APPEND_OK, 3)
    assert log_start.advance(slot, 1, incarnation=incarnation) == (AppendResult.APPEND_OK, 3)
    assert log_start.advance(slot, -1, incarnation=incarnation) == (AppendResult.APPEND_OK, 4)
    broker.obey(slot, 1)
    assert (
        log_start.advance(slot, -1, incarnation=incarnation, role=Role.ROLE_LEADER)[0] == AppendResult.APPEND_NOT_LEADER
    )
    assert log_start.advance(slot, -1, incarnation=incarnation) == (AppendResult.APPEND_OK, 4)


def test_the_last_stable_offset_is_never_below_the_log_start(broker):
    slot = broker.create()
    opened = batch(2, producer_id=3, producer_epoch=0, base_sequence=0, attributes=0x10)
    slot_probe.append(slot, [batch(2), opened, batch(2)])
    assert slot_facts.describe(slot).last_stable_offset == 2
    log_start.advance(slot, 5, incarnation=slot_probe.incarnation_of(slot))
    assert slot_facts.describe(slot).last_stable_offset == 5


# -- what lasts -------------------------------------------------------------------------------------------------------


def test_a_deletion_is_durable_when_it_is_reported(broker):
    slot = four_segments(broker)
    deletion = Deletion(slot, slot_probe.incarnation_of(slot), 3)
    assert delete_records(broker.shm, [broker.path], [deletion], 1000) == [(AppendResult.APPEND_OK, 3)]
    assert read_checkpoints(broker.path)[1] == {("t", 0): 3}
    found = load_log(broker.table.path(slot), 3, 0, False)
    assert (found.log_start_offset, found.log_end_offset) == (3, 8)


def test_a_deletion_that_cannot_be_made_durable_is_reported_as_failed(broker):
    slot = four_segments(broker)
    deletion = Deletion(slot, slot_probe.incarnation_of(slot), 3)
    (broker.path / "log-start-offset-checkpoint.tmp").mkdir()  # in the way of the writer
    assert delete_records(broker.shm, [broker.path], [deletion], 1000) == [(AppendResult.APPEND_IO_ERROR, -1)]
    (broker.path / "log-start-offset-checkpoint.tmp").rmdir()
    assert delete_records(broker.shm, [broker.path], [deletion], 1000) == [(AppendResult.APPEND_OK, 3)]
    assert read_checkpoints(broker.path)[1] == {("t", 0): 3}


def test_no_segment_is_removed_before_the_log_start_is_durable(broker):
    slot = four_segments(broker, retention_bytes=0)
    (broker.path / "log-start-offset-checkpoint.tmp").mkdir()
    retention = Retention(broker.shm, [broker.path])
    retention.run()
    assert (aside(broker, slot), retention.removed_segments) == ([], 0)
    assert slots.state_of(slot) == SlotState.SLOT_ONLINE
    (broker.path / "log-start-offset-checkpoint.tmp").rmdir()
    retention.run()
    assert bases(broker, slot) == [8]


def test_logs_that_are_not_loaded_keep_their_log_start_in_the_file(broker):
    slot = four_segments(broker)
    (broker.path / "log-start-offset-checkpoint").write_text("0\n2\nother 0 17\nt 1 5\n")
    waiting = broker.table.create(
        "other", bytes(16), 0, log_dir=0, replicas=[1], in_sync=[1], leader_id=1, leader_epoch=0, partition_epoch=0,
        settings={},
    )  # fmt: skip
    deletion = Deletion(slot, slot_probe.incarnation_of(slot), -1)
    assert delete_records(broker.shm, [broker.path], [deletion], 1000) == [(AppendResult.APPEND_OK, 8)]
    assert read_checkpoints(broker.path)[1] == {("t", 0): 8, ("other", 0): 17}
    slot_life.delete(waiting, b"gone")
    write_checkpoints(broker.shm, [broker.path])
    assert read_checkpoints(broker.path)[1] == {("t", 0): 8}


def test_a_log_that_fails_while_checkpoints_are_made_keeps_what_was_written_of_it(broker, monkeypatch):
    slot = four_segments(broker)
    assert delete_records(broker.shm, [broker.path], [Deletion(slot, slot_probe.incarnation_of(slot), 3)], 1000) == [
        (AppendResult.APPEND_OK, 3)
    ]
    flushing.flush(slot)
    write_checkpoints(broker.shm, [broker.path])
    before = read_checkpoints(broker.path)
    assert before == ({("t", 0): 8}, {("t", 0): 3}, {}, {})
    checkpoint_offsets = slot_upkeep.checkpoint_offsets

    def failing():
        slot_life.set_offline(slot)
        return checkpoint_offsets()

    monkeypatch.setattr(slot_upkeep, "checkpoint_offsets", failing)
    write_checkpoints(broker.shm, [broker.path])
    assert read_checkpoints(broker.path) == before


def test_segments_are_removed_on_a_full_disk(broker, monkeypatch):
    slot = four_segments(broker, retention_bytes=0)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("odradek.cleaner.retention.write_log_starts", full)
    retain_at_once(broker)
    assert bases(broker, slot) == [8]
    found = load_log(broker.table.path(slot), 0, 0, False)
    assert (found.log_start_offset, found.log_end_offset) == (8, 8), "the files say where the log begins"
