"""Two Odradek brokers (ids 2 and 3) replicate from each other; the controller is a Kafka 3.9.1 broker (id 1)."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.testing.broker_process import Broker
from tests.cluster import shown
from tests.cluster.peer_processes import Peers
from tests.cluster.test_follower_of_kafka import Load, replicator_of, segments
from tests.cluster.test_guest_of_kafka import Cluster, closing_admin, consume, produce
from tests.waiting import until

pytestmark = pytest.mark.xdist_group("pair")

CONTROLLER, FIRST, SECOND = 1, 2, 3
RECORDS = 300


class Pair(Cluster):
    """The cluster; `brokers` are the two Odradek brokers by id."""

    brokers: dict[int, Broker]

    def wait_until_ours_answers(self) -> None:
        for broker in self.brokers.values():
            until(lambda broker=broker: shown.brokers(broker.bootstrap_servers)[1], "the controller sent the brokers")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    directory: Path = tmp_path_factory.mktemp("pair")
    with Peers(directory) as peers:
        kafka = peers.start_kafka(CONTROLLER)
        config = {
            "metadata.store": "zookeeper",
            "zookeeper.connect": peers.connect,
            "zookeeper.session.timeout.ms": 4000,
            "num.network.threads": 2,
            "replica.fetch.backoff.ms": 100,
            "controlled.shutdown.retry.backoff.ms": 100,  # the last broker has nobody to lead its partitions
        }
        with (
            Broker(config | {"broker.id": FIRST}, directory=directory / "first") as first,
            Broker(config | {"broker.id": SECOND}, directory=directory / "second") as second,
            closing_admin(f"127.0.0.1:{kafka.port}") as admin,
        ):
            made = Pair(peers, first, admin)
            made.brokers = {FIRST: first, SECOND: second}
            yield made


def leader_of(pair: Pair, topic: str) -> int:
    """The leader of partition 0, as the controller returns it."""
    return shown.leaders(f"127.0.0.1:{pair.peers.brokers[CONTROLLER].port}", topic).get(0, -1)


def until_same(pair: Pair, topic: str) -> None:
    def log_of(broker: Broker) -> bytes:
        return b"".join(segments(broker.data_dir / f"{topic}-0").values())

    until(
        lambda: log_of(pair.brokers[FIRST]) == log_of(pair.brokers[SECOND]) != b"",
        lambda: f"the logs of {topic} are the same: {[broker.log_tail() for broker in pair.brokers.values()]}",
    )


def test_each_follows_the_other(pair: Pair) -> None:
    pair.create("first", {0: [FIRST, SECOND]})
    pair.create("second", {0: [SECOND, FIRST]})
    for topic in ("first", "second"):
        produce(pair.kafka, topic, RECORDS)  # with acks=all
        until_same(pair, topic)
        assert consume(pair.kafka, topic, RECORDS) == list(range(RECORDS))


def test_kills_of_the_replicator_lose_nothing(pair: Pair) -> None:
    pair.create("replicator", {0: [FIRST, SECOND]})
    load = Load(pair.kafka, "replicator")
    try:
        for _ in range(3):
            size = len(load.sent)
            until(lambda size=size: len(load.sent) > size + 500, "records are sent")
            pid = replicator_of(pair.brokers[SECOND])
            os.kill(pid, signal.SIGKILL)
            until(lambda pid=pid: replicator_of(pair.brokers[SECOND]) not in (0, pid), "it is restarted")
    finally:
        load.stop()
    until_same(pair, "replicator")
    assert len(consume(pair.kafka, "replicator", len(load.sent))) >= len(load.sent)


@pytest.mark.parametrize("kill", ["kill", "kill_group"])
def test_the_follower_leads_after_a_kill_of_the_leader(pair: Pair, kill: str) -> None:
    topic = f"leader-{kill}"
    pair.create(topic, {0: [FIRST, SECOND]})
    load = Load(pair.kafka, topic)
    try:
        until(lambda: len(load.sent) > 500, "records are sent")
        getattr(pair.brokers[FIRST], kill)()
        until(lambda: leader_of(pair, topic) == SECOND, "the follower leads")
        size = len(load.sent)
        until(lambda: len(load.sent) > size + 500, "records are sent to the other leader")
        pair.brokers[FIRST].start()
    finally:
        load.stop()
    until_same(pair, topic)
    read = consume(pair.kafka, topic, len(load.sent))
    assert set(read) >= set(range(len(load.sent))), "no acknowledged record is lost"
