"""The Parquet tables, aggregated in Spark to the few rows that the page shows.

Runs in the driver of the report's job; Spark reads the tables, which `tables` wrote. Nothing here writes.

Every frame is small whatever the tables hold: an hour a row, or the `TOP` largest of a kind with the sum of the rest. What is
read by topic for all topics (10,000 rows) is what the forecast needs. Times are seconds since 1970 (column `hour`), UTC.
An hour that no table knows is **not covered**: it is a gap in a chart, and never zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

HOUR = 3600
DAY = 86400
WEEK = 7 * DAY
#: How far back the page looks for trends, in days.
HISTORY_DAYS = 120
TOP = 10
#: Topics that the chart of storage shows by name; the rest is one area.
NAMED_TOPICS = 7
#: Parts of an hour that must be covered for it to be compared with the same hour a week before.
_COMPARABLE_MS = 3_240_000

COUNTS = ("bytes_in", "bytes_out", "records_in", "records_out", "requests", "errors", "throttle_ms", "connection_ms")
GAP_COLUMNS = ("from", "to", "reason", "source")
#: The columns of tables that are not there; those of tables that are stand in their files.
SCHEMAS = {
    "traffic_hourly": "hour timestamp, principal string, client string, topic string, api string, "
    + ", ".join(f"{name} bigint" for name in COUNTS)
    + ", day string",
    "topics_hourly": "hour timestamp, topic string, partitions bigint, stored_bytes bigint, largest_partition_bytes bigint, "
    "end_offsets bigint, start_offsets bigint, retention_ms bigint, retention_bytes bigint, day string",
    "log_dirs_hourly": "hour timestamp, broker bigint, path string, free_bytes_min bigint, total_bytes bigint, day string",
    "lag_hourly": "hour timestamp, kind string, name string, topic string, lag_max bigint, lag_avg double, "
    "lag_seconds_max double, day string",
    "workers_hourly": "hour timestamp, worker bigint, connections_max bigint, busy_share double, bytes_in bigint, "
    "bytes_out bigint, day string",
    "coverage_hourly": "hour timestamp, source string, intervals bigint, covered_ms bigint, day string",
    "gaps": "`from` timestamp, `to` timestamp, reason string, source string, day string",
}


@dataclass(frozen=True)
class Figures:
    """What the page says, as frames of pandas; see the functions below for the columns of each.

    `first` and `last` are the period in seconds without its end, `compared` the seconds of the hours of the last week (or of
    the period if that is shorter) that are covered now and a week before; `covered` all covered hours since `history_first`.
    """

    first: int
    last: int
    history_first: int
    covered: frozenset[int]
    compared: tuple[int, ...]
    compared_wanted: int
    hourly: pd.DataFrame
    topics: pd.DataFrame
    clients: pd.DataFrame
    apis: pd.DataFrame
    states: pd.DataFrame
    stored_daily: pd.DataFrame
    unread: pd.DataFrame
    log_dirs: pd.DataFrame
    lag: pd.DataFrame
    lag_hourly: pd.DataFrame
    workers: pd.DataFrame
    gaps: pd.DataFrame
    counts: dict[str, int]

    @property
    def hours(self) -> range:
        """The hours of the period."""
        return range(self.first // HOUR * HOUR, self.last, HOUR)

    @property
    def missing_hours(self) -> int:
        """Hours of the period of which nothing is known."""
        return sum(1 for hour in self.hours if hour not in self.covered)


class Tables:
    """The tables under one directory, as Spark's frames with `hour` in seconds; one that is not there is empty."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self._directory = directory
        self._schemas: dict[str, StructType] = {}

    def read(self, name: str, first: int, last: int) -> DataFrame:
        """Return the rows of `name` whose time lies from `first` to before `last` (seconds); only those days are opened."""
        path = self._directory / name
        if not any(path.glob("day=*/*.parquet")):
            return self._seconds(self._spark.createDataFrame([], SCHEMAS[name]), name)
        day = F.col("day").cast("string")
        if name not in self._schemas:  # looking for it in the files is a job of Spark's
            self._schemas[name] = self._spark.read.parquet(str(path)).schema
        rows = self._seconds(self._spark.read.schema(self._schemas[name]).parquet(str(path)), name)
        if name == "gaps":
            # a gap of no length has a time too
            inside = (F.col("from") < last) & ((F.col("to") > first) | (F.col("from") >= first))
            return rows.where((day >= _day(first - DAY)) & (day <= _day(last))).where(inside)
        rows = rows.where((day >= _day(first)) & (day <= _day(last)))
        return rows.where((F.col("hour") >= first // HOUR * HOUR) & (F.col("hour") < last))

    @staticmethod
    def _seconds(rows: DataFrame, name: str) -> DataFrame:
        for column in ("from", "to") if name == "gaps" else ("hour",):
            rows = rows.withColumn(column, F.col(column).cast("timestamp").cast("double").cast("bigint"))
        if name == "traffic_hourly":
            rows = rows.withColumn("topic", F.when(F.col("topic") != "", F.col("topic")))
        if name == "topics_hourly":  # Prometheus may not know all of a topic; its retention stays unknown
            rows = rows.fillna(0, ["stored_bytes", "largest_partition_bytes", "end_offsets", "start_offsets"])
            rows = rows.fillna(1, ["partitions"])
        if name == "log_dirs_hourly":
            rows = rows.dropna(subset=["free_bytes_min", "total_bytes"])
            rows = rows.withColumn("broker", F.coalesce(F.col("broker").cast("string"), F.lit("")))
        return rows


def _day(seconds: int) -> str:
    return pd.Timestamp(seconds, unit="s").strftime("%Y-%m-%d")


def _collected(frame: DataFrame) -> pd.DataFrame:
    rows = frame.toPandas()
    assert isinstance(rows, pd.DataFrame)
    return rows


def _pandas(frame: DataFrame, order: Sequence[str]) -> pd.DataFrame:
    """Collect in a fixed order, so that the same tables always make the same page."""
    return _collected(frame).sort_values(list(order), kind="stable", ignore_index=True)


def _largest(frame: DataFrame, by: Column, keys: Sequence[str], count: int = TOP) -> pd.DataFrame:
    return _collected(frame.orderBy(by.desc_nulls_last(), *keys).limit(count))


def aggregate(spark: SparkSession, directory: Path, first: int, last: int) -> Figures:
    """Aggregate the tables under `directory` for the period from `first` to before `last`, in seconds."""
    tables = Tables(spark, directory)
    history_first = min(first, (last - HISTORY_DAYS * DAY) // DAY * DAY)
    covered = _covered(tables, history_first, last)
    compared, wanted = _compared(covered, first, last)
    traffic = tables.read("traffic_hourly", min(first, last - WEEK) - WEEK, last)
    period = F.col("hour").between(first // HOUR * HOUR, last - 1)
    topics, topic_count = _topics(traffic, period, compared)
    clients, client_count = _clients(traffic, period, compared)
    states = _states(tables, last)
    lag, lag_hourly = _lag(tables.read("lag_hourly", first, last))
    unread, unread_bytes, unread_count = _unread(tables, states, first, last, history_first)
    seen = {hour for hour, known in covered.items() if known}
    return Figures(
        first=first,
        last=last,
        history_first=min(seen, default=first),
        covered=frozenset(seen),
        compared=tuple(compared),
        compared_wanted=wanted,
        hourly=_hourly(traffic),
        topics=topics,
        clients=clients,
        apis=_apis(traffic.where(period)),
        states=states,
        stored_daily=_stored_daily(tables, states, history_first, last),
        unread=unread,
        log_dirs=_pandas(
            tables.read("log_dirs_hourly", history_first, last)
            .groupBy("hour", "broker", "path")
            .agg(F.min("free_bytes_min").alias("free"), F.max("total_bytes").alias("total")),
            ("broker", "path", "hour"),
        ),
        lag=lag,
        lag_hourly=lag_hourly,
        workers=_pandas(
            tables.read("workers_hourly", first, last).select(
                "hour", "worker", "connections_max", "busy_share", "bytes_in", "bytes_out"
            ),
            ("worker", "hour"),
        ),
        gaps=_pandas(tables.read("gaps", first, last).select(*GAP_COLUMNS), GAP_COLUMNS),
        counts={
            "topics_with_traffic": topic_count,
            "clients": client_count,
            "unread_topics": unread_count,
            "unread_bytes": unread_bytes,
        },
    )  # fmt: skip


def _covered(tables: Tables, first: int, last: int) -> dict[int, int]:
    """By hour how many milliseconds are covered; of tables without a table of coverage, all of each hour that has a row."""
    rows = tables.read("coverage_hourly", first, last).groupBy("hour").agg(F.sum("covered_ms").alias("ms")).collect()
    found = {row["hour"]: int(row["ms"]) for row in rows if row["ms"]}
    days = {hour // DAY for hour in found}
    others = None
    for name in ("log_dirs_hourly", "workers_hourly", "topics_hourly", "traffic_hourly"):
        hours = tables.read(name, first, last).select("hour").distinct()
        others = hours if others is None else others.union(hours)
    assert others is not None
    for row in others.distinct().collect():
        if row["hour"] // DAY not in days:
            found[row["hour"]] = HOUR * 1000
    return found


def _compared(covered: dict[int, int], first: int, last: int) -> tuple[list[int], int]:
    start = max(first, last - WEEK) // HOUR * HOUR
    hours = range(start, last, HOUR)
    both = [
        hour
        for hour in hours
        if covered.get(hour, 0) >= _COMPARABLE_MS and covered.get(hour - WEEK, 0) >= _COMPARABLE_MS
    ]
    return both, len(hours)


def _hourly(traffic: DataFrame) -> pd.DataFrame:
    """By hour, for the period and the week before: all counts. Requests are those that are of no topic (decision 16)."""
    own = F.when(F.col("topic").isNull(), F.col("requests"))
    sums = [F.sum(name).alias(name) for name in COUNTS if name != "requests"]
    return _pandas(traffic.groupBy("hour").agg(*sums, F.coalesce(F.sum(own), F.lit(0)).alias("requests")), ("hour",))


def _changes(compared: Sequence[int]) -> list[Column]:
    now = F.col("hour").isin(*compared) if compared else F.lit(False)
    before = F.col("hour").isin(*[hour - WEEK for hour in compared]) if compared else F.lit(False)
    moved = F.col("bytes_in") + F.col("bytes_out")
    return [
        F.sum(F.when(now, moved).otherwise(0)).alias("week"),
        F.sum(F.when(before, moved).otherwise(0)).alias("week_before"),
    ]


def _topics(traffic: DataFrame, period: Column, compared: Sequence[int]) -> tuple[pd.DataFrame, int]:
    """The topics with most traffic in the period: topic, bytes and records in and out, errors, week, week_before."""
    sums = [
        F.sum(F.when(period, F.col(name)).otherwise(0)).alias(name)
        for name in ("bytes_in", "bytes_out", "records_in", "records_out", "errors")
    ]
    rows = traffic.where(F.col("topic").isNotNull()).groupBy("topic").agg(*sums, *_changes(compared))
    moved = F.col("bytes_in") + F.col("bytes_out")
    shown = _largest(rows, F.greatest(moved, F.col("week_before")), ["topic"], 3 * TOP)
    return shown, rows.where(moved > 0).count()


def _clients(traffic: DataFrame, period: Column, compared: Sequence[int]) -> tuple[pd.DataFrame, int]:
    """The clients with most traffic, errors or throttling in the period, with all counts, week and week_before."""
    own = F.when(F.col("topic").isNull() & period, F.col("requests")).otherwise(0)
    sums = [F.sum(F.when(period, F.col(name)).otherwise(0)).alias(name) for name in COUNTS if name != "requests"]
    rows = traffic.groupBy("principal", "client").agg(*sums, F.sum(own).alias("requests"), *_changes(compared))
    rows = rows.persist()
    try:
        moved = F.col("bytes_in") + F.col("bytes_out")
        keys = ["principal", "client"]
        parts = [
            _largest(rows, F.greatest(moved, F.col("week_before")), keys, 3 * TOP),
            _largest(rows.where("errors > 0"), F.col("errors"), keys),
            _largest(rows.where("throttle_ms > 0"), F.col("throttle_ms"), keys),
            _largest(rows.where("connection_ms > 0"), F.col("connection_ms"), keys),
        ]
        shown = pd.concat(parts, ignore_index=True).drop_duplicates(keys, ignore_index=True)
        return shown, rows.where((moved > 0) | (F.col("requests") > 0)).count()
    finally:
        rows.unpersist()


def _apis(traffic: DataFrame) -> pd.DataFrame:
    """By API: requests and errors."""
    own = F.when(F.col("topic").isNull(), F.col("requests")).otherwise(0)
    rows = traffic.groupBy("api").agg(F.sum(own).alias("requests"), F.sum("errors").alias("errors"))
    return _pandas(rows.where("requests > 0 or errors > 0"), ("api",))


def _states(tables: Tables, last: int) -> pd.DataFrame:
    """All topics as they stood last, if that was within a day of the end: what `topics_hourly` holds, `before` (bytes stored a
    week earlier, null if the topic or the week was not there) and `records_a_day`."""
    rows = tables.read("topics_hourly", last - WEEK - DAY, last)
    state = F.struct("hour", "partitions", "stored_bytes", "largest_partition_bytes", "end_offsets", "start_offsets",
                     "retention_ms", "retention_bytes")  # fmt: skip
    recent = F.col("hour") >= last - WEEK
    begin = F.when(recent, F.struct("hour", "end_offsets"))
    found = _collected(
        rows.groupBy("topic")
        .agg(
            F.max(state).alias("now"),
            F.min(begin).alias("begin"),
            F.max(F.when(~recent, F.struct("hour", "stored_bytes"))).alias("earlier"),
        )
        .where(F.col("now.hour") >= last - DAY)
        .select(
            "topic",
            "now.*",
            F.col("earlier.stored_bytes").alias("before"),
            F.col("begin.hour").alias("begin_hour"),
            F.col("begin.end_offsets").alias("begin_end"),
        )
    )
    if len(found):
        # those of the last hour that has any: a topic that is missing there was deleted
        found = found[found["hour"] == found["hour"].max()]
    days = (found["hour"] - found["begin_hour"]) / DAY
    appended = found["end_offsets"] - found["begin_end"]
    appended = appended.where(appended >= 0, found["end_offsets"])  # made anew meanwhile
    found["records_a_day"] = (appended / days.where(days > 0)).fillna(0.0)
    return found.drop(columns=["begin_hour", "begin_end"]).sort_values(
        ["stored_bytes", "topic"], ascending=[False, True], ignore_index=True
    )


def _stored_daily(tables: Tables, states: pd.DataFrame, first: int, last: int) -> pd.DataFrame:
    """By day and topic, of the NAMED_TOPICS largest topics and `None` for the rest: bytes stored at the day's end."""
    largest = [str(name) for name in states["topic"].head(NAMED_TOPICS)]
    rows = tables.read("topics_hourly", first, last).withColumn("date", F.floor(F.col("hour") / DAY).cast("bigint"))
    ends = rows.groupBy("date").agg(F.max("hour").alias("hour"))
    kept = F.when(F.col("topic").isin(*largest), F.col("topic")) if largest else F.lit(None).cast("string")
    sums = (
        rows.join(F.broadcast(ends), ["date", "hour"])
        .groupBy("date", kept.alias("name"))
        .agg(F.sum("stored_bytes").alias("stored"), F.count("*").alias("topics"))
    )
    return _pandas(sums, ("date", "name"))


def _unread(
    tables: Tables, states: pd.DataFrame, first: int, last: int, history_first: int
) -> tuple[pd.DataFrame, int, int]:
    """Topics that hold records and of which no client was sent any in the period, or the last week if that is longer.

    The largest: topic, stored_bytes, records_a_day, last_read (hour, null if not in the history); with the bytes and the
    number of all of them. Names that begin with `__` are the broker's own.
    """
    since = min(first, last - WEEK)
    reads = _collected(
        tables.read("traffic_hourly", history_first, last)
        .where(F.col("topic").isNotNull() & (F.col("api") == "Fetch") & (F.col("bytes_out") > 0))
        .groupBy("topic")
        .agg(F.max("hour").alias("last_read"))
    )
    held = states[(states["stored_bytes"] > 0) & ~states["topic"].astype(str).str.startswith("__")]
    joined = held[["topic", "stored_bytes", "records_a_day"]].merge(reads, on="topic", how="left")
    joined["last_read"] = joined["last_read"].astype("float64")
    unread = joined[~(joined["last_read"] >= since)]
    return unread.head(2 * TOP).reset_index(drop=True), int(unread["stored_bytes"].sum()), len(unread)


def _lag(rows: DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The readers that are furthest behind: kind, name, topic, lag_max, lag_seconds_max, lag_last, lag_first; and by hour.

    `lag_last` and `lag_first` are means over the last and the first hours of the period, a quarter of it.
    """
    keys = ["kind", "name", "topic"]
    bounds = rows.agg(F.min("hour"), F.max("hour")).collect()[0]
    quarter = 0 if bounds[0] is None else (bounds[1] - bounds[0] + HOUR) // 4
    early = F.when(F.col("hour") < (bounds[0] or 0) + max(quarter, HOUR), F.col("lag_avg"))
    late = F.when(F.col("hour") > (bounds[1] or 0) - max(quarter, HOUR), F.col("lag_avg"))
    sums = rows.groupBy(*keys).agg(
        F.max("lag_max").alias("lag_max"),
        F.max("lag_seconds_max").alias("lag_seconds_max"),
        F.avg(early).alias("lag_first"),
        F.avg(late).alias("lag_last"),
    )
    shown = _largest(sums.where("lag_max > 0"), F.col("lag_max"), keys, 2 * TOP)
    shown["topic"] = shown["topic"].fillna("")
    if shown.empty:
        return shown, pd.DataFrame({"hour": [], "kind": [], "name": [], "topic": [], "lag": [], "seconds": []})
    wanted = {tuple(row) for row in shown.head(6)[keys].itertuples(index=False)}
    identity = F.struct("kind", "name", F.coalesce("topic", F.lit("")).alias("topic"))
    chosen = identity.isin(*[F.struct(*[F.lit(part) for part in one]) for one in sorted(wanted)])
    hours = rows.where(chosen).select(
        "hour", "kind", "name", F.coalesce("topic", F.lit("")).alias("topic"), F.col("lag_max").alias("lag"),
        F.col("lag_seconds_max").alias("seconds"),
    )  # fmt: skip
    return shown, _pandas(hours, (*keys, "hour"))


def traffic_by_client_and_topic(
    spark: SparkSession, directory: Path, first: int, last: int
) -> Iterator[tuple[Any, ...]]:
    """Yield (principal, client, topic or None, bytes in, bytes out) of the period, a row for each that there was."""
    rows = (
        Tables(spark, directory)
        .read("traffic_hourly", first, last)
        .groupBy("principal", "client", "topic")
        .agg(F.sum("bytes_in"), F.sum("bytes_out"))
    )
    yield from (tuple(row) for row in rows.toLocalIterator())


def stored_byte_hours(spark: SparkSession, directory: Path, first: int, last: int) -> Iterator[tuple[Any, ...]]:
    """Yield (topic, byte-hours) of the period: an hour that is not covered is not counted."""
    rows = Tables(spark, directory).read("topics_hourly", first, last)
    yield from (tuple(row) for row in rows.groupBy("topic").agg(F.sum("stored_bytes")).toLocalIterator())
