"""The sections on capacity: disks with their forecasts, storage by topic, topics nobody reads, costs. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from odradek.jobs.usage_report.aggregates import DAY, NAMED_TOPICS, TOP, Figures
from odradek.jobs.usage_report.capacity import HORIZON_DAYS, Disk
from odradek.jobs.usage_report.cost import GB, HOURS_A_MONTH, Cost, Prices
from odradek.jobs.usage_report.forecast import Forecast, Fullness
from odradek.jobs.usage_report.page import text
from odradek.jobs.usage_report.page.charts import BYTES, MONEY, Band, BarChart, Chart, Level, Line, TimeChart
from odradek.jobs.usage_report.page.document import Section
from odradek.jobs.usage_report.page.text import Cell, Table, name_cell, time_cell

#: Minimum number of days of a forecast in a chart; more if the disk fills later, a year at most.
_AHEAD_DAYS = 30
_MOST_CHARTS = 6


def capacity(disks: Sequence[Disk]) -> Section:
    """The section of the disks: one chart per disk, and a table of all disks."""
    charts = [disk_chart(disk) for disk in disks[:_MOST_CHARTS] if disk.days]
    rows = [row for disk in disks for row in _disk_rows(disk)]
    columns = (
        ("disk", "Log directory"), ("size", "Size"), ("used", "Used"), ("growth", "Growth a day"),
        ("median", "Days until full"), ("interval_80", "80 % interval"), ("interval_95", "95 % interval"),
        ("date", "Full about"),
    )  # fmt: skip
    refusals = sorted({disk.refusal for disk in disks if disk.refusal})
    note = (
        "A disk is full when the broker refuses producers: 256 MiB free, or 1 % if that is less. The intervals contain the "
        "day with the stated probability, if the future behaves like the history. Growth is the mean of the next "
        "four weeks."
    )
    if any(disk.scenarios and not disk.knows_topics for disk in disks):
        note += (
            " The source does not contain which topics are in which log directory: the effect of each what-if is divided "
            "among the disks in proportion to their usage."
        )
    if refusals:
        note += f" No forecast: {'; '.join(refusals)}."
    table = Table("disks", "Days until each log directory is full", columns, tuple(rows), note)
    parts = (((table,),) if rows else ()) + tuple((chart,) for chart in charts)
    more = tuple(_daily_table(disk, number) for number, disk in enumerate(disks[:_MOST_CHARTS]) if disk.days)
    return Section(
        "capacity",
        "When the disks will be full",
        "The highest usage of each day, and the forecast from its trend and weekly pattern: the inner band contains 80 % of "
        "the simulated futures, the outer band 95 %.",
        parts,
        more,
        "" if disks else "No log directory is known in this period.",
    )


def _full_cells(full: Fullness | None, made: Forecast | None) -> tuple[Cell, ...]:
    if full is None or made is None:
        return tuple(Cell(text.MISSING) for _ in range(4))
    tone = "bad" if full.median is not None and full.median < 14 else ""
    if not tone and full.median is not None and full.median < 60:
        tone = "warn"
    return (
        Cell(text.days(full.median, HORIZON_DAYS), full.median, tone=tone),
        Cell(between(full.low_80, full.high_80)),
        Cell(between(full.low_95, full.high_95)),
        Cell(text.MISSING if full.median is None else text.date(made.last_day + full.median)),
    )


def between(low: float | None, high: float | None) -> str:
    """Return an interval of days, rounded outwards."""
    if low is None:
        return text.days(None, HORIZON_DAYS)
    end = text.days(None, HORIZON_DAYS) if high is None else f"{int(-(-high // 1))}"
    return f"{int(low)} {text.MISSING} {end}"


def _disk_rows(disk: Disk) -> list[tuple[Cell, ...]]:
    used = disk.total - disk.free
    slope = None if disk.forecast is None else disk.forecast.growth_a_day
    rows = [
        (
            name_cell(disk.label),
            Cell(text.bytes_(disk.total), disk.total),
            Cell(f"{text.bytes_(used)}, {text.percent(disk.used_share, 0)}", used, bar=disk.used_share),
            Cell(text.bytes_(slope), slope),
            *_full_cells(disk.full, disk.forecast),
        )
    ]
    for scenario in disk.scenarios:
        growth = scenario.forecast.growth_a_day
        cells = (Cell(""), Cell(""), Cell(text.bytes_(growth), growth), *_full_cells(scenario.full, scenario.forecast))
        rows += [(name_cell(f"what if {scenario.what_if.text}"), *cells)]
    return rows


def disk_chart(disk: Disk) -> TimeChart:
    """The chart of a disk: its history, its forecast with intervals, and the medians of the what-ifs."""
    first, last_day = disk.days[0], disk.days[-1]
    ahead = 0
    if disk.forecast is not None and disk.full is not None:
        reach = disk.full.high_80 if disk.full.high_80 is not None else disk.full.median
        ahead = (
            HORIZON_DAYS if reach is None and disk.full.chance > 0.05 else max(_AHEAD_DAYS, int(1.15 * (reach or 90)))
        )
        ahead = min(HORIZON_DAYS, ahead)
    count = last_day - first + 1 + ahead
    history: list[float | None] = [None] * count
    for day, used in zip(disk.days, disk.used, strict=True):
        history[day - first] = used
    lines = [Line("used", tuple(history), fill=True, color=0)]
    bands: tuple[Band, ...] = ()
    marks: list[tuple[float, str]] = []
    if disk.forecast is not None and ahead:
        low_95, low_80, median, high_80, high_95 = (
            _joined(history, quantile[:ahead], count) for quantile in disk.forecast.quantiles()
        )
        bands = (Band("95 % interval", low_95, high_95, 0, 0.16), Band("80 % interval", low_80, high_80, 0, 0.3))
        lines.append(Line("forecast (median)", median, "dashed", color=0))
        for number, scenario in enumerate(disk.scenarios):
            middle = _joined(history, np.quantile(scenario.forecast.paths, 0.5, axis=0)[:ahead], count)
            lines.append(Line(f"what if {scenario.what_if.text}", middle, "dashed", color=1 + number))
        if disk.full is not None and disk.full.median is not None:
            at = last_day + disk.full.median
            marks.append((at * DAY, f"full about {text.date(at)}"))
    missing = [day for day in range(first, last_day + 1) if day not in set(disk.days)]
    return TimeChart(
        f"disk:{disk.broker}:{disk.name}",
        disk.label,
        BYTES,
        tuple(float(day * DAY) for day in range(first, first + count)),
        tuple(lines),
        DAY,
        bands=bands,
        levels=(Level(f"full at {text.bytes_(disk.limit)}", disk.limit),),
        gaps=tuple((day * DAY, (day + 1) * DAY) for day in missing),
        marks=tuple(marks),
        top=max(disk.limit * 1.12, max(disk.used)),
        note=_disk_note(disk),
    )


def _joined(history: list[float | None], future: np.ndarray, count: int) -> tuple[float | None, ...]:
    """Return a line of the forecast that begins at the last day of the history."""
    start = count - len(future)
    return (None,) * (start - 1) + (history[start - 1],) + tuple(float(value) for value in future)


def _disk_note(disk: Disk) -> str:
    if disk.forecast is None:
        return f"No forecast: {disk.refusal}." if disk.refusal else ""
    parts = [f"Fitted to {disk.forecast.measured_days} days."]
    for at, size in disk.forecast.steps:
        parts.append(f"A step of {text.bytes_(size)} on {text.date(at)} is treated as a single event.")
    for at, size in disk.forecast.bends:
        parts.append(f"The growth changed by {text.bytes_(size)} a day around {text.date(at)}.")
    return " ".join(parts)


def _daily_table(disk: Disk, number: int) -> Table:
    rows = [
        (name_cell(text.date(day)), Cell(text.bytes_(used), used))
        for day, used in zip(disk.days[-60:], disk.used[-60:], strict=True)
    ]
    if disk.forecast is not None:
        quantiles = disk.forecast.quantiles()
        for week in range(6, min(HORIZON_DAYS, 91), 7):
            values = quantiles[:, week]
            interval = f"{text.bytes_(values[1])} {text.MISSING} {text.bytes_(values[3])}"
            day = name_cell(f"{text.date(disk.forecast.last_day + week + 1)} (forecast)")
            rows.append((day, Cell(f"{text.bytes_(values[2])} ({interval})", float(values[2]))))
    title = f"Days of {disk.label}"
    return Table(
        f"disk-days-{number}",
        title,
        (("day", "Day"), ("used", "Highest usage (forecast: median, 80 % interval)")),
        tuple(rows),
    )


def storage(figures: Figures) -> Section:
    """The section of stored bytes by topic, day by day, and their growth."""
    states = figures.states
    if states.empty:
        return Section(
            "storage", "Storage by topic", "", empty="There are no data of topics at the end of this period."
        )
    daily = figures.stored_daily
    first, last = int(daily["date"].min()), int(daily["date"].max())
    names = [str(name) for name in states["topic"].head(NAMED_TOPICS)]
    lines = []
    known = set(daily["date"])
    rest = daily[daily["name"].isna()]
    series = [(name, daily[daily["name"] == name]) for name in names]
    if len(rest):
        series.append(("all others", rest))
    for name, rows in series:
        by_day = dict(zip(rows["date"], rows["stored"], strict=True))
        values = tuple(float(by_day.get(day, 0)) if day in known else None for day in range(first, last + 1))
        lines.append(Line(name, values))
    chart = TimeChart(
        "storage", "Stored bytes by topic, at the end of each day", BYTES,
        tuple(float(day * DAY) for day in range(first, last + 1)), tuple(lines), DAY, stacked=True,
        gaps=tuple((day * DAY, (day + 1) * DAY) for day in range(first, last + 1) if day not in known),
    )  # fmt: skip
    grown = (states["stored_bytes"] - states["before"]).astype(float)
    order = grown.abs().fillna(-1).sort_values(ascending=False, kind="stable").index
    shown = states.loc[order].head(2 * TOP) if grown.notna().any() else states.head(2 * TOP)
    rows = []
    most = float(states["stored_bytes"].max()) or 1.0
    all_grown = float(grown[grown > 0].sum()) or 1.0
    for row in shown.itertuples(index=False):
        known_before = not pd.isna(row.before)
        change = row.stored_bytes - row.before if known_before else None
        rows.append(
            (
                name_cell(str(row.topic)),
                Cell(text.bytes_(row.stored_bytes), row.stored_bytes, bar=row.stored_bytes / most),
                Cell(text.bytes_(change), change),
                Cell(text.percent(change / all_grown) if change is not None and change > 0 else ""),
                Cell(text.change(row.stored_bytes, row.before if known_before else 0, known_before)),
                Cell(
                    "none" if row.retention_ms < 0 else text.duration(row.retention_ms / 1000), float(row.retention_ms)
                ),
                Cell(text.count(row.partitions), row.partitions),
            )
        )
    columns = (("topic", "Topic"), ("stored", "Stored"), ("grown", "Change in a week"),
               ("part", "Of all growth"), ("share", "Against last week"),
               ("retention", "Retention"), ("partitions", "Partitions"))  # fmt: skip
    table = Table("storage", "Topics that changed most", columns, tuple(rows))
    total = text.bytes_(states["stored_bytes"].sum())
    lead = f"{text.counted(len(states), 'topic')}, {total} at the end of the period."
    return Section(
        "storage", "Storage by topic", lead,
        ((chart,), (table,)),
    )  # fmt: skip


def unread(figures: Figures) -> Section:
    """The section of topics that nobody reads."""
    lead = (
        "Topics that contain records, but from which no client fetched a record in the period or in the last seven days, "
        "whichever is longer."
    )
    if figures.unread.empty:
        return Section("unread", "Topics nobody reads", lead, empty="Every topic that contains records was read.")
    since = text.moment(figures.history_first, "%Y-%m-%d")
    rows = tuple(
        (
            name_cell(str(row.topic)),
            Cell(text.bytes_(row.stored_bytes), row.stored_bytes),
            Cell(text.count(row.records_a_day), None if pd.isna(row.records_a_day) else float(row.records_a_day)),
            name_cell(f"not since {since}" if pd.isna(row.last_read) else text.moment(row.last_read, "%Y-%m-%d %H:%M")),
        )
        for row in figures.unread.itertuples(index=False)
    )
    columns = (
        ("topic", "Topic"),
        ("stored", "Stored"),
        ("written", "Records written a day"),
        ("read", "Last read (UTC)"),
    )
    many = figures.counts["unread_topics"]
    title = f"{text.counted(many, 'topic')}, {text.bytes_(figures.counts['unread_bytes'])}"
    note = (
        ""
        if many <= len(rows)
        else f"{text.counted(many - len(rows), 'smaller topic is', 'smaller topics are')} not shown."
    )
    return Section("unread", "Topics nobody reads", lead, ((Table("unread", title, columns, rows, note),),))


def cost(costs: Sequence[Cost], prices: Prices | None, figures: Figures) -> Section:
    """The section of usage by owner, with costs if there are prices."""
    lead = (
        "Traffic belongs to the first line of the owners file that matches its client, principal or topic; stored bytes "
        "belong to the first topic line that matches."
    )
    if not costs:
        return Section(
            "costs",
            "Costs by owner",
            lead,
            empty="No owners are given: add --owners FILE (and --prices FILE) to see usage and costs by owner.",
        )
    money = prices.currency if prices else ""

    def paid(value: float) -> Cell:
        return Cell(f"{text.money(value)} {money}".strip(), value)

    rows = []
    for row in costs:
        months = row.stored_byte_hours / HOURS_A_MONTH
        cells = [
            name_cell(row.owner),
            Cell(text.bytes_(row.bytes_in), row.bytes_in),
            Cell(text.bytes_(row.bytes_out), row.bytes_out),
            Cell(f"{text.quantity(months / GB)} GB", row.stored_byte_hours),
        ]
        if prices:
            cells += [paid(row.cost_in), paid(row.cost_out), paid(row.cost_stored), paid(row.total)]
        rows.append(tuple(cells))
    columns = [("owner", "Owner"), ("in", "In"), ("out", "Out"), ("stored", "GB-months stored")]
    note = "Hours without data are not charged." if figures.missing_hours else ""
    parts: list[tuple[Chart | Table, ...]] = []
    if prices:
        columns += [
            ("cost_in", "Cost in"),
            ("cost_out", "Cost out"),
            ("cost_stored", "Cost stored"),
            ("total", "Total"),
        ]
        note = (
            (
                f"Prices per GB {money}: in {prices.in_:g}, out {prices.out:g}, stored for 730 hours {prices.stored_month:g}. "
                f"{note}"
            )
            .replace("  ", " ")
            .strip()
        )
        bars = tuple((row.owner, row.total) for row in costs[:TOP])
        title = f"Total cost by owner{f' ({money})' if money else ''}"
        parts.append((BarChart("costs", title, MONEY, bars),))
    parts.append((Table("costs", "Costs by owner" if prices else "Usage by owner", tuple(columns), tuple(rows), note),))
    return Section("costs", "Costs by owner", lead, tuple(parts))


def gaps(figures: Figures, seconds: int, damaged: Sequence[str]) -> Section:
    """The section of missing data."""
    rows = tuple(
        (
            time_cell(text.moment(row[0], "%Y-%m-%d %H:%M")),
            time_cell(text.moment(row[1], "%Y-%m-%d %H:%M")),
            Cell(text.duration(row[1] - row[0]), row[1] - row[0]),
            name_cell(str(row[2])),
            name_cell(str(row[3])),
        )
        for row in figures.gaps.itertuples(index=False)
    )
    hours = len(figures.hours)
    lead = (
        f"{text.count(hours - figures.missing_hours)} of {text.counted(hours, 'hour')} with data; "
        f"{text.duration(seconds)} within gaps; {text.counted(len(damaged), 'damaged file')} of the spool."
    )
    if not rows:
        empty = (
            "Nothing is missing."
            if not figures.missing_hours
            else "There are hours without data; the tables do not contain the reason."
        )
        return Section("gaps", "Gaps and skipped files", lead, empty=empty)
    columns = (("from", "From (UTC)"), ("to", "To"), ("length", "Length"), ("reason", "Reason"), ("source", "Where"))
    note = "" if len(rows) <= 50 else f"The table `gaps` contains {text.count(len(rows) - 50)} more."
    table = Table(
        "gaps", text.counted(len(rows), "gap or skipped part", "gaps or skipped parts"), columns, rows[:50], note
    )
    return Section("gaps", "Gaps and skipped files", lead, ((table,),))
