"""All brokers of a cluster lose power at once: what docs/operate/durability.md promises holds with three replicas, too."""

import os
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.protocol.errors import ErrorCode
from odradek.testing.broker_process import Broker
from tests.api.group_talk import GroupTalk
from tests.cluster import shown
from tests.faults.checker import RecordId, decode_id, encode_id, faults, read_partitions
from tests.faults.lossy_disk import LossyDisk, cut_power_together, missing
from tests.waiting import until
from tests.zookeeper import ZookeeperServer

IDS = (1, 2, 3)
PARTITIONS = 3
TOPIC, GROUP, PRODUCER = "synced", "group", "p"
RECORDS = 3000
CONFIG = {
    "num.network.threads": 1,
    "zookeeper.session.timeout.ms": 10_000,
    "controlled.shutdown.enable": "false",
    "auto.create.topics.enable": "false",
    "default.replication.factor": 3,
    "offsets.topic.replication.factor": 3,
    "offsets.topic.num.partitions": 1,
    "min.insync.replicas": 2,
    "log.flush.interval.messages": 1,
    "log.flush.scheduler.interval.ms": 3_600_000,  # the cleaner hides nothing that nobody synced
}
pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(missing()), reason=f"NO LOSS OF POWER IS TESTED: {missing()}"),
]


class Cluster:
    """Three brokers, each with its logs on a disk of its own."""

    def __init__(self, brokers: dict[int, Broker], disks: dict[int, LossyDisk]) -> None:
        self.brokers, self.disks = brokers, disks

    @property
    def servers(self) -> str:
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    def in_sync(self, topic: str, partitions: int) -> bool:
        seen = [shown.partitions(broker.bootstrap_servers, topic) for broker in self.brokers.values()]
        return all(
            len(rows) == partitions and all(row.leader > 0 and row.in_sync == set(IDS) for row in rows.values())
            for rows in seen
        )

    def lose_power(self) -> None:
        cut_power_together(self.brokers.values(), self.disks.values())

    def start(self, rng: random.Random) -> None:
        """Start the brokers in any order: the first may lead before the others are there."""
        for disk in self.disks.values():
            disk.restore_power()
        for number in rng.sample(IDS, len(IDS)):
            self.brokers[number].start()
        until(lambda: self.in_sync(TOPIC, PARTITIONS), "all replicas are in sync")


@contextmanager
def running_cluster(tmp_path: Path, settings: dict[str, object] | None = None) -> Iterator[Cluster]:
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZookeeperServer())
        brokers, disks = {}, {}
        for number in IDS:
            directory = tmp_path / f"{number}"
            directory.mkdir()
            disks[number] = stack.enter_context(LossyDisk(directory, 128))
        for number in IDS:
            own = {"broker.id": number, "zookeeper.connect": zookeeper.hosts, "log.dirs": disks[number].path / "data"}
            brokers[number] = stack.enter_context(
                Broker(CONFIG | own | (settings or {}), directory=tmp_path / f"broker-{number}")
            )
        yield Cluster(brokers, disks)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running_cluster(tmp_path) as made:
        yield made


def committed(servers: str) -> int:
    """The offset that the group has committed."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": GROUP, "log_level": 0})
    try:
        (place,) = consumer.committed([TopicPartition(TOPIC, 0)], 60)
        return int(place.offset)
    finally:
        consumer.close()


def test_what_was_acknowledged_or_read_survives_the_loss_of_power_of_all_brokers(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.servers, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)], request_timeout=60)[TOPIC].result()
    until(lambda: cluster.in_sync(TOPIC, PARTITIONS), "all replicas are in sync")
    acknowledged: dict[RecordId, tuple[int, int]] = {}
    read: dict[int, dict[int, RecordId]] = defaultdict(dict)
    commits = [-1]

    def done(error: object, message: Message) -> None:
        if error is None:
            acknowledged[decode_id(message.key())] = message.partition(), message.offset()

    producer = Producer(
        {
            "bootstrap.servers": cluster.servers,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 1,
            "log_level": 0,
        }
    )
    consumer = Consumer(
        {"bootstrap.servers": cluster.servers, "group.id": GROUP, "enable.auto.commit": False, "log_level": 0,
         "auto.offset.reset": "earliest", "fetch.wait.max.ms": 10}
    )  # fmt: skip
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    number = 0
    deadline = time.monotonic() + 120
    while len(acknowledged) < RECORDS and time.monotonic() < deadline:
        number += 1
        key = encode_id((PRODUCER, number))
        producer.produce(TOPIC, os.urandom(200), key, partition=number % PARTITIONS, on_delivery=done)
        producer.poll(0.001)
        for message in consumer.consume(100, 0):
            assert message.error() is None, message.error()
            read[message.partition()][message.offset()] = decode_id(message.key())
        if number % 500 == 0 and read[0]:
            position = max(read[0]) + 1
            consumer.commit(offsets=[TopicPartition(TOPIC, 0, position)], asynchronous=False)
            commits.append(position)
    assert len(acknowledged) >= RECORDS, "the cluster acknowledges records"
    assert len(commits) > 1
    cluster.lose_power()
    producer.poll(0)  # responses that were in the socket
    producer.purge()
    consumer.close()
    cluster.start(random.Random(number))
    found = read_partitions(cluster.servers, TOPIC, PARTITIONS)
    assert faults(found, acknowledged, {PRODUCER}) == []
    for partition, records in read.items():
        there = dict(found[partition][1])
        lost = [offset for offset, record in records.items() if there.get(offset) != record]
        assert not lost, f"{len(lost)} of {len(records)} records of partition {partition} that were read are lost"
    assert committed(cluster.servers) == commits[-1]


def coordinator(cluster: Cluster, group: str) -> GroupTalk:
    """A connection to the broker that serves the group; the caller closes it."""
    found: list[GroupTalk] = []

    def served() -> bool:
        for broker in cluster.brokers.values():
            talk = GroupTalk(broker.host, broker.port)
            if talk.fetch_offsets(group, None).error_code == ErrorCode.NONE:
                found.append(talk)
                return True
            talk.socket.close()
        return False

    until(served, f"a broker serves the group {group}")
    return found[0]


def test_members_whose_records_were_lost_join_again(tmp_path: Path) -> None:
    settings = {
        "log.flush.interval.messages": 1 << 62,
        "group.coordinator.rebalance.protocols": "classic,consumer",
        "group.initial.rebalance.delay.ms": 0,
    }
    with running_cluster(tmp_path, settings) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.servers, "log_level": 0})
        for name in (TOPIC, "__consumer_offsets"):
            config = {"cleanup.policy": "compact"} if name != TOPIC else {}
            count = PARTITIONS if name == TOPIC else 1
            admin.create_topics([NewTopic(name, count, 3, config=config)], request_timeout=60)[name].result()
        until(lambda: cluster.in_sync(TOPIC, PARTITIONS), "all replicas are in sync")
        until(lambda: cluster.in_sync("__consumer_offsets", 1), "all replicas are in sync")
        instance = {"group_instance_id": "static"}
        with coordinator(cluster, "classic") as talk:
            member, generation = talk.joined("classic", **instance)
            epoch = talk.beat("new", "m", 0).member_epoch
            answer = talk.commit(
                "classic", {(TOPIC, 0): 7}, generation_id_or_member_epoch=generation, member_id=member, version=9
            )
            assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        cluster.lose_power()
        cluster.start(random.Random(1))
        with coordinator(cluster, "classic") as talk:
            lost = talk.heartbeat("classic", member, generation, **instance).error_code
            assert lost == talk.beat("new", "m", epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID
            talk.joined("classic", **instance)
            assert talk.beat("new", "m", 0).error_code == ErrorCode.NONE
