"""Log lines about failed logins: one for each address (of IPv6 each /64 network), mechanism and reason in a minute, but at most
`MOST_REASONS` lines for an address; also one for each further user, at most `MOST_USERS`; with the number of failures since the
last one. So neither a client that fails again and again, nor one that tries many users, hides why another client of its address
fails, and no client fills the log.

A worker owns one `LoginFailures` and uses it only in its loop.
"""

import logging
from collections.abc import Callable

from odradek.net.line_limit import PERIOD_S, LineLimit
from odradek.printable import printable
from odradek.security.owners import network_of_peer

log = logging.getLogger("odradek.security")

MOST_REASONS = 5
"""The largest number of lines about one address in a minute in each worker, besides those about further users."""
MOST_USERS = 5
"""The largest number of lines about further users of one address in a minute, for a reason that has a line already."""
LONGEST_USER = 100
"""Characters of a user's name in a line."""


class LoginFailures:
    """See the module. :param clock: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._reasons = [LineLimit(clock) for _ in range(MOST_REASONS)]
        self._users = [LineLimit(clock) for _ in range(MOST_USERS)]
        self._of_reason = LineLimit(clock)
        self._of_user = LineLimit(clock)

    def note(self, peer: str, listener: str, mechanism: str, reason: str, user: str = "", detail: str = "") -> None:
        """A login failed.

        :param peer: address and port of the client. :param user: that it named, not proven; "": unknown.
        :param detail: follows the reason in the line. Which lines are written does not depend on it: else the time until a
            response would show whether the user exists.
        """
        address, network = peer.rpartition(":")[0] or peer, network_of_peer(peer)
        kind = f"{network} {listener} {mechanism} {reason[:200]}"
        missing = self._of_reason.admit(kind)
        new_user = bool(user) and self._of_user.admit(f"{kind} {user[:LONGEST_USER]}") is not None
        limits = self._users if missing is None else self._reasons
        if (missing is None and not new_user) or all(limit.admit(network) is None for limit in limits):
            return
        reason += f" ({detail})" if detail else ""
        more = f"; {missing} logins from this address failed in the same way before" if missing else ""
        log.warning(
            "a login%s from %s on listener %s failed%s: %s%s; further such failures of this address within %d s are only "
            "counted",
            f" as {printable(user, LONGEST_USER)!r}" if user else "",
            address, listener, f" with {mechanism}" if mechanism else "", reason, more, PERIOD_S,
        )  # fmt: skip
