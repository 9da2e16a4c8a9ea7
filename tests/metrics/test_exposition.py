"""The text of /metrics against prometheus_client's own writers and parsers."""

import math

import pytest
from prometheus_client.exposition import choose_encoder, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from odradek.metrics.exposition import LEFT_OUT, NO_LABELS, Family, Labels, TextLimit, left_out, pieces
from odradek.metrics.metric import COUNTER, GAUGE, HISTOGRAM, SUMMARY, UNTYPED, Metric
from odradek.metrics.names import METRICS
from odradek.metrics.registry import Exposition, wanted
from tests.metrics.scraping import parsed

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


def exposition(families=FAMILIES):
    return Exposition([family.metric for family in families], lambda: families)


OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@pytest.mark.parametrize(
    ("openmetrics", "oracle", "parse"),
    [(False, generate_latest, parse_text), (True, generate_openmetrics, parse_openmetrics)],
    ids=["text", "openmetrics"],
)
def test_the_output_equals_that_of_prometheus_client(openmetrics, oracle, parse):
    ours = b"".join(pieces(FAMILIES, openmetrics)).decode()
    theirs = oracle(exposition().registry).decode()
    assert parsed(parse, ours) == parsed(parse, theirs)
    assert len(parsed(parse, ours)) == len(FAMILIES)
    heads = [line for line in ours.splitlines() if line.startswith("#")]
    assert heads == [line for line in theirs.splitlines() if line.startswith("#")]


def test_a_family_without_samples_is_left_out():
    assert b"".join(pieces([Family(Metric("a", GAUGE, (), "of nothing."), [])], False)) == b""


def test_the_registry_refuses_a_family_whose_series_another_one_has():
    with pytest.raises(ValueError, match=r"Duplicated timeseries.*c_ms_sum"):
        exposition().registry.register(Exposition([Metric("c_ms_sum", GAUGE, (), "a sum.")], list))


@pytest.mark.parametrize(("accept", "parse"), [("", parse_text), (OPENMETRICS, parse_openmetrics)])
def test_names_choose_series_in_both_formats(accept, parse):
    body = b"".join(exposition().render(wanted(accept, ["c_ms_sum", "a_bytes", "a_bytes", "of_nobody"])))
    assert {sample.name for family in parse(body.decode()) for sample in family.samples} == {"c_ms_sum", "a_bytes"}
    assert b"".join(exposition().render(wanted("", ["of_nobody"]))) == b""


@pytest.mark.parametrize(
    ("format_", "escaping"),
    [
        (format_, escaping)
        for format_ in ("text/plain; version=1.0.0", OPENMETRICS)
        for escaping in ("allow-utf-8", "underscores", "dots", "values")
        if (format_, escaping) != (OPENMETRICS, "values")  # the library escapes names of series that are valid without
    ],
)
def test_names_are_escaped_as_the_content_type_says(format_, escaping):
    accept = f"{format_}; escaping={escaping}"
    page = wanted(accept, [])
    assert page.content_type.endswith(f"escaping={escaping}")
    theirs = choose_encoder(accept)[0](exposition().registry)
    parse = parse_openmetrics if page.openmetrics else parse_text
    assert parsed(parse, b"".join(exposition().render(page)).decode()) == parsed(parse, theirs.decode())


@pytest.mark.parametrize("version", ["abc", "1.x", "", "-", "9" * 400])
def test_an_accepted_format_of_no_version_has_a_response(version):
    page = wanted(f"application/openmetrics-text; version={version}", [])
    assert b"a_bytes 3\n" in b"".join(exposition().render(page))


VERSIONS = ["1.0.0", "1.0.1", "2.0.0", "17", "1.0.0;escaping=dots"]


def test_the_content_type_is_one_of_a_few_whatever_version_a_client_names():
    found = {wanted(f"application/openmetrics-text; version={version}", []).content_type for version in VERSIONS}
    head = "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping="
    assert found == {f"{head}underscores", f"{head}dots"}


@pytest.mark.parametrize("name", [family.metric.name for family in FAMILIES])
def test_of_families_that_are_not_wanted_no_sample_is_made(name):
    made = []

    def samples(family):
        made.append(family.metric.name)
        yield from family.samples

    families = [family._replace(samples=samples(family)) for family in FAMILIES]
    page = exposition(families).render(wanted("", [name]))
    assert f"# TYPE {name} ".encode() in b"".join(page) or name == "d_seconds"
    assert made == ([name] if name != "d_seconds" else []), "a histogram has no series of its own name"


def test_each_series_can_be_chosen_by_its_name():
    for family in FAMILIES:
        for name in {family.metric.name + suffix for suffix, _, _ in family.samples}:
            body = b"".join(exposition().render(wanted("", [name]))).decode()
            assert {sample.name for found in parse_text(body) for sample in found.samples} == {name}


def test_series_that_were_left_out_are_counted_though_no_other_name_is_wanted():
    limit = TextLimit(0)
    of_clients = Metric("a", GAUGE, ("client_id",), "of clients.")
    table = [of_clients, METRICS[LEFT_OUT]]

    def families():
        yield limit.limited(Family(of_clients, [("", Labels(client_id="x"), 1)] * 3))
        yield Family(METRICS[LEFT_OUT], left_out(limit))

    assert b"".join(Exposition(table, families).render(wanted("", [LEFT_OUT]))).endswith(b" 3.0\n")
