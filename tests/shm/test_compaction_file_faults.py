"""Each file call of a compaction pass and of a removal of segments fails in turn: nothing is lost, and a later pass succeeds.

Needs the debug build, and runs in its copy of the project: ``make test-faults``.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import flushing, log_start, slot_upkeep, slots
from odradek._ext.partition.slot_access import AppendResult
from odradek._ext.shm.layout import DiskState
from odradek._ext.shm.slot import SlotState
from odradek._ext.storage.file_calls import FileCall, take_failures
from odradek._ext.testing import fault_points, slot_probe
from odradek.storage.checkpoints import read_gap_limit
from tests.shm.compaction_harness import CompactedLog
from tests.shm.compaction_model import Kept
from tests.shm.fault_build import require_fault_points
from tests.shm.one_broker import OneBroker, batch
from tests.shm.test_compaction_faults import after_load, filled

pytestmark = pytest.mark.faults
require_fault_points("FILE FAULT")

NOW_MS = 5000
KEEP = 6  # the base of the last segment but the active one
CHANGES = 0xFF & ~int(FileCall.CALL_READ)
ALL = 0xFF


def clean(log: CompactedLog) -> None:
    log.sweep(NOW_MS)


def allow_gaps(log: CompactedLog) -> None:
    log.allow_gaps(KEEP)


def remove(log: CompactedLog) -> None:
    incarnation = slot_probe.incarnation_of(log.slot)
    if slot_facts.describe(log.slot).log_start_offset < KEEP:
        log_start.advance(log.slot, KEEP, incarnation=incarnation)
    assert log_start.remove_before(log.slot, KEEP, incarnation=incarnation) == AppendResult.APPEND_OK


WORKS: dict[str, Callable[[CompactedLog], None]] = {"clean": clean, "remove": remove, "allow gaps": allow_gaps}


def outcome(log: CompactedLog, name: str) -> list[Kept]:
    """What the log is when the work is done."""
    if name == "clean":
        return log.expected(NOW_MS)
    if name == "allow gaps":
        return log.content()
    return [one for one in log.content() if one.last_offset >= KEEP]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., CompactedLog]]:
    """New brokers with a log each, because a directory that failed stays out of use."""
    opened: list[OneBroker] = []

    def made(name: str, gaps: bool = True) -> CompactedLog:
        while opened:
            opened.pop().close()
        data = tmp_path / name
        data.mkdir()
        opened.append(OneBroker(data, max_slots=64))
        log = filled(opened[-1])
        flushing.flush(log.slot, whole=True)
        if gaps:
            log.allow_gaps()
        return log

    yield made
    while opened:
        opened.pop().close()


def calls_of(log: CompactedLog, name: str, kinds: int) -> int:
    fault_points.arm_file_fault(0, kinds=kinds)
    WORKS[name](log)
    return int(fault_points.file_calls())


def failing(log: CompactedLog, name: str, number: int, n: int, times: int, kinds: int) -> list[str]:
    """Do the work while its n-th file call and `times` - 1 behind it fail; what was said of it."""
    take_failures()
    said = []
    fault_points.arm_file_fault(number, n, times, kinds)
    try:
        WORKS[name](log)
    except OSError as error:
        assert error.errno == number
        said.append(str(error))
    finally:
        fault_points.arm_file_fault(0)
    return said + take_failures()


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("name", sorted(WORKS))
def test_a_full_disk_at_any_call_loses_nothing_and_a_later_pass_works(
    make: Callable[..., CompactedLog], tmp_path: Path, name: str, times: int
) -> None:
    count = calls_of(make("counted", name != "allow gaps"), name, CHANGES)
    assert count >= 4
    for n in range(1, count + 1):
        where = f"{name}, call {n}"
        log = make(f"{n}", name != "allow gaps")
        broker = log.broker
        before, after = log.content(), outcome(log, name)
        said = failing(log, name, errno.ENOSPC, n, times, CHANGES)
        assert any(str(broker.path) in line and os.strerror(errno.ENOSPC) in line for line in said), f"{where}: {said}"
        assert not broker.shm.log_dir_offline(0), where
        broker.shm.take_log_dirs_found_full()
        broker.shm.set_disk(0, DiskState.DISK_ROOMY, 1 << 30, 1 << 31)
        if slots.state_of(log.slot) == SlotState.SLOT_LOADING:  # left half way: loaded anew when there is room
            broker.table.open(log.slot, clean=False)
        assert slots.state_of(log.slot) == SlotState.SLOT_ONLINE, where
        assert not slot_upkeep.swap_under_way(log.slot), where
        assert log.content()[-1] == after[-1], where
        assert all(one in log.content() for one in after) or log.content() == before, where
        slot_probe.append(log.slot, [batch()])
        appended = log.content()[-1]
        log.first_dirty = 0  # the pass may have got by without the call that failed
        WORKS[name](log)
        assert log.content() == [*after, appended], where
        assert after_load(log, tmp_path / "copy") == [*after, appended], where
        if name == "allow gaps":
            assert read_gap_limit(log.path) == slot_facts.describe(log.slot).gap_limit == KEEP, where


@pytest.mark.parametrize("name", sorted(WORKS))
def test_a_failing_device_at_any_call_takes_the_directory_offline_and_loses_nothing(
    make: Callable[..., CompactedLog], tmp_path: Path, name: str
) -> None:
    count = calls_of(make("counted", name != "allow gaps"), name, ALL)
    for n in range(1, count + 1):
        where = f"{name}, call {n}"
        log = make(f"{n}", name != "allow gaps")
        broker = log.broker
        before, after = log.content(), outcome(log, name)
        said = failing(log, name, errno.EIO, n, 1 << 30, ALL)
        assert any(str(broker.path) in line and os.strerror(errno.EIO) in line for line in said), f"{where}: {said}"
        assert broker.shm.log_dir_offline(0), where
        with pytest.raises(slots.SlotChanged, match="offline"):
            slot_probe.append(log.slot, [batch()])
        loaded = after_load(log, tmp_path / "copy")
        if name != "remove":
            assert loaded in (before, after), where
        else:
            assert loaded[-len(after) :] == after and loaded == before[len(before) - len(loaded) :], where
