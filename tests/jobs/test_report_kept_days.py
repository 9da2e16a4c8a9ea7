"""What earlier runs have written: which days are kept, which brokers they knew, and whose disks they saw. Without Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from odradek.jobs.usage_report import aggregates, gaps, job, small_tables, table_files, tables
from odradek.jobs.usage_report.options import Job, Source
from tests.jobs.spools import HOUR_MS, at

DAY = at("2025-11-20")
DAY_MS = 24 * HOUR_MS
DAY_S = 86_400
FIRST = DAY // 1000
Store = Callable[..., None]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Writes rows, whose hours are in milliseconds, as a table; `without` names columns that older versions did not write."""

    def write(name: str, rows: Sequence[dict[str, Any]], *without: str) -> None:
        schema = pa.schema([field for field in table_files.SCHEMAS[name] if field.name not in without])
        numbers = pa.schema([(field.name, pa.int64() if field.name == "hour" else field.type) for field in schema])
        for day in sorted({row["hour"] // DAY_MS for row in rows}):
            own = [{**row, "hour": row["hour"] * 1000} for row in rows if row["hour"] // DAY_MS == day]
            target = tmp_path / "tables" / name / f"day={tables.day_name(day * DAY_MS)}"
            target.mkdir(parents=True)
            pq.write_table(pa.Table.from_pylist(own, numbers).cast(schema), target / "part.parquet")

    return write


def of(directory: Path) -> Any:
    """The tables, for functions that read small ones only."""
    return SimpleNamespace(directory=directory / "tables")


def covered(broker: int | None, hours: range, share: float = 1) -> list[dict[str, Any]]:
    return [
        {
            "hour_ms": DAY + hour * HOUR_MS, "hour": DAY + hour * HOUR_MS, "broker": broker, "source": "spool",
            "intervals": int(60 * share), "covered_ms": int(HOUR_MS * share), "carried_ms": 0,
        }
        for hour in hours
    ]  # fmt: skip


def test_a_day_is_kept_if_a_broker_had_more_data(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tables").mkdir()
    store("coverage_hourly", covered(1, range(12)) + covered(2, range(24)))
    written: list[tuple[list[str], list[gaps.Gap]]] = []
    monkeypatch.setattr(
        table_files, "write", lambda _, made, gap_rows, coverage, days: written.append((days, gap_rows))
    )
    usage = Job(Source(spools=("/a", "/b")), DAY, DAY + DAY_MS, tmp_path)

    def said(*rows: list[dict[str, Any]]) -> list[str]:
        lines: list[str] = []
        job._write(usage, DAY, DAY + DAY_MS, {}, [], [row for each in rows for row in each], lines.append)
        assert (written.pop()[0] == []) == bool(lines)
        return lines

    assert said(covered(1, range(12)), covered(2, range(24))) == []
    # the broker with most of each hour covers as much, and there are more intervals than before
    [line] = said(covered(1, range(24)), covered(2, range(12)))
    assert "has 12.0 of the 24.0 hours of broker 2 from which" in line
    [line] = said(covered(2, range(24)), covered(3, range(24)))
    assert "has 0.0 of the 12.0 hours of broker 1 from which" in line
    assert said(covered(1, range(12)), covered(2, range(24)), covered(3, range(24))) == []
    [line] = said()
    assert "of broker 1" in line


def test_tables_of_older_versions_are_compared_as_a_whole(store: Store, tmp_path: Path) -> None:
    old = [row | {"intervals": 120} for row in covered(None, range(24))]
    store("coverage_hourly", old, "broker", "carried_ms")
    before = tables.written_coverage(tmp_path / "tables", ["2025-11-20"])["2025-11-20"]

    def lost(*rows: list[dict[str, Any]]) -> str:
        [now] = tables.coverage_by_day(row for each in rows for row in each).values()
        return before.lost(now)

    assert lost(covered(1, range(24)), covered(2, range(24))) == ""
    assert lost(covered(1, range(23)), covered(2, range(23))) == "23.0 of the 24.0 hours"
    assert lost(covered(1, range(24))) == "1440 of the 2880 intervals"


def test_gaps_of_a_period_are_stored_by_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gap that does not end at midnight would be missing on the pages of the later days."""
    (tmp_path / "tables").mkdir()
    kept: list[gaps.Gap] = []
    monkeypatch.setattr(table_files, "write", lambda _, made, gap_rows, coverage, days: kept.extend(gap_rows))
    usage = Job(Source(spools=("/a", "/b")), DAY, DAY + 3 * DAY_MS, tmp_path)
    away = [gaps.Gap(DAY, DAY + 3 * DAY_MS, "its spool was not read", "http://b:9404")]
    job._write(usage, DAY, DAY + 3 * DAY_MS, {}, away, covered(1, range(24)), lambda _: None)
    assert [(gap.from_ms - DAY, gap.to_ms - DAY) for gap in kept] == [
        (day * DAY_MS, (day + 1) * DAY_MS) for day in range(3)
    ]


def test_brokers_before_agrees_with_older_data(store: Store, tmp_path: Path) -> None:
    directory = tmp_path / "tables"
    assert small_tables.brokers_before(directory, FIRST) == set()

    def row(day: int, broker: int | None) -> dict[str, Any]:
        return {"hour": DAY + day * DAY_MS, "broker": broker, "path": "/d", "free_bytes_min": 1, "total_bytes": 2}

    store("log_dirs_hourly", [row(-100, 7), row(-1, 8), row(0, 9)])  # however long ago
    assert small_tables.brokers_before(directory, FIRST) == {7, 8}
    assert small_tables.brokers_before(directory, FIRST - 50 * DAY_S) == {7}
    assert small_tables.brokers_before(directory, FIRST - 200 * DAY_S) == set()
    for days in (0, 50, 200):
        first = FIRST - days * DAY_S
        known = small_tables.brokers_before(directory, first)
        assert bool(known) == small_tables.has_older(directory, first)
    store("log_dirs_hourly", [row(-3, None)])
    assert small_tables.brokers_before(directory, FIRST) is None


def test_older_tables_without_log_directories_are_of_any_broker(store: Store, tmp_path: Path) -> None:
    worker = {"hour": DAY - DAY_MS, "broker": 1, "worker": 0, "connections_max": 1, "bytes_in": 1, "bytes_out": 1}
    store("workers_hourly", [worker])
    assert small_tables.has_older(tmp_path / "tables", FIRST)
    assert small_tables.brokers_before(tmp_path / "tables", FIRST) is None


def test_an_hour_is_covered_as_by_the_broker_with_most_of_it(store: Store, tmp_path: Path) -> None:
    store("coverage_hourly", covered(1, range(2), 0.5) + covered(2, range(2)))

    found, _ = aggregates._covered(of(tmp_path), FIRST, FIRST + DAY_S)
    assert found == {FIRST: HOUR_MS, FIRST + 3600: HOUR_MS}


def disk(hour: int, broker: int | None, path: str = "/data", free: int = 50) -> dict[str, Any]:
    return {"hour": DAY + hour * HOUR_MS, "broker": broker, "path": path, "free_bytes_min": free, "total_bytes": 100}


def disks_of(directory: Path) -> dict[tuple[str, str], int]:
    """The log directories at the end of the day, with the number of hours of their history."""
    rows = aggregates._log_dirs(of(directory), FIRST - 30 * DAY_S, FIRST + DAY_S)
    return {key: len(hours) for key, hours in rows.groupby(["broker", "path"])}


def test_a_disk_without_data_of_the_last_day_does_not_exist(store: Store, tmp_path: Path) -> None:
    kept = [disk(hour, 1) for hour in range(-40, 24)]
    removed = [disk(hour, 1, "/old") for hour in range(-40, 0)] + [disk(hour, 2) for hour in range(-40, -20)]
    just = [disk(hour, 3) for hour in range(-40, 1)]
    store("log_dirs_hourly", kept + removed + just)
    assert disks_of(tmp_path) == {("1", "/data"): 64, ("3", "/data"): 41}


def test_the_history_of_a_single_broker_continues_after_an_upgrade(store: Store, tmp_path: Path) -> None:
    unnamed = [disk(hour, None) for hour in range(-40, 0)] + [disk(hour, None, "/removed") for hour in range(-40, -9)]
    store("log_dirs_hourly", unnamed + [disk(hour, 1) for hour in range(24)])
    assert disks_of(tmp_path) == {("1", "/data"): 64}


def test_unnamed_disks_are_of_no_broker_of_several(store: Store, tmp_path: Path) -> None:
    unnamed = [disk(hour, None) for hour in range(-40, 0)]
    named = [disk(hour, broker) for hour in range(24) for broker in (1, 2)]
    store("log_dirs_hourly", unnamed + named)
    assert disks_of(tmp_path) == {("1", "/data"): 24, ("2", "/data"): 24}


def test_the_disk_of_an_instance_without_a_name_stays_apart(store: Store, tmp_path: Path) -> None:
    """While brokers are upgraded one after the other, some do not say their ids to Prometheus."""
    store(
        "log_dirs_hourly",
        [disk(hour, at, path) for hour in range(24) for at, path in ((1, "/d"), (None, "b2:9404: /d"))],
    )
    assert disks_of(tmp_path) == {("1", "/d"): 24, ("", "b2:9404: /d"): 24}


def test_workers_of_an_unknown_broker_have_a_name(store: Store, tmp_path: Path) -> None:
    def worker(hour: int, broker: int | None) -> dict[str, Any]:
        return {"hour": DAY + hour * HOUR_MS, "broker": broker, "worker": 0, "bytes_in": 1, "bytes_out": 1}

    store("workers_hourly", [worker(0, None), worker(1, 1)])

    def names() -> list[Any]:
        return aggregates._workers(tmp_path / "tables", FIRST - DAY_S, FIRST + DAY_S)["worker"].tolist()

    assert names() == [0, 0]  # one broker, whose older rows do not name it
    store("workers_hourly", [worker(-1, 2)])
    assert sorted(names()) == ["0 of an unknown broker", "0 of broker 1", "0 of broker 2"]
