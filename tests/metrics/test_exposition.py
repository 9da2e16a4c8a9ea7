"""The text of /metrics against prometheus_client's own writers and parsers."""

import math

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from odradek.metrics.exposition import NO_LABELS, Family, Labels, client_metrics, pieces
from odradek.metrics.metric import COUNTER, GAUGE, HISTOGRAM, SUMMARY, UNTYPED, Metric

FAMILIES = [
    Family(
        Metric("a_bytes", GAUGE, (), 'with "quotes", a \\ and\na line'),
        [("", NO_LABELS, 3), ("", Labels(x="y"), -0.25)],
    ),
    Family(
        Metric("b_total", COUNTER, ("topic",), "of topics."),
        [("", Labels(topic='t"\\\n'), 1 << 40), ("", NO_LABELS, 0)],
    ),
    Family(Metric("b_sum", UNTYPED, (), "no sum."), [("", Labels(z="1", a="ü"), 1.5)]),
    Family(
        Metric("c_ms", SUMMARY, ("quantile",), "times."),
        [("", Labels(quantile="0.5"), math.nan), ("_sum", NO_LABELS, 2.5), ("_count", NO_LABELS, 7)],
    ),
    Family(
        Metric("d_seconds", HISTOGRAM, ("le",), "delays."),
        [
            ("_bucket", Labels(le="0.1"), 1),
            ("_bucket", Labels(le="+Inf"), 2),
            ("_sum", NO_LABELS, 1e-7),
            ("_count", NO_LABELS, 2),
        ],
    ),
    Family(Metric("e", GAUGE, (), "most."), [("", NO_LABELS, math.inf), ("", Labels(k="min"), -math.inf)]),
]


class Registry:
    """As prometheus_client's writers want it."""

    def collect(self):
        return client_metrics(FAMILIES)


def parsed(parse, text):
    return [
        (
            family.name,
            family.type,
            family.documentation,
            [(s.name, s.labels, repr(float(s.value))) for s in family.samples],
        )
        for family in parse(text)
    ]


@pytest.mark.parametrize(
    ("openmetrics", "oracle", "parse"),
    [(False, generate_latest, parse_text), (True, generate_openmetrics, parse_openmetrics)],
    ids=["text", "openmetrics"],
)
def test_the_output_equals_that_of_prometheus_client(openmetrics, oracle, parse):
    ours = b"".join(pieces(FAMILIES, openmetrics)).decode()
    theirs = oracle(Registry()).decode()
    assert parsed(parse, ours) == parsed(parse, theirs)
    assert len(parsed(parse, ours)) == len(FAMILIES)
    heads = [line for line in ours.splitlines() if line.startswith("#")]
    assert heads == [line for line in theirs.splitlines() if line.startswith("#")]


def test_a_family_without_samples_is_left_out():
    assert b"".join(pieces([Family(Metric("a", GAUGE, (), "of nothing."), [])], False)) == b""
