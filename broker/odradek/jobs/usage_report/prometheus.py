"""A PySpark data source that reads a Prometheus: the increase of each counter per hour, corrected for resets, and gauges.

One Spark task for each metric and each day, or less if the step is small (`partitions`). A task also requests the hour
before its time, for the initial values of counters, and `odradek_boot_time_seconds`, the time at which they began at zero.
A counter's sample v after sample u counts v - u, but v if the broker was restarted meanwhile, or if the series was absent
while its broker was scraped (it began at zero then: docs/reference/metrics.md), or if v < u. A sample without an earlier one
counts nothing, and is reported as a gap.

The step from one sample to the next belongs to the hour in which it ends; a step that ends on the hour belongs to the hour
before.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from odradek.jobs.usage_report import counts
from odradek.jobs.usage_report.prometheus_http import MOST_POINTS, Labels, Prometheus, Query, Samples
from odradek.jobs.usage_report.times import DAY_MS, HOUR_MS

NAME = "odradek_prometheus"
BOOT = Query("odradek_boot_time_seconds", shard="instance")
#: The instances that were scraped in the last 30 days.
_EARLIER = Query(BOOT.metric, "max by (job, instance) (last_over_time({}[30d]))")
BROKERS = Query("kafka_broker_info")
OWN_IDS = Query("odradek_broker_info")
LOOK_BACK_MS = HOUR_MS


class Metric(NamedTuple):
    """A metric and the column that it fills.

    :ivar kind: the table
    :ivar column: the column of the table
    :ivar scale: factor from the unit of the metric to that of the column
    """

    kind: str
    column: str
    query: Query
    counter: bool
    scale: int = 1


def _usage(count: counts.Count) -> Metric:
    return Metric(
        "traffic", count.column, Query(f"odradek_usage_{count.metric}_total", shard=count.shard), True, count.scale
    )


def _gauge(kind: str, column: str, metric: str, how: str, labels: str, scale: int = 1) -> Metric:
    return Metric(
        kind, column, Query(metric, f"{how} by ({labels}) ({{}})", labels.split(",")[-1].strip()), False, scale
    )


def _offsets(column: str, metric: str) -> Metric:
    """A sum of offsets over partitions, each of which counts once, although all its replicas are scraped.

    It is not known while the only replicas of a partition are of brokers that were not scraped.
    """
    each = "max by (topic, partition) ({})"
    known = f"count by (topic) ({each}) == on (topic) max by (topic) ({{other}})"
    whole = f"sum by (topic) ({each}) and on (topic) ({known})"
    return Metric("topic", column, Query(metric, whole, "topic", "kafka_topic_partitions"), False)


def _worker(column: str, name: str, scale: int = 1) -> Metric:
    return Metric("worker", column, Query(f"odradek_{name}_total", shard="worker"), True, scale)


METRICS = (
    *map(_usage, counts.TABLE),
    _gauge("topic", "partitions", "kafka_topic_partitions", "max", "topic"),
    Metric("topic", "replicas", Query("kafka_log_log_size", "count by (topic) ({})", "topic"), False),
    _gauge("topic_of_broker", "stored_bytes", "odradek_topic_stored_bytes", "sum", "job, instance, topic"),
    _gauge("topic", "largest_partition_bytes", "kafka_log_log_size", "max", "topic"),
    _offsets("end_offsets", "kafka_topic_partition_current_offset"),
    _offsets("start_offsets", "kafka_topic_partition_oldest_offset"),
    _gauge("topic", "retention_ms", "odradek_topic_retention_seconds", "max", "topic", 1000),
    _gauge("topic", "retention_bytes", "odradek_topic_retention_bytes", "max", "topic"),
    _gauge("log_dir", "free_bytes", "odradek_log_dir_free_bytes", "min", "job, instance, log_dir"),
    _gauge("log_dir", "total_bytes", "odradek_log_dir_total_bytes", "max", "job, instance, log_dir"),
    _gauge("group", "lag", "kafka_consumergroup_lag_sum", "sum", "consumergroup, topic"),
    _gauge("group", "lag_seconds", "odradek_consumergroup_lag_seconds", "max", "consumergroup, topic"),
    _gauge("reader", "lag", "odradek_reader_lag", "sum", "principal, client_id, topic"),
    _gauge("reader", "lag_seconds", "odradek_reader_lag_seconds", "max", "principal, client_id, topic"),
    _gauge(
        "reader", "back_ms", "odradek_reader_last_back_timestamp_seconds", "max", "principal, client_id, topic", 1000
    ),
    _gauge("worker", "connections", "odradek_worker_connections", "sum", "job, instance, worker"),
    _worker("busy_us", "worker_busy_seconds", 1_000_000),
    _worker("bytes_in", "socket_bytes_in"),
    _worker("bytes_out", "socket_bytes_out"),
    Metric("span", "", BOOT, False),
)

_LABELS = {
    "job": "job", "instance": "instance", "principal": "principal", "client": "client_id", "topic": "topic", "api": "api",
    "name": "consumergroup", "path": "log_dir", "worker": "worker",
}  # fmt: skip

FACTS = pa.schema(
    [("kind", pa.string()), ("column", pa.string()), ("hour", pa.int64())]
    + [(name, pa.string()) for name in _LABELS]
    # of counters: their increase, the time of the increase; the number of samples with unknown increase
    + [("gained", pa.int64()), ("elapsed_ms", pa.int64()), ("unknown", pa.int64())]
    # of gauges
    + [
        ("max", pa.float64()),
        ("min", pa.float64()),
        ("last", pa.float64()),
        ("sum", pa.float64()),
        ("count", pa.int64()),
    ]
    # of kind "span": a time in which one instance was scraped without a break, within one boot
    + [("from_ms", pa.int64()), ("end_ms", pa.int64()), ("boot", pa.float64())]
)
_BATCH = 20_000


class Chunk(InputPartition):
    """The work of a task: a metric (index in `METRICS`) and a time: the steps that end in (from, to]."""

    def __init__(self, metric: int, from_ms: int, to_ms: int) -> None:
        self.metric, self.from_ms, self.to_ms = metric, from_ms, to_ms


class PrometheusSource(DataSource):
    """``spark.read.format("odradek_prometheus")``; options ``url``, ``from_ms``, ``to_ms`` (whole hours), ``step_s``,
    ``match``, ``timeout_s``."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return NAME

    def schema(self) -> StructType:
        """Return the schema of `FACTS`."""
        return from_arrow_schema(FACTS)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader; called by Spark."""
        return PrometheusReader(dict(self.options))


class PrometheusReader(DataSourceReader):
    """Plans and reads chunks."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._url, self._match = options["url"], options.get("match", "")
        self._from_ms, self._to_ms = int(options["from_ms"]), int(options["to_ms"])
        self._step_s = int(options.get("step_s", "60"))
        self._timeout_s = float(options.get("timeout_s", "120"))

    def partitions(self) -> list[InputPartition]:
        """Return the chunks by time and metric."""
        return [
            Chunk(number, start, end)
            for start, end in chunks(self._from_ms, self._to_ms, self._step_s * 1000)
            for number in range(len(METRICS))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield `FACTS` of the chunk."""
        assert isinstance(partition, Chunk)
        source = Prometheus(self._url, self._match, self._step_s, self._timeout_s)
        metric = METRICS[partition.metric]
        if metric.kind == "span":
            rows = spans(source, partition.from_ms, partition.to_ms)
        elif metric.counter:
            rows = gains(source, metric, partition.from_ms, partition.to_ms)
        else:
            rows = levels(source, metric, partition.from_ms, partition.to_ms)
        batch: list[dict[str, Any]] = []
        for row in rows:
            batch.append(row)
            if len(batch) == _BATCH:
                yield pa.RecordBatch.from_pylist(batch, FACTS)
                batch = []
        if batch:
            yield pa.RecordBatch.from_pylist(batch, FACTS)


def chunks(from_ms: int, to_ms: int, step_ms: int) -> list[tuple[int, int]]:
    """Return times of whole hours, at most a day, and at most as long as Prometheus' limit of points permits; at
    least one hour.
    """
    hours = (MOST_POINTS * step_ms - LOOK_BACK_MS) // HOUR_MS
    each = max(HOUR_MS, min(DAY_MS, hours * HOUR_MS))
    return [(start, min(start + each, to_ms)) for start in range(from_ms, to_ms, each)]


def _hour(at_ms: int) -> int:
    return (at_ms - 1) // HOUR_MS * HOUR_MS


def _grid(source: Prometheus, at_ms: int) -> int:
    """Return the last multiple of the step that is not after `at_ms`."""
    return at_ms // source.step_ms * source.step_ms


def _named(labels: Labels) -> dict[str, str | None]:
    """Return {column: value} of the labels that are present."""
    named: dict[str, str | None] = {ours: labels[theirs] for ours, theirs in _LABELS.items() if theirs in labels}
    return named


def _instance(labels: Labels) -> tuple[str, str]:
    return labels.get("job", ""), labels.get("instance", "")


def boots(source: Prometheus, from_ms: int, to_ms: int) -> dict[tuple[str, str], dict[int, float]]:
    """Return {(job, instance): {time of a sample: start time of its broker}}."""
    times: dict[tuple[str, str], dict[int, float]] = {}
    for labels, samples in source.samples(BOOT, _grid(source, from_ms - LOOK_BACK_MS), _grid(source, to_ms)):
        times.setdefault(_instance(labels), {}).update(samples)
    return times


def older_instances(source: Prometheus, from_ms: int) -> set[str]:
    """Return the instances, as in the facts of kind "span", that were scraped before the period."""
    at_ms = _grid(source, from_ms)
    return {"/".join(_instance(labels)) for labels, _ in source.samples(_EARLIER, at_ms, at_ms)}


def spans(source: Prometheus, from_ms: int, to_ms: int) -> Iterator[dict[str, Any]]:
    """Yield the times in which each instance was scraped without a break."""
    for instance, at in boots(source, from_ms, to_ms).items():
        run: dict[str, Any] | None = None
        for time_ms, boot in sorted(at.items()):
            if time_ms <= from_ms:
                continue
            known = time_ms - source.step_ms in at
            began = time_ms - source.step_ms if known else time_ms
            if run is not None and run["end_ms"] == began and (run["boot"], run["hour"]) == (boot, _hour(time_ms)):
                run["end_ms"] = time_ms
                run["count"] += 1
                continue
            if run is not None:
                yield run
            run = {
                "kind": "span", "instance": "/".join(instance), "hour": _hour(time_ms), "from_ms": began, "end_ms": time_ms,
                "boot": boot, "count": 1,
            }  # fmt: skip
        if run is not None:
            yield run


class _Counter:
    """One series of a counter; its samples are read in order."""

    __slots__ = ("at_ms", "hours", "value")

    def __init__(self) -> None:
        self.at_ms: int | None = None
        self.value = 0
        self.hours: dict[int, list[int]] = {}  # gained, elapsed_ms, unknown

    def read(self, samples: Samples, scale: int, at: Mapping[int, float], from_ms: int, step_ms: int) -> None:
        """Add samples.

        :param at: start time of the instance, by the time of each scrape
        :param from_ms: earlier samples are used only as initial values
        """
        for at_ms, sample in samples:
            value = round(sample * scale)
            if at_ms > from_ms:
                hour = self.hours.setdefault(_hour(at_ms), [0, 0, 0])
                gain = self._gain(at_ms, value, at, from_ms, step_ms)
                if gain is None:
                    hour[2] += 1
                else:
                    hour[0] += gain[0]
                    hour[1] += gain[1]
            self.at_ms, self.value = at_ms, value

    def _gain(
        self, at_ms: int, value: int, at: Mapping[int, float], from_ms: int, step_ms: int
    ) -> tuple[int, int] | None:
        """Return the increase and its time in ms; None if it is unknown."""
        boot_ms = round(at[at_ms] * 1000) if at_ms in at else None
        if self.at_ms is None:
            if at_ms - step_ms in at:
                return value, step_ms
            if boot_ms is not None and boot_ms >= from_ms - LOOK_BACK_MS:
                return value, max(0, at_ms - boot_ms)
            return None
        if boot_ms is not None and self.at_ms in at and at[self.at_ms] != at[at_ms]:
            return value, at_ms - max(self.at_ms, boot_ms)
        between = range(self.at_ms + step_ms, at_ms, step_ms)
        if value < self.value or any(time_ms in at for time_ms in between):
            return value, at_ms - self.at_ms
        return value - self.value, at_ms - self.at_ms


def gains(source: Prometheus, metric: Metric, from_ms: int, to_ms: int) -> Iterator[dict[str, Any]]:
    """Yield the increase of each series of a counter in each hour."""
    started = boots(source, from_ms, to_ms)
    counters: dict[tuple[tuple[str, str], ...], _Counter] = {}
    query_from = _grid(source, from_ms - LOOK_BACK_MS)
    for labels, samples in source.samples(metric.query, query_from, _grid(source, to_ms)):
        series = counters.setdefault(tuple(sorted(labels.items())), _Counter())
        series.read(samples, metric.scale, started.get(_instance(labels), {}), from_ms, source.step_ms)
    for key, series in counters.items():
        named = _named(dict(key))
        for hour, (gained, elapsed_ms, unknown) in series.hours.items():
            if gained or unknown or metric.kind == "worker":
                counted = {"gained": gained, "elapsed_ms": elapsed_ms, "unknown": unknown}
                yield {"kind": metric.kind, "column": metric.column, "hour": hour} | named | counted


def levels(source: Prometheus, metric: Metric, from_ms: int, to_ms: int) -> Iterator[dict[str, Any]]:
    """Yield maximum, minimum, last value, sum and count of each gauge in each hour."""
    first = _grid(source, from_ms) + source.step_ms
    gauges: dict[tuple[tuple[str, str], ...], dict[int, dict[str, Any]]] = {}
    for labels, samples in source.samples(metric.query, first, _grid(source, to_ms)):
        hours = gauges.setdefault(tuple(sorted(labels.items())), {})
        for at_ms, value in samples:
            if value != value:  # NaN: unknown
                continue
            if value > 0:  # -1: no limit
                value *= metric.scale
            hour = hours.get(_hour(at_ms))
            if hour is None:
                hours[_hour(at_ms)] = {"max": value, "min": value, "last": value, "sum": value, "count": 1}
                continue
            hour["max"], hour["min"], hour["last"] = max(hour["max"], value), min(hour["min"], value), value
            hour["sum"] += value
            hour["count"] += 1
    for key, hours in gauges.items():
        for at_ms, stood in hours.items():
            yield {"kind": metric.kind, "column": metric.column, "hour": at_ms} | _named(dict(key)) | stood
