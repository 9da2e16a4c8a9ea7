"""Limits log lines about refused connections: one line for each address (of IPv6 each /64 network) and minute, with the
number of those that were not logged.

Used in a worker's event loop.
"""

import time
from collections.abc import Callable

from odradek.net.line_limit import LineLimit
from odradek.security.owners import network_of_peer


class FailureLog:
    """See the module. `admit` is called for each refused connection.

    :param clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = LineLimit(clock)

    def admit(self, peer: str, text: str) -> str | None:
        """The text to log about a connection of `peer` (address and port), or None if this address had a line within
        a minute."""
        address = network_of_peer(peer)
        return self._admit(address, address, text)

    def admit_reason(self, peer: str, reason: str) -> str | None:
        """The text to log, or None if this address had a line with this reason within a minute. `reason` must be one of a few
        constant texts: each takes one of the places for addresses."""
        address = network_of_peer(peer)
        return self._admit(f"{address} {reason}", address, reason)

    def _admit(self, key: str, address: str, text: str) -> str | None:
        missing = self._limit.admit(key)
        if missing is None:
            return None
        return text if not missing else f"{text} ({missing} more refused connections of {address} since the last line)"
