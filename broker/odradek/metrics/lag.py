"""The lag of readers in seconds, from a history of every partition's end that is sampled every few seconds; no disk is read.

Runs in the reporter. The end is the high watermark, as consumers see it. The lag of an offset in seconds is the time since the
end passed it; between two samples the end is assumed to move evenly. If the end passed an offset before the first sample, the
result is a lower bound: the time since the first sample.
"""

from array import array
from bisect import bisect_right

from odradek._ext.shm import overview

MOST_POINTS = 64


class _Ends:
    """The history of one partition: `at_ms` and `offset` of its points, both ascending."""

    __slots__ = ("at_ms", "incarnation", "offset")

    def __init__(self, incarnation: int, at_ms: int, offset: int) -> None:
        self.incarnation = incarnation
        self.at_ms = array("q", (at_ms,))
        self.offset = array("q", (offset,))

    def put(self, at_ms: int, offset: int, same_until_ms: int) -> None:
        """Add a point: the end moved to `offset` at `at_ms`; at `same_until_ms` it was still the previous one."""
        while self.offset and self.offset[-1] > offset:  # a truncation
            self.offset.pop()
            self.at_ms.pop()
        if self.at_ms and self.at_ms[-1] < same_until_ms:
            self._append(same_until_ms, self.offset[-1])
        self._append(at_ms, offset)
        if len(self.at_ms) > MOST_POINTS:
            self._thin()

    def _append(self, at_ms: int, offset: int) -> None:
        self.at_ms.append(at_ms)
        self.offset.append(offset)

    def _thin(self) -> None:
        """Remove every second point of the older half, but never the first: the older the points, the fewer."""
        half = len(self.at_ms) // 2
        self.at_ms = self.at_ms[:half:2] + self.at_ms[half:]
        self.offset = self.offset[:half:2] + self.offset[half:]


class EndHistory:
    """The histories of all partitions; one per reporter, for one thread at a time.

    A partition takes no memory if its end has not moved since the first sample, or if it is still empty.
    """

    def __init__(self) -> None:
        self._incarnations = array("Q")
        self._now = array("q")
        self._of_slot: dict[int, _Ends] = {}
        self._first_ms: int | None = None
        self._last_ms: int | None = None

    def sample(self, now_ms: int) -> None:
        """Sample the ends of all partitions. :param now_ms: monotonic clock, the same as for `passed_ms`."""
        if self._first_ms is None or self._last_ms is None:
            overview.sample_ends(self._incarnations, self._now)
            self._first_ms = self._last_ms = now_ms
            return
        before, ends_before = self._incarnations[:], self._now[:]
        for slot in overview.sample_ends(self._incarnations, self._now):
            incarnation, end = self._incarnations[slot], self._now[slot]
            if end < 0:
                self._of_slot.pop(slot, None)
                continue
            known = self._of_slot.get(slot)
            if known is None and end == 0:
                continue  # still empty: its history begins with the first record
            if known is None or known.incarnation != incarnation:
                if slot < len(before) and before[slot] == incarnation and ends_before[slot] >= 0:
                    known = _Ends(incarnation, self._first_ms, ends_before[slot])
                else:  # it was not in service at the last sample: the partition was created, or its log was opened, since then
                    known = _Ends(incarnation, self._last_ms, 0)
                self._of_slot[slot] = known
            known.put(now_ms, end, self._last_ms)
        self._last_ms = now_ms

    def passed_ms(self, slot: int, incarnation: int, offset: int) -> float | None:
        """Return when the end passed `offset` (the record at `offset` was committed); None if it has not, or if it is unknown.

        If that was before the first sample, the result is the time of the first sample.
        """
        ends = self._of_slot.get(slot)
        if ends is None or ends.incarnation != incarnation:
            if slot >= len(self._now) or self._incarnations[slot] != incarnation or self._first_ms is None:
                return None
            return float(self._first_ms) if offset < self._now[slot] else None
        after = bisect_right(ends.offset, offset)
        if after == len(ends.offset):
            return None
        if after == 0:
            return float(ends.at_ms[0])
        before_ms, before = ends.at_ms[after - 1], ends.offset[after - 1]
        part = (offset + 1 - before) / (ends.offset[after] - before)
        return before_ms + part * (ends.at_ms[after] - before_ms)

    def lag_seconds(self, slot: int, incarnation: int, offset: int, now_ms: int) -> float:
        """Return the seconds since the end passed `offset`; 0 if it has not."""
        passed = self.passed_ms(slot, incarnation, offset)
        return 0.0 if passed is None else max(0.0, (now_ms - passed) / 1000)
