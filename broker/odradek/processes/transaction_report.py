"""What the coordinator process tells others about its transactions: a report for the reporter, and counters in its meter page.

Used in the coordinator's event loop.
"""

from dataclasses import fields

from odradek._ext.shm.metering import count
from odradek.metrics.transactions import TransactionReport
from odradek.transactions.coordinator import TransactionCoordinator
from odradek.transactions.environment import Counts

US_PER_MS = 1000
PROBE_OF = {
    "committed": "transactions_committed",
    "aborted": "transactions_aborted",
    "completion_ms": "transaction_completion_us",
    "timed_out": "transactions_timed_out",
    "fenced": "transactions_fenced",
    "markers": "transaction_markers",
    "marker_failures": "transaction_marker_failures",
    "expired": "transactional_ids_expired",
}
"""The name of the counter in the meter page for each attribute of `Counts`."""


class CountedTransactions:
    """Adds what a coordinator has done to the counters of this process."""

    def __init__(self) -> None:
        self._counted = Counts()

    def take(self, counts: Counts) -> None:
        """Count what was done since the last call. :param counts: of the same coordinator in each call."""
        for field in fields(Counts):
            done = getattr(counts, field.name) - getattr(self._counted, field.name)
            if done:
                count(PROBE_OF[field.name], done * US_PER_MS if field.name == "completion_ms" else done)
                setattr(self._counted, field.name, getattr(counts, field.name))


def report_of(coordinator: TransactionCoordinator, loading: int) -> TransactionReport:
    """The state of a coordinator now. :param loading: the number of partitions that are being loaded."""
    return TransactionReport(
        ids_by_state=coordinator.ids_by_state(),
        completing=coordinator.completing,
        loading=loading,
    )
