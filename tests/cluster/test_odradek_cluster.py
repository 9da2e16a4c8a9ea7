"""Odradek brokers that form a cluster of their own, with a real ZooKeeper."""

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewPartitions, NewTopic

from odradek.testing.broker_process import Broker
from tests.cluster import our_brokers, shown
from tests.cluster.peer_processes import Peers
from tests.waiting import until

IDS = (1, 2, 3)
RECORDS = 200


class Cluster:
    """The brokers by id. Every method asks the brokers that it is given, or all."""

    def __init__(self, brokers: dict[int, Broker]) -> None:
        self.brokers = brokers

    def servers(self, *ids: int) -> list[str]:
        """The addresses of running brokers."""
        return [broker.bootstrap_servers for number, broker in self.brokers.items() if not ids or number in ids]

    def describe(self, broker_id: int) -> tuple[int, set[int]]:
        """(controller, live brokers), as one broker shows them."""
        return shown.brokers(self.brokers[broker_id].bootstrap_servers)

    def leaders(self, broker_id: int, topic: str) -> dict[int, int]:
        """The leaders of a topic's partitions, as one broker shows them."""
        return shown.leaders(self.brokers[broker_id].bootstrap_servers, topic)

    def wait_for_brokers(self, live: set[int]) -> int:
        """Wait until all of them show the same controller and these live brokers. Returns the controller."""

        def controllers() -> set[int]:
            """The controllers that the brokers show; -1 for a broker that shows other live brokers."""
            found = [self.describe(broker_id) for broker_id in live]
            return {controller if ids == live else -1 for controller, ids in found}

        until(
            lambda: len(controllers()) == 1 and controllers() <= live,
            lambda: f"{live}: {list(map(self.describe, live))}",
        )
        return self.describe(min(live))[0]

    def in_sync(self, topic: str) -> dict[int, set[int]]:
        """The in-sync replicas of a topic's partitions, as the last broker shows them."""
        return shown.in_sync(self.brokers[max(self.brokers)].bootstrap_servers, topic)

    def logs(self, topic: str, partition: int) -> list[bytes]:
        """The first segment of a partition at every broker."""
        name = f"{topic}-{partition}/{0:020}.log"
        return [(broker.data_dir / name).read_bytes() for broker in self.brokers.values()]

    def wait_for_leaders(self, topic: str, expected: dict[int, int], *ids: int) -> None:
        """Wait until the brokers show these leaders."""
        for broker_id in ids or self.brokers:
            until(
                lambda broker_id=broker_id: self.leaders(broker_id, topic) == expected,
                lambda broker_id=broker_id: f"{topic} at broker {broker_id}: {self.leaders(broker_id, topic)}",
            )


def produce(servers: list[str], topic: str, partition: int, first: int = 0) -> None:
    with closing(KafkaProducer(bootstrap_servers=servers, acks="all")) as producer:
        results = [producer.send(topic, f"{n}".encode(), partition=partition) for n in range(first, first + RECORDS)]
        for sent in results:
            sent.get(60)


def consume(servers: list[str], topic: str, partition: int, count: int) -> list[int]:
    with closing(KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")) as consumer:
        consumer.assign([TopicPartition(topic, partition)])
        values: list[int] = []

        def poll() -> bool:
            for batch in consumer.poll(timeout_ms=500).values():
                values.extend(int(record.value) for record in batch)
            return len(values) >= count

        until(poll, lambda: f"{count} records of {topic}: {len(values)} were read")
        return values


@contextmanager
def start_brokers(directory: Path, connect: str, settings: Mapping[str, object] | None = None) -> Iterator[Cluster]:
    """Start a cluster. :param connect: zookeeper.connect. :param settings: further settings of each broker."""
    config = {
        "metadata.store": "zookeeper",
        "zookeeper.connect": connect,
        "zookeeper.session.timeout.ms": 3000,
        "controlled.shutdown.retry.backoff.ms": 100,  # the last broker has nobody to lead its partitions
        "replica.lag.time.max.ms": 5000,
        "offsets.topic.num.partitions": 3,
        "offsets.topic.replication.factor": 1,
    }
    with our_brokers.started(directory, IDS, config | dict(settings or {})) as brokers:
        cluster = Cluster(brokers)
        cluster.wait_for_brokers(set(IDS))
        yield cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Peers(tmp_path) as peers, start_brokers(tmp_path, peers.connect) as cluster:
        yield cluster


def test_topics_of_one_replica_are_spread_and_usable_through_every_broker(cluster: Cluster) -> None:
    assignment = {0: [1], 1: [2], 2: [3]}
    with closing(KafkaAdminClient(bootstrap_servers=cluster.servers())) as admin:
        admin.create_topics([NewTopic("spread", replica_assignments=assignment)])
        cluster.wait_for_leaders("spread", {0: 1, 1: 2, 2: 3})
        for partition, broker_id in ((0, 2), (1, 3), (2, 1)):
            produce(cluster.servers(broker_id), "spread", partition)
            assert consume(cluster.servers(broker_id), "spread", partition, RECORDS) == list(range(RECORDS))
        admin.create_partitions({"spread": NewPartitions(total_count=4, new_assignments=[[2]])})
        cluster.wait_for_leaders("spread", {0: 1, 1: 2, 2: 3, 3: 2})
        admin.delete_topics(["spread"])
        for broker_id, broker in cluster.brokers.items():
            until(lambda broker=broker: not list(broker.data_dir.glob("spread-[0-9]")), "its directories are renamed")
            address = broker.bootstrap_servers
            until(lambda address=address: "spread" not in shown.topics(address), f"broker {broker_id} does not list it")


def test_another_broker_becomes_the_controller(cluster: Cluster) -> None:
    controller = cluster.describe(1)[0]
    others = set(IDS) - {controller}
    cluster.brokers[controller].kill_group()
    successor = cluster.wait_for_brokers(others)
    assert successor in others
    with closing(KafkaAdminClient(bootstrap_servers=cluster.servers(*others))) as admin:
        first, second = sorted(others)
        admin.create_topics([NewTopic("after", replica_assignments={0: [first], 1: [second]})])
        cluster.wait_for_leaders("after", {0: first, 1: second}, *others)
        produce(cluster.servers(first), "after", 1)
    cluster.brokers[controller].start()
    assert cluster.wait_for_brokers(set(IDS)) == successor
    assert consume(cluster.servers(controller), "after", 1, RECORDS) == list(range(RECORDS))


def test_acknowledged_records_survive_a_kill_of_their_leader(cluster: Cluster) -> None:
    assignment = {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}
    with closing(KafkaAdminClient(bootstrap_servers=cluster.servers())) as admin:
        admin.create_topics(
            [NewTopic("kept", replica_assignments=assignment, topic_configs={"min.insync.replicas": "2"})]
        )
    cluster.wait_for_leaders("kept", {0: 1, 1: 2, 2: 3})
    for partition in assignment:
        produce(cluster.servers(), "kept", partition)
    cluster.brokers[1].kill_group()
    for partition in assignment:
        produce(cluster.servers(2, 3), "kept", partition, first=RECORDS)
        assert consume(cluster.servers(2, 3), "kept", partition, 2 * RECORDS) == list(range(2 * RECORDS))
    cluster.brokers[1].start()
    cluster.wait_for_brokers(set(IDS))
    until(
        lambda: cluster.in_sync("kept") == {partition: set(IDS) for partition in assignment},
        lambda: f"all in sync: {cluster.in_sync('kept')}",
    )
    for partition in assignment:
        until(
            lambda partition=partition: len(set(cluster.logs("kept", partition))) == 1, "all logs have the same bytes"
        )


@pytest.mark.parametrize("kind", ["coordinator", "replicator", "worker", "cleaner"])
def test_the_death_of_one_process_changes_no_leader(cluster: Cluster, kind: str) -> None:
    assignment = {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}
    with closing(KafkaAdminClient(bootstrap_servers=cluster.servers())) as admin:
        admin.create_topics(
            [NewTopic("steady", replica_assignments=assignment, topic_configs={"min.insync.replicas": "3"})]
        )
    cluster.wait_for_leaders("steady", {0: 1, 1: 2, 2: 3})
    (process,) = [process for process in cluster.brokers[1].processes() if process["kind"] == kind]
    os.kill(process["pid"], signal.SIGKILL)
    for partition in assignment:
        produce(cluster.servers(), "steady", partition)
    epochs = [path.read_text().split() for path in cluster.brokers[1].data_dir.glob("steady-?/leader-epoch-checkpoint")]
    assert epochs == [["0", "1", "0", "0"]] * 3, "no leader epoch has begun"
