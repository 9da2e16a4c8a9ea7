"""Output of the commands: tables, JSON, progress bars, and values in readable units. Runs in the process of the command.

A table is the same on a terminal and in a pipe: titles in capitals, columns two spaces apart. On a terminal, rich writes it:
titles are bold, states and lags have colours, and columns are folded if the terminal is too narrow. Without a terminal, cells
are neither folded nor coloured. NO_COLOR in the environment turns off the colours.
"""

import json
import os
import stat
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any, Protocol

import click

from odradek.printable import in_json, one_cell

if TYPE_CHECKING:
    from rich.console import RenderableType


def echo_json(value: Any) -> None:
    """Print the value as one line of JSON."""
    click.echo(json_line(value))


def json_line(value: Any) -> str:
    """The value as one line of JSON. Names are written as they are, but for characters that control a terminal."""
    return in_json(json.dumps(value, ensure_ascii=False, default=str))


class GroupedNumber(int):
    """A count that tables show with separators: 5,424,624. Not for ids and offsets, which users copy."""

    def __str__(self) -> str:
        return f"{int(self):,}"


class Amount(str):
    """A number with its unit, such as "1.5 MB": tables align it to the right, as they do numbers."""

    __slots__ = ()


NAMES_SHOWN = 5
"""How many names of a list a sentence has."""

GOOD, ATTENTION, BAD = "green", "yellow", "red"
"""The colours of values that are in order, that may need attention, and that are faults."""
_STATES = {
    "ok": GOOD,
    "running": GOOD,
    "serving": GOOD,
    "stable": GOOD,
    "empty": ATTENTION,
    "starting": ATTENTION,
    "stopping": ATTENTION,
    "preparingrebalance": ATTENTION,
    "completingrebalance": ATTENTION,
    "assigning": ATTENTION,
    "reconciling": ATTENTION,
    "under-replicated": ATTENTION,
    "without leader": BAD,
    "not registered": BAD,
    "offline": BAD,
    "failed": BAD,
    "dead": BAD,
}
"""The colour of a state, by its last words."""


def _of_state(value: Any) -> str:
    return next((colour for words, colour in _STATES.items() if str(value).lower().endswith(words)), "")


def _of_lag(value: Any) -> str:
    return "" if cell(value) == "-" else GOOD if cell(value) == "0" else ATTENTION


def _of_fault(value: Any) -> str:
    return "" if cell(value) in ("-", "0") else BAD


_COLOURS: Mapping[str, Callable[[Any], str]] = {
    "health": _of_state,
    "state": _of_state,
    "lag": _of_lag,
    "errors": _of_fault,
    "errors/s": _of_fault,
    "stopped": _of_fault,
    "last exit": _of_fault,
}
"""How a column's values are coloured, by its title."""


def colour_of(title: str, value: Any) -> str:
    """The colour of a value in a column; empty if it has none."""
    return _COLOURS[title](value) if title in _COLOURS else ""


def cell(value: Any) -> str:
    """A value as the text of a table cell; "-" for None and for an empty value. Control characters are escaped: a line break in
    a name would make another row."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return one_cell(",".join(map(str, value))) or "-"
    return one_cell(str(value))


def is_numeric(rows: Sequence[Sequence[Any]], column: int) -> bool:
    """Whether a column contains only numbers, which are aligned to the right."""
    values = [row[column] for row in rows if row[column] is not None]
    return bool(values) and all(
        isinstance(value, (int, float, Amount)) and not isinstance(value, bool) for value in values
    )


def print_table(titles: Sequence[str], rows: Sequence[Sequence[Any]], empty: str, fold: bool = True) -> None:
    """Print a table. :param empty: printed on stderr instead of a table without rows.

    :param fold: whether to fold columns if the terminal is too narrow; otherwise the terminal breaks the lines.
    """
    if not rows:
        click.echo(empty, err=True)
        return
    right = [is_numeric(rows, column) for column in range(len(titles))]
    if sys.stdout.isatty():
        _print_to_terminal(titles, rows, right, fold)
        return
    cells = [[title.upper() for title in titles], *([cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        parts = [
            text.rjust(width) if is_right else text.ljust(width)
            for text, width, is_right in zip(row, widths, right, strict=True)
        ]
        click.echo("  ".join(parts).rstrip())


def informative(
    columns: Sequence[tuple[str, Sequence[Any]]], optional: Container[str]
) -> tuple[list[str], list[list[Any]]]:
    """The titles and rows of a table without those optional columns that have neither a number above 0 nor a text.

    :param columns: each has a title and its values.
    """
    shown = [(title, values) for title, values in columns if title not in optional or any(values)]
    return [title for title, _ in shown], [list(row) for row in zip(*(values for _, values in shown), strict=True)]


_UNLIMITED = 1 << 14
"""More columns than a table has."""


def _print_to_terminal(titles: Sequence[str], rows: Sequence[Sequence[Any]], right: Sequence[bool], fold: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title, is_right in zip(titles, right, strict=True):
        table.add_column(title.upper(), justify="right" if is_right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell(value), colour_of(title, value)) for title, value in zip(titles, row, strict=True)))
    Console(highlight=False, width=None if fold else _UNLIMITED).print(table)


def rendered(content: "RenderableType") -> str:
    """The text of a table of rich, as the terminal of standard output would show it. The cells must be escaped (`cell`)."""
    from rich.console import Console

    console = Console(highlight=False)
    with console.capture() as capture:
        console.print(content)
    return capture.get()


def size(value: int | None) -> Amount:
    """Bytes in a readable unit, e.g. "1.5 MB"; "-" for None."""
    if value is None:
        return Amount("-")
    number = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return Amount(f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}")
        number /= 1000
    return Amount(f"{number:.1f} TB")


def per_second(rate: float) -> Amount:
    """A rate of records or requests: one decimal below 100."""
    return Amount(f"{rate:,.0f}" if rate >= 100 or not rate else f"{rate:.1f}")


def ago(time_ms: int, now_ms: int) -> Amount:
    """How long ago a time was, in its largest unit, e.g. "32 min ago". Both times are in ms since 1970."""
    past = now_ms - time_ms
    if past < 1000:
        return Amount("now")
    number, unit, *_ = span(past if past >= 60_000 else past // 1000 * 1000).split()
    return Amount(f"{number} {unit} ago")


def count(number: int, noun: str) -> str:
    """ "1 record", "2 records"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def abbreviate(names: Iterable[str]) -> str:
    """The first `NAMES_SHOWN` names, separated by commas, and the number of the others."""
    words = list(names)
    return ", ".join(words[:NAMES_SHOWN]) + (
        f" and {len(words) - NAMES_SHOWN} more" if len(words) > NAMES_SHOWN else ""
    )


def when(time_ms: int, precision: str = "milliseconds") -> str:
    """A time in ms since 1970 as ISO 8601 text in the time zone of this machine; "-" if negative.

    :param precision: as the timespec of `datetime.isoformat`.

    A time after the year 9999, for example of a producer that writes microseconds, is "N ms".
    """
    if time_ms < 0:
        return "-"
    try:
        return datetime.fromtimestamp(time_ms / 1000).astimezone().isoformat(" ", precision)
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"


def span(milliseconds: int) -> Amount:
    """A duration in its two largest units, e.g. "2 d 3 h"."""
    if milliseconds < 1000:
        return Amount(f"{milliseconds} ms")
    if milliseconds < 60_000:
        return Amount(f"{milliseconds / 1000:.1f} s".replace(".0 s", " s"))
    parts = []
    rest = milliseconds // 1000
    for unit, seconds in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        number, rest = divmod(rest, seconds)
        if number:
            parts.append(f"{number} {unit}")
    return Amount(" ".join(parts[:2]))


class Advance(Protocol):
    """A function that advances a progress bar by a number of units."""

    def __call__(self, more: int = 1) -> None: ...


@contextmanager
def progress(title: str, total: int | None, unit: str, hidden: bool = False) -> Iterator[Advance]:
    """Show a progress bar on stderr, unless stderr is not a terminal. :param total: None if it is not known."""
    if hidden or not sys.stderr.isatty():
        yield lambda more=1: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,} " + unit),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda more=1: bar.advance(task, more)


@contextmanager
def bytes_progress(title: str, total: int, hidden: bool = False) -> Iterator[Callable[[int], None]]:
    """Show bytes, share, rate and remaining time on stderr, unless stderr is not a terminal; yield a function that takes the
    bytes done so far. :param total: bytes."""
    if hidden or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.update(task, completed=done)


@contextmanager
def input_progress(title: str, source: IO[bytes], unit: str) -> Iterator[Advance]:
    """Show on stderr, unless it is not a terminal, the share of a file that was read, and the remaining time. Of a pipe, show
    the number of units; while a user types the input, nothing."""
    if not sys.stderr.isatty() or source.isatty():
        yield lambda more=1: None
        return
    descriptor = source.fileno()
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode):
        with bytes_progress(title, status.st_size) as done:
            yield lambda more=1: done(os.lseek(descriptor, 0, os.SEEK_CUR))
    else:
        with progress(title, None, unit) as advance:
            yield advance
