"""A Kafka 3.9.1 broker (id 1) and an Odradek broker (id 2) replicate from each other over SASL_SSL with SCRAM."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from odradek.testing.broker_process import Broker
from odradek.testing.certificates import make_certificates
from tests.cluster import shown
from tests.cluster.peer_processes import Peers
from tests.cluster.secure import LISTENER, add_user, config_of, jaas, settings, whole_log
from tests.cluster.test_guest_of_kafka import OFFLINE, Cluster, closing_admin, consume, produce
from tests.cluster.test_secure_cluster import metric
from tests.waiting import until

KAFKA, OURS = 1, 2
RECORDS = 500
SCRAM = "SCRAM-SHA-512"
LIFETIME_MS = 3000
RENEWED = "kafka_server_socket_server_metrics_successful_reauthentication_total"
pytestmark = pytest.mark.xdist_group("secure-guest-of-kafka")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory: Path = tmp_path_factory.mktemp("secure-guest")
    stores = directory / "stores"
    make_certificates(stores)
    with Peers(directory) as peers:
        add_user(peers.connect)
        kafka = peers.start_kafka(
            KAFKA,
            {
                "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{LISTENER}:SASL_SSL",
                "inter.broker.listener.name": LISTENER,
                "sasl.enabled.mechanisms": SCRAM,
                "sasl.mechanism.inter.broker.protocol": SCRAM,
                "listener.name.brokers.scram-sha-512.sasl.jaas.config": jaas(SCRAM),
                "connections.max.reauth.ms": LIFETIME_MS,
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": stores / "broker.pem",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": stores / "ca.pem",
            },
            LISTENER,
        )
        further = {"connections.max.reauth.ms": LIFETIME_MS, "metrics.listener": "127.0.0.1:0"}
        config = config_of(OURS, peers.connect, settings("SASL_SSL", stores) | further)
        with Broker(config, directory=directory / "odradek") as ours, closing_admin(f"127.0.0.1:{kafka.port}") as admin:
            yield Cluster(peers, ours, admin)


def until_in_sync(cluster: Cluster, topic: str, expected: dict[int, int]) -> None:
    wanted = {number: (leader, frozenset({KAFKA, OURS})) for number, leader in expected.items()}
    for servers in (cluster.kafka, cluster.ours.bootstrap_servers):
        until(
            lambda servers=servers: shown.partitions(servers, topic) == wanted,
            lambda servers=servers: f"{shown.partitions(servers, topic)}: {cluster.ours.log_tail()}",
        )


def replicate_both_ways(cluster: Cluster, enough: Callable[[], bool]) -> None:
    """Produce to the partitions of "t", each of which another broker leads, until it is enough; nothing is lost, and no broker
    logs an error."""
    rounds = 0
    while not enough():
        for partition in (0, 1):
            produce(cluster.kafka, "t", RECORDS, partition, first=rounds * RECORDS)
        rounds += 1
    for partition in (0, 1):
        count = rounds * RECORDS
        assert consume(cluster.kafka, "t", count, partition) == list(range(count))
    until_in_sync(cluster, "t", {0: KAFKA, 1: OURS})
    for log in (whole_log(cluster.ours), cluster.peers.brokers[KAFKA].log()):
        assert [line for line in log.splitlines() if " ERROR " in line and OFFLINE not in line] == []


def test_they_replicate_in_both_directions_longer_than_a_session(cluster: Cluster) -> None:
    cluster.create("t", {0: [KAFKA, OURS], 1: [OURS, KAFKA]})
    until_in_sync(cluster, "t", {0: KAFKA, 1: OURS})
    replicate_both_ways(cluster, lambda: metric(cluster.ours, RENEWED) >= 2)
