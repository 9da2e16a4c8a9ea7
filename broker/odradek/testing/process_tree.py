"""Reads a broker's processes from ``/proc``: children, memory, open files, listening sockets; and waits for their end.

Used by tests and by the command, in their own processes. Nothing here changes a process.
"""

import contextlib
import os
import select
import time
from collections.abc import Iterable
from pathlib import Path

_LISTEN = "0A"


def descendants(pid: int) -> list[int]:
    """The process and its descendants, parents first. Processes that end during the call are left out."""
    pids = [pid]
    for parent in pids:
        try:
            tasks = list(Path(f"/proc/{parent}/task").iterdir())
        except (FileNotFoundError, ProcessLookupError):
            continue
        for task in tasks:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
                pids += map(int, (task / "children").read_text().split())
    return pids


def group_of(pid: int) -> list[int]:
    """The processes of a process group, including zombies."""
    pids = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(ValueError, ProcessLookupError):  # not a process, or a process that has ended
            if os.getpgid(int(entry.name)) == pid:
                pids.append(int(entry.name))
    return pids


def pss_bytes(pids: Iterable[int]) -> int:
    """The sum of the proportional set sizes of processes, in bytes; 0 for a process that has ended."""
    total = 0
    for pid in pids:
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += sum(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:"))
    return total


def listens_on(pid: int, port: int) -> bool:
    """Whether the process holds a TCP socket that listens on the port."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    return any(target in inodes for target in open_files(pid))


def open_files(pid: int) -> list[str]:
    """The targets of the process's descriptors. Raises OSError if the process has ended, or belongs to another user."""
    targets = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            targets.append(str(descriptor.readlink()))
        except FileNotFoundError:
            continue
    return targets


def open_pidfds(pids: Iterable[int]) -> list[int]:
    """A pidfd for each of the processes that exists; the caller closes them."""
    pidfds = []
    for pid in pids:
        try:
            pidfds.append(os.pidfd_open(pid))
        except ProcessLookupError:
            continue
    return pidfds


def wait_for_end(pidfds: Iterable[int], timeout: float) -> bool:
    """Wait until all of the processes have ended; False if some still run after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    poll = select.poll()
    waiting = set(pidfds)
    for pidfd in waiting:
        poll.register(pidfd, select.POLLIN)
    while waiting:
        ended = poll.poll(max(0, deadline - time.monotonic()) * 1000)
        if not ended:
            return False
        for pidfd, _ in ended:
            poll.unregister(pidfd)
            waiting.discard(pidfd)
    return True
