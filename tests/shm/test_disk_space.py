"""A disk that becomes full: marks, hysteresis, reserve, refused appends; and log directories that fail."""

import errno
import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from odradek._ext.partition import flushing, slot_life, slots
from odradek._ext.shm.layout import DiskState
from odradek._ext.shm.slot import SlotState
from odradek._ext.storage.log_dirs import note_error
from odradek._ext.testing import slot_probe
from odradek.cleaner import disk_space
from odradek.cleaner.disk_space import DiskSpace, Marks, judge
from odradek.cli.framework.output import size
from odradek.cli.health import local as health_local
from odradek.cli.machine import status_table
from odradek.config import broker_config
from odradek.config.errors import ConfigError
from odradek.processes.supervisor.status import _log_dir
from odradek.shm import checkpoints
from odradek.storage import file_names
from tests.shm.one_broker import SETTINGS, OneBroker, batch

ROOMY, LOW, FULL = DiskState.DISK_ROOMY, DiskState.DISK_LOW, DiskState.DISK_FULL
BLOCK = 4096
TOTAL = 100_000 * BLOCK
SOFT, HARD, RESERVE = 10_000 * BLOCK, 4_000 * BLOCK, 100 * BLOCK
NOT_ENOUGH_REPLICAS = 19


class Disk:
    """A file system of which the test says how much is free; files in it are real."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, broker: OneBroker) -> None:
        self.free = TOTAL
        self.free_files = 1 << 20
        self.now = 100.0
        self.hastened = 0
        self._broker = broker
        config = broker_config.load(
            None,
            [
                f"odradek.log.dir.soft.free.bytes={SOFT}",
                "odradek.log.dir.soft.free.percent=100",
                f"odradek.log.dir.hard.free.bytes={HARD}",
                "odradek.log.dir.hard.free.percent=100",
                f"odradek.log.dir.reserve.bytes={RESERVE}",
            ],
        )
        monkeypatch.setattr(os, "statvfs", self._statvfs)
        self.space = DiskSpace(config, broker.shm, [broker.path], self._hasten, lambda: self.now)

    def _hasten(self) -> None:
        self.hastened += 1

    @property
    def reserve(self) -> Path:
        return self._broker.path / file_names.RESERVE

    def _statvfs(self, path: object) -> SimpleNamespace:
        taken = RESERVE if self.reserve.exists() else 0
        return SimpleNamespace(
            f_blocks=TOTAL // BLOCK,
            f_bavail=(self.free - taken) // BLOCK,
            f_frsize=BLOCK,
            f_files=1 << 21,
            f_favail=self.free_files,
        )

    def look(self, free: int | None = None) -> DiskState:
        if free is not None:
            self.free = free
        self.space.look()
        state: DiskState = self._broker.shm.disk(0)[0]
        return state


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch, broker: OneBroker) -> Disk:
    return Disk(monkeypatch, broker)


def test_the_smaller_one_of_bytes_and_share_is_the_mark() -> None:
    marks = Marks(2000, 5.0, 500, 1.0, 100)
    assert (marks.soft(10_000), marks.hard(10_000), marks.reserve(10_000)) == (500, 100, 100)
    assert (marks.soft(10**6), marks.hard(10**6), marks.reserve(10**6)) == (2000, 500, 100)
    assert marks.reserve(1000) == 10


@pytest.mark.parametrize(
    ("before", "free", "after"),
    [
        (ROOMY, 1000, ROOMY),
        (ROOMY, 999, LOW),
        (ROOMY, 99, FULL),
        (LOW, 1099, LOW),
        (LOW, 1100, ROOMY),
        (LOW, 100, LOW),
        (FULL, 124, FULL),
        (FULL, 125, LOW),
        (FULL, 1099, LOW),
        (FULL, 1100, ROOMY),
    ],
)
def test_leaving_a_state_takes_more_room_than_entering_it(before: DiskState, free: int, after: DiskState) -> None:
    assert judge(before, free, 1000, 100) == after


def test_the_marks_are_passed_one_after_the_other_and_back(disk: Disk, broker: OneBroker) -> None:
    assert disk.look() == ROOMY
    assert disk.reserve.stat().st_size == RESERVE and disk.reserve.stat().st_blocks * 512 >= RESERVE
    assert disk.hastened == 0
    assert disk.look(SOFT) == LOW  # the reserve takes a part of what is free
    assert disk.hastened == 1
    assert disk.look(HARD) == FULL
    assert not disk.reserve.exists()
    assert disk.hastened == 2
    assert broker.shm.disk(0)[1:] == (HARD - RESERVE, TOTAL, 1)
    assert disk.look(HARD + RESERVE) == FULL
    assert disk.look(HARD * 5 // 4 + RESERVE) == LOW
    assert disk.reserve.exists()
    assert disk.look(SOFT * 11 // 10 + RESERVE) == ROOMY
    assert broker.shm.disk(0)[3] == 1


@pytest.mark.parametrize("call", ["open", "unlink"])
def test_a_reserve_that_finds_no_room_is_a_full_disk_and_no_failed_one(
    disk: Disk, broker: OneBroker, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Making it needs an inode, and where files are never changed in place giving it back needs room, too."""
    disk.look()
    with monkeypatch.context() as patch:
        if call == "open":
            disk.reserve.unlink()
            patch.setattr(os, "open", no_room)
            assert disk.look() == FULL
        else:
            patch.setattr(Path, "unlink", no_room)
            assert disk.look(0) == FULL
        assert not broker.shm.log_dir_offline(0)
    assert disk.look(TOTAL) == ROOMY
    assert disk.reserve.exists()


def no_room(path: object, *_: object, **__: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def test_no_free_inode_is_full_as_well(disk: Disk) -> None:
    disk.free_files = 10
    assert disk.look() == FULL
    disk.free_files = 1000
    assert disk.look() == ROOMY


@pytest.mark.parametrize(
    ("cause", "log", "finding", "line"),
    [
        ("space", r"is full \(\d[\d,]+ of .* are free\): .* until .* bytes are free", "the disk is full: ", "until "),
        ("files", "fewer than 64 inodes are free, although .* until 64 inodes", "few inodes", "inodes are few"),
        ("write", "a write found no space, .* although .* for some seconds", "found no space", "found no space"),
    ],
)
def test_log_status_and_doctor_tell_the_same_reason(
    disk: Disk, broker: OneBroker, caplog: pytest.LogCaptureFixture, cause: str, log: str, finding: str, line: str
) -> None:
    marks = Marks(SOFT, 100.0, HARD, 100.0, RESERVE)
    disk.look()
    if cause == "space":
        disk.free = HARD
    elif cause == "files":
        disk.free_files = 10
    else:
        slot = broker.create()
        note_error(0, errno.EDQUOT)
        slot_probe.append(slot, [batch()])
    assert disk.look() == FULL
    assert re.search(log, caplog.text)
    row = _log_dir(str(broker.path), True, broker.shm.disk(0), marks)
    [found] = health_local._log_dir(row)
    assert finding in found.what and line in status_table._condition(row)
    limit = size(row["full_until_bytes"])
    for text in (*found, status_table._condition(row)):
        assert (f"until {limit} are free" in text) <= (cause == "space"), "so much is free already"
    assert row["full_despite_space"] == (cause != "space")


def test_a_write_without_room_is_the_state_at_once_and_holds_it_for_a_while(disk: Disk, broker: OneBroker) -> None:
    slot = broker.create()
    disk.look()
    assert not disk.space.urgent()
    note_error(0, errno.EDQUOT)
    assert slot_probe.append(slot, [batch()]) == [(NOT_ENOUGH_REPLICAS, -1, False)]
    assert disk.space.urgent()
    assert disk.look() == FULL  # although the file system says that there is room
    disk.now += disk_space.HOLD_MS / 1000 - 0.1
    assert disk.look() == FULL
    disk.now += 0.2
    assert disk.look() == ROOMY
    assert slot_probe.append(slot, [batch()]) == [(0, 0, False)]
    assert broker.shm.disk(0)[3] == 1


def test_a_disk_with_less_space_than_a_batch_needs_stays_full_longer_each_time(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    """Free space is above the hard limit, so that only the writes of producers find out that it is not enough."""
    caplog.set_level("INFO", "odradek.disks")
    free = HARD * 3 // 2 // BLOCK * BLOCK
    holds = []
    disk.look(free)
    for _ in range(5):
        for _ in range(3):  # of a batch, and of commits while the disk is full
            note_error(0, errno.ENOSPC)
            assert disk.look() == FULL
        began = disk.now
        while disk.look() == FULL:
            disk.now += 1.0
        holds.append(disk.now - began)
        disk.now += 1.0  # a producer tries again, a little later
    assert holds == [5, 10, 20, 30, 30]
    assert caplog.text.count("is full (") == 1 and caplog.text.count("is low on space") == 1  # before and once
    disk.now += disk_space.LONGEST_HOLD_MS / 1000
    assert disk.look() == LOW
    assert caplog.text.count("is low on space") == 2
    note_error(0, errno.ENOSPC)
    assert disk.look() == FULL
    assert disk.look(free + HARD) == FULL
    assert disk.look(free + HARD + BLOCK) == LOW  # at once: space was freed
    note_error(0, errno.ENOSPC)
    assert disk.look() == FULL
    disk.now += disk_space.HOLD_MS / 1000
    assert disk.look() == LOW  # the first wait is short again


def test_a_full_disk_refuses_new_batches_but_not_what_it_has_nor_the_brokers_own(disk: Disk, broker: OneBroker) -> None:
    slot = broker.create()
    first = batch(producer_id=5, producer_epoch=0, base_sequence=0)
    assert slot_probe.append(slot, [first]) == [(0, 0, False)]
    own = broker.table.create(
        "__consumer_offsets",
        bytes(16),
        0,
        log_dir=0,
        replicas=[1],
        in_sync=[1],
        leader_id=1,
        leader_epoch=0,
        partition_epoch=0,
        settings=SETTINGS,
        internal=True,
    )
    broker.table.open(own)
    disk.look(0)
    second, third = (batch(producer_id=5, producer_epoch=0, base_sequence=n) for n in (1, 2))
    assert slot_probe.append(slot, [first, second, third]) == [
        (0, 0, True),
        (NOT_ENOUGH_REPLICAS, -1, False),
        (NOT_ENOUGH_REPLICAS, -1, False),
    ]
    assert slot_probe.append(own, [batch()]) == [(0, 0, False)]
    assert flushing.flush(slot)
    disk.look(TOTAL)
    assert slot_probe.append(slot, [second, third]) == [(0, 1, False), (0, 2, False)]


def test_a_directory_that_is_another_one_now_goes_offline_with_its_partitions(
    disk: Disk, broker: OneBroker, caplog: pytest.LogCaptureFixture
) -> None:
    made = [broker.create("t", number) for number in range(3)]
    slot_life.set_offline(made[0])  # the process that met the error was faster
    disk.look()
    broker.path.rename(broker.path.with_name("moved"))
    broker.path.mkdir()
    disk.look()
    assert broker.shm.log_dir_offline(0)
    assert {slots.state_of(slot) for slot in made} == {SlotState.SLOT_OFFLINE}
    assert f"{broker.path} is offline with its 3 partitions" in caplog.text
    disk.look()
    assert caplog.text.count("is offline with its") == 1


def test_a_directory_that_is_gone_goes_offline(disk: Disk, broker: OneBroker) -> None:
    disk.look()
    broker.path.rename(broker.path.with_name("moved"))
    disk.look()
    assert broker.shm.log_dir_offline(0)


def test_a_failing_device_told_by_anyone_is_looked_after_at_once(disk: Disk, broker: OneBroker) -> None:
    slot = broker.create()
    disk.look()
    note_error(0, errno.ENOENT)
    note_error(0, errno.EACCES)
    assert not disk.space.urgent()
    note_error(0, errno.EIO)
    assert disk.space.urgent()
    assert slots.state_of(slot) == SlotState.SLOT_OFFLINE  # even before the cleaner looked
    disk.look()
    assert not disk.space.urgent()


def test_a_log_that_cannot_be_opened_for_lack_of_room_waits(broker: OneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "partition.metadata")

    with monkeypatch.context() as patch:
        patch.setattr("odradek.shm.partition_table.write_partition_metadata", no_room)
        with pytest.raises(OSError, match=r"partition\.metadata"):
            broker.create()
    (slot,) = slot_life.waiting_for_room()
    assert broker.shm.disk(0)[0] == FULL
    assert broker.table.open(slot) is not None
    assert slot_life.waiting_for_room() == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS], ids=errno.errorcode.get)
def test_a_checkpoint_that_cannot_be_written_keeps_the_old_one_and_is_named(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    slot_probe.append(broker.create(), [batch()])
    assert checkpoints.write_checkpoints(broker.shm, [broker.path]) == set()
    path = broker.path / file_names.RECOVERY_POINT_CHECKPOINT
    before = path.read_bytes()
    flushing.flush(0)

    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail)
        assert checkpoints.write_checkpoints(broker.shm, [broker.path]) == {0}
    assert path.read_bytes() == before
    assert not path.with_name(path.name + ".tmp").exists()
    assert str(path) in caplog.text and os.strerror(number) in caplog.text
    assert broker.shm.log_dir_offline(0) == (number != errno.ENOSPC)
    assert (broker.shm.disk(0)[0] == FULL) == (number == errno.ENOSPC)


def test_a_hard_limit_above_the_soft_one_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"odradek\.log\.dir\.hard\.free\.percent.*at most.*soft"):
        broker_config.load(None, ["odradek.log.dir.hard.free.percent=7.5"])
