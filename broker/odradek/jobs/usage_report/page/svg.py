"""Draws charts as inline SVG, coloured by the page's style sheet; they are readable without colours and without a mouse.

Pure functions. The `aria-label` of each chart describes it, a JSON block contains its exact values for the page's
script (the values under the pointer), and `document` puts a table beside it.
"""

from __future__ import annotations

import json
from html import escape
from typing import Any

from odradek.jobs.usage_report.page.charts import BarChart, Chart, HeatChart, TimeChart
from odradek.jobs.usage_report.page.svg_parts import FORMATS, NARROW, RIGHT, WIDTHS, legend_list, number, svg
from odradek.jobs.usage_report.page.time_drawing import TimeDrawing


def draw(chart: Chart) -> str:
    """Return the chart as a `<figure>`, drawn in each of `WIDTHS`."""
    if isinstance(chart, TimeChart):
        drawings = [TimeDrawing(chart, width).parts() for width in WIDTHS]
    elif isinstance(chart, BarChart):
        drawings = [_bars(chart, width) for width in WIDTHS]
    else:
        drawings = [_heat(chart, width) for width in WIDTHS]
    body = "".join(drawing for drawing, _, _ in drawings)
    _, legend, data = drawings[0]
    note = f'<p class="remark">{escape(chart.note)}</p>' if chart.note else ""
    # a topic named </script> would end the block early
    values = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return (
        f'<figure class="chart" data-chart="{escape(chart.name)}"><figcaption>{escape(chart.title)}</figcaption>'
        f'{legend}<div class="plot">{body}</div>'
        f'<script type="application/json">{values}</script>{note}</figure>'
    )


def _bars(chart: BarChart, width: int) -> tuple[str, str, dict[str, Any]]:
    above = width <= NARROW
    names_width = 0 if above else min(230, width // 3)
    line = 18 if above else 0
    row = (30 if chart.second else 24) + line
    height = row * len(chart.bars) + 8
    letters = (width if above else names_width) // 8
    seconds = chart.second or (None,) * len(chart.bars)
    most = (
        max([value for _, value in chart.bars] + [value for value in seconds if value is not None], default=0.0) or 1.0
    )
    write = FORMATS[chart.unit]
    room = width - names_width - 96
    out = []
    for index, ((name, value), other) in enumerate(zip(chart.bars, seconds, strict=True)):
        at = index * row + 6 + line
        short = name if len(name) <= letters else name[: letters - 1] + "\N{HORIZONTAL ELLIPSIS}"
        length = value / most * room
        where = (
            f'class="label" x="0" y="{at - 6}"' if above else f'class="label end" x="{names_width - 8}" y="{at + 12}"'
        )
        out.append(
            f"<text {where}>{escape(short)}<title>{escape(name)}</title></text>"
            f'<rect class="fill s0" x="{names_width}" y="{at}" width="{number(max(length, 1))}" height="15" rx="2"/>'
            f'<text class="value" x="{number(names_width + length + 6)}" y="{at + 12}">{escape(write(value))}</text>'
        )
        if other is not None:
            out.append(
                f'<rect class="fill before" x="{names_width}" y="{at + 17}" width="{number(max(other / most * room, 1))}" '
                f'height="4" rx="1"><title>{escape(chart.legend[1])}: {escape(write(other))}</title></rect>'
            )
    legend = [(chart.legend[0], "area s0"), (chart.legend[1], "area before")] if chart.second else []
    data = {"kind": "bars", "unit": chart.unit, "bars": [list(bar) for bar in chart.bars], "second": list(chart.second)}
    return svg(chart, width, height, "".join(out)), legend_list(legend), data


def _heat(chart: HeatChart, width: int) -> tuple[str, str, dict[str, Any]]:
    left, top, row = 84, 6, 22
    cell = (width - left - RIGHT) / max(1, len(chart.columns))
    height = top + row * len(chart.rows) + 24
    most = max((value for cells in chart.cells for value in cells if value is not None), default=0.0) or 1.0
    write = FORMATS[chart.unit]
    out = []
    for index, (name, cells) in enumerate(zip(chart.rows, chart.cells, strict=True)):
        at = top + index * row
        out.append(f'<text class="tick end" x="{left - 8}" y="{at + 15}">{escape(name)}</text>')
        for column, value in enumerate(cells):
            where = f'x="{number(left + column * cell + 0.7)}" y="{at}" width="{number(cell - 1.4)}" height="{row - 2}"'
            tip = f"{name} {chart.columns[column]}: {write(value) if value is not None else 'no data'}"
            kind = 'class="gap"' if value is None else f'class="heat" style="opacity:{0.06 + 0.94 * value / most:.3f}"'
            out.append(f"<rect {kind} {where}><title>{escape(tip)}</title></rect>")
    for column, name in enumerate(chart.columns):
        if column % 3 == 0:
            at_x = number(left + column * cell + 1)
            out.append(f'<text class="tick" x="{at_x}" y="{height - 8}">{escape(name)}</text>')
    data = {
        "kind": "heat",
        "unit": chart.unit,
        "rows": list(chart.rows),
        "cells": [list(cells) for cells in chart.cells],
    }
    return svg(chart, width, height, "".join(out)), "", data
