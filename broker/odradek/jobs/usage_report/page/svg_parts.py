"""What all drawings of charts share: sizes, formats of values, and the outer elements. Pure functions."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from odradek.jobs.usage_report.page import text
from odradek.jobs.usage_report.page.charts import BYTES, COUNT, MONEY, RATE, SECONDS, SHARE, Chart

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


def number(value: float) -> str:
    """Return a coordinate as text."""
    return f"{value:.1f}".removesuffix(".0")


def svg(chart: Chart, width: float, height: float, inner: str) -> str:
    return (
        f'<svg viewBox="0 0 {number(width)} {number(height)}" role="img" aria-label="{escape(chart.title)}" '
        f'preserveAspectRatio="xMidYMid meet">{inner}</svg>'
    )


def legend_list(entries: list[tuple[str, str]]) -> str:
    if not entries:
        return ""
    items = "".join(f'<li><span class="key {kind}"></span>{escape(name)}</li>' for name, kind in entries)
    return f'<ul class="legend">{items}</ul>'
