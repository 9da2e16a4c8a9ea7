"""Throttled replication in a cluster of two Odradek brokers, with Kafka's tools: it keeps its rate and disturbs nothing."""

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

from odradek.testing.broker_process import Broker
from tests.cli.command import Command
from tests.cluster import shown
from tests.cluster.peer_processes import tool
from tests.metrics.scraping import Scrape, scrape
from tests.waiting import until
from tests.zookeeper import ZookeeperServer

pytestmark = [pytest.mark.xdist_group("replication-throttles"), pytest.mark.timeout(600)]

LEADER, FOLLOWER = 1, 2
RATE = 1_000_000
SLOW = 20_000
RECORD_BYTES = 10_000
BYTES = 6_000_000
LISTED = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
ROLES = {"leader": LEADER, "follower": FOLLOWER}


class Pair:
    """Two brokers. Topics are created with their only replica on broker 1; a reassignment adds broker 2."""

    def __init__(self, brokers: dict[int, Broker], directory: Path) -> None:
        self.brokers = brokers
        self.servers = brokers[LEADER].bootstrap_servers
        self.odradek = Command(self.servers)
        self._directory = directory

    def fill(self, *topics: str) -> None:
        """Create topics with BYTES of records."""
        with closing(KafkaAdminClient(bootstrap_servers=self.servers)) as admin:
            admin.create_topics([NewTopic(topic, replica_assignments={0: [LEADER]}) for topic in topics])
        for topic in topics:
            until(lambda topic=topic: shown.leaders(self.servers, topic) == {0: LEADER}, "it has its leader")
        with closing(KafkaProducer(bootstrap_servers=self.servers, acks="all", batch_size=50_000)) as producer:
            sent = [
                producer.send(topic, bytes(RECORD_BYTES), partition=0)
                for topic in topics
                for _ in range(BYTES // RECORD_BYTES)
            ]
            for result in sent:
                result.get(60)

    def reassign(self, topic: str, *arguments: str) -> str:
        """Run kafka-reassign-partitions for a plan that adds the follower. Returns its output."""
        plan = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [LEADER, FOLLOWER]}]}
        file = self._directory / f"{topic}.json"
        file.write_text(json.dumps(plan))
        return tool(
            "org.apache.kafka.tools.reassign.ReassignPartitionsCommand", "--bootstrap-server", self.servers,
            "--reassignment-json-file", str(file), *arguments,
        )  # fmt: skip

    def alter(self, kind: str, name: str | None, *arguments: str) -> str:
        """Run kafka-configs for a topic, a broker, or all brokers (None). Returns its output."""
        entity = ["--entity-default"] if name is None else ["--entity-name", name]
        return tool(
            "kafka.admin.ConfigCommand", "--bootstrap-server", self.servers, "--entity-type", kind, *entity, *arguments
        )

    def settings(self, kind: str, name: str) -> str:
        """The settings of a topic or broker that were changed at run time."""
        return self.alter(kind, name, "--describe")

    def in_sync(self, topic: str) -> set[int]:
        return shown.in_sync(self.servers, topic).get(0, set())

    def metrics(self, role: str) -> Scrape:
        return scrape(self.brokers[ROLES[role]])

    def throttled(self, role: str) -> float:
        """Bytes that the broker of a role has counted for its throttle."""
        return self.metrics(role).value("odradek_throttled_replication_bytes_total", role=role) or 0


class Meter:
    """Measures the rate of throttled replication by the counters of a broker."""

    def __init__(self, pair: Pair, role: str) -> None:
        self._pair, self._role = pair, role
        self._began = time.monotonic()
        self._before = pair.throttled(role)
        self.largest = 0.0

    def look(self) -> None:
        """Note the rate that the broker reports."""
        found = self._pair.metrics(self._role).value(f"kafka_server_{self._role}replication_byte_rate")
        assert found is not None
        self.largest = max(self.largest, found)

    def bytes_(self) -> float:
        return self._pair.throttled(self._role) - self._before

    def rate(self) -> float:
        """Bytes per second since the beginning; a slow machine makes it smaller."""
        return self.bytes_() / (time.monotonic() - self._began)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    directory: Path = tmp_path_factory.mktemp("pair")
    config = {
        "zookeeper.session.timeout.ms": 30_000,
        "num.network.threads": 2,
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 1,
        "metrics.listener": "127.0.0.1:0",
    }
    with ZookeeperServer() as zookeeper:
        config["zookeeper.connect"] = f"{zookeeper.hosts}/throttles"
        with (
            Broker(config | {"broker.id": LEADER}, directory=directory / "1") as first,
            Broker(config | {"broker.id": FOLLOWER}, directory=directory / "2") as second,
        ):
            for broker in (first, second):
                servers = broker.bootstrap_servers
                until(lambda servers=servers: shown.brokers(servers)[1] == {LEADER, FOLLOWER}, "it shows both brokers")
            yield Pair({LEADER: first, FOLLOWER: second}, directory)


def test_a_reassignment_with_a_throttle_keeps_the_rate_and_verify_removes_it(pair: Pair) -> None:
    pair.fill("slow", "free")
    output = pair.reassign("slow", "--execute", "--throttle", str(SLOW))
    assert "Successfully started" in output and "limit was set to 20000 B/s" in output
    assert f"{LISTED[0]}=0:{LEADER}" in pair.settings("topics", "slow")
    assert f"{LISTED[1]}=0:{FOLLOWER}" in pair.settings("topics", "slow")
    until(lambda: pair.throttled("follower") > 0, "the first records are fetched")

    # What is not throttled is not slower: broker 2 gets in sync for another topic of the same leader, through the same fetcher.
    assert "Successfully started" in pair.reassign("free", "--execute", "--additional")
    until(lambda: pair.in_sync("free") == {LEADER, FOLLOWER}, "the partition that is not throttled is in sync")
    assert pair.in_sync("slow") == {LEADER}, "6 MB at 20 kB/s take minutes"
    assert pair.throttled("leader") < BYTES / 2

    assert "still in progress" in pair.reassign("slow", "--verify")
    pair.reassign("slow", "--execute", "--additional", "--throttle", str(RATE))
    meters = [Meter(pair, role) for role in ROLES]

    def in_sync() -> bool:
        for meter in meters:
            meter.look()
        return pair.in_sync("slow") == {LEADER, FOLLOWER}

    until(in_sync, lambda: f"the throttled partition is in sync; throttled: {[meter.bytes_() for meter in meters]}")
    for meter in meters:
        assert meter.rate() <= 1.15 * RATE
        assert meter.largest <= 1.15 * RATE
    for role in ROLES:
        assert BYTES <= pair.throttled(role) <= 1.1 * BYTES, "all records count, and only those of this topic"

    until(lambda: "still in progress" not in pair.reassign("slow", "--verify"), "the reassignment is complete")
    for topic in ("slow", "free"):
        assert not [key for key in LISTED if key in pair.settings("topics", topic)]
    for broker_id in pair.brokers:
        assert not [key for key in RATES if key in pair.settings("brokers", str(broker_id))]
    counts = [pair.metrics(role).value(f"kafka_server_brokertopicmetrics_reassignmentbytes{end}_total")
              for role, end in (("leader", "out"), ("follower", "in"))]  # fmt: skip
    assert all(count is not None and 2 * BYTES <= count <= 2.2 * BYTES for count in counts)
    assert pair.metrics("leader").value("kafka_server_replicamanager_isrshrinks_total") == 0


@pytest.mark.parametrize("role", ROLES)
def test_each_side_keeps_its_rate_alone(pair: Pair, role: str) -> None:
    topic = f"by-{role}"
    pair.fill(topic)
    before = {other: pair.throttled(other) for other in ROLES}
    pair.alter("topics", topic, "--alter", "--add-config", f"{role}.replication.throttled.replicas=*")
    pair.odradek("config", "set", "--broker", ROLES[role], f"{role}.replication.throttled.rate={RATE}")
    meter = Meter(pair, role)
    with closing(KafkaAdminClient(bootstrap_servers=pair.servers)) as admin:
        admin.alter_partition_reassignments({TopicPartition(topic, 0): [LEADER, FOLLOWER]})

    def in_sync() -> bool:
        meter.look()
        return pair.in_sync(topic) == {LEADER, FOLLOWER}

    until(in_sync, lambda: f"the throttled partition is in sync; {meter.bytes_()} bytes of it were sent")
    assert meter.rate() <= 1.15 * RATE
    assert meter.largest <= 1.15 * RATE
    for other in ROLES:
        assert (pair.throttled(other) - before[other] >= BYTES) == (other == role)
    pair.odradek("config", "set", "--broker", ROLES[role], "--unset", f"{role}.replication.throttled.rate")


def test_in_sync_replicas_are_not_throttled(pair: Pair) -> None:
    topic = "in-sync"
    with closing(KafkaAdminClient(bootstrap_servers=pair.servers)) as admin:
        settings = dict.fromkeys(LISTED, "*") | {"min.insync.replicas": "2"}
        admin.create_topics([NewTopic(topic, replica_assignments={0: [LEADER, FOLLOWER]}, topic_configs=settings)])
    until(lambda: pair.in_sync(topic) == {LEADER, FOLLOWER}, "both are in sync")
    pair.alter("brokers", None, "--alter", "--add-config", ",".join(f"{key}=1" for key in RATES))
    shrinks = pair.metrics("leader").value("kafka_server_replicamanager_isrshrinks_total")
    before = {role: pair.throttled(role) for role in ROLES}
    with closing(KafkaProducer(bootstrap_servers=pair.servers, acks="all", batch_size=50_000)) as producer:
        for result in [producer.send(topic, bytes(RECORD_BYTES), partition=0) for _ in range(300)]:
            result.get(60)
    assert {role: pair.throttled(role) for role in ROLES} == before
    assert pair.in_sync(topic) == {LEADER, FOLLOWER}
    assert pair.metrics("leader").value("kafka_server_replicamanager_isrshrinks_total") == shrinks
    pair.alter("brokers", None, "--alter", "--delete-config", ",".join(RATES))


def test_values_that_are_no_replicas_or_rates_are_refused(pair: Pair) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=pair.servers)) as admin:
        admin.create_topics([NewTopic("refused", replica_assignments={0: [LEADER]})])
    for value in ("0:1,all", "*,0:1", "0", "0:1:2", "-1:2"):
        with pytest.raises(AssertionError, match=r"must be \* or a comma-separated list of partition:broker"):
            pair.odradek("config", "set", "--topic", "refused", f"{LISTED[0]}={value}")
    with pytest.raises(AssertionError, match="must be an integer from 0 to"):
        pair.odradek("config", "set", "--broker", LEADER, f"{RATES[0]}=-1")
