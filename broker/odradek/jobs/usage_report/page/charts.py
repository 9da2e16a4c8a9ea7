"""The contents of charts, independent of how they are drawn: `svg` draws them for the page, `plots` for PNG and PDF.

Values are None where nothing was measured; both draw a gap there, never a line across it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: How values are formatted: the names of functions of `text`.
BYTES, RATE, COUNT, SHARE, SECONDS, MONEY = "bytes", "rate", "count", "share", "seconds", "money"


@dataclass(frozen=True)
class Line:
    """A line: as many values as the chart has times. `style` is solid, faint (a comparison) or dashed (a forecast)."""

    name: str
    values: tuple[float | None, ...]
    style: str = "solid"
    fill: bool = False
    color: int | None = None


@dataclass(frozen=True)
class Band:
    """An area between two lines, for an interval."""

    name: str
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    color: int = 0
    strength: float = 0.18


@dataclass(frozen=True)
class Level:
    """A horizontal line: a limit."""

    name: str
    value: float


@dataclass(frozen=True)
class TimeChart:
    """Lines over time (seconds since 1970). `stacked` lines are stacked areas; `gaps` are spans without data.

    `marks` are times with a label, for example when a disk will be full.
    """

    name: str
    title: str
    unit: str
    times: tuple[float, ...]
    lines: tuple[Line, ...]
    step: float
    stacked: bool = False
    bands: tuple[Band, ...] = ()
    levels: tuple[Level, ...] = ()
    gaps: tuple[tuple[float, float], ...] = ()
    marks: tuple[tuple[float, str], ...] = ()
    top: float | None = None
    note: str = ""

    @property
    def highest(self) -> float:
        """The largest value that must be visible."""
        if self.top is not None:
            return self.top
        if self.stacked:
            sums = [sum(v or 0.0 for v in values) for values in zip(*(line.values for line in self.lines), strict=True)]
            return max(sums, default=0.0)
        values = [v for line in self.lines for v in line.values if v is not None]
        values += [v for band in self.bands for v in band.high if v is not None]
        values += [level.value for level in self.levels]
        return max(values, default=0.0)


@dataclass(frozen=True)
class BarChart:
    """Horizontal bars, one per name; `second` is a thinner bar below each, with the value for comparison."""

    name: str
    title: str
    unit: str
    bars: tuple[tuple[str, float], ...]
    second: tuple[float | None, ...] = ()
    legend: tuple[str, str] = ("", "")
    note: str = ""


@dataclass(frozen=True)
class HeatChart:
    """Rows (days) by columns (hours): one value per cell, None where it is unknown."""

    name: str
    title: str
    unit: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[float | None, ...], ...]
    note: str = ""


Chart = TimeChart | BarChart | HeatChart


def ticks(highest: float, unit: str, wanted: int = 4) -> list[float]:
    """Return round values from 0 to at least `highest`; integers for COUNT, because counts are formatted as integers."""
    if highest <= 0:
        return [0.0, 1.0]
    raw = highest / wanted
    factors: tuple[float, ...] = (1, 2, 2.5, 5, 10)
    if unit == COUNT:
        raw = max(1.0, raw)
        factors = (1, 2, 5, 10) if raw < 10 else factors
    power = 10.0 ** len(str(int(raw))) / 10 if raw >= 1 else 1.0
    while power > raw:
        power /= 10
    step = next(power * factor for factor in factors if power * factor >= raw * 0.999)
    result = [0.0]
    while result[-1] < highest * 0.999:
        result.append(round(result[-1] + step, 10))
    return result


def runs(values: Sequence[float | None]) -> list[tuple[int, int]]:
    """Return the runs without None as (index of the first, index after the last)."""
    result: list[tuple[int, int]] = []
    start: int | None = None
    for index, value in enumerate([*values, None]):
        if value is not None and start is None:
            start = index
        elif value is None and start is not None:
            result.append((start, index))
            start = None
    return result


def time_ticks(first: float, last: float, most: int = 8) -> list[tuple[float, str]]:
    """Return ticks of the time axis as (seconds, strftime pattern): about `most`, at midnights UTC if possible."""
    span = last - first
    day = 86400
    for step in (3600, 3 * 3600, 6 * 3600, 12 * 3600, day, 2 * day, 7 * day, 14 * day, 28 * day, 56 * day, 112 * day):
        if span / step <= most:
            break
    # weeks begin on Mondays: 1970-01-05 was a Monday
    origin = 4 * day if step >= 7 * day else 0
    at = -(-(first - origin) // step) * step + origin
    form = "%H:%M" if step < day else "%a %d %b" if step < 7 * day else "%d %b"
    result = []
    while at <= last:
        result.append((at, "%a %d" if step < day and at % day == 0 else form))
        at += step
    return result
