"""A task of a running broker that fails at a partition: commands, metrics and log name it until it works again."""

import pytest

from odradek.cli.health.local import examine_broker
from odradek.testing import Broker
from tests.cli.command import Command
from tests.metrics.scraping import scrape
from tests.waiting import until
from tests.wire import Wire, batch

pytestmark = [pytest.mark.xdist_group("doctor"), pytest.mark.timeout(600)]

TASK = "removal of deleted segments"
REASON = "cannot delete the files of removed segments"


def test_a_file_that_cannot_be_deleted_is_named_everywhere_until_it_can_be(tmp_path):
    settings = {"num.network.threads": 1, "metrics.listener": "127.0.0.1:0"}
    with Broker(settings, directory=tmp_path / "data") as broker:
        command = Command(broker.bootstrap_servers)
        with Wire.to(broker) as wire:
            wire.create("t", **{"file.delete.delay.ms": 0, "segment.bytes": 1 << 20})

        def findings():
            return [finding for finding in examine_broker(str(broker.data_dir)) if finding.subject == f"task {TASK}"]

        assert findings() == []
        stuck = broker.data_dir / "t-0" / f"{0:020d}.log.deleted"
        stuck.mkdir()  # even root cannot unlink it
        with Wire.to(broker) as wire:
            for _ in range(3):  # a roll changes the log, so that the cleaner looks at its directory
                wire.produce("t", batch(b"v" * 700_000))
        (finding,) = until(findings, "a finding")
        assert f"at 1 place: t-0: {REASON}" in finding.what
        (answer,) = command.json("partition", "explain", "t-0")["brokers"]
        assert [row["task"] for row in answer["failing_tasks"]] == [TASK]
        assert any(f"the task '{TASK}' fails here since" in text and REASON in text for text in answer["findings"])
        assert f"the task '{TASK}' fails here" in command("partition", "explain", "t-0")
        assert f"  failing      {TASK}: `odradek doctor` shows" in command("status", "--data-dir", broker.data_dir)
        samples = scrape(broker)
        assert samples.value("odradek_task_failing_objects", task=TASK) == 1
        assert samples.value("odradek_task_failed_runs", task=TASK) >= 1
        assert "cannot delete the files of removed segments of t-0" in broker.log_file.read_text()
        stuck.rmdir()
        until(lambda: not findings(), lambda: f"{findings()}")
        assert scrape(broker).value("odradek_task_failed_runs", task=TASK) == 0
        assert examine_broker(str(broker.data_dir)) == []
