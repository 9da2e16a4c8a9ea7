"""From the spool to the tables: equal to plain additions to the byte, after crashes, clock changes and damaged files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from odradek.cli.main import main
from odradek.jobs.usage_report import aggregates
from odradek.jobs.usage_report.errors import ReportError
from odradek.jobs.usage_report.options import Source
from odradek.testing import Broker
from tests.jobs import spools
from tests.jobs.conftest import Report
from tests.jobs.spools import HOUR_MS, MINUTE_MS, at
from tests.metrics.scraping import scrape
from tests.sasl import SaslWire, settings
from tests.waiting import until
from tests.wire import batch

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200), pytest.mark.java]

DAY = at("2025-11-20")
NEXT_DAY = at("2025-11-21")
SPOOL = {"metrics.listener": "127.0.0.1:0", "usage.spool.max.bytes": 1 << 20, "usage.spool.interval.ms": 1000}
"""The settings of a broker that writes a spool."""
TABLES = (
    "traffic_hourly",
    "topics_hourly",
    "log_dirs_hourly",
    "lag_hourly",
    "workers_hourly",
    "coverage_hourly",
    "gaps",
)


def traffic_of(report: Report) -> dict[tuple[Any, ...], tuple[int, ...]]:
    """The table of traffic in the form of `spools.traffic`."""
    rows = report.rows("traffic_hourly")
    found = {
        (row["hour"], row["principal"], row["client"], row["topic"], row["api"]): tuple(
            row[name] for name in spools.COLUMNS
        )
        for row in rows
    }
    assert len(found) == len(rows), "no key may be there twice"
    return found


def within(
    truth: dict[tuple[Any, ...], tuple[int, ...]], from_ms: int, to_ms: int
) -> dict[tuple[Any, ...], tuple[int, ...]]:
    return {key: values for key, values in truth.items() if from_ms <= key[0] < to_ms}


def make_a_life(directory: Path) -> tuple[list[spools.Boot], dict[str, Path]]:
    """Two days of a broker that crashes, whose clock is set, and whose spool is damaged; returns boots and damaged files."""
    directory.mkdir()
    first = spools.Boot(directory, "aa01", at("2025-11-19T22:20:13"))
    first.set(kind="topic", topic="orders", id="01", partitions=3, bytes=1000, largest=400, end=90, start=5,
              retention_ms=7, retention_bytes=-1)  # fmt: skip
    first.set(kind="log_dir", path="/data", free=5000, total=9000, online=True)
    first.set(kind="worker", worker=0, connections=4, busy_us=5_000_000, **{"in": 50, "out": 60})
    first.set(kind="group", group="g", topic="orders", lag=10, lag_s=None, members=2)
    spools.live(first, 101, seed=1)  # until 00:01:13 of the day
    first.set(kind="topic", topic="orders", id="01", partitions=3, bytes=2000, largest=900, end=190, start=6,
              retention_ms=7, retention_bytes=-1)  # fmt: skip
    first.set(kind="log_dir", path="/data", free=3000, total=9000, online=True)
    spools.live(first, 20, seed=2)
    first.set(kind="log_dir", path="/data", free=4000, total=9000, online=True)
    first.set(kind="worker", worker=0, connections=9, busy_us=5_000_000 + 29 * 60 * 500_000, **{"in": 80, "out": 70})
    first.set(kind="group", group="g", topic="orders", lag=40, lag_s=2.5, members=2)
    first.set(
        kind="reader", principal="User:s", client="spark", topic="orders", lag=7, lag_s=0.5, back=first.wall_ms - 9
    )
    spools.live(first, 9, seed=3)
    first.set(kind="worker", worker=0, connections=2, busy_us=5_000_000 + 29 * 60 * 500_000, **{"in": 80, "out": 70})
    spools.live(first, 100, seed=4)
    first.count((0, "User:u0", "client-0", None, "Fetch"), [1] * 8)
    first.tick(lost=True)
    # the last write of a broker that died: rows without the end of their interval
    torn = first.files[-1]
    with torn.open("ab") as file:
        file.write(spools.line({"kind": "usage", "page": 0, "principal": "User:u0"})[:30])
    second = spools.Boot(directory, "bb02", first.wall_ms + 7 * MINUTE_MS)
    spools.live(second, 130, seed=5, retire=0.2)
    second.tick(jump_ms=40 * MINUTE_MS)
    spools.live(second, 90, seed=6)
    second.tick(jump_ms=-95 * MINUTE_MS)
    spools.live(second, 30, seed=7)
    second.tick(length_ms=25 * MINUTE_MS)  # the reporter stood still
    spools.live(second, 300, seed=8)
    for path in [*first.files[:-1], *second.files[:3]]:
        spools.compress(path)
    return [first, second], {"torn": torn}


def test_a_life_with_restarts_and_set_clocks_is_counted_to_the_byte(report: Report, tmp_path: Path) -> None:
    boots, hurt = make_a_life(tmp_path / "spool")
    source = Source(spools=(str(tmp_path / "spool"),))
    said = report.run(source, DAY, NEXT_DAY)
    truth = spools.traffic(*boots)
    assert traffic_of(report) == within(truth, DAY, NEXT_DAY)
    assert any(hurt["torn"].name in line and "byte" in line for line in said), said

    [topic] = [row for row in report.rows("topics_hourly") if row["hour"] == DAY]
    assert {name: topic[name] for name in ("topic", "partitions", "stored_bytes", "largest_partition_bytes")} == {
        "topic": "orders", "partitions": 3, "stored_bytes": 2000, "largest_partition_bytes": 900,
    }  # fmt: skip
    assert (topic["end_offsets"], topic["start_offsets"]) == (190, 6)
    assert (topic["retention_ms"], topic["retention_bytes"]) == (7, -1)
    [log_dir] = [row for row in report.rows("log_dirs_hourly") if row["hour"] == DAY]
    assert (log_dir["broker"], log_dir["path"], log_dir["free_bytes_min"], log_dir["total_bytes"]) == (
        1,
        "/data",
        3000,
        9000,
    )
    lags = {(row["kind"], row["name"], row["topic"]): row for row in report.rows("lag_hourly") if row["hour"] == DAY}
    group = lags[("group", "g", "orders")]
    # the hour's intervals end at 00:00:13, ... 00:59:13; the 23rd is the first with the new lag
    assert (group["lag_max"], group["lag_seconds_max"]) == (40, 2.5)
    assert group["lag_avg"] == pytest.approx((10 * 22 + 40 * 38) / 60)
    reader = lags[("reader", "User:s/spark", "orders")]
    assert (reader["lag_avg"], reader["back_ms"]) == (7, at("2025-11-20T00:21:13") - 9)
    assert group["back_ms"] is None
    workers = {row["hour"]: row for row in report.rows("workers_hourly")}
    assert workers[DAY]["connections_max"] == 9
    assert workers[DAY]["busy_share"] == pytest.approx(29 * 0.5 / 60)
    assert (workers[DAY]["bytes_in"], workers[DAY]["bytes_out"]) == (30, 10)
    assert workers[DAY + HOUR_MS]["busy_share"] == 0

    gaps = report.rows("gaps")
    reasons = [row["reason"] for row in gaps]
    down = next(row for row in gaps if "did not run" in row["reason"])
    assert (down["from"], down["to"]) == (
        boots[0].places and boots[0].wall_ms - MINUTE_MS,
        boots[1].wall_ms and down["to"],
    )
    assert down["to"] - down["from"] == 8 * MINUTE_MS
    for said_so in ("set forward by 2400 s", "set back by 5700 s", "an interval of 1500 s", "ends in the middle"):
        assert any(said_so in reason for reason in reasons), (said_so, reasons)
    assert gaps[-1]["to"] == NEXT_DAY, "the end of the day is not there"

    # a second night over the same days: the same rows in the same order, whatever was there before
    before = {name: report.rows(name) for name in TABLES}
    report.run(source, DAY - 2 * HOUR_MS, NEXT_DAY)
    assert traffic_of(report) == truth
    for name in TABLES:
        again = report.rows(name)
        assert [row for row in again if str(row["day"]) == "2025-11-20"] == before[name], name
        assert name == "gaps" or len(again) > len(before[name]), "the day before was added"


def test_damaged_and_missing_files_are_reported_and_lose_only_their_counts(report: Report, tmp_path: Path) -> None:
    directory = tmp_path / "spool"
    directory.mkdir()
    boot = spools.Boot(directory, "cc03", at("2025-11-20T01:00:30"))
    spools.live(boot, 8 * 60 - 10, seed=11, retire=0)
    truth = spools.traffic(boot)
    files = boot.files
    # hour 2: a byte of one interval's rows; hour 3: gone; hour 4: compressed and cut; hour 5: not readable gzip; hour 6: empty
    path, start, _ = next(place for place in boot.places if place[0] == files[1] and place[1] > 5000)
    content = bytearray(path.read_bytes())
    content[start + 50] ^= 1
    path.write_bytes(content)
    files[2].unlink()
    cut = spools.compress(files[3])
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size * 2 // 3])
    broken = spools.compress(files[4])
    broken.write_bytes(b"no gzip at all" * 10)
    files[5].write_bytes(b"")
    said = report.run(Source(spools=(str(directory),)), DAY, NEXT_DAY)
    for name, byte in ((files[1].name, f"byte {start}:"), (cut.name, "byte"), (broken.name, "byte")):
        assert any(name in line and byte in line and line.startswith("warning: skipped") for line in said), (name, said)
    found = traffic_of(report)
    whole_hours = {DAY + hour * HOUR_MS for hour in (1, 2, 8)}
    for hour in whole_hours:
        assert within(found, hour, hour + HOUR_MS) == within(truth, hour, hour + HOUR_MS)
    # what was counted while nothing could be read is in the first hour behind it: no count is lost, and none twice
    for column in range(len(spools.COLUMNS)):
        assert sum(values[column] for values in found.values()) == sum(values[column] for values in truth.values())
    gaps = report.rows("gaps")
    missing = [row for row in gaps if "missing" in row["reason"]]
    one = next(row for row in missing if files[1].name in row["source"])
    assert one["reason"].startswith("1 interval missing") and one["to"] - one["from"] == MINUTE_MS
    assert f"byte {start}" in one["source"]
    assert one["damaged_files"] == files[1].name
    assert {name for row in gaps for name in row["damaged_files"].split()} == {files[1].name, cut.name, broken.name}
    assert sum(row["to"] - row["from"] for row in gaps if "missing" in row["reason"]) > 3 * HOUR_MS


def test_counters_older_than_the_spool_count_from_its_first_row(report: Report, tmp_path: Path) -> None:
    directory = tmp_path / "spool"
    directory.mkdir()
    boot = spools.Boot(directory, "dd04", at("2025-11-20T01:00:30"))
    old, new = (0, "User:a", "old", "t", "Produce"), (0, "User:a", "new", "t", "Produce")
    boot.count(old, [1000] * 8)
    for _ in range(59):
        boot.tick()
    [rotated] = boot.files
    boot.count(old, [10] * 8)  # in the first interval that is left: nothing tells it from what was before
    boot.tick()
    boot.count(old, [3] * 8)
    boot.count(new, [5] * 8)
    boot.tick()
    rotated.unlink()
    report.run(Source(spools=(str(directory),)), DAY, NEXT_DAY)
    found = traffic_of(report)
    assert {key[2]: values[0] for key, values in found.items()} == {"old": 3, "new": 5}
    assert any("1 counter began before the oldest file of the spool" in row["reason"] for row in report.rows("gaps"))


def test_tables_of_days_that_the_spool_no_longer_has_are_kept(report: Report, tmp_path: Path) -> None:
    directory = tmp_path / "spool"
    directory.mkdir()
    boot = spools.Boot(directory, "ee05", at("2025-11-20T10:00:30"))
    spools.live(boot, 3 * 60, seed=21)
    source = Source(spools=(str(directory),))
    report.run(source, DAY, NEXT_DAY)
    before = {name: report.rows(name) for name in TABLES}
    boot.files[0].unlink()
    said = report.run(source, DAY, NEXT_DAY)
    assert any("2025-11-20 are kept" in line for line in said), said
    assert {name: report.rows(name) for name in TABLES} == before
    for path in boot.files[1:]:
        path.unlink()
    with pytest.raises(ReportError, match="has no data from 2025-11-20T00:00:00Z"):
        report.run(source, DAY, NEXT_DAY)
    assert {name: report.rows(name) for name in TABLES} == before


def test_bytes_of_a_topic_by_log_directory_are_those_at_the_end_of_the_hour(report: Report, tmp_path: Path) -> None:
    directory = tmp_path / "spool"
    directory.mkdir()
    boot = spools.Boot(directory, "ff06", at("2025-11-20T10:00:00"))
    for minute in range(90):
        boot.set(kind="stored", topic='a "b",\\c', path="/disk1", bytes=1000 + minute)
        boot.set(kind="stored", topic='a "b",\\c', path="/disk2", bytes=7)
        boot.tick()
    report.run(Source(spools=(str(directory),)), DAY, NEXT_DAY)
    ten = at("2025-11-20T10:00:00")
    assert [
        (row["hour"], row["topic"], row["broker"], row["path"], row["stored_bytes"])
        for row in report.rows("topic_dirs_hourly")
    ] == [
        (ten + hour * HOUR_MS, 'a "b",\\c', 1, path, size)
        for hour, sizes in ((0, (1058, 7)), (1, (1089, 7)))
        for path, size in zip(("/disk1", "/disk2"), sizes, strict=True)
    ]


def test_a_spool_without_bytes_by_log_directory_makes_an_empty_table_of_them(report: Report, tmp_path: Path) -> None:
    directory = tmp_path / "spool"
    directory.mkdir()
    boot = spools.Boot(directory, "aa07", at("2025-11-20T10:00:30"))
    spools.live(boot, 70, seed=3)
    report.run(Source(spools=(str(directory),)), DAY, NEXT_DAY)
    assert report.rows("topic_dirs_hourly") == []
    assert traffic_of(report) == spools.traffic(boot)


def test_coverage_names_the_hour_that_holds_the_counts_of_lost_intervals(report: Report, tmp_path: Path) -> None:
    directory = tmp_path / "spool"
    directory.mkdir()
    boot = spools.Boot(directory, "bb08", at("2025-11-20T10:00:00"))
    spools.live(boot, 5 * 60, seed=4)
    for path in boot.files[1:3]:  # of 11:00 and 12:00
        path.unlink()
    report.run(Source(spools=(str(directory),)), DAY, NEXT_DAY)
    eleven = at("2025-11-20T11:00:00")
    carried = {row["hour"]: row["carried_ms"] for row in report.rows("coverage_hourly") if row["carried_ms"]}
    assert carried == {eleven + 2 * HOUR_MS: 2 * HOUR_MS + MINUTE_MS}


def test_the_page_names_the_principal_of_a_login(spark: Any, tmp_path: Path) -> None:
    """From a broker's spool. The command uses the session that there is."""
    out = tmp_path / "out"
    with Broker(settings() | SPOOL, {"orders": 1}, directory=tmp_path / "broker") as broker:
        with SaslWire.on(broker) as wire:
            wire.log_in()
            assert wire.produce("orders", batch(b"x" * 1000)).error_code == 0
        alice = {"principal": "User:alice", "api": "Produce", "topic": "orders"}
        until(lambda: scrape(broker).sum("odradek_usage_records_in_total", **alice) == 1, "the metrics name alice")

        def spooled() -> bool:
            lines = [line for file in broker.data_dir.glob("usage-*") for line in file.read_text().splitlines()]
            return any("User:alice" in line and "Produce" in line for line in lines)

        until(spooled, "the spool names alice")
    arguments = ("--spool", broker.data_dir, "--from", "-1d", "--to", "tomorrow", "--out", out)
    done = CliRunner().invoke(main, ["report", "usage", *map(str, arguments)])
    assert done.exit_code == 0, f"{done.output}\n{done.exception!r}"
    assert "(User:alice)" in (out / "report.html").read_text()


def test_nothing_is_missing_before_the_first_start_of_a_broker(report: Report, tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    boot = spools.Boot(tmp_path / "spool", "aa01", at("2025-11-20T16:25:13"))
    spools.live(boot, 455, seed=1)  # until the next day
    report.run(Source(spools=(str(tmp_path / "spool"),)), DAY, NEXT_DAY)
    assert report.rows("gaps") == []
    first, last, begin_s = DAY // 1000, NEXT_DAY // 1000, at("2025-11-20T16:00") // 1000
    tables = report.out / "tables"
    assert aggregates.data_begin(tables, first, last) == begin_s
    assert aggregates.data_begin(tables, first - 6 * 86400, last) == begin_s
    assert aggregates.data_begin(tables, begin_s + 3600, last) is None
    # a day before which there are data: what is missing until the next start is a gap
    later = spools.Boot(tmp_path / "spool", "bb02", at("2025-11-21T02:00:13"))
    spools.live(later, 60, seed=2)
    report.run(Source(spools=(str(tmp_path / "spool"),)), NEXT_DAY, NEXT_DAY + 24 * HOUR_MS)
    missing = [row for row in report.rows("gaps") if row["to"] == at("2025-11-21T02:00:13")]
    assert missing and aggregates.data_begin(tables, last, last + 86400) is None
