"""What the reporter answers to /usage: who used what, as entries or as sums, and all about one topic. Pure functions.

GET /usage?PARAMETER=VALUE&...; all of them are optional:

* `principal`, `client`, `topic`, `api`: only what fits a pattern (`*`, `?`, `[...]`); may be given more than once;
* `used`: only entries that were used at or after this time (ms since 1970);
* `by`: sums instead of entries, by some of principal, client, topic, api, with commas; `sort` (in, out, records, requests,
  errors) and `top` (so many) belong to it;
* `name`: a topic, of which `topic`, `groups` and `readers` tell: what is stored, who reads it how far behind.

The entries are lists in the order of `fields`, to be read by `entries_of`.
"""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from odradek.metrics import spool_rows
from odradek.metrics.pages import UsageRow
from odradek.metrics.usage_totals import DIMENSIONS, FIELDS, SORTS, Filter, grouped, top, totals

PATH = "/usage"
PARAMETERS = (*DIMENSIONS, "used", "by", "sort", "top", "name")
CLOSE = 3  # names that are told instead of one that is not there

Entry = dict[str, Any]


class BadQuery(ValueError):
    """A parameter that there is not, or a value that it cannot have; one line."""


def entry(row: UsageRow, names: Mapping[int, str]) -> Entry:
    """:param names: of the APIs by key"""
    return spool_rows.usage(row, names) | {
        "last": max(row.since_ms, row.last_ms)
    }  # `since` is unique, if need be a ms late


def document(
    query: Mapping[str, Sequence[str]],
    rows: Iterable[UsageRow],
    names: Mapping[int, str],
    state: Iterable[Mapping[str, Any]],
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """The answer. Raises BadQuery.

    :param query: the values of each parameter, as `urllib.parse.parse_qs` gives them.
    :param rows: of all pages.
    :param names: of the APIs by key.
    :param state: rows of the spool of the kinds topic, group and reader; looked at only for `name`.
    :param about: what else is told: `odradek` (version), `at` (ms), `clock` (ms of a clock that is never set), `boot`,
        `began` (ms), `spool` (its directory or None), ...
    """
    wanted = _Wanted(query)
    entries = [one for row in rows if wanted.fits(one := entry(row, names))]
    answer: dict[str, Any] = dict(about)
    if wanted.by:
        sums = top(grouped(totals(entries), wanted.by), wanted.sort, wanted.top)
        answer["sums"] = [dict(zip(wanted.by, key, strict=True)) | counts.as_dict() for key, counts in sums]
    else:
        answer |= {"fields": FIELDS, "entries": [[one[name] for name in FIELDS] for one in entries]}
    if wanted.name is not None:
        answer |= _about_topic(wanted.name, list(state))
    return answer


def entries_of(answer: Mapping[str, Any]) -> list[Entry]:
    """The entries of a document. Raises KeyError, ValueError for what is none."""
    fields = answer["fields"]
    return [dict(zip(fields, values, strict=True)) for values in answer["entries"]]


class _Wanted:
    """The query, checked."""

    def __init__(self, query: Mapping[str, Sequence[str]]) -> None:
        for name in query:
            if name not in PARAMETERS:
                raise BadQuery(f"parameter '{name}' is not known; there is {', '.join(PARAMETERS)}")
        self._filter = Filter(*(query.get(name, ()) for name in DIMENSIONS))
        self._used = _number(query, "used", 0)
        self.by = [name for word in query.get("by", ()) for name in word.split(",")]
        for name in self.by:
            if name not in DIMENSIONS:
                raise BadQuery(f"by={name}: expected some of {', '.join(DIMENSIONS)}")
        self.sort = query.get("sort", ["in"])[-1]
        if self.sort not in SORTS:
            raise BadQuery(f"sort={self.sort}: expected one of {', '.join(SORTS)}")
        self.top = _number(query, "top", None)
        self.name = query["name"][-1] if query.get("name") else None

    def fits(self, one: Entry) -> bool:
        """Whether an entry is asked for."""
        return one["last"] >= (self._used or 0) and self._filter.fits(one)


def _number(query: Mapping[str, Sequence[str]], name: str, default: int | None) -> int | None:
    if not query.get(name):
        return default
    word = query[name][-1]
    if not word.isascii() or not word.isdigit():
        raise BadQuery(f"{name}={word}: expected a whole number, from 0")
    return int(word)


def _about_topic(name: str, state: list[Mapping[str, Any]]) -> dict[str, Any]:
    """The topic's row, or names like it; the groups and other readers of it."""
    topics = {row["topic"]: row for row in state if row["kind"] == "topic"}
    found: dict[str, Any] = {"topic": topics.get(name)}
    if name not in topics:
        found["close"] = get_close_matches(name, topics, CLOSE)
    for kind in ("group", "reader"):
        found[f"{kind}s"] = [row for row in state if row["kind"] == kind and row["topic"] == name]
    return found
