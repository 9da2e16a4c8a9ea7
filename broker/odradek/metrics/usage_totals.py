"""Sums of usage: entries as the broker counts them, added up by whom and what; rates from two samples. Pure functions.

An entry is a page's, so that one client's work in two workers is two of them; identities and `since` are those of
docs/decisions/0016-metering.md. The reporter and the command use it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from odradek.metrics.pages import OTHER, RETIRED

VALUES = ("in", "out", "rin", "rout", "req", "err", "thr", "conn")
"""As rows of the spool and of the document /usage call them: bytes, records, requests, errors, throttle and connection ms."""
KEYS = ("page", "principal", "client", "topic", "api", "since")
FIELDS = (*KEYS, "last", *VALUES)

DIMENSIONS = ("principal", "client", "topic", "api")
SORTS = {"in": ("in",), "out": ("out",), "records": ("rin", "rout"), "requests": ("req",), "errors": ("err",)}
"""What can be sorted by, and the values whose sum that is."""

Entry = Mapping[str, Any]


class UsageKey(NamedTuple):
    """Who did what. :param topic: None: of no topic."""

    principal: str
    client: str
    topic: str | None
    api: str


@dataclass(slots=True)
class Counts:
    """Sums, in the order of `VALUES`; and of which time: `since_ms`, `last_ms` are 0 where there is nothing."""

    values: list[int] = field(default_factory=lambda: [0] * len(VALUES))
    since_ms: int = 0
    last_ms: int = 0

    @staticmethod
    def values_of(row: Entry) -> list[int]:
        """A row's."""
        return [row[name] for name in VALUES]

    def get(self, name: str) -> int:
        """One of `VALUES`, or of `SORTS`: the sum of its values."""
        return sum(self.values[VALUES.index(one)] for one in SORTS.get(name, (name,)))

    def grow(self, values: Sequence[int], since_ms: int, last_ms: int) -> None:
        """Add values, and widen the time."""
        self.values = [a + b for a, b in zip(self.values, values, strict=True)]
        self.since_ms = min(self.since_ms, since_ms) if self.since_ms else since_ms
        self.last_ms = max(self.last_ms, last_ms)

    def as_dict(self) -> dict[str, int]:
        """By name."""
        return dict(zip(VALUES, self.values, strict=True)) | {"since": self.since_ms, "last": self.last_ms}


def add(sums: dict[Any, Counts], key: Any, values: Sequence[int], since_ms: int, last_ms: int) -> None:
    """Add to the sum under a key, which is made if it is new."""
    found = sums.get(key)
    if found is None:
        found = sums[key] = Counts()
    found.grow(values, since_ms, last_ms)


class Filter(NamedTuple):
    """Patterns (`*`, `?`, `[...]`) of which one must fit, for each dimension that has some. "" is what has no topic."""

    principal: Sequence[str] = ()
    client: Sequence[str] = ()
    topic: Sequence[str] = ()
    api: Sequence[str] = ()

    def fits(self, row: Entry) -> bool:
        """Whether a row is wanted."""
        return all(
            any(fnmatchcase(row[name] or "", pattern) for pattern in patterns)
            for name, patterns in zip(DIMENSIONS, self, strict=True)
            if patterns
        )


def key_of(entry: Entry) -> UsageKey:
    """Without page and since."""
    return UsageKey(entry["principal"], entry["client"], entry["topic"], entry["api"])


def totals(entries: Iterable[Entry]) -> dict[UsageKey, Counts]:
    """Entries of all pages and times, added up."""
    sums: dict[UsageKey, Counts] = {}
    for entry in entries:
        add(sums, key_of(entry), Counts.values_of(entry), entry["since"], entry["last"])
    return sums


def grouped(sums: Mapping[UsageKey, Counts], by: Sequence[str]) -> dict[tuple[str | None, ...], Counts]:
    """Sums by some of `DIMENSIONS`, in that order.

    A request is counted once without a topic, and once for each topic that it named. So the sums of requests and errors leave
    the counts with a topic out, unless `by` contains the topic or `sums` was restricted to topics: then a request counts once
    for each of them.
    """
    found: dict[tuple[str | None, ...], Counts] = {}
    by_topic = "topic" in by or all(key.topic is not None for key in sums)
    twice = [VALUES.index("req"), VALUES.index("err")]
    for key, counts in sums.items():
        values = list(counts.values)
        if key.topic is not None and not by_topic:
            for at in twice:
                values[at] = 0
        add(found, tuple(getattr(key, name) for name in by), values, counts.since_ms, counts.last_ms)
    return found


def top(
    groups: Mapping[tuple[str | None, ...], Counts], sort: str, number: int | None = None
) -> list[tuple[tuple[str | None, ...], Counts]]:
    """The largest by one of `SORTS`, the others by name behind them; all without a number."""
    ordered = sorted(groups.items(), key=lambda one: (-one[1].get(sort), [name or "" for name in one[0]]))
    return ordered[:number]


def growth(before: Iterable[Entry], after: Iterable[Entry]) -> dict[UsageKey, Counts]:
    """What was counted between two samples.

    An entry that is new, or has another `since`, began at 0; one that is gone had not been used for long. What the entry of
    retired ones grew by was counted before, by name. So the second sample need not have what was not used since the first.
    """
    known = {_identity(entry): entry for entry in before}
    found: dict[UsageKey, Counts] = {}
    for entry in after:
        if entry["client"] == RETIRED and entry["principal"] == OTHER:
            continue
        old = known.get(_identity(entry))
        values = Counts.values_of(entry)
        if old is not None:
            values = [max(0, new - past) for new, past in zip(values, Counts.values_of(old), strict=True)]
        if any(values):
            add(found, key_of(entry), values, entry["since"], entry["last"])
    return found


def _identity(entry: Entry) -> tuple[Any, ...]:
    return tuple(entry[name] for name in KEYS)
