"""A broker whose syncs the test can observe, delay and fail."""

import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from odradek.testing import Broker


class Syncs:
    """The syncs of a broker that runs under `environment`, and control over their results."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        library = directory / "sync_shim.so"
        source = Path(__file__).with_name("sync_shim.c")
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        self.environment = {"LD_PRELOAD": str(library), "SYNC_SHIM": str(directory)}

    @classmethod
    def attached(cls, directory: Path) -> "Syncs":
        """Those of a process that runs under the environment of others, whose directory this is."""
        made = cls.__new__(cls)
        made.directory = directory
        return made

    def hold(self, part: str = ".log") -> None:
        """Block syncs of files with `part` in their path until `release`."""
        (self.directory / "new").write_text(part)
        (self.directory / "new").rename(self.directory / "part")
        os.mkfifo(self.directory / "held")
        (self.directory / "held").rename(self.directory / "gate")

    def release(self) -> None:
        """Release the blocked syncs, of which there must be at least one, and block no more."""
        self._writer = os.open(self.directory / "gate", os.O_WRONLY)  # stays open: who comes by the old name passes
        (self.directory / "gate").unlink()

    def close(self) -> None:
        """Release everything, including syncs that a failed test left blocked."""
        if (self.directory / "gate").exists():
            self._writer = os.open(self.directory / "gate", os.O_RDWR)
            (self.directory / "gate").unlink()

    def ask_who_comes(self) -> None:
        """Make the next process that syncs a file of `hold` report its id before it blocks."""
        os.mkfifo(self.directory / "came")

    def who_came(self) -> int:
        """Wait for a process to report its id after `ask_who_comes`; return the id."""
        came = self.directory / "came"
        with came.open() as reader:
            pid = int(reader.read())
        came.unlink()
        return pid

    def fail(self, text: str) -> None:
        """Fail all syncs of files with `text` in their path."""
        (self.directory / "new").write_text(text)
        (self.directory / "new").rename(self.directory / "broken")

    def _lines(self) -> list[tuple[str, str, int, int]]:
        path = self.directory / "log"
        text = path.read_text() if path.exists() else ""
        lines = text[: text.rfind("\n") + 1].splitlines()  # the last one may be just written
        return [(what, file, int(size), int(pid)) for what, file, size, pid in (line.split(" ") for line in lines)]

    def counts(self, what: str = "end") -> Counter[str]:
        """How often each file was synced; `what`: "begin", "end" or "failed"."""
        return Counter(file for said, file, _, _ in self._lines() if said == what)

    def begun_by(self, part: str) -> Counter[int]:
        """How many syncs of files with `part` in their path each process has begun, by its id."""
        return Counter(pid for said, file, _, pid in self._lines() if said == "begin" and part in file)

    def bytes_on_device(self, part: str) -> int:
        """The size of the log file with `part` in its path at the start of a completed sync."""
        sizes = (n for said, file, n, _ in self._lines() if said == "end" and part in file and file.endswith(".log"))
        return max(sizes, default=0)


@pytest.fixture
def syncs(tmp_path):
    return Syncs(tmp_path / "syncs")


@pytest.fixture
def start(tmp_path, syncs):
    """Start a broker with these topics (name: configuration) and settings; it ends with the test."""
    brokers = []

    def started(topics, **settings):
        # Their records are of 1970: retention, half a minute after the start, would roll and delete what is counted.
        config = {"num.network.threads": 2, "log.retention.ms": -1} | {
            name.replace("_", "."): value for name, value in settings.items()
        }
        broker = Broker(config, topics, directory=tmp_path / "broker", environment=syncs.environment)
        brokers.append(broker.__enter__())
        return broker

    yield started
    syncs.close()
    for broker in brokers:
        broker.__exit__(None, None, None)
