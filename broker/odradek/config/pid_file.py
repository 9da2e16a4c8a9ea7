"""The files that identify a running broker: ``odradek.pid`` and ``odradek.sock`` in its first log directory.

The supervisor writes the PID file and listens on the socket; the command and ``odradek.testing`` use them. The PID file also
contains the start time of the process, because the kernel reuses process ids.

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
COORDINATOR_SOCKET = "odradek.coordinator.sock"
CUT_SOCKET = "odradek.cut.sock"
"""The socket of the coordinator for `odradek backup`, see `odradek.processes.coordinator.cut_socket`."""
FILES_OF_A_RUN = (PID_FILE, STATUS_SOCKET, COORDINATOR_SOCKET, CUT_SOCKET)
"""In the first log directory while a broker runs. Only the supervisor removes them: the directory may have failed by then."""


class BrokerIdentity(NamedTuple):
    """The content of ``odradek.pid``."""

    pid: int
    start_ticks: int
    listeners: tuple[Listener, ...]

    def is_alive(self) -> bool:
        """True if the process that wrote the file is still running."""
        return start_ticks(self.pid) == self.start_ticks


def start_ticks(pid: int) -> int | None:
    """The start time of a process in clock ticks since boot; None if the process does not exist or is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def write_pid_file(directory: str, listeners: Sequence[Listener]) -> None:
    """Write the PID file for the calling process and its listeners atomically. Raises OSError."""
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


def read_pid_file(directory: str) -> BrokerIdentity | None:
    """The content of the PID file, whether or not the process is running; None if the file does not exist.

    Raises ValueError if the content is not valid, and OSError if the file cannot be read.
    """
    path = os.path.join(directory, PID_FILE)  # noqa: PTH118
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().split("\n")
    except FileNotFoundError:
        return None
    try:
        pid, ticks, listeners = lines[:3]
        return BrokerIdentity(int(pid), int(ticks), tuple(Listener(**fields) for fields in json.loads(listeners)))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a valid PID file of a broker: {error}") from None
