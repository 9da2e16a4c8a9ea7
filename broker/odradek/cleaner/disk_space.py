"""Watches the free space on the file systems of the log directories: the limits, the resulting state, the reserve. Runs in the
cleaner.

A full disk is a state of a log directory, not a failure (docs/decisions/0011). The cleaner checks once a second, and
immediately when a write of any process found no space. Only the cleaner ends the state, through words of the shared header
that the data path reads. Any other problem with a directory (it was removed, it was replaced by another one, it cannot be
read) takes it offline.
"""

import errno
import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import odradek._ext.partition.slot_life as slot_life
from odradek._ext.shm.layout import DiskState
from odradek._ext.shm.shared_memory import SharedMemory
from odradek.cleaner.disk_marks import LEAVE_FULL, Marks
from odradek.config.broker_config import BrokerConfig
from odradek.storage.atomic_file import NO_ROOM
from odradek.storage.file_names import RESERVE

log = logging.getLogger("odradek.disks")

LOOK_EVERY_MS = 1000
HASTEN_LOW_EVERY_MS, HASTEN_FULL_EVERY_MS = 10_000, 2_000
HOLD_MS, LONGEST_HOLD_MS = 5000, 30_000
"""How long a directory stays full after a write found no space although the file system reports free space (a quota, or less
space than a batch needs). The time doubles if a write finds no space again within `LONGEST_HOLD_MS` after it; it ends when
space is freed."""
FEWEST_FILES = 64
"""With fewer free inodes, segments cannot be rolled, so the directory counts as full."""
SPACE = "{room}"
FILES = "fewer than {fewest} inodes are free, although {room}"
WRITES = "a write found no space, as with a quota, although {room}"
"""Why a directory is full, as its log line says it."""
LEAVE_LOW = 1.1
"""DISK_LOW ends only when the free space exceeds its limit by this factor, DISK_FULL by `LEAVE_FULL`."""


def judge(before: DiskState, free: int, soft: int, hard: int) -> DiskState:
    """The state of a file system with `free` bytes, without the reserve.

    :param before: the present state. Leaving it requires more space than entering it, so that the state does not flap.
    """
    if free < hard or (before == DiskState.DISK_FULL and free < hard * LEAVE_FULL):
        return DiskState.DISK_FULL
    if free < soft or (before != DiskState.DISK_ROOMY and free < soft * LEAVE_LOW):
        return DiskState.DISK_LOW
    return DiskState.DISK_ROOMY


class Reserve:
    """The reserve file of one directory: its blocks are released when the file system is full."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / RESERVE

    def present(self, size: int) -> bool:
        """Whether the file exists with all its blocks. Raises OSError."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return False
        return status.st_size == size and status.st_blocks * 512 >= size

    def make(self, size: int) -> bool:
        """Allocate the blocks. Returns False if there is no space for them. Raises OSError for any other failure."""
        descriptor = -1
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            if size:
                os.posix_fallocate(descriptor, 0, size)
        except OSError as error:
            self.release()
            if error.errno in NO_ROOM:
                return False
            raise
        finally:
            if descriptor >= 0:
                os.close(descriptor)
        return True

    def release(self) -> None:
        """Remove the file and so release its blocks. Raises OSError."""
        self.path.unlink(missing_ok=True)


class Refusal(NamedTuple):
    """A write that found no space, when a look noticed it.

    :param free: the free bytes then, without the reserve. :param hold_s: how long it keeps the directory full.
    """

    at: float
    free: int
    hold_s: float

    @classmethod
    def after(cls, before: "Refusal | None", at: float, free: int) -> "Refusal":
        """A refusal after an earlier one. One while the directory is full anyway, such as of a commit, does not count twice."""
        if before is None or before.forgotten(at):
            return cls(at, free, HOLD_MS / 1000)
        return cls(at, free, before.hold_s if before.holds(at) else min(2 * before.hold_s, LONGEST_HOLD_MS / 1000))

    def holds(self, now: float) -> bool:
        """Whether it keeps the directory full."""
        return now < self.at + self.hold_s

    def forgotten(self, now: float) -> bool:
        """Whether writes have had time to find no space again, and did not."""
        return now >= self.at + self.hold_s + LONGEST_HOLD_MS / 1000

    def over(self, free: int, hard: int) -> bool:
        """Whether space was freed since. :param free: now, without the reserve. :param hard: the limit of a full disk."""
        return free > self.free + max(hard, self.free // 4)


class DiskSpace:
    """The disk space of all log directories, as the cleaner sees it.

    :param hasten: deletes now what may be deleted anyway. Called when a look finds a directory low or full, then every ten
        seconds while one is low and every two seconds while one is full.
    :param clock: monotonic time in seconds.
    """

    def __init__(
        self,
        config: BrokerConfig,
        shm: SharedMemory,
        log_dirs: Sequence[Path],
        hasten: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shm = shm
        self._paths = list(log_dirs)
        self._marks = Marks.of(config)
        self._reserves = [Reserve(path) for path in log_dirs]
        self._hasten = hasten
        self._clock = clock
        self.short = False
        """Whether the last look found a directory low on space or full."""
        self._logged_offline: set[int] = set()
        self._hasten_from = 0.0
        self._worse = False
        self._refusals: list[Refusal | None] = [None] * len(self._paths)
        self._logged_state = [DiskState.DISK_ROOMY] * len(self._paths)

    def urgent(self) -> bool:
        """Whether a look cannot wait until it is due: a write found no room, or a directory failed."""
        return bool(self._shm.log_dir_found_full) or any(
            self._shm.log_dir_offline(number) and number not in self._logged_offline
            for number in range(len(self._paths))
        )

    def look(self) -> None:
        """Update the state of every directory from its file system, and take the partitions of failed directories offline."""
        refused = self._shm.take_log_dirs_found_full()
        short: list[int] = []
        for number, path in enumerate(self._paths):
            if self._shm.log_dir_offline(number):
                continue
            try:
                self._check_place(number)
                if self._look_at(number, number in refused) != DiskState.DISK_ROOMY:
                    short.append(number)
            except OSError as error:
                log.error("cannot check the free space of log directory %s: %s", path, error)
                if error.errno in NO_ROOM:  # releasing space may itself need some: the next look tries again
                    _, free, total = self._shm.disk(number)[:3]
                    self._shm.set_disk(number, DiskState.DISK_FULL, free, total)
                    short.append(number)
                else:
                    self._shm.set_log_dir_offline(number)
        self._handle_offline()
        self.short = bool(short)
        if short and (self._clock() >= self._hasten_from or self._worse):
            full = any(self._shm.disk(number)[0] == DiskState.DISK_FULL for number in short)
            self._hasten_from = self._clock() + (HASTEN_FULL_EVERY_MS if full else HASTEN_LOW_EVERY_MS) / 1000
            self._hasten()
        self._worse = False

    def _check_place(self, number: int) -> None:
        """Check that the path still leads to the directory that was opened at the start. Raises OSError."""
        opened, present = os.fstat(self._shm.log_dir_fd(number)), self._paths[number].stat()
        if (opened.st_dev, opened.st_ino) != (present.st_dev, present.st_ino):
            raise OSError(errno.ENOTDIR, "the path no longer leads to the directory that was opened at the start")

    def _look_at(self, number: int, refused: bool) -> DiskState:
        space = os.statvfs(self._paths[number])
        total, free = space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize
        soft, hard, size = self._marks.soft(total), self._marks.hard(total), self._marks.reserve(total)
        reserve = self._reserves[number]
        kept = reserve.present(size)
        before = self._shm.disk(number)[0]
        without_reserve, now = free if kept else free - size, self._clock()
        refusal = self._refusals[number]
        if refused:
            refusal = Refusal.after(refusal, now, without_reserve)
        elif refusal is not None and (refusal.forgotten(now) or refusal.over(without_reserve, hard)):
            refusal = None
        self._refusals[number] = refusal
        state, reason = judge(before, without_reserve, soft, hard), SPACE
        if state != DiskState.DISK_FULL and space.f_files and space.f_favail < FEWEST_FILES:
            state, reason = DiskState.DISK_FULL, FILES
        elif state != DiskState.DISK_FULL and refusal is not None:
            state, reason = DiskState.DISK_FULL if refusal.holds(now) else state, WRITES
        if state == DiskState.DISK_FULL:
            reserve.release()
        elif not kept and not reserve.make(size):
            state, reason = DiskState.DISK_FULL, WRITES
        self._shm.set_disk(number, state, free, total)
        logged = state if refusal is None else DiskState.DISK_FULL  # it is not over while producers may find none again
        if logged != self._logged_state[number]:
            self._worse |= logged > self._logged_state[number]
            self._logged_state[number] = logged
            self._log_state(number, logged, reason, free, total, soft)
        return state

    def _log_state(self, number: int, state: DiskState, reason: str, free: int, total: int, soft: int) -> None:
        path, room = self._paths[number], f"{free:,} of {total:,} bytes are free"
        if state == DiskState.DISK_FULL:
            log.error(
                "log directory %s is full (%s): refusing producers %s; consumers, deletions and offset commits continue",
                path,
                reason.format(room=room, fewest=FEWEST_FILES),
                {
                    SPACE: f"until {self._marks.leaves_full(total):,} bytes are free",
                    FILES: f"until {FEWEST_FILES} inodes are free",
                    WRITES: f"for some seconds, at most {LONGEST_HOLD_MS // 1000}, then again if a write still finds no space",
                }[reason],
            )
        elif state == DiskState.DISK_LOW:
            log.warning(
                "log directory %s is low on space (%s, the soft limit is %s): deleting now what retention allows",
                path,
                room,
                f"{soft:,}",
            )
        else:
            log.info("log directory %s has enough space again (%s)", path, room)

    def _handle_offline(self) -> None:
        """Take the partitions of directories that went offline out of service, and log this once for each directory."""
        for number, path in enumerate(self._paths):
            if self._shm.log_dir_offline(number) and number not in self._logged_offline:
                count = slot_life.fail_log_dir(number)
                self._logged_offline.add(number)
                log.error(
                    "log directory %s is offline with its %d partitions: repair it, then restart the broker",
                    path,
                    count,
                )
