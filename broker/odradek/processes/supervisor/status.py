"""The status socket: sends one JSON document to each client that connects to ``odradek.sock``. Runs in the supervisor, in every
state of the broker.

The document is built from the process table and ``/proc``. No child is queried, so a hanging child cannot delay it.
"""

import errno
import json
import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek import __version__
from odradek._ext.shm.layout import DiskState, ProcessState
from odradek._ext.shm.shared_memory import ProcessInfo
from odradek.cleaner.disk_marks import Marks
from odradek.config.broker_config import BrokerConfig
from odradek.config.pid_file import STATUS_SOCKET
from odradek.config.table import BROKER_KEYS
from odradek.net.listeners import listen_unix
from odradek.processes.authorization import authorizer_of, has_authorizer
from odradek.processes.supervisor.children import Child
from odradek.processes.supervisor.event_loop import EventLoop
from odradek.security.peer_settings import is_protected
from odradek.shm.published_tasks import TaskState

if TYPE_CHECKING:  # the command imports this module, too
    from odradek.processes.supervisor.running_broker import RunningBroker

log = logging.getLogger("odradek.supervisor")

SEND_BUFFER_BYTES = 1 << 20
PAUSE_S = 0.2
NAMED_PLACES = 5
"""The places at which a background task fails that its row names: the document must fit into the buffer of the socket."""


class StatusSocket:
    """The listening socket in the first log directory; only the broker's own user may connect.

    :param document: returns the present status document.
    """

    def __init__(self, loop: EventLoop, directory: Path, document: Callable[[], dict[str, Any]]) -> None:
        self._loop = loop
        self._document = document
        self._listening = listen_unix(directory, STATUS_SOCKET)
        self._watch()

    def _watch(self) -> None:
        self._loop.watch(self._listening.fileno(), self._answer)

    def _answer(self) -> None:
        try:
            connection, _ = self._listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            log.warning("cannot accept a status connection: %s; retrying in %g s", error.strerror, PAUSE_S)
            self._loop.unwatch(self._listening.fileno())
            self._loop.after(PAUSE_S, "status", self._watch)
            return
        with connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
            connection.setblocking(False)
            try:
                connection.send(json.dumps(self._document()).encode() + b"\n")
            except OSError as error:
                log.debug("a status client disconnected before it read the reply: %s", error.strerror)

    def close(self) -> None:
        self._loop.unwatch(self._listening.fileno())
        self._loop.cancel("status")
        self._listening.close()


class SupervisorFacts(NamedTuple):
    """The supervisor in the status document. :param state: see `Supervisor`.

    :param memory_faults: how often it has built the shared memory again. :param last_fault: the reason for the last time.
    """

    state: str
    uptime_s: float
    memory_faults: int
    last_fault: str


def report(broker: "RunningBroker", supervisor: SupervisorFacts) -> dict[str, Any]:
    """The status document: identity, state, listeners, counts, log directories, and a row for each process. Brokers
    with an authorizer add `access`; those with TLS or with SASL between brokers add `security`, see `security_status.report`;
    those of a cluster add `cluster`, see `cluster_status.report`."""
    resources = broker.resources
    shm, directories, acceptor = broker.shm, resources.directories, broker.intake.acceptor
    now, marks = resources.clock(), Marks.of(resources.config)
    children = [child for child in broker.children.all if child.running or child.row.stage > 0]
    processes = [
        _supervisor_row(supervisor),
        *(_child_row(child, shm.process(child.index), now) for child in children),
    ]
    document = {
        "pid": os.getpid(),
        "version": __version__,
        "state": supervisor.state,
        "uptime_s": round(supervisor.uptime_s, 3),
        "node_id": resources.config.node_id,
        "cluster_id": shm.cluster_id,
        "listeners": [listener._asdict() for listener in resources.bound],
        "metrics": _address(resources.metrics_socket),
        "metrics_instead_of": taken_default(resources.config, resources.metrics_socket),
        "metrics_tls": bool(resources.config["metrics.listener.tls"]),
        "partitions": shm.partitions,
        "producer_state": shm.producer_state,
        "loading": loading_report(shm.loading_dirs, directories.paths),
        "memory_faults": supervisor.memory_faults,
        "connections": len(acceptor.limits),
        "connections_accepted": acceptor.accepted,
        "connections_refused": acceptor.refused,
        "kept_bytes": sum(process["kept_bytes"] for process in processes),
        "log_dirs": [
            _log_dir(str(path), not shm.log_dir_offline(number), shm.disk(number), marks)
            for number, path in enumerate(directories.paths)
        ],
        "pss_bytes": sum(process["pss_bytes"] for process in processes),
        "processes": processes,
        "tasks": [task_row(state) for state in resources.tasks.read()],
    }
    if has_authorizer(resources.config):
        version, authorizer = authorizer_of(resources.config, resources.acls)
        document["access"] = {
            "acls": len(authorizer.acls),
            "acl_version": version,
            "super_users": len(authorizer.super_users),
            "locked_out": version > 0 and not authorizer.can_manage(),
        }
    if resources.tls is not None or is_protected(resources.config):
        from odradek.processes.supervisor import security_status

        published = None if resources.tls is None else resources.tls.published
        document["security"] = security_status.report(resources.config, published, resources.faults)
    if resources.config.clustered:
        from odradek.processes.supervisor import cluster_status

        document["cluster"] = cluster_status.report(shm, resources.config)
    return document


def task_row(state: TaskState) -> dict[str, Any]:
    """The row of a background task, with the places at which it has failed for the longest time."""
    return state._asdict() | {"named": [found._asdict() for found in state.named[:NAMED_PLACES]]}


def _supervisor_row(supervisor: SupervisorFacts) -> dict[str, Any]:
    return {
        "kind": "supervisor",
        "ordinal": 0,
        "pid": os.getpid(),
        "state": supervisor.state,
        "restarts": 0,
        "connections": 0,
        "kept_bytes": 0,
        "uptime_s": round(supervisor.uptime_s, 3),
        "last_exit": supervisor.last_fault,
        "pss_bytes": pss_bytes(os.getpid()),
    }


def _child_row(child: Child, info: ProcessInfo, now: float) -> dict[str, Any]:
    """The row of a child. :param info: its row of the shared process table."""
    return {
        "kind": child.row.name,
        "ordinal": child.ordinal,
        "pid": child.pid if child.running else None,
        "state": ProcessState(info.state).name.lower(),
        "restarts": child.restarts,
        "connections": info.connections,
        "kept_bytes": info.kept_bytes,
        "uptime_s": round(now - child.started, 3) if child.running else 0.0,
        "last_exit": child.last_exit,
        "pss_bytes": pss_bytes(child.pid) if child.running else 0,
    }


def loading_report(progress: Sequence[dict[str, int]], paths: Sequence[Path]) -> dict[str, Any]:
    """The progress or the result of loading the logs: sums over the log directories, and a row for each.

    :param progress: the value of `SharedMemory.loading_dirs`.
    """
    sums = {"done": "logs_done", "total": "logs"}
    sums |= {name: name for name in ("bytes_recovered", "bytes_to_recover", "truncated_bytes", "truncated_logs")}
    remaining = [remaining_s(counts) for counts in progress]
    rows = [
        {"path": str(path)}
        | {name: counts[key] for name, key in sums.items()}
        | {"elapsed_s": counts["elapsed_ms"] / 1000, "remaining_s": seconds}
        for path, counts, seconds in zip(paths, progress, remaining, strict=False)
    ]
    return {name: sum(counts[key] for counts in progress) for name, key in sums.items()} | {
        "elapsed_s": max((counts["elapsed_ms"] for counts in progress), default=0) / 1000,
        "remaining_s": max((seconds for seconds in remaining if seconds is not None), default=None),
        "directories": rows,
    }


def recovery_line(row: Mapping[str, Any]) -> str:
    """A directory's row of `loading_report` as one line of text."""
    line = f"{row['path']}: {row['done']} of {row['total']} logs open after {row['elapsed_s']:.1f} s"
    if row["bytes_to_recover"]:
        line += f", {row['bytes_recovered'] / 1e6:.1f} of {row['bytes_to_recover'] / 1e6:.1f} MB recovered"
    if row["truncated_bytes"]:
        line += f", {row['truncated_bytes']} bytes cut off in {row['truncated_logs']} logs"
    if row["done"] < row["total"] and row["remaining_s"] is not None:
        line += f", about {row['remaining_s']:.0f} s left"
    return line


def remaining_s(progress: Mapping[str, int]) -> float | None:
    """Seconds until a directory's logs are open, extrapolated from the progress so far; None if nothing is done yet."""
    if progress["logs_done"] >= progress["logs"]:
        return 0.0
    whole, part = progress["bytes_to_recover"], progress["bytes_recovered"]
    if not whole:
        whole, part = progress["logs"], progress["logs_done"]
    return round(progress["elapsed_ms"] / 1000 * max(0, whole - part) / part, 1) if part else None


def _address(listening: socket.socket | None) -> dict[str, Any] | None:
    """The address on which HTTP is served, with the bound port; None if HTTP is not served."""
    if listening is None:
        return None
    host, port = listening.getsockname()[:2]
    return {"host": host, "port": port}


def taken_default(config: BrokerConfig, listening: socket.socket | None) -> str | None:
    """The default of `metrics.listener`, if the broker uses another port because that one was in use; else None."""
    default = str(BROKER_KEYS["metrics.listener"].default)
    if listening is None or config.is_set("metrics.listener"):
        return None
    return default if listening.getsockname()[1] != int(default.rpartition(":")[2]) else None


def _log_dir(path: str, online: bool, disk: tuple[DiskState, int, int, int], marks: Marks) -> dict[str, Any]:
    """A log directory with the free space that the cleaner measured last; bytes are -1 before its first measurement.

    `full_below_bytes`: producers are refused with less free space. `full_until_bytes`: they are accepted again with more.
    `full_despite_space`: the directory is full although so much is free, because a write found no space, or inodes are few.
    """
    state, free, total, full_times = disk
    return {
        "path": path,
        "online": online,
        "disk": state.name.removeprefix("DISK_").lower(),
        "free_bytes": free,
        "total_bytes": total,
        "full_times": full_times,
        "full_below_bytes": marks.hard(total) if total >= 0 else -1,
        "full_until_bytes": marks.leaves_full(total) if total >= 0 else -1,
        "full_despite_space": state == DiskState.DISK_FULL and total >= 0 and marks.leaves_full(total) <= free,
    }


def pss_bytes(pid: int) -> int:
    """The proportional set size of a process, in bytes; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as rollup:
            return sum(int(line.split()[1]) * 1024 for line in rollup if line.startswith(b"Pss:"))
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ESRCH):
            log.debug("cannot read the memory use of process %d: %s", pid, error.strerror)
        return 0
