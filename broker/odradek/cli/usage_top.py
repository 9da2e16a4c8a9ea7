"""``odradek usage top``: samples a broker's usage at an interval, and prints the rates. Runs in the process of the command."""

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.cli.echo import echo
from odradek.cli.output import cell, echo_json, print_table, size
from odradek.cli.output_pipe import pause
from odradek.cli.usage_view import name_cell
from odradek.metrics.usage import entries_of
from odradek.metrics.usage_totals import VALUES, Counts, Filter, UsageKey, grouped, growth, top

if TYPE_CHECKING:
    from rich.table import Table

    from odradek.cli.usage_source import Source

RATES = ("in", "out", "rin", "rout", "req", "err")
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


def samples(source: "Source", interval: float, only: Filter) -> Iterator[Sample]:
    """Yield a sample every `interval` seconds. Raises UsageError.

    If the broker has restarted in between, the sample covers the time since its start.
    """
    query = {name: list(patterns) for name, patterns in only._asdict().items() if patterns}
    before = source.usage(query)
    entries = entries_of(before)
    while True:
        pause(interval)
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
    """Print samples until Ctrl-C; one sample with `once`, or if standard output is not a terminal and `as_json` is not set."""
    sequence = samples(source, interval, only)
    if as_json:
        for sample in sequence:
            echo_json(as_document(sample, by, sort, limit))
            sys.stdout.flush()
            if once:
                return
    elif once or not sys.stdout.isatty():
        sample = next(sequence)
        rows = [[*map(name_cell, key), *map(_cell, RATES, rates)] for key, rates in _rows(sample, by, sort, limit)]
        print_table([by, *TITLES], rows, "no usage in this interval")
        _echo_sum(sample)
    else:
        _watch(source, sequence, by, sort, limit)


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


def _cell(name: str, rate: float) -> str:
    if name in ("in", "out"):
        return size(round(rate))
    return f"{rate:,.0f}" if rate >= 100 or not rate else f"{rate:.1f}"


def _sum_of(sample: Sample) -> list[str]:
    rates = sample.rates(grouped(sample.grown, ()).get((), Counts()))
    return [_cell(name, rate) for name, rate in zip(RATES, rates, strict=True)]


def _echo_sum(sample: Sample) -> None:
    words = ", ".join(f"{text} {title}" for title, text in zip(TITLES, _sum_of(sample), strict=True))
    echo(f"\nTotal: {words}, measured over {sample.seconds:.1f} s")


def _watch(source: "Source", sequence: Iterator[Sample], by: str, sort: str, limit: int) -> None:
    """Draw a table of each sample on the terminal's alternate screen, until Ctrl-C."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False)
    live = Live(
        Text(f"sampling {source.address} ..."),
        console=console,
        auto_refresh=False,
        screen=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    try:
        live.start(refresh=True)
        for sample in sequence:
            live.update(_table(source, sample, by, sort, min(limit, max(1, console.size.height - 8))), refresh=True)
    finally:  # not live.stop(), which fails, and keeps the alternate screen, if a signal has interrupted live.start()
        console.set_alt_screen(False)
        console.show_cursor(True)


def _table(source: "Source", sample: Sample, by: str, sort: str, limit: int) -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    rows = _rows(sample, by, sort, limit)
    title = f"{source.address}  {time.strftime('%H:%M:%S', time.localtime(sample.at_ms / 1000))}  press Ctrl-C to exit"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, show_footer=True)
    table.add_column(by, footer="total", overflow="fold")
    for heading, total in zip(TITLES, _sum_of(sample), strict=True):
        table.add_column(heading, footer=total, justify="right")
    for key, rates in rows:
        table.add_row(
            *(Text(name_cell(name)) for name in key), *(Text(cell(text)) for text in map(_cell, RATES, rates))
        )
    return table
