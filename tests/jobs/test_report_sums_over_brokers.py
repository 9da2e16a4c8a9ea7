"""The figures of topics whose partitions are on several brokers, some of which are not read."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from odradek.jobs.usage_report import aggregates, capacity, prometheus, tables
from odradek.jobs.usage_report.spool import FACTS
from odradek.jobs.usage_report.table_files import SCHEMAS
from tests.jobs.spools import HOUR_MS, at

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200), pytest.mark.java]

DAY = at("2025-11-20")
HOUR, DAY_S = 3600, 86_400
LAST = DAY // 1000

ENDS = (1_000_000_000, 10_000_000, 5_000_000)  # of the partitions
PAIRS = ((1, 2), (2, 3), (3, 1))  # the replicas of each, the leader first
TRUTH = sum(ENDS)


def facts(spark: Any, rows: list[dict[str, Any]], schema: pa.Schema = FACTS) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return spark.createDataFrame(
        [tuple(row.get(name) for name in schema.names) for row in rows], from_arrow_schema(schema)
    )


def row_of(topic: str, broker: int, replicas: tuple[tuple[int, ...], ...], *, leads: bool = True) -> dict[str, Any]:
    """The row of the broker: each partition has an end of `ENDS` and a start of a tenth of that."""
    here = [end for end, brokers in zip(ENDS, replicas, strict=False) if broker in brokers]
    led = [end for end, brokers in zip(ENDS, replicas, strict=False) if brokers[0] == broker]
    row = {
        "kind": "topic", "boot": f"b{broker}", "broker": broker, "seq": 60, "hour": DAY, "end_ms": DAY + HOUR_MS,
        "topic": topic, "id": "00", "partitions": len(replicas), "replicas": len(here), "stored_bytes": sum(here),
        "largest_partition_bytes": max(here, default=0), "end_offsets": sum(here), "start_offsets": sum(here) // 10,
        "retention_ms": -1, "retention_bytes": -1,
    }  # fmt: skip
    if leads:
        row |= {"led": len(led), "led_end_offsets": sum(led), "led_start_offsets": sum(led) // 10}
    return row


def test_offsets_of_each_partition_count_once_or_are_unknown(spark: Any) -> None:
    everywhere = tuple((first, *(broker for broker in (1, 2, 3) if broker != first)) for first in (1, 2, 3))
    apart = ((1, 2), (3, 4))
    moved = ((2, 1), (2, 3), (3, 1))  # broker 1 is down: broker 2 leads its partition
    cases: dict[str, tuple[list[dict[str, Any]], int | None]] = {}

    def case(name: str, replicas: Any, read: tuple[int, ...], expected: int | None, *, leads: bool = True) -> None:
        cases[name] = [row_of(name, broker, replicas, leads=leads) for broker in read], expected

    case("all", PAIRS, (1, 2, 3), TRUTH)
    case("all, older", PAIRS, (1, 2, 3), TRUTH, leads=False)
    for read in combinations((1, 2, 3), 2):
        case(f"only {read}", PAIRS, read, None)
        case(f"only {read}, older", PAIRS, read, None, leads=False)
        case(f"replicas everywhere, {read}", everywhere, read, TRUTH)
    case("broker 1 is down", moved, (2, 3), TRUTH)
    case("twice as often as there are partitions", apart, (1, 2), None)
    case("two of three, older", everywhere, (1, 2), TRUTH, leads=False)
    case("alone, all", everywhere, (3,), TRUTH)
    case("alone, a part", PAIRS, (1,), None)
    rows = [row for rows, _ in cases.values() for row in rows]
    mixed = [row_of("one older", 1, PAIRS), row_of("one older", 2, PAIRS, leads=False)]
    cases["one older"] = mixed, None
    rows += mixed
    made = {row["topic"]: row for row in tables._topics(facts(spark, rows), 3).collect()}
    assert {name: made[name]["end_offsets"] for name in cases} == {name: end for name, (_, end) in cases.items()}
    for name, (_, end) in cases.items():
        assert made[name]["start_offsets"] == (None if end is None else made[name]["end_offsets"] // 10), name
    assert made["only (1, 2)"]["stored_bytes"] == 2 * ENDS[0] + ENDS[1] + ENDS[2]


def test_a_single_broker_of_an_older_version_knows_all_its_partitions(spark: Any) -> None:
    row = row_of("orders", 1, ((1,), (1,), (1,)), leads=False) | {"replicas": None}
    [topic] = tables._topics(facts(spark, [row]), 1).collect()
    assert (topic["end_offsets"], topic["start_offsets"]) == (TRUTH, TRUTH // 10)


def store(directory: Path, name: str, rows: list[dict[str, Any]]) -> None:
    """Write rows, whose hours are in seconds, as a table of the report."""
    schema = SCHEMAS[name]
    for day in sorted({row["hour"] // DAY_S for row in rows}):
        own = [{**row, "hour": row["hour"] * 1_000_000} for row in rows if row["hour"] // DAY_S == day]
        target = directory / name / f"day={tables.day_name(day * DAY_S * 1000)}"
        target.mkdir(parents=True)
        numbers = pa.schema([(field.name, pa.int64() if field.name == "hour" else field.type) for field in schema])
        pq.write_table(pa.Table.from_pylist(own, numbers).cast(schema), target / "part.parquet")


def test_the_growth_is_between_hours_with_known_offsets(spark: Any, tmp_path: Path) -> None:
    def topic(name: str, hour: int, end: int | None) -> dict[str, Any]:
        return {
            "hour": LAST + hour * HOUR, "topic": name, "partitions": 3, "replicas": 6, "stored_bytes": 1000,
            "largest_partition_bytes": 500, "end_offsets": end, "start_offsets": None if end is None else 0,
            "retention_ms": -1, "retention_bytes": -1,
        }  # fmt: skip

    ends = {
        "unread at the end": {-49: 1000, -25: 1100, -2: 1200, -1: None},
        "unread at the beginning": {-49: None, -25: 1100, -1: 1200},
        "never known": {-49: None, -25: None, -1: None},
        "unknown for a day": {-49: 1000, -26: 1100, -1: None},
    }
    store(
        tmp_path,
        "topics_hourly",
        [topic(name, hour, end) for name, hours in ends.items() for hour, end in hours.items()],
    )
    states = aggregates._states(aggregates.Tables(spark, tmp_path), LAST)
    growth = dict(zip(states["topic"], states["records_a_day"], strict=True))
    assert growth["unread at the end"] == pytest.approx(200 / (47 / 24))
    assert growth["unread at the beginning"] == pytest.approx(100)
    unknown = states.set_index("topic")["records_a_day"].isna()
    assert unknown["never known"] and unknown["unknown for a day"]
    rates = {topic.name: topic.rate for topic in capacity.topics_of(states)[0]}
    assert rates["unread at the beginning"] == pytest.approx(100 * 1000 / 1200)
    assert rates["never known"] == rates["unknown for a day"] == 0


def test_an_instance_is_known_by_its_job_and_all_of_its_name(spark: Any) -> None:
    """An instance label may be a URL, and two jobs may scrape different brokers under one instance."""
    places = {
        ("proxy", "http://b1/metrics"): 1, ("proxy", "http://b2/metrics"): 2, ("a", "b:1"): 3, ("b", "b:1"): 4,
        ("c", "b:1"): None,
    }  # fmt: skip
    rows = [
        {
            "kind": "log_dir", "column": column, "hour": DAY, "job": name, "instance": instance, "path": "/data", "min": 5.0,
            "last": 9.0,
        }
        for name, instance in places
        for column in ("free_bytes", "total_bytes")
    ]  # fmt: skip
    ids = {f"{name}/{instance}": broker for (name, instance), broker in places.items() if broker is not None}
    made = tables.from_prometheus(facts(spark, rows, prometheus.FACTS), ids)["log_dirs_hourly"].collect()
    assert sorted((row["broker"] or 0, row["path"]) for row in made) == [
        (0, "b:1: /data"), (1, "/data"), (2, "/data"), (3, "/data"), (4, "/data"),
    ]  # fmt: skip
    of_instances = [metric.query.template for metric in prometheus.METRICS if "instance" in metric.query.template]
    assert of_instances and all("by (job, instance, " in template for template in of_instances)


def test_the_lag_of_a_reader_is_that_at_all_brokers(spark: Any) -> None:
    def reader(broker: int, lag: int, back_ms: int | None) -> dict[str, Any]:
        return {
            "kind": "reader", "boot": f"b{broker}", "broker": broker, "seq": 60, "hour": DAY, "principal": "User:a",
            "client": "c", "topic": "t", "lag_max": lag, "lag_sum": lag * 60, "lag_count": 60,
            "lag_seconds_max": lag / 10, "back_ms": back_ms,
        }  # fmt: skip

    made = tables.from_spool(facts(spark, [reader(1, 30, None), reader(2, 40, DAY + 5)]), {"b1": None, "b2": None}, 2)
    [row] = made["lag_hourly"].collect()
    assert row.asDict() == {
        "hour": DAY, "kind": "reader", "name": "User:a/c", "topic": "t", "lag_max": 70, "lag_avg": 70.0, "lag_seconds_max": 4.0,
        "back_ms": DAY + 5,
    }  # fmt: skip
