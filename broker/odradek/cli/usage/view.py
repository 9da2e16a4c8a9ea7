"""Prints total usage as a table or as JSON, and warnings about its spool. Runs in the process of the command."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from odradek.cli.framework.echo import echo
from odradek.cli.framework.output import (
    GroupedNumber,
    ago,
    count,
    echo_json,
    informative,
    print_table,
    size,
    span,
    when,
)
from odradek.clock import now_ms
from odradek.metrics.usage_totals import Counts, UsageKey, grouped, top

if TYPE_CHECKING:
    from odradek.metrics.spool_history import History

NO_TOPIC = "(none)"
END_OF_TRANSACTION = "EndTxn"
"""The API that counts transactions: producers send it once for each of them."""
Period = tuple[int | None, int | None]


def name_cell(name: str | None) -> str:
    """A name as a cell; `NO_TOPIC` for usage without a topic or API."""
    return name or NO_TOPIC


def show_sums(
    sums: Mapping[UsageKey, Counts],
    period: Period,
    *,
    by: Sequence[str],
    sort: str,
    limit: int | None,
    as_json: bool,
    history: "History | None",
    wide: bool = False,
) -> None:
    """Print a row for each combination of the dimensions `by`, and the sum of all.

    :param period: the start and end of the counts, in ms since 1970. :param wide: print all columns, and times in full.
    """
    by = tuple(dict.fromkeys(by))
    rows = top(grouped(sums, by), sort, limit)
    ends = transactions(sums, by)
    total = grouped(sums, ()).get((), Counts())
    if as_json:
        document: dict[str, Any] = {"from": period[0], "to": period[1], "by": by, "sum": total.as_dict()}
        document["rows"] = [
            dict(zip(by, key, strict=True)) | counts.as_dict() | {"transactions": ends.get(key, 0)}
            for key, counts in rows
        ]
        if history is not None:
            document["damages"] = [str(damage) for damage in history.damages]
            document["gaps"] = [gap._asdict() for gap in history.gaps]
        echo_json(document)
        return
    counts = [counts for _, counts in rows]

    def numbers(name: str) -> list[Any]:
        return [GroupedNumber(each.get(name)) for each in counts]

    def spans(name: str) -> list[Any]:
        return [span(each.get(name)) if each.get(name) else None for each in counts]

    columns: list[tuple[str, Sequence[Any]]] = [
        *((dimension, [name_cell(key[number]) for key, _ in rows]) for number, dimension in enumerate(by)),
        ("in", [size(each.get("in")) for each in counts]),
        ("out", [size(each.get("out")) for each in counts]),
        ("records in", numbers("rin")),
        ("records out", numbers("rout")),
        *([("requests", numbers("req"))] if wide or sort == "requests" else []),
        ("errors", numbers("err")),
        ("transactions", [GroupedNumber(ends.get(key, 0)) for key, _ in rows]),
        ("throttled", spans("thr")),
    ]
    if wide:
        columns += [
            ("connected", spans("conn")),
            ("since", [when(each.since_ms) for each in counts]),
            ("last", [when(each.last_ms) for each in counts]),
        ]
    else:
        now = now_ms()
        columns.append(("last used", [ago(each.last_ms, now) for each in counts]))
    titles, cells = informative(
        columns, () if wide else ("records in", "records out", "errors", "transactions", "throttled")
    )
    print_table(titles, cells, "no usage", fold=not wide)
    if period[0] is not None and period[1] is not None:
        echo()
        began, ended = when(period[0], "seconds"), when(period[1], "seconds")
        echo(
            f"Total from {began} to {ended}: {size(total.get('in'))} in, {size(total.get('out'))} out,"
            f" {count(total.get('rin'), 'record')} in, {total.get('rout'):,} out,"
            f" {count(total.get('req'), 'request')}, {count(total.get('err'), 'error')}"
        )


def transactions(sums: Mapping[UsageKey, Counts], by: Sequence[str]) -> dict[tuple[str | None, ...], int]:
    """The transactions that clients ended, by combination of the dimensions `by`; combinations without one are left out.

    A producer that ends its transactions sends EndTxn for each of them, and again if the coordinator is not ready.
    """
    ends = grouped({key: counts for key, counts in sums.items() if key.api == END_OF_TRANSACTION}, by)
    return {key: counts.get("req") for key, counts in ends.items() if counts.get("req")}
