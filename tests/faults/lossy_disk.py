"""A small ext4 file system on a loop device whose power can be cut: `cut_power` loses unsynced data.

Needs root, loop devices and mkfs.ext4: `missing()` says what of that is not there.
"""

import fcntl
import os
import shutil
import signal
import struct
import subprocess
from collections.abc import Collection, Iterable
from pathlib import Path
from types import TracebackType

from odradek.testing.broker_process import Broker
from tests.waiting import until

EXT4_IOC_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32)
WITHOUT_FLUSH = struct.pack("I", 2)
OPTIONS = "noatime,commit=300"  # the kernel's own commits, every 5 s, would save what nobody synced


def missing() -> str:
    """The reason why such a disk is not possible here; empty if it is."""
    if os.geteuid() != 0:
        return "needs root to mount a file system"
    absent = [tool for tool in ("losetup", "mkfs.ext4", "mount", "umount") if not shutil.which(tool)]
    if absent:
        return f"needs {', '.join(absent)}"
    return "" if Path("/dev/loop-control").exists() else "needs loop devices"


class LossyDisk:
    """A file system of `mebibytes` in `directory`, mounted at `path`, as a context.

    It has one loop device from its beginning to its end. With `mount -o loop` the kernel would release the device some time
    after each `umount`: a mount that follows could find it, and lose it later, perhaps to the disk of another test.
    """

    def __init__(self, directory: Path, mebibytes: int = 256) -> None:
        self._image = directory / "disk.img"
        self.path = directory / "disk"
        self._device = ""
        self._mounted = False
        self.path.mkdir()
        with self._image.open("wb") as image:
            image.truncate(mebibytes << 20)
        _run("mkfs.ext4", "-q", "-F", str(self._image))

    def __enter__(self) -> "LossyDisk":
        self._device = _run("losetup", "--find", "--show", str(self._image)).stdout.strip()
        try:
            self.mount()
        except BaseException:
            _run("losetup", "--detach", self._device)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unmount()
        _run("losetup", "--detach", self._device)
        self._image.unlink()

    def mount(self) -> None:
        """Mount it; after a loss of power the journal is replayed."""
        _run("mount", "-o", OPTIONS, self._device, str(self.path))
        self._mounted = True

    def unmount(self) -> None:
        """Check that no process of the test has a file on it open; wait for other processes. Raises AssertionError."""
        if self._mounted:
            until(
                lambda: not _run("umount", str(self.path), must=False).returncode, f"{self.path} is not in use any more"
            )
            self._mounted = False

    def cut_power(self) -> None:
        """Fail all further calls with EIO, and lose unsynced data."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, EXT4_IOC_SHUTDOWN, WITHOUT_FLUSH)
        finally:
            os.close(descriptor)

    def restore_power(self) -> None:
        """Mount again; no process may have a file on it open any more."""
        self.unmount()
        self.mount()


def cut_power_together(brokers: Collection[Broker], disks: Iterable[LossyDisk]) -> None:
    """Cut the power of all disks of brokers at the same moment, and kill the brokers. No process runs when the first disk loses
    its power: nothing is replicated or acknowledged after that."""
    for broker in brokers:
        for process in broker.process_ids():
            os.kill(process, signal.SIGSTOP)
    for disk in disks:
        disk.cut_power()
    for broker in brokers:
        broker.kill_group()


def _run(*command: str, must: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command; raise RuntimeError if a command that `must` succeed fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if must and done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done
