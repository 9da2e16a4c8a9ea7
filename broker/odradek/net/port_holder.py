"""Finds the process that listens on a port of this machine, for the error of a start that wants the port. Reads /proc."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
_LISTEN = "0A"


def holder_of(port: int) -> str:
    """The process that listens on a TCP port, such as "process 4711 (odradek)"; "" if this user cannot see it.

    Of several processes with the same socket, such as those of a broker, it is the one that was started first.
    """
    sockets = {f"socket:[{inode}]" for inode in _listening(port)}
    holders: dict[int, Path] = {}
    for process in PROC.iterdir() if sockets else ():
        if process.name.isdecimal():
            with suppress(OSError, ValueError):  # it ended, or is another user's
                if not sockets.isdisjoint(_opened(process)):
                    holders[_started(process)] = process
    with suppress(OSError, ValueError):
        first = holders[min(holders)]
        return f"process {first.name} ({(first / 'comm').read_text().strip()})"
    return ""


def _listening(port: int) -> Iterator[str]:
    """The inodes of the sockets that listen on a port, at any address."""
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (PROC / "net" / table).read_text().splitlines()[1:]:
                _, local, _, state, *rest = line.split()
                if state == _LISTEN and int(local.rpartition(":")[2], 16) == port:
                    yield rest[5]


def _opened(process: Path) -> Iterator[str]:
    """What the descriptors of a process are, without those that it closes now. Raises OSError if all are unknown."""
    for link in (process / "fd").iterdir():
        with suppress(OSError):
            yield str(link.readlink())


def _started(process: Path) -> int:
    """The time at which a process was started, in ticks of the kernel."""
    return int((process / "stat").read_text().rpartition(")")[2].split()[19])
