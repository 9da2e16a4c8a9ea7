"""A client that logged in is its principal in the usage report, from the broker's spool to the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.testing import Broker
from tests import toolchains
from tests.jobs.test_report_command import run
from tests.metrics.scraping import scrape
from tests.sasl import SaslWire, settings
from tests.waiting import until
from tests.wire import batch

pytestmark = [pytest.mark.xdist_group("usage_report_command"), pytest.mark.timeout(1200)]

SPOOL = {"metrics.listener": "127.0.0.1:0", "usage.spool.max.bytes": 1 << 20, "usage.spool.interval.ms": 1000}


def test_the_page_names_the_principal_of_a_login(tmp_path: Path) -> None:
    toolchains.require_command("java", "default-jdk-headless")
    directory, out = tmp_path / "broker", tmp_path / "out"
    with Broker(settings() | SPOOL, {"orders": 1}, directory=directory) as broker:
        with SaslWire.on(broker) as wire:
            wire.log_in()
            assert wire.produce("orders", batch(b"x" * 1000)).error_code == 0
        alice = {"principal": "User:alice", "api": "Produce", "topic": "orders"}
        until(lambda: scrape(broker).sum("odradek_usage_records_in_total", **alice) == 1, "the metrics name alice")

        def spooled() -> bool:
            lines = [line for file in broker.data_dir.glob("usage-*") for line in file.read_text().splitlines()]
            return any("User:alice" in line and "Produce" in line for line in lines)

        until(spooled, "the spool names alice")
    done = run("--spool", broker.data_dir, "--from", "-1d", "--to", "tomorrow", "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "(User:alice)" in (out / "report.html").read_text()
