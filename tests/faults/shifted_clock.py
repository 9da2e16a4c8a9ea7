"""A wall clock that a test sets while processes run that preload `shifted_clock.c`."""

import mmap
import os
import struct
import subprocess
from pathlib import Path

SECONDS = struct.Struct("q")
HOUR_S = 3600


class ShiftedClock:
    """The clock of all processes under `environment`, in `directory`."""

    def __init__(self, directory: Path) -> None:
        library = directory / "shifted_clock.so"
        source = Path(__file__).with_name("shifted_clock.c")
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        (directory / "shift").write_bytes(bytes(SECONDS.size))
        self.environment = {"LD_PRELOAD": str(library), "SHIFTED_CLOCK": str(directory / "shift")}
        self._open(directory / "shift")

    @classmethod
    def attached(cls) -> "ShiftedClock":
        """The clock in whose environment this process runs."""
        made = cls.__new__(cls)
        made._open(Path(os.environ["SHIFTED_CLOCK"]))
        return made

    def _open(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), SECONDS.size)

    def set(self, seconds: int) -> None:
        """Shift the wall clock by this many seconds from the true time; negative: back."""
        SECONDS.pack_into(self._map, 0, seconds)
