"""`odradek mirror` between Odradek and Apache Kafka 4.3, in both directions at once, and its groups on Kafka's coordinator."""

import time

import pytest
from confluent_kafka import Producer

from odradek.clients import configs, topics
from odradek.clients.cluster import Cluster
from odradek.clients.configs import Resource
from odradek.testing import Broker
from tests.clients.kafka_peer import Peer
from tests.mirror.commands import mirror, worker
from tests.mirror.lanes import records_of
from tests.mirror.takeover import limit_s
from tests.mirror.test_lane_against_kafka import CONFIG
from tests.mirror.test_membership import LANES, Worker, shared, workers
from tests.waiting import until


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    with Peer(tmp_path_factory.mktemp("kafka"), CONFIG) as running:
        yield running


@pytest.fixture(scope="module")
def ours():
    with Broker({"group.initial.rebalance.delay.ms": 0}) as running:
        yield running


def produce(servers, topic, values):
    producer = Producer({"bootstrap.servers": servers, "compression.type": "zstd"})
    for value in values:
        producer.produce(topic, str(value).encode(), partition=value % 2)
    assert producer.flush(60) == 0


def values(servers, topic):
    """The values of a topic with two partitions; None if there is no such topic."""
    with Cluster(servers) as cluster:
        if topic not in cluster.metadata([topic]).topics:
            return None
    return [[int(seen.value) for seen in records_of(servers, (topic, partition))] for partition in range(2)]


def test_both_directions_at_once_with_settings_that_only_one_side_knows(kafka, ours, tmp_path):
    file = tmp_path / "mirror.properties"
    file.write_text(
        f"clusters = k, o\nk.bootstrap.servers = {kafka.bootstrap_servers}\no.bootstrap.servers = {ours.bootstrap_servers}\n"
        "k->o.enabled = true\no->k.enabled = true\ntopics = .*\nrefresh.topics.interval.seconds = 1\n"
        "odradek.mirror.metrics.listener =\nodradek.mirror.lanes = 2\n"
    )
    with Cluster(kafka.bootstrap_servers) as theirs, Cluster(ours.bootstrap_servers) as mine:
        topics.create(theirs, "there", 2, 1, {"retention.ms": "86400000", "compression.zstd.level": "5"})
        topics.create(mine, "here", 2, 1, {"odradek.retention.exact": "true", "segment.bytes": "20000000"})
        produce(kafka.bootstrap_servers, "there", range(100))
        produce(ours.bootstrap_servers, "here", range(100))
        done = mirror("check", str(file))
        assert done.returncode == 0, done.stderr
        expected = [list(range(0, 100, 2)), list(range(1, 100, 2))]
        with worker(str(file), tmp_path / "log") as process:
            until(lambda: values(ours.bootstrap_servers, "k.there") == expected, lambda: process.log)
            until(lambda: values(kafka.bootstrap_servers, "o.here") == expected, lambda: process.log)
            until(lambda: "o.heartbeats" in theirs.metadata().topics, lambda: process.log)
            assert process.stop() == 0
        assert "odradek.retention.exact=true of 'here' is not set for its copy" in process.log
        assert " ERROR " not in process.log, process.log
        made = configs.describe(theirs, Resource("topic", "o.here"))
        assert made["segment.bytes"].value == "20000000"
        assert configs.describe(mine, Resource("topic", "k.there"))["retention.ms"].value == "86400000"
        assert not {"o.k.there", "k.o.here"} & {*theirs.metadata().topics, *mine.metadata().topics}


def test_kafkas_coordinator_gives_the_lanes_of_a_killed_worker_to_others_within_ten_seconds(kafka):
    with workers(kafka, "odradek-mirror.x->y", "w1") as (survivor,):
        shared([survivor])
        killed = Worker(kafka, "odradek-mirror.x->y", "killed")
        killed.member._join()  # it is a member and never sends a heartbeat
        began = time.monotonic()
        shared([survivor, killed])
        until(lambda: len(survivor.lanes) == LANES, "the survivor has all lanes", 30)
        took_s = time.monotonic() - began
        killed.member._disconnect()
        other = Worker(kafka, "odradek-mirror.x->y", lanes=4).start()
        other.wait()
        assert "another number of lanes" in str(other.error)
    assert took_s < limit_s()
