"""Processes that a test forks, and that it kills."""

import contextlib
import os
import signal
import traceback
from collections.abc import Callable

from tests.waiting import PATIENCE_S, readable

FAILED = 70


def fork(action: Callable[[], object]) -> int:
    """Run `action` in a forked child; its process id.

    The child exits with 0 when `action` returns. An exception ends it with `FAILED` and a traceback on stderr: a child
    that left by its exception would run the rest of the test session a second time.
    """
    pid = os.fork()
    if pid:
        return pid
    code = FAILED
    try:
        action()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def end_of(child: int) -> int:
    """Wait for the end of a forked child; its exit code, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill_child(child: int) -> None:
    """Kill a forked child, unless it has ended by itself, and wait for its end."""
    os.kill(child, signal.SIGKILL)  # it is there until it is waited for
    end_of(child)


def kill(pid: int) -> None:
    """Kill a process that is another one's child, unless it has ended, and wait for its end."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            assert readable(descriptor, PATIENCE_S), f"process {pid} did not end"
        finally:
            os.close(descriptor)
