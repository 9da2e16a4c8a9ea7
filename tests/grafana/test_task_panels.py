"""Every background task of the table is in a panel, also one that is added."""

import re
from types import SimpleNamespace

import promql_parser
import pytest

import grafana.tasks
from odradek.metrics.background_tasks import GENERAL, TASKS, Signs
from odradek.metrics.names import METRICS
from tests.grafana.boards import everything, panel_queries, replaced

VALUES = everything("1m")
SELECTORS = [
    (query.board, selector)
    for query in panel_queries()
    for selector in [
        promql_parser.parse(found)
        for found in re.findall(r"\b(?:odradek|kafka)_\w+\{[^}]*\}|\bALERTS\{[^}]*\}", replaced(query.expr, VALUES))
    ]
]
"""(dashboard, selector) of all queries."""


def matchers(selector):
    return {matcher.name: matcher.value for matcher in selector.matchers.matchers}


def shows_alert(selector, alert):
    found = matchers(selector)
    return selector.name == "ALERTS" and re.fullmatch(found["alertname"], alert) and found["alertstate"] == "firing"


@pytest.mark.parametrize("row", TASKS, ids=lambda row: row.name)
def test_the_metric_of_a_task_has_a_panel(row):
    if not row.signs.metric:
        return  # of systemd: its alert is shown
    found = [selector for _, selector in SELECTORS if selector.name == row.signs.metric]
    assert any("task" not in matchers(selector) for selector in found), row.signs.metric


@pytest.mark.parametrize("name", sorted(name for name in METRICS if name.startswith("odradek_task_")))
def test_every_metric_of_the_tasks_that_publish_their_runs_has_a_panel(name):
    found = [board for board, selector in SELECTORS if selector.name == name and "task" not in matchers(selector)]
    assert "odradek-workers" in found


@pytest.mark.parametrize("row", TASKS, ids=lambda row: row.name)
def test_the_alerts_of_a_task_are_in_the_table_of_its_dashboard(row):
    board = "odradek-mirror" if row.process == grafana.tasks.OF_MIRROR else "odradek-workers"
    for alert in row.signs.alert.split(", "):
        shown = [selector for name, selector in SELECTORS if name == board and shows_alert(selector, alert)]
        assert shown, f"{alert} is not in a panel of {board}"
        assert any(("job" in matchers(selector)) == bool(row.signs.metric) for selector in shown)


@pytest.mark.parametrize(
    ("process", "metric"), [("cleaner", "odradek_new"), (grafana.tasks.OF_MIRROR, "odradek_new"), ("x", "")]
)
def test_a_task_that_is_added_is_in_the_table(process, metric, monkeypatch):
    added = SimpleNamespace(process=process, signs=Signs(metric, "OdradekNew, OdradekNewer", "the task"))
    monkeypatch.setattr(grafana.tasks, "TASKS", (*TASKS, added))
    of_mirror = process == grafana.tasks.OF_MIRROR
    for alert in ("OdradekNew", "OdradekNewer"):
        with_it = grafana.tasks.alerts(8, of_mirror)[1].build().targets[0].expr
        assert re.search(rf'alertname=~"[^"]*\b{alert}\b', with_it)
        assert alert not in grafana.tasks.alerts(8, not of_mirror)[1].build().targets[0].expr


def test_tasks_that_publish_their_runs_are_most_of_them():
    """Otherwise the panels of `odradek_task_*` would show little."""
    assert sum(row.signs is GENERAL for row in TASKS) > len(TASKS) / 2
