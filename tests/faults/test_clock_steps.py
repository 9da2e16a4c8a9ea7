"""The wall clock is set forward and back by hours: durations do not change."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.testing import Broker
from tests.api.group_talk import GroupTalk
from tests.durability.conftest import Syncs
from tests.faults.clock_script import WAITS
from tests.faults.shifted_clock import HOUR_S, ShiftedClock
from tests.shm.one_broker import batch
from tests.waiting import until

ROOT = Path(__file__).parent.parent.parent
STEPS = (10 * HOUR_S, -10 * HOUR_S, 0)


@pytest.fixture
def clock(tmp_path):
    return ShiftedClock(tmp_path)


@pytest.mark.parametrize("what", WAITS)
def test_a_wait_for_a_lock_takes_its_time(tmp_path, clock, what):
    (tmp_path / "data").mkdir()
    command = [sys.executable, "-m", "tests.faults.clock_script", tmp_path / "data", what]
    subprocess.run(command, env=os.environ | clock.environment, cwd=ROOT, check=True, timeout=90)


@pytest.fixture
def syncs(tmp_path):
    return Syncs(tmp_path / "syncs")


@pytest.fixture
def broker(tmp_path, clock, syncs):
    preloaded = f"{clock.environment['LD_PRELOAD']}:{syncs.environment['LD_PRELOAD']}"
    config = {
        "num.network.threads": 1,
        "log.retention.ms": -1,
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 1,
        "log.segment.delete.delay.ms": 0,
        "log.initial.task.delay.ms": 0,
    }
    topics = {"aged": {"partitions": "1", "flush.ms": "1"}, "topic": 1, "deleted": 1}
    environment = clock.environment | syncs.environment | {"LD_PRELOAD": preloaded}
    with Broker(config, topics, directory=tmp_path / "broker", environment=environment) as one:
        yield one


def test_a_broker_goes_on_through_steps_of_the_clock(broker, clock, syncs):
    with GroupTalk(broker.host, broker.port) as wire:
        wire.until_coordinated("g")
        session = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000}
        member_id, generation = wire.joined("g", **session)
        assert wire.beat("h", "m", 0).error_code == ErrorCode.NONE
        size = 0
        for step in (0, *STEPS):
            clock.set(step)
            data = batch()
            assert wire.produce("aged", data).error_code == 0
            size += len(data)
            until(lambda size=size: syncs.bytes_on_device("aged-0/") == size, f"flush.ms is kept after {step} s", 30.0)
            assert wire.heartbeat("g", member_id, generation).error_code == ErrorCode.NONE
            assert wire.beat("h", "m", 1).error_code == ErrorCode.NONE
            if step < 0:
                wire.delete("deleted")
                until(lambda: not list(broker.data_dir.glob("deleted-*")), "a deleted log is removed", 30.0)
    assert "killing " not in broker.log_file.read_text()
