"""Groups in a cluster of an Odradek broker (id 2) and Kafka 3.9.1 brokers: `__consumer_offsets` is on both kinds, and moves."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaConsumer, TopicPartition

from odradek._ext.api.offset_commits import partition_for
from odradek.clients.wire import Connection
from odradek.protocol.schemas import find_coordinator
from odradek.testing.broker_process import Broker
from tests.cluster import shown
from tests.cluster.peer_processes import Peers, tool
from tests.cluster.test_guest_of_kafka import Cluster, closing_admin, produce
from tests.waiting import until

CONTROLLER, OURS = 1, 2
PARTITIONS = 4
TOPIC = "read"
RECORDS = 100
OFFSETS = "__consumer_offsets"
SESSION_MS = 10_000
"""The kill of a broker is noticed after this time. On a loaded machine a shorter session also ends while its broker lives; its
followers then leave the in-sync replicas, and a partition whose other replica is killed has no leader."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory: Path = tmp_path_factory.mktemp("groups")
    common = {
        "zookeeper.session.timeout.ms": SESSION_MS,
        "replica.fetch.backoff.ms": 100,
        "offsets.topic.replication.factor": 2,
        "offsets.topic.num.partitions": PARTITIONS,
        "group.initial.rebalance.delay.ms": 0,
    }
    with Peers(directory) as peers:
        kafka = peers.start_kafka(CONTROLLER, common)
        config = common | {
            "broker.id": OURS,
            "metadata.store": "zookeeper",
            "zookeeper.connect": peers.connect,
            "num.network.threads": 2,
        }
        with Broker(config, directory=directory / "odradek") as ours, closing_admin(f"127.0.0.1:{kafka.port}") as admin:
            made = Cluster(peers, ours, admin)
            made.create(TOPIC, {0: [CONTROLLER, OURS]})
            produce(made.kafka, TOPIC, RECORDS)
            until(
                lambda: coordinator(ours.bootstrap_servers, "any") > 0,
                "the first request creates the topic of the offsets",
            )
            yield made


def servers_of(cluster: Cluster) -> list[str]:
    return [cluster.kafka, cluster.ours.bootstrap_servers]


def coordinator(servers: str, group: str) -> int:
    """The coordinator of a group, as one broker returns it; -1: none."""
    host, port = servers.rsplit(":", 1)
    connection = Connection(host, int(port), 30)
    try:
        request = find_coordinator.Request(key=group, key_type=0)
        return connection.ask(find_coordinator.SCHEMA, request, newest=2).node_id
    finally:
        connection.close()


def agreed(cluster: Cluster, group: str) -> int:
    """The coordinator of a group; -1 if the brokers do not agree."""
    found = {coordinator(servers, group) for servers in servers_of(cluster)}
    return found.pop() if len(found) == 1 else -1


def group_of(partition: int, prefix: str) -> str:
    """A group that belongs to a partition of `__consumer_offsets`."""
    names = (f"{prefix}-{number}" for number in range(1000))
    return next(name for name in names if partition_for(name, PARTITIONS) == partition)


def read_some(servers: str | list[str], group: str, count: int) -> list[int]:
    """Join a group, read `count` records, commit them and leave."""
    consumer = KafkaConsumer(
        TOPIC, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
        max_poll_records=count,
    )  # fmt: skip
    # The library joins before it knows the topic's partitions, and stays in the join if a poll ends meanwhile.
    until(lambda: consumer.partitions_for_topic(TOPIC), "the client knows the partitions")
    values: list[int] = []

    def poll() -> bool:
        for batch in consumer.poll(timeout_ms=30_000, max_records=count - len(values)).values():
            values.extend(int(record.value) for record in batch)
        return len(values) >= count

    until(poll, lambda: f"{group} reads {count} records: {values}")
    consumer.commit()
    consumer.close()
    return values


def committed(servers: str | list[str], group: str) -> int | None:
    consumer = KafkaConsumer(bootstrap_servers=servers, group_id=group)
    try:
        return consumer.committed(TopicPartition(TOPIC, 0))
    finally:
        consumer.close()


def test_both_kinds_coordinate_groups(cluster: Cluster) -> None:
    found = {}
    for partition in range(PARTITIONS):
        group = group_of(partition, "both")
        until(lambda group=group: agreed(cluster, group) > 0, f"both brokers name the same coordinator of {group}")
        found[partition] = agreed(cluster, group)
        assert read_some(cluster.kafka, group, 10) == list(range(10))
        assert read_some(cluster.ours.bootstrap_servers, group, 10) == list(range(10, 20))
        for servers in servers_of(cluster):
            assert committed(servers, group) == 20
    assert set(found.values()) == {CONTROLLER, OURS}


def offsets_topic(cluster: Cluster) -> dict[int, tuple[int, list[int], list[int]]]:
    """(leader, replicas, in-sync replicas) of the partitions of `__consumer_offsets`, as Kafka's broker returns it.

    An admin client would also ask the other broker, which may be stopped, or may just have started and know no partition. Also
    Kafka's broker knows none until the controller has sent it the topic.
    """
    (topic,) = shown.ask(cluster.kafka, [OFFSETS]).topics
    return {
        row.partition_index: (row.leader_id, list(row.replica_nodes), list(row.isr_nodes)) for row in topic.partitions
    }


def all_in_sync(cluster: Cluster) -> bool:
    return [len(in_sync) for _, _, in_sync in offsets_topic(cluster).values()] == [2] * PARTITIONS


def balance(cluster: Cluster) -> dict[int, int]:
    """Move the leaderships back to the first replicas, until all of them lead and all replicas are in sync: a replica may leave
    at any time on a loaded machine. Returns the leaders by partition."""
    seen: dict[int, tuple[int, list[int], list[int]]] = {}

    def balanced() -> bool:
        nonlocal seen
        seen = offsets_topic(cluster)
        if [len(in_sync) for _, _, in_sync in seen.values()] != [2] * PARTITIONS:
            return False
        if all(leader == replicas[0] for leader, replicas, _ in seen.values()):
            return True
        try:
            tool("org.apache.kafka.tools.LeaderElectionCommand", "--bootstrap-server", cluster.kafka, "--election-type",
                 "preferred", "--all-topic-partitions")  # fmt: skip
        except AssertionError as error:
            assert "PREFERRED_LEADER_NOT_AVAILABLE" in str(error) or "PreferredLeaderNotAvailable" in str(error), error
        return False

    until(balanced, lambda: f"the first replicas lead, and all replicas are in sync: {seen}")
    return {partition: leader for partition, (leader, _, _) in seen.items()}


@pytest.mark.parametrize("how", ["stop", "kill_group"])
def test_groups_move_to_kafka_and_back(cluster: Cluster, how: str) -> None:
    groups = [group_of(partition, f"moving-{how}") for partition in range(PARTITIONS)]
    balance(cluster)
    for group in groups:
        read_some(servers_of(cluster), group, 10)
    until(lambda: all_in_sync(cluster), lambda: f"both brokers have what was committed: {offsets_topic(cluster)}")
    getattr(cluster.ours, how)()
    # Clients ask any broker that Metadata names, and their library raises an error if it refuses the connection.
    until(lambda: shown.brokers(cluster.kafka)[1] == {CONTROLLER}, "the stopped broker is not registered any more")
    for group in groups:
        until(lambda group=group: coordinator(cluster.kafka, group) == CONTROLLER, f"Kafka coordinates {group}")
        assert read_some(cluster.kafka, group, 10) == list(range(10, 20))
    cluster.ours.start()
    cluster.wait_until_ours_answers()
    assert set(balance(cluster).values()) == {CONTROLLER, OURS}
    for partition, group in enumerate(groups):
        until(
            lambda partition=partition, group=group: agreed(cluster, group) == balance(cluster)[partition],
            f"both brokers name the leader of partition {partition} as the coordinator of {group}",
        )
        assert read_some(servers_of(cluster), group, 10) == list(range(20, 30))
        for servers in servers_of(cluster):
            assert committed(servers, group) == 30


def test_kafka_logged_no_error_about_it(cluster: Cluster) -> None:
    errors = [line for line in cluster.peers.brokers[CONTROLLER].log().splitlines() if "ERROR" in line]
    assert errors == []
