"""Draws charts as inline SVG, coloured by the page's style sheet; they are readable without colours and without a mouse.

Pure functions. The `aria-label` of each chart describes it, a JSON block contains its exact values for the page's
script (the values under the pointer), and `document` puts a table beside it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from html import escape

from odradek.jobs.usage_report.page import text
from odradek.jobs.usage_report.page.charts import (
    BYTES,
    COUNT,
    MONEY,
    RATE,
    SECONDS,
    SHARE,
    BarChart,
    Chart,
    HeatChart,
    TimeChart,
    runs,
    ticks,
    time_ticks,
)

#: Widths of a chart that has a row for itself and of one beside another: so that text has the same size in both.
FULL_WIDTH, HALF_WIDTH = 1100, 540
HEIGHT = 260
LEFT, RIGHT, TOP, BOTTOM = 66, 14, 14, 28
COLORS = 8
FORMATS: dict[str, Callable[[float | None], str]] = {
    BYTES: text.bytes_,
    RATE: text.rate,
    COUNT: text.count,
    SHARE: text.percent,
    SECONDS: text.duration,
    MONEY: text.money,
}


def draw(chart: Chart, width: int = FULL_WIDTH) -> str:
    """Return the chart as a `<figure>`, drawn for `width` pixels."""
    if isinstance(chart, TimeChart):
        body, legend, data = _time(chart, width)
    elif isinstance(chart, BarChart):
        body, legend, data = _bars(chart, width)
    else:
        body, legend, data = _heat(chart, width)
    note = f'<p class="remark">{escape(chart.note)}</p>' if chart.note else ""
    # a topic named </script> would end the block early
    values = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return (
        f'<figure class="chart" data-chart="{escape(chart.name)}"><figcaption>{escape(chart.title)}</figcaption>'
        f'{legend}<div class="plot">{body}</div>'
        f'<script type="application/json">{values}</script>{note}</figure>'
    )


def _n(value: float) -> str:
    """Return a coordinate as text."""
    return f"{value:.1f}".removesuffix(".0")


def _svg(chart: Chart, width: float, height: float, inner: str) -> str:
    return (
        f'<svg viewBox="0 0 {_n(width)} {_n(height)}" role="img" aria-label="{escape(chart.title)}" '
        f'preserveAspectRatio="xMidYMid meet">{inner}</svg>'
    )


def _legend(entries: list[tuple[str, str]]) -> str:
    if not entries:
        return ""
    items = "".join(f'<li><span class="key {kind}"></span>{escape(name)}</li>' for name, kind in entries)
    return f'<ul class="legend">{items}</ul>'


def _time(chart: TimeChart, width: int) -> tuple[str, str, dict]:
    first, last = chart.times[0], chart.times[-1] + chart.step
    marks = ticks(chart.highest, chart.unit)
    top = max(marks[-1], chart.highest) if chart.top is None else chart.highest
    marks = [value for value in marks if value <= top]
    write = FORMATS[chart.unit]

    def x(at: float) -> float:
        return LEFT + (at - first) / (last - first) * (width - LEFT - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)

    out = []
    for value in marks:
        out.append(f'<line class="grid" x1="{LEFT}" x2="{width - RIGHT}" y1="{_n(y(value))}" y2="{_n(y(value))}"/>')
        out.append(f'<text class="tick end" x="{LEFT - 8}" y="{_n(y(value) + 4)}">{escape(write(value))}</text>')
    for at, form in time_ticks(first, last):
        out.append(
            f'<line class="grid" x1="{_n(x(at))}" x2="{_n(x(at))}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM + 4}"/>'
        )
        if LEFT + 14 <= x(at) <= width - 20:
            label = escape(text.moment(at, form))
            out.append(f'<text class="tick middle" x="{_n(x(at))}" y="{HEIGHT - BOTTOM + 18}">{label}</text>')
    for begin, end in chart.gaps:
        left, right = x(max(begin, first)), x(min(end, last))
        if right <= left:
            continue
        out.append(
            f'<rect class="gap" x="{_n(left)}" y="{TOP}" width="{_n(max(right - left, 1.5))}" height="{HEIGHT - TOP - BOTTOM}">'
            f"<title>no data from {escape(text.moment(begin))} to {escape(text.moment(end))} UTC</title></rect>"
        )
    middle = chart.step / 2
    xs = [x(at + middle) for at in chart.times]
    for band in chart.bands:
        for start, stop in runs(band.low):
            up = " ".join(f"{_n(xs[i])},{_n(max(TOP, y(band.high[i] or 0.0)))}" for i in range(start, stop))
            down = " ".join(f"{_n(xs[i])},{_n(max(TOP, y(band.low[i] or 0.0)))}" for i in reversed(range(start, stop)))
            out.append(f'<polygon class="band s{band.color}" style="opacity:{band.strength}" points="{up} {down}"/>')
    base = [0.0] * len(chart.times)
    legend: list[tuple[str, str]] = []
    for index, line in enumerate(chart.lines):
        color = (index if line.color is None else line.color) % COLORS
        shown = line.values
        if chart.top is not None:  # a line above the chart ends at the upper edge
            shown = tuple(None if value is None or value > top else value for value in shown)
        for start, stop in runs(shown):
            points = []
            for i in range(start, stop):
                value = (line.values[i] or 0.0) + (base[i] if chart.stacked else 0.0)
                points.append((xs[i], max(TOP, y(value))))
            path = " ".join(f"{_n(px)},{_n(py)}" for px, py in points)
            if chart.stacked or line.fill:
                floor = [(xs[i], y(base[i] if chart.stacked else 0.0)) for i in reversed(range(start, stop))]
                below = " ".join(f"{_n(px)},{_n(py)}" for px, py in floor)
                kind = "area" if chart.stacked else "wash"
                out.append(f'<polygon class="{kind} s{color}" points="{path} {below}"/>')
            if stop - start == 1:
                out.append(f'<circle class="dot s{color}" cx="{_n(points[0][0])}" cy="{_n(points[0][1])}" r="2.5"/>')
            elif not chart.stacked:
                out.append(f'<polyline class="line {line.style} s{color}" points="{path}"/>')
        if chart.stacked:
            base = [b + (v or 0.0) for b, v in zip(base, line.values, strict=True)]
        legend.append((line.name, f"{'area' if chart.stacked else line.style} s{color}"))
    legend += [
        (band.name, f"band s{band.color} {'strong' if band.strength > 0.2 else ''}")
        for band in chart.bands
        if band.name
    ]
    for level in chart.levels:
        high = _n(y(level.value))
        out.append(f'<line class="level" x1="{LEFT}" x2="{width - RIGHT}" y1="{high}" y2="{high}"/>')
        out.append(f'<text class="mark" x="{LEFT + 6}" y="{_n(y(level.value) - 5)}">{escape(level.name)}</text>')
    for at, label in chart.marks:
        if not first <= at <= last:
            continue
        side = " end" if x(at) > width - 150 else ""
        shift = -5 if side else 5
        out.append(f'<line class="moment" x1="{_n(x(at))}" x2="{_n(x(at))}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        out.append(f'<text class="mark{side}" x="{_n(x(at) + shift)}" y="{HEIGHT - BOTTOM - 8}">{escape(label)}</text>')
    if chart.gaps:
        legend.append(("no data", "gap"))
    out.append(f'<line class="cursor" x1="0" x2="0" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
    data = {
        "kind": "time",
        "unit": chart.unit,
        "step": chart.step,
        "left": LEFT,
        "right": RIGHT,
        "width": width,
        "times": list(chart.times),
        "lines": [[line.name, list(line.values)] for line in chart.lines],
    }
    return _svg(chart, width, HEIGHT, "".join(out)), _legend(legend if len(legend) > 1 else []), data


def _bars(chart: BarChart, width: int) -> tuple[str, str, dict]:
    names_width, row = min(230, width // 3), 30 if chart.second else 24
    height = row * len(chart.bars) + 8
    seconds = chart.second or (None,) * len(chart.bars)
    most = (
        max([value for _, value in chart.bars] + [value for value in seconds if value is not None], default=0.0) or 1.0
    )
    write = FORMATS[chart.unit]
    room = width - names_width - 96
    out = []
    for index, ((name, value), other) in enumerate(zip(chart.bars, seconds, strict=True)):
        at = index * row + 6
        short = name if len(name) <= 28 else name[:27] + "\N{HORIZONTAL ELLIPSIS}"
        length = value / most * room
        out.append(
            f'<text class="label end" x="{names_width - 8}" y="{at + 12}">{escape(short)}<title>{escape(name)}</title></text>'
            f'<rect class="fill s0" x="{names_width}" y="{at}" width="{_n(max(length, 1))}" height="15" rx="2"/>'
            f'<text class="value" x="{_n(names_width + length + 6)}" y="{at + 12}">{escape(write(value))}</text>'
        )
        if other is not None:
            out.append(
                f'<rect class="fill before" x="{names_width}" y="{at + 17}" width="{_n(max(other / most * room, 1))}" '
                f'height="4" rx="1"><title>{escape(chart.legend[1])}: {escape(write(other))}</title></rect>'
            )
    legend = [(chart.legend[0], "area s0"), (chart.legend[1], "area before")] if chart.second else []
    data = {"kind": "bars", "unit": chart.unit, "bars": [list(bar) for bar in chart.bars], "second": list(chart.second)}
    return _svg(chart, width, height, "".join(out)), _legend(legend), data


def _heat(chart: HeatChart, width: int) -> tuple[str, str, dict]:
    left, top, row = 74, 6, 22
    cell = (width - left - RIGHT) / max(1, len(chart.columns))
    height = top + row * len(chart.rows) + 24
    most = max((value for cells in chart.cells for value in cells if value is not None), default=0.0) or 1.0
    write = FORMATS[chart.unit]
    out = []
    for index, (name, cells) in enumerate(zip(chart.rows, chart.cells, strict=True)):
        at = top + index * row
        out.append(f'<text class="tick end" x="{left - 8}" y="{at + 15}">{escape(name)}</text>')
        for column, value in enumerate(cells):
            where = f'x="{_n(left + column * cell + 0.7)}" y="{at}" width="{_n(cell - 1.4)}" height="{row - 2}"'
            tip = f"{name} {chart.columns[column]}: {write(value) if value is not None else 'no data'}"
            kind = 'class="gap"' if value is None else f'class="heat" style="opacity:{0.06 + 0.94 * value / most:.3f}"'
            out.append(f"<rect {kind} {where}><title>{escape(tip)}</title></rect>")
    for column, name in enumerate(chart.columns):
        if column % 3 == 0:
            at_x = _n(left + column * cell + 1)
            out.append(f'<text class="tick" x="{at_x}" y="{height - 8}">{escape(name)}</text>')
    data = {
        "kind": "heat",
        "unit": chart.unit,
        "rows": list(chart.rows),
        "cells": [list(cells) for cells in chart.cells],
    }
    return _svg(chart, width, height, "".join(out)), "", data
