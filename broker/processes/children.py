"""The supervisor's children: fork without exec, watch by pidfd, restart with a growing delay, end in order.

Runs in the supervisor only. It starts no thread, takes no slot's lock, and reads of the shared memory only the process table.
"""

import ctypes
import importlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from broker._ext.shared import ProcessState, SharedMemory
from broker.processes import logs
from broker.processes.table import ProcessRow

log = logging.getLogger(__name__)

FIRST_DELAY_S, LONGEST_DELAY_S = 0.1, 10.0
SHORT_LIFE_S = 10.0
MEMORY_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL}
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


@dataclass
class Child:
    """A place in the process table and whoever is in it now."""

    row: ProcessRow
    ordinal: int
    index: int
    pid: int = 0
    pidfd: int = -1
    started: float = 0.0
    restarts: int = 0
    delay: float = 0.0
    restart_at: float | None = None
    last_exit: str = ""
    ended: bool = False
    seen_progress: tuple[int, float] = field(default=(-1, 0.0))

    @property
    def name(self) -> str:
        return f"{self.row.name}-{self.ordinal}"

    @property
    def running(self) -> bool:
        return self.pid != 0


def exit_reason(status: int) -> tuple[str, int | None]:
    """What a wait status means: (in words, the number of the signal that ended the process or None)."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"ended by {signal.Signals(number).name}", number
    return f"exit code {os.WEXITSTATUS(status)}", None


class Children:
    """:param run: called in the child with its Child; returns the exit code."""

    def __init__(
        self,
        shm: SharedMemory,
        rows: Sequence[tuple[ProcessRow, int]],
        run: Callable[[Child], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.shm = shm
        self.clock = clock
        self._run = run
        self.all = [Child(row, ordinal, shm.add_process(row.kind)) for row, count in rows for ordinal in range(count)]

    def of_stage(self, stage: int) -> list[Child]:
        return [child for child in self.all if child.row.stage == stage]

    def start(self, child: Child) -> None:
        """Fork the child. It never returns here."""
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        child.started = self.clock()
        child.restart_at = None
        child.seen_progress = (-1, child.started)
        signals = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
        self.shm.process_starts(child.index)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        pid = os.fork()
        if pid == 0:
            self._become(child, parent, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        child.pid = pid
        child.pidfd = os.pidfd_open(pid)

    def _become(self, child: Child, parent: int, mask: Iterable[int]) -> None:
        code = 1
        try:
            libc = ctypes.CDLL(None)
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            libc.prctl(_PR_SET_NAME, f"odradek-{child.row.name[:7]}".encode())
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's ^C is for the supervisor to pass on
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            logs.set_up(child.name)
            if os.getppid() != parent:
                os._exit(0)
            self.shm.enter(child.index)
            code = self._run(child)
        except SystemExit as leave:
            code = leave.code if isinstance(leave.code, int) else 1
        except BaseException:
            log.exception("%s ends by an error", child.name)
        finally:
            try:
                logging.shutdown()
                sys.stderr.flush()
            finally:
                os._exit(code & 0xFF)

    def reap(self, child: Child) -> int | None:
        """Reap a child that ended; the signal that ended it, or None. Its place is cleared for a successor."""
        _, status = os.waitpid(child.pid, 0)
        child.last_exit, number = exit_reason(status)
        os.close(child.pidfd)
        pid, child.pid, child.pidfd = child.pid, 0, -1
        request = self.shm.process(child.index).request
        self.shm.process_died(child.index)
        child.ended = number is None and os.WEXITSTATUS(status) == 0
        lived = self.clock() - child.started
        if not child.ended or child.row.stage > 0:
            level = logging.INFO if child.ended else logging.ERROR
            at_hand = f"; the request at hand: {request}" if request and not child.ended else ""
            log.log(level, "%s (pid %d) after %.1f s: %s%s", child.name, pid, lived, child.last_exit, at_hand)
        if lived >= SHORT_LIFE_S:
            child.delay = 0.0
        return number

    def schedule(self, child: Child) -> None:
        """Restart the child: at once after a long life, else after a delay that grows while it keeps dying."""
        child.restarts += 1
        child.restart_at = self.clock() + child.delay
        child.delay = min(max(FIRST_DELAY_S, child.delay * 2), LONGEST_DELAY_S)

    def due(self) -> list[Child]:
        now = self.clock()
        return [child for child in self.all if child.restart_at is not None and child.restart_at <= now]

    def next_due(self) -> float | None:
        """Seconds until the next restart falls due, None if none is scheduled."""
        times = [child.restart_at for child in self.all if child.restart_at is not None]
        return max(0.0, min(times) - self.clock()) if times else None

    def signal(self, children: Iterable[Child], number: int) -> None:
        for child in children:
            if child.running:
                signal.pidfd_send_signal(child.pidfd, number)

    def stuck(self, lock_limit_s: float, progress_limit_s: float, monotonic_ms: int) -> list[tuple[Child, str]]:
        """Children that hold a slot's lock, or whose loop has not turned, for longer than they may; and which."""
        found = []
        now = self.clock()
        for child in self.all:
            if not child.running or child.row.stage == 0:
                continue
            info = self.shm.process(child.index)
            if info.state != ProcessState.SERVING:
                continue
            if info.locked_slot and monotonic_ms - info.locked_since_ms > lock_limit_s * 1000:
                found.append((child, f"holds the lock of slot {info.locked_slot - 1} for over {lock_limit_s:.0f} s"))
                continue
            if info.progress != child.seen_progress[0]:
                child.seen_progress = (info.progress, now)
            elif now - child.seen_progress[1] > progress_limit_s:
                found.append((child, f"its loop has not turned for {progress_limit_s:.0f} s"))
        return found


def resolve(main: str) -> Callable[..., int]:
    """The function that "module:function" names. Imports its module: before the fork, so that children share its pages."""
    module, _, name = main.partition(":")
    function: Callable[..., int] = getattr(importlib.import_module(module), name)
    return function
