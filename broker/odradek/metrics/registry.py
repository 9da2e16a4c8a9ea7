"""Serves `/metrics` with prometheus_client: a registry with a collector of our families, the formats, and the selected series.

The threads of the HTTP server use it. `exposition.pieces` writes the page that Prometheus scrapes, which has all families, in
each format and escaping, because the library's writers need 17 to 30 times as long (decision 16). The library writes the pages
of requests that name series (`name[]`), from the families of these series alone.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from prometheus_client.core import CollectorRegistry
from prometheus_client.core import Metric as ClientMetric
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, DOTS
from prometheus_client.registry import Collector

from odradek.metrics.exposition import LEFT_OUT, Family, pieces
from odradek.metrics.metric import COUNTER, HISTOGRAM, SUMMARY, Metric

_ESCAPING = "; escaping="
_SUFFIXES = {SUMMARY: ("", "_sum", "_count"), HISTOGRAM: ("_bucket", "_sum", "_count")}


class Wanted(NamedTuple):
    """What a request wants. :param content_type: one of the few that `wanted` returns. :param names: of series, sorted; empty:
    all."""

    content_type: str
    names: tuple[str, ...] = ()

    @property
    def openmetrics(self) -> bool:
        """Whether the format is OpenMetrics."""
        return self.content_type.startswith("application/openmetrics-text")

    @property
    def dots(self) -> bool:
        """Whether names are written with two underscores for each: the only escaping that changes our names."""
        return self.content_type.endswith(_ESCAPING + DOTS)

    @property
    def special(self) -> bool:
        """Whether it is none of the pages that Prometheus scrapes: making it may take a long time."""
        return bool(self.names) or self.dots


def wanted(accept: str, names: Sequence[str]) -> Wanted:
    """Return what a request with this header Accept and these `name[]` wants. Its text decides which format it gets, but is
    not contained in the result: an OpenMetrics page is of version 1.0.0 whichever later one the request names."""
    content_type = _chosen(accept)[1]
    if content_type.startswith("application/openmetrics-text"):
        _, separator, escaping = content_type.rpartition(_ESCAPING)
        content_type = CONTENT_TYPE_LATEST + separator + (escaping if separator else "")
    return Wanted(content_type, tuple(sorted(set(names))))


def _chosen(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    try:
        return choose_encoder(accept)
    except (TypeError, ValueError):  # a version that is no number
        return choose_encoder("")


class Exposition(Collector):
    """The registered collector. :param table: all families. :param families: yields those that have samples at this moment."""

    def __init__(self, table: Iterable[Metric], families: Callable[[], Iterable[Family]]) -> None:
        self._table = list(table)
        self._families = families
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def describe(self) -> Iterator[ClientMetric]:
        """Yield all families without samples: the registry reads the names from them."""
        return map(_client_metric, self._table)

    def collect(self) -> Iterator[ClientMetric]:
        """Yield the families that have samples."""
        for metric, samples in self._families():
            family = _client_metric(metric)
            for suffix, labels, value in samples:
                family.add_sample(metric.name + suffix, dict(labels.pairs), value)
            if family.samples:
                yield family

    def render(self, wanted: Wanted) -> Iterable[bytes]:
        """Return the text in pieces."""
        if not wanted.names:
            return pieces(self._families(), wanted.openmetrics, wanted.dots)
        encoder, _ = _chosen(wanted.content_type)
        return [encoder(self._with(set(wanted.names)).registry.restricted_registry(wanted.names))]

    def _with(self, names: set[str]) -> "Exposition":
        """The families of these series: of others, no sample is made."""
        chosen = {
            metric
            for metric in self._table
            if any(metric.name + suffix in names for suffix in _SUFFIXES.get(metric.type, ("",)))
        }

        def families() -> Iterator[Family]:
            for family in self._families():
                if family.metric in chosen:
                    yield family
                elif LEFT_OUT in names:  # the number of series that a whole page leaves out is known when all were made
                    deque(family.samples, maxlen=0)

        return Exposition(chosen, families)


def _client_metric(metric: Metric) -> ClientMetric:
    name = metric.name.removesuffix("_total") if metric.type == COUNTER else metric.name
    return ClientMetric(name, metric.help, metric.type)
