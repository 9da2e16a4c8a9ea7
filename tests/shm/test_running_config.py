"""The settings that all processes share: published as a whole, taken over, never partly visible."""

import os
import struct

import pytest

from odradek.config import load
from odradek.shm.running_config import LARGEST, RunningConfig, TooManySettings

COPIES_AT, COPY_BYTES = 4096, 256 * 1024


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
    child = os.fork()
    if not child:
        running.enter(3)
        running.take_over(config)
        os._exit(0 if config["log.roll.ms"] == 5 else 1)
    assert running.wait_until_taken(version, [3], 120) == []
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert config["log.roll.ms"] is None


@pytest.mark.parametrize("kept", range(0, 40, 3))
def test_a_writer_that_died_halfway_leaves_the_previous_version(kept):
    running = RunningConfig()
    running.publish({}, {"log.roll.ms": "1"}, {})
    before = running.read()
    running.publish({}, {"log.roll.ms": "2"}, {})
    fd = running.descriptors[0]
    for version in (3, 4):  # over the older copy, begun and not finished; then not even begun
        at = COPIES_AT + version % 2 * COPY_BYTES
        os.pwrite(fd, (struct.pack("<QII", version, 30, 0) + b"x" * 30)[:kept], at)
        if version == 3:
            assert running.read()[1].of_broker == {"log.roll.ms": "2"}
    assert before[0] == 1


def test_settings_that_do_not_fit_are_refused_and_change_nothing():
    running = RunningConfig()
    version = running.publish({}, {"log.roll.ms": "1"}, {})
    with pytest.raises(TooManySettings, match=str(LARGEST)):
        running.publish({}, {"log.roll.ms": "1" * LARGEST}, {})
    assert running.version == version
    assert running.read()[1].of_broker == {"log.roll.ms": "1"}
