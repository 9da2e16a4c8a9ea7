"""The supervisor: creates what the processes share, forks them, accepts connections and hands them over, restarts dead
children.

What it must not do: run a thread or an asyncio loop, take a slot's lock, read from a client's socket, touch a log. So nothing
that it supervises can break it.

How it ends: SIGTERM, SIGINT or SIGHUP stop the broker in order. If the start fails, it ends with StartError (one line).

What its death causes: every child receives SIGTERM (PDEATHSIG) and stops. The locks of the log directories last until the last
child has ended.

What the death of a child causes: a child that is killed, exits or raises is restarted alone. After SIGSEGV, SIGBUS, SIGABRT
or SIGILL the shared memory cannot be trusted: the supervisor kills and reaps all children, creates a new mapping, and builds
the state from the logs. The supervisor itself survives this, because it reads only the process table from the mapping: the
listening sockets, the locks and systemd's watchdog stay.
"""

import gc
import logging
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence

from odradek._ext.partition.append_files import limit_append_files
from odradek._ext.shm.arena import initialise_arena
from odradek._ext.shm.layout import ProcessKind, ProcessState
from odradek._ext.shm.shared_memory import SharedMemory
from odradek.config.broker_config import BrokerConfig
from odradek.config.listeners import Listener
from odradek.config.pid_file import PID_FILE, STATUS_SOCKET, write_pid_file
from odradek.net import handover, listeners
from odradek.net.acceptor import Acceptor
from odradek.net.limits import ConnectionLimits, parse_overrides
from odradek.net.notify import Notifier
from odradek.processes.children import MEMORY_FAULTS, Child, Children, RestartDelay, close_all_but, resolve
from odradek.processes.context import ProcessContext
from odradek.processes.event_loop import EventLoop, StopSignals
from odradek.processes.log_dirs import LogDirectories, StartError
from odradek.processes.status import StatusSocket, loading_report, recovery_line
from odradek.processes.table import LAST_STAGE, PROCESSES, ProcessRow
from odradek.shm.running_config import RunningConfig

log = logging.getLogger("odradek.supervisor")

COORDINATOR_SOCKET = "odradek.coordinator.sock"
WATCH_EVERY_S = 1.0
SUSPENDED_S = 5.0
ACCEPT_PAUSE_S = 0.2
HAND_OVER_RETRY_S = 0.02
MAX_RESTARTS_AT_START = 5
COLLECTIONS = (20_000, 20, 10)
"""Thresholds of Python's garbage collector in children. A large response consists of some 100,000 objects, none of them
garbage; with Python's default thresholds, most of the time for such a response would be spent on examining them."""
LOADING_REPORT_EVERY_S = 5.0
PID_FILE_RETRY_S = 10.0


class MemoryFault(Exception):
    """A child ended by a signal after which the shared memory must be rebuilt."""


class NoLogDirectoryLeft(Exception):
    """Every log directory has failed, so the broker has nothing left to serve."""


class Supervisor:
    """One running broker, from the moment when its sockets are bound. `run` returns after the ordered stop.

    :param sockets: the listening sockets of the listeners `bound`, in the same order.
    :param rows: the process table; tests replace it.
    :param metrics_socket: the listening socket for the reporter; None if `metrics.listener` is empty.
    """

    def __init__(
        self,
        config: BrokerConfig,
        directories: LogDirectories,
        sockets: Sequence[socket.socket],
        bound: Sequence[Listener],
        rows: Sequence[ProcessRow] = PROCESSES,
        clock: Callable[[], float] = time.monotonic,
        metrics_socket: socket.socket | None = None,
    ) -> None:
        self.config = config
        self.directories = directories
        self.sockets = list(sockets)
        self.bound = list(bound)
        self.metrics_socket = metrics_socket
        self.rows = rows
        self.clock = clock
        self.state = "starting"
        self.started = clock()
        self.memory_faults = 0
        self.last_fault = ""
        self.loop = EventLoop(clock)
        self.notifier = Notifier()
        self.running = RunningConfig()
        self._home = directories.first
        self._accepting = False
        self._watched: list[int] = []
        self._served = False
        self._last_watch = clock()
        self._stop_limit_s = config.integer("odradek.stop.timeout.ms") / 1000
        self._lock_limit_s = config.integer("odradek.stuck.lock.ms") / 1000
        self._progress_limit_s = config.integer("odradek.stuck.process.ms") / 1000

    def run(self) -> int:
        """Start all processes, serve until a stop signal arrives, stop in order. Returns the exit code.

        :raises StartError: the broker cannot start.
        """
        self.signals = StopSignals()
        self.loop.watch(self.signals.fileno(), self.signals.drain)
        delay = RestartDelay()
        try:
            self._build()
            status = StatusSocket(self, self._home)
            self.directories.take_clean_marks()
            self._watch_children()
            self._notify_watchdog()
            while True:
                began = self.clock()
                try:
                    self._start_all()
                    self._serve()
                    self._stop()
                except NoLogDirectoryLeft as end:
                    log.critical("%s", end)
                    if self.state != "stopping":
                        self._stop()
                    status.close()
                    return 1
                except MemoryFault as fault:
                    self._after_fault(fault)
                    if self.state == "stopping":
                        return 1
                    self._wait(delay.after(self.clock() - began))
                    if self.signals.count:
                        log.info("stopped; the next start recovers the logs")
                        return 0
                    self._build()
                else:
                    status.close()
                    log.info("stopped")
                    return 0
        finally:
            if hasattr(self, "children"):
                self.children.kill_all()
                self._tear_down()
            for name in (PID_FILE, STATUS_SOCKET, COORDINATOR_SOCKET):
                try:
                    (self._home / name).unlink(missing_ok=True)
                except OSError as error:  # the log directory has failed
                    log.warning("could not remove %s: %s", self._home / name, error.strerror)
            self.signals.close()
            self.notifier.close()
            self.loop.close()

    # -- what the processes share -----------------------------------------------------------------------------------

    def _build(self) -> None:
        """Create the shared memory, and the channels and sockets between processes."""
        try:
            self.shm = SharedMemory(
                self.config.integer("odradek.max.partitions"), self.config.integer("odradek.producer.state.max.bytes")
            )
            initialise_arena(
                self.config.integer("odradek.producer.state.client.max.percent"),
                self.config.integer("odradek.producer.state.partition.max.producers"),
            )
            self.shm.add_process(ProcessKind.SUPERVISOR)
            self.shm.process_starts(0)
            self.shm.enter(0)
            self.shm.set_state(ProcessState.SERVING)
            self.shm.broker_id = self.config.node_id
            self.shm.cluster_id = self.directories.cluster_id
            for number, fd in enumerate(self.directories.fds):
                self.shm.add_log_dir(fd)
                if not self.directories.online[number]:
                    self.shm.set_log_dir_offline(number)
            children = Children(
                self.shm, [(row, row.count(self.config)) for row in self.rows], self._run_child, self.clock
            )
            self._workers = [child for child in children.all if child.row.kind == ProcessKind.WORKER]
            self._channels = [handover.make_channel() for _ in self._workers]
            self.acceptor = Acceptor(self._channels, ConnectionLimits(*self._limits()), self._is_serving)
            self._forward_listener = listeners.listen_unix(self._home, COORDINATOR_SOCKET)
            self._reporter_memory = os.fdopen(os.memfd_create("odradek-reporter", os.MFD_CLOEXEC), "rb+")
        except OSError as error:
            raise StartError(
                f"cannot create the shared memory and sockets of the broker's processes: {error}"
            ) from error
        except ValueError as error:
            raise StartError(str(error)) from error
        limit_append_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 3)
        self._watch(self.shm.event_fd(), self._on_wake)
        for ordinal, (ours, _) in enumerate(self._channels):
            self._watch(ours.fileno(), lambda ordinal=ordinal: self._channel_readable(ordinal))  # type: ignore[misc]
        self.children = children
        self._advertised = listeners.advertised(self.config.advertised_listeners, self.bound)
        self._kept = {self.shm.memfd, *self.running.descriptors, *self.directories.descriptors}
        self._kept |= {self.shm.event_fd(info.index) for info in self.shm.processes()}

    def _watch(self, fd: int, action: Callable[[], None]) -> None:
        self.loop.watch(fd, action)
        self._watched.append(fd)

    def _tear_down(self) -> None:
        """Release what `_build` created; the listening sockets, the status socket and the directories stay."""
        for fd in self._watched:
            self.loop.unwatch(fd)
        self._watched.clear()
        for child in self.children.all:
            self.loop.cancel(f"restart {child.name}")
        self.loop.cancel("hand over")
        self.acceptor.close()
        for ours, theirs in self._channels:
            ours.close()
            theirs.close()
        self._forward_listener.close()
        self._reporter_memory.close()

    def _after_fault(self, fault: MemoryFault) -> None:
        self.memory_faults += 1
        self.last_fault = str(fault)
        self._set_accepting(False)
        for child in self.children.all:
            if child.running:
                self.loop.unwatch(child.pidfd)
        self.children.kill_all()
        log.critical(
            "%s: the shared memory cannot be trusted; killed all other processes, the next start recovers the logs",
            fault,
        )
        self._tear_down()
        self.directories.now_unclean()
        if self.state != "stopping":
            self.state = "starting"
            self.notifier.send(STATUS=f"restarting all processes after a memory fault: {fault}")

    def _run_child(self, child: Child) -> int:
        """Runs in the child: close the descriptors that it does not need, then call its main function.

        The supervisor prepares before the fork what all children need: a child gets its own copy of every page that it touches,
        including pages of code.
        """
        row = child.row
        keep = self._kept.copy()
        forward_listener = metrics_socket = None
        handover_fd = reporter_memory = -1
        if row.kind == ProcessKind.WORKER:
            handover_fd = self._channels[child.ordinal][1].fileno()
            keep.add(handover_fd)
        elif row.kind == ProcessKind.COORDINATOR:
            forward_listener = self._forward_listener
            keep.add(forward_listener.fileno())
        elif row.kind == ProcessKind.METRICS:
            reporter_memory = self._reporter_memory.fileno()
            keep.add(reporter_memory)
            metrics_socket = self.metrics_socket
            if metrics_socket is not None:
                keep.add(metrics_socket.fileno())
        close_all_but(keep)
        self.running.enter(child.index)
        self.running.take_over(self.config)
        context = ProcessContext(
            config=self.config,
            shm=self.shm,
            index=child.index,
            kind=row.kind,
            ordinal=child.ordinal,
            listeners=self.bound,
            advertised=self._advertised,
            log_dirs=self.directories.paths,
            clean=self.directories.clean,
            # Through the inherited descriptor: the path of a Unix socket has at most 107 bytes.
            forward_path=f"/proc/self/fd/{self.directories.fds[0]}/{COORDINATOR_SOCKET}",
            forward_listener=forward_listener,
            handover_fd=handover_fd,
            metrics_socket=metrics_socket,
            reporter_memory=reporter_memory,
            running=self.running,
            notes={"count": row.count(self.config)},
        )
        gc.set_threshold(*COLLECTIONS)
        gc.enable()
        return resolve(row.main)(context)

    # -- children ---------------------------------------------------------------------------------------------------

    def _start(self, child: Child) -> None:
        self._take_over()  # here, so that each child need not do it
        if self.children.start(child):
            self.loop.watch(child.pidfd, lambda: self._child_ended(child))
        else:
            self._restart(child)

    def _restart(self, child: Child) -> None:
        delay = self.children.restart_delay(child)
        self.loop.after(delay, f"restart {child.name}", lambda: self._start(child))
        if not self._served and (child.hopeless or child.restarts > MAX_RESTARTS_AT_START):
            raise StartError(f"{child.name} cannot start ({child.last_exit}): see its messages above")

    def _child_ended(self, child: Child) -> None:
        self.loop.unwatch(child.pidfd)
        number = self.children.reap(child, stopping=self.signals.count > 0)
        if number in MEMORY_FAULTS:
            raise MemoryFault(f"{child.name} {child.last_exit}")
        if child.row.kind == ProcessKind.WORKER:
            self.acceptor.worker_died(child.ordinal)
            self._look_at_accepting()
        if self.state != "stopping" and not (child.row.stage == 0 and child.ended):
            self._restart(child)

    def _watch_children(self) -> None:
        """Once a second: report the supervisor's own progress, and kill children that make none."""
        now = self.clock()
        if now - self._last_watch > SUSPENDED_S:
            self.children.reset_progress()
        self._last_watch = now
        if self.state != "starting" or any(child.running for child in self.children.all):
            self.shm.beat()
            self._look_at_log_dirs()
            for child, reason in self.children.stuck(self._lock_limit_s, self._progress_limit_s):
                log.error("killing %s (pid %d): %s", child.name, child.pid, reason)
                self.children.signal([child], signal.SIGKILL)
        self.loop.after(WATCH_EVERY_S, "watch", self._watch_children)

    def _look_at_log_dirs(self) -> None:
        count = self.shm.log_dir_count
        for number in range(count):
            if self.shm.log_dir_offline(number):
                self.directories.online[number] = False  # it stays offline if the shared memory is rebuilt
        if self.state != "stopping" and not any(self.directories.online):
            raise NoLogDirectoryLeft(
                "all log directories have failed, the broker stops: "
                + ", ".join(str(path) for path in self.directories.paths)
            )

    def _notify_watchdog(self) -> None:
        if self.notifier.watchdog_s is not None:
            self.notifier.send(WATCHDOG=1)
            self.loop.after(self.notifier.watchdog_s, "watchdog", self._notify_watchdog)

    # -- connections ------------------------------------------------------------------------------------------------

    def _is_serving(self, ordinal: int) -> bool:
        return bool(self.shm.process(self._workers[ordinal].index).state == ProcessState.SERVING)

    def _on_wake(self) -> None:
        self.shm.drain_event()
        self._take_over()
        self._hand_over()

    def _take_over(self) -> None:
        """Apply the settings that changed at run time."""
        if self.running.take_over(self.config):
            self._take_over_limits()
            self._advertised = listeners.advertised(self.config.advertised_listeners, self.bound)

    def _limits(self) -> tuple[int, int, dict[str, int]]:
        """The connection limits: in total, for each address, and for single addresses. Raises ValueError."""
        return (
            self.config.integer("max.connections"),
            self.config.integer("max.connections.per.ip"),
            parse_overrides(str(self.config["max.connections.per.ip.overrides"])),
        )

    def _take_over_limits(self) -> None:
        try:
            self.acceptor.limits.change(*self._limits())
            self.acceptor.publish_limit()
        except ValueError as error:
            log.error("cannot apply the changed connection limits: %s; the previous limits stay in force", error)

    def _hand_over(self) -> None:
        self.acceptor.hand_over()
        self._look_at_accepting()

    def _channel_readable(self, ordinal: int) -> None:
        self.acceptor.read_closed(ordinal)
        self._hand_over()

    def _accept(self, sock: socket.socket, index: int) -> None:
        if not self.acceptor.accept(sock, index):
            self.loop.after(ACCEPT_PAUSE_S, "pause", self._look_at_accepting)
        self._look_at_accepting()

    def _look_at_accepting(self) -> None:
        """Accept while there is room for new connections; retry the sockets that wait for room in a channel."""
        if self.state != "serving":
            return
        if self.acceptor.waiting:
            self.loop.after(HAND_OVER_RETRY_S, "hand over", self._hand_over)
        self._set_accepting(self.acceptor.may_accept and not self.loop.has_timer("pause"))

    def _set_accepting(self, on: bool) -> None:
        if on == self._accepting:
            return
        self._accepting = on
        for index, sock in enumerate(self.sockets):
            if on:
                self.loop.watch(sock.fileno(), lambda sock=sock, index=index: self._accept(sock, index))  # type: ignore[misc]
            else:
                self.loop.unwatch(sock.fileno())

    # -- start, serve, stop -----------------------------------------------------------------------------------------

    def _start_all(self) -> None:
        """Start all stages but the last, one after another, until all their processes serve or a stop signal arrives.

        Modules are imported in this process, so that children share their pages, and so that a restarted child runs the same
        build even if another version was installed meanwhile. The imports run while loaders work, so the start does not wait
        for them. The loaders' modules are imported before the loaders' fork, all others before the fork of the first lasting
        process: each import after a fork leaves both sides with copies of pages.
        """
        began = self.clock()
        gc.disable()  # each child would reuse memory that a collection freed here, and get a copy of each such page
        loaders = self._start_stage(0)
        self.loop.after(LOADING_REPORT_EVERY_S, "loading", self._report_loading)
        to_import = [row.main for row in self.rows if 0 < row.stage < LAST_STAGE]
        self._import_next(to_import)
        while not (self.signals.count or all(child.ended for child in loaders)):
            self.loop.turn()
        self.loop.cancel("loading")
        self.loop.cancel("import")
        if self.signals.count:
            return
        log.info("logs loaded in %.0f ms: %d partitions", (self.clock() - began) * 1000, self.shm.slots_used)
        for row in loading_report(self.shm.loading_dirs, self.directories.paths)["directories"]:
            if row["bytes_recovered"]:
                log.info("%s", recovery_line(row))
        for main in to_import:
            resolve(main)
        children = [*self._start_stage(1), *self._start_stage(2)]
        while not (self.signals.count or all(self._has_started(child) for child in children)):
            self.loop.turn()

    def _import_next(self, mains: list[str]) -> None:
        """Import the modules of `mains`, one in each turn of the loop, which serves the status in between. Removes each from
        the list."""
        if mains:
            resolve(mains.pop(0))
            self.loop.after(0.0, "import", lambda: self._import_next(mains))

    def _start_stage(self, stage: int) -> list[Child]:
        """Start the processes of a stage. A process of the last stage imports its modules itself: nothing waits for it, and no
        other process shares these modules."""
        children = self.children.of_stage(stage)
        for child in children:
            if stage != LAST_STAGE:
                resolve(child.row.main)
        # A child that replaces an entry of the method cache releases the name in that entry, which copies a page each time.
        sys._clear_type_cache()
        gc.freeze()
        for child in children:
            self._start(child)
        return children

    def _report_loading(self) -> None:
        """Log the progress of loading, regularly until all logs are open."""
        for row in loading_report(self.shm.loading_dirs, self.directories.paths)["directories"]:
            if row["done"] < row["total"]:
                log.info("%s", recovery_line(row))
                self.notifier.send(STATUS=recovery_line(row))
        self.loop.after(LOADING_REPORT_EVERY_S, "loading", self._report_loading)

    def _has_started(self, child: Child) -> bool:
        return bool(self.shm.process(child.index).state == ProcessState.SERVING)

    def _serve(self) -> None:
        if self.signals.count:
            return
        gc.enable()
        self.state = "serving"
        self._served = True
        self._look_at_accepting()
        self._write_pid_file()
        self._start_stage(LAST_STAGE)
        names = ", ".join(str(listener) for listener in self.bound)
        log.info("ready after %.0f ms: %s", (self.clock() - self.started) * 1000, names)
        self.notifier.send(READY=1, MAINPID=os.getpid(), STATUS=f"serving on {names}")
        while not self.signals.count:
            self.loop.turn()

    def _write_pid_file(self) -> None:
        """Write the pid file. A failure is not fatal: the command also finds the broker by its status socket."""
        try:
            write_pid_file(str(self._home), self.bound)
        except OSError as error:
            log.warning(
                "cannot write %s: %s; retrying every %g s",
                self._home / PID_FILE,
                error.strerror,
                PID_FILE_RETRY_S,
            )
            self.loop.after(PID_FILE_RETRY_S, "pid file", self._write_pid_file)

    def _stop(self) -> None:
        self.state = "stopping"
        self.loop.cancel("pid file")
        log.info("stopping")
        self.notifier.send(STOPPING=1, STATUS="stopping")
        self._set_accepting(False)
        for sock in self.sockets:
            sock.close()
        self.loop.cancel("pause")
        self.loop.cancel("hand over")
        for child in self.children.all:
            self.loop.cancel(f"restart {child.name}")
        self.acceptor.close()
        self.shm.stopping = True
        for order in sorted({row.stop_order for row in self.rows}):
            self._end([child for child in self.children.all if child.row.stop_order == order and child.running])

    def _end(self, children: Sequence[Child]) -> None:
        """Send SIGTERM and wait until the children have ended; send SIGKILL after `odradek.stop.timeout.ms`, or when a
        further stop signal arrives."""
        signals = self.signals.count  # read first: a signal may arrive in reaction to what the children log on SIGTERM
        self.children.signal(children, signal.SIGTERM)
        deadline = self.clock() + self._stop_limit_s
        self.loop.after(self._stop_limit_s, "stop", lambda: None)
        while late := [child for child in children if child.running]:
            self.loop.turn()
            late = [child for child in late if child.running]
            if late and (self.clock() >= deadline or self.signals.count > signals):
                hurried = self.signals.count > signals
                reason = (
                    "a further signal arrived" if hurried else f"processes did not end within {self._stop_limit_s:g} s"
                )
                log.warning("%s: killing %s", reason, ", ".join(child.name for child in late))
                self.children.signal(late, signal.SIGKILL)
                signals, deadline = self.signals.count, float("inf")
        self.loop.cancel("stop")

    def _wait(self, seconds: float) -> None:
        """Wait, serving only the status; a stop signal ends the wait."""
        self.loop.after(seconds, "restart all", lambda: None)
        while self.loop.has_timer("restart all") and not self.signals.count:
            self.loop.turn()
