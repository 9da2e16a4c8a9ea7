"""``odradek usage top``: rates between two looks at the broker, again and again. In the process of the command."""

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from odradek.cli.output import cell, echo_json, print_table, size
from odradek.cli.usage_view import name_cell
from odradek.metrics.usage import entries_of
from odradek.metrics.usage_totals import VALUES, Counts, Filter, UsageKey, grouped, growth, top

if TYPE_CHECKING:
    from rich.table import Table

    from odradek.cli.usage_source import Source

RATES = ("in", "out", "rin", "rout", "req", "err")
TITLES = ("in/s", "out/s", "records in/s", "records out/s", "requests/s", "errors/s")


class Look(NamedTuple):
    """What was counted between two looks. :param seconds: that lie between them; more than 0."""

    at_ms: int
    seconds: float
    grown: dict[UsageKey, Counts]

    def rates(self, counts: Counts) -> list[float]:
        """Per second, of `RATES`."""
        return [counts.get(name) / self.seconds for name in RATES]


def looks(source: "Source", interval: float, wanted: Filter) -> Iterator[Look]:
    """One each interval. Raises UsageError. :param interval: in seconds."""
    patterns = {name: list(some) for name, some in wanted._asdict().items() if some}
    before = source.ask(patterns)
    entries = entries_of(before)
    while True:
        time.sleep(interval)
        after = source.ask(patterns)
        now = entries_of(after)
        same = after["boot"] == before["boot"]
        began = before["clock"] if same else after["clock"] - (after["at"] - after["began"])
        seconds = max(1, after["clock"] - began) / 1000
        yield Look(after["at"], seconds, growth(entries if same else (), now))
        before, entries = after, now


def run_top(
    source: "Source", *, by: str, sort: str, wanted: Filter, interval: float, limit: int, once: bool, as_json: bool
) -> None:
    """Show until Ctrl-C; one look if that was asked for, or nobody watches."""
    found = looks(source, interval, wanted)
    if as_json:
        for look in found:
            echo_json(as_document(look, by, sort, limit))
            sys.stdout.flush()
            if once:
                return
    elif once or not sys.stdout.isatty():
        look = next(found)
        rows = [[*map(name_cell, key), *map(_cell, RATES, rates)] for key, rates in _rows(look, by, sort, limit)]
        print_table([by, *TITLES], rows, "nothing was used meanwhile")
        _echo_sum(look)
    else:
        _watch(source, found, by, sort, limit)


def as_document(look: Look, by: str, sort: str, limit: int) -> dict[str, Any]:
    """A look as JSON: for each group what was counted, and its rates."""
    groups = top(grouped(look.grown, (by,)), sort, limit)
    whole = grouped(look.grown, ()).get((), Counts())

    def told(counts: Counts) -> dict[str, Any]:
        rates = dict(zip(RATES, (round(rate, 3) for rate in look.rates(counts)), strict=True))
        return dict(zip(VALUES, counts.values, strict=True)) | {"rates": rates}

    return {
        "at": look.at_ms,
        "seconds": round(look.seconds, 3),
        "sum": told(whole),
        "rows": [{by: key[0]} | told(counts) for key, counts in groups],
    }


def _rows(look: Look, by: str, sort: str, limit: int) -> list[tuple[tuple[str | None, ...], list[float]]]:
    return [(key, look.rates(counts)) for key, counts in top(grouped(look.grown, (by,)), sort, limit)]


def _cell(name: str, rate: float) -> str:
    if name in ("in", "out"):
        return size(round(rate))
    return f"{rate:,.0f}" if rate >= 100 or not rate else f"{rate:.1f}"


def _sum_of(look: Look) -> list[str]:
    rates = look.rates(grouped(look.grown, ()).get((), Counts()))
    return [_cell(name, rate) for name, rate in zip(RATES, rates, strict=True)]


def _echo_sum(look: Look) -> None:
    words = ", ".join(f"{text} {title}" for title, text in zip(TITLES, _sum_of(look), strict=True))
    click.echo(f"\nAll: {words}; over {look.seconds:.1f} s")


def _watch(source: "Source", found: Iterator[Look], by: str, sort: str, limit: int) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False)
    with Live(Text(f"looking at {source.address} ..."), console=console, auto_refresh=False, screen=True) as live:
        for look in found:
            live.update(_table(source, look, by, sort, min(limit, max(1, console.size.height - 8))), refresh=True)


def _table(source: "Source", look: Look, by: str, sort: str, limit: int) -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    rows = _rows(look, by, sort, limit)
    title = f"{source.address}  {time.strftime('%H:%M:%S', time.localtime(look.at_ms / 1000))}  Ctrl-C ends"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, show_footer=True)
    table.add_column(by, footer="all", overflow="fold")
    for heading, whole in zip(TITLES, _sum_of(look), strict=True):
        table.add_column(heading, footer=whole, justify="right")
    for key, rates in rows:
        table.add_row(
            *(Text(name_cell(name)) for name in key), *(Text(cell(text)) for text in map(_cell, RATES, rates))
        )
    return table
