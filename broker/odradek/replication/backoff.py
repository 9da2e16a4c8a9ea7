"""Times between attempts that usually succeed soon: short at first, then growing to the configured backoff. And the time that a
connection may take to be set up.

After a change of leaders, a broker may ask the new leader before the controller has informed it. A fixed backoff would then
stop replication for its whole length, and with it every produce request with acks=all.
"""

FIRST_MS = 20


class GrowingBackoff:
    """See the module. Times are monotonic, in ms.

    :param limit_ms: the longest wait; also the time without a failure after which the next wait is short again.
    """

    def __init__(self, limit_ms: int) -> None:
        self._limit_ms = limit_ms
        self._wait_ms = FIRST_MS
        self._until_ms = 0

    def next(self, now_ms: int) -> int:
        """The time in ms until the next attempt, after an attempt that has just failed."""
        if now_ms - self._until_ms > self._limit_ms:
            self._wait_ms = FIRST_MS
        wait = min(self._wait_ms, self._limit_ms)
        self._wait_ms = wait * 2
        self._until_ms = now_ms + wait
        return wait


class SetupTimeout:
    """The time in seconds within which a connection must be connected and logged in. It doubles with each time-out in a row.

    :param first_ms: `socket.connection.setup.timeout.ms`. :param limit_ms: `socket.connection.setup.timeout.max.ms`.
    """

    def __init__(self, first_ms: int, limit_ms: int) -> None:
        self._first_s = max(1, first_ms) / 1000
        self._limit_s = max(self._first_s, limit_ms / 1000)
        self.seconds = self._first_s

    def succeeded(self) -> None:
        """A connection is set up."""
        self.seconds = self._first_s

    def timed_out(self) -> None:
        """A connection was not set up in time."""
        self.seconds = min(self.seconds * 2, self._limit_s)
