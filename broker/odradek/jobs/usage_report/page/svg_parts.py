"""What all drawings of charts share: sizes, formats of values, and the outer elements. Pure functions."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from odradek.jobs.usage_report.page import text
from odradek.jobs.usage_report.page.charts import BYTES, COUNT, MONEY, RATE, SECONDS, SHARE, Chart

#: Each chart is drawn in these widths, from which the style sheet selects one by the space that the chart has: so text is 10 to
#: 15 pixels high on every screen. `style.css` has the limits.
WIDTHS = (1100, 740, 500, 340)
#: In drawings up to this width names have lines of their own above their bars.
NARROW = 400
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
        f'<svg class="w{number(width)}" viewBox="0 0 {number(width)} {number(height)}" role="img" '
        f'aria-label="{escape(chart.title)}" preserveAspectRatio="xMidYMid meet">{inner}</svg>'
    )


def legend_list(entries: list[tuple[str, str]]) -> str:
    if not entries:
        return ""
    items = "".join(f'<li><span class="key {kind}"></span>{escape(name)}</li>' for name, kind in entries)
    return f'<ul class="legend">{items}</ul>'
