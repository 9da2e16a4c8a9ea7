"""The supervisor's children: forks them without exec, watches them by pidfd, delays restarts, detects children that are stuck.

Runs only in the supervisor. It starts no thread, takes no slot's lock, and reads only the process table of the shared memory.
"""

import importlib
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from odradek._ext.shm.layout import ProcessState
from odradek._ext.shm.process import die_with_parent, set_name, set_signals
from odradek._ext.shm.shared_memory import SharedMemory
from odradek.backoff import Backoff
from odradek.processes import logs
from odradek.processes.supervisor.event_loop import STOP_SIGNALS
from odradek.processes.table import ProcessRow

log = logging.getLogger("odradek.supervisor")

OOM_SCORE = "/proc/self/oom_score_adj"
OOM_SCORE_OF_CHILD, MAX_OOM_SCORE = 100, 1000
"""What a child adds to its parent's score, so that the OOM killer chooses it and not the supervisor, which replaces a killed
child. 1000 stands for the whole memory of the machine, or of the control group."""
RESTARTS = Backoff(first=0.1, longest=10.0)
SHORT_LIFE_S = 10.0
ALIGNMENT, LARGEST_SMALL_OBJECT = 16, 512
"""Python's allocator puts objects of up to 512 bytes into pages of one size each; the sizes are multiples of 16."""
BYTES_HEADER = sys.getsizeof(b"")
SMALLEST_BYTES = BYTES_HEADER - BYTES_HEADER % ALIGNMENT + ALIGNMENT
ADJACENT_FILLERS, MOST_FILLERS = 8, 1000
MEMORY_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL}


class RestartDelay:
    """The delay before a restart: none the first time, then 0.1 s, doubled up to 10 s while each life is shorter than 10 s."""

    def __init__(self) -> None:
        self._short_lives = 0

    def after(self, lived_s: float) -> float:
        """The delay in seconds after a process that lived `lived_s` seconds."""
        short_lives = 0 if lived_s >= SHORT_LIFE_S else self._short_lives
        self._short_lives = short_lives + 1
        return RESTARTS.after(short_lives)


@dataclass
class Child:
    """A place in the process table and the process in it; `pid` is 0 while no process is in it.

    `ended`: the last process returned 0. `hopeless`: it returned EX_CONFIG; a successor would fail for the same reason.
    `seen_progress` and `seen_lock`: the last observed value, and the time since which it has not changed.
    """

    row: ProcessRow
    ordinal: int
    index: int
    pid: int = 0
    pidfd: int = -1
    started: float = 0.0
    restarts: int = 0
    delay: RestartDelay = field(default_factory=RestartDelay)
    last_exit: str = ""
    ended: bool = False
    hopeless: bool = False
    seen_progress: tuple[int, float] = (-1, 0.0)
    seen_lock: tuple[tuple[int, int] | None, float] = (None, 0.0)

    @property
    def name(self) -> str:
        return f"{self.row.name}-{self.ordinal}"

    @property
    def running(self) -> bool:
        return self.pid != 0


def exit_reason(status: int) -> tuple[str, int | None]:
    """The meaning of a wait status: (text, number of the signal that ended the process or None)."""
    if not os.WIFSIGNALED(status):
        return f"exit code {os.WEXITSTATUS(status)}", None
    number = os.WTERMSIG(status)
    has_name = number in {known.value for known in signal.Signals}
    return f"ended by {signal.Signals(number).name if has_name else f'signal {number}'}", number


def describe_request(request: Mapping[str, Any]) -> tuple[str, dict[str, str | None]]:
    """The request that a process was executing when it ended: as text for a log line, and as fields of that line.

    :param request: the value of `ProcessInfo.request`.
    """
    client_id = request["client_id"]
    text = (
        f"; it was executing a request of API key {request['api_key']} version {request['api_version']}, correlation id "
        f"{request['correlation_id']}, of {request['peer']} ({f'client id {client_id}' if client_id else 'no client id'})"
    )
    return text, {"client_id": client_id or None, "client_address": request["peer"]}


class Children:
    """All children of the supervisor.

    :param rows: rows of the process table, each with the number of processes.
    :param prepare: called before each fork; returns the function that runs in the child and returns the exit code.
    """

    def __init__(
        self,
        shm: SharedMemory,
        rows: Sequence[tuple[ProcessRow, int]],
        prepare: Callable[[Child], Callable[[], int]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.shm = shm
        self.clock = clock
        self._prepare = prepare
        self.all = [Child(row, ordinal, shm.add_process(row.kind)) for row, count in rows for ordinal in range(count)]

    def of_stage(self, stage: int) -> list[Child]:
        return [child for child in self.all if child.row.stage == stage]

    def start(self, child: Child) -> bool:
        """Fork the child. Returns False if the system cannot create a process now. Never returns in the child."""
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        child.started = self.clock()
        child.ended = False
        child.seen_progress = (-1, child.started)
        child.seen_lock = (None, child.started)
        self.shm.process_starts(child.index)  # before the fork: the child may serve before this process continues
        run = self._prepare(child)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            pid = os.fork()
            if pid == 0:
                self._run_in_child(child, run, parent, before)
        except OSError as error:
            return self._not_started(child, error)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        try:
            child.pidfd = os.pidfd_open(pid)
        except OSError as error:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return self._not_started(child, error)
        child.pid = pid
        return True

    def _not_started(self, child: Child, error: OSError) -> bool:
        child.last_exit = f"not started: {error.strerror}"
        log.error("cannot start %s: %s; retrying", child.name, error.strerror)
        self.shm.process_died(child.index)
        return False

    def _run_in_child(self, child: Child, run: Callable[[], int], parent: int, mask: Iterable[int]) -> None:
        """Runs in the child: set its name and signals, run its main function, exit. Never returns."""
        code: object = 1
        try:
            orphan = not die_with_parent(signal.SIGTERM, parent)
            set_name(f"odradek-{child.row.name[:7]}".encode())
            signal.set_wakeup_fd(-1)
            # A terminal sends ^C and hang-up to the whole process group; the supervisor stops the children in order instead.
            set_signals((signal.SIGTERM, signal.SIGCHLD), (signal.SIGINT, signal.SIGHUP), mask)
            logs.enter(child.name)
            offer_to_oom_killer()
            if orphan:
                code = 0
            else:
                self.shm.enter(child.index)
                code = run()
        except SystemExit as end:
            code = 0 if end.code is None else end.code
        except BaseException:
            log.exception("%s terminated by an unhandled exception", child.name)
        finally:
            try:
                logging.shutdown()
                sys.stderr.flush()
            finally:
                os._exit(code & 0xFF if isinstance(code, int) else 1)

    def reap(self, child: Child, *, stopping: bool = False) -> int | None:
        """Reap a child that ended, and clear its place for a successor. Returns the signal that ended it, or None.

        After a memory fault the shared memory is not touched: its content cannot be trusted and is not used again.

        :param stopping: whether the broker stops. Then a child that was ended by SIGTERM is no error: a signal to the whole
            process group may reach a child before it handles the signal.
        """
        _, status = os.waitpid(child.pid, 0)
        child.last_exit, number = exit_reason(status)
        os.close(child.pidfd)
        pid, child.pid, child.pidfd = child.pid, 0, -1
        request = self.shm.process(child.index).request
        if number not in MEMORY_FAULTS:
            self.shm.process_died(child.index)
        child.ended = status == 0
        child.hopeless = os.WIFEXITED(status) and os.WEXITSTATUS(status) == os.EX_CONFIG
        if not child.ended or child.row.stage > 0:
            expected = child.ended or (stopping and number == signal.SIGTERM)
            level = logging.INFO if expected else logging.ERROR
            executing, fields = describe_request(request) if request and not child.ended else ("", {})
            lived = self.clock() - child.started
            log.log(
                level, "%s (pid %d) ended after %.1f s: %s%s", child.name, pid, lived, child.last_exit, executing,
                extra=fields,
            )  # fmt: skip
        return number

    def restart_delay(self, child: Child) -> float:
        """Count a restart. Returns the delay in seconds: 0 after a long life, else growing with each restart."""
        child.restarts += 1
        return child.delay.after(self.clock() - child.started)

    def signal(self, children: Iterable[Child], number: int) -> None:
        for child in children:
            if child.running:
                signal.pidfd_send_signal(child.pidfd, number)

    def kill_all(self) -> None:
        """Kill and reap all children, without writing to the shared memory."""
        self.signal(self.all, signal.SIGKILL)
        for child in self.all:
            if child.running:
                os.waitpid(child.pid, 0)
                os.close(child.pidfd)
                child.pid, child.pidfd = 0, -1

    def reap_orphans(self) -> None:
        """Reap processes that this one did not start: as the first process of a container it inherits those whose parent has
        ended. Do nothing while a child of the broker waits to be reaped; a later call reaps the orphans."""
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None or any(child.pid == found.si_pid for child in self.all):
                return
            os.waitpid(found.si_pid, 0)

    def reset_progress(self) -> None:
        """Restart the measurement of how long children are stuck: the supervisor itself was suspended, and perhaps they were,
        too."""
        now = self.clock()
        for child in self.all:
            child.seen_progress = (child.seen_progress[0], now)
            child.seen_lock = (child.seen_lock[0], now)

    def stuck(self, lock_limit_s: float, progress_limit_s: float) -> list[tuple[Child, str]]:
        """Children that have held the same lock, or whose loop has not run, for too long, each with the reason.

        A loop must run only while the child's state is SERVING. A child that waits for a device is not stuck.
        """
        stuck_children = []
        now = self.clock()
        for child in self.all:
            if not child.running or child.row.stage == 0:
                continue
            info = self.shm.process(child.index)
            held = (info.locked_slot, info.locked_since_ms) if info.locked_slot else None
            if held != child.seen_lock[0]:
                child.seen_lock = (held, now)
            elif held is not None and now - child.seen_lock[1] > lock_limit_s:
                if not waits_for_device(child.pid):
                    slot = info.locked_slot - 1
                    stuck_children.append(
                        (child, f"it has held the lock of a partition (slot {slot}) for more than {lock_limit_s:g} s")
                    )
                continue
            if info.progress != child.seen_progress[0] or info.state != ProcessState.SERVING:
                child.seen_progress = (info.progress, now)
            elif now - child.seen_progress[1] > progress_limit_s and not waits_for_device(child.pid, child.pid):
                stuck_children.append((child, f"its event loop has not run for {progress_limit_s:g} s"))
        return stuck_children


def offer_to_oom_killer() -> None:
    """Let the OOM killer prefer this process to its parent. Every process may raise its own score."""
    try:
        fd = os.open(OOM_SCORE, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.write(fd, str(min(int(os.read(fd, 16)) + OOM_SCORE_OF_CHILD, MAX_OOM_SCORE)).encode())
        finally:
            os.close(fd)
    except OSError as error:  # a /proc that is read-only or hidden; then all processes have the same score
        log.debug("cannot write %s: %s", OOM_SCORE, error.strerror)


def waits_for_device(pid: int, thread: int | None = None) -> bool:
    """Whether a thread of a process is in uninterruptible sleep, as during a sync or a write to an overloaded device.

    SIGKILL would end the process only after the device has answered, and a successor would wait for the same device.

    :param thread: the id of the thread to examine; None for all threads.
    """
    directory = Path("/proc") / str(pid) / "task"
    try:
        tasks = [directory / str(thread)] if thread is not None else list(directory.iterdir())
    except OSError:
        return False
    for task in tasks:
        try:
            state = (task / "stat").read_bytes().rpartition(b") ")[2][:1]
        except OSError:  # the thread has ended
            continue
        if state == b"D":
            return True
    return False


def close_all_but(keep: Collection[int]) -> None:
    """Close every descriptor of this process except the standard streams and `keep`."""
    low = 3
    for fd in sorted(keep):
        if fd >= low:
            os.closerange(low, fd)
            low = fd + 1
    os.closerange(low, max(low, resource.getrlimit(resource.RLIMIT_NOFILE)[0]))


def fill_holes() -> list[bytes]:
    """Objects that fill most holes that the imports have left among the small objects; they must be kept.

    Called before the forks. A child then puts its own objects next to each other, and not into the holes of pages that it would
    otherwise share. Objects of one size are made until each is behind its predecessor in memory, which means a new page.
    """
    fillers = []
    for size in range(SMALLEST_BYTES, LARGEST_SMALL_OBJECT + 1, ALIGNMENT):
        last = adjacent = 0
        for _ in range(MOST_FILLERS):
            fillers.append(bytes(size - BYTES_HEADER))
            address = id(fillers[-1])
            adjacent = adjacent + 1 if address == last + size else 0
            if adjacent == ADJACENT_FILLERS:
                break
            last = address
    return fillers


@cache
def resolve(main: str) -> Callable[..., int]:
    """The function that "module:function" names. Imports its module; called before the fork, so that children share its
    pages."""
    module, _, name = main.partition(":")
    function: Callable[..., int] = getattr(importlib.import_module(module), name)
    return function
