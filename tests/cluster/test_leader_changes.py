"""Leaders change between an Odradek broker (id 2) and a Kafka 3.9.1 broker (id 3); another Kafka broker is the controller."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaProducer

from odradek.testing.broker_process import Broker
from tests.cluster import shown
from tests.cluster.peer_processes import JavaProcess, Peers
from tests.cluster.test_follower_of_kafka import Load, segments
from tests.cluster.test_guest_of_kafka import Cluster, closing_admin, consume, produce
from tests.waiting import until

CONTROLLER, OURS, THEIRS = 1, 2, 3
SESSION_MS = 4000
RECORDS = 300
pytestmark = pytest.mark.xdist_group("leader-changes")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory: Path = tmp_path_factory.mktemp("changes")
    session = {"zookeeper.session.timeout.ms": SESSION_MS, "replica.fetch.backoff.ms": 100}
    with Peers(directory) as peers:
        kafka = peers.start_kafka(CONTROLLER, session)
        peers.start_kafka(THEIRS, session)
        config = session | {
            "broker.id": OURS,
            "metadata.store": "zookeeper",
            "zookeeper.connect": peers.connect,
            "num.network.threads": 2,
        }
        with Broker(config, directory=directory / "odradek") as ours, closing_admin(f"127.0.0.1:{kafka.port}") as admin:
            peers.brokers = {CONTROLLER: kafka, THEIRS: peers.brokers[THEIRS]}
            made = Cluster(peers, ours, admin)
            yield made


def theirs(cluster: Cluster) -> JavaProcess:
    return cluster.peers.brokers[THEIRS]


def same_logs(cluster: Cluster, topic: str) -> bool:
    their_log = b"".join(segments(theirs(cluster).directory / "data" / f"{topic}-0").values())
    return bool(their_log) and their_log == b"".join(segments(cluster.ours.data_dir / f"{topic}-0").values())


def leader_of(cluster: Cluster, topic: str) -> int:
    """The leader of partition 0, as the controller returns it: the library would ask any broker, also one that is stopped."""
    return shown.leaders(f"127.0.0.1:{cluster.peers.brokers[CONTROLLER].port}", topic).get(0, -1)


def until_same(cluster: Cluster, topic: str) -> None:
    until(
        lambda: same_logs(cluster, topic),
        lambda: f"the logs of {topic} are the same, leader {leader_of(cluster, topic)}: {cluster.ours.log_tail()}",
    )


def test_kafka_follows_it(cluster: Cluster) -> None:
    cluster.create("led", {0: [OURS, THEIRS]})
    produce(cluster.kafka, "led", RECORDS)  # with acks=all
    until_same(cluster, "led")
    assert consume(cluster.kafka, "led", RECORDS) == list(range(RECORDS))


def test_a_tail_that_the_next_leader_does_not_have_is_cut(cluster: Cluster) -> None:
    cluster.create("tail", {0: [OURS, THEIRS]})
    produce(cluster.kafka, "tail", RECORDS)
    producer = KafkaProducer(bootstrap_servers=cluster.ours.bootstrap_servers, acks=1)
    producer.send("tail", str(RECORDS).encode()).get(30)
    until_same(cluster, "tail")
    theirs(cluster).send_signal(signal.SIGSTOP)
    offsets = [producer.send("tail", b"lost %d" % number).get(30).offset for number in range(50)]
    cluster.ours.kill_group()
    theirs(cluster).send_signal(signal.SIGCONT)
    producer.close(0)
    assert offsets[-1] == RECORDS + 50
    until(lambda: leader_of(cluster, "tail") == THEIRS, "the other broker leads")
    produce(cluster.kafka, "tail", 20, first=RECORDS + 1)
    cluster.ours.start()
    until_same(cluster, "tail")
    ours = b"".join(segments(cluster.ours.data_dir / "tail-0").values())
    # Their first records may be there: their fetch was waiting for records when they were stopped.
    assert b"lost 49" not in ours
    assert all(str(number).encode() in ours for number in range(RECORDS + 21))


def test_no_acknowledged_record_is_lost_while_the_leader_changes(cluster: Cluster) -> None:
    cluster.create("changing", {0: [THEIRS, OURS]})
    load = Load(cluster.kafka, "changing")
    try:
        for _ in range(3):
            size = len(load.sent)
            until(lambda size=size: len(load.sent) > size + 500, "records are sent")
            cluster.ours.kill_group()
            cluster.ours.start()
    finally:
        load.stop()
    until_same(cluster, "changing")
    assert consume(cluster.kafka, "changing", len(load.sent))[-1] >= len(load.sent) - 1


def test_it_leads_when_its_leader_is_killed(cluster: Cluster) -> None:
    cluster.create("killed", {0: [THEIRS, OURS]})
    load = Load(cluster.kafka, "killed")
    try:
        until(lambda: len(load.sent) > 500, "records are sent")
        theirs(cluster).kill()
        until(lambda: leader_of(cluster, "killed") == OURS, "the follower leads")
        size = len(load.sent)
        until(lambda: len(load.sent) > size + 500, "records are sent to the other leader")
        theirs(cluster).start(theirs(cluster).directory / "server.properties")
    finally:
        load.stop()
    until_same(cluster, "killed")
    assert set(consume(cluster.kafka, "killed", len(load.sent))) >= set(range(len(load.sent)))
