"""``odradek usage top``: samples a broker's usage at an interval, and prints the rates. Runs in the process of the command."""

import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.cli.framework.echo import echo
from odradek.cli.framework.output import Amount, cell, colour_of, echo_json, per_second, print_table, rendered, size
from odradek.cli.framework.output_pipe import pause
from odradek.cli.usage.screen import Screen
from odradek.cli.usage.view import name_cell
from odradek.metrics.usage import entries_of
from odradek.metrics.usage_totals import DIMENSIONS, SORTS, VALUES, Counts, Filter, UsageKey, grouped, growth, top

if TYPE_CHECKING:
    from rich.table import Table

    from odradek.cli.inspection.usage_source import Source

RATES = ("in", "out", "rin", "rout", "req", "err")
BAR_WIDTH = 12
TITLES = ("in/s", "out/s", "records in/s", "records out/s", "requests/s", "errors/s")


class Sample(NamedTuple):
    """The usage between two responses of the broker.

    :param at_ms: time of the second response, in ms since 1970.
    :param seconds: the time between them; more than 0.
    :param grown: the increase of each counter.
    """

    at_ms: int
    seconds: float
    grown: dict[UsageKey, Counts]

    def rates(self, counts: Counts) -> list[float]:
        """The rates per second of the counters in `RATES`."""
        return [counts.get(name) / self.seconds for name in RATES]


def samples(source: "Source", interval: float, only: Filter, wait: Callable[[float], None] = pause) -> Iterator[Sample]:
    """Yield a sample every `interval` seconds. Raises UsageError, and what `wait` raises.

    If the broker has restarted in between, the sample covers the time since its start.
    """
    query = {name: list(patterns) for name, patterns in only._asdict().items() if patterns}
    before = source.usage(query)
    entries = entries_of(before)
    while True:
        wait(interval)
        after = source.usage(query)
        now = entries_of(after)
        same = after["boot"] == before["boot"]
        began = before["clock"] if same else after["clock"] - (after["at"] - after["began"])
        seconds = max(1, after["clock"] - began) / 1000
        yield Sample(after["at"], seconds, growth(entries if same else (), now))
        before, entries = after, now


def run_top(
    source: "Source", *, by: str, sort: str, only: Filter, interval: float, limit: int, once: bool, as_json: bool
) -> None:
    """Print samples until `q` or Ctrl-C; one with `once`, or if standard output is not a terminal and `as_json` is not set."""
    if as_json:
        for sample in samples(source, interval, only):
            echo_json(as_document(sample, by, sort, limit))
            sys.stdout.flush()
            if once:
                return
    elif once or not sys.stdout.isatty():
        sample = next(samples(source, interval, only))
        rows = [[*map(name_cell, key), *map(_cell, RATES, rates)] for key, rates in _rows(sample, by, sort, limit)]
        print_table([by, *TITLES], rows, "no usage in this interval")
        _echo_sum(sample)
    else:
        _watch(source, only, interval, View(source.address, by, sort, limit))


def as_document(sample: Sample, by: str, sort: str, limit: int) -> dict[str, Any]:
    """A sample as JSON: the counts and rates of each group, and their sum."""
    groups = top(grouped(sample.grown, (by,)), sort, limit)
    total = grouped(sample.grown, ()).get((), Counts())

    def with_rates(counts: Counts) -> dict[str, Any]:
        rates = dict(zip(RATES, (round(rate, 3) for rate in sample.rates(counts)), strict=True))
        return dict(zip(VALUES, counts.values, strict=True)) | {"rates": rates}

    return {
        "at": sample.at_ms,
        "seconds": round(sample.seconds, 3),
        "sum": with_rates(total),
        "rows": [{by: key[0]} | with_rates(counts) for key, counts in groups],
    }


def _rows(sample: Sample, by: str, sort: str, limit: int) -> list[tuple[tuple[str | None, ...], list[float]]]:
    return [(key, sample.rates(counts)) for key, counts in top(grouped(sample.grown, (by,)), sort, limit)]


def _cell(name: str, rate: float) -> Amount:
    return size(round(rate)) if name in ("in", "out") else per_second(rate)


def _sum_of(sample: Sample) -> list[str]:
    rates = sample.rates(grouped(sample.grown, ()).get((), Counts()))
    return [_cell(name, rate) for name, rate in zip(RATES, rates, strict=True)]


def _echo_sum(sample: Sample) -> None:
    words = ", ".join(f"{text} {title}" for title, text in zip(TITLES, _sum_of(sample), strict=True))
    echo(f"\nTotal: {words}, measured over {sample.seconds:.1f} s")


class Quit(Exception):
    """The user has pressed `q`."""


@dataclass
class View:
    """What the terminal shows: the newest sample, by a dimension and in an order that keys change."""

    address: str
    by: str
    sort: str
    limit: int
    sample: Sample | None = None

    def press(self, key: str) -> None:
        """Change the view. Raises Quit."""
        if key == "q":
            raise Quit
        if key in ("s", "right", "S", "left"):
            self.sort = _next(tuple(SORTS), self.sort, 1 if key in ("s", "right") else -1)
        elif key == "b":
            self.by = _next(DIMENSIONS, self.by, 1)

    def text(self) -> str:
        """The table for the terminal."""
        return rendered(self._table(max(1, shutil.get_terminal_size().lines - 8)))

    def _table(self, height: int) -> "Table | str":
        from rich.table import Table
        from rich.text import Text

        if self.sample is None:
            return f"sampling {self.address} ..."
        rows = _rows(self.sample, self.by, self.sort, min(self.limit, height))
        moment = time.strftime("%H:%M:%S", time.localtime(self.sample.at_ms / 1000))
        title = f"{self.address}  {moment}  q: quit, s or arrows: sort, b: group by {_next(DIMENSIONS, self.by, 1)}\n"
        table = Table(
            title=title, title_justify="left", title_style="", box=None, pad_edge=False, padding=(0, 2, 0, 0),
            header_style="bold", footer_style="bold", show_footer=True,
        )  # fmt: skip
        table.add_column(self.by.upper(), footer="total", overflow="fold")
        sorted_by = [RATES.index(name) for name in SORTS[self.sort]]
        for number, (heading, total) in enumerate(zip(TITLES, _sum_of(self.sample), strict=True)):
            mark = " \N{BLACK DOWN-POINTING TRIANGLE}" if number in sorted_by else ""
            table.add_column(heading.upper() + mark, footer=total, justify="right")
        table.add_column("", no_wrap=True)
        amounts = [sum(rates[number] for number in sorted_by) for _, rates in rows]
        for (key, rates), amount in zip(rows, amounts, strict=True):
            bar = "\N{FULL BLOCK}" * round(BAR_WIDTH * amount / max(amounts)) if amount else ""
            cells = [_cell(name, rate) for name, rate in zip(RATES, rates, strict=True)]
            table.add_row(
                *(Text(cell(name_cell(name))) for name in key),
                *(Text(text, colour_of(title, text)) for title, text in zip(TITLES, cells, strict=True)),
                Text(bar, "blue"),
            )
        return table


def _next(names: Sequence[str], name: str, step: int) -> str:
    return names[(names.index(name) + step) % len(names)]


def _watch(source: "Source", only: Filter, interval: float, view: View) -> None:
    """Draw a table of each sample on the terminal's alternate screen, until the user quits."""

    def wait(seconds: float) -> None:
        end = time.monotonic() + seconds
        while (rest := end - time.monotonic()) > 0:
            for key in screen.keys(rest):
                view.press(key)
                screen.draw()

    with suppress(Quit), Screen(view.text) as screen:
        screen.draw()
        for view.sample in samples(source, interval, only, wait):
            screen.draw()
