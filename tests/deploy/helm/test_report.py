"""The chart's nightly report of three brokers: the rendered command of its CronJob, with a real Prometheus and real clients."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.deploy import reports
from tests.deploy.helm import chart
from tests.deploy.helm.pod_files import PASSWORD
from tests.deploy.helm.pods import Pods
from tests.jobs.prometheus_server import PrometheusServer
from tests.jobs.test_report_of_cluster import SENT, use
from tests.waiting import until

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(1800)]

IDS = (0, 1, 2)
LOGIN = ("prometheus", PASSWORD)
JOB = "odradek-kafka-prod-odradek"  # the label of the chart's ServiceMonitor
OPTIONS = ["--step", "5", "--memory", "512m", "--master", "local[1]"]


def ran(pods: Pods, words: list[str], container: chart.Object, **more: str) -> None:
    """Run the command of the container of the report, with its environment, to its end."""
    command, _ = pods.command(words)
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    temporary = pods.directory / "tmp"
    temporary.mkdir(exist_ok=True)
    environment = {name: value.replace("/tmp", str(temporary)) for name, value in variables.items()} | more
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, env=os.environ | environment, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def figures(sent: Mapping[str, int]) -> dict[tuple[str, str], tuple[int, int]]:
    return {
        (topic, client): counts
        for topic, count in sent.items()
        for client, counts in (("shop", (count, 0)), ("billing", (0, count)))
    }


def test_the_job_of_the_report_gives_the_figures_of_what_was_sent(tmp_path: Path) -> None:
    with ExitStack() as stack:
        pods = Pods("monitoring", tmp_path, stack)
        for broker_id in IDS:
            file = tmp_path / f"etc/odradek/server-{broker_id}.properties"
            file.write_text(f"{file.read_text()}\nusage.spool.interval.ms=1000\n")
            pods.start(broker_id)
        pods.wait_ready(*IDS)
        addresses = [pods.address(broker_id, "9404") for broker_id in IDS]
        job = {"job_name": JOB, "basic_auth": dict(zip(("username", "password"), LOGIN, strict=True))}
        server = PrometheusServer(tmp_path / "server", [], targets=addresses, job=job)
        stack.callback(server.stop)
        use(pods.bootstrap_servers.split(","))
        for topic, count in SENT.items():
            for direction in ("in", "out"):  # 5 s ago, which is before the last step of the report
                known = f'sum(odradek_usage_records_{direction}_total{{topic="{topic}"}} offset 5s) == {count}'
                until(lambda: server.value(known), known, 120)  # noqa: B023
        intervals = [f'odradek_spool_intervals_total{{instance="{address}"}}' for address in addresses]
        # 0 if a scrape that took longer than the interval of 1 s has made the series stale
        for query, written in [(query, until(lambda: server.value(query), query, 120)) for query in intervals]:  # noqa: B023
            until(lambda: server.value(query) > written + 1, f"two of {query}", 120)  # noqa: B023

        extra = {"report": {"prometheus": server.url, "options": OPTIONS}}
        cron_job = chart.only(chart.rendered("monitoring", extra=extra), "CronJob", "prod-odradek-report")
        (container,) = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
        words = list(container["command"])
        assert words[words.index("--match") + 1] == f'job="{JOB}"'
        out = words.index("--out") + 1
        words[out] = str(tmp_path / "from-prometheus")
        ran(pods, words, container)
        # without a Prometheus, as docs/operate/helm.md says
        spools = [option for address in addresses for option in ("--spool", f"http://{address}")]
        of_spools = [*words[:3], *spools, "--out", str(tmp_path / "from-spools"), *OPTIONS[2:]]
        ran(pods, of_spools, container, ODRADEK_METRICS_LOGIN=":".join(LOGIN))
    for name in ("from-prometheus", "from-spools"):
        assert reports.records(tmp_path / name) == figures(SENT), name
