"""Offsets that a real Kafka's transactional producers committed, after the adoption of its directory."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.protocol.errors import ErrorCode
from odradek.testing import Broker
from tests.adopt.kafka_writes import KAFKA_CONFIG, LONGEST_TRANSACTION_MS
from tests.api.group_talk import GroupTalk
from tests.clients.kafka_peer import Peer
from tests.committing import commit
from tests.markers import wait_for_markers

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]

TIMEOUT_S = 90
TOPIC, GROUPS = "work", ("committed", "aborted", "open", "open-alone", "overtaken")
OPEN = ("open", "open-alone", "overtaken")
NOTHING = -1
UNSTABLE = int(ErrorCode.UNSTABLE_OFFSET_COMMIT)


def write(servers: str) -> list[Producer]:
    """A committed offset of each group, and one in a transaction on top of it; the producers whose transactions stay open."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result()
    for group in GROUPS:
        if group != "open-alone":
            commit(servers, group, TOPIC, 0, 3)
    still_open = []
    for group in GROUPS:
        producer = Producer(
            {
                "bootstrap.servers": servers,
                "transactional.id": group,
                "transaction.timeout.ms": LONGEST_TRANSACTION_MS,
            }
        )
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
    wait_for_markers(servers, "__consumer_offsets", left_open=len(still_open))
    commit(servers, "overtaken", TOPIC, 0, 7)
    return still_open


def committed(wire: GroupTalk, group: str, stable: bool = False) -> tuple[int, int]:
    """The committed offset of a group, and the error."""
    answer = wire.fetch_offsets(group, {TOPIC: [0]}, require_stable=stable)
    assert answer.error_code == 0
    ((row,),) = (topic.partitions for topic in answer.topics)
    return row.committed_offset, row.error_code


def note(servers: str, group: str) -> str:
    """What `odradek group describe` notes about the partition."""
    command = [sys.executable, "-m", "odradek.cli.main", "group", "describe", "-b", servers, "--json", group]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    (row,) = json.loads(done.stdout)["offsets"]
    return str(row["note"])


@pytest.mark.parametrize(
    ("version", "end"),
    [
        ("4.3.0", "kill"),
        ("3.9.1", "clean"),
        pytest.param("4.3.0", "clean", marks=pytest.mark.nightly),
        pytest.param("3.9.1", "kill", marks=pytest.mark.nightly),
    ],
)
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
    last = {"committed": 10, "aborted": 3, "open": 3, "open-alone": NOTHING, "overtaken": 7}
    with Broker(config, directory=tmp_path / "ours") as ours:
        for _ in range(2):
            with GroupTalk(ours.host, ours.port) as wire:
                wire.until_coordinated("open")
                assert {group: committed(wire, group) for group in GROUPS} == {
                    group: (offset, 0) for group, offset in last.items()
                }
                assert {group: committed(wire, group, stable=True) for group in GROUPS} == {
                    group: (-1, UNSTABLE) if group in OPEN else (last[group], 0) for group in GROUPS
                }
            assert "wait for the end of their transactions (producer id" in ours.log_file.read_text()
            assert note(ours.bootstrap_servers, "open").startswith("pending in a transaction of producer ")
            commit(ours.bootstrap_servers, "open", TOPIC, 0, 4)
            last["open"] = 4
            ours.stop()
            ours.start()
        for group in OPEN:  # a new producer with the transactional id ends the open transaction
            producer = Producer({"bootstrap.servers": ours.bootstrap_servers, "transactional.id": group})
            producer.init_transactions(TIMEOUT_S)
        with GroupTalk(ours.host, ours.port) as wire:
            wire.until_coordinated("open")
            assert {group: committed(wire, group, stable=True) for group in GROUPS} == {
                group: (offset, 0) for group, offset in last.items()
            }
