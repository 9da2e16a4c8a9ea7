"""Ends a command on Ctrl-C (SIGINT) and on SIGTERM. Used in the main thread of the command's process.

Either signal raises KeyboardInterrupt (SIGTERM its subclass `Terminated`) at any line, so that it ends every command. As the
exception propagates, `interrupt_note` adds notes on what was done so far. The command then ends with one line on stderr that
contains the notes, and with the exit status 128 + the number of the signal. A loop that must not be interrupted at any line
enters an `Interruption`, which defers the first signal until the loop checks for it.

click's own handling does not suffice: it knows SIGINT alone, ends with "Aborted!" and exit status 1, and cannot defer a signal.

A terminal that does not read its output blocks each write. Therefore a signal also discards the output that the terminal
has not read (`discard_blocked_output`), so that the command can write its last line and exit.
"""

import atexit
import os
import select
import signal
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from types import FrameType
from typing import Any, NoReturn, ParamSpec, TypeVar

Made = TypeVar("Made")
Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")

SIGNALS = (signal.SIGINT, signal.SIGTERM)
OUTPUTS = (1, 2)
"""File descriptors of standard output and standard error."""
REPEAT_S = 0.1
"""Seconds between two alarms. The first may arrive just before a blocking call, which only another alarm interrupts."""

PATIENT_ALARMS = 10
"""After this number of alarms, output is discarded even if the terminal accepts more: perhaps less than a write needs."""


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived."""


def raised_by(number: int) -> KeyboardInterrupt:
    """The exception to raise for a signal of `SIGNALS`."""
    return Terminated() if number == signal.SIGTERM else KeyboardInterrupt()


def exit_status(error: BaseException | None) -> int:
    """The exit status of a command that this exception ended."""
    return 128 + (signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT)


def _raise(number: int, _: FrameType | None) -> NoReturn:
    _discard_output(_terminals())
    discard_blocked_output()
    raise raised_by(number)


def discard_blocked_output() -> None:
    """From now until the process exits, discard output that a terminal does not read, so that no write blocks for long.

    Checks every `REPEAT_S`, by SIGALRM, which also interrupts a write that blocks.
    """
    if not _terminals():
        return
    alarms = count()

    def discard(*_: object) -> None:
        _discard_output(_terminals() if next(alarms) >= PATIENT_ALARMS else _full_terminals())

    signal.signal(signal.SIGALRM, discard)
    signal.setitimer(signal.ITIMER_REAL, REPEAT_S, REPEAT_S)
    atexit.register(_write_last_output)


def _write_last_output() -> None:
    """Write what is still buffered, then stop the alarms: the interpreter resets signal handlers when it ends."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the interpreter itself reports output that cannot be written
            stream.flush()
    signal.setitimer(signal.ITIMER_REAL, 0)


def _terminals() -> list[int]:
    """Which of `OUTPUTS` are terminals."""
    return [number for number in OUTPUTS if os.isatty(number)]


def _full_terminals() -> list[int]:
    return [number for number in _terminals() if not select.select([], [number], [], 0)[1]]


def _discard_output(terminals: list[int]) -> None:
    """Discard the output that the terminals have not read, and resume output that Ctrl-S has stopped.

    The kernel does this when a user types Ctrl-C; other signals leave the output in the terminal's buffer.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTOU])  # which would stop a process in the background
    try:
        for terminal in terminals:
            termios.tcflow(terminal, termios.TCOOFF)
            termios.tcflow(terminal, termios.TCOON)
            termios.tcflush(terminal, termios.TCOFLUSH)
    except termios.error:  # the terminal has hung up; writes to it fail instead of blocking
        pass
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _set(handler: Callable[[int, FrameType | None], Any]) -> dict[int, Any]:
    """Set the handler for `SIGNALS`, and return the previous handlers by signal; empty outside the main thread.

    A signal that the parent process ignores (`nohup`, a script's `&`) stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    handled = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    return {number: signal.signal(number, handler) for number in handled}


def _restore(before: dict[int, Any]) -> None:
    for number, handler in before.items():
        signal.signal(number, handler)


@contextmanager
def signals_as_exceptions() -> Iterator[None]:
    """Within the context, both signals raise their exception."""
    before = _set(_raise)
    try:
        yield
    finally:
        _restore(before)


@contextmanager
def interrupt_note(text: Callable[[], str]) -> Iterator[None]:
    """If a signal interrupts the context, add `text()` (a clause without a full stop) to the command's last line."""
    try:
        yield
    except KeyboardInterrupt as error:
        error.add_note(text())
        raise


def stop_message(error: BaseException | None) -> str:
    """The last line of a command that a signal ended: "stopped" and the notes."""
    return "; ".join(["stopped", *getattr(error, "__notes__", ())])


def end_typed_line() -> None:
    """Start a new line on the terminal, which has printed "^C" into the current one."""
    if sys.stderr.isatty():
        sys.stderr.write("\n")


class Interruption:
    """Within the context, the first signal is deferred, and the second one raised. Contexts must not be nested.

    :param at_latest_s: the first signal is raised after this number of seconds at the latest, at any line; None: never.
    """

    def __init__(self, at_latest_s: float | None = None) -> None:
        self.number: int | None = None
        self._at_latest_s = at_latest_s
        self._alarm_before: Any = None
        self._read = self._write = -1
        self._before: dict[int, Any] = {}
        self._at_once = False

    def __enter__(self) -> "Interruption":
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._before = _set(self._arrived)
        if self._before:
            signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
            if self._at_latest_s is not None:
                self._alarm_before = signal.signal(signal.SIGALRM, self._waited_too_long)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before:
            if self._at_latest_s is not None:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, self._alarm_before)
            signal.set_wakeup_fd(-1)
        _restore(self._before)
        os.close(self._read)
        os.close(self._write)

    def _arrived(self, number: int, _: FrameType | None) -> None:
        again, self.number = self.number is not None, number
        if again or self._at_once:
            _discard_output(_terminals())
            raise raised_by(number)
        if self._at_latest_s is not None:
            signal.setitimer(signal.ITIMER_REAL, self._at_latest_s, REPEAT_S)

    def _waited_too_long(self, *_: object) -> None:
        _discard_output(_full_terminals())
        self.check()

    def fileno(self) -> int:
        """A descriptor that is readable once a signal has arrived."""
        return self._read

    @property
    def signalled(self) -> bool:
        """Whether a signal has arrived."""
        return self.number is not None

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Within the context, the first signal is raised at once; one that was deferred is raised at the beginning. This is for
        calls that may block for ever."""
        self._at_once = True
        try:
            self.check()
            yield
        finally:
            self._at_once = False

    def at_once_in(self, function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        """Return `function` so that each call runs as within `at_once`, at less cost: for calls of which one may not end."""

        def call(*args: Arguments.args, **options: Arguments.kwargs) -> Result:
            self._at_once = True
            try:
                if self.number is not None:
                    self.check()
                return function(*args, **options)
            finally:
                self._at_once = False

        return call

    def check(self) -> None:
        """Raise the exception of a signal that has arrived."""
        if self.number is not None:
            raise raised_by(self.number)


def without_interruption(make: Callable[[], Made]) -> Made:
    """Return `make()`, and raise a signal that arrived meanwhile only after it.

    For constructors in C: confluent-kafka replaces an exception that a signal handler raises by its own TypeError.
    """
    with Interruption() as interruption:
        made = make()
        interruption.check()
    return made
