"""Sums of usage entries by principal, client, topic and API, and their growth between two samples. Pure functions.

An entry belongs to a page, so one client that uses two workers has two entries; docs/decisions/0016-metering.md describes the
identity of entries and `since`. The reporter and the command use this module.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from odradek.metrics.pages import OTHER, RETIRED

VALUES = ("in", "out", "rin", "rout", "req", "err", "thr", "conn")
"""Names of values in rows of the spool and in the document of /usage: bytes, records, requests, errors, throttle and
connection ms."""
KEYS = ("page", "principal", "client", "topic", "api", "since")
FIELDS = (*KEYS, "last", *VALUES)

DIMENSIONS = ("principal", "client", "topic", "api")
SORTS = {"in": ("in",), "out": ("out",), "records": ("rin", "rout"), "requests": ("req",), "errors": ("err",)}
"""{sort key: the values whose sum it is}."""

Entry = Mapping[str, Any]


class UsageKey(NamedTuple):
    """The key of a sum. :param topic: None: usage without a topic."""

    principal: str
    client: str
    topic: str | None
    api: str


@dataclass(slots=True)
class Counts:
    """Sums, in the order of `VALUES`, and their time: `since_ms` and `last_ms` are 0 if there are no entries."""

    values: list[int] = field(default_factory=lambda: [0] * len(VALUES))
    since_ms: int = 0
    last_ms: int = 0

    @staticmethod
    def values_of(row: Entry) -> list[int]:
        """Return the values of a row, in the order of `VALUES`."""
        return [row[name] for name in VALUES]

    def get(self, name: str) -> int:
        """Return one of `VALUES`, or the sum of a key of `SORTS`."""
        return sum(self.values[VALUES.index(value)] for value in SORTS.get(name, (name,)))

    def grow(self, values: Sequence[int], since_ms: int, last_ms: int) -> None:
        """Add values, and widen the time."""
        self.values = [a + b for a, b in zip(self.values, values, strict=True)]
        self.since_ms = min(self.since_ms, since_ms) if self.since_ms else since_ms
        self.last_ms = max(self.last_ms, last_ms)

    def as_dict(self) -> dict[str, int]:
        """Return {name: value}, with `since` and `last`."""
        return dict(zip(VALUES, self.values, strict=True)) | {"since": self.since_ms, "last": self.last_ms}


def add(sums: dict[Any, Counts], key: Any, values: Sequence[int], since_ms: int, last_ms: int) -> None:
    """Add values to the sum of a key; the sum is created if it does not exist."""
    counts = sums.get(key)
    if counts is None:
        counts = sums[key] = Counts()
    counts.grow(values, since_ms, last_ms)


class Filter(NamedTuple):
    """Patterns (`*`, `?`, `[...]`) per dimension; one must match in each dimension with patterns. "" matches no topic."""

    principal: Sequence[str] = ()
    client: Sequence[str] = ()
    topic: Sequence[str] = ()
    api: Sequence[str] = ()

    def fits(self, row: Entry) -> bool:
        """Whether a row matches the patterns."""
        return all(
            any(fnmatchcase(row[name] or "", pattern) for pattern in patterns)
            for name, patterns in zip(DIMENSIONS, self, strict=True)
            if patterns
        )


def key_of(entry: Entry) -> UsageKey:
    """Return the key of an entry, without page and since."""
    return UsageKey(entry["principal"], entry["client"], entry["topic"], entry["api"])


def totals(entries: Iterable[Entry]) -> dict[UsageKey, Counts]:
    """Return the sums of entries over all pages and times."""
    sums: dict[UsageKey, Counts] = {}
    for entry in entries:
        add(sums, key_of(entry), Counts.values_of(entry), entry["since"], entry["last"])
    return sums


def grouped(sums: Mapping[UsageKey, Counts], by: Sequence[str]) -> dict[tuple[str | None, ...], Counts]:
    """Return sums grouped by the dimensions `by`, in that order.

    A request is counted once without a topic, and once for each topic that it contains. So the sums of requests and errors omit
    the counts with a topic, unless `by` contains the topic or `sums` was restricted to topics: then a request counts once
    for each of them.
    """
    groups: dict[tuple[str | None, ...], Counts] = {}
    by_topic = "topic" in by or all(key.topic is not None for key in sums)
    twice = [VALUES.index("req"), VALUES.index("err")]
    for key, counts in sums.items():
        values = list(counts.values)
        if key.topic is not None and not by_topic:
            for at in twice:
                values[at] = 0
        add(groups, tuple(getattr(key, name) for name in by), values, counts.since_ms, counts.last_ms)
    return groups


def top(
    groups: Mapping[tuple[str | None, ...], Counts], sort: str, number: int | None = None
) -> list[tuple[tuple[str | None, ...], Counts]]:
    """Return the `number` largest groups by a key of `SORTS`, ties ordered by name; None: all groups."""
    ordered = sorted(groups.items(), key=lambda group: (-group[1].get(sort), [name or "" for name in group[0]]))
    return ordered[:number]


def growth(before: Iterable[Entry], after: Iterable[Entry]) -> dict[UsageKey, Counts]:
    """Return the counts between two samples.

    An entry that is new, or has another `since`, began at 0; an entry that no longer exists was not used for a long time. The
    increase of the RETIRED entry was counted before, by name. So the second sample may omit entries not used since the first.
    """
    known = {_identity(entry): entry for entry in before}
    sums: dict[UsageKey, Counts] = {}
    for entry in after:
        if entry["client"] == RETIRED and entry["principal"] == OTHER:
            continue
        old = known.get(_identity(entry))
        values = Counts.values_of(entry)
        if old is not None:
            values = [max(0, new - past) for new, past in zip(values, Counts.values_of(old), strict=True)]
        if any(values):
            add(sums, key_of(entry), values, entry["since"], entry["last"])
    return sums


def _identity(entry: Entry) -> tuple[Any, ...]:
    return tuple(entry[name] for name in KEYS)
