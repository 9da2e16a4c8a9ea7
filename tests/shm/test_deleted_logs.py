"""Directories of deleted partitions are removed after log.segment.delete.delay.ms, or immediately if disk space is low."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek._ext.partition.removed_files import removed_files
from odradek._ext.shm.layout import DiskState
from odradek.cleaner.deleted_logs import DeletedLogs
from tests.shm.one_broker import OneBroker

DELETED = "t-0." + "0" * 32 + "-delete"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    data = tmp_path / "data"
    data.mkdir()
    with OneBroker(data) as made:
        yield made


def test_a_deleted_log_stays_for_its_delay_whatever_the_wall_clock_says(broker: OneBroker) -> None:
    now_ms = [5000]
    deleted = DeletedLogs(broker.shm, [broker.path], lambda: now_ms[0])
    removed, other = broker.path / DELETED, broker.path / "u-0"
    for path in (removed, other):
        path.mkdir()
        for number in range(3):
            (path / f"{number}.log").write_bytes(b"x")
    os.utime(removed, (0, 0))
    deleted.remove(60_000)
    now_ms[0] += 59_999
    deleted.remove(60_000)
    assert removed.exists()
    before, beats = removed_files(), broker.shm.processes()[0].progress
    now_ms[0] += 1
    deleted.remove(60_000)
    assert not removed.exists()
    assert other.exists()
    assert removed_files() > before
    assert broker.shm.processes()[0].progress - beats == 3, "it beats after each file: a device may be slow"


def test_a_deleted_log_is_removed_at_once_from_a_directory_without_room(broker: OneBroker, tmp_path: Path) -> None:
    second = tmp_path / "second"
    second.mkdir()
    descriptor = os.open(second, os.O_RDONLY)
    broker.shm.add_log_dir(descriptor)
    deleted = DeletedLogs(broker.shm, [broker.path, second])
    for path in (broker.path, second):
        (path / DELETED).mkdir()
    broker.shm.set_disk(1, DiskState.DISK_LOW, 0, 0)
    deleted.remove(60_000)
    assert [(path / DELETED).exists() for path in (broker.path, second)] == [True, False]
    os.close(descriptor)
