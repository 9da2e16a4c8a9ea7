"""Log lines about failed logins: one for each address (of IPv6 each /64 network), mechanism and reason in a minute, but at most
`MOST_REASONS` lines for an address, with the number of failures since the last one. So a client that fails again and again
does not hide why another client of its address fails, and no client fills the log.

A worker owns one `LoginFailures` and uses it only in its loop.
"""

import logging
from collections.abc import Callable

from odradek.net.line_limit import PERIOD_S, LineLimit
from odradek.security.owners import network_of_peer

log = logging.getLogger("odradek.security")

MOST_REASONS = 5
"""The largest number of lines about one address in a minute in each worker."""


class LoginFailures:
    """See the module. :param clock: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._limits = [LineLimit(clock) for _ in range(MOST_REASONS)]
        self._of_reason = LineLimit(clock)

    def note(self, peer: str, listener: str, mechanism: str, reason: str) -> None:
        """A login failed. :param peer: address and port of the client."""
        address, network = peer.rpartition(":")[0] or peer, network_of_peer(peer)
        missing = self._of_reason.admit(f"{network} {listener} {mechanism} {reason[:200]}")
        if missing is None or all(limit.admit(network) is None for limit in self._limits):
            return
        more = f"; {missing} logins from this address failed in the same way before" if missing else ""
        log.warning(
            "a login from %s on listener %s failed%s: %s%s; further such failures of this address within %d s are only counted",
            address, listener, f" with {mechanism}" if mechanism else "", reason, more, PERIOD_S,
        )  # fmt: skip
