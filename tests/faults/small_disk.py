"""A small file system of a test's own: tmpfs, of which the test alone knows how full it is."""

import contextlib
import os
import subprocess
from pathlib import Path

import pytest


class SmallDisk:
    """`size` bytes mounted at `path`, as a context; lazily taken away at the end, whoever still uses it."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self._size = size
        self._mounted = False

    def __enter__(self) -> "SmallDisk":
        if os.geteuid() != 0:
            pytest.skip("NO FULL DISK IS TESTED: mounting a small file system needs root")
        self.path.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={self._size}", "odradek-test", str(self.path)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            pytest.skip(f"NO FULL DISK IS TESTED: no small file system can be mounted here: {done.stderr.strip()}")
        self._mounted = True
        return self

    def __exit__(self, *_: object) -> None:
        self.take_away()

    def take_away(self) -> None:
        """Unmount it under whoever uses it: from now on the path leads elsewhere."""
        if self._mounted:
            self._mounted = False
            subprocess.run(["umount", "-l", str(self.path)], check=True)

    def free(self) -> int:
        """Bytes that are free."""
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def fill(self, leave: int = 0) -> Path:
        """Take all but `leave` bytes by a file of somebody else; the file. Others may write meanwhile."""
        path = self.path / "somebody-elses"
        with path.open("wb") as out:
            while (more := self.free() - leave) > 0:
                with contextlib.suppress(OSError):  # somebody took some of it since it was asked
                    os.posix_fallocate(out.fileno(), out.seek(0, os.SEEK_END), more)
        return path

    def fill_up(self) -> Path:
        """Take every block that is left, by another file of somebody else, or by more of it; the file."""
        path = self.path / "somebody-elses-too"
        with path.open("ab", buffering=0) as out, contextlib.suppress(OSError):
            while True:
                out.write(bytes(4096))
        return path
