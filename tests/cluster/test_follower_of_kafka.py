"""An Odradek broker (id 2) follows partitions that a Kafka 3.9.1 broker (id 1) leads: its logs get the same bytes."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaProducer

from odradek.testing.broker_process import Broker
from tests.cluster.peer_processes import Peers
from tests.cluster.test_guest_of_kafka import KAFKA, OURS, Cluster, closing_admin, consume, produce
from tests.waiting import until

ROLLING = {"segment.bytes": "100000"}
pytestmark = pytest.mark.xdist_group("follower-of-kafka")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory: Path = tmp_path_factory.mktemp("follower")
    with Peers(directory) as peers:
        kafka = peers.start_kafka(KAFKA, {"num.replica.fetchers": 2})
        config = {
            "broker.id": OURS,
            "metadata.store": "zookeeper",
            "zookeeper.connect": peers.connect,
            "zookeeper.session.timeout.ms": 6000,
            "offsets.topic.replication.factor": 1,
            "num.network.threads": 2,
            "num.replica.fetchers": 2,
            "replica.fetch.backoff.ms": 100,
        }
        with Broker(config, directory=directory / "odradek") as ours, closing_admin(f"127.0.0.1:{kafka.port}") as admin:
            yield Cluster(peers, ours, admin)


def segments(directory: Path) -> dict[str, bytes]:
    """The contents of the segments of a partition, by file name."""
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*.log"))}


def same_logs(cluster: Cluster, topic: str, partition: int = 0) -> bool:
    kafka = segments(cluster.peers.brokers[KAFKA].directory / "data" / f"{topic}-{partition}")
    ours = segments(cluster.ours.data_dir / f"{topic}-{partition}")
    return bool(kafka) and b"".join(kafka.values()) == b"".join(ours.values())


def in_sync(cluster: Cluster, topic: str, partition: int = 0) -> set[int]:
    (found,) = cluster.admin.describe_topics([topic])
    return next(set(row["isr_nodes"]) for row in found["partitions"] if row["partition_index"] == partition)


def until_followed(cluster: Cluster, topic: str, partition: int = 0) -> None:
    until(
        lambda: same_logs(cluster, topic, partition) and in_sync(cluster, topic, partition) == {KAFKA, OURS},
        lambda: (
            f"{topic}-{partition} is followed: in sync {in_sync(cluster, topic, partition)}; {cluster.ours.log_tail()}"
        ),
    )


def test_it_has_the_same_bytes(cluster: Cluster) -> None:
    cluster.create("followed", {0: [KAFKA, OURS], 1: [KAFKA, OURS], 2: [KAFKA, OURS]})
    for partition in range(3):
        produce(cluster.kafka, "followed", partition=partition)
    for partition in range(3):
        until_followed(cluster, "followed", partition)


class Load:
    """Produces to a topic with acks=all in a thread until `stop`; `sent` are the acknowledged values."""

    def __init__(self, servers: str, topic: str) -> None:
        self.sent: list[int] = []
        self._producer = KafkaProducer(bootstrap_servers=servers, acks="all", retries=1000, linger_ms=2)
        self._topic = topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            results = []
            for _ in range(50):
                results.append(self._producer.send(self._topic, f"{number}".encode().rjust(200, b"0"), partition=0))
                number += 1
            for result in results:
                self.sent.append(result.get(60).offset)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._producer.close()


def replicator_of(broker: Broker) -> int:
    """The process id of the replicator."""
    return next(row["pid"] or 0 for row in broker.processes() if row["kind"] == "replicator")


def test_it_follows_again_after_a_kill_of_the_broker_under_load(cluster: Cluster) -> None:
    cluster.create("killed", {0: [KAFKA, OURS]})
    load = Load(cluster.kafka, "killed")
    try:
        until(lambda: len(load.sent) > 2000, "records are sent")
        cluster.ours.kill_group()
        cluster.ours.start()
        size = len(load.sent)
        until(lambda: len(load.sent) > size + 2000, "records are sent after the restart")
    finally:
        load.stop()
    until_followed(cluster, "killed")
    assert len(consume(cluster.kafka, "killed", len(load.sent))) >= len(load.sent)


def test_it_goes_on_after_kills_of_the_replicator_under_load(cluster: Cluster) -> None:
    cluster.create("replicator", {0: [KAFKA, OURS]})
    load = Load(cluster.kafka, "replicator")
    try:
        for _ in range(5):
            size = len(load.sent)
            until(lambda size=size: len(load.sent) > size + 500, "records are sent")
            pid = replicator_of(cluster.ours)
            os.kill(pid, signal.SIGKILL)
            until(lambda pid=pid: replicator_of(cluster.ours) not in (0, pid), "the replicator is restarted")
    finally:
        load.stop()
    until_followed(cluster, "replicator")
