"""`mirror switch` between this broker and Apache Kafka 4.3 and 3.9, which is the source or the target."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.testing import Broker
from tests.clients.kafka_peer import Peer
from tests.mirror.test_switch import there_and_back

KAFKA = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
}


@pytest.mark.parametrize("version", [None, "3.9.1"])
@pytest.mark.parametrize("kafka_is", ["source", "target"])
def test_a_group_goes_there_and_back_and_reads_every_record_once_in_order(
    tmp_path: Path, kafka_is: str, version: str | None
) -> None:
    with Broker() as ours, Peer(tmp_path / "kafka", KAFKA, version) as kafka:
        there_and_back(*((kafka, ours) if kafka_is == "source" else (ours, kafka)), seed=7)
