"""Makes the page from the tables: aggregates, forecast, findings, charts, files.

Runs in the driver of the report's job, after `tables` has written and under the lock that `job` holds on the directory. Each
file is replaced by an atomic rename. `report.html` and `report.json` belong to the last run; the files named by period are
kept.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.jobs.usage_report import capacity, cost, summary, whatif
from odradek.jobs.usage_report.aggregates import (
    HOUR,
    Figures,
    aggregate,
    data_begin,
    stored_byte_hours,
    traffic_by_client_and_topic,
)
from odradek.jobs.usage_report.errors import ReportError
from odradek.jobs.usage_report.findings import busiest, findings, gaps_of, inside_period, week_sums
from odradek.jobs.usage_report.options import Options
from odradek.jobs.usage_report.page import capacity_sections, document, text, traffic_sections
from odradek.jobs.usage_report.page.document import Page, Tile
from odradek.jobs.usage_report.summary import Summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TITLE = "Usage and capacity"
#: The tables that are printed on the terminal, with the columns that fit into a line.
_ON_A_TERMINAL = {
    "disks": ("disk", "used", "growth", "median", "interval_80", "date"),
    "topics": ("topic", "in", "out", "share", "change"),
    "clients": ("client", "in", "out", "share", "change"),
    "costs": ("owner", "in", "out", "stored", "total"),
}


@dataclass(frozen=True)
class CheckedOptions:
    """The parsed contents of the options, as `check` returns them."""

    prices: cost.Prices | None
    owners: list[cost.Rule]
    what_ifs: tuple[whatif.WhatIf, ...]
    charge: bool


def check(options: Options) -> CheckedOptions:
    """Read the files that `options` names and parse its what-ifs; raises ReportError for the first error.

    Cheap: the job calls it before Spark is started.
    """
    return CheckedOptions(
        cost.read_prices(options.prices) if options.prices is not None else None,
        cost.read_owners(options.owners) if options.owners is not None else [],
        tuple(whatif.parse(text) for text in options.what_if),
        options.prices is not None or options.owners is not None,
    )


def build(
    spark: SparkSession, tables_dir: Path, out_dir: Path, from_: datetime, to: datetime, options: Options
) -> Summary:
    """Make the page, the summary and the optional files from the tables in `tables_dir`; return the summary.

    The period is from `from_` (inclusive) to `to` (exclusive), both with time zones. Trends and comparisons also use the time
    before the period. Raises ReportError if a file of `options` is wrong or `out_dir` cannot be written.
    """
    checked = check(options)
    asked, last = int(from_.timestamp()), int(to.timestamp())
    began = data_begin(tables_dir, asked, last)
    first = asked if began is None else began  # nothing is missing before the first data
    figures = aggregate(spark, tables_dir, first, last)
    costs: list[cost.Cost] = []
    if checked.charge:
        traffic = traffic_by_client_and_topic(spark, tables_dir, first, last)
        costs = cost.costs(checked.prices, checked.owners, traffic, stored_byte_hours(spark, tables_dir, first, last))
    page, contents = compose(figures, costs, checked, options.source, began)
    return write(page, contents, out_dir, _name(asked, last), options)


def compose(
    figures: Figures, costs: list[cost.Cost], options: CheckedOptions, source: str, began: int | None = None
) -> tuple[Page, Summary]:
    """Return the page and the summary of these figures; no files are written.

    :param began: `data_begin`, if that is why the period begins there
    """
    disks = capacity.disks(figures.log_dirs, figures.states, options.what_ifs, figures.placed)
    gaps = gaps_of(figures)
    sentences = findings(figures, disks, gaps)
    sections = (
        capacity_sections.capacity(disks),
        traffic_sections.traffic(figures),
        traffic_sections.topics(figures),
        traffic_sections.clients(figures),
        traffic_sections.lag(figures),
        capacity_sections.storage(figures),
        capacity_sections.unread(figures),
        traffic_sections.skew(figures),
        traffic_sections.connections(figures),
        traffic_sections.errors(figures),
        capacity_sections.cost(costs, options.prices, figures),
        capacity_sections.gaps(figures, gaps.seconds, gaps.damaged_files),
    )
    period = f"{_moment(figures.first)} to {_moment(figures.last)} UTC"
    subtitle = f"{period}{f', from {source}' if source else ''}"
    if began is not None:
        subtitle += f"; the first data are of {_moment(began)}"
    footer = (
        "Odradek. A GB is 10\N{SUPERSCRIPT NINE} bytes, times are UTC, the end of the period is exclusive. "
        "Grey in a chart: there are no data of that time. How to read this page: docs/operate/usage-report.md."
    )
    page = Page(TITLE, subtitle, tuple(sentences), _tiles(figures, disks), sections, footer)
    tables = {table.name: table for section in sections for table in section.tables}
    short = [tables[name].only(keys) for name, keys in _ON_A_TERMINAL.items() if name in tables]
    since = "" if began is None else "; there are no older data"
    lines = summary.lines(f"{TITLE}, {period}{since}", sentences, short)
    contents = summary.document(figures, disks, sentences, gaps, costs, options.prices, source, began)
    return page, Summary(contents, lines, ())


def _moment(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def _name(first: int, last: int) -> str:
    """Return the part of the file names that is the period: its first day, and its last day if it is another day."""
    begin, end = (datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d") for at in (first, last - 1))
    return begin if begin == end else f"{begin}--{end}"


def _tiles(figures: Figures, disks: list[capacity.Disk]) -> tuple[Tile, ...]:
    inside = inside_period(figures)
    into, out = int(inside["bytes_in"].sum()), int(inside["bytes_out"].sum())
    known_hours = len(figures.hours) - figures.missing_hours
    now, before, known = week_sums(figures)
    against = (
        f"in and out against last week: {text.change(now, before, known)}"
        if known
        else "no data of last week to compare"
    )
    stored = int(figures.states["stored_bytes"].sum())
    requests, errors = int(inside["requests"].sum()), int(inside["errors"].sum())
    tiles = []
    if disks and disks[0].full is not None and disks[0].forecast is not None:
        full = disks[0].full
        shown = text.days(full.median, capacity.HORIZON_DAYS)
        small = f"80 %: {capacity_sections.between(full.low_80, full.high_80)}; {disks[0].name}"
        tiles.append(Tile("days_until_full", "Days until a disk is full", shown, full.median, small))
    elif disks:
        share = max(disk.used_share for disk in disks)
        tiles.append(Tile("disk_used", "Fullest disk", text.percent(share, 0), share, disks[0].refusal))
    peaks = busiest(figures)
    peak = float(peaks["moved"].iloc[0]) if len(peaks) else 0.0
    tiles += [
        Tile("bytes_in", "Bytes in", text.bytes_(into), into, against),
        Tile("bytes_out", "Bytes out", text.bytes_(out), out, f"{out / into:.1f} times the bytes in" if into else ""),
        Tile("peak", "Busiest hour", text.rate(peak / HOUR), peak,
             f"{text.moment(peaks['hour'].iloc[0])} UTC, in and out together" if len(peaks) else ""),
        Tile("stored_bytes", "Stored", text.bytes_(stored), stored, text.counted(len(figures.states), "topic")),
        Tile("requests", "Requests", text.count(requests), requests,
             f"{text.counted(errors, 'error')} ({text.percent(errors / requests if requests else None, 2)})"),
        Tile("known_hours", "Hours with data", f"{text.count(known_hours)} of {text.count(len(figures.hours))}", known_hours,
             "none missing" if not figures.missing_hours else f"{text.count(figures.missing_hours)} missing"),
    ]  # fmt: skip
    return tuple(tiles)


def write(page: Page, contents: Summary, out_dir: Path, name: str, options: Options) -> Summary:
    """Write the page and the summary, and the PNG and PDF files if `options` requires them; return the summary with the
    paths."""
    written: list[Path] = []
    html, document_json = document.html(page).encode(), contents.json().encode()
    try:
        for stem in ("report", f"report-{name}"):
            written.append(_replace(out_dir / f"{stem}.html", html))
            written.append(_replace(out_dir / f"{stem}.json", document_json))
        if options.png or options.pdf:
            from odradek.jobs.usage_report.page import plots

            if options.png:
                pictures = out_dir / f"report-{name}-png"
                pictures.mkdir(exist_ok=True)
                written += [_replace(pictures / file, content) for file, content in plots.pictures(page)]
            if options.pdf:
                written.append(_replace(out_dir / f"report-{name}.pdf", plots.pdf(page)))
    except OSError as error:
        raise ReportError(f"--out {out_dir}: cannot write to this directory: {error.strerror}") from None
    return Summary(contents.document, contents.text, tuple(written))


def _replace(path: Path, content: bytes) -> Path:
    unfinished = path.with_name(f".{path.name}.unfinished")
    with open(unfinished, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    return path
