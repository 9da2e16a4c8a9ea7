"""Writes families of samples in Prometheus' text format or OpenMetrics, fast enough for ten thousand partitions.

Pure functions. The writers of prometheus_client check every character of every name and make a dictionary and a tuple of
each sample; a test checks that the output here equals theirs. prometheus_client decides which format a scraper accepts.
"""

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from prometheus_client.core import Metric as ClientMetric

from odradek.metrics.metric import COUNTER, UNTYPED, Metric

Value = int | float


class Labels:
    """Labels of a series, sorted by name. `text` is their text in both formats, including the braces."""

    __slots__ = ("pairs", "text")

    def __init__(self, **values: str) -> None:
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


def pieces(families: Iterable[Family], openmetrics: bool) -> Iterator[bytes]:
    """Yield the text family by family; families without samples are left out."""
    for metric, samples in families:
        name = metric.name
        lines = [
            f"{name}{suffix}{labels.text} {value if type(value) is int else number(value)}\n"
            for suffix, labels, value in samples
        ]
        if not lines:
            continue
        kind, title = metric.type, name
        if openmetrics:
            kind = "unknown" if kind == UNTYPED else kind
            title = name.removesuffix("_total") if kind == COUNTER else name
        help_ = escape(metric.help) if openmetrics else metric.help.replace("\\", r"\\").replace("\n", r"\n")
        head = f"# HELP {title} {help_}\n# TYPE {title} {kind}\n"
        yield "".join((head, *lines)).encode("utf-8", "replace")
    if openmetrics:
        yield b"# EOF\n"


def client_metrics(families: Iterable[Family]) -> Iterator[ClientMetric]:
    """Yield the families as objects of prometheus_client; families without samples are left out."""
    for metric, samples in families:
        name = metric.name.removesuffix("_total") if metric.type == COUNTER else metric.name
        family = ClientMetric(name, metric.help, metric.type)
        for suffix, labels, value in samples:
            family.add_sample(metric.name + suffix, dict(labels.pairs), value)
        if family.samples:
            yield family
