"""What the kernel tells about a broker's processes: children, memory, listening sockets, their end.

Pure reading of ``/proc`` by whoever watches a broker (tests, the command); nothing here changes a process.
"""

import contextlib
import os
import select
import time
from collections.abc import Iterable
from pathlib import Path

_LISTEN = "0A"


def descendants(pid: int) -> list[int]:
    """The process and all below it, parents first. Those that end meanwhile are left out."""
    found = [pid]
    for parent in found:
        try:
            tasks = list(Path(f"/proc/{parent}/task").iterdir())
        except (FileNotFoundError, ProcessLookupError):
            continue
        for task in tasks:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that ended meanwhile
                found += map(int, (task / "children").read_text().split())
    return found


def group_of(pid: int) -> list[int]:
    """The processes of a process group, those that have ended and were not reaped among them."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(ValueError, ProcessLookupError):  # no process, or one that ended meanwhile
            if os.getpgid(int(entry.name)) == pid:
                found.append(int(entry.name))
    return found


def pss_bytes(pids: Iterable[int]) -> int:
    """Proportional memory of these processes together; one that has ended counts nothing."""
    total = 0
    for pid in pids:
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += sum(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:"))
    return total


def listens_on(pid: int, port: int) -> bool:
    """True if this very process holds a TCP socket that listens on the port."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    return any(target in inodes for target in open_files(pid))


def open_files(pid: int) -> list[str]:
    """What the process' descriptors point to. Raises OSError if it may not be looked at or is gone."""
    targets = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            targets.append(str(descriptor.readlink()))
        except FileNotFoundError:
            continue
    return targets


def open_pidfds(pids: Iterable[int]) -> list[int]:
    """A descriptor for each of these processes that still exists; the caller closes them."""
    pidfds = []
    for pid in pids:
        try:
            pidfds.append(os.pidfd_open(pid))
        except ProcessLookupError:
            continue
    return pidfds


def wait_for_end(pidfds: Iterable[int], timeout: float) -> bool:
    """Sleeps until all of these processes have ended; False if some still live after ``timeout`` seconds."""
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
