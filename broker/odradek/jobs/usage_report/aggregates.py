"""Aggregates the Parquet tables in Spark to the few rows that the page shows.

Runs in the driver of the report's job; Spark reads the tables that `tables` wrote. Nothing here writes.

Every frame is small, independent of the size of the tables: one row per hour, or the `TOP` largest of a kind with the sum
of the rest. Only the frame for the forecast has a row for each topic (10,000 rows). Times are seconds since 1970 (column
`hour`), UTC. An hour without a row in any table is **not covered**: it is a gap in a chart, and never zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from odradek.jobs.usage_report import counts, small_tables
from odradek.jobs.usage_report.counts import COUNTS, Topics

HOUR = 3600
DAY = 86400
WEEK = 7 * DAY
#: Days of history that trends use.
HISTORY_DAYS = 120
TOP = 10
#: Topics that the chart of storage shows by name; the rest is one area.
NAMED_TOPICS = 7
#: Milliseconds of an hour that must be covered so that the hour is compared with the same hour a week before.
_COMPARABLE_MS = 3_240_000
#: An hour that also contains the counts of more than this time before it is not compared.
_CARRIED_MS = 360_000

_TWICE = tuple(count.column for count in counts.TABLE if count.topics is Topics.TWICE)
_WITHOUT_TOPIC = tuple(count.column for count in counts.TABLE if count.topics is Topics.NONE)
GAP_COLUMNS = ("from", "to", "reason", "source", "damaged_files")
#: The columns of the tables that Spark reads. The driver reads the others, which have a few rows per hour (`small_tables`).
SCHEMAS = {
    "traffic_hourly": "hour timestamp, principal string, client string, topic string, api string, "
    + ", ".join(f"{name} bigint" for name in COUNTS)
    + ", day string",
    "topics_hourly": "hour timestamp, topic string, partitions bigint, replicas bigint, stored_bytes bigint, "
    "largest_partition_bytes bigint, end_offsets bigint, start_offsets bigint, retention_ms bigint, retention_bytes bigint, "
    "day string",
    "lag_hourly": "hour timestamp, kind string, name string, topic string, lag_max bigint, lag_avg double, "
    "lag_seconds_max double, back_ms bigint, day string",
}
#: Readers whose lag is drawn.
_DRAWN_LAGS = 6
#: A reader whose connections were open for less than this in the period is left out of the lag: somebody looked at a topic. The
#: command `odradek`, which people use all day, is left out if its connections were open for less than this per hour on average.
_SHORT_MS = 300_000
_COMMAND = "odradek"
#: Groups and readers that are examined, the largest lag first, to find those that are not left out.
_EXAMINED_LAGS = 1000


@dataclass(frozen=True)
class Figures:
    """The contents of the page, as frames of pandas; see the functions below for the columns of each.

    `first` and `last` are the period in seconds (`last` is exclusive). `compared` are the hours of the last week (or of the
    period if that is shorter), in seconds, that are covered now and a week before; `covered` all covered hours since
    `history_first`. `carried` has the hours that also contain the counts of a gap, with the seconds from the beginning of
    the gap to the hour. `placed` has the bytes of each topic by log directory at the end (topic, broker, path, bytes).
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
    carried: dict[int, float]
    placed: pd.DataFrame

    @property
    def hours(self) -> range:
        """The hours of the period."""
        return range(self.first // HOUR * HOUR, self.last, HOUR)

    @property
    def missing_hours(self) -> int:
        """Hours of the period without data."""
        return sum(1 for hour in self.hours if hour not in self.covered)


class Tables:
    """The tables under one directory, as Spark frames with `hour` in seconds; a table that does not exist is empty."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self.directory = directory
        # listing the days of a few months in separate Spark jobs takes longer than listing them here
        spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.threshold", "1000")

    def read(self, name: str, first: int, last: int) -> DataFrame:
        """Return the rows of `name` whose time lies from `first` to before `last` (seconds); only those days are opened."""
        days = small_tables.days(self.directory, name, first, last)
        if not days:
            return self._seconds(self._spark.createDataFrame([], SCHEMAS[name]), name)
        # the schema is given, because Spark would start a job to read it from the files
        rows = (
            self._spark.read.schema(SCHEMAS[name])
            .option("basePath", str(self.directory / name))
            .parquet(*map(str, days))
        )
        rows = self._seconds(rows, name)
        return rows.where((F.col("hour") >= first // HOUR * HOUR) & (F.col("hour") < last))

    @staticmethod
    def _seconds(rows: DataFrame, name: str) -> DataFrame:
        rows = rows.withColumn("hour", F.col("hour").cast("double").cast("bigint"))
        if name == "traffic_hourly":
            rows = rows.withColumn("topic", F.when(F.col("topic") != "", F.col("topic")))
        if (
            name == "topics_hourly"
        ):  # Prometheus may lack some values of a topic; its retention and offsets stay unknown
            rows = rows.fillna(0, ["stored_bytes", "largest_partition_bytes"])
            rows = rows.fillna(1, ["partitions"])
            rows = rows.withColumn(
                "replicas", F.coalesce("replicas", "partitions")
            )  # missing in tables of older versions
        return rows


def _collected(frame: DataFrame) -> pd.DataFrame:
    rows = frame.toPandas()
    assert isinstance(rows, pd.DataFrame)
    return rows


def _pandas(frame: DataFrame, order: Sequence[str]) -> pd.DataFrame:
    """Collect in a fixed order, so that the same tables always produce the same page."""
    return _collected(frame).sort_values(list(order), kind="stable", ignore_index=True)


def _largest(frame: DataFrame, by: Column, keys: Sequence[str], count: int = TOP) -> pd.DataFrame:
    return _collected(frame.orderBy(by.desc_nulls_last(), *keys).limit(count))


def aggregate(spark: SparkSession, directory: Path, first: int, last: int) -> Figures:
    """Aggregate the tables under `directory` for the period from `first` to before `last`, in seconds."""
    tables = Tables(spark, directory)
    history_first = min(first, (last - HISTORY_DAYS * DAY) // DAY * DAY)
    covered, carried = _covered(tables, history_first, last)
    compared, wanted = _compared(covered, carried, first, last)
    traffic = _traffic(tables, first, last, compared)
    topics, topic_count = _topics(traffic["topic"])
    clients, client_count = _clients(traffic["client"])
    states = _states(tables, last)
    lag, lag_hourly = _lag(tables.read("lag_hourly", first, last), _short(traffic["client"], last - first))
    unread, unread_bytes, unread_count = _unread(tables, states, first, last, history_first)
    seen = {hour for hour, known in covered.items() if known}
    return Figures(
        first=first,
        last=last,
        history_first=min(seen, default=first),
        covered=frozenset(seen),
        compared=tuple(compared),
        compared_wanted=wanted,
        hourly=traffic["hour"],
        topics=topics,
        clients=clients,
        apis=traffic["api"],
        states=states,
        stored_daily=_stored_daily(tables, states, history_first, last),
        unread=unread,
        log_dirs=_log_dirs(tables, history_first, last),
        lag=lag,
        lag_hourly=lag_hourly,
        workers=_workers(directory, first, last),
        gaps=small_tables.read(directory, "gaps", first, last).sort_values(
            list(GAP_COLUMNS), kind="stable", ignore_index=True
        ),
        counts={
            "topics_with_traffic": topic_count,
            "clients": client_count,
            "throttled_clients": int((traffic["client"]["throttle_ms"] > 0).sum()),
            "unread_topics": unread_count,
            "unread_bytes": unread_bytes,
        },
        carried=carried,
        placed=_placed(tables, last),
    )


def _covered(tables: Tables, first: int, last: int) -> tuple[dict[int, int], dict[int, float]]:
    """Return the covered milliseconds per hour, and the seconds of `Figures.carried`.

    On days without a coverage table each hour with a row in another table counts as fully covered.
    """
    rows = small_tables.read(tables.directory, "coverage_hourly", first, last)
    sums = rows.groupby("hour").agg(ms=("covered_ms", "max"), carried=("carried_ms", "max"))
    covered = {int(hour): int(ms) for hour, ms in sums["ms"].items() if ms}
    carried = {int(hour): ms / 1000 for hour, ms in sums["carried"].items() if ms > _CARRIED_MS}
    days = {hour // DAY for hour in covered}
    for name in ("log_dirs_hourly", "workers_hourly", "topics_hourly", "traffic_hourly"):
        for day in small_tables.days(tables.directory, name, first, last):
            if small_tables.day_number(day) not in days:
                for hour in small_tables.hours(day, first, last):
                    covered[hour] = HOUR * 1000
    return covered, carried


def _compared(covered: dict[int, int], carried: dict[int, float], first: int, last: int) -> tuple[list[int], int]:
    start = max(first, last - WEEK) // HOUR * HOUR
    hours = range(start, last, HOUR)

    def whole(hour: int) -> bool:
        return covered.get(hour, 0) >= _COMPARABLE_MS and hour not in carried

    return [hour for hour in hours if whole(hour) and whole(hour - WEEK)], len(hours)


def _log_dirs(tables: Tables, first: int, last: int) -> pd.DataFrame:
    """Return free and total bytes per hour and log directory. An unknown broker is "".

    A log directory without data of the last day is left out: it does not exist any more. If there is only one broker, rows of
    its directories from before that do not name a broker (older versions did not always do so with Prometheus) are its own.
    """
    rows = small_tables.read(tables.directory, "log_dirs_hourly", first, last).dropna(
        subset=["free_bytes_min", "total_bytes"]
    )
    brokers = rows["broker"].dropna().unique()
    if len(brokers) == 1:
        begin = rows[rows["broker"].notna()].groupby("path")["hour"].min()
        before = rows["broker"].isna() & (rows["hour"] < rows["path"].map(begin))
        rows = rows.assign(broker=rows["broker"].mask(before, brokers[0]))
    rows = rows.assign(broker=_broker_names(rows["broker"]))
    if len(rows):
        rows = rows[rows.groupby(["broker", "path"])["hour"].transform("max") >= last - DAY]
    sums = rows.groupby(["broker", "path", "hour"], as_index=False).agg(
        free=("free_bytes_min", "min"), total=("total_bytes", "max")
    )
    return sums.astype({"free": "int64", "total": "int64"})


def _workers(directory: Path, first: int, last: int) -> pd.DataFrame:
    """Return the rows of the workers by hour; `worker` is a number, or a text that names the broker if there are several."""
    rows = small_tables.read(directory, "workers_hourly", first, last)
    rows = rows.sort_values(["broker", "worker", "hour"], kind="stable", ignore_index=True)
    if rows["broker"].nunique() > 1:
        rows["worker"] = [
            f"{worker} of broker {broker}" if broker else f"{worker} of an unknown broker"
            for worker, broker in zip(rows["worker"], _broker_names(rows["broker"]), strict=True)
        ]
    return rows


def _broker_names(brokers: pd.Series) -> pd.Series:
    return brokers.map(lambda broker: "" if pd.isna(broker) else str(int(broker)))


def _placed(tables: Tables, last: int) -> pd.DataFrame:
    """Return the last known bytes of each topic by log directory, if they are at most a day older than the end."""
    rows = small_tables.read(tables.directory, "topic_dirs_hourly", last - DAY, last)
    rows = rows[rows["hour"] == rows["hour"].max()]
    rows = rows.assign(broker=_broker_names(rows["broker"])).rename(columns={"stored_bytes": "bytes"})
    return rows[["topic", "broker", "path", "bytes"]].sort_values(["topic", "broker", "path"], ignore_index=True)


def _traffic(tables: Tables, first: int, last: int, compared: Sequence[int]) -> dict[str, pd.DataFrame]:
    """Return, from one pass over the traffic, sums by "hour" (of all hours), and of the period by "topic", "client" and "api".

    Requests and errors are the counts without a topic (docs/decisions/0016-metering.md). `week` and `week_before` are the bytes
    in and out of the compared hours.
    """
    rows = tables.read("traffic_hourly", min(first, last - WEEK) - WEEK, last)
    period = F.col("hour").between(first // HOUR * HOUR, last - 1)
    now = F.col("hour").isin(*compared) if compared else F.lit(False)
    before = F.col("hour").isin(*[hour - WEEK for hour in compared]) if compared else F.lit(False)
    moved = F.col("bytes_in") + F.col("bytes_out")
    own = F.col("topic").isNull()
    values = {name: F.when(own, F.col(name)).otherwise(0) if name in _TWICE else F.col(name) for name in COUNTS}
    sums = {f"all_{name}": value for name, value in values.items()}
    sums |= {name: F.when(period, value).otherwise(0) for name, value in values.items()}
    sums |= {"week": F.when(now, moved).otherwise(0), "week_before": F.when(before, moved).otherwise(0)}
    keys = {"hour": ["hour"], "topic": ["topic"], "client": ["principal", "client"], "api": ["api"]}
    names = [name for columns in keys.values() for name in columns]
    columns = [F.col(name).alias(f"by_{name}") for name in names]
    sets = [[f"by_{name}" for name in key_names] for key_names in keys.values()]
    grouped = rows.select(*columns, *(value.alias(name) for name, value in sums.items())).groupingSets(
        sets, *(f"by_{name}" for name in names)
    )
    collected = _collected(grouped.agg(F.grouping_id().alias("set"), *(F.sum(name).alias(name) for name in sums)))
    result = {}
    for kind, key_names in keys.items():
        number = sum(1 << at for at, name in enumerate(reversed(names)) if name not in key_names)
        part = collected[collected["set"] == number].rename(columns={f"by_{name}": name for name in key_names})
        if kind == "hour":
            hourly = part[["hour", *(f"all_{name}" for name in COUNTS)]].rename(columns={f"all_{n}": n for n in COUNTS})
            part = hourly.astype({"hour": "int64"})
        else:
            part = part[[*key_names, *COUNTS, "week", "week_before"]]
        result[kind] = part.sort_values(key_names, kind="stable", ignore_index=True)
    apis = result["api"][["api", "requests", "errors"]]
    result["api"] = apis[(apis["requests"] > 0) | (apis["errors"] > 0)].reset_index(drop=True)
    return result


def _head(rows: pd.DataFrame, by: pd.Series, keys: Sequence[str], most: int) -> pd.DataFrame:
    """Return the `most` rows with the largest `by`, ties ordered by `keys`."""
    order = rows.assign(order=by).sort_values(["order", *keys], ascending=[False, *(True for _ in keys)], kind="stable")
    return order.head(most).drop(columns="order")


def _topics(rows: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Return the topics with the most traffic: topic, bytes and records in and out, week, week_before; and their number."""
    rows = rows[rows["topic"].notna()].drop(columns=[*_TWICE, *_WITHOUT_TOPIC])
    moved = rows["bytes_in"] + rows["bytes_out"]
    shown = _head(rows, np.maximum(moved, rows["week_before"]), ["topic"], 3 * TOP)
    return shown.reset_index(drop=True), int((moved > 0).sum())


def _clients(rows: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Return the clients with the most traffic, errors or throttling, with all counts, week and week_before; and
    their number.
    """
    moved = rows["bytes_in"] + rows["bytes_out"]
    keys = ["principal", "client"]
    parts = [_head(rows, np.maximum(moved, rows["week_before"]), keys, 3 * TOP)]
    for name in ("errors", "throttle_ms", "connection_ms"):
        nonzero = rows[rows[name] > 0]
        parts.append(_head(nonzero, nonzero[name], keys, TOP))
    shown = pd.concat(parts, ignore_index=True).drop_duplicates(keys, ignore_index=True)
    return shown, int(((moved > 0) | (rows["requests"] > 0)).sum())


def _states(tables: Tables, last: int) -> pd.DataFrame:
    """Return the last known state of all topics, if it is at most a day older than the end: the columns of `topics_hourly`,
    `before` (bytes stored a week earlier, null if unknown) and `records_a_day` (null if unknown).

    Offsets are the last known ones of the day; they are unknown in an hour in which a broker was not read.
    """
    rows = tables.read("topics_hourly", last - WEEK - DAY, last)
    state = F.struct("hour", "partitions", "replicas", "stored_bytes", "largest_partition_bytes", "retention_ms",
                     "retention_bytes")  # fmt: skip
    recent = F.col("hour") >= last - WEEK
    known = F.col("end_offsets").isNotNull() & F.col("start_offsets").isNotNull()
    ends = F.when(known & recent, F.struct("hour", "end_offsets", "start_offsets"))
    states = _collected(
        rows.groupBy("topic")
        .agg(
            F.max(state).alias("now"),
            F.min(ends).alias("begin"),
            F.max(F.when(F.col("hour") >= last - DAY, ends)).alias("end"),
            F.max(F.when(~recent, F.struct("hour", "stored_bytes"))).alias("earlier"),
        )
        .where(F.col("now.hour") >= last - DAY)
        .select(
            "topic",
            "now.*",
            F.col("end.end_offsets").alias("end_offsets"),
            F.col("end.start_offsets").alias("start_offsets"),
            F.col("end.hour").alias("end_hour"),
            F.col("earlier.stored_bytes").alias("before"),
            F.col("begin.hour").alias("begin_hour"),
            F.col("begin.end_offsets").alias("begin_end"),
        )
    )
    if len(states):
        # only the topics of the last hour with topics: a topic that is missing there was deleted
        states = states[states["hour"] == states["hour"].max()]
    days = (states["end_hour"] - states["begin_hour"]) / DAY
    appended = states["end_offsets"] - states["begin_end"]
    appended = appended.where(
        ~(appended < 0), states["end_offsets"]
    )  # the topic was deleted and created again meanwhile
    states["records_a_day"] = (appended / days.where(days > 0)).astype("float64")
    return states.drop(columns=["begin_hour", "begin_end", "end_hour"]).sort_values(
        ["stored_bytes", "topic"], ascending=[False, True], ignore_index=True
    )


def _stored_daily(tables: Tables, states: pd.DataFrame, first: int, last: int) -> pd.DataFrame:
    """Return the bytes stored at the end of each day, of the NAMED_TOPICS largest topics and of the rest (name None)."""
    largest = [str(name) for name in states["topic"].head(NAMED_TOPICS)]
    kept = F.when(F.col("topic").isin(*largest), F.col("topic")) if largest else F.lit(None).cast("string")
    sums = (
        tables.read("topics_hourly", first, last)
        .groupBy("hour", kept.alias("name"))
        .agg(F.sum("stored_bytes").alias("stored"), F.count("*").alias("topics"))
    )
    daily = _pandas(sums, ("hour", "name"))
    daily["date"] = daily["hour"] // DAY
    ends = daily["hour"] == daily.groupby("date")["hour"].transform("max")
    return daily[ends][["date", "name", "stored", "topics"]].reset_index(drop=True)


def _unread(
    tables: Tables, states: pd.DataFrame, first: int, last: int, history_first: int
) -> tuple[pd.DataFrame, int, int]:
    """Return the topics that contain records of which none was sent to a client in the period (or the last week, if longer).

    The largest topics: topic, stored_bytes, records_a_day, last_read (hour, null if not in the history); and the bytes and the
    number of all such topics. Topics whose names begin with `__` belong to the broker and are left out.
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


def data_begin(directory: Path, first: int, last: int) -> int | None:
    """Return the hour of the first data of all times if it is in the period, and nothing is missing before it; else None."""
    if small_tables.has_older(directory, first):
        return None
    day = first // DAY * DAY
    while day < last and not any(
        small_tables.days(directory, name, day, day + DAY) for name in ("coverage_hourly", "gaps")
    ):
        day += DAY
    rows = small_tables.read(directory, "coverage_hourly", day, min(day + DAY, last))
    begin = int(rows["hour"].min()) if len(rows) else last
    missing = small_tables.read(directory, "gaps", day, min(day + DAY, last))
    return begin if first < begin < last and not (missing["from"] < begin).any() else None


def _short(clients: pd.DataFrame, seconds: int) -> frozenset[str]:
    """Return the names of readers (as in `lag_hourly`) that were connected for a short time, see `_SHORT_MS`.

    :param seconds: length of the period
    """
    limit_ms = np.where(clients["client"] == _COMMAND, _SHORT_MS * max(1, seconds / HOUR), _SHORT_MS)
    held = clients[(clients["connection_ms"] > 0) & (clients["connection_ms"] < limit_ms)]
    return frozenset(f"{row.principal}/{row.client}" for row in held.itertuples(index=False))


def _lag(rows: DataFrame, short: frozenset[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the readers with the largest lag (kind, name, topic, lag_max, lag_seconds_max, lag_last, lag_first), and by hour.

    `lag_first` and `lag_last` are means over the first and the last quarter of the period. `catches_up`: the lag of the last
    hour is at most half of the highest, as some time after a group's offsets were reset. `stall_hours` is the number of hours
    up to the last one in which the lag never fell; `stall_begin` and `stall_end` are the lag in the first and the last of them.
    `back` is when a reader's position last moved back in the period (seconds), null: never; `back_late`: that was in the last
    quarter, or since the lag stopped falling. The lag of such a reader says from where it reads, not that it falls behind.

    :param short: names of readers that are left out
    """
    keys = ["kind", "name", "topic"]
    rows = rows.withColumn("topic", F.coalesce("topic", F.lit("")))
    most = rows.groupBy(*keys).agg(
        F.max("lag_max").alias("lag_max"),
        F.max("lag_seconds_max").alias("lag_seconds_max"),
        (F.max("back_ms") / 1000).alias("back"),
    )
    shown = _largest(most.where("lag_max > 0"), F.col("lag_max"), keys, _EXAMINED_LAGS)
    shown = shown[(shown["kind"] == "group") | ~shown["name"].isin(short)].head(2 * TOP).reset_index(drop=True)
    if shown.empty:
        columns = ["lag_first", "lag_last", "catches_up", "stall_hours", "stall_begin", "stall_end", "back_late"]
        return shown.assign(**{name: [] for name in columns}), pd.DataFrame(
            {"hour": [], "kind": [], "name": [], "topic": [], "lag": [], "seconds": []}
        )
    selected = F.struct(*keys).isin(
        *[F.struct(*[F.lit(part) for part in key]) for key in shown[keys].itertuples(index=False)]
    )
    hours = _pandas(
        rows.where(selected).select(*keys, "hour", "lag_max", "lag_avg", "lag_seconds_max"), (*keys, "hour")
    )
    begin, end = int(hours["hour"].min()), int(hours["hour"].max())
    quarter = max((end - begin + HOUR) // 4, HOUR)
    of_reader = dict(iter(hours.groupby(keys, sort=False)))
    facts = []
    for key in shown[keys].itertuples(index=False):
        lags = of_reader[tuple(key)]
        early, late = lags[lags["hour"] < begin + quarter], lags[lags["hour"] > end - quarter]
        means = {"lag_first": early["lag_avg"].mean(), "lag_last": late["lag_avg"].mean()}
        catches_up = bool(lags["lag_avg"].iloc[-1] <= lags["lag_avg"].max() / 2)
        facts.append({**means, "catches_up": catches_up, **_stall(lags, end)})
    shown = pd.concat([shown, pd.DataFrame(facts)], axis=1)
    shown["back"] = shown["back"].astype("float64").where(lambda at: at >= begin)
    since = np.minimum(end + HOUR - quarter, end + HOUR - HOUR * shown["stall_hours"])
    shown["back_late"] = shown["back"] >= since
    drawn = pd.concat([of_reader[tuple(key)] for key in shown.head(_DRAWN_LAGS)[keys].itertuples(index=False)])
    drawn = drawn.rename(columns={"lag_max": "lag", "lag_seconds_max": "seconds"}).drop(columns="lag_avg")
    return shown, drawn.sort_values([*keys, "hour"], kind="stable", ignore_index=True)


def _stall(rows: pd.DataFrame, end: int) -> dict[str, Any]:
    """Return for how long up to the hour `end` the lag of one reader never fell. :param rows: ordered by `hour`"""
    means = rows["lag_avg"].tolist()
    if not means or math.isnan(means[-1]) or int(rows["hour"].iloc[-1]) < end:
        return {"stall_hours": 0, "stall_begin": math.nan, "stall_end": math.nan}
    begin = len(means) - 1
    while begin > 0 and means[begin - 1] <= means[begin]:
        begin -= 1
    return {"stall_hours": len(means) - begin, "stall_begin": means[begin], "stall_end": means[-1]}


def traffic_by_client_and_topic(
    spark: SparkSession, directory: Path, first: int, last: int
) -> Iterator[tuple[Any, ...]]:
    """Yield (principal, client, topic or None, bytes in, bytes out) of the period, one row per combination."""
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
