"""An Odradek broker (id 2) in a cluster whose controller is a Kafka 3.9.1 broker (id 1)."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import TopicAlreadyExistsError

from odradek.testing.broker_process import Broker
from tests.cluster import shown
from tests.cluster.peer_processes import Peers, tool
from tests.waiting import until

KAFKA, OURS = 1, 2
RECORDS = 500
OFFLINE = "from OfflinePartition to OnlinePartition"
pytestmark = pytest.mark.xdist_group("guest-of-kafka")


class Cluster:
    """The two brokers, and a client of them."""

    def __init__(self, peers: Peers, ours: Broker, admin: KafkaAdminClient) -> None:
        self.peers = peers
        self.ours = ours
        self.admin = admin
        self.kafka = f"127.0.0.1:{peers.brokers[KAFKA].port}"

    def create(self, name: str, assignment: dict[int, list[int]]) -> None:
        """Create a topic and wait until all its partitions have leaders, according to both brokers."""

        def created() -> bool:
            try:
                self.admin.create_topics([NewTopic(name, replica_assignments=assignment)])
            except TopicAlreadyExistsError:
                return False  # the controller has not finished the deletion of a former topic of this name
            return True

        self.wait_until_ours_answers()  # the admin client asks any broker
        until(created, f"{name} is created")
        for servers in (self.kafka, self.ours.bootstrap_servers):
            until(lambda servers=servers: self.leaders(name, servers) == {p: r[0] for p, r in assignment.items()},
                  lambda servers=servers: f"{servers} shows the leaders of {name}: {self.leaders(name, servers)}")  # fmt: skip

    def wait_until_ours_answers(self) -> None:
        """Wait until this broker knows the brokers of the cluster. Until then it closes connections that ask for them."""
        until(lambda: shown.brokers(self.ours.bootstrap_servers)[1], "the controller sent the brokers of the cluster")

    def leaders(self, name: str, servers: str) -> dict[int, int]:
        """The leader of each partition of a topic, as one broker shows it."""
        return shown.leaders(servers, name)


@contextmanager
def closing_admin(servers: str) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        yield admin
    finally:
        admin.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory: Path = tmp_path_factory.mktemp("guest")
    with Peers(directory) as peers:
        kafka = peers.start_kafka(KAFKA)
        config = {
            "broker.id": OURS,
            "metadata.store": "zookeeper",
            "zookeeper.connect": peers.connect,
            "zookeeper.session.timeout.ms": 6000,
            "offsets.topic.replication.factor": 1,
            "num.network.threads": 2,
        }
        with Broker(config, directory=directory / "odradek") as ours, closing_admin(f"127.0.0.1:{kafka.port}") as admin:
            yield Cluster(peers, ours, admin)


def produce(servers: str, topic: str, count: int = RECORDS, partition: int = 0, first: int = 0) -> None:
    producer = KafkaProducer(bootstrap_servers=servers, acks="all")
    results = [producer.send(topic, f"{n}".encode(), partition=partition) for n in range(first, first + count)]
    producer.flush(60)
    for sent in results:
        sent.get(60)
    producer.close()


def consume(servers: str, topic: str, count: int, partition: int = 0) -> list[int]:
    consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, partition)])
    values: list[int] = []

    def poll() -> bool:
        for batch in consumer.poll(timeout_ms=500).values():
            values.extend(int(record.value) for record in batch)
        return len(values) >= count

    until(poll, lambda: f"{count} records of {topic}: {len(values)} were read")
    consumer.close()
    return values


def test_both_brokers_show_both_brokers(cluster: Cluster) -> None:
    for servers in (cluster.kafka, cluster.ours.bootstrap_servers):
        until(lambda servers=servers: shown.brokers(servers) == (KAFKA, {KAFKA, OURS}), f"{servers} shows both brokers")


def test_it_leads_partitions_that_are_assigned_to_it(cluster: Cluster) -> None:
    cluster.create("led", {0: [OURS], 1: [KAFKA], 2: [OURS]})
    for partition in range(3):
        produce(cluster.kafka, "led", partition=partition)
        for servers in (cluster.kafka, cluster.ours.bootstrap_servers):
            assert consume(servers, "led", RECORDS, partition) == list(range(RECORDS))


def test_kafkas_console_tools_work_through_it(cluster: Cluster) -> None:
    ours = cluster.ours.bootstrap_servers
    tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", ours, "--create", "--topic", "console",
         "--replica-assignment", str(OURS))  # fmt: skip
    until(lambda: cluster.leaders("console", ours) == {0: OURS}, "console has its leader")
    tool("kafka.tools.ConsoleProducer", "--bootstrap-server", ours, "--topic", "console", stdin="a\nb\nc\n")
    read = tool("org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", ours, "--topic", "console",
                "--from-beginning", "--max-messages", "3")  # fmt: skip
    assert read.split() == ["a", "b", "c"]
    described = tool(
        "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", ours, "--describe", "--topic", "console"
    )
    assert re.search(r"Partition: 0\s+Leader: 2\s+Replicas: 2\s+Isr: 2", described)


def test_a_deleted_topic_leaves_nothing(cluster: Cluster) -> None:
    cluster.create("deleted", {0: [OURS], 1: [KAFKA]})
    produce(cluster.kafka, "deleted")
    cluster.admin.delete_topics(["deleted"])
    data = cluster.ours.data_dir
    until(lambda: not (data / "deleted-0").exists(), "the directory of the deleted partition is renamed")
    for servers in (cluster.kafka, cluster.ours.bootstrap_servers):
        until(lambda servers=servers: "deleted" not in shown.topics(servers), f"{servers} does not list the topic")
    cluster.create("deleted", {0: [OURS]})
    assert not consume(cluster.kafka, "deleted", 0)


def test_it_leads_again_after_a_restart(cluster: Cluster) -> None:
    cluster.create("restarted", {0: [OURS]})
    produce(cluster.kafka, "restarted")
    cluster.ours.restart()
    until(lambda: cluster.leaders("restarted", cluster.kafka) == {0: OURS}, "it leads again")
    produce(cluster.kafka, "restarted", first=RECORDS)
    assert consume(cluster.kafka, "restarted", 2 * RECORDS) == list(range(2 * RECORDS))


@pytest.mark.parametrize("kill", ["kill", "kill_group"])
def test_it_leads_again_after_a_kill(cluster: Cluster, kill: str) -> None:
    topic = f"killed-{kill}"
    cluster.create(topic, {0: [OURS]})
    produce(cluster.kafka, topic)
    getattr(cluster.ours, kill)()
    cluster.ours.start()
    until(lambda: cluster.leaders(topic, cluster.kafka) == {0: OURS}, "it leads again")
    produce(cluster.kafka, topic, first=RECORDS)
    assert consume(cluster.kafka, topic, 2 * RECORDS) == list(range(2 * RECORDS))


def test_kafka_logged_no_error_about_it(cluster: Cluster) -> None:
    # Partitions of one replica have no leader while their broker is away.
    errors = [
        line for line in cluster.peers.brokers[KAFKA].log().splitlines() if " ERROR " in line and OFFLINE not in line
    ]
    assert errors == []
