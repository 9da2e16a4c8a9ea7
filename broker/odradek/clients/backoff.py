"""Waits between the attempts of a loop. Used in the processes of commands."""

import math
import time

GROWTH = 2


class Backoff:
    """Waits that become longer, up to a deadline. An attempt follows each wait, so the last one is made at the deadline.

    :param first_s: the first wait, in seconds. :param longest_s: the longest one.
    :param timeout_s: the time from now to the deadline; None: there is none.
    """

    def __init__(self, first_s: float, longest_s: float, timeout_s: float | None = None) -> None:
        self._next_s = first_s
        self._longest_s = longest_s
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
        time.sleep(min(self._next_s, left_s))
        self._next_s = min(GROWTH * self._next_s, self._longest_s)
        return True
