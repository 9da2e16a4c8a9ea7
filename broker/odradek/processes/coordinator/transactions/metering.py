"""Measurements of the transaction coordinator, in its process. `TransactionMeter` adds its counts to the meter page of the
process, so that they are kept when the process dies; `LoadTimes` keeps the durations of the last loads."""

from collections import deque

from odradek._ext.shm.metering import count
from odradek.metrics.transactions import TransactionReport
from odradek.transactions.coordinator import TransactionCoordinator
from odradek.transactions.environment import Counts

WORDS = {
    "committed": ("transactions_committed", 1),
    "aborted": ("transactions_aborted", 1),
    "completion_ms": ("transaction_completion_us", 1000),
    "timed_out": ("transactions_timed_out", 1),
    "fenced": ("transactions_fenced", 1),
    "markers": ("transaction_markers", 1),
    "marker_failures": ("transaction_marker_failures", 1),
    "expired": ("transactional_ids_expired", 1),
}
"""For each attribute of `Counts`: the word of the meter page, and the factor from the attribute's unit to the word's unit."""


LOAD_WINDOW_MS = 30_000


class TransactionMeter:
    """Used in the coordinator's loop, whose beat calls `tick`. :param counts: those of this process's coordinator."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._counted = dict.fromkeys(WORDS, 0)

    def tick(self) -> None:
        """Add the increments since the last call to the meter page."""
        for name, (word, units) in WORDS.items():
            value = getattr(self._counts, name)
            if value != self._counted[name]:
                count(word, units * (value - self._counted[name]))
                self._counted[name] = value


class LoadTimes:
    """How long it took to load the partitions of `__transaction_state` that were loaded in the last `LOAD_WINDOW_MS`."""

    def __init__(self) -> None:
        self._loads: deque[tuple[int, int]] = deque()

    def add(self, now_ms: int, took_ms: int) -> None:
        """A partition was loaded. :param now_ms: monotonic clock."""
        self._loads.append((now_ms, took_ms))
        self._forget(now_ms)

    def recent(self, now_ms: int) -> tuple[int, int]:
        """(longest, mean) in ms; (-1, -1) if no partition was loaded."""
        self._forget(now_ms)
        if not self._loads:
            return -1, -1
        took = [load[1] for load in self._loads]
        return max(took), sum(took) // len(took)

    def _forget(self, now_ms: int) -> None:
        while self._loads and self._loads[0][0] < now_ms - LOAD_WINDOW_MS:
            self._loads.popleft()


def report_of(coordinator: TransactionCoordinator, loading: int, load_times: tuple[int, int]) -> TransactionReport:
    """The state of a coordinator now, for the reporter.

    :param loading: the number of partitions that are being loaded. :param load_times: see `LoadTimes.recent`.
    """
    return TransactionReport(
        ids_by_state=coordinator.ids_by_state(),
        completing=coordinator.completing,
        oldest_completing_ms=coordinator.completions.oldest_ms(),
        unknown_destinations=coordinator.completions.markers_to_retry(),
        append_retries=coordinator.completions.appends_to_retry(),
        loading=loading,
        load_max_ms=load_times[0],
        load_avg_ms=load_times[1],
    )
