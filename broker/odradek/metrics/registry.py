"""Serves `/metrics` with prometheus_client: a registry with a collector of our families, the formats, and the selected series.

The threads of the HTTP server use it. `exposition.pieces` writes the page that Prometheus scrapes, which has all families,
because the library's writers need 17 to 30 times as long (decision 16). The library writes the pages of requests that name
series (`name[]`) or want names with escaped underscores.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from prometheus_client.core import CollectorRegistry
from prometheus_client.core import Metric as ClientMetric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from odradek.metrics.exposition import Family, pieces
from odradek.metrics.metric import COUNTER, Metric


class Wanted(NamedTuple):
    """What a request wants. :param names: of series, sorted; empty: all."""

    content_type: str
    names: tuple[str, ...] = ()

    @property
    def openmetrics(self) -> bool:
        """Whether the format is OpenMetrics."""
        return self.content_type.startswith("application/openmetrics-text")


def wanted(accept: str, names: Sequence[str]) -> Wanted:
    """Return what a request with this header Accept and these `name[]` wants."""
    return Wanted(_chosen(accept)[1], tuple(sorted(set(names))))


def _chosen(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    try:
        return choose_encoder(accept)
    except (TypeError, ValueError):  # a version that is no number
        return choose_encoder("")


class Exposition(Collector):
    """The registered collector. :param table: all families. :param families: yields those that have samples at this moment."""

    def __init__(self, table: Iterable[Metric], families: Callable[[], Iterable[Family]]) -> None:
        self._table = table
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
        if not wanted.names and not wanted.content_type.endswith("escaping=dots"):
            return pieces(self._families(), wanted.openmetrics)
        encoder, _ = _chosen(wanted.content_type)
        return [encoder(self.registry.restricted_registry(wanted.names) if wanted.names else self.registry)]


def _client_metric(metric: Metric) -> ClientMetric:
    name = metric.name.removesuffix("_total") if metric.type == COUNTER else metric.name
    return ClientMetric(name, metric.help, metric.type)
