"""A small separate tmpfs, on which only the test controls the free space."""

import contextlib
import os
import subprocess
from pathlib import Path

import pytest


class SmallDisk:
    """A tmpfs of `size` bytes at `path`, as a context; lazily unmounted at the end, even if it is in use."""

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
        """Unmount it even if it is in use: the path then leads elsewhere."""
        if self._mounted:
            self._mounted = False
            subprocess.run(["umount", "-l", str(self.path)], check=True)

    def free(self) -> int:
        """Bytes that are free."""
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def fill(self, leave: int = 0) -> Path:
        """Fill the disk up to `leave` bytes with a foreign file and return it. Other processes may write meanwhile."""
        path = self.path / "somebody-elses"
        with path.open("wb") as out:
            while (more := self.free() - leave) > 0:
                with contextlib.suppress(OSError):  # somebody took some of it since it was asked
                    os.posix_fallocate(out.fileno(), out.seek(0, os.SEEK_END), more)
        return path

    def fill_up(self) -> Path:
        """Fill all remaining blocks with another foreign file, or by extending it; return the file."""
        path = self.path / "somebody-elses-too"
        with path.open("ab", buffering=0) as out, contextlib.suppress(OSError):
            while True:
                out.write(bytes(4096))
        return path
