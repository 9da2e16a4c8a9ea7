"""The settings that all processes share: published as a whole, taken over, never partly visible."""

import pytest

from odradek.config.broker_config import load
from odradek.shm.running_config import LARGEST, Running, RunningConfig, TooManySettings
from tests.children import end_of, fork


def test_published_settings_are_taken_over_once():
    running, config = RunningConfig(), load(None)
    assert not running.changed
    assert not running.take_over(config)
    running.publish(Running({"message.max.bytes": "1000"}, {"message.max.bytes": "2000", "log.roll.ms": "5"}, {}))
    assert running.changed
    assert running.take_over(config)
    assert (config["message.max.bytes"], config["log.roll.ms"]) == (2000, 5)
    assert not running.changed
    running.publish(Running({"message.max.bytes": "1000"}, {}, {}))
    assert running.take_over(config)
    assert (config["message.max.bytes"], config["log.roll.ms"]) == (1000, None)


def test_the_publisher_waits_until_another_process_has_taken_over_the_settings():
    running, config = RunningConfig(), load(None)
    version = running.publish(Running({}, {"log.roll.ms": "5"}, {}))
    assert running.wait_until_taken(version, [3], 0) == [3]

    def take_over() -> None:
        running.enter(3)
        running.take_over(config)
        assert config["log.roll.ms"] == 5

    child = fork(take_over)
    assert running.wait_until_taken(version, [3], 120) == []
    assert end_of(child) == 0
    assert config["log.roll.ms"] is None


def test_a_publisher_that_died_before_it_stored_the_version_leaves_no_version_with_two_contents(monkeypatch):
    running, config = RunningConfig(), load(None)
    running.publish(Running({}, {"log.roll.ms": "1"}, {}))
    assert running.take_over(config)
    with monkeypatch.context() as patch:
        patch.setattr(running._pages, "_words", [0, *[0] * 64])  # the process dies: its store is lost
        running.publish(Running({}, {"log.roll.ms": "2"}, {}))
    assert (running.version, running.changed) == (1, False)
    assert running.publish(Running({}, {"log.roll.ms": "3"}, {})) == 3
    assert running.take_over(config)
    assert config["log.roll.ms"] == 3


def test_settings_that_do_not_fit_are_refused_and_change_nothing():
    running = RunningConfig()
    version = running.publish(Running({}, {"log.roll.ms": "1"}, {}))
    with pytest.raises(TooManySettings, match=str(LARGEST)):
        running.publish(Running({}, {"log.roll.ms": "1" * LARGEST}, {}))
    assert running.version == version
    assert running.read()[1].of_broker == {"log.roll.ms": "1"}


def test_what_changed_in_the_file_is_below_the_settings_of_the_store_and_can_be_undone(tmp_path):
    file = tmp_path / "server.properties"
    file.write_text("message.max.bytes=1000\nlog.roll.ms=5\n")
    running, config = RunningConfig(), load(file)
    running.publish(
        Running({"log.roll.ms": "7"}, {}, {}, {"message.max.bytes": None, "log.roll.ms": "6", "log.level": "WARN"})
    )
    assert running.take_over(config)
    assert not config.is_set("message.max.bytes") and config["log.roll.ms"] == 7 and config["log.level"] == "WARN"
    assert config.static["log.roll.ms"].value == 6
    running.publish(Running({}, {}, {}))
    assert running.take_over(config)
    assert (config["message.max.bytes"], config["log.roll.ms"], config["log.level"]) == (1000, 5, "INFO")


def test_a_request_for_a_reload_stays_due_until_it_was_served():
    running = RunningConfig()
    assert not running.reload_is_due
    running.request_reload()
    request = running.reload_requests
    running.request_reload()  # while the coordinator serves the first one
    running.reloaded(request, refused=True)
    assert running.reload_is_due and running.reload_was_refused
    running.reloaded(running.reload_requests, refused=False)
    assert not running.reload_is_due and not running.reload_was_refused
