"""The supervisor: starts, watches, restarts and stops the broker's processes.

What it does: creates what the processes share (`running_broker.py`), forks the processes, accepts connections and hands them to
workers (`intake.py`), kills children that are stuck and restarts children that died, and serves the status socket.

What it must not do: run a thread or an asyncio loop, take a slot's lock, read from a client's socket, touch a log. So nothing
that it supervises can break it.

How it ends: SIGTERM, SIGINT or the end of its terminal stop the broker in order. SIGHUP alone does not: the coordinator reads
the configuration file again. If the start fails, it ends with StartError (one line).

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
import signal
import sys
from collections.abc import Sequence
from typing import Any

from odradek._ext.shm import pauses
from odradek._ext.shm.layout import LeaveState, ProcessKind
from odradek._ext.shm.process import release_start_pages
from odradek.config.pid_file import FILES_OF_A_RUN, PID_FILE, write_pid_file
from odradek.net.notify import Notifier
from odradek.processes.supervisor.children import MEMORY_FAULTS, Child, RestartDelay, fill_holes, resolve
from odradek.processes.supervisor.event_loop import EventLoop, StopSignals
from odradek.processes.supervisor.file_reload import FileReload
from odradek.processes.supervisor.log_dirs import StartError
from odradek.processes.supervisor.running_broker import BrokerResources, RunningBroker
from odradek.processes.supervisor.status import (
    StatusSocket,
    SupervisorFacts,
    loading_report,
    recovery_line,
    report,
)
from odradek.processes.table import LAST_STAGE, also_imported

log = logging.getLogger("odradek.supervisor")

INIT = 1
"""The process that inherits those whose parent has ended."""
WATCH_EVERY_S = 1.0
SUSPENDED_S = 5.0
MAX_RESTARTS_AT_START = 5
LOADING_REPORT_EVERY_S = 5.0
STEP_OF_STOP_MARGIN_S = 10.0
"""What a step of an ordered stop may take beyond its own limit before the service manager kills the broker."""
PID_FILE_RETRY_S = 10.0


class MemoryFault(Exception):
    """A child ended by a signal after which the shared memory must be rebuilt."""


class NoLogDirectoryLeft(Exception):
    """Every log directory has failed, so the broker has nothing left to serve."""


class Supervisor:
    """The state machine of one broker: start, watch, restart, stop. `run` returns after the ordered stop.

    `state` is "starting", "serving" or "stopping". `broker` is the present build of the shared memory; a memory fault replaces
    it.

    :param resources: the configuration, the log directories and the sockets; the caller releases them after `run`.
    """

    def __init__(self, resources: BrokerResources) -> None:
        config = resources.config
        self.resources = resources
        self.clock = resources.clock
        self.state = "starting"
        self.started = self.clock()
        self.memory_faults = 0
        self.last_fault = ""
        self.loop = EventLoop(self.clock)
        self.notifier = Notifier()
        reload = FileReload(resources.running, self.loop, self.notifier, self._serving)
        self.signals = StopSignals(reload=lambda: reload.request(config.source))
        self._broker: RunningBroker | None = None
        self._served = False
        self._fillers: list[bytes] = []
        self._last_watch = self.clock()
        self._stop_limit_s = config.integer("odradek.stop.timeout.ms") / 1000
        self._lock_limit_s = config.integer("odradek.stuck.lock.ms") / 1000
        self._progress_limit_s = config.integer("odradek.stuck.process.ms") / 1000

    @property
    def broker(self) -> RunningBroker:
        """The present build of the shared memory and its processes; exists from the beginning of `run`."""
        assert self._broker is not None
        return self._broker

    def run(self) -> int:
        """Start all processes, serve until a stop signal arrives, stop in order. Returns the exit code.

        :raises StartError: the broker cannot start.
        """
        self.loop.watch(self.signals.fileno(), self.signals.drain)
        try:
            self._broker = RunningBroker(self.resources, self.loop)
            status = StatusSocket(self.loop, self.resources.directories.first, self._status)
            self.resources.directories.take_clean_marks()
            self._watch_children()
            if self.resources.config.clustered:
                self._beat()
            self._notify_watchdog()
            code = self._run_until_stopped()
            status.close()
            return code
        finally:
            if self._broker is not None:
                self._broker.children.kill_all()
                self._broker.close()
            self._remove_files()
            self.signals.close()
            self.notifier.close()
            self.loop.close()

    def _status(self) -> dict[str, Any]:
        """The status document."""
        uptime_s = self.clock() - self.started
        return report(self.broker, SupervisorFacts(self.state, uptime_s, self.memory_faults, self.last_fault))

    def _run_until_stopped(self) -> int:
        """Serve, and start again after each memory fault. Returns the exit code."""
        delay = RestartDelay()
        while True:
            began = self.clock()
            try:
                self._start_all()
                self._serve()
                self._leave()
                self._stop()
            except NoLogDirectoryLeft as end:
                log.critical("%s", end)
                if self.state != "stopping":
                    self._stop()
                return 1
            except MemoryFault as fault:
                self._after_fault(fault)
                if self.state == "stopping":
                    return 1
                self._wait(delay.after(self.clock() - began))
                if self.signals.count:
                    log.info("stopped; the next start recovers the logs")
                    return 0
                self._broker = RunningBroker(self.resources, self.loop)
            else:
                log.info("stopped")
                return 0

    def _remove_files(self) -> None:
        """Remove the pid file and the sockets' files from the first log directory."""
        for name in FILES_OF_A_RUN:
            path = self.resources.directories.first / name
            try:
                path.unlink(missing_ok=True)
            except OSError as error:  # the log directory has failed
                log.warning("cannot remove %s: %s; the next start removes it", path, error.strerror)

    def _after_fault(self, fault: MemoryFault) -> None:
        """Kill the children, and release the channels and sockets that they shared."""
        self.memory_faults += 1
        self.last_fault = str(fault)
        self.broker.intake.stop()
        for child in self.broker.children.all:
            if child.running:
                self.loop.unwatch(child.pidfd)
            self.loop.cancel(f"restart {child.name}")
        self.broker.children.kill_all()
        log.critical(
            "%s: the shared memory cannot be trusted; killed all other processes, the next start recovers the logs",
            fault,
        )
        self.broker.close()
        self.resources.directories.now_unclean()
        if self.state != "stopping":
            self.state = "starting"
            self.notifier.send(STATUS=f"restarting all processes after a memory fault: {fault}")

    # -- children ---------------------------------------------------------------------------------------------------

    def _start(self, child: Child) -> None:
        """Fork a child and watch it; if the system cannot create a process now, retry after a delay."""
        self.broker.take_over_settings()  # here, so that each child need not do it
        if self.broker.children.start(child):
            self.loop.watch(child.pidfd, lambda: self._child_ended(child))
        else:
            self._restart(child)

    def _restart(self, child: Child) -> None:
        """Start a child again after its delay. Raises StartError if it cannot start before the broker has ever served."""
        delay = self.broker.children.restart_delay(child)
        self.loop.after(delay, f"restart {child.name}", lambda: self._start(child))
        if not self._served and (child.hopeless or child.restarts > MAX_RESTARTS_AT_START):
            raise StartError(f"{child.name} cannot start ({child.last_exit}): see its messages above")

    def _child_ended(self, child: Child) -> None:
        """Reap a child, and restart it unless the broker stops. Raises MemoryFault if the shared memory must be rebuilt."""
        self.loop.unwatch(child.pidfd)
        number = self.broker.children.reap(child, stopping=self.signals.count > 0)
        if number in MEMORY_FAULTS:
            raise MemoryFault(f"{child.name} {child.last_exit}")
        if child.row.kind == ProcessKind.WORKER:
            self.broker.intake.worker_died(child.ordinal)
        if self.state != "stopping" and not (child.row.stage == 0 and child.ended):
            self._restart(child)

    def _watch_children(self) -> None:
        """Once a second: report the supervisor's own progress, and kill children that make none."""
        now = self.clock()
        if now - self._last_watch > SUSPENDED_S:  # this process was suspended, and perhaps the children were, too
            self.broker.children.reset_progress()
        self._last_watch = now
        if os.getpid() == INIT:
            self.broker.children.reap_orphans()
        if self.state != "starting" or any(child.running for child in self.broker.children.all):
            self.broker.shm.beat()
            self._check_log_dirs()
            for child, reason in self.broker.children.stuck(self._lock_limit_s, self._progress_limit_s):
                log.error("killing %s (pid %d): %s", child.name, child.pid, reason)
                self.broker.children.signal([child], signal.SIGKILL)
        self.loop.after(WATCH_EVERY_S, "watch", self._watch_children)

    def _beat(self) -> None:
        """In a cluster, several times in a session timeout: note that the broker runs. After a pause of all processes, let the
        coordinator find out whether this broker may still lead its partitions [R 12]."""
        paused_ms = pauses.beat(pauses.clock_ms())
        if paused_ms:
            log.warning(
                "this broker did not run for %.1f s, and other brokers may lead its partitions: it refuses produce requests "
                "with acks=0 and acks=1 until ZooKeeper has confirmed its registration",
                paused_ms / 1000,
            )
            self._wake_coordinator()
        self.loop.after(pauses.interval_s(), "beat", self._beat)

    def _wake_coordinator(self) -> None:
        for child in self.broker.children.all:
            if child.row.kind == ProcessKind.COORDINATOR:
                self.broker.shm.wake(child.index)

    def _check_log_dirs(self) -> None:
        """Note the log directories that failed. Raises NoLogDirectoryLeft if all have failed."""
        directories = self.resources.directories
        for number in range(self.broker.shm.log_dir_count):
            if self.broker.shm.log_dir_offline(number):
                directories.online[number] = False  # it stays offline if the shared memory is rebuilt
        if self.state != "stopping" and not any(directories.online):
            paths = ", ".join(str(path) for path in directories.paths)
            raise NoLogDirectoryLeft(f"all log directories have failed, the broker stops: {paths}")

    def _notify_watchdog(self) -> None:
        if self.notifier.watchdog_s is not None:
            self.notifier.send(WATCHDOG=1)
            self.loop.after(self.notifier.watchdog_s, "watchdog", self._notify_watchdog)

    # -- start, serve, stop -----------------------------------------------------------------------------------------

    def _start_all(self) -> None:
        """Start all stages but the last, one after another, until all their processes serve or a stop signal arrives.

        Modules are imported in this process, so that children share their pages, and so that a restarted child runs the same
        build even if another version was installed meanwhile; what is imported later must be of this version (`late_imports`).
        The imports run while loaders work, so the start does not wait for them. The loaders' modules are imported before the
        loaders' fork, all others before the fork of the first lasting process: each import after a fork leaves both sides with
        copies of pages.
        """
        began = self.clock()
        gc.disable()  # each child would reuse memory that a collection freed here, and get a copy of each such page
        loaders = self._start_stage(0)
        self.loop.after(LOADING_REPORT_EVERY_S, "loading", self._report_loading)
        config = self.resources.config
        to_import = [row.main for row in self.resources.rows if row.stage > 0 and row.count(config)]
        to_import += also_imported(config)
        self._import_next(to_import)
        while not (self.signals.count or all(child.ended for child in loaders)):
            self.loop.turn()
        self.loop.cancel("loading")
        self.loop.cancel("import")
        if self.signals.count:
            return
        log.info("logs loaded in %.0f ms: %d partitions", (self.clock() - began) * 1000, self.broker.shm.slots_used)
        for row in loading_report(self.broker.shm.loading_dirs, self.resources.directories.paths)["directories"]:
            if row["bytes_recovered"]:
                log.info("%s", recovery_line(row))
        for main in to_import:
            resolve(main)
        self._fillers = self._fillers or fill_holes()
        children = [*self._start_stage(1), *self._start_stage(2)]
        while not (self.signals.count or all(self.broker.serves(child) for child in children)):
            self.loop.turn()

    def _import_next(self, mains: list[str]) -> None:
        """Import the modules of `mains`, one in each turn of the loop, which serves the status in between. Removes each from
        the list."""
        if mains:
            resolve(mains.pop(0))
            self.loop.after(0.0, "import", lambda: self._import_next(mains))

    def _start_stage(self, stage: int) -> list[Child]:
        """Import what the processes of a stage need, if that is not done yet, and start them."""
        children = self.broker.children.of_stage(stage)
        for child in children:
            resolve(child.row.main)
        # A child that replaces an entry of the method cache releases the name in that entry, which copies a page each time.
        sys._clear_type_cache()
        gc.freeze()
        for child in children:
            self._start(child)
        return children

    def _report_loading(self) -> None:
        """Log the progress of loading, regularly until all logs are open."""
        for row in loading_report(self.broker.shm.loading_dirs, self.resources.directories.paths)["directories"]:
            if row["done"] < row["total"]:
                log.info("%s", recovery_line(row))
                self.notifier.send(STATUS=recovery_line(row))
        self.loop.after(LOADING_REPORT_EVERY_S, "loading", self._report_loading)

    def _serve(self) -> None:
        """Accept connections and serve until a stop signal arrives."""
        if self.signals.count:
            return
        gc.enable()
        self.state = "serving"
        self._served = True
        self.broker.intake.open()
        self._write_pid_file()
        self._start_stage(LAST_STAGE)
        log.info("ready after %.0f ms: %s", (self.clock() - self.started) * 1000, self._names)
        self.notifier.send(READY=1, MAINPID=os.getpid(), STATUS=self._serving())
        release_start_pages()
        while not self.signals.count:
            self.loop.turn()

    @property
    def _names(self) -> str:
        return ", ".join(str(listener) for listener in self.resources.bound)

    def _serving(self) -> str:
        return f"serving on {self._names}" if self.state == "serving" else ""

    def _write_pid_file(self) -> None:
        """Write the pid file. A failure is not fatal: the command also finds the broker by its status socket."""
        directory = self.resources.directories.first
        try:
            write_pid_file(str(directory), self.resources.bound)
        except OSError as error:
            path = directory / PID_FILE
            log.warning("cannot write %s: %s; retrying every %g s", path, error.strerror, PID_FILE_RETRY_S)
            self.loop.after(PID_FILE_RETRY_S, "pid file", self._write_pid_file)

    def _leave(self) -> None:
        """In a cluster, let the coordinator move the leaderships of this broker to other brokers while everything still serves.

        Ends when the coordinator is done, after the time that its attempts may take, or when a further stop signal arrives.
        A coordinator that dies meanwhile is restarted, and its successor begins again.
        """
        config = self.resources.config
        if not self._served or not config.clustered or not config["controlled.shutdown.enable"]:
            return
        attempts = config.integer("controlled.shutdown.max.retries")
        each_ms = config.integer("controller.socket.timeout.ms") + config.integer(
            "controlled.shutdown.retry.backoff.ms"
        )
        signals = self.signals.count
        limit_s = max(attempts, 0) * each_ms / 1000
        doing = "moving the leaderships of this broker to other brokers"
        log.info("%s", doing)
        self.notifier.extend_timeout(limit_s + STEP_OF_STOP_MARGIN_S, STATUS=doing)
        self.broker.shm.leave_state = LeaveState.LEAVE_REQUESTED
        self._wake_coordinator()
        self.loop.after(limit_s, "leave", lambda: None)
        while (
            self.broker.shm.leave_state != LeaveState.LEAVE_DONE
            and self.loop.has_timer("leave")
            and self.signals.count == signals
        ):
            self.loop.turn()
        if self.broker.shm.leave_state != LeaveState.LEAVE_DONE:
            hurried = self.signals.count > signals
            log.warning(
                "%s: stopping before the leaderships of this broker were moved",
                "a further signal arrived" if hurried else "the time for a controlled shutdown is over",
            )
        self.loop.cancel("leave")

    def _stop(self) -> None:
        """Stop accepting, then end the processes in their stop order."""
        self.state = "stopping"
        self.loop.cancel("pid file")
        log.info("stopping")
        self.notifier.send(STOPPING=1, STATUS="stopping")
        self.broker.intake.stop()
        for sock in self.resources.sockets:
            sock.close()
        for child in self.broker.children.all:
            self.loop.cancel(f"restart {child.name}")
        self.broker.shm.stopping = True
        self._wake_coordinator()
        for order in sorted({row.stop_order for row in self.resources.rows}):
            self._end([child for child in self.broker.children.all if child.row.stop_order == order and child.running])

    def _end(self, children: Sequence[Child]) -> None:
        """Send SIGTERM and wait until the children have ended; send SIGKILL after `odradek.stop.timeout.ms`, or when a
        further stop signal arrives."""
        signals = self.signals.count  # read first: a signal may arrive in reaction to a log line of a child on SIGTERM
        self.notifier.extend_timeout(self._stop_limit_s + STEP_OF_STOP_MARGIN_S)
        self.broker.children.signal(children, signal.SIGTERM)
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
                self.broker.children.signal(late, signal.SIGKILL)
                signals, deadline = self.signals.count, float("inf")
        self.loop.cancel("stop")

    def _wait(self, seconds: float) -> None:
        """Wait, serving only the status; a stop signal ends the wait."""
        self.loop.after(seconds, "restart all", lambda: None)
        while self.loop.has_timer("restart all") and not self.signals.count:
            self.loop.turn()
