"""A row of the tables of metrics (`names/`), and the types of metrics."""

from typing import NamedTuple

COUNTER, GAUGE, SUMMARY, HISTOGRAM, UNTYPED = "counter", "gauge", "summary", "histogram", "untyped"


class Metric(NamedTuple):
    """One row of the table.

    :param name: as in the text format; the name of a counter includes `_total`.
    :param labels: the labels that samples may have; a sample of the whole broker omits labels that do not apply to it.
    """

    name: str
    type: str
    labels: tuple[str, ...]
    help: str


def rows(type_: str, labels: str, texts: dict[str, str], prefix: str = "") -> tuple[Metric, ...]:
    """Rows of one type. :param labels: separated by spaces. :param texts: the HELP text by name, without the prefix."""
    return tuple(Metric(prefix + name, type_, tuple(labels.split()), text) for name, text in texts.items())
