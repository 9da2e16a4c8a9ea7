"""Writes families of samples in Prometheus' text format or OpenMetrics, fast enough for ten thousand partitions.

Pure functions. The writers of prometheus_client check every character of every name and make a dictionary and a tuple of
each sample; a test checks that the output here equals theirs. prometheus_client decides which format a scraper accepts.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from odradek.metrics.client_labels import FROM_CLIENTS, cut
from odradek.metrics.metric import COUNTER, UNTYPED, Metric

if TYPE_CHECKING:
    from prometheus_client.core import Metric as ClientMetric

Value = int | float

_SHORT = 60  # no text of so many characters has more bytes than a label may have
_LINES = 2_000  # lines of a piece of the text
FAMILY_SHARE = 16  # a family may use 1 / 16 of the bytes for labels that clients choose
LINE_BYTES = 120  # of a line at most, beside the values of labels that clients choose and the topic


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

    def lines(self, lines: Iterator[str]) -> Iterator[str]:
        """Yield the first lines of a family with labels of clients, as far as there is room; count the others."""
        room = min(self._left, self._of_family)
        for line in lines:
            size = len(line) if line.isascii() else len(line.encode("utf-8", "replace"))
            if size > room:
                self.left_out += 1 + sum(1 for _ in lines)
                return
            room -= size
            self._left -= size
            yield line


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
        inside = ",".join(f'{name}="{escape(value)}"' for name, value in self.pairs)
        self.text = f"{{{inside}}}" if inside else ""


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


def pieces(families: Iterable[Family], openmetrics: bool, limit: TextLimit | None = None) -> Iterator[bytes]:
    """Yield the text in pieces; families without samples are left out.

    :param limit: of families with labels that clients choose; None: none.
    """
    for metric, samples in families:
        name = metric.name
        lines: Iterator[str] = (
            f"{name}{suffix}{labels.text} {value if type(value) is int else number(value)}\n"
            for suffix, labels, value in samples
        )
        if limit is not None and not FROM_CLIENTS.isdisjoint(metric.labels):
            lines = limit.lines(lines)
        part = list(islice(lines, _LINES))
        if not part:
            continue
        kind, title = metric.type, name
        if openmetrics:
            kind = "unknown" if kind == UNTYPED else kind
            title = name.removesuffix("_total") if kind == COUNTER else name
        help_ = escape(metric.help) if openmetrics else metric.help.replace("\\", r"\\").replace("\n", r"\n")
        part.insert(0, f"# HELP {title} {help_}\n# TYPE {title} {kind}\n")
        while part:
            yield "".join(part).encode("utf-8", "replace")
            part = list(islice(lines, _LINES))
    if openmetrics:
        yield b"# EOF\n"


def left_out(limit: TextLimit) -> Iterator[Sample]:
    """Yield the sample with the number of series that were left out so far."""
    yield "", NO_LABELS, limit.left_out


def client_metrics(families: Iterable[Family]) -> Iterator["ClientMetric"]:
    """Yield the families as objects of prometheus_client; families without samples are left out."""
    from prometheus_client.core import Metric as ClientMetric  # loads http.server and email, too

    for metric, samples in families:
        name = metric.name.removesuffix("_total") if metric.type == COUNTER else metric.name
        family = ClientMetric(name, metric.help, metric.type)
        for suffix, labels, value in samples:
            family.add_sample(metric.name + suffix, dict(labels.pairs), value)
        if family.samples:
            yield family
