"""A leader that stands still, or without ZooKeeper: which records with acks=1 it acknowledges when it may be deposed [R 12]."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import produce
from odradek.testing.broker_process import Broker
from tests.cluster import our_brokers, shown
from tests.cluster.failures import stopped_group
from tests.waiting import until
from tests.wire import PRODUCE_VERSION, Wire, batch, produce_request, values
from tests.zookeeper import ZookeeperServer

IDS = (1, 2, 3)
SESSION_MS = 4000
CONNECTIONS, REQUESTS = 4, 25
pytestmark = pytest.mark.xdist_group("paused-leader")


class Cluster:
    """Three brokers, and topics of one partition with three replicas."""

    def __init__(self, zookeeper: ZookeeperServer, brokers: dict[int, Broker]) -> None:
        self.zookeeper = zookeeper
        self.brokers = brokers

    def create(self, topic: str) -> int:
        """Create a topic, and wait until its replicas are in sync. Returns its leader."""
        servers = ",".join(broker.bootstrap_servers for broker in self.brokers.values())
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})

        def created() -> bool:
            try:
                admin.create_topics([NewTopic(topic, 1, 3)], request_timeout=10)[topic].result()
            except KafkaException as error:
                return error.args[0].name() == "TOPIC_ALREADY_EXISTS"
            return True

        until(created, "the topic is created")
        self.wait_until_in_sync(topic)
        return self.leader(topic, *IDS)

    def leader(self, topic: str, *seen_by: int) -> int:
        """The leader, as several brokers show it; -1 if they do not agree, or if there is none."""
        leaders = {shown.leaders(self.brokers[number].bootstrap_servers, topic).get(0, -1) for number in seen_by}
        return leaders.pop() if len(leaders) == 1 else -1

    def wait_until_in_sync(self, topic: str) -> None:
        def in_sync() -> list[Any]:
            return [shown.partitions(broker.bootstrap_servers, topic).get(0) for broker in self.brokers.values()]

        def agreed() -> bool:
            return all(row is not None and row.in_sync == set(IDS) and row.leader > 0 for row in in_sync())

        until(agreed, lambda: f"all replicas of {topic} are in sync: {in_sync()}")

    def read(self, topic: str) -> set[bytes]:
        """The values of all records that are committed."""
        found: set[bytes] = set()
        with Wire.to(self.brokers[self.leader(topic, *IDS)]) as wire:
            offset, end = 0, wire.latest(topic, 0)
            while offset < end:
                read = values(wire.fetch(topic, offset).records)
                found.update(value for value in read if value is not None)
                offset += len(read)
        return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory: Path = tmp_path_factory.mktemp("paused")
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZookeeperServer())
        settings = {
            "zookeeper.connect": zookeeper.hosts,
            "zookeeper.session.timeout.ms": SESSION_MS,
            "controlled.shutdown.enable": "false",
            "odradek.stuck.process.ms": 600_000,  # the supervisor replaces no coordinator that a test has stopped
        }
        brokers = stack.enter_context(our_brokers.started(directory, IDS, settings))
        yield Cluster(zookeeper, brokers)


def code_of(wire: Wire, topic: str, value: bytes, acks: int) -> int:
    return int(wire.produce(topic, batch(value), acks=acks).error_code)


def append_to(cluster: Cluster, topic: str, leader: int, value: bytes) -> None:
    """Append a record that all replicas have."""
    with Wire.to(cluster.brokers[leader]) as wire:
        until(lambda: code_of(wire, topic, value, -1) == ErrorCode.NONE, "the leader accepts records")


def test_a_deposed_leader_acknowledges_nothing_that_is_lost(cluster: Cluster) -> None:
    """The requests lie in the sockets of the leader when it continues, so that it executes them before it can know anything."""
    leader = cluster.create("deposed")
    others = [number for number in IDS if number != leader]
    append_to(cluster, "deposed", leader, b"before")
    acknowledged = []
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire.to(cluster.brokers[leader])) for _ in range(CONNECTIONS)]
        for number, wire in enumerate(wires):
            assert code_of(wire, "deposed", b"first %d" % number, -1) == ErrorCode.NONE
        with stopped_group(cluster.brokers[leader]):
            for number, wire in enumerate(wires):
                for i in range(REQUESTS):
                    request = produce_request([("deposed", [(0, batch(b"%d-%d" % (number, i)))])], acks=1)
                    wire.send(request, produce.API_KEY, PRODUCE_VERSION)
            until(lambda: cluster.leader("deposed", *others) in others, "another broker leads")
            append_to(cluster, "deposed", cluster.leader("deposed", *others), b"by the next leader")
        for number, wire in enumerate(wires):
            for i in range(REQUESTS):
                part = wire.receive().responses[0].partition_responses[0]
                if part.error_code == ErrorCode.NONE:
                    acknowledged.append(b"%d-%d" % (number, i))
                else:
                    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster.wait_until_in_sync("deposed")
    read = cluster.read("deposed")
    lost = [value for value in acknowledged if value not in read]
    assert lost == [], f"{len(lost)} of {len(acknowledged)} acknowledged records are lost"
    assert {b"before", b"by the next leader"} <= read
    text = cluster.brokers[leader].log_file.read_text()
    assert "this broker did not run for" in text and "the registration of this broker has ended" in text


def test_a_leader_that_is_still_registered_goes_on_after_a_pause(cluster: Cluster) -> None:
    """Only the supervisor stands still, so that the session does not end, and no worker can know whether it has."""
    leader = cluster.create("registered")
    broker = cluster.brokers[leader]
    (supervisor,) = [process["pid"] for process in broker.processes() if process["kind"] == "supervisor"]
    with Wire.to(broker) as wire:
        assert code_of(wire, "registered", b"x", 1) == ErrorCode.NONE
        os.kill(supervisor, signal.SIGSTOP)
        try:
            until(
                lambda: code_of(wire, "registered", b"x", 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER,
                "records are refused that no other replica has",
            )
            assert code_of(wire, "registered", b"x", -1) == ErrorCode.NONE
        finally:
            os.kill(supervisor, signal.SIGCONT)
        until(lambda: code_of(wire, "registered", b"y", 1) == ErrorCode.NONE, "the broker leads on")
    assert cluster.leader("registered", *IDS) == leader
    assert "this broker is still registered after a pause" in broker.log_file.read_text()


def test_a_leader_whose_coordinator_stands_still_acknowledges_nothing_that_is_lost(cluster: Cluster) -> None:
    """The coordinator keeps the session, so that another broker leads while the workers serve their clients."""
    leader = cluster.create("unkept")
    others = [number for number in IDS if number != leader]
    broker = cluster.brokers[leader]
    append_to(cluster, "unkept", leader, b"before")
    (coordinator,) = [process["pid"] for process in broker.processes() if process["kind"] == "coordinator"]
    with Wire.to(broker) as wire:
        assert code_of(wire, "unkept", b"first", 1) == ErrorCode.NONE
        os.kill(coordinator, signal.SIGSTOP)
        try:
            until(lambda: cluster.leader("unkept", *others) in others, "another broker leads")
            codes = [code_of(wire, "unkept", b"after %d" % number, 1) for number in range(REQUESTS)]
        finally:
            os.kill(coordinator, signal.SIGCONT)
        assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * REQUESTS
    cluster.wait_until_in_sync("unkept")
    assert b"before" in cluster.read("unkept")
    assert "the coordinator did not run for" in broker.log_file.read_text()


def test_without_zookeeper_and_without_a_pause_the_leader_goes_on(cluster: Cluster) -> None:
    leader = cluster.create("without")
    broker = cluster.brokers[leader]
    overdue = f"no connection to ZooKeeper for {SESSION_MS / 1000:g} s"
    before = broker.log_file.read_text().count(overdue)
    with Wire.to(broker) as wire:
        cluster.zookeeper.pause()
        try:
            until(lambda: broker.log_file.read_text().count(overdue) > before, "the broker misses ZooKeeper")
            assert code_of(wire, "without", b"x", 1) == ErrorCode.NONE
            assert code_of(wire, "without", b"x", -1) == ErrorCode.NONE
        finally:
            cluster.zookeeper.resume()
    cluster.wait_until_in_sync("without")
