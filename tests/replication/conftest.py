"""What the tests of replica fetchers share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import odradek._ext.shm.brokers as brokers
from odradek._ext.testing import replica_probe
from tests.replication.fake_leader import FakeLeader
from tests.replication.following import Following
from tests.shm.one_broker import OneBroker


@pytest.fixture
def following(tmp_path: Path) -> Iterator[Following]:
    data = tmp_path / "data"
    data.mkdir()
    with OneBroker(data) as broker, FakeLeader() as leader:
        replica_probe.cluster([1, 2])
        brokers.set_broker_epoch(77)
        made = Following(broker, leader)
        yield made
        made.fetcher.stop()
        made.fetcher.join(30)
        assert made.fetcher.ended
        assert leader.complaints == []
