"""The Parquet tables of the report, under ``tables/`` of its directory, each partitioned by ``day`` (UTC).

The driver of the job writes them; a lock on the directory (`job`) prevents two jobs at the same time. A run replaces the days
that it computed as a whole, and does not change other days. The columns of each hour:

- ``traffic_hourly``: principal, client, topic (null: without a topic), api, and the columns of `counts`. An increment belongs
  to the hour in which its interval ended. Hours without counts are left out. Requests and errors are counted without a topic
  and, once more, with each topic.
- ``topic_dirs_hourly``: topic, broker, path (of a log directory); stored_bytes in it at the end of the hour. Only if there are
  several log directories; spools of older brokers, and Prometheus for brokers with several, do not contain it.
- ``topics_hourly``: topic; partitions, replicas (its logs on all brokers; missing in tables of older versions), stored_bytes
  (of all replicas), largest_partition_bytes, end_offsets and start_offsets (of each partition once; null: of some partitions
  unknown), retention_ms, retention_bytes, at the end of the hour.
- ``log_dirs_hourly``: broker, path; free_bytes_min, total_bytes.
- ``lag_hourly``: kind (``group``, ``reader``), name (of the group, or principal/client), topic; lag_max, lag_avg,
  lag_seconds_max, back_ms (when the reader's position last moved back, in milliseconds since 1970; null: never, or a group;
  missing in tables of older versions).
- ``workers_hourly``: broker (null: unknown), worker; connections_max, busy_share (0 to 1; null: unknown), bytes_in, bytes_out.
- ``coverage_hourly``: broker (null: unknown; missing in tables of older versions), source; intervals, covered_ms, carried_ms
  (how long before this hour the gap began whose counts are in this hour; 0 without such a gap, missing in tables of older
  versions).
- ``gaps``: from, to, reason, source, damaged_files (names of spool files, separated by spaces); one row for each day of a gap;
  from = to if the duration is unknown.

Rows are in the order of their keys. Counts are 64-bit integers, times are timestamps in UTC.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from odradek.jobs.usage_report.counts import COUNTS
from odradek.jobs.usage_report.times import DAY_MS, HOUR_MS, day_name

_TRAFFIC_KEYS = ("hour", "principal", "client", "topic", "api")
_TOPIC_STATE = (
    "partitions", "replicas", "stored_bytes", "largest_partition_bytes", "end_offsets", "start_offsets", "retention_ms",
    "retention_bytes",
)  # fmt: skip
#: Of the partitions that a broker leads: their number and sums. Spools of older brokers lack them.
_LED = ("led", "led_end_offsets", "led_start_offsets")
#: The largest number of bytes or milliseconds from Prometheus, whose samples have 53 bits of precision.
_LARGEST = float(1 << 62)


def prepare(spark: SparkSession) -> None:
    """Set the options that the tables need on a session, which may belong to somebody else."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def from_spool(facts: DataFrame, known_from: Mapping[str, int | None], brokers: int = 1) -> dict[str, DataFrame]:
    """Return all tables except gaps and coverage.

    :param facts: `spool.FACTS`, persisted by the caller, because each table is a pass over it
    :param known_from: by boot the time from which its spool exists, in milliseconds; None: it is complete
    :param brokers: the number of brokers
    """
    return {
        "traffic_hourly": _traffic(facts, known_from),
        "topics_hourly": _topics(facts, brokers),
        "topic_dirs_hourly": _topic_dirs(facts, brokers),
        "log_dirs_hourly": _log_dirs(facts),
        "lag_hourly": _lag(facts),
        "workers_hourly": _workers(facts, known_from),
    }


def _starts_at_zero(known_from: Mapping[str, int | None], since: Column) -> Column:
    """Whether all counts of a series before its first row happened in the time of the spool."""
    result = F.lit(False)
    for boot, at_ms in known_from.items():
        known = F.lit(True) if at_ms is None else since >= at_ms
        result = F.when(F.col("boot") == boot, known).otherwise(result)
    return result


def _increment(name: str, before: Column, starts_at_zero: Column) -> Column:
    """Return the increment of a cumulative value since the previous row of the same series."""
    value, last = F.col(name), before[name]
    return (
        F.when(before.isNull(), F.when(starts_at_zero, value).otherwise(F.lit(0)))
        .when(value >= last, value - last)
        .otherwise(value)
        .alias(name)
    )


def _series(facts: DataFrame) -> DataFrame:
    return facts.where(F.col("kind") == "usage")


def _traffic(facts: DataFrame, known_from: Mapping[str, int | None]) -> DataFrame:
    series = Window.partitionBy("boot", "page", "principal", "client", "topic", "api", "since").orderBy("seq")
    before = F.col("before")
    at_zero = _starts_at_zero(known_from, F.col("since"))
    return (
        _series(facts)
        .withColumn("before", F.lag(F.struct(*COUNTS)).over(series))
        .where(F.col("hour").isNotNull())
        .select(*_TRAFFIC_KEYS, *(_increment(name, before, at_zero) for name in COUNTS))
        .groupBy(*_TRAFFIC_KEYS)
        .agg(*(F.sum(name).alias(name) for name in COUNTS))
        .where(F.greatest(*COUNTS) > 0)
    )


def without_start(facts: DataFrame, known_from: Mapping[str, int | None]) -> list[tuple[str, int]]:
    """Return per boot the number of series that began before the time of the spool, whose first value is only a baseline."""
    cut = {boot: at_ms for boot, at_ms in known_from.items() if at_ms is not None}
    if not cut:
        return []
    rows = (
        _series(facts)
        .where(F.col("boot").isin(*cut) & ~_starts_at_zero(known_from, F.col("since")))
        .groupBy("boot", "page", "principal", "client", "topic", "api", "since")
        .agg(F.min_by("hour", "seq").alias("hour"))
        .where(F.col("hour").isNotNull())
        .groupBy("boot")
        .count()
        .collect()
    )
    return sorted((row["boot"], row["count"]) for row in rows)


def _topics_of_brokers(facts: DataFrame) -> DataFrame:
    """Return the last state of each topic on each broker in each hour, with `_TOPIC_STATE`."""
    state = F.max(F.struct("end_ms", "seq", "id", *_TOPIC_STATE, *_LED)).alias("state")
    return (
        facts.where((F.col("kind") == "topic") & F.col("hour").isNotNull())
        .groupBy("hour", "topic", "broker")
        .agg(state)
        .select("hour", "topic", "broker", "state.*")
    )


def _topics(facts: DataFrame, brokers: int) -> DataFrame:
    """Return the sums over brokers; of offsets the sums over the leaders, so that each partition counts once.

    If some partitions have no known leader (a broker is down, or its spool is not read), a broker with a replica of each
    partition knows the offsets of all. Spools of older brokers only have sums over replicas: these are divided if each
    partition seems to be there equally often. Otherwise the offsets are not known: null.
    """
    partitions, replicas = F.max("partitions"), F.sum("replicas")
    new = F.count("led") == F.count("*")

    def of_each_partition(name: str) -> Column:
        own_replicas = F.coalesce("replicas", F.when(F.lit(brokers == 1), F.col("partitions")))
        whole = F.max(F.when(own_replicas == F.col("partitions"), F.col(name)))
        divided = F.round(F.sum(name) * partitions / replicas).cast("bigint")
        return (
            F.when(new & (F.sum("led") == partitions), F.sum(f"led_{name}"))
            .when(whole.isNotNull(), whole)
            .when(~new & (replicas > 0) & (replicas % partitions == 0), divided)
        )

    latest = (F.max_by(name, F.struct("end_ms", "seq")).alias(name) for name in ("retention_ms", "retention_bytes"))
    return (
        _topics_of_brokers(facts)
        .groupBy("hour", "topic")
        .agg(
            partitions.alias("partitions"),
            replicas.alias("replicas"),
            F.sum("stored_bytes").alias("stored_bytes"),
            F.max("largest_partition_bytes").alias("largest_partition_bytes"),
            of_each_partition("end_offsets").alias("end_offsets"),
            of_each_partition("start_offsets").alias("start_offsets"),
            *latest,
        )
    )


def _topic_dirs(facts: DataFrame, brokers: int) -> DataFrame:
    last = F.max_by("stored_bytes", F.struct("end_ms", "seq")).alias("stored_bytes")
    rows = facts.where((F.col("kind") == "stored") & F.col("hour").isNotNull())
    placed = rows.groupBy("hour", "topic", "broker", "path").agg(last)
    if brokers < 2:
        return placed
    return placed.unionByName(_in_only_dirs(_topics_of_brokers(facts), _log_dirs(facts)))


def _in_only_dirs(topics: DataFrame, log_dirs: DataFrame) -> DataFrame:
    """Return the topics of brokers with one log directory, with its path.

    :param topics: hour, topic, broker, stored_bytes. :param log_dirs: hour, broker, path
    """
    only = log_dirs.groupBy("hour", "broker").agg(F.max("path").alias("path"), F.countDistinct("path").alias("paths"))
    joined = topics.join(only.where("paths = 1"), ["hour", "broker"])
    return joined.where("stored_bytes > 0").select("hour", "topic", "broker", "path", "stored_bytes")


def _log_dirs(facts: DataFrame) -> DataFrame:
    return (
        facts.where((F.col("kind") == "log_dir") & F.col("hour").isNotNull())
        .groupBy("hour", "broker", "path")
        .agg(F.min("free_bytes").alias("free_bytes_min"), F.max_by("total_bytes", "end_ms").alias("total_bytes"))
    )


def _lag(facts: DataFrame) -> DataFrame:
    """A group is known to one broker, its coordinator; a reader to each broker that it reads from, so its lags are added."""
    name = F.coalesce("name", F.concat_ws("/", "principal", "client"))
    reader = F.col("kind") == "reader"
    sums = [F.sum(column).alias(column) for column in ("lag_sum", "lag_count")]
    largest = [F.max(column).alias(column) for column in ("lag_max", "lag_seconds_max", "back_ms")]
    return (
        facts.where(F.col("kind").isin("group", "reader") & F.col("hour").isNotNull())
        .groupBy("hour", "kind", name.alias("name"), "topic", "broker")
        .agg(*sums, *largest)
        .groupBy("hour", "kind", "name", "topic")
        .agg(
            F.when(reader, F.sum("lag_max")).otherwise(F.max("lag_max")).alias("lag_max"),
            F.when(reader, F.sum(F.col("lag_sum") / F.col("lag_count")))
            .otherwise(F.sum("lag_sum") / F.sum("lag_count"))
            .alias("lag_avg"),
            F.max("lag_seconds_max").alias("lag_seconds_max"),
            F.max("back_ms").alias("back_ms"),
        )
    )


def _workers(facts: DataFrame, known_from: Mapping[str, int | None]) -> DataFrame:
    series = Window.partitionBy("boot", "page").orderBy("seq")
    before = F.col("before")
    whole = F.lit(False)
    for boot, at_ms in known_from.items():
        if at_ms is None:
            whole = whole | (F.col("boot") == boot)
    counted = ("busy_us", "bytes_in", "bytes_out")
    # missing intervals count with the length of the present ones
    steps = F.col("seq") - F.coalesce(before["seq"], F.col("first_seq") - 1)
    elapsed_us = F.col("elapsed_ms") * 1000.0 * steps / F.col("intervals")
    busy = F.when(before.isNotNull() | whole, F.col("busy_us_more"))
    return (
        facts.where(F.col("kind") == "worker")
        .withColumn("before", F.lag(F.struct("seq", *counted)).over(series))
        .where(F.col("hour").isNotNull())
        .select("*", *(_increment(name, before, whole).alias(f"{name}_more") for name in counted))
        .select(
            "hour",
            "broker",
            F.col("page").alias("worker"),
            "connections",
            busy.alias("busy"),
            F.when(busy.isNotNull(), elapsed_us).alias("elapsed"),
            "bytes_in_more",
            "bytes_out_more",
        )
        .groupBy("hour", "broker", "worker")
        .agg(
            F.max("connections").alias("connections_max"),
            F.least(F.lit(1.0), F.sum("busy") / F.nullif(F.sum("elapsed"), F.lit(0.0))).alias("busy_share"),
            F.sum("bytes_in_more").alias("bytes_in"),
            F.sum("bytes_out_more").alias("bytes_out"),
        )
    )


def from_prometheus(facts: DataFrame, ids: Mapping[str, int]) -> dict[str, DataFrame]:
    """Return all tables except gaps and coverage.

    :param facts: `prometheus.FACTS`, persisted by the caller
    :param ids: by job/instance the id of its broker; an instance without one is named in the paths of its log directories
    """
    broker = F.lit(None).cast("bigint")
    place = F.concat_ws("/", F.coalesce("job", F.lit("")), F.coalesce("instance", F.lit("")))
    for instance, id_ in ids.items():
        broker = F.when(place == instance, F.lit(id_).cast("bigint")).otherwise(broker)
    path = F.when(broker.isNull(), F.concat_ws(": ", "instance", "path")).otherwise(F.col("path"))

    def of(kind: str) -> DataFrame:
        return facts.where(F.col("kind") == kind)

    def pick(column: str, value: str) -> Column:
        return F.when(F.col("column") == column, F.col(value))

    def level(column: str, value: str, how: Callable[[Column], Column] = F.max) -> Column:
        rounded = F.round(how(pick(column, value)))
        return F.when(rounded > _LARGEST, _LARGEST).otherwise(rounded).cast("bigint")

    log_dirs = (
        of("log_dir")
        .groupBy("hour", broker.alias("broker"), path.alias("path"))
        .agg(
            level("free_bytes", "min", F.min).alias("free_bytes_min"),
            level("total_bytes", "last").alias("total_bytes"),
        )
    )
    of_brokers = (
        of("topic_of_broker")
        .groupBy("hour", "topic", broker.alias("broker"))
        .agg(level("stored_bytes", "last", F.sum).alias("stored_bytes"))
    )
    states = of("topic").groupBy("hour", "topic").agg(*(level(name, "last").alias(name) for name in _TOPIC_STATE))
    stored = of_brokers.groupBy("hour", "topic").agg(F.sum("stored_bytes").alias("stored_bytes"))
    topics = states.drop("stored_bytes").unionByName(stored, allowMissingColumns=True)
    lag_name = F.coalesce("name", F.concat_ws("/", F.coalesce("principal", F.lit("")), F.coalesce("client", F.lit(""))))
    labels = [F.coalesce(name, F.lit("")).alias(name) for name in ("principal", "client")]
    return {
        "traffic_hourly": of("traffic")
        .groupBy("hour", *labels, "topic", F.coalesce("api", F.lit("")).alias("api"))
        .agg(*(F.coalesce(F.sum(pick(name, "gained")), F.lit(0)).alias(name) for name in COUNTS))
        .where(F.greatest(*COUNTS) > 0),
        "topics_hourly": topics.groupBy("hour", "topic").agg(*(F.max(name).alias(name) for name in _TOPIC_STATE)),
        **({"topic_dirs_hourly": _in_only_dirs(of_brokers, log_dirs)} if len(set(ids.values())) > 1 else {}),
        "log_dirs_hourly": log_dirs,
        "lag_hourly": facts.where(F.col("kind").isin("group", "reader"))
        .groupBy("hour", "kind", lag_name.alias("name"), "topic")
        .agg(
            level("lag", "max").alias("lag_max"),
            (F.sum(pick("lag", "sum")) / F.sum(pick("lag", "count"))).alias("lag_avg"),
            F.max(pick("lag_seconds", "max")).alias("lag_seconds_max"),
            level("back_ms", "last").alias("back_ms"),
        ),
        "workers_hourly": of("worker")
        .groupBy("hour", broker.alias("broker"), F.col("worker").cast("bigint").alias("worker"))
        .agg(
            level("connections", "max").alias("connections_max"),
            F.least(
                F.lit(1.0),
                F.sum(pick("busy_us", "gained")) / F.nullif(F.sum(pick("busy_us", "elapsed_ms")) * 1000, F.lit(0)),
            ).alias("busy_share"),
            F.coalesce(F.sum(pick("bytes_in", "gained")), F.lit(0)).alias("bytes_in"),
            F.coalesce(F.sum(pick("bytes_out", "gained")), F.lit(0)).alias("bytes_out"),
        ),
    }


class Coverage:
    """What the tables of a day were written from: per hour and broker the covered milliseconds and the intervals."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._rows: dict[tuple[int, int | None], tuple[int, int]] = {}

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a row of `coverage_hourly`, with `hour_ms`."""
        key = row["hour_ms"], row.get("broker")
        self._rows[key] = row["covered_ms"], row["intervals"]

    def lost(self, other: "Coverage | None") -> str:
        """Return how much of this the other one has, if it has less; else "".

        Each broker is compared. A run that does not know its brokers (of an older version) is compared as a whole.
        """
        other = other or Coverage(self.source)
        brokers = {broker for _, broker in self._rows}
        if None in brokers or None in {broker for _, broker in other._rows}:
            before, present = self._covered(), other._covered()
            if present < before:
                return f"{present / HOUR_MS:.1f} of the {before / HOUR_MS:.1f} hours"
            intervals, less = self._intervals(), other._intervals()
            if self.source == other.source == "spool" and less < intervals:  # fewer brokers
                return f"{less} of the {intervals} intervals"
            return ""
        for broker in sorted(at for at in brokers if at is not None):
            before, present = self._covered(broker), other._covered(broker)
            if present < before:
                return f"{present / HOUR_MS:.1f} of the {before / HOUR_MS:.1f} hours of broker {broker}"
        return ""

    def _covered(self, broker: int | None = None) -> int:
        """Return the covered milliseconds of a broker, or those of the broker with most of each hour."""
        hours: dict[int, int] = {}
        for (hour_ms, of), (covered_ms, _) in self._rows.items():
            if broker in (None, of):
                hours[hour_ms] = max(hours.get(hour_ms, 0), covered_ms)
        return sum(hours.values())

    def _intervals(self) -> int:
        return sum(intervals for _, intervals in self._rows.values())


def coverage_by_day(rows: Iterable[Mapping[str, Any]]) -> dict[str, Coverage]:
    """Return what rows of `coverage_hourly`, with `hour_ms`, cover of each day."""
    result: dict[str, Coverage] = {}
    for row in rows:
        result.setdefault(day_name(row["hour_ms"]), Coverage(row["source"])).add(row)
    return result


def written_coverage(directory: Path, days: Iterable[str]) -> dict[str, Coverage]:
    """Return per day what an earlier run covered."""
    import pyarrow.parquet as pq

    rows = [
        {**row, "hour_ms": round(row["hour"].timestamp() * 1000)}
        for day in days
        for path in sorted((directory / "coverage_hourly" / f"day={day}").glob("*.parquet"))
        for row in pq.ParquetFile(path).read().to_pylist()
    ]
    return coverage_by_day(rows)


def days_of(from_ms: int, to_ms: int) -> list[str]:
    """Return the names of the days of the period."""
    return [day_name(at) for at in range(from_ms // DAY_MS * DAY_MS, to_ms, DAY_MS)]
