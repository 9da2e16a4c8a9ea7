"""Each file call of the data path fails in turn, with a full disk and with a failing device: no acknowledged record is lost.

Needs the debug build, and runs in its copy of the project: ``make test-faults``.
"""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import flushing, slot_life, slot_upkeep, slots
from odradek._ext.shm.layout import DiskState
from odradek._ext.shm.slot import SlotState
from odradek._ext.storage.file_calls import FileCall, take_failures
from odradek._ext.testing import fault_points, flush_probe, slot_probe
from odradek.storage.batch import ABORT, TRANSACTIONAL, build_end_marker, read_batch
from tests.shm.fault_build import require_fault_points
from tests.shm.one_broker import OneBroker, batch, numbered

pytestmark = pytest.mark.faults
require_fault_points("FILE FAULT")

SMALL_INTERVAL = 1  # every batch but the first gets its entries in the indexes
CHANGES = 0xFF & ~int(FileCall.CALL_READ)
Work = Callable[[OneBroker, int], object]


def begun(broker: OneBroker, topic: str) -> int:
    """A partition with two segments, acknowledged batches in each, and a producer with an open transaction."""
    slot = broker.create(topic, index_interval_bytes=SMALL_INTERVAL)
    for sequence in (0, 2):
        slot_probe.append(slot, [numbered(sequence)])
    slot_probe.roll(slot)
    slot_probe.append(
        slot, [batch(1, timestamp=1500, producer_id=9, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)]
    )
    slot_probe.append(slot, [numbered(4)])
    return slot


BEGUN_END = 7


def append(broker: OneBroker, slot: int) -> None:
    slot_probe.append(slot, [numbered(6), numbered(8)])


def abort(broker: OneBroker, slot: int) -> None:
    marker = build_end_marker(
        ABORT, base_offset=7, producer_id=9, producer_epoch=0, coordinator_epoch=1, timestamp=1600
    )
    slot_probe.append(slot, [marker])


def roll(broker: OneBroker, slot: int) -> None:
    slot_probe.roll(slot)


def flush(broker: OneBroker, slot: int) -> None:
    flushing.flush(slot)


def snapshot(broker: OneBroker, slot: int) -> None:
    slot_upkeep.snapshot(slot)


def settle(broker: OneBroker, slot: int) -> None:
    flush_probe.settle(slot)


def lead(broker: OneBroker, slot: int) -> None:
    broker.lead(slot, 1)


def truncate(broker: OneBroker, slot: int) -> None:
    slots.truncate(slot, 5)


def fill(broker: OneBroker, slot: int) -> None:
    """What a start does with the partition: load, and put into its slot."""
    slot_life.set_offline(slot)
    broker.table.open(slot, clean=False)


WORKS: dict[str, Work] = {
    work.__name__: work for work in (append, abort, roll, flush, snapshot, settle, lead, truncate)
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    data = tmp_path / "data"
    data.mkdir()
    with OneBroker(data, max_slots=1024) as made:
        yield made


def found_in(data: bytes) -> list[tuple[int, int]]:
    """[(base offset, base sequence)]; offsets must follow each other."""
    found, at, end = [], 0, 0
    while at < len(data):
        one, size = read_batch(data, at)
        assert one.base_offset == end, "offsets have a gap or overlap"
        end = one.last_offset + 1
        found.append((one.base_offset, one.base_sequence))
        at = size
    return found


def check_files(broker: OneBroker, slot: int, scratch: Path) -> int:
    """The files are as committed, and a start finds what the slot says; the log end offset."""
    state = slot_facts.describe(slot)
    path = broker.table.path(slot)
    base = f"{state.segment_base:020d}"
    assert (path / f"{base}.log").stat().st_size == state.size
    assert (path / f"{base}.index").stat().st_size == state.index_entries * 8
    loaded = broker.reload(slot, scratch, index_interval_bytes=SMALL_INTERVAL)
    assert loaded.log_end_offset == state.log_end_offset
    assert not [event for event in loaded.events if "cut" in event.message]
    return int(state.log_end_offset)


def failing(broker: OneBroker, name: str, slot: int, number: int, n: int, times: int) -> list[str]:
    """Do the work while its n-th file call, and `times` - 1 behind it, fail; what was said of it."""
    if name == "truncate":
        broker.obey(slot, 1)
    take_failures()
    said = []
    fault_points.arm_file_fault(number, n, times, CHANGES)
    try:
        WORKS[name](broker, slot)
    except OSError as error:
        said.append(str(error))
    except slots.SlotChanged:
        pass  # the data path's answer; the file is among the failures
    finally:
        fault_points.arm_file_fault(0)
    return said + take_failures()


def calls_of(broker: OneBroker, name: str, work: Work) -> int:
    slot = begun(broker, f"{name}-counted-{broker.shm.slots_used}")
    if name == "truncate":
        broker.obey(slot, 1)
    fault_points.arm_file_fault(0, kinds=CHANGES)
    work(broker, slot)
    return int(fault_points.file_calls())


def free_again(broker: OneBroker) -> None:
    """The cleaner found room."""
    broker.shm.take_log_dirs_found_full()
    broker.shm.set_disk(0, DiskState.DISK_ROOMY, 1 << 30, 1 << 31)


def renewed(broker: OneBroker, tmp_path: Path, name: str) -> OneBroker:
    """Another broker, because a directory that failed stays out of use."""
    broker.close()
    data = tmp_path / name
    data.mkdir()
    return OneBroker(data, max_slots=1024)


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("name", sorted(WORKS))
def test_a_full_disk_at_any_call_loses_nothing_and_is_a_state(
    broker: OneBroker, tmp_path: Path, name: str, times: int
) -> None:
    work = WORKS[name]
    for n in range(1, calls_of(broker, name, work) + 1):
        where = f"{name}, call {n}"
        broker = renewed(broker, tmp_path, f"{name}{n}")
        slot = begun(broker, "t")
        said = failing(broker, name, slot, errno.ENOSPC, n, times)
        assert any(str(broker.path) in line and os.strerror(errno.ENOSPC) in line for line in said), f"{where}: {said}"
        if broker.shm.log_dir_offline(0):
            assert name in ("flush", "settle"), (
                where
            )  # a failed sync of a log, for whatever reason, is never tried again
            loaded = broker.reload(slot, tmp_path / "copy", index_interval_bytes=SMALL_INTERVAL)
            assert loaded.log_end_offset == BEGUN_END, where
            continue
        if slots.state_of(slot) == SlotState.SLOT_LOADING:  # left half way: loaded anew when there is room
            free_again(broker)
            broker.table.open(slot, clean=False)
        assert slots.state_of(slot) == SlotState.SLOT_ONLINE, where
        free_again(broker)
        with suppress(slots.SlotChanged):  # truncation and leadership need their role, which loading may have changed
            work(broker, slot)
        kept = [sequence for _, sequence in found_in(broker.log_bytes(slot))]
        if name == "truncate":
            assert kept == [0, 2, 0], where
        else:
            assert kept[:4] == [0, 2, 0, 4], where
            assert name != "append" or kept[4:] == [6, 8], where
            slot_probe.append(slot, [batch()])
        check_files(broker, slot, tmp_path / "copy")


@pytest.mark.parametrize("name", sorted(WORKS))
def test_a_failing_device_at_any_call_takes_the_directory_offline_and_loses_nothing(
    broker: OneBroker, tmp_path: Path, name: str
) -> None:
    count = calls_of(broker, name, WORKS[name])
    for n in range(1, count + 1):
        where = f"{name}, call {n}"
        broker = renewed(broker, tmp_path, f"{name}{n}")
        slot = begun(broker, "t")
        other = begun(broker, "other")
        said = failing(broker, name, slot, errno.EIO, n, 1 << 30)
        assert any(str(broker.path) in line and os.strerror(errno.EIO) in line for line in said), f"{where}: {said}"
        assert broker.shm.log_dir_offline(0), where
        for one in (slot, other):
            assert slots.state_of(one) == SlotState.SLOT_OFFLINE, where
            with pytest.raises(slots.SlotChanged, match="offline"):
                slot_probe.append(one, [batch()])
        assert slot_life.fail_log_dir(0) >= 1, where
        loaded = broker.reload(slot, tmp_path / "copy", index_interval_bytes=SMALL_INTERVAL)
        assert loaded.log_end_offset >= (5 if name == "truncate" else BEGUN_END), where


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
def test_loading_that_fails_at_any_call_may_be_repeated(broker: OneBroker, tmp_path: Path, number: int) -> None:
    slot = begun(broker, "t")
    path = broker.table.path(slot)
    slot_upkeep.snapshot(slot)
    log = path / f"{4:020d}.log"
    sound = log.stat().st_size
    for index in path.glob("*index"):
        index.unlink()  # so that there is much to write
    torn = log.read_bytes() + numbered(6)[:30]
    count = None
    n = 0
    while count is None or n < count:
        n += 1
        log.write_bytes(torn)
        for index in path.glob("*index"):
            index.unlink()
        fault_points.arm_file_fault(number if count is not None else 0, n, 1, CHANGES)
        try:
            fill(broker, slot)
        except OSError as error:
            assert error.errno == number
            expected = SlotState.SLOT_LOADING if number == errno.ENOSPC else SlotState.SLOT_OFFLINE
            assert slots.state_of(slot) in (expected, SlotState.SLOT_OFFLINE)
        if count is None:
            count, n = int(fault_points.file_calls()), 0
        fault_points.arm_file_fault(0)
        if broker.shm.log_dir_offline(0):
            assert number == errno.EIO
            loaded = broker.reload(slot, tmp_path / "copy")
            assert loaded.log_end_offset == BEGUN_END
            kept = path.rename(tmp_path / f"kept{n}")
            broker = renewed(broker, tmp_path, f"again{n}")
            slot = broker.create("t")
            path = broker.table.path(slot)
            for file in path.iterdir():
                file.unlink()
            for file in kept.iterdir():
                file.rename(path / file.name)
            log = path / log.name
        free_again(broker)
        fill(broker, slot)
        assert slot_facts.describe(slot).log_end_offset == BEGUN_END
        assert log.stat().st_size == sound
    assert count > 10


def test_reading_that_fails_names_the_file(broker: OneBroker, tmp_path: Path) -> None:
    slot = begun(broker, "t")
    take_failures()
    broker.obey(slot, 1)
    fault_points.arm_file_fault(errno.EIO, 1, 1, int(FileCall.CALL_READ))
    with pytest.raises(slots.SlotChanged, match="i/o error"):
        slots.truncate(slot, 5)
    fault_points.arm_file_fault(0)
    (line,) = take_failures()
    assert line.startswith(f"read of {broker.table.path(slot)}/") and line.endswith(os.strerror(errno.EIO))
    assert broker.shm.log_dir_offline(0)
