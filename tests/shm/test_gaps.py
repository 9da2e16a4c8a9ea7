"""Where offsets may be missing: a gap made by compaction, or copied by a follower, is kept; a gap made by a loss of power ends
the log.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import flushing, slot_upkeep, slots
from odradek._ext.partition.slot_facts import SlotFacts
from odradek._ext.partition.slots import SlotChanged
from odradek._ext.storage.segments import ANY_GAP, LoadedLog, load_log
from odradek._ext.testing import slot_probe, storage_probe
from odradek.cleaner.compaction import Compaction
from odradek.cleaner.gap_limits import GapLimits
from odradek.shm.checkpoints import ALL_FILES, write_checkpoints
from odradek.shm.truncation import truncate
from odradek.storage.checkpoints import (
    read_gap_limit,
    read_leader_epochs,
    read_offset_checkpoint,
    write_gap_limit,
    write_offset_checkpoint,
)
from odradek.storage.file_names import CLEANER_CHECKPOINT, GAPS_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from tests.shm.compaction_harness import CompactedLog, compaction, record
from tests.shm.one_broker import SETTINGS, OneBroker, batch


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    data = tmp_path / "data"
    data.mkdir()
    with OneBroker(data) as made:
        yield made


def pass_over(broker: OneBroker) -> Compaction:
    made = compaction(broker, **{"log.cleaner.min.cleanable.ratio": 0})
    assert made.run_once(made.make_compactor(), 5000)
    return made


def compacted_log(broker: OneBroker, **settings: int) -> CompactedLog:
    """Offsets 0 to 3 and 5 are compacted away, 4, 6 and 7 are left; the active segment begins at 8."""
    log = CompactedLog(broker, **settings)
    for number in range(4):
        log.append([record("a", f"{number}")])
        log.roll()
    log.append([record("b", "1")])
    log.append([record("a", "4")])
    log.append([record("a", "5")])
    log.append([record("c", "1")])
    log.roll()
    pass_over(broker)
    assert [one.base_offset for one in log.batches()] == [4, 6, 7]
    return log


def after_power_loss(log: CompactedLog, scratch: Path, *lost: int, whole: bool = False) -> LoadedLog:
    """What a start finds if the device has nothing of the segments at `lost` (not even their names, if `whole`)."""
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(log.path, scratch)
    for base in lost:
        for path in scratch.glob(f"{base:020d}.*"):
            path.unlink() if whole else path.write_bytes(b"")
    offset = read_offset_checkpoint(log.broker.path / CLEANER_CHECKPOINT).get(("t", 0), -1)
    return load_log(scratch, cleaner_offset=offset)


def test_a_pass_is_preceded_by_a_sync_and_by_the_limit(broker: OneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    log = CompactedLog(broker)
    for number in range(3):
        log.append([record("a", f"{number}")])
        log.roll()
    found = []
    made = compaction(broker)
    compactor = made.make_compactor()

    class Watching:
        def run(self, slot: int, **given: int) -> object:
            state = slot_facts.describe(slot)
            found.append((state.synced_base, state.gap_limit, read_gap_limit(log.path)))
            return compactor.run(slot, **given)

    assert slot_facts.describe(log.slot).synced_base == -1
    assert made.run_once(Watching(), 5000)  # type: ignore[arg-type]
    assert found == [(3, 3, 3)]
    assert read_offset_checkpoint(broker.path / CLEANER_CHECKPOINT) == {("t", 0): 3}


def test_a_limit_beyond_what_is_on_the_device_is_refused(broker: OneBroker) -> None:
    """The caller may have looked at the log while a truncation was under way."""
    slot = broker.create()
    slot_probe.append(slot, [batch(), batch()])
    facts = slot_facts.of_open_log(slot)
    assert facts is not None
    known = {"incarnation": facts.incarnation, "truncations": facts.truncations}
    with pytest.raises(SlotChanged):
        slot_upkeep.raise_gap_limit(slot, 1, **known)
    assert not list((broker.path / "t-0").glob(f"{GAPS_CHECKPOINT}*"))
    flushing.flush(slot, whole=True)
    slot_upkeep.raise_gap_limit(slot, 1, **known)
    assert slot_facts.describe(slot).gap_limit == read_gap_limit(broker.path / "t-0") == 1


def test_the_limit_of_a_partition_that_was_deleted_meanwhile_is_not_raised(broker: OneBroker) -> None:
    slot = broker.create()
    slot_probe.append(slot, [batch(2)])
    flushing.flush(slot, whole=True)
    facts = slot_facts.of_open_log(slot)
    assert facts is not None
    shutil.rmtree(broker.table.path(slot))  # as far as the files are concerned
    with pytest.raises(SlotChanged, match="no directory"):
        slot_upkeep.raise_gap_limit(slot, 1, incarnation=facts.incarnation, truncations=facts.truncations)
    assert slot_facts.describe(slot).gap_limit == 0


@pytest.mark.parametrize("compact", [1, 0], ids=["still compacted", "policy changed to delete"])
def test_gaps_of_compaction_are_kept_whatever_the_policy_is_by_now(
    broker: OneBroker, tmp_path: Path, compact: int
) -> None:
    log = compacted_log(broker)
    broker.table.configure(log.slot, {"compact": compact, "delete_": 1 - compact})
    slot_probe.append(log.slot, [batch()])
    assert after_power_loss(log, tmp_path / "copy").log_end_offset == 9


@pytest.mark.parametrize("whole", [False, True], ids=["empty", "without a name"])
def test_a_gap_after_the_compacted_part_ends_the_log(broker: OneBroker, tmp_path: Path, whole: bool) -> None:
    log = compacted_log(broker)
    for _ in range(3):
        slot_probe.append(log.slot, [batch()])
        log.roll()
    assert log.bases()[-4:] == [8, 9, 10, 11]
    loaded = after_power_loss(log, tmp_path / "copy", 9, whole=whole)
    assert loaded.log_end_offset == 9
    assert [base for base in storage_probe.segment_base_offsets(loaded) if base > 9] == []
    assert any("are missing" in event.message or "removed segment" in event.message for event in loaded.events)


def test_a_log_that_was_never_compacted_may_have_no_gaps(broker: OneBroker, tmp_path: Path) -> None:
    log = CompactedLog(broker)
    for number in range(3):
        log.append([record(f"k{number}", "v")])
        log.roll()
    assert after_power_loss(log, tmp_path / "copy", 1).log_end_offset == 1


def test_deleted_records_before_the_log_start_are_no_damage(broker: OneBroker, tmp_path: Path) -> None:
    log = CompactedLog(broker, compact=0)
    for number in range(4):
        log.append([record(f"k{number}", "v")])
        log.roll()
    copy = tmp_path / "copy"
    shutil.copytree(log.path, copy)
    (copy / f"{1:020d}.log").write_bytes(b"")
    assert load_log(copy, log_start_offset=2).log_end_offset == 4


# -- logs that are older than the limit ----------------------------------------------------------------------------------


def reopened(broker: OneBroker, log: CompactedLog, cleaner_offset: int | None, end: int) -> tuple[int, SlotFacts]:
    """Open a copy of the log's directory as another partition, with recovery. Return its slot and facts."""
    shutil.copytree(log.path, broker.path / "u-0")
    slot = broker.table.create(
        "u", bytes(15) + b"u", 0, log_dir=0, replicas=[1], in_sync=[1], leader_id=1, leader_epoch=0, partition_epoch=0,
        settings=SETTINGS,
    )  # fmt: skip
    broker.table.open(slot, clean=False, cleaner_offset=cleaner_offset)
    state = slot_facts.describe(slot)
    assert state.log_end_offset == end
    return slot, state


@pytest.mark.parametrize("cleaner_offset", [0, 3, None], ids=["just begun", "half way", "not known"])
def test_a_log_of_an_older_version_or_of_kafka_keeps_its_gaps_and_gets_a_limit(
    broker: OneBroker, tmp_path: Path, cleaner_offset: int | None
) -> None:
    log = compacted_log(broker)
    (log.path / GAPS_CHECKPOINT).unlink()
    slot, state = reopened(broker, log, cleaner_offset, 8)
    assert state.gap_limit == ANY_GAP
    path = broker.path / "u-0"
    slot_probe.append(slot, [batch()])
    GapLimits(broker.shm, [broker.path]).run()
    assert slot_facts.describe(slot).gap_limit == read_gap_limit(path) == 9
    assert slot_facts.describe(slot).flushed_offset == 9, "what is below the limit is on the device"
    slot_probe.roll(slot)
    slot_probe.append(slot, [batch()])
    slot_probe.roll(slot)
    slot_probe.append(slot, [batch()])
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    (copy / f"{9:020d}.log").write_bytes(b"")
    assert load_log(copy).log_end_offset == 9


def test_a_log_without_a_limit_is_not_compacted(broker: OneBroker) -> None:
    log = compacted_log(broker)
    (log.path / GAPS_CHECKPOINT).unlink()
    slot, _ = reopened(broker, log, 3, 8)
    broker.table.configure(slot, {"compact": 1})
    slot_probe.append(slot, [batch()])
    slot_probe.roll(slot)
    made = compaction(broker)
    assert made.choose(5000) is None
    GapLimits(broker.shm, [broker.path]).run()
    chosen = made.choose(5000)
    assert chosen is not None and chosen.partition == ("u", 0)


def test_a_cleaner_offset_beyond_the_log_end_is_lowered_before_the_log_grows_past_it(
    broker: OneBroker,
) -> None:
    """Else a hole in what comes next would pass for the work of compaction, and what comes next for compacted."""
    log = compacted_log(broker)
    path = broker.path / CLEANER_CHECKPOINT
    write_offset_checkpoint(path, {("t", 0): 50, ("gone", 0): 50})
    GapLimits(broker.shm, [broker.path]).run()
    assert read_offset_checkpoint(path) == {("t", 0): 8, ("gone", 0): 50}
    for _ in range(2):
        slot_probe.append(log.slot, [batch()])
        log.roll()
    write_offset_checkpoint(path, {("t", 0): 50})
    chosen = compaction(broker).choose(5000)
    assert chosen is not None
    assert chosen.first_dirty_offset == 8


# -- followers -----------------------------------------------------------------------------------------------------------


def following(broker: OneBroker) -> int:
    slot = broker.create()
    broker.obey(slot, 1)
    return slot


def test_a_follower_raises_its_limit_for_copied_gaps(broker: OneBroker, tmp_path: Path) -> None:
    slot = following(broker)
    path = broker.table.path(slot)
    slots.follow(slot, batch(2) + batch(1, base_offset=2), 0)
    assert read_gap_limit(path) is None
    slots.follow(slot, batch(1, base_offset=7) + batch(1, base_offset=8) + batch(1, base_offset=12), 0)
    assert slot_facts.describe(slot).gap_limit == read_gap_limit(path) == 12
    slots.follow(slot, batch(1, base_offset=13), 0)
    assert broker.reload(slot, tmp_path / "copy").log_end_offset == 14
    assert read_gap_limit(path) == 12


def test_a_follower_without_a_known_limit_raises_it_for_copied_gaps(broker: OneBroker, tmp_path: Path) -> None:
    """The limit that the log is about to get was read before: it does not cover them."""
    log = compacted_log(broker)
    (log.path / GAPS_CHECKPOINT).unlink()
    slot = reopened(broker, log, 3, 8)[0]
    path = broker.path / "u-0"
    flushing.flush(slot, whole=True)
    broker.obey(slot, 1)
    state = slot_facts.describe(slot)
    assert (state.gap_limit, state.synced_end) == (ANY_GAP, 8)
    slots.follow(slot, batch(1, base_offset=8) + batch(1, base_offset=20), 0)
    slot_upkeep.raise_gap_limit(slot, 8, incarnation=state.incarnation, truncations=state.truncations)
    assert slot_facts.describe(slot).gap_limit == read_gap_limit(path) == 20
    assert broker.reload(slot, tmp_path / "copy").log_end_offset == 21


def test_a_truncation_lowers_the_limit_with_the_log(broker: OneBroker, tmp_path: Path) -> None:
    slot = following(broker)
    path = broker.table.path(slot)
    slots.follow(slot, batch(2) + batch(1, base_offset=7) + batch(1, base_offset=12), 0)
    slots.truncate(slot, 7)
    assert slot_facts.describe(slot).gap_limit == read_gap_limit(path) == 7
    for offset in (7, 8, 9):
        slots.follow(slot, batch(1, base_offset=offset), 0)
        slot_probe.roll(slot)
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    (copy / f"{8:020d}.log").write_bytes(b"")
    assert load_log(copy).log_end_offset == 8, "before the truncation offsets up to 12 were missing, none is now"


def test_a_truncation_makes_a_limit_known_to_a_start_too(broker: OneBroker, tmp_path: Path) -> None:
    """A log whose gaps are not known: without a file, and without an entry of the cleaner, a start allows no gaps."""
    log = compacted_log(broker)
    (log.path / GAPS_CHECKPOINT).unlink()
    slot = reopened(broker, log, None, 8)[0]
    broker.obey(slot, 1)
    slots.truncate(slot, 7)
    assert slot_facts.describe(slot).gap_limit == read_gap_limit(broker.path / "u-0") == 7
    assert broker.reload(slot, tmp_path / "copy").log_end_offset == 7


@pytest.mark.parametrize(
    ("offset", "end"), [(0, 0), (1, 0), (2, 0), (3, 3), (4, 3), (5, 5), (6, 6), (7, 7), (8, 7), (9, 9)]
)
@pytest.mark.parametrize("rolled", [False, True])
def test_a_truncation_inside_a_batch_leaves_no_gap(
    broker: OneBroker, tmp_path: Path, offset: int, end: int, rolled: bool
) -> None:
    """Batches at 0-2, 3-4 and 7-8, of which 5 and 6 were compacted away by the leader."""
    slot = following(broker)
    slots.follow(slot, batch(3) + batch(2, base_offset=3) + batch(2, base_offset=7), 0)
    if rolled:
        slot_probe.roll(slot)
    slots.truncate(slot, offset)
    assert slot_facts.describe(slot).log_end_offset == end
    slots.follow(slot, batch(1, base_offset=end), 0)
    loaded = broker.reload(slot, tmp_path / "copy")
    assert loaded.log_end_offset == end + 1
    assert not [event for event in loaded.events if "missing" in event.message]


# -- truncation and the checkpoints --------------------------------------------------------------------------------------


def synced_follower(broker: OneBroker) -> int:
    slot = following(broker)
    for offset in range(0, 40, 10):
        slots.follow(slot, batch(10, base_offset=offset), 0)
        slot_probe.roll(slot)
    flushing.flush(slot, whole=True)
    write_checkpoints(broker.shm, [broker.path])
    assert read_offset_checkpoint(broker.path / RECOVERY_POINT_CHECKPOINT) == {("t", 0): 40}
    return slot


def test_a_truncation_lowers_the_recovery_point_and_the_cleaners_offset_on_the_device(broker: OneBroker) -> None:
    slot = synced_follower(broker)
    write_offset_checkpoint(broker.path / CLEANER_CHECKPOINT, {("t", 0): 30, ("other", 0): 30})
    assert truncate(broker.shm, [broker.path], slot, 15) == 10
    assert read_offset_checkpoint(broker.path / RECOVERY_POINT_CHECKPOINT) == {("t", 0): 10}
    assert read_offset_checkpoint(broker.path / CLEANER_CHECKPOINT) == {("t", 0): 10, ("other", 0): 30}
    slots.follow(slot, batch(10, base_offset=10), 0)


@pytest.mark.parametrize("name", ALL_FILES)
@pytest.mark.parametrize("content", [b"garbage", b"0\n1\nt 0\n", b"\xff\xfe"], ids=["words", "columns", "bytes"])
def test_a_checkpoint_that_cannot_be_parsed_keeps_no_log_from_truncating(
    broker: OneBroker, name: str, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    slot = synced_follower(broker)
    (broker.path / name).write_bytes(content)
    assert truncate(broker.shm, [broker.path], slot, 15) == 10
    assert read_offset_checkpoint(broker.path / RECOVERY_POINT_CHECKPOINT) == {("t", 0): 10}
    slots.follow(slot, batch(10, base_offset=10), 0)
    if name == CLEANER_CHECKPOINT:
        assert "are compacted from their start" in caplog.text


def test_nothing_is_appended_before_the_recovery_point_is_lowered(broker: OneBroker) -> None:
    """A start would take it for durable, up to where the log ended before."""
    slot = synced_follower(broker)
    slots.truncate(slot, 10)
    with pytest.raises(slots.SlotChanged, match="unsettled"):
        slots.follow(slot, batch(10, base_offset=10), 0)
    with pytest.raises(slots.SlotChanged, match="recovery point"):
        broker.lead(slot, 2)
    assert truncate(broker.shm, [broker.path], slot, 10) == 10, "as the successor of a process that died in it does"
    slots.follow(slot, batch(10, base_offset=10), 0)
    broker.lead(slot, 2)


def test_a_start_between_a_truncation_and_its_checkpoint_ignores_the_recovery_point(
    broker: OneBroker, tmp_path: Path
) -> None:
    slot = synced_follower(broker)
    slots.truncate(slot, 20)
    (point,) = read_offset_checkpoint(broker.path / RECOVERY_POINT_CHECKPOINT).values()
    copy = tmp_path / "copy"
    shutil.copytree(broker.table.path(slot), copy)
    first = copy / f"{0:020d}.log"
    first.write_bytes(first.read_bytes()[:-1])
    loaded = load_log(copy, recovery_point=point)
    assert (loaded.log_end_offset, loaded.shortened, loaded.recovery_point) == (0, True, 0)


def test_the_sync_of_a_log_covers_its_epochs_and_its_limit(broker: OneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """An append does not wait for the device because an epoch begins; the recovery point waits."""
    slot = broker.create()
    slot_probe.append(slot, [batch()])
    broker.lead(slot, 3)
    slot_probe.append(slot, [batch()])
    path = broker.table.path(slot)
    assert read_leader_epochs(path / "leader-epoch-checkpoint") == [(0, 0), (3, 1)]
    write_gap_limit(path, 1)
    flushing.flush(slot, whole=True)
    assert slot_facts.describe(slot).flushed_offset == 2
    # Of an empty file, as a loss of power may leave it, the epochs come from the batches.
    (path / "leader-epoch-checkpoint").write_bytes(b"")
    assert slot_facts.of_open_log(slot).gap_limit == 0
    assert load_log(path, recovery_point=2).epochs == [(0, 0), (3, 1)]
