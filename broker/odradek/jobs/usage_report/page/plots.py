"""Draws the charts as PNG files and as one PDF with matplotlib, for mails and wikis that do not accept HTML.

Runs in the driver of the report's job, only with --png or --pdf. The same figures produce the same bytes: the files contain no
date.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from odradek.jobs.usage_report.page import text
from odradek.jobs.usage_report.page.charts import BarChart, Chart, HeatChart, TimeChart, runs, ticks, time_ticks
from odradek.jobs.usage_report.page.document import Page
from odradek.jobs.usage_report.page.svg_parts import FORMATS

_COLORS = ("#1f6fb5", "#d9772b", "#2c8c62", "#a2559c", "#b59a1c", "#3aa0b4", "#c2474f", "#7c828c")
_STYLES: dict[str, dict[str, Any]] = {
    "solid": {"linewidth": 1.6},
    "faint": {"linewidth": 1.0, "linestyle": ":", "alpha": 0.7},
    "dashed": {"linewidth": 1.6, "linestyle": "--"},
}
_INK, _SOFT, _GAP, _LIMIT = "#1d2127", "#5c6470", "#d9d4c7", "#b3261e"


def pictures(page: Page) -> Iterator[tuple[str, bytes]]:
    """Yield (file name, PNG) for each chart of the page."""
    for number, chart in enumerate((chart for section in page.sections for chart in section.charts), 1):
        out = io.BytesIO()
        figure = _figure(chart)
        figure.savefig(out, format="png", dpi=120, metadata={"Software": None})
        name = re.sub(r"[^A-Za-z0-9.-]+", "-", chart.name).strip("-.")[:60]
        yield f"{number:02d}-{name}.png", out.getvalue()


def pdf(page: Page) -> bytes:
    """Return the PDF: the findings on the first page, then one chart per page."""
    from matplotlib.backends.backend_pdf import PdfPages

    out = io.BytesIO()
    with PdfPages(out, metadata={"CreationDate": None, "Title": f"{page.title}: {page.subtitle}"}) as pages:
        pages.savefig(_cover(page))
        for section in page.sections:
            for chart in section.charts:
                pages.savefig(_figure(chart))
    return out.getvalue()


def _new(height: float = 4.4) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(10, height), layout="constrained")


def _cover(page: Page) -> Any:
    figure = _new(7.2)
    figure.text(0.05, 0.93, page.title, fontsize=20, weight="bold", color=_INK)
    figure.text(0.05, 0.895, _plain(page.subtitle), fontsize=10, color=_SOFT)
    y = 0.84
    words = {"bad": "Act now", "warn": "Check", "note": "Note", "good": "OK"}
    for finding in page.findings:
        lines = textwrap.wrap(_plain(finding.sentence), 112)
        if y - 0.028 * len(lines) < 0.04:
            break
        figure.text(
            0.05, y, words[finding.level], fontsize=9, color=_LIMIT if finding.level == "bad" else _SOFT, va="top"
        )
        figure.text(0.14, y, "\n".join(lines), fontsize=10, color=_INK, va="top")
        y -= 0.028 * len(lines) + 0.018
    return figure


def _plain(text: str) -> str:
    """Escape dollar signs, which begin a formula in matplotlib."""
    return text.replace("$", r"\$")


def _figure(chart: Chart) -> Any:
    figure = _new(max(2.2, 0.34 * len(chart.bars) + 1) if isinstance(chart, BarChart) else 4.4)
    axes = figure.subplots()
    axes.set_title(_plain(chart.title), loc="left", fontsize=12, color=_INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=_SOFT, labelsize=9)
    if isinstance(chart, TimeChart):
        _time(axes, chart)
    elif isinstance(chart, BarChart):
        _bars(axes, chart)
    else:
        _heat(axes, chart)
    return figure


def _time(axes: Any, chart: TimeChart) -> None:
    write = FORMATS[chart.unit]
    at = [moment + chart.step / 2 for moment in chart.times]
    for begin, end in chart.gaps:
        axes.axvspan(begin, end, color=_GAP, linewidth=0)
    for band in chart.bands:
        for start, stop in runs(band.low):
            low, high = [v or 0.0 for v in band.low[start:stop]], [v or 0.0 for v in band.high[start:stop]]
            color = _COLORS[band.color]
            axes.fill_between(at[start:stop], low, high, color=color, alpha=band.strength, linewidth=0, label=band.name)
    base = [0.0] * len(at)
    for index, line in enumerate(chart.lines):
        color = _COLORS[(index if line.color is None else line.color) % len(_COLORS)]
        label: str | None = _plain(line.name)
        for start, stop in runs(line.values):
            values = [(v or 0.0) + (b if chart.stacked else 0.0) for v, b in zip(line.values, base, strict=True)][
                start:stop
            ]
            if chart.stacked:
                axes.fill_between(
                    at[start:stop], base[start:stop], values, color=color, alpha=0.85, linewidth=0, label=label
                )
            else:
                single = {"marker": "o", "markersize": 3} if stop - start == 1 else {}
                axes.plot(at[start:stop], values, color=color, label=label, **_STYLES[line.style], **single)
            label = None
        if chart.stacked:
            base = [b + (v or 0.0) for b, v in zip(base, line.values, strict=True)]
    for level in chart.levels:
        axes.axhline(level.value, color=_LIMIT, linewidth=1.2)
        axes.annotate(_plain(level.name), (chart.times[0], level.value), (4, 4), textcoords="offset points", fontsize=9)
    for moment, label in chart.marks:
        axes.axvline(moment, color=_SOFT, linewidth=1, linestyle=":")
        axes.annotate(label, (moment, 0), (-4, 6), textcoords="offset points", fontsize=9, ha="right")
    marks = ticks(chart.highest, chart.unit)
    top = chart.highest if chart.top is not None else max(marks[-1], chart.highest)
    axes.set_ylim(0, top)
    axes.set_yticks([value for value in marks if value <= top])
    axes.set_yticklabels([write(value) for value in marks if value <= top])
    axes.set_xlim(chart.times[0], chart.times[-1] + chart.step)
    moments = time_ticks(chart.times[0], chart.times[-1] + chart.step)
    axes.set_xticks([when for when, _ in moments])
    axes.set_xticklabels([text.moment(when, form) for when, form in moments])
    axes.grid(axis="y", color="#e3e1da")
    axes.set_axisbelow(True)
    if len(chart.lines) + len(chart.bands) > 1:
        axes.legend(fontsize=8, frameon=False, ncols=3, loc="upper left", bbox_to_anchor=(0, -0.1))


def _bars(axes: Any, chart: BarChart) -> None:
    places = range(len(chart.bars))
    axes.barh(places, [value for _, value in chart.bars], height=0.5, color=_COLORS[0], label=chart.legend[0] or None)
    if chart.second:
        others = [value or 0.0 for value in chart.second]
        axes.barh([at + 0.36 for at in places], others, height=0.14, color=_COLORS[7], label=chart.legend[1] or None)
        axes.legend(fontsize=8, frameon=False)
    axes.set_yticks(list(places), [_plain(name) for name, _ in chart.bars])
    axes.invert_yaxis()
    write = FORMATS[chart.unit]
    for at, (_, value) in zip(places, chart.bars, strict=True):
        axes.annotate(write(value), (value, at), (4, -3), textcoords="offset points", fontsize=9)
    axes.margins(x=0.12)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)


def _heat(axes: Any, chart: HeatChart) -> None:
    cells = [[float("nan") if value is None else value for value in row] for row in chart.cells]
    image = axes.imshow(cells, aspect="auto", cmap="Blues", interpolation="nearest", vmin=0)
    axes.set_facecolor(_GAP)
    axes.set_yticks(range(len(chart.rows)), chart.rows)
    axes.set_xticks(range(0, len(chart.columns), 3), chart.columns[::3])
    write = FORMATS[chart.unit]
    axes.figure.colorbar(image, ax=axes, format=lambda value, _: write(value))
