"""Runs of ``odradek load run`` in processes of their own, which are killed at chosen moments and repeated."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from odradek.testing import Broker
from tests.jobs.loaded_topics import in_files, in_table, in_topic, send, send_transactions

_LOG = "version=main/_odradek_load"
_LIMIT_S = 300.0


def _any(out: Path, pattern: str) -> bool:
    return next(iter(out.glob(pattern)), None) is not None


#: What to wait for before a kill: a state of the output directory. A round adds a pause of up to `_PAUSE_S` to it.
MOMENTS: dict[str, Callable[[Path, int], bool]] = {
    "spark starts": lambda out, _: _any(out, f"{_LOG}/spark.log"),
    "a step begins": lambda out, _: _any(out, f"{_LOG}/staging/*"),
    "a file is written": lambda out, _: _any(out, f"{_LOG}/staging/*/*.parquet"),
    "a commit is written": lambda out, commits: commit_count(out) > commits,
    "two commits are written": lambda out, commits: commit_count(out) > commits + 1,
}
#: The same of a load into a Delta table.
DELTA_MOMENTS = MOMENTS | {
    "a commit is prepared": lambda out, _: _any(out, f"{_LOG}/commits/*.prepared"),
    "a transaction is written": lambda out, commits: _transaction_count(out) > commits,
    "files are merged": lambda out, _: _any(out, f"{_LOG}/staging/*/topic=*"),
}
_PAUSE_S = 0.3
TASK = "a task dies"


def commit_count(out: Path) -> int:
    """The number of commits."""
    return sum(1 for _ in out.glob(f"{_LOG}/commits/0*.json"))


def _transaction_count(out: Path) -> int:
    return sum(1 for _ in out.glob("version=main/_delta_log/0*.json"))


class KilledLoads:
    """Rounds of a load: new records, a run that is killed, and after each kill the comparison of what readers find."""

    def __init__(
        self, broker: Broker, jars: Path, directory: Path, seed: int, pay: int = 2, table: str = "parquet"
    ) -> None:
        """:param pay: the number of partitions of the topic `pay`; `orders` has three. :param table: the format"""
        self.servers = broker.bootstrap_servers
        self.pay = pay
        self.table = table
        self.moments = DELTA_MOMENTS if table == "delta" else MOMENTS
        self.out = directory / "out"
        self.messages = directory / "messages"
        self.jars = jars
        self.numbers = random.Random(seed)
        self.sent = 0
        self.killed: dict[str, int] = {}

    def start(self) -> subprocess.Popen[bytes]:
        """Start a run, in a process group of its own."""
        options = {
            "-b": self.servers,
            "--out": self.out,
            "--connector-jars": self.jars,
            "--max-offsets": 150,
            "--memory": "512m",
            "--master": "local[2,4]",
            "--format": self.table,
        }
        if self.table == "delta":
            options["--merge-at"] = 4
        words = [str(word) for option in options.items() for word in option]
        command = [sys.executable, "-m", "odradek.cli.main", "load", "run", "orders", "pay", *words]
        environment = os.environ | {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
        with open(self.messages, "ab") as messages:
            return subprocess.Popen(command, stdout=messages, stderr=messages, env=environment, start_new_session=True)

    def round(self, moment: str) -> None:
        """Send records, kill a run at a moment, and check that no reader finds a record twice, or one that is none."""
        send(self.servers, "orders", self.sent, 200)
        send_transactions(self.servers, "pay", self.sent, 60)
        self.sent += 260
        commits = commit_count(self.out)
        run = self.start()
        try:
            if moment == TASK:
                self._kill_a_task(run)
            else:
                self._wait(run, lambda: self.moments[moment](self.out, commits))
                self._wait(run, lambda: False, self.numbers.random() * _PAUSE_S)
        finally:
            if moment != TASK and run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
                self.killed[moment] = self.killed.get(moment, 0) + 1
            status = run.wait(_LIMIT_S)
        if moment == TASK:
            assert status == 0, self.messages.read_text()[-3000:]
        found = self.found()
        assert len({record[:3] for record in found}) == len(found), f"{moment}: a record is there twice"
        assert not set(found) - set(self.wanted()), f"{moment}: a record is there that is not in the topics"

    def _wait(self, run: subprocess.Popen[bytes], condition: Callable[[], bool], limit_s: float | None = None) -> None:
        """Wait until a condition, the end of the run, or a time."""
        end = time.monotonic() + (_LIMIT_S if limit_s is None else limit_s)
        with _ending(run.pid) as ended:
            while not condition() and time.monotonic() < end:
                if select.select([ended], [], [], 0.002)[0]:
                    return
        assert limit_s is not None or condition(), "the moment does not come"

    def _kill_a_task(self, run: subprocess.Popen[bytes]) -> None:
        """Kill a Python worker of Spark while the run lasts; Spark repeats its task."""
        found: list[int] = []

        def worker_runs() -> bool:
            found[:] = workers_of(run.pid)
            return bool(found)

        self._wait(run, worker_runs)
        for worker in found:
            try:
                os.kill(worker, signal.SIGKILL)
            except ProcessLookupError:
                continue
            self.killed[TASK] = self.killed.get(TASK, 0) + 1

    def found(self) -> list:
        """What readers find."""
        return (in_table if self.table == "delta" else in_files)(self.out / "version=main")

    def wanted(self) -> list:
        """What is in the topics."""
        return sorted(in_topic(self.servers, "orders", 3) + in_topic(self.servers, "pay", self.pay))

    def finish(self) -> None:
        """Run once more, and compare record by record."""
        status = self.start().wait(_LIMIT_S)
        assert status == 0, self.messages.read_text()[-3000:]
        self.compare()

    def compare(self) -> None:
        """Compare record by record, after a run that ended."""
        wanted, found = self.wanted(), self.found()
        assert found == wanted and len(wanted) == self.sent
        assert not _any(self.out, f"{_LOG}/staging/*/*.parquet")


class _ending:
    """A descriptor that becomes readable when a process ends."""

    def __init__(self, pid: int) -> None:
        self._descriptor = os.pidfd_open(pid)

    def __enter__(self) -> int:
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def workers_of(session: int) -> list[int]:
    """The Python workers of Spark in a session of processes: children of ``pyspark.daemon``."""
    daemons, parents = set(), {}
    for directory in _processes():
        try:
            fields = (directory / "stat").read_text().rpartition(")")[2].split()
            command = (directory / "cmdline").read_bytes()
        except OSError:
            continue  # it has ended
        if int(fields[3]) != session or b"pyspark.daemon" not in command:
            continue
        parents[int(directory.name)] = int(fields[1])
        daemons.add(int(directory.name))
    return [pid for pid, parent in parents.items() if parent in daemons]


def _processes() -> Iterator[Path]:
    return (path for path in Path("/proc").iterdir() if path.name.isdigit())
