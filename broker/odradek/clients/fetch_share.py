"""How many bytes the next Fetch response of a leader may have, so that it arrives in time also over a slow line.

The time limit of a response does not depend on its size. After a response that did not arrive in time, the same request would
fail again. Used in one thread.
"""

LEAST_BYTES = 64 << 10
QUICK_PART = 4
"""A response that arrived within this part of its time may be twice as large the next time, without being late."""


class FetchShares:
    """The limits of the leaders that were late, by node id; the others have none. :param timeout_s: for a response."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._limits: dict[int, int] = {}

    def of(self, node_id: int, most: int) -> int:
        """The bytes of the next response. :param most: the bytes without a limit."""
        return min(most, self._limits.get(node_id, most))

    def lost(self, node_id: int, after_s: float, asked: int) -> None:
        """A response did not arrive as a whole. :param after_s: since the leader had to answer. :param asked: its bytes.

        If it was lost early, the connection was lost, and not the time too short.
        """
        if after_s > self._timeout_s / 2:
            self._limits[node_id] = max(min(LEAST_BYTES, asked), asked // 2)

    def arrived(self, node_id: int, took_s: float, most: int) -> None:
        """A response arrived. :param took_s: since the leader had to answer. :param most: as in `of`."""
        limit = self._limits.get(node_id)
        if limit is None or took_s > self._timeout_s / QUICK_PART:
            return
        if 2 * limit >= most:
            del self._limits[node_id]
        else:
            self._limits[node_id] = 2 * limit
