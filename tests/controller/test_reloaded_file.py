"""What the coordinator uses of a configuration file that it reads again, and what remains if a step fails."""

from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.config.broker_config import Source
from odradek.controller.broker_settings import BrokerSettings
from odradek.controller.topics import NewTopic
from odradek.shm.running_config import Running, RunningConfig


class Reloads:
    """A broker of one process, its configuration file, and its settings."""

    def __init__(self, cluster, file: Path) -> None:
        self.cluster, self.config, self.file = cluster, cluster.config, file
        self.running = RunningConfig()
        self.config.source = Source(str(file), ("broker.id=1", f"log.dirs={self.config.settings['log.dirs'].text}"))
        self.settings = BrokerSettings(cluster.store, cluster.controller, self.config, self.running, cluster.shm)

    def reload(self, text: str) -> bool:
        """Returns whether the file was used."""
        self.file.write_text(text)
        self.running.request_reload()
        self.settings.reload_file()
        assert not self.running.reload_is_due
        return not self.running.reload_was_refused


@pytest.fixture
def make(make_cluster, tmp_path) -> Callable[..., Reloads]:
    return lambda settings=(): Reloads(make_cluster(settings), tmp_path / "server.properties")


def test_a_stored_setting_that_is_ignored_does_not_keep_the_broker_from_using_its_file(make, caplog):
    """For example one that another version has stored, or one that contradicts the file since the last start."""
    one = make([("log.cleaner.max.compaction.lag.ms", "100", "file")])
    stored = {"log.cleaner.min.compaction.lag.ms": "200", "log.roll.ms": "many", "message.max.bytes": "3000"}
    assert len(one.config.run_with(stored, {})) == 2
    one.running.publish(Running(stored, {}, {}))
    assert one.reload("log.cleaner.max.compaction.lag.ms=100\nlog.segment.bytes=2000000\n"), caplog.text
    assert (one.config["log.segment.bytes"], one.config["message.max.bytes"]) == (2_000_000, 3000)
    assert one.running.read()[1].of_all == stored
    assert not one.reload("log.cleaner.max.compaction.lag.ms=100\nlog.segment.bytes=many\n")
    # A setting that is used must not contradict the file.
    one.running.publish(Running({"log.cleaner.min.compaction.lag.ms": "50"}, {}, {}))
    one.config.run_with({"log.cleaner.min.compaction.lag.ms": "50"}, {})
    assert not one.reload("log.cleaner.max.compaction.lag.ms=20\n")
    assert "log.cleaner.min.compaction.lag.ms=50" in caplog.text


def test_the_reload_after_one_that_failed_does_all_of_it(make, monkeypatch):
    one = make()
    one.cluster.controller.create_topics([NewTopic("t", 1, 1)])
    configure, begun = one.cluster.controller.configure_all, []

    def fail_once() -> None:
        begun.append(1)
        if len(begun) == 1:
            raise OSError(5, "Input/output error")
        configure()

    monkeypatch.setattr(one.cluster.controller, "configure_all", fail_once)
    before = one.config.topic_defaults
    with pytest.raises(OSError, match="Input/output error"):
        one.reload("log.retention.ms=5000\n")
    assert (one.config.topic_defaults, one.running.read()[1].of_file) == (before, {})
    assert (one.running.reload_is_due, one.running.reload_was_refused) == (False, True)
    assert one.reload("log.retention.ms=5000\n")
    assert len(begun) == 2
    assert one.running.read()[1].of_file == {"log.retention.ms": "5000"}


def test_the_log_names_each_changed_setting_that_waits_for_a_restart(make, caplog):
    one = make([("log.retention.hours", "168", "file"), ("log.retention.ms", "-1", "file")])
    assert one.reload("log.retention.hours=-1\nmessage.max.bytes=1000\n")
    assert one.config.topic_defaults["retention.ms"] == -1
    assert one.config["message.max.bytes"] == 1000
    assert "need a restart of the broker: log.retention.hours, log.retention.ms" in caplog.text


def test_half_of_a_listener_s_logins_does_not_keep_the_rest_of_the_file_from_use(make, caplog):
    """PLAIN needs its JAAS configuration, a secret, which needs a restart."""
    mechanisms = "listener.name.sasl_plaintext.sasl.enabled.mechanisms"
    jaas = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    listeners = "SASL_PLAINTEXT://127.0.0.1:0"
    one = make([("listeners", listeners, "file"), (mechanisms, "SCRAM-SHA-256", "file")])
    module = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="hidden";'
    text = f"listeners={listeners}\n{mechanisms}=PLAIN\n{jaas}={module}\nmessage.max.bytes=1000\n"
    assert one.reload(text), caplog.text
    assert (one.config["message.max.bytes"], one.config[mechanisms]) == (1000, ("SCRAM-SHA-256",))
    assert f"need a restart of the broker: {jaas}, {mechanisms}" in caplog.text
    assert "hidden" not in caplog.text
    assert one.reload(f"listeners={listeners}\n{mechanisms}=SCRAM-SHA-512\n")
    assert one.config[mechanisms] == ("SCRAM-SHA-512",)
