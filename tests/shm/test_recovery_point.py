"""What a sync up to the recovery point covers, and where a start begins to read."""

import ctypes
import errno
from pathlib import Path

import pytest

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import flushing
from odradek._ext.storage.segments import load_log
from odradek._ext.testing import slot_probe
from tests.shm.one_broker import OneBroker, batch

CACHESTAT = 451  # Linux 6.5


class Pages(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")]


def dirty_pages(path: Path) -> int:
    """How many pages of a file are not on the device."""
    pages = Pages()
    whole = (ctypes.c_uint64 * 2)(0, 0)
    with path.open("rb") as file:
        if ctypes.CDLL(None, use_errno=True).syscall(CACHESTAT, file.fileno(), whole, ctypes.byref(pages), 0):
            if ctypes.get_errno() == errno.ENOSYS:
                pytest.skip("this kernel cannot tell which pages are dirty (cachestat, Linux 6.5)")
            raise OSError(ctypes.get_errno(), "cachestat", str(path))
    return int(pages.dirty + pages.writeback)


def test_a_time_index_entry_written_by_a_roll_right_after_a_sync_is_recovered(tmp_path: Path) -> None:
    """The roll adds the last entry to a segment that was synced up to its end before: nothing has synced that entry."""
    with OneBroker(tmp_path) as broker:
        slot = broker.create()
        slot_probe.append(slot, [batch(timestamp=1000), batch(timestamp=2000)])
        flushing.flush(slot)
        slot_probe.roll(slot)
        path = broker.table.path(slot)
        times = path / f"{0:020d}.timeindex"
        written = times.read_bytes()
        assert len(written) == 12
        for lost in (bytes(12), b""):
            times.write_bytes(lost)
            load_log(path, recovery_point=slot_facts.describe(slot).flushed_offset)
            assert times.read_bytes() == written


def test_the_sync_after_a_roll_covers_the_segment_that_was_rolled(tmp_path: Path) -> None:
    with OneBroker(tmp_path) as broker:
        slot = broker.create()
        slot_probe.append(slot, [batch(timestamp=1000)])
        flushing.flush(slot)
        slot_probe.roll(slot)
        slot_probe.append(slot, [batch(timestamp=2000)])
        flushing.flush(slot)
        assert dirty_pages(broker.table.path(slot) / f"{0:020d}.timeindex") == 0
