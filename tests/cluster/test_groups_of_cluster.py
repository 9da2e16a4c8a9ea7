"""Groups in a cluster of three Odradek brokers, whose coordinators are killed: of the classic protocol and of KIP-848.

Brokers are killed with all their processes, and start again.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.api.group_talk import GroupTalk
from tests.clients.test_groups import Room, life
from tests.cluster.peer_processes import Peers
from tests.cluster.test_moving_groups import coordinator
from tests.cluster.test_odradek_cluster import IDS, Cluster, start_brokers
from tests.waiting import until

pytestmark = pytest.mark.timeout(900)
OFFSETS = "__consumer_offsets"


class ClusterRoom(Room):
    """A room whose broker is a cluster."""

    def __init__(self, cluster: Cluster, group: str, directory: Path, stack: ExitStack) -> None:
        self._cluster = cluster
        super().__init__(cluster.brokers[min(IDS)], group, directory, stack, ",".join(cluster.servers()))

    def _coordinator(self) -> int:
        """The id of the coordinator as the live brokers name it; -1 if they do not agree, or if it does not run."""
        running = {number: broker for number, broker in self._cluster.brokers.items() if broker.running}
        found = {coordinator(broker.bootstrap_servers, self.group) for broker in running.values()}
        return found.pop() if len(found) == 1 and found <= running.keys() else -1

    def coordinator_wire(self) -> GroupTalk:
        number = self._coordinator()
        if number < 0:
            raise ConnectionError("no coordinator")
        broker = self._cluster.brokers[number]
        return GroupTalk(broker.host, broker.port)

    def kill_coordinator(self) -> None:
        """Kill the coordinating broker, wait until another one coordinates the group, and start the broker again."""
        until(lambda: self._coordinator() > 0, "the brokers agree about the coordinator")
        old = self._coordinator()
        self._cluster.brokers[old].kill_group()
        until(lambda: self._coordinator() not in (-1, old), "another broker coordinates the group")
        self.shares([member for member in self.members if member.process.poll() is None])
        self._cluster.brokers[old].start()
        self._cluster.wait_for_brokers(set(IDS))


@pytest.fixture
def room(tmp_path: Path) -> Iterator[ClusterRoom]:
    settings = {
        "default.replication.factor": 3,
        "min.insync.replicas": 2,
        "offsets.topic.replication.factor": 3,
        "group.initial.rebalance.delay.ms": 200,
        "group.coordinator.rebalance.protocols": "classic,consumer",
    }
    with ExitStack() as stack:
        peers = stack.enter_context(Peers(tmp_path))
        cluster = stack.enter_context(start_brokers(tmp_path, peers.connect, settings))
        yield ClusterRoom(cluster, "moving", tmp_path, stack)


@pytest.mark.java
def test_a_group_of_the_newer_protocol_outlives_its_coordinator(room: ClusterRoom) -> None:
    life(room, ["java+consumer", "confluent-kafka+consumer"], ["confluent-kafka+consumer"])


@pytest.mark.java
def test_members_of_both_protocols_outlive_their_coordinator(room: ClusterRoom) -> None:
    life(room, ["confluent-kafka", "kafka-python"], ["java+consumer", "confluent-kafka+consumer"])
