"""``odradek usage topic``: who writes and reads a topic, since when. In the process of the command."""

import time
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.output import Grouped, count, echo_json, print_table, size, when
from odradek.cli.usage_source import UsageError
from odradek.metrics.usage import entries_of
from odradek.metrics.usage_totals import OTHER, Counts, UsageKey, growth, totals

if TYPE_CHECKING:
    from odradek.cli.usage_source import Source
    from odradek.metrics.spool_history import History

WRITES, READS = "Produce", "Fetch"
_VERBS = {WRITES: ("in", "rin"), READS: ("out", "rout")}


def show_topic(source: "Source", name: str, interval: float, history: "History | None", *, as_json: bool) -> None:
    """Raises UsageError. :param interval: seconds between two looks; 0: no rates. :param history: of the topic's usage."""
    answer = source.ask({"name": name})
    if answer["topic"] is None:
        raise UsageError(_unknown(name, answer["close"]))
    before = _of_topic(answer, name)
    rates: dict[UsageKey, Counts] = {}
    seconds = None
    if interval > 0:
        time.sleep(interval)
        later = source.ask({"name": name})
        if later["topic"] is None:
            raise UsageError(f"topic '{name}' was deleted just now")
        if later["boot"] == answer["boot"]:
            seconds = max(1, later["clock"] - answer["clock"]) / 1000
            rates = growth(before, _of_topic(later, name))
        answer, before = later, _of_topic(later, name)
    sums = totals(before)
    if history is not None:
        sums = _with_history(sums, history)
    lags = {(row["principal"], row["client"]): row for row in answer["readers"]}
    told = {
        "topic": answer["topic"],
        "at": answer["at"],
        "counted_since": answer["began"] if history is None else history.from_ms,
        "counted_until": answer["at"] if history is None else history.to_ms,
        "writers": _rows(sums, rates, seconds, WRITES, {}),
        "readers": _rows(sums, rates, seconds, READS, lags),
        "groups": [
            {key: value for key, value in row.items() if key not in ("kind", "topic")} for row in answer["groups"]
        ],
        "folded": any(one["topic"] == OTHER for one in entries_of(answer)),
    }
    if as_json:
        echo_json(told)
    else:
        _print(name, told)


def _unknown(name: str, close: list[str]) -> str:
    if close:
        return f"there is no topic '{name}'; did you mean {' or '.join(repr(one) for one in close)}?"
    return f"there is no topic '{name}'; `odradek topic list` shows which there are"


def _of_topic(answer: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [one for one in entries_of(answer) if one["topic"] == name]


def _with_history(sums: dict[UsageKey, Counts], history: "History") -> dict[UsageKey, Counts]:
    """The sums of the spool's time; who is at work now is there since then at least, and until now."""
    found = dict(history.usage)
    for key, now in sums.items():
        known = found.setdefault(key, Counts(list(now.values), now.since_ms, now.last_ms))
        known.since_ms, known.last_ms = min(known.since_ms, now.since_ms), max(known.last_ms, now.last_ms)
    return found


def _rows(
    sums: dict[UsageKey, Counts],
    rates: dict[UsageKey, Counts],
    seconds: float | None,
    api: str,
    lags: dict[tuple[str, str], dict[str, Any]],
) -> list[dict[str, Any]]:
    """Who did it, the most bytes first."""
    size_name, records_name = _VERBS[api]
    found = []
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
        found.append(row)
    return sorted(found, key=lambda row: (-row["bytes"], row["principal"], row["client"]))


def _print(name: str, told: dict[str, Any]) -> None:
    stored = told["topic"]
    records = max(0, stored["end"] - stored["start"])
    click.echo(
        f"Topic {name}: {size(stored['bytes'])} stored in {count(stored['partitions'], 'partition')}"
        f" (the largest {size(stored['largest'])}), {records:,} offsets from start to end"
    )
    since, until = told["counted_since"], told["counted_until"]
    if since is not None and until is not None:
        note = (
            "" if until == told["at"] else f" (the spool's last minute). As of {when(told['at'])}: last, lag and groups"
        )
        click.echo(f"Bytes, records and errors are counted from {when(since)} to {when(until)}{note}.")
    if told["folded"]:
        click.echo("Some topics are counted together as 'other': there may be more who use it.")
    for title, rows, nobody in (
        ("Writers", told["writers"], "  nobody wrote to it"),
        ("Readers", told["readers"], "  nobody read it"),
    ):
        click.echo(f"\n{title}")
        lag_titles = ["lag", "lag s"] if title == "Readers" else []
        titles = [
            "principal",
            "client",
            "since",
            "last",
            "bytes",
            "records",
            "bytes/s",
            "records/s",
            "errors",
            *lag_titles,
        ]
        print_table(titles, [_cells(row) for row in rows], nobody)
    click.echo("\nGroups")
    rows = [[row["group"], row["members"], _grouped(row["lag"]), row["lag_s"]] for row in told["groups"]]
    print_table(["group", "members", "lag", "lag s"], rows, "  no group has committed offsets of it")


def _cells(row: dict[str, Any]) -> list[Any]:
    cells = [row["principal"], row["client"], when(row["since"]), when(row["last"]), size(row["bytes"])]
    speed = row["bytes_per_s"]
    cells += [_grouped(row["records"]), None if speed is None else size(round(speed)), row["records_per_s"]]
    cells += [_grouped(row["errors"])]
    return [*cells, _grouped(row["lag"]), row["lag_s"]] if "lag" in row else cells


def _grouped(number: int | None) -> Grouped | None:
    return None if number is None else Grouped(number)
