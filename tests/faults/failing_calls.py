"""Calls that change files and fail on command, in any process that preloads `failing_calls.c`; armed from here."""

import mmap
import os
import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("failing_calls.c")
CONTROL = struct.Struct("QQQQqqq512s512s")
NUMBERS = struct.Struct("QQQQqqq")


def missing() -> str:
    """The reason why it cannot be built here; empty if it can."""
    return "" if shutil.which(os.environ.get("CC", "cc").split()[-1]) else "needs a C compiler"


def build(directory: Path) -> Path:
    """The library to preload."""
    library = directory / "failing_calls.so"
    compiler = os.environ.get("CC", "cc").split()
    command = [*compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Wno-nonnull-compare", "-o", library, SOURCE, "-ldl"]
    subprocess.run(command, check=True)
    return library


class FailingCalls:
    """The control file `path`, made if it is not there; below `prefix` calls are counted."""

    def __init__(self, path: Path, prefix: Path | None = None) -> None:
        self.path = path
        if prefix is not None:
            path.write_bytes(CONTROL.pack(0, 0, 0, 0, 0, 0, 0, os.fsencode(prefix), b""))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), CONTROL.size)

    def environment(self, library: Path) -> dict[str, str]:
        """The environment variables for a process."""
        return {"LD_PRELOAD": str(library), "FAILING_CALLS": str(self.path)}

    def watch(self, prefix: Path, *, no_sync: bool = False) -> None:
        """Count calls below another directory, from 0, none failing.

        :param no_sync: let syncs that do not fail do nothing, wherever they go to: nobody is going to cut the power.
        """
        NUMBERS.pack_into(self._map, 0, 0, 0, 0, 0, 0, 0, int(no_sync))
        struct.pack_into("512s", self._map, NUMBERS.size, os.fsencode(prefix))

    @property
    def seen(self) -> int:
        """Calls so far that change files."""
        return int(NUMBERS.unpack_from(self._map)[0])

    @property
    def failed(self) -> int:
        """Number of calls that failed since `arm`."""
        return int(NUMBERS.unpack_from(self._map)[3])

    @property
    def missed(self) -> bool:
        """Whether the calls that should fail happened between two steps of `arm`, and succeeded."""
        seen, first, count, failed = NUMBERS.unpack_from(self._map)[:4]
        return bool(first and not failed and seen >= first + count)

    @property
    def last_file(self) -> str:
        """The file of the last one that failed."""
        return bytes(CONTROL.unpack_from(self._map)[8]).partition(b"\0")[0].decode()

    def arm(self, number: int, error: int, count: int = 1, halves: bool = False) -> None:
        """Let `count` calls from the `number`-th from now fail with `error`.

        :param halves: whether the first of them, if it writes, writes half instead of failing.
        """
        struct.pack_into("QQqq", self._map, 16, count, 0, error, int(halves))
        struct.pack_into("Q", self._map, 8, self.seen + number)

    def disarm(self) -> None:
        """Let all calls succeed again."""
        struct.pack_into("Q", self._map, 8, 0)
