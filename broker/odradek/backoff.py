"""Waits between attempts that grow with each failure: the only place that computes them. Every package may import it.

`Backoff` is the rule, without state. The other classes count failures and ask it: `Waits` sleeps between the attempts of a
loop, `RecentFailures` forgets failures after a quiet time, `SetupTimeout` grows the time that an attempt may take.
"""

import math
import random
import time
from typing import NamedTuple

_MOST_DOUBLINGS = 60


class Backoff(NamedTuple):
    """A rule for waits: each is twice as long as the one before. All its times have one unit, which the user chooses.

    :ivar first: the wait after the first failure. :ivar longest: the longest wait
    :ivar shortest: the shortest wait, whatever `first` and `longest` are
    :ivar jitter: the part of a wait, from 0 to 1, that is left to chance, so that many clients do not try at the same time
    """

    first: float
    longest: float
    shortest: float = 0
    jitter: float = 0

    def after(self, failures: int) -> float:
        """Return the wait after so many failures in a row; 0 without a failure."""
        if failures < 1:
            return 0
        wait = max(self.shortest, min(self.first * (1 << min(failures - 1, _MOST_DOUBLINGS)), self.longest))
        return wait * random.uniform(1 - self.jitter, 1) if self.jitter else wait


class Waits:
    """Waits that become longer, up to a deadline. An attempt follows each wait, so the last one is made at the deadline.

    :param first_s: the first wait, in seconds. :param longest_s: the longest one.
    :param timeout_s: the time from now to the deadline; None: there is none.
    """

    def __init__(self, first_s: float, longest_s: float, timeout_s: float | None = None) -> None:
        self._backoff = Backoff(first_s, longest_s)
        self._waits = 0
        self._deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s

    @property
    def left_s(self) -> float:
        """The time to the deadline, in seconds; not above 0 when it has passed."""
        return self._deadline - time.monotonic()

    def wait(self) -> bool:
        """Wait, at most until the deadline. False, at once, if it has passed."""
        left_s = self.left_s
        if left_s <= 0:
            return False
        self._waits += 1
        time.sleep(min(self._backoff.after(self._waits), left_s))
        return True


class RecentFailures:
    """Failures of an attempt that usually succeeds soon, for example after a change of leaders: a broker may ask the new leader
    before the controller has informed it, and a fixed wait would then stop replication for its whole length.

    Times are monotonic, in ms.

    :param limit_ms: the longest wait; also the time without a failure after which the next wait is short again
    """

    def __init__(self, first_ms: int, limit_ms: int) -> None:
        self._backoff = Backoff(first_ms, limit_ms)
        self._failures = 0
        self._until_ms = 0

    def next(self, now_ms: int) -> int:
        """The time in ms until the next attempt, after an attempt that has just failed."""
        if now_ms - self._until_ms > self._backoff.longest:
            self._failures = 0
        self._failures += 1
        wait_ms = int(self._backoff.after(self._failures))
        self._until_ms = now_ms + wait_ms
        return wait_ms


class SetupTimeout:
    """The time in seconds within which a connection must be connected and logged in. It doubles with each time-out in a row.

    :param first_ms: `socket.connection.setup.timeout.ms`. :param limit_ms: `socket.connection.setup.timeout.max.ms`.
    """

    def __init__(self, first_ms: int, limit_ms: int) -> None:
        first_s = max(1, first_ms) / 1000
        self._backoff = Backoff(first_s, max(first_s, limit_ms / 1000))
        self._attempts = 1

    @property
    def seconds(self) -> float:
        """The time that the next attempt may take."""
        return self._backoff.after(self._attempts)

    def succeeded(self) -> None:
        """A connection is set up."""
        self._attempts = 1

    def timed_out(self) -> None:
        """A connection was not set up in time."""
        self._attempts += 1
