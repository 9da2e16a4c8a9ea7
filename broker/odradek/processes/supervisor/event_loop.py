"""The supervisor's event loop: epoll, named timers, and the stop signals. One thread, no asyncio.

The action of a descriptor may unwatch other descriptors, but may watch new ones only from a timer or between turns. So within
one turn, a descriptor number that was closed is not used by another descriptor, and no action runs for the wrong one.
"""

import os
import select
import signal
import time
from collections.abc import Callable

from odradek.hang_up import on_hang_up

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
REPEATED_S = 0.1
"""Signals of one kind within this time, in seconds, are one request: `timeout`, for example, sends a signal to the process and
directly after that to its process group."""

Action = Callable[[], None]


class EventLoop:
    """Calls actions for readable descriptors and due timers. :param clock: monotonic seconds; tests replace it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._epoll = select.epoll()
        self._actions: dict[int, Action] = {}
        self._timers: dict[str, tuple[float, Action]] = {}

    def watch(self, fd: int, action: Action) -> None:
        """Call `action` whenever `fd` is readable."""
        self._epoll.register(fd, select.EPOLLIN)
        self._actions[fd] = action

    def unwatch(self, fd: int) -> None:
        """Stop watching `fd`; must be called before it is closed. Does nothing if `fd` is not watched."""
        if self._actions.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def after(self, delay_s: float, name: str, action: Action) -> None:
        """Call `action` once in `delay_s` seconds. Replaces the timer with this name, if there is one."""
        self._timers[name] = (self.clock() + delay_s, action)

    def has_timer(self, name: str) -> bool:
        return name in self._timers

    def cancel(self, name: str) -> None:
        """Remove a timer; does nothing if no timer has this name."""
        self._timers.pop(name, None)

    def turn(self) -> None:
        """Wait once for descriptors and timers, and run the due actions."""
        timeout = -1.0
        if self._timers:
            timeout = max(0.0, min(when for when, _ in self._timers.values()) - self.clock())
        for fd, _ in self._epoll.poll(timeout):
            action = self._actions.get(fd)
            if action is not None:
                action()
        now = self.clock()
        for name in [name for name, (when, _) in self._timers.items() if when <= now]:
            due = self._timers.pop(name, None)
            if due is not None:
                due[1]()

    def close(self) -> None:
        self._epoll.close()


class StopSignals:
    """Counts the requests to stop (SIGTERM, SIGINT, the end of the terminal) from its creation until `close`. `fileno` is
    readable after a signal.

    A signal that repeats the last one within `REPEATED_S` is not counted. :param clock: monotonic seconds.
    :param reload: `drain` calls it after SIGHUP without the end of the terminal, see `odradek.hang_up`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, reload: Action = lambda: None) -> None:
        self.count = 0
        self._reload = reload
        self._clock = clock
        self._last = (0, 0.0)
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._reload_requested = False
        self._before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._arrived)
        on_hang_up(lambda: self._arrived(signal.SIGHUP, None), self._request_reload)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)

    def _arrived(self, number: int, _: object) -> None:
        before, at = self._last
        now = self._clock()
        self._last = (number, now)
        if number != before or now - at >= REPEATED_S:
            self.count += 1

    def _request_reload(self) -> None:
        self._reload_requested = True

    def fileno(self) -> int:
        return self._read

    def drain(self) -> None:
        """Make `fileno` unreadable again; the count does not change."""
        try:
            os.read(self._read, 4096)
        except BlockingIOError:
            pass
        if self._reload_requested:
            self._reload_requested = False
            self._reload()

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._read)
        os.close(self._write)
