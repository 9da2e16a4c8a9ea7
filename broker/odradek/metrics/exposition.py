"""Families of samples, their limit, and the text of a whole page, fast enough for ten thousand partitions.

Pure functions. `registry.py` gives the same families to prometheus_client, whose writers check every character of every name
and make a dictionary and a tuple of each sample (decision 16 has the times); tests check that the text here equals theirs.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from odradek.metrics.client_labels import FROM_CLIENTS, cut
from odradek.metrics.metric import COUNTER, UNTYPED, Metric

Value = int | float

_SHORT = 60  # no text of so many characters has more bytes than a label may have
_LINES = 2_000  # lines of a piece of the text
LEFT_OUT = "odradek_metrics_left_out_series"
FAMILY_SHARE = 16  # a family may use 1 / 16 of the bytes for labels that clients choose
LINE_BYTES = 120  # of a line at most, beside the values of labels that clients choose and the topic
_VALUE_BYTES = 26  # of a value at most, with the space before it and the end of the line


class TextLimit:
    """The limit of the text of one scrape, as far as clients choose how many series there are and how long their labels are.

    :param most_bytes: the largest size of all families with such labels; one family may have 1 / 16 of it.
    :ivar left_out: the number of series that are left out.
    """

    def __init__(self, most_bytes: int) -> None:
        self._left = most_bytes
        self._of_family = most_bytes // FAMILY_SHARE
        self.left_out = 0

    def shares(self, number: int) -> "Shares":
        """Divide the room of one family."""
        return Shares(min(self._left, self._of_family), number)

    def limited(self, family: "Family") -> "Family":
        """Return the family; one with labels of clients yields its first samples, as far as there is room, and counts the
        others."""
        if FROM_CLIENTS.isdisjoint(family.metric.labels):
            return family
        return family._replace(samples=self._first(len(family.metric.name) + _VALUE_BYTES, iter(family.samples)))

    def _first(self, fixed: int, samples: Iterator["Sample"]) -> Iterator["Sample"]:
        room = min(self._left, self._of_family)
        for sample in samples:
            text = sample[1].text
            size = fixed + len(sample[0]) + (len(text) if text.isascii() else len(text.encode("utf-8", "replace")))
            if size > room:
                self.left_out += 1 + sum(1 for _ in samples)
                return
            room -= size
            self._left -= size
            yield sample


class Shares:
    """Divides the room of a family: each owner of series receives an equal share, and what it does not use is for the others.

    :param room: in bytes. :param owners: the number of calls of `take`; those with the fewest series come first.
    """

    def __init__(self, room: int, owners: int) -> None:
        self._room = room
        self._owners = owners

    def take(self, sizes: Sequence[int]) -> int:
        """How many of the next owner's lines, from the first one on, have room. :param sizes: of lines, in bytes."""
        share = self._room // self._owners
        self._owners -= 1
        taken = count = 0
        for size in sizes:
            if taken + size > share:
                break
            taken += size
            count += 1
        self._room -= taken
        return count


class Labels:
    """Labels of a series, sorted by name. `text` is their text in both formats, including the braces. Values that clients
    choose are cut."""

    __slots__ = ("pairs", "text")

    def __init__(self, **values: str) -> None:
        for name, value in values.items():
            if len(value) > _SHORT and name in FROM_CLIENTS:
                values[name] = cut(value)
        self.pairs = tuple(sorted(values.items()))
        self.text = _text(self.pairs)

    def dotted(self) -> str:
        """The text with escaped names (`dots`)."""
        return _text((dots(name), value) for name, value in self.pairs)


def _text(pairs: Iterable[tuple[str, str]]) -> str:
    inside = ",".join(f'{name}="{escape(value)}"' for name, value in pairs)
    return f"{{{inside}}}" if inside else ""


def dots(name: str) -> str:
    """Return a name of ours, which has no dots, as Prometheus's escaping `dots` writes it."""
    return name.replace("_", "__")


NO_LABELS = Labels()

Sample = tuple[str, Labels, Value]
"""(suffix of the family's name: `_bucket`, `_sum`, ..., usually empty; labels; value)."""


class Family(NamedTuple):
    """All samples of one metric."""

    metric: Metric
    samples: Iterable[Sample]


def escape(value: str) -> str:
    """Return a label's value as it is written between quotes."""
    if "\\" in value or "\n" in value or '"' in value:
        return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return value


def number(value: Value) -> str:
    """Return a value as both formats write it."""
    if isinstance(value, float):
        if math.isinf(value):
            return "+Inf" if value > 0 else "-Inf"
        return "NaN" if math.isnan(value) else repr(value)
    return str(int(value))


def pieces(families: Iterable[Family], openmetrics: bool, dotted: bool = False) -> Iterator[bytes]:
    """Yield the text in pieces; families without samples are left out. :param dotted: names are escaped (`dots`)."""
    for metric, samples in families:
        lines = _dotted_lines(metric.name, samples) if dotted else _lines(metric.name, samples)
        part = list(islice(lines, _LINES))
        if not part:
            continue
        kind, title = metric.type, metric.name
        if openmetrics:
            kind = "unknown" if kind == UNTYPED else kind
            title = title.removesuffix("_total") if kind == COUNTER else title
        help_ = escape(metric.help) if openmetrics else metric.help.replace("\\", r"\\").replace("\n", r"\n")
        title = dots(title) if dotted else title
        part.insert(0, f"# HELP {title} {help_}\n# TYPE {title} {kind}\n")
        while part:
            yield "".join(part).encode("utf-8", "replace")
            part = list(islice(lines, _LINES))
    if openmetrics:
        yield b"# EOF\n"


def _lines(name: str, samples: Iterable[Sample]) -> Iterator[str]:
    return (
        f"{name}{suffix}{labels.text} {value if type(value) is int else number(value)}\n"
        for suffix, labels, value in samples
    )


def _dotted_lines(name: str, samples: Iterable[Sample]) -> Iterator[str]:
    return (f"{dots(name + suffix)}{labels.dotted()} {number(value)}\n" for suffix, labels, value in samples)


def left_out(limit: TextLimit) -> Iterator[Sample]:
    """Yield the sample with the number of series that were left out so far."""
    yield "", NO_LABELS, limit.left_out
