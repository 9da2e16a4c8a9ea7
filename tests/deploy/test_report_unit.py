"""The unit of the nightly report in a real systemd: its timer makes the report, from the spools and from a Prometheus."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import toolchains
from tests.deploy import reports, service
from tests.deploy.machines import JAVA_PACKAGES, Machine, debian_root, machine
from tests.deploy.reports import UNIT
from tests.waiting import until

pytestmark = [pytest.mark.deploy, pytest.mark.xdist_group("report-unit"), pytest.mark.timeout(1500)]

METRICS, PROMETHEUS = "127.0.0.1:9404", "127.0.0.1:9090"
JOB = {"job_name": "odradek", "scrape_interval": "1s", "static_configs": [{"targets": [METRICS]}]}
RECORDS = 500


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine with a broker, a Prometheus that scrapes it, a topic with `RECORDS` records, and the units of the report."""
    binds = service.binds() | {"/opt/prometheus": Path(toolchains.require_command("prometheus", "prometheus"))}
    root = debian_root(*JAVA_PACKAGES)
    with machine("reports", tmp_path_factory.mktemp("reports"), root, read_only_binds=binds) as made:
        made.put("127.0.0.1 localhost\n", "/etc/hosts")  # the name of the machine has no address
        service.install(made, "usage.spool.interval.ms=1000")
        made.run(f"{service.CHECKOUT}/deploy/systemd/install", "--units-only", "--with-report")
        made.put(json.dumps({"scrape_configs": [JOB]}), "/etc/prometheus.yml")
        reports.hurry(made)
        made.run("systemctl", "start", service.UNIT)
        made.run(
            "systemd-run", "--unit=prometheus", "/opt/prometheus", "--config.file=/etc/prometheus.yml",
            "--storage.tsdb.path=/var/lib/prometheus", f"--web.listen-address={PROMETHEUS}",
        )  # fmt: skip
        odradek(made, "topic", "create", "orders")
        odradek(made, "produce", "orders", text="".join(f"{number}\n" for number in range(RECORDS)))
        query = 'sum(odradek_usage_records_in_total{topic="orders"})'
        until(lambda: reports.samples(made, query) == {"": RECORDS}, lambda: f"{reports.samples(made, query)}", 120)
        yield made


def odradek(server: Machine, *arguments: str, text: str | None = None) -> str:
    return server.run("/opt/odradek/venv/bin/odradek", *arguments, "-b", service.ADDRESS, text=text).stdout


def report_by(server: Machine, source: str | None) -> dict[str, Any]:
    """Let the timer make a report from a source, None is that of the unit, into an own directory; return its summary."""
    out = f"/var/lib/odradek-report/{'unit' if source is None else source.split()[0].strip('-')}"
    lines = [f"ODRADEK_REPORT={out}", f"ODRADEK_REPORT_OPTIONS={reports.OPTIONS}"]
    server.put(
        "\n".join([*lines, *([] if source is None else [f"ODRADEK_REPORT_SOURCE={source}"])]) + "\n",
        "/etc/odradek/report.env",
    )
    summary = reports.by_timer(server, out)
    assert reports.records(reports.directory(server, out)) == {("orders", "odradek"): (RECORDS, 0)}
    return summary


def test_the_timer_reports_from_each_source_what_was_sent(server: Machine) -> None:
    of_unit = report_by(server, None)
    sources = (
        f"--spool http://{METRICS}",
        f"--prometheus http://{PROMETHEUS} --step 5 --match 'job=\"odradek\"'",
    )
    for source in sources:
        summary = report_by(server, source)
        assert summary["source"].endswith(source.split()[1])
        for report in (of_unit, summary):
            assert report["traffic"]["records_in"] == RECORDS
            assert report["topics"] == 1 and len(report["disks"]) == 1
        assert summary["stored_bytes"] == of_unit["stored_bytes"] > 0
        assert summary["disks"][0]["broker"] == of_unit["disks"][0]["broker"]
    assert of_unit["source"] == "spool /var/lib/odradek/data"


def test_a_former_setting_is_refused_with_what_to_write_instead(server: Machine) -> None:
    server.put("ODRADEK_SPOOL=/data/spool\n", "/etc/odradek/report.env")
    assert server.run("systemctl", "start", UNIT, check=False).returncode == 1
    assert "write ODRADEK_REPORT_SOURCE=--spool /data/spool instead" in server.journal(UNIT, 5)


def test_other_machines_are_reached_after_the_documented_command(server: Machine) -> None:
    server.run("systemctl", "set-property", UNIT, "IPAddressAllow=192.0.2.7")
    allowed = service.property_of(server, "IPAddressAllow", UNIT)
    assert "192.0.2.7/32" in allowed and "127.0.0.0/8" in allowed
