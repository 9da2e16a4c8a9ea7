"""Sums of usage as tables and as JSON. In the process of the command."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.output import Grouped, count, echo_json, print_table, size, span, when
from odradek.metrics.usage_totals import Counts, UsageKey, grouped, top

if TYPE_CHECKING:
    from odradek.metrics.spool_history import History

NO_TOPIC = "(none)"
TOLD_DAMAGES = 5
Span = tuple[int | None, int | None]


def name_cell(name: str | None) -> str:
    """A name as a cell; what is of no topic, or of no API, is said to be."""
    return name or NO_TOPIC


def show_sums(
    sums: Mapping[UsageKey, Counts],
    during: Span,
    *,
    by: Sequence[str],
    sort: str,
    limit: int | None,
    as_json: bool,
    history: "History | None",
) -> None:
    """A row for each group, and their sum. :param during: of what time, in ms. :param by: some of the dimensions."""
    by = tuple(dict.fromkeys(by))
    rows = top(grouped(sums, by), sort, limit)
    whole = grouped(sums, ()).get((), Counts())
    if as_json:
        told: dict[str, Any] = {"from": during[0], "to": during[1], "by": by, "sum": whole.as_dict()}
        told["rows"] = [dict(zip(by, key, strict=True)) | counts.as_dict() for key, counts in rows]
        if history is not None:
            told["damages"] = [str(one) for one in history.damages]
            told["gaps"] = [one._asdict() for one in history.gaps]
        echo_json(told)
        return
    titles = [
        *by,
        "in",
        "out",
        "records in",
        "records out",
        "requests",
        "errors",
        "throttled",
        "connected",
        "since",
        "last",
    ]
    cells = [[*map(name_cell, key), *_cells(counts)] for key, counts in rows]
    print_table(titles, cells, "nothing was used")
    if during[0] is not None and during[1] is not None:
        click.echo()
        click.echo(
            f"From {when(during[0])} to {when(during[1])}: {size(whole.get('in'))} in, {size(whole.get('out'))} out,"
            f" {count(whole.get('rin'), 'record')} in, {whole.get('rout'):,} out,"
            f" {count(whole.get('req'), 'request')}, {count(whole.get('err'), 'error')}"
        )


def _cells(counts: Counts) -> list[Any]:
    return [
        size(counts.get("in")),
        size(counts.get("out")),
        Grouped(counts.get("rin")),
        Grouped(counts.get("rout")),
        Grouped(counts.get("req")),
        Grouped(counts.get("err")),
        span(counts.get("thr")) if counts.get("thr") else None,
        span(counts.get("conn")) if counts.get("conn") else None,
        when(counts.since_ms),
        when(counts.last_ms),
    ]


def print_damages(history: "History") -> None:
    """What the spool could not say, on stderr."""
    told = [str(one) for one in history.damages] + [str(one) for one in history.gaps]
    for line in told[:TOLD_DAMAGES]:
        click.echo(f"odradek: warning: {line}", err=True)
    if len(told) > TOLD_DAMAGES:
        click.echo(f"odradek: warning: and {len(told) - TOLD_DAMAGES} more like that", err=True)
