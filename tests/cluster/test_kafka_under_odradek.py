"""A Kafka 3.9.1 broker (id 9) in a cluster whose controller is an Odradek broker (id 1), and Kafka's tools for it."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kafka.admin import KafkaAdminClient, NewTopic

from odradek.testing.broker_process import Broker
from tests.cluster.peer_processes import JavaProcess, Peers, tool
from tests.cluster.test_odradek_cluster import RECORDS, Cluster, consume, produce
from tests.waiting import until

KAFKA = 9
ALL = {1, 2, KAFKA}
ASSIGNMENT = {0: [1, KAFKA, 2], 1: [KAFKA, 1, 2], 2: [2, KAFKA, 1]}
pytestmark = pytest.mark.xdist_group("kafka-under-odradek")


class Mixed:
    """The brokers, and a client of the Odradek brokers."""

    def __init__(self, cluster: Cluster, kafka: JavaProcess, admin: KafkaAdminClient) -> None:
        self.cluster = cluster
        self.kafka = kafka
        self.admin = admin
        self.of_kafka = f"127.0.0.1:{kafka.port}"
        self.servers = cluster.servers()[0]

    def create(self, name: str) -> None:
        """Create a topic of three partitions, one led by each broker."""
        settings = {"min.insync.replicas": "2"}
        self.admin.create_topics([NewTopic(name, replica_assignments=ASSIGNMENT, topic_configs=settings)])
        self.wait_for_leaders(name, {0: 1, 1: KAFKA, 2: 2})

    def wait_for_leaders(self, name: str, expected: dict[int, int]) -> None:
        """Wait until all brokers show these leaders."""
        self.cluster.wait_for_leaders(name, expected)
        until(lambda: self.rows(self.of_kafka, name, "leader_id") == expected, "Kafka shows the leaders")

    def wait_until_in_sync(self, name: str, expected: dict[int, set[int]]) -> None:
        """Wait until the partitions have these in-sync replicas."""

        def in_sync() -> dict[int, set[int]]:
            return {number: set(ids) for number, ids in self.rows(self.servers, name, "isr_nodes").items()}

        until(lambda: in_sync() == expected, lambda: f"{expected} are in sync: {in_sync()}")

    def rows(self, servers: str, name: str, column: str) -> dict:
        with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
            return {row["partition_index"]: row[column] for row in admin.describe_topics([name])[0]["partitions"]}

    def topics(self, servers: str) -> list[str]:
        with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
            return list(admin.list_topics())


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    directory: Path = tmp_path_factory.mktemp("mixed")
    with Peers(directory) as peers:
        settings = {
            "metadata.store": "zookeeper",
            "zookeeper.connect": peers.connect,
            "zookeeper.session.timeout.ms": 6000,
            "num.network.threads": 1,
        }
        with (
            Broker(settings | {"broker.id": 1}, directory=directory / "odradek-1") as first,
            Broker(settings | {"broker.id": 2}, directory=directory / "odradek-2") as second,
        ):
            cluster = Cluster({1: first, 2: second})
            assert cluster.wait_for_brokers({1, 2}) == 1
            kafka = peers.start_kafka(KAFKA)
            until(lambda: cluster.describe(1)[1] == ALL, "the Kafka broker is registered")
            with closing(KafkaAdminClient(bootstrap_servers=cluster.servers())) as admin:
                yield Mixed(cluster, kafka, admin)


def test_kafka_leads_and_follows(mixed: Mixed) -> None:
    mixed.create("both")
    for partition in ASSIGNMENT:
        produce([mixed.of_kafka], "both", partition)
        assert consume([mixed.servers], "both", partition, RECORDS) == list(range(RECORDS))
    mixed.wait_until_in_sync("both", dict.fromkeys(ASSIGNMENT, frozenset(ALL)))


def test_kafka_stops_in_order_and_returns(mixed: Mixed) -> None:
    mixed.create("returns")
    mixed.kafka.stop()
    mixed.cluster.wait_for_leaders("returns", {0: 1, 1: 1, 2: 2})
    produce([mixed.servers], "returns", 1)
    mixed.kafka.start(mixed.kafka.directory / "server.properties")
    mixed.wait_until_in_sync("returns", dict.fromkeys(ASSIGNMENT, frozenset(ALL)))
    tool("org.apache.kafka.tools.LeaderElectionCommand", "--bootstrap-server", mixed.servers, "--election-type", "preferred",
         "--all-topic-partitions")  # fmt: skip
    mixed.wait_for_leaders("returns", {0: 1, 1: KAFKA, 2: 2})
    assert consume([mixed.of_kafka], "returns", 1, RECORDS) == list(range(RECORDS))


def test_replicas_move_and_the_topic_is_deleted(mixed: Mixed, tmp_path: Path) -> None:
    mixed.create("moving")
    produce([mixed.servers], "moving", 0)
    file = tmp_path / "plan.json"
    target = {0: [KAFKA, 2], 1: [1]}
    entries = [{"topic": "moving", "partition": number, "replicas": replicas} for number, replicas in target.items()]
    file.write_text(json.dumps({"version": 1, "partitions": entries}))
    command = ["org.apache.kafka.tools.reassign.ReassignPartitionsCommand", "--bootstrap-server", mixed.servers]
    command += ["--reassignment-json-file", str(file)]
    assert "Successfully started" in tool(*command, "--execute")
    mixed.wait_until_in_sync("moving", {0: {KAFKA, 2}, 1: {1}, 2: ALL})
    until(lambda: "still in progress" not in tool(*command, "--verify"), "the reassignment is complete")
    assert consume([mixed.of_kafka], "moving", 0, RECORDS) == list(range(RECORDS))
    mixed.admin.delete_topics(["moving"])
    for servers in (mixed.servers, mixed.of_kafka):
        until(lambda servers=servers: "moving" not in mixed.topics(servers), "the topic is deleted")


def test_settings_reach_every_broker(mixed: Mixed) -> None:
    mixed.create("settings")
    of_topic = ["--entity-type", "topics", "--entity-name", "settings"]
    tool(
        "kafka.admin.ConfigCommand",
        "--bootstrap-server",
        mixed.servers,
        "--alter",
        *of_topic,
        "--add-config",
        "retention.ms=123456",
    )
    described = tool("kafka.admin.ConfigCommand", "--bootstrap-server", mixed.of_kafka, "--describe", *of_topic)
    assert "retention.ms=123456" in described


def test_kafka_logged_no_error(mixed: Mixed) -> None:
    assert [line for line in mixed.kafka.log().splitlines() if " ERROR " in line] == []
