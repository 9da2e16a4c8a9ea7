"""A broker whose syncs are seen, held up and made to fail by the test."""

import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from odradek.testing import Broker


class Syncs:
    """The syncs of a broker under `environment`: what was asked of the device, and what it answers."""

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
        """From now on a sync of a file with `part` in its path does not end before `release`."""
        (self.directory / "new").write_text(part)
        (self.directory / "new").rename(self.directory / "part")
        os.mkfifo(self.directory / "held")
        (self.directory / "held").rename(self.directory / "gate")

    def release(self) -> None:
        """Let the syncs under way end, and no other be held. There must be one."""
        self._writer = os.open(self.directory / "gate", os.O_WRONLY)  # stays open: who comes by the old name passes
        (self.directory / "gate").unlink()

    def close(self) -> None:
        """Let everything pass, also what a failed test left waiting."""
        if (self.directory / "gate").exists():
            self._writer = os.open(self.directory / "gate", os.O_RDWR)
            (self.directory / "gate").unlink()

    def ask_who_comes(self) -> None:
        """The next process that comes to sync what `hold` named tells its id, before it looks for the gate."""
        os.mkfifo(self.directory / "came")

    def who_came(self) -> int:
        """Wait until a process came since `ask_who_comes`; its id."""
        came = self.directory / "came"
        with came.open() as reader:
            pid = int(reader.read())
        came.unlink()
        return pid

    def fail(self, text: str) -> None:
        """From now on the device fails whenever a file with `text` in its path is synced."""
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
        """How much of the log file with `part` in its path was there at the begin of a sync that has ended."""
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
