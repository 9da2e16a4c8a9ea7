"""``odradek usage topic``: the writers, readers and groups of a topic. Runs in the process of the command."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.cli.framework.echo import echo
from odradek.cli.framework.output import (
    Amount,
    GroupedNumber,
    ago,
    count,
    echo_json,
    informative,
    per_second,
    print_table,
    size,
    span,
    when,
)
from odradek.cli.inspection.usage_source import UsageError
from odradek.cli.usage.view import transactions
from odradek.metrics.pages import OTHER
from odradek.metrics.usage import entries_of
from odradek.metrics.usage_totals import Counts, UsageKey, growth, totals
from odradek.spelling import question

if TYPE_CHECKING:
    from odradek.cli.inspection.usage_source import Source
    from odradek.metrics.spool_history import History

WRITES, READS = "Produce", "Fetch"
_COUNTERS = {WRITES: ("in", "rin"), READS: ("out", "rout")}


def show_topic(
    source: "Source", name: str, interval: float, history: "History | None", *, as_json: bool, wide: bool = False
) -> None:
    """Print a topic's usage. Raises UsageError.

    :param interval: seconds over which rates are measured; 0: no rates.
    :param history: the topic's usage from the spool; None: the usage since the broker's start.
    :param wide: print all columns, and times in full.
    """
    document = source.usage({"name": name})
    if document["topic"] is None:
        raise UsageError(_unknown_topic(name, document["close"]))
    entries = _entries_of_topic(document, name)
    rates: dict[UsageKey, Counts] = {}
    seconds = None
    if interval > 0:
        time.sleep(interval)
        later = source.usage({"name": name})
        if later["topic"] is None:
            raise UsageError(f"topic '{name}' was deleted while its rates were measured")
        later_entries = _entries_of_topic(later, name)
        if later["boot"] == document["boot"]:
            seconds = max(1, later["clock"] - document["clock"]) / 1000
            rates = growth(entries, later_entries)
        document, entries = later, later_entries
    sums = totals(entries)
    if history is not None:
        sums = _with_history(sums, history)
    lags = {(row["principal"], row["client"]): row for row in document["readers"]}
    report = {
        "topic": document["topic"],
        "at": document["at"],
        "counted_since": document["began"] if history is None else history.from_ms,
        "counted_until": document["at"] if history is None else history.to_ms,
        "writers": _with_transactions(_rows(sums, rates, seconds, WRITES, {}), document),
        "readers": _rows(sums, rates, seconds, READS, lags),
        "groups": [
            {key: value for key, value in row.items() if key not in ("kind", "topic")} for row in document["groups"]
        ],
        "folded": any(entry["topic"] == OTHER for entry in entries_of(document)),
    }
    if as_json:
        echo_json(report)
    else:
        _print(name, report, wide)


def _unknown_topic(name: str, close: list[str]) -> str:
    return f"topic '{name}' does not exist; {question(close) or '`odradek topic list` shows the topics'}"


def _entries_of_topic(document: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [entry for entry in entries_of(document) if entry["topic"] == name]


def _with_history(sums: dict[UsageKey, Counts], history: "History") -> dict[UsageKey, Counts]:
    """The sums of the spool's period, with the clients that the broker counts now added, and times of use extended to now."""
    merged = dict(history.usage)
    for key, now in sums.items():
        known = merged.setdefault(key, Counts(list(now.values), now.since_ms, now.last_ms))
        known.since_ms, known.last_ms = min(known.since_ms, now.since_ms), max(known.last_ms, now.last_ms)
    return merged


def _rows(
    sums: dict[UsageKey, Counts],
    rates: dict[UsageKey, Counts],
    seconds: float | None,
    api: str,
    lags: dict[tuple[str, str], dict[str, Any]],
) -> list[dict[str, Any]]:
    """A row for each client that used the API, the largest number of bytes first."""
    size_name, records_name = _COUNTERS[api]
    rows = []
    for key, counts in sums.items():
        if key.api != api:
            continue
        row: dict[str, Any] = {
            "principal": key.principal,
            "client": key.client,
            "since": counts.since_ms,
            "last": counts.last_ms,
        }
        row |= {"bytes": counts.get(size_name), "records": counts.get(records_name)}
        row |= {"requests": counts.get("req"), "errors": counts.get("err")}
        now = rates.get(key, Counts())
        row["bytes_per_s"] = None if seconds is None else round(now.get(size_name) / seconds, 3)
        row["records_per_s"] = None if seconds is None else round(now.get(records_name) / seconds, 3)
        if api == READS:
            lag = lags.get((key.principal, key.client), {})
            row |= {"lag": lag.get("lag"), "lag_s": lag.get("lag_s")}
        rows.append(row)
    return sorted(rows, key=lambda row: (-row["bytes"], row["principal"], row["client"]))


def _with_transactions(writers: list[dict[str, Any]], document: dict[str, Any]) -> list[dict[str, Any]]:
    """The writers with the number of transactions that each client has ended, in all topics, since the broker's start."""
    ends = transactions(totals(entries_of(document)), ("principal", "client"))
    return [row | {"transactions": ends.get((row["principal"], row["client"]), 0)} for row in writers]


def _print(name: str, report: dict[str, Any], wide: bool) -> None:
    stored = report["topic"]
    records = max(0, stored["end"] - stored["start"])
    echo(
        f"Topic {name}: {size(stored['bytes'])} stored in {count(stored['partitions'], 'partition')}"
        f" (the largest has {size(stored['largest'])}), {records:,} offsets from log start to log end"
    )
    since, until = report["counted_since"], report["counted_until"]
    if since is not None and until is not None:
        echo(f"Bytes, records and errors are counted from {when(since, 'seconds')} to {when(until, 'seconds')}.")
        if until != report["at"]:
            echo(
                "These counts are from the spool. The time of the last use, the lag, and the groups show the state at "
                f"{when(report['at'], 'seconds')}."
            )
    if report["folded"]:
        echo("Some topics are counted together as 'other', so clients of this topic may be missing here.")
    for title, rows, empty in (
        ("Writers", report["writers"], "  no client wrote to the topic"),
        ("Readers", report["readers"], "  no client read from the topic"),
    ):
        echo(f"\n{title}")
        columns = _columns(rows, title == "Readers", report["at"], wide)
        print_table(*informative(columns, () if wide else OPTIONAL), empty, fold=not wide)
    echo("\nGroups")
    groups = [[row["group"], row["members"], _grouped(row["lag"]), _behind(row["lag_s"])] for row in report["groups"]]
    print_table(["group", "members", "lag", "behind"], groups, "  no group has committed offsets of the topic")


OPTIONAL = ("bytes/s", "records/s", "errors", "transactions")
"""The columns that are left out if no client has a value in them."""


def _columns(rows: list[dict[str, Any]], readers: bool, now: int, wide: bool) -> list[tuple[str, list[Any]]]:
    """The columns about writers or readers. :param now: the time of the report in ms since 1970."""

    def of(name: str, shown: Callable[[Any], Any]) -> list[Any]:
        return [None if row.get(name) is None else shown(row[name]) for row in rows]

    times = [("since", of("since", when)), ("last", of("last", when))]
    return [
        ("principal", of("principal", str)),
        ("client", of("client", str)),
        *(times if wide else []),
        ("bytes", of("bytes", size)),
        ("records", of("records", GroupedNumber)),
        ("bytes/s", of("bytes_per_s", lambda rate: size(round(rate)))),
        ("records/s", of("records_per_s", per_second)),
        *([("requests", of("requests", GroupedNumber))] if wide else []),
        ("errors", of("errors", GroupedNumber)),
        *([] if readers else [("transactions", of("transactions", GroupedNumber))]),
        *([("lag", of("lag", GroupedNumber)), ("behind", of("lag_s", _behind))] if readers else []),
        *([] if wide else [("last used", of("last", lambda last: ago(last, now)))]),
    ]


def _behind(seconds: float | None) -> str | None:
    """A lag in time; below a second with one decimal."""
    return None if seconds is None else span(round(seconds * 1000)) if seconds >= 1 else Amount(f"{seconds:.1f} s")


def _grouped(number: int | None) -> GroupedNumber | None:
    return None if number is None else GroupedNumber(number)
