"""The status: one JSON document for whoever connects to ``odradek.sock``. Answered by the supervisor, in every state.

It is put together from the process table and ``/proc``; no child is asked, so that a hanging one cannot hold it up.
"""

import errno
import json
import logging
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker import __version__
from broker._ext.shared import ProcessState
from broker.config.running import STATUS_SOCKET
from broker.net.listeners import listen_unix

if TYPE_CHECKING:
    from broker.processes.supervisor import Supervisor

log = logging.getLogger(__name__)

ANSWER_BYTES = 1 << 20
PAUSE_S = 0.2


class StatusSocket:
    """Listens in the first log directory; only the broker's own user may connect."""

    def __init__(self, supervisor: "Supervisor", directory: Path) -> None:
        self._supervisor = supervisor
        self._listening = listen_unix(directory, STATUS_SOCKET)
        self._watch()

    def _watch(self) -> None:
        self._supervisor.loop.watch(self._listening.fileno(), self._answer)

    def _answer(self) -> None:
        try:
            connection, _ = self._listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            log.warning("a status cannot be answered: %s", error.strerror)
            self._supervisor.loop.unwatch(self._listening.fileno())
            self._supervisor.loop.after(PAUSE_S, "status", self._watch)
            return
        with connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ANSWER_BYTES)
            connection.setblocking(False)
            try:
                connection.send(json.dumps(report(self._supervisor)).encode() + b"\n")
            except OSError as error:
                log.info("a status was not taken: %s", error.strerror)

    def close(self) -> None:
        self._supervisor.loop.unwatch(self._listening.fileno())
        self._supervisor.loop.cancel("status")
        self._listening.close()


def report(supervisor: "Supervisor") -> dict[str, Any]:
    """The document: identity, state, listeners, counts, log directories, and a row for each process."""
    shm, directories, acceptor = supervisor.shm, supervisor.directories, supervisor.acceptor
    now = supervisor.clock()
    processes = [
        {
            "kind": "supervisor",
            "ordinal": 0,
            "pid": os.getpid(),
            "state": supervisor.state,
            "restarts": 0,
            "connections": 0,
            "uptime_s": round(now - supervisor.started, 3),
            "last_exit": supervisor.last_fault,
            "pss_bytes": pss_bytes(os.getpid()),
        }
    ]
    for child in supervisor.children.all:
        if child.row.stage == 0 and not child.running:
            continue
        info = shm.process(child.index)
        processes.append(
            {
                "kind": child.row.name,
                "ordinal": child.ordinal,
                "pid": child.pid if child.running else None,
                "state": ProcessState(info.state).name.lower(),
                "restarts": child.restarts,
                "connections": info.connections,
                "uptime_s": round(now - child.started, 3) if child.running else 0.0,
                "last_exit": child.last_exit,
                "pss_bytes": pss_bytes(child.pid) if child.running else 0,
            }
        )
    done, total = shm.loading
    return {
        "pid": os.getpid(),
        "version": __version__,
        "state": supervisor.state,
        "uptime_s": round(now - supervisor.started, 3),
        "node_id": supervisor.config.node_id,
        "cluster_id": directories.cluster_id,
        "listeners": [listener._asdict() for listener in supervisor.bound],
        "partitions": shm.slots_used,
        "loading": {"done": done, "total": total},
        "memory_faults": supervisor.memory_faults,
        "connections": len(acceptor.limits),
        "connections_accepted": acceptor.accepted,
        "connections_refused": acceptor.refused,
        "log_dirs": [
            {"path": str(path), "online": not shm.log_dir_offline(number)}
            for number, path in enumerate(directories.paths)
        ],
        "pss_bytes": sum(process["pss_bytes"] for process in processes),
        "processes": processes,
    }


def pss_bytes(pid: int) -> int:
    """Proportional memory of a process; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as rollup:
            return sum(int(line.split()[1]) * 1024 for line in rollup if line.startswith(b"Pss:"))
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ESRCH):
            log.info("the memory of process %d is not known: %s", pid, error.strerror)
        return 0
