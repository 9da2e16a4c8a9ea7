"""Limits log lines about refused connections: one line for each address and minute, with the number of those that
were not logged.

Used in a worker's event loop.
"""

import time
from collections import OrderedDict
from collections.abc import Callable

PERIOD_S = 60.0
MOST_ADDRESSES = 1000


class FailureLog:
    """See the module. `admit` is called for each refused connection.

    :param clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: OrderedDict[str, float] = OrderedDict()
        self._unlogged: dict[str, int] = {}

    def admit(self, peer: str, text: str) -> str | None:
        """The text to log about a connection of `peer` (address and port), or None if this address had a line within
        a minute."""
        address = peer.rpartition(":")[0]
        return self._admit(address, address, text)

    def admit_reason(self, peer: str, reason: str) -> str | None:
        """The text to log, or None if this address had a line with this reason within a minute. Only for constant reasons."""
        address = peer.rpartition(":")[0]
        return self._admit(f"{address} {reason}", address, reason)

    def _admit(self, key: str, address: str, text: str) -> str | None:
        now = self._clock()
        since = self._since.get(key)
        if since is not None and now - since < PERIOD_S:
            self._unlogged[key] = self._unlogged.get(key, 0) + 1
            return None
        missing = self._unlogged.pop(key, 0)
        self._since[key] = now
        self._since.move_to_end(key)
        while len(self._since) > MOST_ADDRESSES:
            oldest, _ = self._since.popitem(last=False)
            self._unlogged.pop(oldest, None)
        return text if not missing else f"{text} ({missing} more refused connections of {address} since the last line)"
