"""Log lines about failed logins: one for each address and minute, with the number of failures since the last one.

A worker owns one `LoginFailures` and uses it only in its loop.
"""

import logging
from collections.abc import Callable

from odradek.net.line_limit import PERIOD_S, LineLimit

log = logging.getLogger("odradek.security")


class LoginFailures:
    """See the module. :param clock: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._limit = LineLimit(clock)

    def note(self, peer: str, listener: str, mechanism: str, reason: str) -> None:
        """A login failed. :param peer: address and port of the client."""
        address = peer.rpartition(":")[0] or peer
        missing = self._limit.admit(address)
        if missing is None:
            return
        more = f"; {missing} other logins from this address failed before" if missing else ""
        log.warning(
            "a login from %s on listener %s failed%s: %s%s; further failures from this address within %d s are only counted",
            address, listener, f" with {mechanism}" if mechanism else "", reason, more, PERIOD_S,
        )  # fmt: skip
