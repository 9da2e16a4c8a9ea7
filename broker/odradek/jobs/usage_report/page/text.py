"""Formats quantities for people, and tables as HTML and for the terminal. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import escape

MISSING = "\N{EN DASH}"
_THIN = "\N{NARROW NO-BREAK SPACE}"
_MINUS = "\N{MINUS SIGN}"


def quantity(value: float | None, unit: str = "") -> str:
    """Return `value` with three digits and k, M, G, T, P (powers of 1000); an en dash if it is None or not finite."""
    if value is None or not math.isfinite(value):
        return MISSING
    size, prefix = abs(float(value)), ""
    for prefix in ("", "k", "M", "G", "T", "P", "E"):
        if size < 999.5 or prefix == "E":
            break
        size /= 1000
    digits = f"{size:.0f}" if prefix == "" and float(value).is_integer() else _three_digits(size)
    sign = _MINUS if value < 0 and float(digits) else ""
    tail = prefix + unit
    return f"{sign}{digits}{_THIN if tail else ''}{tail}"


def _three_digits(size: float) -> str:
    """Return a number of at least 0 with at least three digits."""
    return f"{size:,.0f}" if size >= 99.95 else f"{size:.1f}" if size >= 9.995 else f"{size:.2f}"


def bytes_(value: float | None) -> str:
    return quantity(value, "B")


def rate(value: float | None) -> str:
    """Return bytes per second."""
    return quantity(value, "B/s")


_LARGE_COUNTS = (("tn", "trillion", 10**12), ("bn", "billion", 10**9), ("M", "million", 10**6))


def count(value: float | None, *, long: bool = False) -> str:
    """Return a whole number with separated thousands; from a million on three digits with M, bn or tn.

    :param long: write million, billion and trillion in full, for sentences
    """
    if value is None or not math.isfinite(value):
        return MISSING
    for short, word, size in _LARGE_COUNTS:
        if abs(value) >= max(size * 0.9995, 1_000_000):
            sign = _MINUS if value < 0 else ""
            return f"{sign}{_three_digits(abs(value) / size)}{_THIN}{word if long else short}"
    return f"{round(value):,}".replace("-", _MINUS)


def counted(value: float, singular: str, plural: str = "") -> str:
    """Return a number with its noun: 1 gap, 2 gaps. `plural` is needed only for nouns that do not take an s."""
    shown = count(value, long=True)
    return f"{shown} {singular if shown == '1' else plural or f'{singular}s'}"


def money(value: float | None) -> str:
    """Return an amount with two decimals; an amount below a cent with two significant digits, so that it is not 0."""
    if value is None or not math.isfinite(value):
        return MISSING
    digits = 2 if value == 0 or abs(value) >= 0.01 else 1 - math.floor(math.log10(abs(value)))
    return f"{value:,.{digits}f}".replace("-", _MINUS)


def percent(share: float | None, digits: int = 1) -> str:
    if share is None or not math.isfinite(share):
        return MISSING
    text = f"{share * 100:.{digits}f}"
    return f"{text}{_THIN}%".replace("-", _MINUS)


def change(now: float, before: float, known: bool = True) -> str:
    """Return the change from `before` to `now` as +12 %; "new" or an en dash if `before` is 0."""
    if not known:
        return MISSING
    if not before:
        return "new" if now else MISSING
    share = now / before - 1
    if share >= 9.995:
        return f"\N{MULTIPLICATION SIGN}{_THIN}{now / before:.0f}"
    return ("+" if share > 0 else "") + percent(share, 0)


def duration(seconds: float | None) -> str:
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        if abs(seconds) >= size * (2 if unit == "d" else 1):
            value = seconds / size
            return f"{value:.0f}{_THIN}{unit}" if value >= 9.95 or value == int(value) else f"{value:.1f}{_THIN}{unit}"
    return f"{seconds * 1000:.0f}{_THIN}ms" if seconds else f"0{_THIN}s"


def days(value: float | None, horizon: int) -> str:
    """Return a number of days until an event; None means beyond the horizon."""
    if value is None:
        return f">{_THIN}{horizon}"
    return f"{value:.1f}" if 0 < value < 2.95 else f"{value:.0f}"


def moment(seconds: float, form: str = "%a %d %b %H:%M") -> str:
    """Return a time in UTC; independent of the locale, so that every machine writes the same text."""
    at = datetime.fromtimestamp(seconds, UTC)
    names = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
    months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    text = form.replace("%a", names[at.weekday()]).replace("%b", months[at.month - 1])
    return at.strftime(text.replace("%d", str(at.day)))


def date(day: float) -> str:
    """Return the date of a number of days since 1970."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=math.floor(day))).strftime("%Y-%m-%d")


def attribute(value: float | int | None) -> str:
    """Return the exact number for a data attribute."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


@dataclass(frozen=True)
class Cell:
    """A cell of a table: the text, and the exact value if it is a number; `bar` (0 to 1) draws a bar in the background."""

    text: str
    value: float | None = None
    number: bool = True
    bar: float | None = None
    tone: str = ""


@dataclass(frozen=True)
class Table:
    """A table: name (the `data-table` attribute), columns as (key, title), rows of cells; the first cell heads its row."""

    name: str
    title: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    def only(self, keys: Sequence[str]) -> Table:
        """Return this table with only the columns of `keys`; keys that it does not have are ignored."""
        kept = [index for index, (key, _) in enumerate(self.columns) if key in keys]
        rows = tuple(tuple(row[index] for index in kept) for row in self.rows)
        return Table(self.name, self.title, tuple(self.columns[index] for index in kept), rows, self.note)


def name_cell(text: str) -> Cell:
    return Cell(text, number=False)


def time_cell(text: str) -> Cell:
    """Return a cell with a time, which is never broken over lines."""
    return Cell(text, number=False, tone="whole")


def table_html(table: Table) -> str:
    """Return the table as HTML that scrolls separately from the page and is reachable by keyboard."""
    head = "".join(
        f'<th scope="col"{_number_class(table, index)}>{escape(title)}</th>'
        for index, (_, title) in enumerate(table.columns)
    )
    body = []
    for row in table.rows:
        cells = []
        for (key, _), cell, first in zip(table.columns, row, [True] + [False] * len(row), strict=False):
            kinds = " ".join(kind for kind in ("number" if cell.number else "", cell.tone) if kind)
            attributes = f' class="{kinds}"' if kinds else ""
            if cell.number and cell.value is not None:
                attributes += f' data-key="{escape(key)}" data-value="{attribute(cell.value)}"'
            bar = ""
            if cell.bar is not None and math.isfinite(cell.bar):
                bar = f'<span class="bar" style="--part:{max(0.0, min(1.0, cell.bar)):.4f}"></span>'
            tag, scope = ("th", ' scope="row"') if first else ("td", "")
            cells.append(f"<{tag}{scope}{attributes}>{bar}{escape(cell.text)}</{tag}>")
        heading = escape(row[0].text, quote=True)
        body.append(f'<tr data-row="{heading}">{"".join(cells)}</tr>')
    note = f'<p class="remark">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.title)}">'
        f'<table data-table="{escape(table.name)}"><caption>{escape(table.title)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>{note}"
    )


def _number_class(table: Table, index: int) -> str:
    return ' class="number"' if table.rows and table.rows[0][index].number else ""


def table_lines(table: Table, most: int = 5, width: int = 98) -> list[str]:
    """Return the table's first rows as lines of text for a terminal.

    A name that does not fit beside its values is on a separate line, and its values follow on the next line.
    """
    titles = [title for _, title in table.columns]
    rows = [[cell.text for cell in row] for row in table.rows[:most]]
    widths = [max(len(line[i]) for line in [titles, *rows]) for i in range(len(titles))]
    widths[0] = min(widths[0], max(16, width - sum(widths[1:]) - 2 * (len(widths) - 1)))
    right = [bool(table.rows) and table.rows[0][i].number for i in range(len(titles))]
    lines = []
    for row in [titles, *rows]:
        if len(row[0]) > widths[0]:
            lines.append(row[0])
            row[0] = ""
        lines.append(_line(row, widths, right))
    return lines


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    parts = [
        cell.rjust(width) if to_right else cell.ljust(width)
        for cell, width, to_right in zip(cells, widths, right, strict=True)
    ]
    return "  ".join(parts).rstrip()
