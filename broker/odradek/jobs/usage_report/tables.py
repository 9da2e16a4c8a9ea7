"""The Parquet tables of the report, under ``tables/`` of its directory, each partitioned by ``day`` (UTC).

The driver of the job writes them; a lock on the directory (`job`) prevents two jobs at the same time. A run replaces the days
that it computed as a whole, and does not change other days. The columns of each hour:

- ``traffic_hourly``: principal, client, topic (null: without a topic), api; bytes_in, bytes_out, records_in, records_out,
  requests, errors, throttle_ms, connection_ms. An increment belongs to the hour in which its interval ended.
  Hours without counts are left out. Requests and errors are counted without a topic and, once more, with each topic.
- ``topic_dirs_hourly``: topic, broker, path (of a log directory); stored_bytes in it at the end of the hour. Only for brokers
  with several log directories; spools of older brokers and Prometheus do not contain it.
- ``topics_hourly``: topic; partitions, stored_bytes, largest_partition_bytes, end_offsets, start_offsets, retention_ms,
  retention_bytes, at the end of the hour.
- ``log_dirs_hourly``: broker, path; free_bytes_min, total_bytes.
- ``lag_hourly``: kind (``group``, ``reader``), name (of the group, or principal/client), topic; lag_max, lag_avg,
  lag_seconds_max, back_ms (when the reader's position last moved back, in milliseconds since 1970; null: never, or a group;
  missing in tables of older versions).
- ``workers_hourly``: worker; connections_max, busy_share (0 to 1; null: unknown), bytes_in, bytes_out.
- ``coverage_hourly``: source; intervals, covered_ms, carried_ms (how long before this hour the gap began whose
  counts are in this hour; 0 without such a gap, missing in tables of older versions).
- ``gaps``: from, to, reason, source, damaged_files (names of spool files, separated by spaces); one row for each day of a gap;
  from = to if the duration is unknown.

Rows are in the order of their keys. Counts are 64-bit integers, times are timestamps in UTC.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from odradek.jobs.usage_report.times import DAY_MS, day_name

COUNTS = ("bytes_in", "bytes_out", "records_in", "records_out", "requests", "errors", "throttle_ms", "connection_ms")
_TRAFFIC_KEYS = ("hour", "principal", "client", "topic", "api")
_TOPIC_STATE = (
    "partitions", "stored_bytes", "largest_partition_bytes", "end_offsets", "start_offsets", "retention_ms",
    "retention_bytes",
)  # fmt: skip


def prepare(spark: SparkSession) -> None:
    """Set the options that the tables need on a session, which may belong to somebody else."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def from_spool(facts: DataFrame, known_from: Mapping[str, int | None]) -> dict[str, DataFrame]:
    """Return all tables except gaps and coverage.

    :param facts: `spool.FACTS`, persisted by the caller, because each table is a pass over it
    :param known_from: by boot the time from which its spool exists, in milliseconds; None: it is complete
    """
    return {
        "traffic_hourly": _traffic(facts, known_from),
        "topics_hourly": _topics(facts),
        "topic_dirs_hourly": _topic_dirs(facts),
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


def _topics(facts: DataFrame) -> DataFrame:
    state = F.max(F.struct("seq", "id", *_TOPIC_STATE)).alias("state")
    return (
        facts.where((F.col("kind") == "topic") & F.col("hour").isNotNull())
        .groupBy("hour", "topic")
        .agg(state)
        .select("hour", "topic", *(F.col(f"state.{name}") for name in _TOPIC_STATE))
    )


def _topic_dirs(facts: DataFrame) -> DataFrame:
    last = F.max_by("stored_bytes", "seq").alias("stored_bytes")
    rows = facts.where((F.col("kind") == "stored") & F.col("hour").isNotNull())
    return rows.groupBy("hour", "topic", "broker", "path").agg(last)


def _log_dirs(facts: DataFrame) -> DataFrame:
    return (
        facts.where((F.col("kind") == "log_dir") & F.col("hour").isNotNull())
        .groupBy("hour", "broker", "path")
        .agg(F.min("free_bytes").alias("free_bytes_min"), F.max_by("total_bytes", "seq").alias("total_bytes"))
    )


def _lag(facts: DataFrame) -> DataFrame:
    name = F.coalesce("name", F.concat_ws("/", "principal", "client"))
    return (
        facts.where(F.col("kind").isin("group", "reader") & F.col("hour").isNotNull())
        .groupBy("hour", "kind", name.alias("name"), "topic")
        .agg(
            F.max("lag_max").alias("lag_max"),
            (F.sum("lag_sum") / F.sum("lag_count")).alias("lag_avg"),
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
            F.col("page").alias("worker"),
            "connections",
            busy.alias("busy"),
            F.when(busy.isNotNull(), elapsed_us).alias("elapsed"),
            "bytes_in_more",
            "bytes_out_more",
        )
        .groupBy("hour", "worker")
        .agg(
            F.max("connections").alias("connections_max"),
            F.least(F.lit(1.0), F.sum("busy") / F.nullif(F.sum("elapsed"), F.lit(0.0))).alias("busy_share"),
            F.sum("bytes_in_more").alias("bytes_in"),
            F.sum("bytes_out_more").alias("bytes_out"),
        )
    )


def from_prometheus(facts: DataFrame, broker: int | None) -> dict[str, DataFrame]:
    """Return all tables except gaps and coverage.

    :param facts: `prometheus.FACTS`, persisted by the caller
    :param broker: the id of the only broker, or None
    """

    def of(kind: str) -> DataFrame:
        return facts.where(F.col("kind") == kind)

    def pick(column: str, value: str) -> Column:
        return F.when(F.col("column") == column, F.col(value))

    def level(column: str, value: str, how: Callable[[Column], Column] = F.max) -> Column:
        return F.round(how(pick(column, value))).cast("bigint")

    lag_name = F.coalesce("name", F.concat_ws("/", F.coalesce("principal", F.lit("")), F.coalesce("client", F.lit(""))))
    labels = [F.coalesce(name, F.lit("")).alias(name) for name in ("principal", "client")]
    return {
        "traffic_hourly": of("traffic")
        .groupBy("hour", *labels, "topic", F.coalesce("api", F.lit("")).alias("api"))
        .agg(*(F.coalesce(F.sum(pick(name, "gained")), F.lit(0)).alias(name) for name in COUNTS))
        .where(F.greatest(*COUNTS) > 0),
        "topics_hourly": of("topic")
        .groupBy("hour", "topic")
        .agg(
            *(level(name, "last").alias(name) for name in _TOPIC_STATE[:5]),
            *(F.lit(None).cast("bigint").alias(name) for name in _TOPIC_STATE[5:]),
        ),
        "log_dirs_hourly": of("log_dir")
        .groupBy("hour", F.lit(broker).cast("bigint").alias("broker"), "path")
        .agg(
            level("free_bytes", "min", F.min).alias("free_bytes_min"),
            level("total_bytes", "last").alias("total_bytes"),
        ),
        "lag_hourly": facts.where(F.col("kind").isin("group", "reader"))
        .groupBy("hour", "kind", lag_name.alias("name"), "topic")
        .agg(
            level("lag", "max").alias("lag_max"),
            (F.sum(pick("lag", "sum")) / F.sum(pick("lag", "count"))).alias("lag_avg"),
            F.max(pick("lag_seconds", "max")).alias("lag_seconds_max"),
            level("back_ms", "last").alias("back_ms"),
        ),
        "workers_hourly": of("worker")
        .groupBy("hour", F.col("worker").cast("bigint").alias("worker"))
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


def written_coverage(directory: Path, days: Iterable[str]) -> dict[str, tuple[str, int]]:
    """Return per day the source of an earlier run and the milliseconds that it covered."""
    import pyarrow.parquet as pq

    result = {}
    for day in days:
        rows = [
            row
            for path in sorted((directory / "coverage_hourly" / f"day={day}").glob("*.parquet"))
            for row in pq.ParquetFile(path).read(["source", "covered_ms"]).to_pylist()
        ]
        if rows:
            result[day] = rows[0]["source"], sum(row["covered_ms"] for row in rows)
    return result


def days_of(from_ms: int, to_ms: int) -> list[str]:
    """Return the names of the days of the period."""
    return [day_name(at) for at in range(from_ms // DAY_MS * DAY_MS, to_ms, DAY_MS)]
