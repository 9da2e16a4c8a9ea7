"""Draws a chart of values over time as inline SVG: areas, lines, bands, levels, marked times and gaps."""

from __future__ import annotations

from html import escape
from typing import Any

from odradek.jobs.usage_report.page import text
from odradek.jobs.usage_report.page.charts import Line, TimeChart, runs, ticks, time_ticks
from odradek.jobs.usage_report.page.svg_parts import (
    BOTTOM,
    COLORS,
    FORMATS,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    legend_list,
    number,
    svg,
)

#: A marked time this close to the right edge (in pixels) has its label on its left.
_LABEL_WIDTH = 150
#: The time axis has at most one label per this many pixels.
_TICK_WIDTH = 64


class TimeDrawing:
    """One drawing of a `TimeChart`, `width` pixels wide. Elements that are added later are drawn above earlier ones."""

    def __init__(self, chart: TimeChart, width: int) -> None:
        self.chart, self.width = chart, width
        self._first, self._last = chart.times[0], chart.times[-1] + chart.step
        values = ticks(chart.highest, chart.unit)
        self._top = max(values[-1], chart.highest) if chart.top is None else chart.highest
        self._ticks = [value for value in values if value <= self._top]
        self._xs = [self._x(time + chart.step / 2) for time in chart.times]
        self._elements: list[str] = []
        self._legend: list[tuple[str, str]] = []

    def parts(self) -> tuple[str, str, dict[str, Any]]:
        """Return the `<svg>` element, the legend, and the exact values for the page's script."""
        chart = self.chart
        self._grid()
        self._gaps()
        self._bands()
        self._lines()
        self._legend += [
            (band.name, f"band s{band.color} {'strong' if band.strength > 0.2 else ''}")
            for band in chart.bands
            if band.name
        ]
        self._levels()
        self._marks()
        if chart.gaps:
            self._legend.append(("no data", "gap"))
        self._elements.append(f'<line class="cursor" x1="0" x2="0" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        data = {
            "kind": "time",
            "unit": chart.unit,
            "step": chart.step,
            "left": LEFT,
            "right": RIGHT,
            "times": list(chart.times),
            "lines": [[line.name, list(line.values)] for line in chart.lines],
        }
        legend = self._legend if len(self._legend) > 1 else []
        return svg(chart, self.width, HEIGHT, "".join(self._elements)), legend_list(legend), data

    def _x(self, time: float) -> float:
        return LEFT + (time - self._first) / (self._last - self._first) * (self.width - LEFT - RIGHT)

    def _y(self, value: float) -> float:
        return HEIGHT - BOTTOM - value / self._top * (HEIGHT - TOP - BOTTOM)

    def _grid(self) -> None:
        """The horizontal lines with their values, and the times."""
        right, write = self.width - RIGHT, FORMATS[self.chart.unit]
        for value in self._ticks:
            y = self._y(value)
            self._elements.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{number(y)}" y2="{number(y)}"/>')
            self._elements.append(
                f'<text class="tick end" x="{LEFT - 8}" y="{number(y + 4)}">{escape(write(value))}</text>'
            )
        for time, form in time_ticks(self._first, self._last, min(8, (self.width - LEFT) // _TICK_WIDTH)):
            x = self._x(time)
            self._elements.append(
                f'<line class="grid" x1="{number(x)}" x2="{number(x)}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM + 4}"/>'
            )
            if LEFT + 14 <= x <= self.width - 20:
                label = escape(text.moment(time, form))
                self._elements.append(
                    f'<text class="tick middle" x="{number(x)}" y="{HEIGHT - BOTTOM + 18}">{label}</text>'
                )

    def _gaps(self) -> None:
        for begin, end in self.chart.gaps:
            left, right = self._x(max(begin, self._first)), self._x(min(end, self._last))
            if right <= left:
                continue
            width, height = number(max(right - left, 1.5)), HEIGHT - TOP - BOTTOM
            self._elements.append(
                f'<rect class="gap" x="{number(left)}" y="{TOP}" width="{width}" height="{height}">'
                f"<title>no data from {escape(text.moment(begin))} to {escape(text.moment(end))} UTC</title></rect>"
            )

    def _points(self, values: list[tuple[int, float]]) -> str:
        """Return the points of (index of a time, value) as SVG text. A value above the chart lies on its upper edge."""
        return " ".join(f"{number(self._xs[index])},{number(max(TOP, self._y(value)))}" for index, value in values)

    def _bands(self) -> None:
        for band in self.chart.bands:
            for start, stop in runs(band.low):
                upper = self._points([(index, band.high[index] or 0.0) for index in range(start, stop)])
                lower = self._points([(index, band.low[index] or 0.0) for index in reversed(range(start, stop))])
                self._elements.append(
                    f'<polygon class="band s{band.color}" style="opacity:{band.strength}" points="{upper} {lower}"/>'
                )

    def _lines(self) -> None:
        base = [0.0] * len(self.chart.times)
        for index, line in enumerate(self.chart.lines):
            color = (index if line.color is None else line.color) % COLORS
            shown = line.values
            if self.chart.top is not None:  # a line above the chart ends at the upper edge
                shown = tuple(None if value is None or value > self._top else value for value in shown)
            for start, stop in runs(shown):
                self._run(line, color, base, start, stop)
            if self.chart.stacked:
                base = [below + (value or 0.0) for below, value in zip(base, line.values, strict=True)]
            self._legend.append((line.name, f"{'area' if self.chart.stacked else line.style} s{color}"))

    def _run(self, line: Line, color: int, base: list[float], start: int, stop: int) -> None:
        """Draw the values from index `start` up to `stop`, which has no gap. `base` is the sum of the areas below."""
        stacked = self.chart.stacked
        indexes = range(start, stop)
        path = self._points([(index, (line.values[index] or 0.0) + base[index]) for index in indexes])
        if stacked or line.fill:
            floor = " ".join(f"{number(self._xs[index])},{number(self._y(base[index]))}" for index in reversed(indexes))
            kind = "area" if stacked else "wash"
            self._elements.append(f'<polygon class="{kind} s{color}" points="{path} {floor}"/>')
        if stop - start == 1:
            x, y = path.split(",")
            self._elements.append(f'<circle class="dot s{color}" cx="{x}" cy="{y}" r="2.5"/>')
        elif not stacked:
            self._elements.append(f'<polyline class="line {line.style} s{color}" points="{path}"/>')

    def _levels(self) -> None:
        for level in self.chart.levels:
            y = self._y(level.value)
            self._elements.append(
                f'<line class="level" x1="{LEFT}" x2="{self.width - RIGHT}" y1="{number(y)}" y2="{number(y)}"/>'
            )
            self._elements.append(f'<text class="mark" x="{LEFT + 6}" y="{number(y - 5)}">{escape(level.name)}</text>')

    def _marks(self) -> None:
        for time, label in self.chart.marks:
            if not self._first <= time <= self._last:
                continue
            x = self._x(time)
            side, shift = (" end", -5) if x > self.width - _LABEL_WIDTH else ("", 5)
            self._elements.append(
                f'<line class="moment" x1="{number(x)}" x2="{number(x)}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
            )
            self._elements.append(
                f'<text class="mark{side}" x="{number(x + shift)}" y="{HEIGHT - BOTTOM - 8}">{escape(label)}</text>'
            )
