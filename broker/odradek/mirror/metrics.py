"""The metrics of a mirror's process: what its lanes reported, rendered for Prometheus.

Lanes call a `FlowMetrics` (an `Observer`) from their threads; the HTTP server's threads read. Each partition belongs
to one lane, so its counters have one writer, and additions to the dictionary of partitions are atomic in CPython; the
failures have a lock.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from odradek.metrics.exposition import Family, Labels, Sample
from odradek.metrics.names.mirror import MIRROR_METRICS
from odradek.mirror.bookkeeping import BookkeepingCounts
from odradek.mirror.routes import Moved, Route
from odradek.topic_partition import TopicPartition

_PREFIX = "odradek_mirror_"


@dataclass
class PartitionCounts:
    """What is known of one partition of the target. Times are Unix times in seconds; 0: never.

    :param position: the next offset of the source, or -1. :param behind_since: 0 while nothing waits in the source.
    """

    records: int = 0
    size_bytes: int = 0
    position: int = -1
    high_watermark: int = -1
    newest_timestamp_ms: int = -1
    behind_since: float = 0.0
    caught_up: bool = False
    stopped: str = ""

    @property
    def lag(self) -> int | None:
        """The lag in records; None before the first Fetch response."""
        return None if self.position < 0 else max(0, self.high_watermark - self.position)

    def lag_seconds(self, now: float) -> float | None:
        """How old the newest mirrored record is while newer ones wait; 0 if none waits; None if it is not known.

        A partition that once had no lag cannot be further behind than the time since then: the newest record may be
        old because nobody produced.
        """
        if self.position < 0:
            return None
        if not self.lag:
            return 0.0
        since_equal = now - self.behind_since if self.caught_up and self.behind_since else None
        if self.newest_timestamp_ms < 0:
            return since_equal
        age = max(0.0, now - self.newest_timestamp_ms / 1000)
        return age if since_equal is None else min(age, since_equal)


@dataclass
class FlowMetrics:
    """The counters of one flow in this process; an `Observer` of its lanes.

    :param clock: the Unix time in seconds. :param commits: returns the commits of the flow's lanes.
    """

    source: str
    target: str
    clock: Callable[[], float] = time.time
    partitions: dict[TopicPartition, PartitionCounts] = field(default_factory=dict)
    failures: int = 0
    last_failure: str = ""
    last_commit: float = 0.0
    lanes: int = 0
    rebalances: int = 0
    topics: int = 0
    refused_topics: int = 0
    last_refresh: float = 0.0
    refresh_failures: int = 0
    commits: Callable[[], int] = int
    bookkeeping: Callable[[], BookkeepingCounts] = BookkeepingCounts
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def _of(self, route: Route) -> PartitionCounts:
        counts = self.partitions.get(route.target)
        return counts if counts is not None else self.partitions.setdefault(route.target, PartitionCounts())

    def moved(self, batch: Moved) -> None:
        """Count a batch; see `Observer`."""
        counts = self._of(batch.route)
        counts.records += batch.records
        counts.size_bytes += batch.size_bytes
        counts.newest_timestamp_ms = max(counts.newest_timestamp_ms, batch.max_timestamp)
        self.last_commit = self.clock()

    def progress(self, route: Route, position: int, high_watermark: int, log_start: int) -> None:
        """Note the position in the source; see `Observer`."""
        counts = self._of(route)
        counts.position, counts.high_watermark = position, high_watermark
        if position >= high_watermark:
            counts.caught_up, counts.behind_since = True, 0.0
        elif not counts.behind_since:
            counts.behind_since = self.clock()

    def stopped(self, route: Route, reason: str) -> None:
        """Note that a partition is not mirrored; see `Observer`."""
        self._of(route).stopped = reason

    def resumed(self, route: Route) -> None:
        """Note that a partition is mirrored again; see `Observer`."""
        self._of(route).stopped = ""

    def failed(self, lane: int, reason: str, retry_s: float) -> None:
        """Count a failure of a lane; see `Observer`."""
        with self._lock:  # several lanes
            self.failures += 1
            self.last_failure = reason

    def keep(self, places: Sequence[TopicPartition]) -> None:
        """Forget the gauges of all other partitions: another worker has them now. Their counters stay."""
        kept = set(places)
        for place, counts in list(self.partitions.items()):
            if place not in kept:
                counts.position = counts.high_watermark = -1
                counts.behind_since, counts.caught_up, counts.stopped = 0.0, False, ""

    @property
    def stopped_partitions(self) -> dict[TopicPartition, str]:
        """The reason of each stopped partition."""
        return {place: counts.stopped for place, counts in list(self.partitions.items()) if counts.stopped}


class MirrorMetrics:
    """All metrics of the process. :param version: of the program. :param worker: the name of the worker."""

    def __init__(self, version: str, worker: str, clock: Callable[[], float] = time.time) -> None:
        self._version = version
        self._worker = worker
        self._clock = clock
        self._started = clock()
        self._flows: list[FlowMetrics] = []

    def flow(self, source: str, target: str) -> FlowMetrics:
        """The metrics of a new flow."""
        metrics = FlowMetrics(source, target, self._clock)
        self._flows.append(metrics)
        return metrics

    def families(self) -> Iterator[Family]:
        """All metrics with their samples, in the order of the table."""
        values = self._samples()
        for metric in MIRROR_METRICS.values():
            yield Family(metric, values.get(metric.name, []))

    def _samples(self) -> dict[str, list[Sample]]:
        found: dict[str, list[Sample]] = {name: [] for name in MIRROR_METRICS}
        found[f"{_PREFIX}info"].append(("", Labels(version=self._version, worker=self._worker), 1))
        times = os.times()
        found[f"{_PREFIX}cpu_seconds_total"].append(("", Labels(), times.user + times.system))
        found[f"{_PREFIX}resident_memory_bytes"].append(("", Labels(), _resident_bytes()))
        found[f"{_PREFIX}start_time_seconds"].append(("", Labels(), self._started))
        for flow in self._flows:
            self._add_flow(found, flow)
            for place, counts in sorted(flow.partitions.items()):
                self._add_partition(found, flow, place, counts)
        return found

    def _add_flow(self, found: dict[str, list[Sample]], flow: FlowMetrics) -> None:
        labels = Labels(source=flow.source, target=flow.target)
        bookkeeping = flow.bookkeeping()
        for name, value in (
            ("lanes", flow.lanes),
            ("rebalances_total", flow.rebalances),
            ("topics", flow.topics),
            ("refused_topics", flow.refused_topics),
            ("commits_total", flow.commits()),
            ("failures_total", flow.failures),
            ("refresh_failures_total", flow.refresh_failures),
            ("offset_syncs_total", bookkeeping.offset_syncs),
            ("checkpoints_total", bookkeeping.checkpoints),
            ("group_offsets_total", bookkeeping.group_offsets),
            ("bookkeeping_failures_total", bookkeeping.failures),
            ("failing_jobs", bookkeeping.failing),
        ):
            found[f"{_PREFIX}{name}"].append(("", labels, value))
        if flow.last_refresh:
            found[f"{_PREFIX}last_refresh_timestamp_seconds"].append(("", labels, flow.last_refresh))
        if flow.last_commit:
            found[f"{_PREFIX}last_commit_timestamp_seconds"].append(("", labels, flow.last_commit))

    def _add_partition(
        self, found: dict[str, list[Sample]], flow: FlowMetrics, place: TopicPartition, counts: PartitionCounts
    ) -> None:
        named = {"source": flow.source, "target": flow.target, "topic": place[0], "partition": str(place[1])}
        labels = Labels(**named)
        found[f"{_PREFIX}records_total"].append(("", labels, counts.records))
        found[f"{_PREFIX}bytes_total"].append(("", labels, counts.size_bytes))
        if counts.lag is not None:
            found[f"{_PREFIX}lag_records"].append(("", labels, counts.lag))
        seconds = counts.lag_seconds(self._clock())
        if seconds is not None:
            found[f"{_PREFIX}lag_seconds"].append(("", labels, seconds))
        if counts.stopped:
            found[f"{_PREFIX}partition_stopped"].append(("", Labels(**named, reason=counts.stopped), 1))


def _resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
