"""The response of the reporter to /usage: usage as entries or as sums, and details of one topic. Pure functions.

GET /usage?PARAMETER=VALUE&...; all parameters are optional:

* `principal`, `client`, `topic`, `api`: only entries that match a pattern (`*`, `?`, `[...]`); may be repeated;
* `used`: only entries that were used at or after this time (ms since 1970);
* `by`: sums instead of entries, grouped by some of principal, client, topic, api, separated by commas; with `sort` (in, out,
  records, requests, errors) and `top` (maximum number of sums);
* `name`: a topic, whose details are in `topic` (its size), `groups` and `readers` (their lag) of the response.

The entries are lists in the order of `fields`; `entries_of` decodes them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from odradek.metrics import spool_rows
from odradek.metrics.pages import UsageRow
from odradek.metrics.usage_totals import DIMENSIONS, FIELDS, SORTS, Filter, grouped, top, totals

PATH = "/usage"
PARAMETERS = (*DIMENSIONS, "used", "by", "sort", "top", "name")
MOST_PATTERNS = 100  # of a query, of all dimensions together; each is compared with each entry
LOOK_EVERY = 200  # entries that are compared between two looks whether the client has gone
MOST_NAME = 249  # characters of the name of a topic
CLOSE = 3  # maximum number of similar names in the response for a topic that does not exist

Entry = dict[str, Any]


class BadQuery(ValueError):
    """An unknown parameter or an invalid value; the message is one line."""


def entry(row: UsageRow, names: Mapping[int, str]) -> Entry:
    """Return the entry of a row. :param names: {API key: name}."""
    return spool_rows.usage(row, names) | {
        "last": max(row.since_ms, row.last_ms)
    }  # `since` may be some ms late, because it is unique within its page


def document(
    query: Mapping[str, Sequence[str]],
    rows: Iterable[UsageRow],
    names: Mapping[int, str],
    state: Iterable[Mapping[str, Any]],
    about: Mapping[str, Any],
    look_for_client: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Return the document for a query. Raises BadQuery, and what `look_for_client` raises.

    :param query: the values of each parameter, as `urllib.parse.parse_qs` returns them.
    :param rows: the usage of all pages.
    :param names: {API key: name}.
    :param state: rows of the spool of the kinds topic, group and reader; used only for `name`.
    :param about: further fields: `odradek` (version), `at` (ms), `clock` (ms of a clock that is never set), `boot`,
        `began` (ms), `spool` (its directory or None), ...
    :param look_for_client: called from time to time; raises an exception if nobody waits for the document any more.
    """
    checked = _Query(query)
    entries = []
    for number, row in enumerate(rows):
        if number % LOOK_EVERY == 0:
            look_for_client()
        if checked.matches(candidate := entry(row, names)):
            entries.append(candidate)
    response: dict[str, Any] = dict(about)
    if checked.by:
        sums = top(grouped(totals(entries), checked.by), checked.sort, checked.top)
        response["sums"] = [dict(zip(checked.by, key, strict=True)) | counts.as_dict() for key, counts in sums]
    else:
        response |= {"fields": FIELDS, "entries": [[values[name] for name in FIELDS] for values in entries]}
    if checked.name is not None:
        response |= _about_topic(checked.name, list(state))
    return response


def entries_of(response: Mapping[str, Any]) -> list[Entry]:
    """Return the entries of a document. Raises KeyError or ValueError for a malformed document."""
    fields = response["fields"]
    return [dict(zip(fields, values, strict=True)) for values in response["entries"]]


class _Query:
    """The checked parameters of a query."""

    def __init__(self, query: Mapping[str, Sequence[str]]) -> None:
        for name in query:
            if name not in PARAMETERS:
                raise BadQuery(f"unknown parameter '{name}'; expected one of {', '.join(PARAMETERS)}")
        patterns = sum(len(query.get(name, ())) for name in DIMENSIONS)
        if patterns > MOST_PATTERNS:
            raise BadQuery(
                f"the query has {patterns} values of {', '.join(DIMENSIONS)}; at most {MOST_PATTERNS} are allowed"
            )
        self._filter = Filter(*(query.get(name, ()) for name in DIMENSIONS))
        self._used = _number(query, "used", 0)
        self.by = [name for word in query.get("by", ()) for name in word.split(",")]
        for name in self.by:
            if name not in DIMENSIONS:
                raise BadQuery(f"by={name}: expected one or more of {', '.join(DIMENSIONS)}, separated by commas")
        if len(self.by) > len(DIMENSIONS):
            raise BadQuery(f"by has {len(self.by)} names; expected each of {', '.join(DIMENSIONS)} at most once")
        self.sort = query.get("sort", ["in"])[-1]
        if self.sort not in SORTS:
            raise BadQuery(f"sort={self.sort}: expected one of {', '.join(SORTS)}")
        self.top = _number(query, "top", None)
        self.name = query["name"][-1] if query.get("name") else None
        if self.name is not None and len(self.name) > MOST_NAME:
            raise BadQuery(f"name has {len(self.name)} characters; a name of a topic has at most {MOST_NAME}")

    def matches(self, candidate: Entry) -> bool:
        """Whether an entry matches the query."""
        return candidate["last"] >= (self._used or 0) and self._filter.fits(candidate)


def _number(query: Mapping[str, Sequence[str]], name: str, default: int | None) -> int | None:
    if not query.get(name):
        return default
    word = query[name][-1]
    if not word.isascii() or not word.isdigit():
        raise BadQuery(f"{name}={word}: expected a whole number of at least 0")
    return int(word)


def _about_topic(name: str, state: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the topic's row (or similar names), and the rows of its groups and readers."""
    topics = {row["topic"]: row for row in state if row["kind"] == "topic"}
    details: dict[str, Any] = {"topic": topics.get(name)}
    if name not in topics:
        from difflib import get_close_matches  # imported at its first use: 150 KiB

        details["close"] = get_close_matches(name, topics, CLOSE)
    for kind in ("group", "reader"):
        details[f"{kind}s"] = [row for row in state if row["kind"] == kind and row["topic"] == name]
    return details
