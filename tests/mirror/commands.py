"""Runs `odradek mirror` as a process, and its workers until the test ends."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer

from odradek.mirror.settings import load
from odradek.mirror.status import FlowStatus, Stopped, read
from tests.waiting import until

WAIT_S = 60.0


def mirror(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a command of the group to its end."""
    return subprocess.run(
        [sys.executable, "-m", "odradek.cli.main", "mirror", *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


def status(file: str, *arguments: str) -> dict[str, Any]:
    """The state of the first flow, as the command prints it."""
    done = mirror("status", file, "--json", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    flow: dict[str, Any] = json.loads(done.stdout)["flows"][0]
    return flow


def state(file: str) -> FlowStatus:
    """The state of the first flow, read in this process: for loops, because it needs a fiftieth of the time."""
    flow = load(file).flows[0]
    with flow.source.connect() as source, flow.target.connect() as target:
        return read(flow, [flow.edge], source, target, Stopped())


class WorkerProcess:
    """A process of `odradek mirror run`. :param log: receives its standard error."""

    def __init__(self, file: str, log: Path, *arguments: str) -> None:
        self._log = log
        with log.open("wb") as stream:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "odradek.cli.main", "mirror", "run", file, *arguments], stderr=stream
            )

    @property
    def log(self) -> str:
        """What it has logged."""
        return self._log.read_text()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self._process.kill()
        self._process.wait(WAIT_S)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait; the exit code."""
        if self._process.poll() is None:
            self._process.send_signal(number)
        return self._process.wait(WAIT_S)

    def end(self) -> int:
        """Wait for the end; the exit code."""
        return self._process.wait(WAIT_S)


@contextmanager
def worker(file: str, log: Path, *arguments: str) -> Iterator[WorkerProcess]:
    """A worker that is stopped at the end."""
    process = WorkerProcess(file, log, *arguments)
    try:
        yield process
    finally:
        process.stop()


def consume(servers: str, topic: str, group_id: str, records: int, reset: str = "earliest") -> list[int]:
    """Read committed records, whose values are numbers, until there are at least so many; commit the offsets.

    It is the only member of the group. :param reset: where the group begins if it has no offset
    """
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group_id,
            "auto.offset.reset": reset,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    try:
        consumer.subscribe([topic])
        values: list[int] = []

        def enough() -> bool:
            for message in consumer.consume(records - len(values), 0.2):
                assert message.error() is None, message.error()
                values.append(int(message.value() or b""))
            return len(values) >= records

        until(enough, lambda: f"{records} records of {topic}; {len(values)} came")
        consumer.commit(asynchronous=False)
        return values
    finally:
        consumer.close()
