"""Limits log lines about addresses: one line for each address and minute.

Used in a worker's event loop.
"""

from collections import OrderedDict
from collections.abc import Callable

PERIOD_S = 60.0
MOST_ADDRESSES = 1000
"""The address without a line for the longest time is forgotten if there are more, so that the memory is bounded."""


class LineLimit:
    """See the module.

    :param clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: OrderedDict[str, float] = OrderedDict()  # the time of the last line
        self._unlogged: dict[str, int] = {}

    def admit(self, address: str) -> int | None:
        """The number of events of `address` without a line since its last line; None if it had a line within a minute,
        so that this event gets no line."""
        now = self._clock()
        since = self._since.get(address)
        if since is not None and now - since < PERIOD_S:
            self._unlogged[address] = self._unlogged.get(address, 0) + 1
            return None
        self._since[address] = now
        self._since.move_to_end(address)
        while len(self._since) > MOST_ADDRESSES:
            oldest, _ = self._since.popitem(last=False)
            self._unlogged.pop(oldest, None)
        return self._unlogged.pop(address, 0)
