"""An Odradek broker (id 2) leads partitions that a Kafka 3.9.1 broker (id 3) follows; another Kafka broker (id 1) is the
controller."""

import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import NotEnoughReplicasError

from odradek.testing.broker_process import Broker
from tests.cluster import shown
from tests.cluster.peer_processes import Peers
from tests.cluster.test_guest_of_kafka import consume, produce
from tests.waiting import until

CONTROLLER, OURS, FOLLOWER = 1, 2, 3
ALL = {CONTROLLER, OURS, FOLLOWER}
RECORDS = 500
LAG_MS = 3000
pytestmark = pytest.mark.xdist_group("kafka-follows")


class Cluster:
    """The three brokers, and a client of the controller."""

    def __init__(self, peers: Peers, ours: Broker, admin: KafkaAdminClient) -> None:
        self.peers = peers
        self.ours = ours
        self.admin = admin
        self.servers = f"127.0.0.1:{peers.brokers[CONTROLLER].port}"

    def create(self, name: str, **settings: str) -> None:
        """Create a topic of one partition that Odradek leads and Kafka follows; wait until both are in sync."""
        topic = NewTopic(name, replica_assignments={0: [OURS, FOLLOWER]}, topic_configs=settings)
        self.admin.create_topics([topic])
        self.wait(name, OURS, {OURS, FOLLOWER})

    def wait(self, name: str, leader: int, in_sync: set[int]) -> None:
        """Wait until the controller, and the Odradek broker if it runs, show this state of partition 0. Odradek shows it after
        it has executed the controller's requests."""

        for servers in (self.servers, *((self.ours.bootstrap_servers,) if self.ours.running else ())):
            until(
                lambda servers=servers: shown.partitions(servers, name) == {0: (leader, in_sync)},
                lambda servers=servers: f"{name} has {leader, in_sync}: {shown.partitions(servers, name)}",
            )

    def logs_of(self, name: str) -> tuple[bytes, bytes]:
        """The first segment of the partition of both brokers."""
        directories = (self.ours.data_dir, self.peers.brokers[FOLLOWER].directory / "data")
        ours, kafkas = ((directory / f"{name}-0" / f"{0:020}.log").read_bytes() for directory in directories)
        return ours, kafkas


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory: Path = tmp_path_factory.mktemp("leader")
    with Peers(directory) as peers:
        controller = peers.start_kafka(CONTROLLER)
        peers.start_kafka(FOLLOWER)
        config = {
            "broker.id": OURS,
            "metadata.store": "zookeeper",
            "zookeeper.connect": peers.connect,
            "zookeeper.session.timeout.ms": 6000,
            "replica.lag.time.max.ms": LAG_MS,
            "num.network.threads": 2,
        }
        with Broker(config, directory=directory / "odradek") as ours:
            # The client asks any broker, and one that does not know the cluster yet closes the connection.
            until(lambda: shown.brokers(ours.bootstrap_servers)[1] == ALL, "the controller sent the brokers")
            with closing(KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{controller.port}")) as admin:
                yield Cluster(peers, ours, admin)


def test_records_with_acks_all_are_in_both_logs(cluster: Cluster) -> None:
    cluster.create("replicated", **{"min.insync.replicas": "2"})
    produce(cluster.servers, "replicated")
    assert consume(cluster.servers, "replicated", RECORDS) == list(range(RECORDS))
    until(lambda: len(set(cluster.logs_of("replicated"))) == 1, "both logs have the same bytes")
    assert cluster.logs_of("replicated")[0]


def test_a_follower_that_lags_leaves_the_in_sync_replicas_and_returns(cluster: Cluster) -> None:
    cluster.create("lagging", **{"min.insync.replicas": "2"})
    produce(cluster.servers, "lagging")
    follower = cluster.peers.brokers[FOLLOWER]
    follower.send_signal(signal.SIGSTOP)
    try:
        cluster.wait("lagging", OURS, {OURS})
        with closing(KafkaProducer(bootstrap_servers=cluster.servers, acks="all", retries=0)) as producer:
            sent = producer.send("lagging", b"refused", partition=0)
            with pytest.raises(NotEnoughReplicasError):
                sent.get(60)
    finally:
        follower.send_signal(signal.SIGCONT)
    cluster.wait("lagging", OURS, {OURS, FOLLOWER})
    produce(cluster.servers, "lagging", first=RECORDS)
    assert consume(cluster.servers, "lagging", 2 * RECORDS) == list(range(2 * RECORDS))


def test_a_controlled_shutdown_moves_the_leadership(cluster: Cluster) -> None:
    cluster.create("moved")
    produce(cluster.servers, "moved")
    cluster.ours.stop()
    cluster.wait("moved", FOLLOWER, {FOLLOWER})
    assert "the leaderships of this broker were moved to other brokers" in cluster.ours.log_tail()
    produce(cluster.servers, "moved", first=RECORDS)
    assert consume(cluster.servers, "moved", 2 * RECORDS) == list(range(2 * RECORDS))


def test_kafka_logged_no_error_about_it(cluster: Cluster) -> None:
    """Except that the controller could not send to a broker: these tests stop both, and a request may be on its way."""
    for broker in cluster.peers.brokers.values():
        errors = [line for line in broker.log().splitlines() if "ERROR" in line]
        assert [line for line in errors if "fails to send a request to broker" not in line] == []
