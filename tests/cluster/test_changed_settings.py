"""Settings that one broker of a cluster changes are applied by the others: two Odradek brokers, and Kafka's kafka-configs."""

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import KafkaError, MessageSizeTooLargeError

from odradek.metadata import znodes
from odradek.metadata.zookeeper import ZookeeperOptions, ZookeeperStore
from odradek.testing.broker_process import Broker
from tests.cluster import our_brokers, shown
from tests.cluster.peer_processes import tool
from tests.waiting import until
from tests.zookeeper import chroot

LARGE = bytes(20_000)


@pytest.fixture(scope="module")
def servers() -> str:
    return chroot()


@pytest.fixture(scope="module")
def brokers(servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Broker]]:
    directory: Path = tmp_path_factory.mktemp("settings")
    settings = {
        "zookeeper.connect": servers,
        "zookeeper.session.timeout.ms": 60_000,
        "replica.lag.time.max.ms": 2000,
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
    }
    with our_brokers.started(directory, (1, 2), settings) as found:
        yield list(found.values())


def create(brokers: list[Broker], name: str, leader: int, *followers: int) -> None:
    def created() -> bool:
        try:
            with closing(KafkaAdminClient(bootstrap_servers=[broker.bootstrap_servers for broker in brokers])) as admin:
                if name not in admin.list_topics():
                    admin.create_topics([NewTopic(name, replica_assignments={0: [leader, *followers]})])
                return admin.describe_topics([name])[0]["partitions"][0]["leader_id"] == leader
        except (KafkaError, IndexError, RuntimeError):
            return False

    until(created, f"{name} has its leader {leader}")


def accepts_large(broker: Broker, topic: str) -> bool:
    """Whether the leader of a topic accepts a large record now."""
    with closing(
        KafkaProducer(bootstrap_servers=broker.bootstrap_servers, enable_idempotence=False, retries=0)
    ) as producer:
        try:
            producer.send(topic, LARGE, partition=0).get(60)
        except MessageSizeTooLargeError:
            return False
    return True


def alter(broker: Broker, *arguments: str) -> None:
    tool("kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap_servers, "--alter", *arguments)


def test_settings_of_a_topic_reach_its_leader(brokers: list[Broker], servers: str) -> None:
    create(brokers, "topic", 2)
    assert accepts_large(brokers[1], "topic")
    alter(brokers[0], "--entity-type", "topics", "--entity-name", "topic", "--add-config", "max.message.bytes=1000")
    until(lambda: not accepts_large(brokers[1], "topic"), "the leader applies the new setting")
    alter(brokers[0], "--entity-type", "topics", "--entity-name", "topic", "--delete-config", "max.message.bytes")
    until(lambda: accepts_large(brokers[1], "topic"), "the leader applies the default again")
    with closing(ZookeeperStore(ZookeeperOptions(servers))) as store:
        names = store.children(znodes.CONFIG_CHANGES)
        entities = [
            znodes.decode_config_change(name, node[0])
            for name, node in zip(
                names, store.get_many([f"{znodes.CONFIG_CHANGES}/{name}" for name in names]), strict=True
            )
            if node is not None
        ]
    assert entities == ["topics/topic"] * 2


def test_settings_of_all_brokers_and_of_one_reach_other_brokers(brokers: list[Broker]) -> None:
    create(brokers, "defaults", 2)
    assert accepts_large(brokers[1], "defaults")
    for entity in (["--entity-default"], ["--entity-name", "2"]):
        alter(brokers[0], "--entity-type", "brokers", *entity, "--add-config", "message.max.bytes=1000")
        until(lambda: not accepts_large(brokers[1], "defaults"), f"broker 2 applies the setting of {entity}")
        alter(brokers[0], "--entity-type", "brokers", *entity, "--delete-config", "message.max.bytes")
        until(lambda: accepts_large(brokers[1], "defaults"), "broker 2 applies the default again")


def test_settings_are_current_after_a_restart_and_after_a_loss_of_the_session(
    brokers: list[Broker], servers: str
) -> None:
    create(brokers, "restarted", 2)
    brokers[1].stop()
    alter(brokers[0], "--entity-type", "topics", "--entity-name", "restarted", "--add-config", "max.message.bytes=1000")
    brokers[1].start()
    until(lambda: not accepts_large(brokers[1], "restarted"), "the setting made meanwhile is applied")
    alter(brokers[0], "--entity-type", "topics", "--entity-name", "restarted", "--delete-config", "max.message.bytes")
    until(lambda: accepts_large(brokers[1], "restarted"), "a later change is applied, too")


@pytest.mark.parametrize("entity", [("topics", "--entity-name", "unclean-1"), ("brokers", "--entity-default")])
def test_allowing_unclean_elections_elects_a_leader(brokers: list[Broker], entity: tuple[str, str, str]) -> None:
    first, second = brokers
    topic = "unclean-1" if entity[0] == "topics" else "unclean-2"
    create(brokers, topic, 2, 1)
    (replicator,) = (int(row["pid"]) for row in first.processes() if row["kind"] == "replicator")
    os.kill(replicator, signal.SIGSTOP)
    with closing(
        KafkaProducer(bootstrap_servers=second.bootstrap_servers, acks=1, enable_idempotence=False)
    ) as producer:
        producer.send(topic, b"not replicated", partition=0).get(60)

    def state() -> tuple[int, set[int]]:
        found = shown.partitions(first.bootstrap_servers, topic).get(0)
        return (-1, set()) if found is None else (found.leader, set(found.in_sync))

    try:
        until(lambda: state() == (2, {2}), "the stopped follower is not in sync any more")
        second.stop()
        until(lambda: state() == (-1, {2}), "the partition has no leader")
    finally:
        os.kill(replicator, signal.SIGCONT)
    change = ["--entity-type", entity[0], *entity[1:]]
    alter(first, *change, "--add-config", "unclean.leader.election.enable=true")
    until(lambda: state() == (1, {1}), "the other replica leads")
    alter(first, *change, "--delete-config", "unclean.leader.election.enable")
    second.start()
    until(lambda: state() == (1, {1, 2}), "the former leader follows")
