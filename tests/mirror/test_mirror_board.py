"""Prometheus scrapes the metrics of a worker: every query of the mirror's dashboard has data, and an alert fires."""

import socket

import pytest
import yaml

from odradek.metrics.http import HttpServer, Pages
from odradek.metrics.names.mirror import MIRROR_METRICS
from odradek.metrics.registry import Exposition
from odradek.mirror.metrics import MirrorMetrics
from odradek.mirror.routes import Moved, Route
from tests.grafana.boards import ROOT, everything, other_queries, panel_queries, replaced
from tests.grafana.prometheus import Prometheus
from tests.toolchains import require_command

BOARD = "odradek-mirror"


@pytest.fixture(scope="module", autouse=True)
def prometheus():
    require_command("prometheus", "prometheus")


@pytest.fixture
def worker():
    """The address of a worker's metrics, with a lag, a stopped partition, a failure and a topic that is not mirrored."""
    metrics = MirrorMetrics("1.2", "w1")
    flow = metrics.flow("a", "b")
    for partition in range(2):
        route = Route(("t", partition), ("a.t", partition))
        flow.progress(route, 5, 10, 0)
        flow.moved(Moved(route, 0, 0, 5, 5, 100, 1))
    flow.stopped(Route(("t", 1), ("a.t", 1)), 'the batch is "too large"')
    flow.failed(0, "x", 1.0)
    flow.lanes, flow.topics, flow.refused_topics, flow.last_refresh = 8, 1, 1, 1.0
    listening = socket.create_server(("127.0.0.1", 0))
    server = HttpServer(listening, Pages(Exposition(MIRROR_METRICS.values(), metrics.families).render, lambda: None))
    server.start()
    yield f"127.0.0.1:{listening.getsockname()[1]}"
    server.stop()
    listening.close()


def test_every_query_of_the_dashboard_has_data_and_the_partition_alert_fires(worker, tmp_path):
    with Prometheus(tmp_path / "prometheus", worker) as prometheus:
        queries = {query.name: query.expr for query in panel_queries() if query.board == BOARD}
        queries |= {name: query for name, query in other_queries() if name.startswith(BOARD)}
        assert len(queries) > 15
        prometheus.wait_for_data({name: replaced(query, everything("10s")) for name, query in queries.items()})
        prometheus.wait_for_values(
            'ALERTS{alertname="OdradekMirrorPartitionStopped"}', "reason", 'the batch is "too large"'
        )


def test_the_job_of_the_example_is_the_one_of_the_alerts():
    text = (ROOT / "deploy/prometheus/prometheus.yml").read_text()
    example = yaml.safe_load("\n".join(line.removeprefix("  # ") for line in text.splitlines()[-3:]))
    assert example == [{"job_name": "mirror-odradek", "static_configs": [{"targets": ["127.0.0.1:9405"]}]}]
