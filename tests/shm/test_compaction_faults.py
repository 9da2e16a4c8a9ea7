"""A kill at each step of a swap: the next lock owner, a start and the next pass find the log before or after the swap.

Needs the debug build, and runs in its copy of the project: ``make test-faults``.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import slot_upkeep, slots
from odradek._ext.shm.faults import FaultPoint
from odradek._ext.shm.slot import SlotState
from odradek._ext.storage.file_calls import FileCall, take_failures
from odradek._ext.storage.segments import load_log
from odradek._ext.testing import fault_points, slot_probe
from odradek.storage.batch import ABORT
from odradek.storage.checkpoints import read_gap_limit, read_offset_checkpoint
from tests.shm.compaction_harness import CompactedLog, compaction, record
from tests.shm.compaction_model import Kept, parse, seen
from tests.shm.fault_build import require_fault_points
from tests.shm.one_broker import OneBroker, batch

pytestmark = pytest.mark.faults
require_fault_points()

#: Fault point, and how often it is passed in one swap of this log.
SWAP = {
    FaultPoint.CLEANED_WRITTEN: 1,
    FaultPoint.SWAP_PREPARED_ONE: 4,
    FaultPoint.SWAP_PREPARED: 1,
    FaultPoint.SWAP_DIRECTORY_SYNCED: 1,
    FaultPoint.SWAP_INTENT_STORED: 1,
    FaultPoint.SWAP_OLD_RENAMED: 6,
    FaultPoint.SWAP_FIRST_SET_ASIDE: 4,
    FaultPoint.SWAP_NAME_TAKEN: 4,
    FaultPoint.SWAP_FILES_RENAMED: 1,
    FaultPoint.SWAP_GENERATION_CHANGED: 1,
    FaultPoint.SWAP_UNLOCKED: 1,
}
#: Of a whole pass, in the order in which they are met, before the first swap and behind the last.
AROUND_THE_SWAPS = (
    FaultPoint.GAP_LIMIT_PREPARED,
    FaultPoint.GAP_LIMIT_NAMED,
    FaultPoint.GAP_LIMIT_DURABLE,
    FaultPoint.CLEANER_OFFSET_WRITTEN,
)
CASES = [(point, count) for point, times in SWAP.items() for count in range(1, times + 1)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    data = tmp_path / "data"
    data.mkdir()
    with OneBroker(data, processes=3) as made:
        yield made


def filled(broker: OneBroker) -> CompactedLog:
    """Three segments that become one, with an aborted transaction, and the active one."""
    log = CompactedLog(broker, index_interval_bytes=1)
    log.append([record("a", "1"), record("b", "1")])
    log.append([record("a", "aborted")], producer=7, transactional=True)
    log.end(7, ABORT)
    log.roll()
    log.append([record("a", "2"), record("c", None)])
    log.roll()
    log.append([record("b", "2")])
    log.roll()
    log.append([record("a", "3")])
    return log


def after_load(log: CompactedLog, copy: Path) -> list[Kept]:
    """What a start finds in a copy of the directory; it repairs what is left half done."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(log.path, copy)
    loaded = load_log(copy, 0, 0, False, 1)
    assert loaded.log_end_offset == slot_facts.describe(log.slot).log_end_offset
    assert not [path for path in copy.iterdir() if path.suffix in (".cleaned", ".swap", ".deleted")]
    return [seen(batch) for batch in parse(b"".join(path.read_bytes() for path in sorted(copy.glob("*.log"))))]


@pytest.mark.parametrize(("point", "countdown"), CASES, ids=[f"{FaultPoint(p).name}-{c}" for p, c in CASES])
def test_a_swap_killed_at_any_point_loses_nothing(
    broker: OneBroker, tmp_path: Path, point: FaultPoint, countdown: int
) -> None:
    log = filled(broker)
    before, after = log.content(), log.expected(5000)
    assert before != after
    broker.die(log.clean, point, countdown=countdown)
    begun = point >= FaultPoint.SWAP_INTENT_STORED
    # The whole broker dies here, and starts again: a swap that is whole is completed, anything less is dropped.
    assert after_load(log, tmp_path / "copy") == (after if point >= FaultPoint.SWAP_PREPARED else before) or (
        point == FaultPoint.SWAP_PREPARED_ONE and countdown == SWAP[point]
    )
    # The broker lives on, and somebody takes the lock.
    slot_probe.append(log.slot, [batch()])
    state = slot_facts.describe(log.slot)
    assert state.state == SlotState.SLOT_ONLINE
    assert state.intent == 0
    assert not slot_upkeep.swap_under_way(log.slot)
    appended = log.content()[-1]
    assert log.content()[:-1] == (after if begun else before)
    assert state.truncations == 0
    # The cleaner's successor goes over it again.
    log.clean(now_ms=5000)
    assert log.content() == [*after, appended]
    assert not list(log.path.glob("*.cleaned")) + list(log.path.glob("*.swap"))
    assert after_load(log, tmp_path / "copy") == [*after, appended]


@pytest.mark.parametrize("point", AROUND_THE_SWAPS, ids=lambda point: point.name)
def test_a_pass_killed_before_or_behind_its_swaps_loses_nothing(
    broker: OneBroker, tmp_path: Path, point: FaultPoint
) -> None:
    log = filled(broker)
    before, after = log.content(), log.expected(5000)
    border = log.border()

    def pass_over() -> None:
        cleaning = compaction(broker)
        cleaning.run_once(cleaning.make_compactor(), 5000)

    broker.die(pass_over, point)
    done = point == FaultPoint.CLEANER_OFFSET_WRITTEN
    assert read_gap_limit(log.path) == (None if point == FaultPoint.GAP_LIMIT_PREPARED else border)
    assert after_load(log, tmp_path / "copy") == (after if done else before)
    assert read_offset_checkpoint(broker.path / "cleaner-offset-checkpoint") == ({("t", 0): border} if done else {})
    pass_over()
    assert slot_facts.describe(log.slot).gap_limit == read_gap_limit(log.path) == border
    assert not list(log.path.glob("*.prepared"))
    assert log.content() == after
    assert after_load(log, tmp_path / "copy") == after
    assert read_offset_checkpoint(broker.path / "cleaner-offset-checkpoint") == {("t", 0): border}


def test_a_gap_that_was_named_by_a_dead_cleaner_is_made_to_last_by_the_next(broker: OneBroker) -> None:
    """It died between the name and its sync: a loss of power could take the name back, so the next pass syncs it again."""
    log = filled(broker)
    broker.die(log.allow_gaps, FaultPoint.GAP_LIMIT_NAMED)
    assert slot_facts.describe(log.slot).gap_limit == log.border()
    take_failures()
    fault_points.arm_file_fault(errno.EIO, 1, 1 << 30, int(FileCall.CALL_SYNC))
    with pytest.raises(OSError, match="Input/output error"):
        log.allow_gaps()
    fault_points.arm_file_fault(0)


def test_a_truncation_after_a_prepared_swap_is_not_undone_by_a_start(broker: OneBroker, tmp_path: Path) -> None:
    log = filled(broker)
    broker.die(log.clean, FaultPoint.SWAP_DIRECTORY_SYNCED)
    assert list(log.path.glob("*.swap"))
    broker.obey(log.slot, 1)
    slots.truncate(log.slot, 4)
    left = log.content()
    assert left[-1].last_offset == 3
    assert after_load(log, tmp_path / "copy") == left


def test_a_dead_author_s_swap_is_finished_for_a_reader(broker: OneBroker) -> None:
    log = filled(broker)
    after = log.expected(5000)
    broker.die(log.clean, FaultPoint.SWAP_FIRST_SET_ASIDE, countdown=4)
    assert slot_upkeep.swap_under_way(log.slot)
    slot_upkeep.settle_swap(log.slot)
    assert not slot_upkeep.swap_under_way(log.slot)
    assert log.content() == after
