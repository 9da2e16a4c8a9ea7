"""The sections on usage: traffic and peaks, topics, clients, lag, skew, connections, errors and throttling. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from odradek.jobs.usage_report.aggregates import HOUR, TOP, WEEK, Figures
from odradek.jobs.usage_report.findings import busiest, inside_period, partition_skew, worker_shares
from odradek.jobs.usage_report.page import text
from odradek.jobs.usage_report.page.charts import (
    BYTES,
    COUNT,
    RATE,
    SECONDS,
    SHARE,
    BarChart,
    Chart,
    HeatChart,
    Line,
    TimeChart,
)
from odradek.jobs.usage_report.page.document import Section
from odradek.jobs.usage_report.page.text import Cell, Table, name_cell, time_cell

#: More hours than this are drawn as days.
_MOST_HOURS = 24 * 45
#: Numbers of days for which the heat chart is about as high as the table of the busiest hours.
_AS_HIGH_AS_PEAKS = range(5, 12)


def gap_spans(figures: Figures) -> tuple[tuple[float, float], ...]:
    """Return the spans of hours of the period without data."""
    spans: list[tuple[float, float]] = []
    for hour in figures.hours:
        if hour in figures.covered:
            continue
        if spans and spans[-1][1] == hour:
            spans[-1] = (spans[-1][0], hour + HOUR)
        else:
            spans.append((hour, hour + HOUR))
    return tuple(spans)


class Hours:
    """The hours of the period as the axis of a chart: turns values by hour into a line, with None in gaps."""

    def __init__(self, figures: Figures) -> None:
        hours = figures.hours
        self.group = 1 if len(hours) <= _MOST_HOURS else 24
        self.step = HOUR * self.group
        first = hours[0] // self.step * self.step
        self.times = tuple(float(at) for at in range(first, hours[-1] + 1, self.step))
        self.gaps = gap_spans(figures)
        self._covered = figures.covered

    def line(
        self, hours: pd.Series, values: pd.Series, *, zero: bool, mean: bool = True, shift: int = 0
    ) -> tuple[float | None, ...]:
        """Return one value per step: the mean (or the maximum) of its covered hours, None if there are none.

        With `zero` a covered hour without a row counts as zero. `shift` seconds are added to the hours.
        """
        by_hour = {int(hour): float(value) for hour, value in zip(hours, values, strict=True) if not pd.isna(value)}
        result: list[float | None] = []
        for at in self.times:
            covered = []
            for hour in range(int(at) - shift, int(at) - shift + self.step, HOUR):
                if hour in by_hour:
                    covered.append(by_hour[hour])
                elif zero and hour in self._covered:
                    covered.append(0.0)
            result.append(None if not covered else sum(covered) / len(covered) if mean else max(covered))
        return tuple(result)

    @property
    def word(self) -> str:
        return "hour" if self.group == 1 else "day"


def traffic(figures: Figures) -> Section:
    """The section of bytes in and out over time with the week before, by day and hour, and of the busiest hours."""
    inside = inside_period(figures)
    title = "Traffic and its peaks"
    if inside.empty:
        return Section("traffic", title, "", empty="No traffic was counted in this period.")
    parts: list[tuple[Chart | Table, ...]] = [(_rates(figures),)]
    peaks = _peaks(figures, inside)
    heat = _heat(figures, inside) if len(figures.hours) > 24 else None
    if heat is None:
        parts.append((peaks,))
    elif len(heat.rows) in _AS_HIGH_AS_PEAKS:
        parts.append((heat, peaks))
    else:  # side by side with very different heights half of the page would be empty
        parts += [(heat,), (peaks,)]
    total = (
        f"{text.bytes_(inside['bytes_in'].sum())} in and {text.bytes_(inside['bytes_out'].sum())} out, "
        f"{text.counted(inside['records_in'].sum(), 'record')} in and {text.count(inside['records_out'].sum(), long=True)} out."
    )
    return Section("traffic", title, total, tuple(parts), (_days(figures, inside),))


def _rates(figures: Figures) -> TimeChart:
    """Return the chart of bytes in and out over time, with the week before if the period is a week at most."""
    axis, hourly = Hours(figures), figures.hourly
    lines = []
    for color, (name, column) in enumerate((("in", "bytes_in"), ("out", "bytes_out"))):
        rates = hourly[column] / seconds_of(hourly["hour"], figures)
        lines.append(Line(name, axis.line(hourly["hour"], rates, zero=True), fill=True, color=color))
        before = axis.line(hourly["hour"], rates, zero=True, shift=WEEK)
        if figures.last - figures.first <= WEEK and any(value is not None for value in before):
            lines.append(Line(f"{name}, a week before", before, "faint", color=color))
    return TimeChart(
        "traffic",
        f"Bytes per second, mean of each {axis.word}",
        RATE,
        axis.times,
        tuple(lines),
        axis.step,
        gaps=axis.gaps,
    )


def _peaks(figures: Figures, inside: pd.DataFrame) -> Table:
    """Return the table of the busiest hours."""
    moved = inside["bytes_in"] + inside["bytes_out"]
    ranked = busiest(figures)
    mean = moved.sum() / max(1, len(figures.hours) - figures.missing_hours)
    rows = tuple(
        (
            time_cell(text.moment(row.hour, "%a %d %b %H:%M")),
            Cell(text.rate(row.bytes_in / HOUR), row.bytes_in),
            Cell(text.rate(row.bytes_out / HOUR), row.bytes_out),
            Cell(text.rate(row.moved / HOUR), row.moved),
            Cell(f"{row.moved / mean:.1f}", float(row.moved / mean)),
            Cell(text.count(row.requests), row.requests),
        )
        for row in ranked.head(6).itertuples(index=False)
    )
    columns = (
        ("hour", "Hour (UTC)"),
        ("in", "In"),
        ("out", "Out"),
        ("moved", "Together"),
        ("mean", "Times the mean"),
        ("requests", "Requests"),
    )
    left_out = len(inside) - len(ranked)
    note = "" if not left_out else (
        f"{text.counted(left_out, 'hour after a gap is', 'hours after a gap are')} not ranked, because "
        f"{'it also contains' if left_out == 1 else 'they also contain'} the counts of the gap. Charts divide these counts by "
        "the whole time since the gap began."
    )  # fmt: skip
    return Table("peaks", "The busiest hours", columns, rows, note)


def seconds_of(hours: pd.Series, figures: Figures) -> pd.Series:
    """Return the seconds that the counts of each hour cover: more than an hour, if it also contains the counts of a gap."""
    return hours.map(lambda hour: HOUR + figures.carried.get(int(hour), 0.0))


def _heat(figures: Figures, inside: pd.DataFrame) -> HeatChart:
    rates = (inside["bytes_in"] + inside["bytes_out"]) / seconds_of(inside["hour"], figures)
    moved = {int(hour): float(value) for hour, value in zip(inside["hour"], rates, strict=True)}
    days = sorted({hour // 86400 for hour in figures.hours})[-28:]
    hours = set(figures.hours)
    cells = [
        tuple(
            moved.get(at, 0.0) if at in figures.covered and at in hours else None
            for at in range(day * 86400, (day + 1) * 86400, HOUR)
        )
        for day in days
    ]
    names = tuple(text.moment(day * 86400, "%a %d %b") for day in days)
    columns = tuple(f"{hour:02d}" for hour in range(24))
    return HeatChart("peaks", "Bytes per second in and out, by day and hour (UTC)", RATE, names, columns, tuple(cells))


def _days(figures: Figures, inside: pd.DataFrame) -> Table:
    sums = inside.assign(day=inside["hour"] // 86400).groupby("day").sum(numeric_only=True)
    rows = tuple(
        (
            name_cell(text.date(float(str(day)))),
            Cell(text.bytes_(row.bytes_in), row.bytes_in),
            Cell(text.bytes_(row.bytes_out), row.bytes_out),
            Cell(text.count(row.records_in), row.records_in),
            Cell(text.count(row.requests), row.requests),
            Cell(text.count(row.errors), row.errors),
        )
        for day, row in zip(sums.index, sums.itertuples(index=False), strict=True)
    )
    columns = (
        ("day", "Day (UTC)"),
        ("in", "In"),
        ("out", "Out"),
        ("records_in", "Records in"),
        ("requests", "Requests"),
        ("errors", "Errors"),
    )
    return Table("days", "Day by day", columns, rows)


def comparison_note(figures: Figures) -> str:
    """Return a sentence on the hours that the change against last week compares."""
    if not figures.compared:
        return "No hour of the period has data both now and a week before, so there is nothing to compare."
    return (
        f"Against last week: compares the {text.count(len(figures.compared))} of "
        f"{text.counted(figures.compared_wanted, 'hour')} that have data both now and a week before."
    )


def known_change(figures: Figures) -> bool:
    return len(figures.compared) >= max(1, figures.compared_wanted / 2)


def _ranking(
    rows: pd.DataFrame, names: Sequence[str], figures: Figures, name: str, title: str, extra: Sequence[tuple[str, str]]
) -> tuple[tuple[Chart | Table, ...], ...]:
    """Return a bar chart with the week before, and a table, of the rows with the most traffic."""
    known = known_change(figures)
    moved = (rows["bytes_in"] + rows["bytes_out"]).astype(float)
    order = moved.sort_values(ascending=False, kind="stable").index
    total = float(inside_period(figures)[["bytes_in", "bytes_out"]].sum().sum()) or 1.0
    bars: list[tuple[str, float]] = []
    second: list[float | None] = []
    cells: list[tuple[Cell, ...]] = []
    for index in order[: 2 * TOP]:
        row, label = rows.loc[index], names[list(rows.index).index(index)]
        if len(bars) < TOP and row["week"] + row["week_before"] > 0:
            bars.append((label, float(row["week"])))
            second.append(float(row["week_before"]) if known else None)
        cells.append(
            (
                name_cell(label),
                Cell(text.bytes_(row["bytes_in"]), int(row["bytes_in"])),
                Cell(text.bytes_(row["bytes_out"]), int(row["bytes_out"])),
                Cell(text.percent(moved[index] / total), float(moved[index] / total), bar=moved[index] / total),
                Cell(
                    text.change(row["week"], row["week_before"], known),
                    float(row["week"] - row["week_before"]) if known else None,
                ),
                *(Cell(text.count(row[key]), int(row[key])) for key, _ in extra),
            )
        )
    columns = ((name, title), ("in", "In"), ("out", "Out"), ("share", "Share"), ("change", "Against last week"), *extra)
    table = Table(f"{name}s", f"{title}s with the most traffic", tuple(columns), tuple(cells), comparison_note(figures))
    if known and bars:
        chart = BarChart(
            f"{name}s",
            "Bytes in and out in the compared hours",
            BYTES,
            tuple(bars),
            tuple(second),
            ("now", "a week before"),
        )
        return ((chart,), (table,))
    plain = tuple((cell[0].text, (cell[1].value or 0.0) + (cell[2].value or 0.0)) for cell in cells[:TOP])
    return ((BarChart(f"{name}s", "Bytes in and out", BYTES, plain),), (table,))


def topics(figures: Figures) -> Section:
    rows = figures.topics[(figures.topics["bytes_in"] + figures.topics["bytes_out"]) > 0]
    many = text.counted(figures.counts["topics_with_traffic"], "topic")
    if rows.empty:
        return Section("topics", "Top topics", "", empty="No topic was written or read in this period.")
    extra = (("records_in", "Records in"), ("records_out", "Records out"))
    parts = _ranking(rows, [str(name) for name in rows["topic"]], figures, "topic", "Topic", extra)
    return Section("topics", "Top topics", f"{many} had traffic.", parts, _fallen(figures))


def _fallen(figures: Figures) -> tuple[Table, ...]:
    """Return the table of topics without traffic that had traffic a week before."""
    if not known_change(figures):
        return ()
    rows = figures.topics[(figures.topics["week"] == 0) & (figures.topics["week_before"] > 0)]
    if rows.empty:
        return ()
    cells = tuple(
        (name_cell(str(row.topic)), Cell(text.bytes_(row.week_before), int(row.week_before)))
        for row in rows.itertuples(index=False)
    )
    return (
        Table(
            "silent",
            "Topics without traffic that had traffic a week before",
            (("topic", "Topic"), ("before", "Bytes a week before")),
            cells,
        ),
    )


def client_name(row: pd.Series) -> str:
    return f"{row['client'] or '(no client id)'} ({row['principal']})"


def clients(figures: Figures) -> Section:
    rows = figures.clients[(figures.clients["bytes_in"] + figures.clients["bytes_out"]) > 0]
    many = text.counted(figures.counts["clients"], "client")
    if rows.empty:
        return Section("clients", "Top clients", "", empty="No client was counted in this period.")
    names = [client_name(row) for _, row in rows.iterrows()]
    parts = _ranking(rows, names, figures, "client", "Client", (("requests", "Requests"), ("errors", "Errors")))
    return Section("clients", "Top clients", f"{many}, by client id and principal.", parts)


def lag(figures: Figures) -> Section:
    """The section of the lag of groups and observed readers."""
    lead = (
        "Lag in records, the maximum of each hour. The lag of readers that never commit is computed from their fetches "
        "(observed); readers that were connected for less than five minutes are left out, and those of the command odradek if "
        "it was connected for less than five minutes an hour."
    )
    if figures.lag.empty:
        return Section("lag", "Consumer lag", lead, empty="No group and no observed reader had lag in this period.")
    axis = Hours(figures)
    lines = []
    for (kind, name, topic), rows in figures.lag_hourly.groupby(["kind", "name", "topic"], sort=False):
        label = f"{name} on {topic}" + ("" if kind == "group" else " (observed)")
        lines.append(Line(label, axis.line(rows["hour"], rows["lag"], zero=False, mean=False)))
    chart = TimeChart("lag", "Lag in records", COUNT, axis.times, tuple(lines), axis.step, gaps=axis.gaps)
    rows = tuple(
        (
            name_cell(str(row.name)),
            name_cell(str(row.topic)),
            name_cell("group" if row.kind == "group" else "observed"),
            Cell(text.count(row.lag_max), int(row.lag_max)),
            Cell(
                text.duration(row.lag_seconds_max), None if pd.isna(row.lag_seconds_max) else float(row.lag_seconds_max)
            ),
            Cell(text.count(row.lag_first), None if pd.isna(row.lag_first) else float(row.lag_first)),
            Cell(text.count(row.lag_last), None if pd.isna(row.lag_last) else float(row.lag_last)),
            time_cell("" if pd.isna(row.back) else text.moment(row.back)),
            time_cell(_stalled(row.stall_hours, row.stall_begin, row.stall_end)),
        )
        for row in figures.lag.itertuples(index=False)
    )
    columns = (("name", "Reader"), ("topic", "Topic"), ("kind", "Kind"), ("max", "Max. records"), ("seconds", "Max. time"),
               ("first", "Mean, start"), ("last", "Mean, end"), ("back", "Moved back (UTC)"),
               ("stall", "Never fell"))  # fmt: skip
    note = (
        "Start and end: the first and the last quarter of the period. Moved back: when the reader last requested records "
        "before its position; for a reader that reads records again, the lag shows where it reads. Never fell: the last "
        "hours with data in which the mean lag of an hour never fell, and the means of the first and the last of them."
    )
    return Section(
        "lag", "Consumer lag", lead, ((chart,), (Table("lag", "Readers with the largest lag", columns, rows, note),))
    )


def _stalled(hours: float, begin: float, end: float) -> str:
    return "" if hours < 2 or end <= begin else f"{hours:.0f} h: {text.count(begin)} to {text.count(end)}"


def skew(figures: Figures) -> Section:
    """The section of the distribution of load over partitions and workers."""
    lead = (
        "An uneven distribution of keys makes one partition larger than the others. A connection stays with its worker, so "
        "one busy client can load one worker more than the others."
    )
    parts: list[tuple[Chart | Table, ...]] = []
    shares = worker_shares(figures.workers)
    if len(shares):
        parts += [(part,) for part in _workers(figures, shares)]
    skewed = partition_skew(figures.states).head(TOP)
    if len(skewed):
        large = tuple(
            (
                name_cell(str(row.topic)),
                Cell(text.count(row.partitions), int(row.partitions)),
                Cell(text.bytes_(row.largest_partition_bytes), int(row.largest_partition_bytes)),
                Cell(f"{row.skew:.1f}", float(row.skew), tone="warn" if row.skew >= 2 else ""),
            )
            for row in skewed.itertuples(index=False)
        )
        titles = (
            ("topic", "Topic"),
            ("partitions", "Partitions"),
            ("largest", "Largest partition"),
            ("skew", "Times the mean"),
        )
        parts.append(
            (Table("partitions", "Partitions larger than the other partitions of their topic", titles, large),)
        )
    return Section(
        "skew",
        "Skew over workers and partitions",
        lead,
        tuple(parts),
        empty="" if parts else "There are no data of workers and topics in this period.",
    )


def _workers(figures: Figures, shares: pd.DataFrame) -> tuple[TimeChart, Table]:
    """Return the chart of the workers' busy time and the table of their shares of the traffic."""
    axis = Hours(figures)
    workers = figures.workers
    lines = tuple(
        Line(f"worker {worker}", axis.line(rows["hour"], rows["busy_share"], zero=False))
        for worker, rows in workers.groupby("worker", sort=True)
    )[:8]
    chart = TimeChart(
        "workers",
        f"Busy time of each worker, mean of each {axis.word}",
        SHARE,
        axis.times,
        lines,
        axis.step,
        gaps=axis.gaps,
    )
    rows = tuple(
        (
            name_cell(f"worker {row.worker}"),
            Cell(text.bytes_(row.bytes), int(row.bytes)),
            Cell(text.percent(row.share), float(row.share), bar=row.share),
            Cell(text.percent(row.busy_mean), None if pd.isna(row.busy_mean) else float(row.busy_mean)),
            Cell(text.percent(row.busy_max), None if pd.isna(row.busy_max) else float(row.busy_max)),
            Cell(text.count(row.connections), int(row.connections)),
        )
        for row in shares.itertuples(index=False)
    )
    columns = (("worker", "Worker"), ("bytes", "Bytes"), ("share", "Share"), ("busy", "Busy, mean"),
               ("busy_max", "Busiest hour"), ("connections", "Max. connections"))  # fmt: skip
    return chart, Table("workers", "Workers", columns, rows, f"An even share is {text.percent(1 / len(shares))}.")


def connections(figures: Figures) -> Section:
    """The section of open connections over time, and of clients by connection time."""
    lead = "The maximum of each hour, summed over all workers."
    workers = figures.workers
    if workers.empty:
        return Section("connections", "Connections", lead, empty="There are no data of workers in this period.")
    axis = Hours(figures)
    sums = workers.groupby("hour")["connections_max"].sum()
    line = Line(
        "open (maximum)", axis.line(pd.Series(sums.index), pd.Series(sums.values), zero=False, mean=False), fill=True
    )
    chart = TimeChart("connections", "Open connections", COUNT, axis.times, (line,), axis.step, gaps=axis.gaps)
    parts: list[tuple[Chart | Table, ...]] = [(chart,)]
    held = figures.clients[figures.clients["connection_ms"] > 0].sort_values(
        ["connection_ms", "client"], ascending=[False, True]
    )
    if len(held):
        seconds = max(1, (len(figures.hours) - figures.missing_hours) * HOUR)
        rows = tuple(
            (
                name_cell(client_name(row)),
                Cell(text.duration(row["connection_ms"] / 1000), int(row["connection_ms"])),
                Cell(f"{row['connection_ms'] / 1000 / seconds:.1f}", float(row["connection_ms"] / 1000 / seconds)),
            )
            for _, row in held.head(TOP).iterrows()
        )
        columns = (("client", "Client"), ("time", "Connection time"), ("mean", "Open on average"))
        parts.append((Table("connections", "Clients by connection time", columns, rows),))
    return Section("connections", "Connections", lead, tuple(parts))


def errors(figures: Figures) -> Section:
    """The section of errors and throttling over time, by API and by client."""
    inside = inside_period(figures)
    lead = "Errors in responses, and the throttle time that the broker returned to clients because of quotas."
    if inside.empty:
        return Section("errors", "Errors and throttling", lead, empty="No request was counted in this period.")
    axis, hourly = Hours(figures), figures.hourly
    requests, wrong = int(inside["requests"].sum()), int(inside["errors"].sum())
    waited = text.duration(inside["throttle_ms"].sum() / 1000)
    many = text.counted(figures.counts["throttled_clients"], "client")
    lead += f" {text.counted(wrong, 'error')}, {text.counted(requests, 'request')}, {waited} throttled ({many})."
    wrong_line = Line("errors", axis.line(hourly["hour"], hourly["errors"], zero=True), fill=True, color=6)
    waiting = Line("throttled", axis.line(hourly["hour"], hourly["throttle_ms"] / 1000, zero=True), fill=True, color=4)
    charts = (
        TimeChart("errors", "Errors per hour", COUNT, axis.times, (wrong_line,), axis.step, gaps=axis.gaps),
        TimeChart("throttle", "Throttle time per hour", SECONDS, axis.times, (waiting,), axis.step, gaps=axis.gaps),
    )
    apis = figures.apis.sort_values(["errors", "requests", "api"], ascending=[False, False, True]).head(TOP)
    rows = tuple(
        (
            name_cell(str(row.api)),
            Cell(text.count(row.requests), int(row.requests)),
            Cell(text.count(row.errors), int(row.errors)),
            Cell(text.percent(row.errors / row.requests if row.requests else None, 2)),
        )
        for row in apis.itertuples(index=False)
    )
    columns = (("api", "API"), ("requests", "Requests"), ("errors", "Errors"), ("share", "Errors per request"))
    by_api = Table("apis", "By API", columns, rows)
    who = figures.clients[(figures.clients["errors"] > 0) | (figures.clients["throttle_ms"] > 0)]
    who = who.sort_values(["errors", "throttle_ms", "client"], ascending=[False, False, True]).head(TOP)
    client_rows = tuple(
        (
            name_cell(client_name(row)),
            Cell(text.count(row["errors"]), int(row["errors"])),
            Cell(text.duration(row["throttle_ms"] / 1000), int(row["throttle_ms"])),
        )
        for _, row in who.iterrows()
    )
    by_client = Table(
        "client-errors",
        "By client",
        (("client", "Client"), ("errors", "Errors"), ("throttle", "Throttled")),
        client_rows,
    )
    tables = (by_api, by_client) if client_rows else (by_api,)
    return Section("errors", "Errors and throttling", lead, (charts, tables))
