"""How a running broker is found: ``odradek.pid`` and ``odradek.sock`` in its first log directory.

The supervisor writes the one and listens on the other; the command and ``odradek.testing`` read them. A process id alone
proves nothing, since ids are used again: the time at which the process started belongs to it.

``odradek.pid`` has three lines: process id, start time in clock ticks since boot (field 22 of ``/proc/PID/stat``), and
JSON, a list of ``{"name", "host", "port", "protocol"}``, one for each listener as bound.
"""

import contextlib
import json
import os
from collections.abc import Sequence
from typing import NamedTuple

from odradek.config.listeners import Listener

PID_FILE = "odradek.pid"
STATUS_SOCKET = "odradek.sock"


class RunningBroker(NamedTuple):
    """What ``odradek.pid`` says."""

    pid: int
    start_ticks: int
    listeners: tuple[Listener, ...]

    def is_alive(self) -> bool:
        """True if that very process still exists and has not ended."""
        return start_ticks(self.pid) == self.start_ticks


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None if there is none, or only its zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def write_pid_file(directory: str, listeners: Sequence[Listener]) -> None:
    """Write that the calling process is the broker of this directory and what it listens on; atomically. Raises OSError."""
    path = os.path.join(directory, PID_FILE)  # noqa: PTH118
    ticks = start_ticks(os.getpid())
    try:
        with open(path + ".tmp", "w", encoding="utf-8") as file:
            file.write(f"{os.getpid()}\n{ticks}\n{json.dumps([listener._asdict() for listener in listeners])}\n")
        os.replace(path + ".tmp", path)  # noqa: PTH105
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(path + ".tmp")  # noqa: PTH108
        raise


def read_pid_file(directory: str) -> RunningBroker | None:
    """What the file says, whether or not that process lives; None if there is no file.

    Raises ValueError if the file is not one that a supervisor wrote, OSError if it cannot be read.
    """
    path = os.path.join(directory, PID_FILE)  # noqa: PTH118
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().split("\n")
    except FileNotFoundError:
        return None
    try:
        pid, ticks, listeners = lines[:3]
        return RunningBroker(int(pid), int(ticks), tuple(Listener(**one) for one in json.loads(listeners)))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} was not written by a broker: {error}") from None
