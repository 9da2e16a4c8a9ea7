"""Offsets that librdkafka's producers commit in transactions: what OffsetFetch returns at each moment, also after a restart,
and what the commands for groups show."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from odradek.protocol.errors import ErrorCode
from odradek.testing import Broker
from tests.api.group_talk import GroupTalk

pytestmark = [pytest.mark.xdist_group("transactional-offsets"), pytest.mark.timeout(300)]

TIMEOUT_S = 60
TOPIC = "work"
UNSTABLE = int(ErrorCode.UNSTABLE_OFFSET_COMMIT)
CONFIG = {"offsets.topic.num.partitions": 3, "transaction.state.log.num.partitions": 3}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(CONFIG, directory=tmp_path) as made:
        with GroupTalk(made.host, made.port) as wire:
            wire.create(TOPIC, 2)
            wire.until_coordinated("g")
        yield made


class Transactions:
    """A producer that commits offsets of the group "g"."""

    def __init__(self, broker: Broker, transactional_id: str) -> None:
        servers = broker.bootstrap_servers
        self.producer = Producer({"bootstrap.servers": servers, "transactional.id": transactional_id})
        self._consumer = Consumer({"bootstrap.servers": servers, "group.id": "g"})
        self.producer.init_transactions(TIMEOUT_S)

    def begin(self, offset: int, partition: int = 0) -> None:
        self.producer.begin_transaction()
        place = TopicPartition(TOPIC, partition, offset)
        self.producer.send_offsets_to_transaction([place], self._consumer.consumer_group_metadata(), TIMEOUT_S)

    def commit(self) -> None:
        self.producer.commit_transaction(TIMEOUT_S)

    def abort(self) -> None:
        self.producer.abort_transaction(TIMEOUT_S)


def fetched(broker: Broker, stable: bool = False) -> list[tuple[int, int]]:
    """Offset and error of both partitions."""
    with GroupTalk(broker.host, broker.port) as wire:
        wire.until_coordinated("g")
        answer = wire.fetch_offsets("g", {TOPIC: [0, 1]}, require_stable=stable)
    return [(row.committed_offset, row.error_code) for topic in answer.topics for row in topic.partitions]


def command(broker: Broker, *arguments: str) -> Any:
    words = [sys.executable, "-m", "odradek.cli.main", *arguments, "-b", broker.bootstrap_servers, "--json"]
    return json.loads(subprocess.run(words, capture_output=True, text=True, timeout=120, check=True).stdout)


def test_offsets_follow_their_transactions(broker: Broker) -> None:
    one = Transactions(broker, "one")
    one.begin(10)
    assert fetched(broker) == [(-1, 0), (-1, 0)]
    assert fetched(broker, stable=True) == [(-1, UNSTABLE), (-1, 0)]
    (row,) = command(broker, "group", "describe", "g")["offsets"]
    (pending,) = row["pending"]
    assert (pending["offset"], pending["overtaken"]) == (10, False)
    assert row["note"] == f"pending in a transaction of producer {pending['producer_id']}"
    explained = command(broker, "group", "explain", "g")
    assert explained["pending"] == [{"topic": TOPIC, "partition": 0} | pending]
    assert any(f"of producer {pending['producer_id']}" in line for line in explained["summary"])
    one.commit()
    assert fetched(broker, stable=True) == [(10, 0), (-1, 0)]
    one.begin(20)
    one.abort()
    assert fetched(broker, stable=True) == [(10, 0), (-1, 0)]
    assert command(broker, "group", "describe", "g")["offsets"][0]["pending"] == []


def test_a_restart_keeps_pending_offsets(broker: Broker) -> None:
    one, two = Transactions(broker, "one"), Transactions(broker, "two")
    one.begin(10)
    two.begin(7, partition=1)
    broker.kill()
    broker.start()
    assert fetched(broker) == [(-1, 0), (-1, 0)]
    assert fetched(broker, stable=True) == [(-1, UNSTABLE), (-1, UNSTABLE)]
    one.commit()
    two.abort()
    assert fetched(broker, stable=True) == [(10, 0), (-1, 0)]
    broker.kill()
    broker.start()
    assert fetched(broker, stable=True) == [(10, 0), (-1, 0)]


def test_a_deleted_offset_does_not_return_with_the_commit(broker: Broker) -> None:
    one = Transactions(broker, "one")
    one.begin(10)
    with GroupTalk(broker.host, broker.port) as wire:
        assert wire.delete_offsets("g", TOPIC, 0).error_code == 0
    assert fetched(broker, stable=True) == [(-1, 0), (-1, 0)]
    one.commit()
    assert fetched(broker, stable=True) == [(-1, 0), (-1, 0)]
