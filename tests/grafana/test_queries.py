"""Every query parses, and uses only metrics and labels that the broker has."""

import re

import promql_parser
import pytest
import yaml

from odradek.metrics.metric import HISTOGRAM, SUMMARY
from odradek.metrics.names import METRICS as OF_BROKERS
from odradek.metrics.names.mirror import MIRROR_METRICS
from tests.grafana.boards import DASHBOARDS, ROOT, everything, label_values, other_queries, panel_queries, replaced

METRICS = OF_BROKERS | MIRROR_METRICS
VALUES = everything("1m")
TARGET = {"job", "instance"}
RULES = [
    rule
    for name in ("recording", "alerts")
    for group in yaml.safe_load((ROOT / f"deploy/prometheus/rules/{name}.yml").read_text())["groups"]
    for rule in group["rules"]
]
RECORDED = {rule["record"]: rule["expr"] for rule in RULES if "record" in rule}
QUERIES = {query.name: query for query in panel_queries()}
EVERY_EXPR = (
    {name: query.expr for name, query in QUERIES.items()}
    | dict(other_queries())
    | {f"rule {rule.get('alert', rule.get('record'))}": rule["expr"] for rule in RULES}
)


OF_NODE_EXPORTER = {"node_systemd_unit_state": {"name", "state", "type"}}
"""The labels of metrics that no program of this project has."""


def _labels_of(name: str) -> set[str] | None:
    """Return the labels that samples of a name may have; None if there is no such metric."""
    if name == "up":
        return TARGET
    if name == "ALERTS":
        return TARGET | {"alertname", "alertstate", "severity"}
    if name in RECORDED:
        return _result_labels(promql_parser.parse(RECORDED[name]))
    if name in OF_NODE_EXPORTER:
        return TARGET | OF_NODE_EXPORTER[name]
    metric = METRICS.get(name)
    if metric is None:
        family = re.sub(r"_(bucket|count|sum)$", "", name)
        metric = METRICS.get(family)
        if metric is None or metric.type not in (HISTOGRAM, SUMMARY):
            return None
        kinds = {"bucket", "count", "sum"} if metric.type == HISTOGRAM else {"count", "sum"}
        if name.rpartition("_")[2] not in kinds:
            return None
    return TARGET | set(metric.labels)


def _selectors(expr) -> list[promql_parser.VectorSelector]:
    found = []

    def visit(part):
        if isinstance(part, promql_parser.VectorSelector):
            found.append(part)
        return True

    promql_parser.walk(expr, visit)
    return found


def _result_labels(expr) -> set[str]:
    """Return the labels that the result may have."""
    match expr:
        case promql_parser.AggregateExpr():
            inner = _result_labels(expr.expr)
            if expr.modifier is None:
                return inner if str(expr.op) in ("topk", "bottomk") else set()
            assert expr.modifier.type == promql_parser.AggModifierType.By
            assert set(expr.modifier.labels) <= inner, f"grouped by {expr.modifier.labels}, there are {inner}"
            return set(expr.modifier.labels)
        case promql_parser.Call():
            return set().union(*map(_result_labels, expr.args))
        case promql_parser.BinaryExpr():
            return _result_labels(expr.lhs) or _result_labels(expr.rhs)
        case promql_parser.ParenExpr() | promql_parser.UnaryExpr() | promql_parser.SubqueryExpr():
            return _result_labels(expr.expr)
        case promql_parser.MatrixSelector():
            return _labels_of(expr.vector_selector.name) or set()
        case promql_parser.VectorSelector():
            return _labels_of(expr.name) or set()
        case _:
            return set()


@pytest.mark.parametrize("name", EVERY_EXPR)
def test_a_query_asks_for_metrics_and_labels_that_there_are(name):
    expr = promql_parser.parse(replaced(EVERY_EXPR[name], VALUES) if not name.startswith("rule") else EVERY_EXPR[name])
    selectors = _selectors(expr)
    assert selectors
    for selector in selectors:
        labels = _labels_of(selector.name)
        assert labels is not None, f"there is no metric {selector.name}"
        asked = {matcher.name for matcher in selector.matchers.matchers}
        assert asked <= labels, f"{selector.name} has no label {asked - labels}"
    _result_labels(expr)


@pytest.mark.parametrize("name", QUERIES)
def test_a_legend_names_labels_of_the_answer(name):
    query = QUERIES[name]
    there = _result_labels(promql_parser.parse(replaced(query.expr, VALUES)))
    assert set(re.findall(r"\{\{(\w+)\}\}", query.legend)) <= there


@pytest.mark.parametrize("name", QUERIES)
def test_a_counter_is_shown_as_a_rate(name):
    """Only the number of restarts is shown without rate(), in a table."""
    expr = promql_parser.parse(replaced(QUERIES[name].expr, VALUES))
    plain = {s.name for s in _selectors(expr)} - _inside_ranges(expr)
    counters = {n for n in plain if n.endswith(("_total", "_bucket"))}
    assert counters <= {"odradek_process_restarts_total", "odradek_usage_connection_seconds_total"}
    if "odradek_usage_connection_seconds_total" in counters:
        assert "count by" in QUERIES[name].expr


def _inside_ranges(expr) -> set[str]:
    found = set()

    def visit(part):
        if isinstance(part, promql_parser.MatrixSelector):
            found.add(part.vector_selector.name)
        return True

    promql_parser.walk(expr, visit)
    return found


@pytest.mark.parametrize("name", QUERIES)
def test_a_total_of_the_broker_is_not_added_to_its_parts(name):
    """Strimzi's topic metrics have a series without a topic in addition to those with one."""
    for selector in _selectors(promql_parser.parse(replaced(QUERIES[name].expr, VALUES))):
        if selector.name.startswith("kafka_server_brokertopicmetrics_"):
            assert "topic" in {matcher.name for matcher in selector.matchers.matchers}


def test_a_variable_offers_the_values_of_its_label():
    for name, query in _variables():
        selector, label = label_values(query)
        (asked,) = _selectors(promql_parser.parse(replaced(selector, VALUES)))
        assert label in _labels_of(asked.name), name
        assert label == {"client": "client_id"}.get(name, name)


def _variables():
    return [
        (variable["name"], variable["query"]["query"])
        for board in DASHBOARDS.values()
        for variable in board["templating"]["list"]
        if variable["type"] == "query"
    ]


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES.keys())
def test_a_graph_shows_the_same_series_at_every_point(query):
    """topk() alone selects separately at each point of a graph, so that lines begin and end where ranks change."""
    choices = query.expr.count("topk(")
    assert query.instant or choices == query.expr.count("@ end()")
