"""Translates offsets of one source partition into offsets of its target partition, without ever skipping a record.

A `Translation` remembers what was moved as *runs*. A run is a sequence of records that lie at consecutive offsets in the source
and in the target; the end marker of a transaction, a record that compaction removed or an aborted record ends it. Between runs
a translation is a lower bound: a group that starts there may read some records again, and misses none. No locks: the owner
protects it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import NamedTuple

MOST_RUNS = 256
"""Runs in memory for each partition (32 bytes each); older runs are thinned out first."""


class Run(NamedTuple):
    """Records that were moved.

    :param upstream: offset of the first record in the source. :param downstream: of the same record in the target.
    :param end: the source offset after the last record. :param records: their number; in the target they are consecutive.
    """

    upstream: int
    downstream: int
    end: int
    records: int

    @property
    def dense(self) -> bool:
        """Whether the records are consecutive in the source too."""
        return self.records == self.end - self.upstream


class Translation:
    """What is known about one partition. Initially nothing. :param most_runs: the limit of runs, at least 4."""

    def __init__(self, most_runs: int = MOST_RUNS) -> None:
        self._most_runs = max(4, most_runs)
        self._upstream = array("q")
        self._downstream = array("q")
        self._end = array("q")
        self._records = array("q")
        # Of the last run if it is dense, else -1. Its columns are behind these until `_settle`, so that `extend` is cheap.
        self._next_upstream = -1
        self._next_downstream = -1

    def extend(self, upstream: int, downstream: int, end: int, records: int) -> bool:
        """Lengthen the last run if this one continues it; return whether it does. For every batch: cheaper than `add`."""
        if upstream == self._next_upstream and downstream == self._next_downstream and records == end - upstream:
            self._next_upstream = end
            self._next_downstream = downstream + records
            return True
        return False

    def _settle(self) -> None:
        """Write the end of the last run into its columns."""
        if self._next_upstream >= 0:
            self._end[-1] = self._next_upstream
            self._records[-1] = self._next_downstream - self._downstream[-1]

    def __len__(self) -> int:
        return len(self._upstream)

    def run(self, index: int) -> Run:
        """A run; they are in ascending order."""
        self._settle()
        return Run(self._upstream[index], self._downstream[index], self._end[index], self._records[index])

    def since(self, upstream: int) -> list[Run]:
        """The runs that have a record at the source offset `upstream` or later."""
        self._settle()
        first = bisect_right(self._upstream, upstream)
        first -= first > 0 and self._end[first - 1] > upstream
        return [self.run(index) for index in range(first, len(self))]

    def add(self, run: Run) -> bool:
        """Add what was moved last; return whether it contradicted what was known, which is then forgotten.

        A run that begins before the end of the known ones, in the source or in the target, means that a topic was created
        again or that positions were reset.
        """
        if self.extend(*run):
            return False
        contradicts = False
        if len(self):
            last = self.run(-1)
            if run.upstream < last.end or run.downstream < last.downstream + last.records:
                self._truncate(0)
                contradicts = True
        for column, value in zip(self._columns, run, strict=True):
            column.append(value)
        self._next_upstream, self._next_downstream = (run.end, run.downstream + run.records) if run.dense else (-1, -1)
        if len(self) > self._most_runs:
            self._thin_out()
        return contradicts

    def prepend(self, earlier: Translation) -> bool:
        """Add what another one knows about the offsets before the first run of this one.

        Return False, and add nothing, if it does not end before that run: then it is about a former topic.
        """
        if not len(earlier):
            return True
        last = earlier.run(-1)
        own = [self.run(index) for index in range(len(self))]
        if own and (last.end > own[0].upstream or last.downstream + last.records > own[0].downstream):
            return False
        self._truncate(0)
        for run in (*(earlier.run(index) for index in range(len(earlier))), *own):
            self.add(run)
        return True

    def translate(self, offset: int) -> int | None:
        """The target offset for a group that has read the source up to `offset`. None if it is before all that is known.

        All records before the returned offset are known to come from before `offset`.
        """
        index = bisect_right(self._upstream, offset) - 1
        if index < 0:
            return 0 if len(self) and self._downstream[0] == 0 else None  # 0: the copy begins with a later record
        run = self.run(index)
        if offset >= run.end:
            return run.downstream + run.records
        if run.dense:
            return run.downstream + offset - run.upstream
        return run.downstream + (offset > run.upstream)  # only the place of the first record is known

    @property
    def end(self) -> int:
        """The source offset after the last run; 0 if there is none."""
        return self.run(-1).end if len(self) else 0

    @property
    def _columns(self) -> tuple[array[int], array[int], array[int], array[int]]:
        return self._upstream, self._downstream, self._end, self._records

    def _truncate(self, size: int) -> None:
        self._next_upstream = self._next_downstream = -1
        for column in self._columns:
            del column[size:]

    def _thin_out(self) -> None:
        """Drop every second run of the older half. What remains is a coarser lower bound."""
        for column in self._columns:
            half = len(column) // 2
            del column[1:half:2]
