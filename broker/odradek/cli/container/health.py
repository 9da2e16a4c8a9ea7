"""The health check of the image: exit code 0 if the broker serves and no process creates first topics, else a reason.

A container runtime executes it every few seconds, so it imports almost nothing. It finds the broker by the status socket in the
log directory of which process 1 has files open. If process 1 is the init of `--init` or of a pod, the broker is a child of it,
or has no parent in the container.
"""

import json
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from odradek.config.pid_file import STATUS_SOCKET

PROCESS_NAME = "odradek-topics"
"""The name of the process of `first_topics`."""
LIMIT_S = 5.0


def check(supervisor: Path = Path("/proc/1"), processes: Path = Path("/proc")) -> str | None:
    """The reason why the broker is not ready; None if it is."""
    directory = _directory(supervisor, processes)
    if isinstance(directory, str):
        return directory
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(LIMIT_S)
            connection.connect(str(directory / STATUS_SOCKET))
            with connection.makefile("rb") as stream:
                status = json.load(stream)
    except (OSError, ValueError) as error:
        return f"no status from {directory / STATUS_SOCKET}: {error}"
    if (reason := not_ready(status)) is not None:
        return reason
    if any(_runs_as(PROCESS_NAME, entry) for entry in processes.iterdir() if entry.name.isdigit()):
        return "the first topics are being created"
    return None


def not_ready(status: Mapping[str, Any]) -> str | None:
    """The reason why a broker with this status does not serve clients yet; None if it does. In a cluster it closes the
    connections of clients until the controller has sent the brokers and partitions."""
    if status["state"] != "serving":
        return f"the broker is {status['state']}"
    if "cluster" in status and not status["cluster"]["brokers"]:
        return "the broker waits for the controller of its cluster"
    return None


def _directory(supervisor: Path, processes: Path) -> Path | str:
    """The first log directory: the one with a status socket among those of which the supervisor has files open. The reason if
    none is found."""
    reason = "process 1 has no log directory open: the broker is starting, or is another program"
    parents = (b"0", supervisor.name.encode())
    others = [entry for entry in processes.iterdir() if entry.name.isdigit() and _parent(entry) in parents]
    for process in (supervisor, *others):
        try:
            for descriptor in (process / "fd").iterdir():
                directory = _of_descriptor(descriptor)
                if directory is not None and (directory / STATUS_SOCKET).exists():
                    return directory
        except OSError as error:
            if process == supervisor:
                reason = f"the files of process 1 cannot be read: {error}"
    return reason


def _parent(process: Path) -> bytes | None:
    try:
        return (process / "stat").read_bytes().rpartition(b")")[2].split()[1]
    except OSError:
        return None  # reaped meanwhile


def _of_descriptor(descriptor: Path) -> Path | None:
    try:
        return descriptor.readlink().parent
    except OSError:
        return None  # closed meanwhile


def _runs_as(name: str, process: Path) -> bool:
    """Whether a process has this name and has not ended; the entry of one that has ended stays until it is reaped."""
    try:
        stat = (process / "stat").read_text()
    except OSError:
        return False  # reaped meanwhile
    return f"({name}) " in stat and f"({name}) Z" not in stat


if __name__ == "__main__":
    sys.exit(check())
