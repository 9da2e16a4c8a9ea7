"""The settings that all processes share: published as a whole, taken over, never partly visible."""

import pytest

from odradek.config import load
from odradek.shm.running_config import LARGEST, RunningConfig, TooManySettings
from tests.children import end_of, fork


def test_published_settings_are_taken_over_once():
    running, config = RunningConfig(), load(None)
    assert not running.changed
    assert not running.take_over(config)
    running.publish({"message.max.bytes": "1000"}, {"message.max.bytes": "2000", "log.roll.ms": "5"}, {})
    assert running.changed
    assert running.take_over(config)
    assert (config["message.max.bytes"], config["log.roll.ms"]) == (2000, 5)
    assert not running.changed
    running.publish({"message.max.bytes": "1000"}, {}, {})
    assert running.take_over(config)
    assert (config["message.max.bytes"], config["log.roll.ms"]) == (1000, None)


def test_the_publisher_waits_until_another_process_has_taken_over_the_settings():
    running, config = RunningConfig(), load(None)
    version = running.publish({}, {"log.roll.ms": "5"}, {})
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
    running.publish({}, {"log.roll.ms": "1"}, {})
    assert running.take_over(config)
    with monkeypatch.context() as patch:
        patch.setattr(running._pages, "_words", [0, *[0] * 64])  # the process dies: its store is lost
        running.publish({}, {"log.roll.ms": "2"}, {})
    assert (running.version, running.changed) == (1, False)
    assert running.publish({}, {"log.roll.ms": "3"}, {}) == 3
    assert running.take_over(config)
    assert config["log.roll.ms"] == 3


def test_settings_that_do_not_fit_are_refused_and_change_nothing():
    running = RunningConfig()
    version = running.publish({}, {"log.roll.ms": "1"}, {})
    with pytest.raises(TooManySettings, match=str(LARGEST)):
        running.publish({}, {"log.roll.ms": "1" * LARGEST}, {})
    assert running.version == version
    assert running.read()[1].of_broker == {"log.roll.ms": "1"}
