"""Output of the commands: tables, JSON, progress bars, and values in readable units. Runs in the process of the command.

On a terminal, rich draws the tables. If standard output is not a terminal, the cells are written as aligned columns, neither
cut nor coloured.
"""

import json
import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import IO, Any, Protocol

import click

from odradek.printable import in_json, one_cell


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
    return bool(values) and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)


def print_table(titles: Sequence[str], rows: Sequence[Sequence[Any]], empty: str) -> None:
    """Print a table. :param empty: printed on stderr instead of a table without rows."""
    if not rows:
        click.echo(empty, err=True)
        return
    right = [is_numeric(rows, column) for column in range(len(titles))]
    cells = [[cell(value) for value in row] for row in rows]
    if sys.stdout.isatty():
        _draw(titles, cells, right)
        return
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    for row in [[title.upper() for title in titles], *cells]:
        parts = [
            text.rjust(width) if is_right else text.ljust(width)
            for text, width, is_right in zip(row, widths, right, strict=True)
        ]
        click.echo("  ".join(parts).rstrip())


def _draw(titles: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))  # narrow, for 80 columns
    for title, is_right in zip(titles, right, strict=True):
        table.add_column(title, justify="right" if is_right else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table)


def size(value: int | None) -> str:
    """Bytes in a readable unit, e.g. "1.5 MB"; "-" for None."""
    if value is None:
        return "-"
    number = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def count(number: int, noun: str) -> str:
    """ "1 record", "2 records"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def when(time_ms: int) -> str:
    """A time in ms since 1970 as ISO 8601 text in the time zone of this machine; "-" if negative.

    A time after the year 9999, for example of a producer that writes microseconds, is "N ms".
    """
    if time_ms < 0:
        return "-"
    try:
        return datetime.fromtimestamp(time_ms / 1000).astimezone().isoformat(" ", "milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"


def span(milliseconds: int) -> str:
    """A duration in its two largest units, e.g. "2 d 3 h"."""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f} s".replace(".0 s", " s")
    parts = []
    rest = milliseconds // 1000
    for unit, seconds in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        number, rest = divmod(rest, seconds)
        if number:
            parts.append(f"{number} {unit}")
    return " ".join(parts[:2])


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
