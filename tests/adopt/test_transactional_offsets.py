"""Offsets that a real Kafka's transactional producers committed, after the adoption of its directory."""

from __future__ import annotations

import subprocess
import sys

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.testing import Broker
from tests.adopt.kafka_writes import KAFKA_CONFIG
from tests.clients.kafka_peer import Peer
from tests.committing import commit

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]

TIMEOUT_S = 90
TOPIC, GROUPS = "work", ("committed", "aborted", "open", "open-alone", "overtaken")
NOTHING = -1001


def write(servers: str) -> list[Producer]:
    """A committed offset of each group, and one in a transaction on top of it; the producers whose transactions stay open."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result()
    for group in GROUPS:
        if group != "open-alone":
            commit(servers, group, TOPIC, 0, 3)
    still_open = []
    for group in GROUPS:
        producer = Producer({"bootstrap.servers": servers, "transactional.id": group})
        consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        producer.send_offsets_to_transaction(
            [TopicPartition(TOPIC, 0, 10)], consumer.consumer_group_metadata(), TIMEOUT_S
        )
        consumer.close()
        if group == "committed":
            producer.commit_transaction(TIMEOUT_S)
        elif group == "aborted":
            producer.abort_transaction(TIMEOUT_S)
        else:
            still_open.append(producer)
    commit(servers, "overtaken", TOPIC, 0, 7)
    return still_open


def committed(servers: str, group: str) -> int:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False})
    (found,) = consumer.committed([TopicPartition(TOPIC, 0)], TIMEOUT_S)
    consumer.close()
    assert found.error is None
    return found.offset


@pytest.mark.parametrize("end", ["clean", "kill"])
@pytest.mark.parametrize("version", ["4.3.0", "3.9.1"])
def test_offsets_of_transactions_count_as_their_ends_say(tmp_path, version, end):
    kafka = Peer(tmp_path / "kafka", KAFKA_CONFIG, version)
    with kafka:
        still_open = write(kafka.bootstrap_servers)
        if end == "kill":
            kafka.kill()
    del still_open
    adopted = subprocess.run(
        [sys.executable, "-m", "odradek.cli.main", "adopt", "--yes", str(kafka.data_dir)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert adopted.returncode == 0, adopted
    config = {"log.dirs": kafka.data_dir, "offsets.topic.num.partitions": 3}
    with Broker(config, directory=tmp_path / "ours") as ours:
        assert {group: committed(ours.bootstrap_servers, group) for group in GROUPS} == {
            "committed": 10,
            "aborted": 3,
            "open": 3,
            "open-alone": NOTHING,
            "overtaken": 7,
        }
        assert "that open transactions committed; consumers continue from" in ours.log_file.read_text()
        commit(ours.bootstrap_servers, "open", TOPIC, 0, 4)
        assert committed(ours.bootstrap_servers, "open") == 4
        ours.stop()
        ours.start()
        assert committed(ours.bootstrap_servers, "open") == 4
        assert committed(ours.bootstrap_servers, "open-alone") == NOTHING
