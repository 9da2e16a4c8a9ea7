"""Ctrl-C (SIGINT) and SIGTERM: how they end a command. Used in the main thread of the command's process.

Either signal raises KeyboardInterrupt (SIGTERM its subclass `Terminated`) at any line, so that every command ends. Code on
the way out adds what was done so far to the exception as a note (`noting`), and the command ends with one line on stderr
that has the notes, and with the exit status 128 + the number of the signal. A loop that must not be interrupted at any line
enters an `Interruption`, which holds the first signal back until the loop looks.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM)
REPEAT_S = 0.1
"""Between two alarms: the first may come just before a call that blocks, which only another one ends."""


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived."""


def raised_by(number: int) -> KeyboardInterrupt:
    """The exception for a signal of `SIGNALS`."""
    return Terminated() if number == signal.SIGTERM else KeyboardInterrupt()


def exit_status(error: BaseException | None) -> int:
    """The exit status of a command that this exception ended."""
    return 128 + (signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT)


def _raise(number: int, _: FrameType | None) -> NoReturn:
    raise raised_by(number)


def _set(handler: Callable[[int, FrameType | None], Any]) -> dict[int, Any]:
    """Set the handler; the handlers before. A signal that is ignored (`nohup`, a script's `&`) stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    heeded = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    return {number: signal.signal(number, handler) for number in heeded}


def _restore(before: dict[int, Any]) -> None:
    for number, handler in before.items():
        signal.signal(number, handler)


@contextmanager
def raising() -> Iterator[None]:
    """Meanwhile both signals raise their exception."""
    before = _set(_raise)
    try:
        yield
    finally:
        _restore(before)


@contextmanager
def noting(text: Callable[[], str]) -> Iterator[None]:
    """If a signal ends what runs meanwhile, `text` (a clause without a full stop) is added to what the command says."""
    try:
        yield
    except KeyboardInterrupt as error:
        error.add_note(text())
        raise


def last_words(error: BaseException | None) -> str:
    """The line for a command that a signal ended."""
    return "; ".join(["stopped", *getattr(error, "__notes__", ())])


def end_typed_line() -> None:
    """A terminal shows "^C" in the line that the cursor is in: begin another one."""
    if sys.stderr.isatty():
        sys.stderr.write("\n")


class Interruption:
    """While it is entered the first signal is noted, and a second one raised. Not to be entered twice at a time.

    :param at_latest_s: so long after the first signal it is raised, whatever the command does then; None: never.
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
            raise raised_by(number)
        if self._at_latest_s is not None:
            signal.setitimer(signal.ITIMER_REAL, self._at_latest_s, REPEAT_S)

    def _waited_too_long(self, *_: object) -> None:
        self.check()

    def fileno(self) -> int:
        """Readable once a signal has arrived."""
        return self._read

    @property
    def wanted(self) -> bool:
        """Whether a signal has arrived."""
        return self.number is not None

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Meanwhile the first signal is raised, too: for calls that may block for ever."""
        self._at_once = True
        try:
            self.check()
            yield
        finally:
            self._at_once = False

    def check(self) -> None:
        """Raise what was held back."""
        if self.number is not None:
            raise raised_by(self.number)
