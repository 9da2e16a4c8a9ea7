"""Findings and their sentences: hours after a gap, stalled groups, two disks, small costs, numbers with nouns."""

import re
from typing import Any

import numpy as np
import pytest

from odradek.jobs.usage_report import capacity, whatif
from odradek.jobs.usage_report.aggregates import DAY, GAP_COLUMNS, HOUR, _stall
from odradek.jobs.usage_report.cost import Cost, Prices
from odradek.jobs.usage_report.findings import busiest, findings, gaps_of, span_of_days
from odradek.jobs.usage_report.forecast import Forecast
from odradek.jobs.usage_report.gaps import Scraped, Span, coverage, scrape_coverage
from odradek.jobs.usage_report.page import capacity_sections, svg, text, traffic_sections
from odradek.jobs.usage_report.page.charts import COUNT, BarChart, HeatChart, TimeChart, ticks
from odradek.jobs.usage_report.page.svg_parts import WIDTHS
from odradek.jobs.usage_report.page.text import Cell, Table, name_cell, table_lines
from odradek.jobs.usage_report.report import CheckedOptions, compose
from tests.jobs.report_figures import FIRST, LAG_COLUMNS, STATE_COLUMNS, figures, frame, hours, log_dir

GB = 10**9
HOUR_MS = HOUR * 1000
OPTIONS = CheckedOptions(None, [], (), False)


def plain(said: str) -> str:
    return said.replace("\N{NARROW NO-BREAK SPACE}", " ").replace("\N{MINUS SIGN}", "-")


def found_in(given: Any, disks: Any = ()) -> dict[str, str]:
    """Return {key: sentence} of the findings."""
    return {one.key: plain(one.sentence) for one in findings(given, list(disks), gaps_of(given))}


# -- costs ------------------------------------------------------------------------------------------------------------------


def test_small_costs_have_distinct_labels() -> None:
    costs = [
        Cost("Shop", 1, 1, 1, 0.47, 0.0, 0.0),
        Cost("Web", 1, 1, 1, 0.19, 0.0, 0.0),
        Cost("Bi", 1, 1, 1, 0.0042, 0.0, 0.0),
    ]
    section = capacity_sections.cost(costs, Prices("EUR", 1.0, 1.0, 1.0), figures())
    [chart] = section.charts
    assert isinstance(chart, BarChart)
    labels = re.findall(r'<text class="value"[^>]*>([^<]*)<', svg.draw(chart))
    assert labels == ["0.47", "0.19", "0.0042"] * len(WIDTHS)
    [table] = section.tables
    assert [row[-1].text for row in table.rows] == ["0.47 EUR", "0.19 EUR", "0.0042 EUR"]


def test_an_axis_of_counts_has_whole_numbers_each_once() -> None:
    for highest in (0.4, 1, 2, 3, 7, 8, 10, 11, 40, 99, 1e6, 2.4e9):
        marks = ticks(highest, COUNT)
        labels = [text.count(value) for value in marks]
        assert all(value == int(value) for value in marks) and len(set(labels)) == len(labels), (highest, labels)
        assert marks[-1] >= highest * 0.999


# -- hours after a gap ------------------------------------------------------------------------------------------------------


def spans(*hours_and_seqs: tuple[int, int, int, int]) -> list[Span]:
    """Return spans of (hour, first seq, from minute, to minute) with one interval per minute."""
    at = FIRST * 1000
    return [
        Span("b", seq, seq + end - start - 1, at + start * 60_000, at + end * 60_000, end - start, (end - start) * 60_000,
             60_000, 0, at + hour * HOUR_MS, "file")
        for hour, seq, start, end in hours_and_seqs
    ]  # fmt: skip


def test_coverage_contains_the_time_from_the_beginning_of_a_gap_to_the_hour() -> None:
    # intervals are missing from 1:30 to 4:10, and two minutes within the hour of 5:00
    some = spans((0, 1, 0, 60), (1, 61, 60, 90), (4, 251, 250, 300), (5, 301, 300, 310), (5, 313, 312, 360))
    assert {row["hour_ms"] // HOUR_MS - FIRST // HOUR: row["carried_ms"] for row in coverage(some)} == {
        0: 0, 1: 0, 4: 150 * 60_000, 5: 0,
    }  # fmt: skip


def test_an_interval_of_hours_carries_what_was_counted_before_its_hour() -> None:
    at = FIRST * 1000
    long = Span("b", 61, 61, at + HOUR_MS, at + 4 * HOUR_MS + 60_000, 1, 3 * HOUR_MS + 60_000, 3 * HOUR_MS + 60_000, 0,
                at + 4 * HOUR_MS, "file")  # fmt: skip
    rows = coverage([*spans((0, 1, 0, 60)), long, *spans((4, 62, 241, 300))])
    assert [row["carried_ms"] for row in rows] == [0, 3 * HOUR_MS]


def test_a_scrape_gap_is_carried_unless_the_broker_was_restarted_in_it() -> None:
    at = FIRST * 1000
    before = Scraped("a", at, at, at + 600_000, 10, 1.0)
    after = Scraped("a", at + 3 * HOUR_MS, at + 3 * HOUR_MS + 60_000, at + 4 * HOUR_MS, 59, 1.0)
    assert [row["carried_ms"] for row in scrape_coverage([before, after], {})] == [0, 3 * HOUR_MS - 600_000]
    assert [row["carried_ms"] for row in scrape_coverage([before, after._replace(boot=2.0)], {})] == [0, 0]


def after_a_gap() -> Any:
    """A day of 1.0 GB an hour, 1.3 at nine; hours 2 to 6 are missing, and hour 7 holds their counts."""
    moved = [GB] * 24
    moved[2:7], moved[7], moved[9] = [0] * 5, 6 * GB, int(1.3 * GB)
    hourly = hours(moved)
    covered = frozenset(FIRST + hour * HOUR for hour in range(24) if not 2 <= hour < 7)
    gap = frame(GAP_COLUMNS, [(FIRST + 2 * HOUR, FIRST + 7 * HOUR, "300 intervals missing", "between a and b", "")])
    return figures(
        hourly=hourly[hourly["bytes_in"] > 0], covered=covered, carried={FIRST + 7 * HOUR: 5.0 * HOUR}, gaps=gap
    )


def test_the_busiest_hour_is_not_one_that_holds_the_counts_of_a_gap() -> None:
    given = after_a_gap()
    page, made = compose(given, [], OPTIONS, "")
    assert int(busiest(given)["hour"].iloc[0]) == FIRST + 9 * HOUR
    assert "the busiest hour was Thu 20 Nov 09:00 UTC with 361 kB/s in and out together" in found_in(given)["traffic"]
    [tile] = [tile for tile in page.tiles if tile.key == "peak"]
    assert tile.value == 1.3 * GB and "09:00" in tile.small
    assert made.document["traffic"]["bytes_in"] == given.hourly["bytes_in"].sum(), "sums still hold all bytes"


def test_charts_and_heat_divide_the_counts_of_a_gap_by_its_time() -> None:
    given = after_a_gap()
    two_days = figures(**{**vars(given), "last": FIRST + 2 * DAY})
    section = traffic_sections.traffic(two_days)
    [heat] = [chart for chart in section.charts if isinstance(chart, HeatChart)]
    assert (
        heat.cells[0][7] == pytest.approx(GB / HOUR) and max(cell or 0.0 for cell in heat.cells[0]) == 1.3 * GB / HOUR
    )
    [chart] = [chart for chart in section.charts if isinstance(chart, TimeChart)]
    assert chart.lines[0].values[7] == pytest.approx(GB / HOUR)
    [peaks] = [table for table in section.tables if table.name == "peaks"]
    assert "07:00" not in " ".join(row[0].text for row in peaks.rows)
    assert peaks.note.startswith("1 hour after a gap is not ranked")


def test_a_heat_chart_is_beside_the_busiest_hours_only_if_it_is_about_as_high() -> None:
    for days, beside in ((2, False), (7, True), (28, False)):
        given = figures(last=FIRST + days * DAY, hourly=hours([GB] * 24 * days))
        rows = traffic_sections.traffic(given).parts
        assert any(len(row) == 2 for row in rows) is beside, days


# -- groups that stand still ------------------------------------------------------------------------------------------------


def lag(
    kind: str, name: str, means: list[float], topic: str = "orders", seconds: float = float("nan")
) -> tuple[Any, ...]:
    """Return a row of `Figures.lag` from one mean per hour."""
    by_hour = frame(("hour", "lag_avg"), [(FIRST + at * HOUR, mean) for at, mean in enumerate(means)])
    stall = _stall(by_hour, FIRST + (len(means) - 1) * HOUR)
    quarter = max(1, len(means) // 4)
    first, last = np.mean(means[:quarter]), np.mean(means[-quarter:])
    return (
        kind,
        name,
        topic,
        int(max(means)),
        seconds,
        first,
        last,
        stall["stall_hours"],
        stall["stall_begin"],
        stall["stall_end"],
        means[-1] <= max(means) / 2,
        float("nan"),
        False,
    )


DEAD = [2.3e6 + hour * 1.2e6 / 23 for hour in range(24)]


def test_a_group_that_is_dead_since_days_is_a_finding_though_its_lag_does_not_double() -> None:
    given = figures(lag=frame(LAG_COLUMNS, [lag("group", "billing", DEAD, seconds=200_000.0)]))
    [one] = [one for one in findings(given, [], gaps_of(given)) if one.key == "lag_grows"]
    assert one.level == "warn" and one.subject == "billing orders"
    assert plain(one.sentence) == (
        "Group billing does not catch up on orders: in the last 24 known hours its mean lag of an hour never fell and grew "
        "from 2.30 M to 3.50 million records; the oldest unread record was up to 2.3 d old."
    )


def test_a_working_group_with_a_large_lag_is_not_a_finding() -> None:
    waves = [2e6 + 5e5 * np.sin(hour) for hour in range(24)]
    for means in (waves, [2.3e6] * 24, [3.5e6 - hour for hour in range(24)], [10.0 + hour for hour in range(24)]):
        assert "lag_grows" not in found_in(figures(lag=frame(LAG_COLUMNS, [lag("group", "g", means)])))


def test_a_reader_that_goes_back_or_catches_up_does_not_fall_behind() -> None:
    growing, reset = (
        [5_000.0 * 2**hour for hour in range(5)],
        [0.0, 0.0, 0.0, 0.0, 90_000.0, 60_000.0, 30_000.0, 9_000.0],
    )
    row = lag("reader", "User:a/export", growing)
    assert "falls behind" in found_in(figures(lag=frame(LAG_COLUMNS, [row])))["lag_grows"]
    back = (*row[:-2], FIRST + 4 * HOUR, True)
    assert "lag_grows" not in found_in(figures(lag=frame(LAG_COLUMNS, [back])))
    assert "lag_grows" not in found_in(figures(lag=frame(LAG_COLUMNS, [lag("group", "reset", reset)])))
    [table] = traffic_sections.lag(figures(lag=frame(LAG_COLUMNS, [back]))).tables
    assert [row[7].text for row in table.rows] == ["Thu 20 Nov 04:00"]


def test_a_group_that_is_not_known_at_the_end_has_not_stalled() -> None:
    rows = frame(("hour", "lag_avg"), [(FIRST + at * HOUR, mean) for at, mean in enumerate(DEAD[:20])])
    assert _stall(rows, FIRST + 23 * HOUR)["stall_hours"] == 0


def test_the_members_of_a_group_are_not_found_again_as_readers() -> None:
    rows = [
        lag("reader", "User:a/billing-1", [value / 2 for value in DEAD]),
        lag("reader", "User:b/other", [value * 3 for value in DEAD]),
        lag("reader", "User:a/billing-1", DEAD, topic="clicks"),
        lag("group", "billing", DEAD),
    ]
    given = figures(lag=frame(LAG_COLUMNS, rows))
    subjects = [one.subject for one in findings(given, [], gaps_of(given)) if one.key == "lag_grows"]
    assert subjects == ["User:b/other orders", "billing orders", "User:a/billing-1 clicks"]


# -- two disks --------------------------------------------------------------------------------------------------------------


def state(topic: str, stored: float, records_a_day: float) -> tuple[Any, ...]:
    """A row of `Figures.states` of a topic without retention whose records have 1,000 bytes."""
    return (topic, FIRST, 2, 2, int(stored), int(stored / 2), int(stored / 1000), 0, -1, -1, None, records_a_day)


def two_disks(what_if: str, placed: bool = True) -> dict[str, capacity.Disk]:
    """audit.* grows on disk1 by 2 GB a day; orders lies on disk2, which is flat at 158 GB."""
    days = 28
    used = [100.0 * GB + day * 2 * GB for day in range(days)]
    flat = [158.0 * GB + day % 2 * GB / 10 for day in range(days)]
    rows = [*log_dir("/disk1", used, 400.0 * GB), *log_dir("/disk2", flat, 400.0 * GB)]
    dirs = frame(("broker", "path", "hour", "free", "total"), rows)
    states = frame(STATE_COLUMNS, [state("audit.a", 150 * GB, 2e6), state("orders", 150 * GB, 0.0)])
    where = [("audit.a", "1", "/disk1", 150 * GB), ("orders", "1", "/disk2", 150 * GB)] if placed else []
    made = capacity.disks(dirs, states, [whatif.parse(what_if)], frame(("topic", "broker", "path", "bytes"), where))
    return {disk.name: disk for disk in made}


def test_a_what_if_changes_only_the_disk_on_which_its_topics_lie() -> None:
    disks = two_disks("retention.ms=7d,topic=audit.*")
    flat, audit = disks["/disk2"], disks["/disk1"]
    assert flat.forecast is not None and audit.forecast is not None
    assert np.array_equal(flat.scenarios[0].forecast.paths, flat.forecast.paths)
    median = np.quantile(audit.scenarios[0].forecast.paths, 0.5, axis=0)
    # what is not of the topic stays: 154 GB are used, 150 of them by audit
    assert median[60] < 0.4 * 154 * GB and median.min() >= (154 - 150) * GB * 0.99
    assert all(disk.knows_topics for disk in disks.values())


def test_a_shorter_retention_never_removes_bytes_of_other_topics() -> None:
    disks = two_disks("retention.ms=1h,topic=audit.*")
    for disk in disks.values():
        assert disk.forecast is not None
        others = disk.total - disk.free - (150 * GB if disk.name == "/disk1" else 0)
        assert (disk.scenarios[0].forecast.paths >= np.minimum(disk.forecast.paths, others) - 1).all()


@pytest.mark.parametrize("added", [10, 20])
def test_a_disk_that_is_added_in_the_middle_of_the_history_has_a_forecast_from_its_own_days(added: int) -> None:
    """4 GB a day on one disk; 53 % of all bytes move to the second one on the day on which it is added."""
    days, total = 35, 400.0 * GB
    noise = np.random.default_rng(3).normal(0, 0.3, days)
    every = [(60 + 4 * day + noise[day]) * GB for day in range(days)]
    left = [used * (1 if day < added else 0.47) for day, used in enumerate(every)]
    right = [used * 0.53 for used in every[added:]]
    rows = [*log_dir("/disk1", left, total), *log_dir("/disk2", right, total, first=FIRST + added * DAY)]
    made = capacity.disks(
        frame(("broker", "path", "hour", "free", "total"), rows), frame(STATE_COLUMNS), [],
        frame(("topic", "broker", "path", "bytes")),
    )  # fmt: skip
    assert [(disk.name, len(disk.days)) for disk in made] == [("/disk2", days - added), ("/disk1", days)]
    for disk, share in zip(made, (0.53, 0.47), strict=True):
        assert disk.full is not None
        assert disk.full.median == pytest.approx((disk.limit - disk.used[-1]) / (4 * GB * share), rel=0.03)


def test_two_large_disks_with_little_data_are_two_disks() -> None:
    rows = [*log_dir("/disk1", [2.0 * GB] * 3, 4000.0 * GB), *log_dir("/disk2", [2.1 * GB] * 3, 4000.0 * GB),
            *log_dir("/disk3", [2.0 * GB] * 3, 4000.0 * GB)]  # fmt: skip
    dirs = frame(("broker", "path", "hour", "free", "total"), rows)
    made = capacity.disks(dirs, frame(STATE_COLUMNS), [], frame(("topic", "broker", "path", "bytes")))
    assert sorted(disk.name for disk in made) == ["/disk1, /disk3", "/disk2"]


def test_without_bytes_by_log_directory_a_note_says_that_what_ifs_are_divided() -> None:
    disks = two_disks("retention.ms=7d,topic=audit.*", placed=False)
    assert not any(disk.knows_topics for disk in disks.values())
    [table] = [table for table in capacity_sections.capacity([*disks.values()]).tables if table.name == "disks"]
    assert "the effect of each what-if is divided among the disks" in table.note
    [table] = [
        table for table in capacity_sections.capacity([*two_disks("growth=2").values()]).tables if table.name == "disks"
    ]
    assert "is divided" not in table.note


def test_finding_table_and_summary_give_one_figure_of_growth() -> None:
    disks = two_disks("growth=1")
    dirs = capacity_sections.capacity([*disks.values()])
    [table] = [table for table in dirs.tables if table.name == "disks"]
    growth = {row[0].text: row[3].text for row in table.rows if "what if" not in row[0].text}
    said = found_in(figures(), disks.values())["disk_fills"]
    assert f"grows by {plain(growth['/disk1 of broker 1'])} a day" in said
    made: Forecast | None = disks["/disk1"].forecast
    assert made is not None and made.growth_a_day == pytest.approx(2 * GB, rel=0.05)


def test_a_terminal_shows_every_what_if_in_full() -> None:
    long = "what if retention.ms=604800000,topic=payments.eu-central-1.settled-transactions.*"
    columns = tuple(
        (str(n), title) for n, title in enumerate(("Log directory", "Used", "Growth a day", "Days until full", "80 %"))
    )
    cells = tuple(Cell("1.99 GB, 44 % or so") for _ in columns[1:])
    lines = table_lines(Table("disks", "", columns, ((name_cell("/data"), *cells), (name_cell(long), *cells))))
    assert long in lines and "\N{HORIZONTAL ELLIPSIS}" not in "".join(lines)


# -- numbers and nouns ------------------------------------------------------------------------------------------------------


def test_numbers_agree_with_their_nouns() -> None:
    assert [plain(text.counted(n, "gap")) for n in (0, 1, 2, 1500)] == ["0 gaps", "1 gap", "2 gaps", "1,500 gaps"]
    assert text.counted(1, "topic was", "topics were") == "1 topic was"
    assert [span_of_days(1.2, 1.2), span_of_days(1.0, 1.0), span_of_days(3.0, 3.0)] == [
        "1 to 2 days",
        "1 day",
        "3 days",
    ]


def test_billions_of_records_are_not_written_with_g() -> None:
    assert plain(text.counted(2.28e9, "record")) == "2.28 billion records"
    assert [plain(text.count(value)) for value in (999_999, 2.5e6, 2.28e9, 7e12)] == [
        "999,999",
        "2.50 M",
        "2.28 bn",
        "7.00 tn",
    ]


def test_the_sentence_on_missing_time_names_whole_hours_only_if_there_are_some() -> None:
    short = frame(GAP_COLUMNS, [(FIRST, FIRST + 600, "10 intervals missing", "between a and b", "")])
    assert found_in(figures(gaps=short))["gaps"].startswith("Data of 10 min of the period are missing; ")
    one = frame(GAP_COLUMNS, [(FIRST, FIRST + HOUR, "the broker did not run", "between boots", "")])
    covered = frozenset(range(FIRST + HOUR, FIRST + DAY, HOUR))
    assert (
        "Data of 1 h of the period are missing (1 whole hour);" in found_in(figures(gaps=one, covered=covered))["gaps"]
    )


def test_a_damaged_interval_does_not_end_its_file() -> None:
    file = "usage-20251120T08-0badcafe.jsonl"
    said = found_in(figures(gaps=frame(GAP_COLUMNS, [
        (FIRST, FIRST + 60, "1 interval missing; the file has an interval with a wrong checksum", f"{file}, byte 47", file),
        (FIRST, FIRST, "the clock was set back by 5 s", "usage-20251120T08-0c10c.jsonl", ""),
        (FIRST, FIRST, "an hour of a table without the column", "usage-20251120T08-01d.jsonl", None),
    ])))["damaged_files"]  # fmt: skip
    assert said == f"1 file of the spool is damaged: {file}. The report skipped only the parts that it could not read."


def test_sections_with_one_row_use_the_singular() -> None:
    row = [(FIRST, FIRST + 600, "10 intervals missing", "between a and b", "")]
    given = figures(gaps=frame(GAP_COLUMNS, row))
    [table] = capacity_sections.gaps(given, 600, ["a"]).tables
    assert (
        table.title == "1 gap or skipped part" and "1 damaged file of" in capacity_sections.gaps(given, 600, ["a"]).lead
    )
    states = frame(STATE_COLUMNS, [state("a", GB, 1.0)])
    daily = frame(("date", "name", "stored", "topics"), [(FIRST // DAY, "a", GB, 1)])
    assert plain(capacity_sections.storage(figures(states=states, stored_daily=daily)).lead).startswith(
        "1 topic, 1.00 GB at"
    )


@pytest.mark.parametrize("busiest", [0, "0 of broker 2"])
def test_the_busiest_worker_is_named_with_its_broker_in_a_cluster(busiest: int | str) -> None:
    columns = ("hour", "worker", "connections_max", "busy_share", "bytes_in", "bytes_out")
    workers = frame(columns, [(FIRST, busiest, 1, 0.5, 900, 900), (FIRST, 1, 1, 0.1, 10, 10)])
    given = figures(workers=workers)
    (finding,) = [one for one in findings(given, [], gaps_of(given)) if one.key == "worker_skew"]
    assert finding.subject == str(busiest) and finding.sentence.startswith(f"Worker {busiest} handled 98.9")
