"""The supervisor: makes what the processes share, forks them, accepts and hands over connections, and restarts who dies.

Must not: run a thread or an asyncio loop, take a slot's lock, read from a client's socket, touch a log. What it supervises
cannot break it. It ends on SIGTERM or SIGINT (in order), or when its start fails (StartError, one line). Its death makes every
child stop (PDEATHSIG); the locks of the log directories last until the last of them is gone. A child that is killed, exits or
raises is restarted alone; after SIGSEGV, SIGBUS, SIGABRT or SIGILL the shared memory cannot be trusted: all children are
killed and reaped, and everything is built anew from the logs, in a new mapping.
"""

import errno
import gc
import json
import logging
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from broker._ext import append_files, producers
from broker._ext.shared import ProcessKind, ProcessState, SharedMemory
from broker.config.broker_config import BrokerConfig
from broker.config.listeners import Listener
from broker.config.running import PID_FILE, STATUS_SOCKET, write_pid_file
from broker.net import handover, listeners
from broker.net.acceptor import Acceptor
from broker.net.limits import ConnectionLimits
from broker.net.notify import Notifier
from broker.processes import logs
from broker.processes.children import MEMORY_FAULTS, Child, Children, resolve
from broker.processes.context import ProcessContext
from broker.processes.log_dirs import LogDirectories, StartError
from broker.processes.table import PROCESSES, ProcessRow

log = logging.getLogger(__name__)

COORDINATOR_SOCKET = "odradek.coordinator.sock"
LOCK_LIMIT_S, PROGRESS_LIMIT_S = 10.0, 30.0
STOP_LIMIT_S = 30.0
WATCH_EVERY_S = 1.0
PAUSE_OF_ACCEPTING_S = 0.2

__all__ = ["StartError", "Supervisor", "run"]


class _Rebuild(Exception):
    """A child ended by a memory fault: the shared memory is to be built anew."""


class Supervisor:
    """One start of the broker, from the listening sockets on; `serve` runs until the ordered stop.

    :param rows: the process table; tests put their own in.
    """

    def __init__(
        self,
        config: BrokerConfig,
        directories: LogDirectories,
        sockets: Sequence[socket.socket],
        bound: Sequence[Listener],
        rows: Sequence[ProcessRow] = PROCESSES,
        clock: Callable[[], float] = time.monotonic,
        notifier: Notifier | None = None,
    ) -> None:
        self.config = config
        self.directories = directories
        self.sockets = list(sockets)
        self.bound = list(bound)
        self.rows = rows
        self.clock = clock
        self.notifier = notifier or Notifier()
        self.state = "starting"
        self.started = time.time()
        self.stop_requested = 0
        self.home = directories.first
        self.epoll = select.epoll()
        self._actions: dict[int, Callable[[], None]] = {}
        self._accept_again: float | None = None
        self._next_watch = 0.0
        self._next_dog = 0.0
        self._accepting = False
        self.loading_ms: float | None = None

    # -- building ---------------------------------------------------------------------------------------------------

    def build(self) -> None:
        """Shared memory, channels, sockets between processes, and every module that a child will need."""
        self.shm = SharedMemory(self.config.integer("odradek.max.partitions"))
        producers.initialise_arena()
        supervisor_place = self.shm.add_process(ProcessKind.SUPERVISOR)
        assert supervisor_place == 0
        self.shm.process_starts(0)
        self.shm.enter(0)
        self.shm.set_state(ProcessState.SERVING)
        self.shm.broker_id = self.config.node_id
        self.shm.cluster_id = self.directories.cluster_id
        for number, fd in enumerate(self.directories.fds):
            self.shm.add_log_dir(fd)
            if not self.directories.online[number]:
                self.shm.set_log_dir_offline(number)
        counts = [(row, row.count(self.config)) for row in self.rows]
        self.children = Children(self.shm, counts, self._run_child, self.clock)
        self.workers = [child for child in self.children.all if child.row.kind == ProcessKind.WORKER]
        self.channels = [handover.make_channel() for _ in self.workers]
        overrides = self._limits_of_addresses()
        self.acceptor = Acceptor(
            [handover.Sender(ours) for ours, _ in self.channels],
            ConnectionLimits(
                self.config.integer("max.connections"), self.config.integer("max.connections.per.ip"), overrides
            ),
            lambda ordinal: self.shm.process(self.workers[ordinal].index).state == ProcessState.SERVING,
        )
        self.forward_listener = self._listen_unix(COORDINATOR_SOCKET)
        self.status_listener = self._listen_unix(STATUS_SOCKET)
        for row in self.rows:
            resolve(row.main)
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        append_files.limit_append_files(soft // 3)
        gc.collect()
        gc.freeze()

    def _limits_of_addresses(self) -> dict[str, int]:
        value = self.config.get("max.connections.per.ip.overrides")
        items = value if isinstance(value, tuple) else ()
        return {host: int(limit) for host, _, limit in (str(item).rpartition(":") for item in items)}

    def _listen_unix(self, name: str) -> socket.socket:
        """A Unix socket in the first log directory, whatever was left there of an earlier broker being removed."""
        (self.home / name).unlink(missing_ok=True)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        before = os.umask(0o177)
        fd = os.open(self.home, os.O_PATH | os.O_DIRECTORY)
        try:
            sock.bind(f"/proc/self/fd/{fd}/{name}")  # a Unix socket's path has at most 107 bytes
        finally:
            os.umask(before)
            os.close(fd)
        sock.listen(64)
        return sock

    def _run_child(self, child: Child) -> int:
        """In the child: close what is not its own, then its main function."""
        row = child.row
        self.epoll.close()
        os.close(self._signals[0])
        os.close(self._signals[1])
        for sock in (*self.sockets, self.status_listener):
            sock.close()
        handover_fd = -1
        for ordinal, (ours, theirs) in enumerate(self.channels):
            ours.close()
            if row.kind == ProcessKind.WORKER and ordinal == child.ordinal:
                handover_fd = theirs.fileno()
            else:
                theirs.close()
        forward_listener = self.forward_listener
        if row.kind != ProcessKind.COORDINATOR:
            forward_listener.close()
        for other in self.children.all:
            if other.pidfd >= 0:
                os.close(other.pidfd)
        context = ProcessContext(
            config=self.config,
            shm=self.shm,
            index=child.index,
            kind=row.kind,
            ordinal=child.ordinal,
            listeners=self.bound,
            advertised=listeners.advertised(self.config.advertised_listeners, self.bound),
            log_dirs=self.directories.paths,
            clean=self.directories.clean,
            forward_path=str(self.home / COORDINATOR_SOCKET),
            forward_listener=forward_listener if row.kind == ProcessKind.COORDINATOR else None,
            handover_fd=handover_fd,
            notes={"count": row.count(self.config)},
        )
        return resolve(row.main)(context)

    # -- the loop ---------------------------------------------------------------------------------------------------

    def _watch(self, fd: int, action: Callable[[], None]) -> None:
        self._actions[fd] = action
        self.epoll.register(fd, select.EPOLLIN)

    def _unwatch(self, fd: int) -> None:
        if self._actions.pop(fd, None) is not None:
            self.epoll.unregister(fd)

    def _turn(self) -> None:
        """Wait for events and timers once, and act on them."""
        now = self.clock()
        due = [self._next_watch - now]
        restart = self.children.next_due()
        if restart is not None:
            due.append(restart)
        if self._accept_again is not None:
            due.append(self._accept_again - now)
        if self.notifier.watchdog_s is not None:
            due.append(self._next_dog - now)
        for fd, _ in self.epoll.poll(max(0.0, min(due))):
            action = self._actions.get(fd)
            if action is not None:
                action()
        self._timers()

    def _timers(self) -> None:
        now = self.clock()
        if self.state != "stopping":
            for child in self.children.due():
                self._start(child)
        if self._accept_again is not None and now >= self._accept_again:
            self._accept_again = None
            self._set_accepting(True)
        if now >= self._next_watch:
            self._next_watch = now + WATCH_EVERY_S
            self.shm.beat()
            stuck = self.children.stuck(
                LOCK_LIMIT_S, PROGRESS_LIMIT_S, time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 10**6
            )
            for child, reason in stuck:
                log.error("%s (pid %d) is ended: %s", child.name, child.pid, reason)
                self.children.signal([child], signal.SIGKILL)
        if self.notifier.watchdog_s is not None and now >= self._next_dog:
            self._next_dog = now + self.notifier.watchdog_s
            self.notifier.send(WATCHDOG=1)

    def _start(self, child: Child) -> None:
        self.children.start(child)
        self._watch(child.pidfd, lambda: self._child_ended(child))

    def _child_ended(self, child: Child) -> None:
        self._unwatch(child.pidfd)
        number = self.children.reap(child)
        if child.row.kind == ProcessKind.WORKER:
            self.acceptor.worker_died(child.ordinal)
        if number in MEMORY_FAULTS:
            raise _Rebuild(f"{child.name} {child.last_exit}")
        if self.state == "stopping" or (child.row.stage == 0 and child.ended):
            return
        self.children.schedule(child)

    def _on_signal(self) -> None:
        try:
            numbers = os.read(self._signals[0], 64)
        except BlockingIOError:
            return
        for number in numbers:
            if number in (signal.SIGTERM, signal.SIGINT):
                self.stop_requested += 1

    def _woken(self) -> None:
        self.shm.drain_event()

    def _set_accepting(self, on: bool) -> None:
        if on == self._accepting:
            return
        self._accepting = on
        for index, sock in enumerate(self.sockets):
            if on:
                self._watch(sock.fileno(), lambda sock=sock, index=index: self._accept(sock, index))  # type: ignore[misc]
            else:
                self._unwatch(sock.fileno())

    def _accept(self, sock: socket.socket, index: int) -> None:
        if not self.acceptor.accept(sock, index) or self.acceptor.full:
            self._set_accepting(False)
            self._accept_again = self.clock() + PAUSE_OF_ACCEPTING_S

    def _channel_readable(self, ordinal: int) -> None:
        self.acceptor.read_closed(ordinal)
        self.acceptor.hand_over()

    # -- start, serve, stop -----------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Start all stages, accept until a stop is asked for, stop in order. Raises _Rebuild after a memory fault."""
        self._signals = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._signals[1], warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        self._watch(self._signals[0], self._on_signal)
        self._watch(self.shm.event_fd(), self._woken)
        self._watch(self.status_listener.fileno(), self._answer_status)
        for ordinal, sender in enumerate(self.acceptor.senders):
            self._watch(sender.channel.fileno(), lambda ordinal=ordinal: self._channel_readable(ordinal))  # type: ignore[misc]
        began = self.clock()
        self._load()
        self.loading_ms = (self.clock() - began) * 1000
        for child in self.children.of_stage(1):
            if not self.stop_requested:
                self._start(child)
        while not self.stop_requested and not self._all_serving():
            self._turn()
        if not self.stop_requested:
            self.state = "serving"
            self._set_accepting(True)
            write_pid_file(str(self.home), self.bound)
            names = ", ".join(str(listener) for listener in self.bound)
            log.info(
                "ready in %.0f ms, %d partitions: %s", (time.time() - self.started) * 1000, self.shm.slots_used, names
            )
            self.notifier.send(READY=1, MAINPID=os.getpid(), STATUS=f"serving on {names}")
        while not self.stop_requested:
            self._turn()
        self._stop()

    def _load(self) -> None:
        loaders = self.children.of_stage(0)
        for child in loaders:
            self._start(child)
        while any(not child.ended for child in loaders) and not self.stop_requested:
            self._turn()
            if any(child.restarts > 3 for child in loaders):
                raise StartError("the logs cannot be loaded: see the messages of the loader above")

    def _all_serving(self) -> bool:
        return all(self.shm.process(child.index).state == ProcessState.SERVING for child in self.children.of_stage(1))

    def _stop(self) -> None:
        self.state = "stopping"
        log.info("stopping")
        self.notifier.send(STOPPING=1, STATUS="stopping")
        self._set_accepting(False)
        self._accept_again = None
        for sock in self.sockets:
            sock.close()
        self.acceptor.close()
        self.shm.stopping = True
        for order in sorted({child.row.stop_order for child in self.children.all}):
            self._end([child for child in self.children.all if child.row.stop_order == order and child.running])
        (self.home / PID_FILE).unlink(missing_ok=True)
        (self.home / STATUS_SOCKET).unlink(missing_ok=True)
        (self.home / COORDINATOR_SOCKET).unlink(missing_ok=True)
        log.info("stopped")

    def _end(self, children: Sequence[Child]) -> None:
        self.children.signal(children, signal.SIGTERM)
        deadline = self.clock() + STOP_LIMIT_S
        hasten = self.stop_requested
        while any(child.running for child in children):
            self._turn()
            if self.clock() > deadline or self.stop_requested > max(1, hasten):
                late = [child for child in children if child.running]
                log.warning("killed, did not end in time: %s", ", ".join(child.name for child in late))
                self.children.signal(late, signal.SIGKILL)
                deadline = self.clock() + STOP_LIMIT_S
                hasten = self.stop_requested

    def kill_all(self) -> None:
        """After a memory fault: nobody may go on with that memory. Kill all, reap all."""
        self.children.signal(self.children.all, signal.SIGKILL)
        for child in self.children.all:
            if child.running:
                self._unwatch(child.pidfd)
                self.children.reap(child)

    def close(self) -> None:
        """Give back what one start made; the listening sockets and the directories stay."""
        signal.set_wakeup_fd(-1)
        for ours, theirs in self.channels:
            ours.close()
            theirs.close()
        self.acceptor.close()
        self.forward_listener.close()
        self.status_listener.close()
        self.epoll.close()
        for fd in self._signals:
            os.close(fd)

    # -- status -----------------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """What `odradek status` shows; read from the process table and /proc."""
        from broker import __version__

        processes = []
        for child in [None, *self.children.all]:
            info = self.shm.process(child.index if child else 0)
            if child is not None and not child.running and child.row.stage == 0:
                continue
            state = ProcessState(info.state).name.lower()
            processes.append(
                {
                    "kind": child.row.name if child else "supervisor",
                    "ordinal": child.ordinal if child else 0,
                    "pid": info.pid if child is None or child.running else None,
                    "state": state,
                    "restarts": child.restarts if child else 0,
                    "connections": info.connections,
                    "uptime_s": round(self.clock() - child.started, 3)
                    if child
                    else round(time.time() - self.started, 3),
                    "last_exit": child.last_exit if child else "",
                    "pss_bytes": _pss(info.pid) if child is None or child.running else 0,
                }
            )
        done, total = self.shm.loading
        return {
            "pid": os.getpid(),
            "version": __version__,
            "state": self.state,
            "uptime_s": round(time.time() - self.started, 3),
            "node_id": self.config.node_id,
            "cluster_id": self.directories.cluster_id,
            "listeners": [listener._asdict() for listener in self.bound],
            "partitions": self.shm.slots_used,
            "loading": {"done": done, "total": total},
            "connections": len(self.acceptor.limits),
            "connections_accepted": self.acceptor.accepted,
            "connections_refused": self.acceptor.refused,
            "log_dirs": [
                {"path": str(path), "online": not self.shm.log_dir_offline(number)}
                for number, path in enumerate(self.directories.paths)
            ],
            "pss_bytes": sum(process["pss_bytes"] for process in processes),
            "processes": processes,
        }

    def _answer_status(self) -> None:
        try:
            connection, _ = self.status_listener.accept()
        except OSError:
            return
        with connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            connection.setblocking(False)
            try:
                connection.send(json.dumps(self.status()).encode() + b"\n")
            except OSError as error:
                log.info("a status was not taken: %s", error.strerror)


def _pss(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as rollup:
            return sum(int(line.split()[1]) * 1024 for line in rollup if line.startswith(b"Pss:"))
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ESRCH):
            log.info("memory of process %d is not known: %s", pid, error.strerror)
        return 0


def run(config: BrokerConfig, rows: Sequence[ProcessRow] = PROCESSES) -> int:
    """Run the broker in the foreground until it is asked to stop; the exit code.

    :raises StartError: it cannot start; the message is one line for the operator.
    """
    logs.set_up("supervisor")
    with LogDirectories(config) as directories:
        sockets: list[socket.socket] = []
        try:
            try:
                for listener in config.listeners:
                    sockets.append(
                        listeners.bind(
                            listener,
                            send_buffer=config.integer("socket.send.buffer.bytes"),
                            receive_buffer=config.integer("socket.receive.buffer.bytes"),
                        )
                    )
            except listeners.BindError as error:
                raise StartError(str(error)) from error
            bound = [listeners.as_bound(one, sock) for one, sock in zip(config.listeners, sockets, strict=True)]
            return _serve(config, directories, sockets, bound, rows)
        finally:
            for sock in sockets:
                sock.close()


def _serve(
    config: BrokerConfig,
    directories: LogDirectories,
    sockets: Sequence[socket.socket],
    bound: Sequence[Listener],
    rows: Sequence[ProcessRow],
) -> int:
    faults = 0
    while True:
        supervisor = Supervisor(config, directories, sockets, bound, rows)
        supervisor.build()
        try:
            supervisor.serve()
        except _Rebuild as fault:
            faults += 1
            supervisor.kill_all()
            log.critical(
                "%s: the shared memory cannot be trusted; all processes ended, starting anew (%d)", fault, faults
            )
            if supervisor.stop_requested:
                return 1
            directories.now_unclean()
            if time.time() - supervisor.started < 10 and faults > 5:
                raise StartError(f"gave up after {faults} memory faults: {fault}") from None
            continue
        except BaseException:
            supervisor.kill_all()
            (Path(directories.first) / PID_FILE).unlink(missing_ok=True)
            raise
        finally:
            supervisor.close()
        return 0
