"""Log lines about failed logins: one for each address and minute, with the number of failures since the last one.

A worker owns one `LoginFailures` and uses it only in its loop.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable

log = logging.getLogger("odradek.security")

PERIOD_S = 60.0
MOST_ADDRESSES = 1000


class LoginFailures:
    """See the module. :param clock: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._addresses: OrderedDict[str, list[float]] = OrderedDict()  # time of the last line, failures since

    def note(self, peer: str, listener: str, mechanism: str, reason: str) -> None:
        """A login failed. :param peer: address and port of the client."""
        address = peer.rpartition(":")[0] or peer
        now = self._clock()
        known = self._addresses.setdefault(address, [now - PERIOD_S, 0])
        if len(self._addresses) > MOST_ADDRESSES:
            self._addresses.popitem(last=False)
        if now - known[0] < PERIOD_S:
            known[1] += 1
            return
        more = f"; {int(known[1])} other logins from this address failed before" if known[1] else ""
        known[:] = now, 0
        self._addresses.move_to_end(address)
        log.warning(
            "a login from %s on listener %s failed%s: %s%s; further failures from this address within %d s are only counted",
            address, listener, f" with {mechanism}" if mechanism else "", reason, more, PERIOD_S,
        )  # fmt: skip
