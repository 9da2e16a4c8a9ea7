"""A real Prometheus scrapes a real broker under load: every query of every panel has data, rules work, alerts fire.

One broker, one Prometheus and three load processes for all tests; those that do harm come last.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.testing import Broker
from tests.certificates import write_files
from tests.cli.command import Command
from tests.faults.small_disk import SmallDisk
from tests.grafana import kafka_exporter_queries, load
from tests.grafana.boards import (
    DASHBOARDS,
    ROOT,
    everything,
    label_values,
    other_queries,
    panel_queries,
    replaced,
)
from tests.grafana.prometheus import Prometheus
from tests.grafana.test_rules import ALERTS, recorded_names
from tests.metrics.test_collector import IN_CLUSTERS
from tests.ports import reserved
from tests.sasl import PLAIN_LINE, port_of

pytestmark = [
    pytest.mark.xdist_group("grafana-live"),
    pytest.mark.timeout(1500),
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Prometheus (Debian: prometheus)"),
]

WINDOW = "20s"
MIRROR = "odradek-mirror"
"""The dashboard of `odradek mirror run`, which does not run here: tests/mirror/test_mirror_board.py reads its metrics."""
CHOSEN = {"job": "odradek", "consumergroup": "billing", "topic": "orders|audit"}
ALICES_RATE = 10_000
"""Bytes per second that the producer of alice may send, a fraction of what it tries."""
SMALL_DISK_BYTES = 64 * 1024 * 1024
LEFT_BYTES = SMALL_DISK_BYTES // 200
"""Half of the hard limit, and enough for the load while the disk is filled: a file that does not fit is not created."""


BYTES = {
    "in": ("sum(odradek_usage_bytes_in_total{at})", "sum(odradek_socket_bytes_in_total{at})"),
    "out": (
        "sum(odradek_usage_bytes_out_total{at})",
        "(sum(odradek_socket_bytes_out_total{at}) + sum(odradek_unsent_bytes_total{at}))",
    ),
}
"""The bytes of clients, and those of sockets that are theirs, at a time."""
ENOUGH_BYTES = 20_000_000


class Site:
    """The broker, the clients by role, Prometheus, and the small disk of the second log directory if there is one."""

    def __init__(self, broker: Broker, target: str, prometheus: Prometheus, disk: SmallDisk | None) -> None:
        self.broker, self.target, self.prometheus, self.disk = broker, target, prometheus, disk
        self.clients: dict[str, subprocess.Popen[bytes]] = {}
        self.without_tls_since_s = 0.0

    def begin(self, role: str) -> None:
        command = [sys.executable, "-m", "tests.grafana.load", role]
        if role == "security":
            command += [f"127.0.0.1:{port_of(self.broker, 'SECURE')}", str(self.broker.directory.parent / "ca.pem")]
        else:
            command.append(self.broker.bootstrap_servers)
        self.clients[role] = subprocess.Popen(command, cwd=ROOT)

    def end(self, role: str) -> None:
        process = self.clients.pop(role)
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def _small_disk(path: Path) -> Iterator[SmallDisk | None]:
    """Return None if no file system can be mounted."""
    with contextlib.ExitStack() as stack:
        try:
            disk = stack.enter_context(SmallDisk(path, SMALL_DISK_BYTES))
        except pytest.skip.Exception:
            disk = None
        yield disk


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("site")
    with _small_disk(directory / "small") as disk, reserved() as port:
        target = f"127.0.0.1:{port}"
        config = {
            "metrics.listener": target,
            "num.network.threads": 2,
            "usage.spool.interval.ms": 1000,
            "usage.spool.max.bytes": 64 * 1024 * 1024,
            "auto.create.topics.enable": "false",
            "log.dirs": f"{directory / 'data'},{directory / 'small' / 'data'}",
            "listeners": "PLAINTEXT://127.0.0.1:0,SECURE://127.0.0.1:0",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL",
            "ssl.keystore.location": f"{write_files(directory)}/broker.pem",
            "ssl.truststore.location": f"{directory / 'ca.pem'}",
            "ssl.truststore.type": "PEM",
            "listener.name.secure.ssl.client.auth": "requested",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.secure.plain.sasl.jaas.config": PLAIN_LINE,
            "connections.max.reauth.ms": 3000,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
        }
        with (
            Broker(config, load.TOPICS, directory=directory / "broker") as broker,
            Prometheus(directory / "prometheus", target) as prometheus,
        ):
            made = Site(broker, target, prometheus, disk)
            limits = (f"{kind}_byte_rate={ALICES_RATE}" for kind in ("producer", "consumer"))
            Command(broker.bootstrap_servers)("quota", "set", "--user", "alice", "--client-id", "secure", *limits)
            for role in ("writers", "group", "reader", "transactions", "security"):
                made.begin(role)
            try:
                yield made
            finally:
                for role in list(made.clients):
                    made.end(role)


@pytest.fixture(scope="module")
def prometheus(site: Site) -> Prometheus:
    return site.prometheus


@pytest.mark.parametrize("uid", [uid for uid in DASHBOARDS if uid != MIRROR])
def test_every_query_of_every_panel_has_data_with_all_labels_of_its_legend(uid: str, prometheus: Prometheus) -> None:
    asked = [
        query for query in panel_queries() if query.board == uid and not any(name in query.expr for name in IN_CLUSTERS)
    ]
    prometheus.wait_for_data(
        {query.name: replaced(query.expr, everything(WINDOW)) for query in asked},
        {query.name: set(re.findall(r"\{\{(\w+)\}\}", query.legend)) for query in asked},
    )


def test_clients_that_only_write_or_only_read_are_shown(prometheus: Prometheus) -> None:
    """Bytes in and out are added; a plain + would omit series that have only one of the two."""
    queries = {query.name: replaced(query.expr, everything(WINDOW)) for query in panel_queries()}
    prometheus.wait_for_values(queries["odradek-clients/Bytes by API/A"], "api", "Produce", "Fetch", "Heartbeat")
    prometheus.wait_for_values(queries["odradek-clients/Topics/A"], "topic", "orders", "audit")
    prometheus.wait_for_values(
        queries["odradek-overview/Clients by bytes/A"], "client_id", "auditor", "spark", "billing-0"
    )


def test_variables_and_annotations_have_data(prometheus: Prometheus) -> None:
    prometheus.wait_for_data(
        {name: replaced(query, everything(WINDOW)) for name, query in other_queries() if not name.startswith(MIRROR)}
    )


def test_variables_offer_the_existing_values(site: Site) -> None:
    wanted = {
        "job": "odradek", "instance": site.target, "topic": "orders", "consumergroup": "billing", "client": "spark",
    }  # fmt: skip
    queries = {
        variable["name"]: variable["query"]["query"]
        for uid, board in DASHBOARDS.items()
        for variable in board["templating"]["list"]
        if variable["type"] == "query" and uid != MIRROR
    }
    assert queries.keys() == wanted.keys()
    for name, query in queries.items():
        selector, label = label_values(query)
        site.prometheus.wait_for_values(replaced(selector, everything(WINDOW)), label, wanted[name])


def test_a_panel_that_is_narrowed_to_one_topic_group_and_client_has_data(site: Site) -> None:
    chosen = everything(WINDOW) | {
        "job": "odradek", "instance": site.target, "topic": "orders", "consumergroup": "billing", "client": "export",
    }  # fmt: skip
    queries = {
        query.name: replaced(query.expr, chosen)
        for query in panel_queries()
        if query.board == "odradek-groups" or query.name.startswith("odradek-topics/Readers")
    }
    site.prometheus.wait_for_data(queries)


@pytest.mark.parametrize("source", ["DASHBOARD_7589", "OVERVIEW", "STRIMZI", "STRIMZI_KAFKA"])
def test_dashboards_made_for_kafka_exporter_have_data(source: str, site: Site) -> None:
    queries = getattr(kafka_exporter_queries, source)
    values = CHOSEN | {"instance": site.target}
    site.prometheus.wait_for_data({name: replaced(expr, values) for name, expr in queries.items()})


def test_the_variables_of_dashboards_for_kafka_exporter_offer_the_existing_values(site: Site) -> None:
    values = CHOSEN | {"instance": site.target}
    for name, (selector, label) in kafka_exporter_queries.VARIABLES_7589.items():
        site.prometheus.wait_for_data({name: replaced(selector, values)}, {name: {label}})
    for expr in kafka_exporter_queries.COUNTS_OF_WHAT_IS_WRONG.values():
        counted = replaced(expr, values)
        assert site.prometheus.query(counted) == []
        site.prometheus.wait_for_data({expr: counted.replace("<1", ">=1")})


def test_every_recording_rule_has_data(prometheus: Prometheus) -> None:
    prometheus.wait_for_data({name: name for name in recorded_names()})


def test_no_rule_fails(prometheus: Prometheus) -> None:
    rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert len(rules) == len(ALERTS) + len(recorded_names())
    assert [rule["lastError"] for rule in rules if rule.get("lastError")] == []


@pytest.fixture(scope="module")
def troubled(site: Site) -> Site:
    """The group, the reader and the clients with TLS have ended, a worker was killed: all in one test, because alerts take
    time."""
    for role in ("group", "reader", "security"):
        site.end(role)
    of_alice = 'odradek_usage_bytes_in_total{principal="User:alice"}'
    site.prometheus.wait_for_data({"her last bytes": f"sum({of_alice}) == sum({of_alice} offset 3s)"})
    site.without_tls_since_s = site.prometheus.value("vector(time())")
    worker = next(process for process in site.broker.processes() if process["kind"] == "worker")
    os.kill(worker["pid"], signal.SIGKILL)
    return site


def test_a_dead_worker_makes_its_alert_fire(troubled: Site) -> None:
    troubled.prometheus.wait_for_alert("OdradekChildDied", process="worker", instance=troubled.target)


def test_a_group_that_stops_makes_its_alert_fire(troubled: Site) -> None:
    found = troubled.prometheus.wait_for_alert("OdradekConsumerStopped", consumergroup="billing", topic="orders")
    assert found["severity"] == "warning"


def test_a_reader_that_never_commits_and_stops_makes_its_alert_fire(troubled: Site) -> None:
    troubled.prometheus.wait_for_alert("OdradekReaderStopped", client_id="spark", topic="orders")
    assert troubled.prometheus.value('count(ALERTS{alertname=~"OdradekReader.+",client_id="export"}) or vector(0)') == 0


def test_requests_that_fail_make_their_alert_fire(site: Site) -> None:
    site.prometheus.wait_for_alert("OdradekProduceFailing", instance=site.target)


def test_a_full_disk_makes_its_alert_fire(site: Site) -> None:
    if site.disk is None:
        pytest.skip("NO FULL DISK IS TESTED: mounting a small file system needs root")
    path = site.disk.fill(leave=LEFT_BYTES)
    found = site.prometheus.wait_for_alert("OdradekDiskFull", instance=site.target)
    assert Path(found["log_dir"]).is_relative_to(site.disk.path)
    path.unlink()


def test_the_bytes_of_all_clients_are_those_of_the_sockets(troubled: Site) -> None:
    """Except bytes in flight when the worker was killed, and bytes that were not a request. Since the clients with TLS have
    ended: the bytes of sockets are those of TLS.

    The clients go on until they have sent so much that the bytes in flight, some 100 kB, are less than the permitted part."""
    sockets = BYTES["in"][1]
    since = f"{sockets.format(at='')} - {sockets.format(at=f' @ {troubled.without_tls_since_s}')}"
    troubled.prometheus.wait_for_data({"enough bytes": f"({since}) > {ENOUGH_BYTES}"})
    for role in list(troubled.clients):
        troubled.end(role)
    at = f" @ {troubled.without_tls_since_s}"
    for way, parts in BYTES.items():
        of_clients, of_sockets = (f"({part.format(at='')} - {part.format(at=at)})" for part in parts)
        troubled.prometheus.wait_for_data({way: f"abs({of_clients} / {of_sockets} - 1) < 0.01"})


def test_the_alert_fires_for_a_broker_that_is_down(site: Site) -> None:
    site.broker.stop()
    site.prometheus.wait_for_alert("OdradekBrokerDown", instance=site.target)
