"""The deadline of a Fetch response, which moves on as long as bytes of the response arrive, however slow the line is.

With one time limit for a whole response, a batch that needs longer would be requested again for ever. Used in one thread.
"""

import time

from odradek.clients.wire import Connection, which_readable

LEAST_PROGRESS_BYTES = 16 << 10
"""So much of a response must arrive in each timeout: a leader that sends single bytes does not keep its partitions for ever."""


class FetchDeadline:
    """Of the response to a request that was sent just now.

    :param wait_s: how long the leader waits for records. :param timeout_s: for the beginning of a response, and for each
        further part.
    :ivar at: monotonic time of the next look.
    """

    def __init__(self, connection: Connection, wait_s: float, timeout_s: float) -> None:
        self.at = time.monotonic() + wait_s + timeout_s
        self._connection = connection
        self._timeout_s = timeout_s
        self._wanted_bytes = LEAST_PROGRESS_BYTES

    def missed(self) -> bool:
        """Whether the leader counts as unreachable. What has arrived must have been taken with `advance`."""
        now, connection = time.monotonic(), self._connection
        # The caller may have been busy for long: then what arrived in time waits here.
        if now < self.at or connection.buffered or which_readable([connection], 0):
            return False
        if connection.arrived_bytes < self._wanted_bytes:
            return True
        self.extend()
        return False

    def extend(self) -> None:
        """Begin the timeout of the next part now."""
        self.at = time.monotonic() + self._timeout_s
        self._wanted_bytes = self._connection.arrived_bytes + LEAST_PROGRESS_BYTES
