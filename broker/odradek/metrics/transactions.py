"""The metrics of transactions: the report of the coordinator, the open transactions in the slots, and the families.

The counters are words of the meter pages (`odradek._ext.shm.metering`), so that no count is lost when a process dies. The
present state of the coordinator is a `TransactionReport`, which it sends to the reporter together with the groups. Both
processes are of the same build, so the format has no version.
"""

import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek._ext.shm import overview
from odradek.metrics.exposition import NO_LABELS, Family, Labels, Sample
from odradek.metrics.names import METRICS
from odradek.metrics.partitions import OTHER_PARTITIONS, PartitionLabels, Rows, serves
from odradek.metrics.processes import single

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
"""Kafka's names of the states of a transactional id, in the order of their numbers in `__transaction_state`."""
LATE_AFTER_MS = 300_000
"""A transaction is late if it is open for `transaction.max.timeout.ms` and this time in addition, as in Kafka."""
UNKNOWN = -1

_REPORT = struct.Struct(f">{len(STATES)}I4I3q")
_OUTCOMES = {"committed": "transactions_committed", "aborted": "transactions_aborted"}
_REASONS = {"timeout": "transactions_timed_out", "fenced": "transactions_fenced"}
_COUNTERS = {
    "odradek_transaction_markers_total": "transaction_markers",
    "odradek_transaction_marker_failures_total": "transaction_marker_failures",
    "odradek_transactional_ids_expired_total": "transactional_ids_expired",
    "kafka_server_addpartitionstotxnmanager_verificationfailurerate_count": "verification_failures",
}


class MalformedReport(ValueError):
    """Bytes that are not a `TransactionReport`."""


@dataclass
class TransactionReport:
    """The state of a transaction coordinator at the time of the report.

    :ivar ids_by_state: the number of its transactional ids in each state; states without an id may be left out.
    :ivar completing: transactions whose outcome is durable and that are not complete: markers, or the last record, are missing.
    :ivar oldest_completing_ms: the time since the outcome of the oldest of these was durable; 0 if there is none, UNKNOWN if it
        is not known.
    :ivar unknown_destinations: markers that wait because the leader of their partition is not known.
    :ivar append_retries: transactions whose last record must be appended again.
    :ivar loading: partitions of `__transaction_state` that are being loaded.
    :ivar load_max_ms, load_avg_ms: how long it took to load a partition, of the loads of the last 30 s; UNKNOWN without one.
    """

    ids_by_state: Mapping[str, int] = field(default_factory=dict)
    completing: int = 0
    oldest_completing_ms: int = 0
    unknown_destinations: int = 0
    append_retries: int = 0
    loading: int = 0
    load_max_ms: int = UNKNOWN
    load_avg_ms: int = UNKNOWN


def encode_transactions(report: TransactionReport) -> bytes:
    """Return the report as bytes. Raises struct.error for a number that is out of range."""
    return _REPORT.pack(
        *(report.ids_by_state.get(state, 0) for state in STATES),
        report.completing,
        report.unknown_destinations,
        report.append_retries,
        report.loading,
        report.oldest_completing_ms,
        report.load_max_ms,
        report.load_avg_ms,
    )


def decode_transactions(payload: bytes) -> TransactionReport:
    """Return the report that was encoded. Raises MalformedReport."""
    if len(payload) != _REPORT.size:
        raise MalformedReport(f"a report of transactions has {_REPORT.size} bytes, not {len(payload)}")
    values = _REPORT.unpack(payload)
    completing, unknown_destinations, append_retries, loading, oldest, longest, mean = values[len(STATES) :]
    return TransactionReport(
        ids_by_state=dict(zip(STATES, values, strict=False)),
        completing=completing,
        oldest_completing_ms=oldest,
        unknown_destinations=unknown_destinations,
        append_retries=append_retries,
        loading=loading,
        load_max_ms=longest,
        load_avg_ms=mean,
    )


class OpenTransaction(NamedTuple):
    """The oldest open transaction of a partition.

    :param first_offset: its first offset. :param since_ms: when the reporter first saw it open, by its monotonic clock.
    """

    incarnation: int
    first_offset: int
    since_ms: int


class OpenTransactions:
    """The time since which the oldest transaction of each partition has been open. Sampled every few seconds, without a lock.

    Ages are lower bounds: they are measured from the first sample in which the transaction was open.
    """

    def __init__(self) -> None:
        self._of_slot: dict[int, OpenTransaction] = {}

    def sample(self, now_ms: int) -> None:
        """Look at all slots. :param now_ms: monotonic clock."""
        self.update(overview.unstable(), now_ms)

    def update(self, rows: Iterable[tuple[int, int, int]], now_ms: int) -> None:
        """:param rows: (slot, incarnation, first offset) of all partitions with an open transaction."""
        before, self._of_slot = self._of_slot, {}
        for slot, incarnation, first_offset in rows:
            known = before.get(slot)
            if known is None or known[:2] != (incarnation, first_offset):
                known = OpenTransaction(incarnation, first_offset, now_ms)
            self._of_slot[slot] = known

    def __len__(self) -> int:
        """The number of partitions with an open transaction."""
        return len(self._of_slot)

    def oldest_ms(self, now_ms: int) -> int:
        """The age of the oldest open transaction; 0 without one."""
        return max((now_ms - known.since_ms for known in self._of_slot.values()), default=0)

    def late(self, now_ms: int, max_timeout_ms: int) -> int:
        """The number of partitions with a late transaction. :param max_timeout_ms: `transaction.max.timeout.ms`."""
        limit = max_timeout_ms + LATE_AFTER_MS
        return sum(now_ms - known.since_ms > limit for known in self._of_slot.values())


def slot_families(
    rows: Rows,
    named: Collection[str],
    labels: PartitionLabels,
    open_ones: OpenTransactions,
    now_ms: int,
    max_timeout_ms: int,
) -> Iterator[Family]:
    """Yield the families about open transactions in the partitions that this broker leads.

    :param named: topics that have series. :param max_timeout_ms: `transaction.max.timeout.ms`.
    """
    led = [(topic, row) for topic, partitions in rows.items() for row in partitions if row.leads and serves(row)]
    lags: list[Sample] = [("", labels(topic, row.partition), _lag(row)) for topic, row in led if topic in named]
    rest = [_lag(row) for topic, row in led if topic not in named]
    if rest:
        lags.append(("", OTHER_PARTITIONS, max(rest)))
    yield Family(METRICS["kafka_cluster_partition_laststableoffsetlag"], lags)
    yield single("odradek_partitions_with_open_transactions", len(open_ones))
    yield single("odradek_oldest_open_transaction_seconds", open_ones.oldest_ms(now_ms) / 1000)
    late = open_ones.late(now_ms, max_timeout_ms)
    yield single("kafka_server_replicamanager_partitionswithlatetransactionscount", late)


def _lag(row: overview.Partition) -> int:
    """The two offsets are not read at the same moment."""
    return int(max(0, row.high_watermark - row.last_stable_offset))


def count_families(words: Sequence[Mapping[str, int]]) -> Iterator[Family]:
    """Yield the families that are counted in the meter pages. :param words: the words of all pages."""

    def total(word: str) -> int:
        return sum(page[word] for page in words)

    ends: list[Sample] = [("", Labels(outcome=outcome), total(word)) for outcome, word in _OUTCOMES.items()]
    yield Family(METRICS["odradek_transactions_completed_total"], ends)
    aborts: list[Sample] = [("", Labels(reason=reason), total(word)) for reason, word in _REASONS.items()]
    yield Family(METRICS["odradek_transactions_aborted_by_coordinator_total"], aborts)
    for name, word in _COUNTERS.items():
        yield single(name, total(word))
    completed = sum(total(word) for word in _OUTCOMES.values())
    yield _times("odradek_transaction_completion_seconds", total("transaction_completion_us") / 1e6, completed)
    asked = total("verifications")
    yield _times("kafka_server_addpartitionstotxnmanager_verificationtimems", total("verification_us") / 1000, asked)


def _times(name: str, spent: float, number: int) -> Family:
    return Family(METRICS[name], [("_sum", NO_LABELS, spent), ("_count", NO_LABELS, number)])


def report_families(report: TransactionReport) -> Iterator[Family]:
    """Yield the families of the report of this broker's coordinator."""
    ids: list[Sample] = [("", Labels(state=state), report.ids_by_state.get(state, 0)) for state in STATES]
    yield Family(METRICS["odradek_transactional_ids"], ids)
    yield single("odradek_transactions_completing", report.completing)
    if report.oldest_completing_ms != UNKNOWN:
        yield single("odradek_oldest_completing_transaction_seconds", report.oldest_completing_ms / 1000)
    prefix = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"
    yield single(prefix + "unknowndestinationqueuesize", report.unknown_destinations)
    yield single(prefix + "logappendretryqueuesize", report.append_retries)
    yield single("odradek_transaction_partitions_loading", report.loading)
    prefix = "kafka_server_transaction_coordinator_metrics_partition_load_time_"
    for name, value in (("max", report.load_max_ms), ("avg", report.load_avg_ms)):
        if value != UNKNOWN:
            yield single(prefix + name, value)
