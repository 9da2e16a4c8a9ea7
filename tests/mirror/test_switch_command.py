"""`odradek mirror switch` beside `odradek mirror run`, as an operator uses them: there, back, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from odradek.clients import groups, topics
from odradek.clients.cluster import Cluster
from odradek.mirror.internal_topic import InternalTopic
from odradek.mirror.records import read_checkpoint, read_heartbeat
from tests.cli.command import Command
from tests.mirror.clusters import Pair, pair
from tests.mirror.commands import consume, worker
from tests.waiting import until

QUICK = {"group.initial.rebalance.delay.ms": 0}
LINES = """topics = orders
emit.heartbeats.enabled = true
emit.checkpoints.interval.seconds = 1
refresh.groups.interval.seconds = 1
sync.group.offsets.enabled = true
sync.group.offsets.interval.seconds = 1
refresh.topics.interval.seconds = 1
"""


@pytest.fixture(scope="module")
def brokers() -> Iterator[Pair]:
    with pair(QUICK, QUICK) as both:
        yield both


def produce(servers: str, numbers: range, topic: str = "orders") -> None:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "t", "linger.ms": 0})
    producer.init_transactions(30)
    for first in range(numbers.start, numbers.stop, 10):
        for values in ([b"aborted"] * 3, [b"%d" % number for number in range(first, first + 10)]):
            producer.begin_transaction()
            for value in values:
                producer.produce(topic, value, partition=0)
            if values[0] == b"aborted":
                producer.flush(30)
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)


def test_a_group_is_switched_there_and_back_while_a_worker_runs(brokers: Pair, tmp_path: Path) -> None:
    a, b = brokers.a.bootstrap_servers, brokers.b.bootstrap_servers
    command = Command(a)
    file = brokers.write(tmp_path / "mirror.properties", LINES)
    with Cluster(a) as cluster:
        topics.create(cluster, "orders", 1)
        topics.create(cluster, "private", 1)
    produce(a, range(100))
    with worker(file, tmp_path / "log") as running:
        read = consume(a, "orders", "billing", 43)
        with Cluster(a) as cluster:
            assert not groups.commit_offsets(cluster, "billing", {("private", 0): groups.CommittedOffset(0)})
        planned = command("mirror", "switch", "billing", file, "--dry-run")
        assert "would commit the offsets of 1 partition in b; nothing was changed" in planned
        with Cluster(b) as cluster:
            until(lambda: groups.fetch_offsets(cluster, "billing"), "the group's offsets follow")
            followed = groups.fetch_offsets(cluster, "billing")[("a.orders", 0)].offset
        done = command.run("mirror", "switch", "billing", file)
        assert done.returncode == 0, done
        title, header, row, end = done.stdout.splitlines()
        assert title == "group billing from a to b"
        assert header.split() == ["TOPIC", "PARTITION", "OFFSET", "TO", "TOPIC", "TO", "OFFSET", "BEFORE", "REMARK"]
        assert row.split()[0] == "orders" and row.split()[3] == "a.orders"
        assert end == "committed the offsets of 1 partition in b; its members must read a.orders there"
        assert "odradek: warning: private-0 is not mirrored between a and b: its offset 0 is not moved" in done.stderr
        assert followed <= int(row.split()[4])
        read += consume(b, "a.orders", "billing", 27)
        assert read == list(range(70))
        produce(a, range(100, 130))
        read += consume(b, "a.orders", "billing", 60)
        document = command.json("mirror", "switch", "billing", file, "--from", "b", "--to", "a")
        assert document["committed"] and document["partitions"][0]["end"] and document["partitions"][0]["exact"]
        produce(a, range(130, 150))
        read += consume(a, "orders", "billing", 20)
        assert read == list(range(150))
        with Cluster(b) as cluster:

            def checkpoint() -> bool:
                found = list(InternalTopic(cluster, "a.checkpoints.internal", -1).read(read_checkpoint))
                committed = groups.fetch_offsets(cluster, "billing")
                return bool(found) and found[-1].downstream == committed[("a.orders", 0)].offset == _end(cluster)

            until(checkpoint, "the newest checkpoint is the end of the copy")
            beats = InternalTopic(cluster, "a.heartbeats", -1)
            until(lambda: [beat[:2] for beat in beats.read(read_heartbeat)][:1] == [("b", "a")], "heartbeats come over")
        assert running.stop() == 0, running.log
    assert "cannot write" not in running.log, running.log


def _end(cluster: Cluster) -> int:
    """The offset after the last record of the copy; a marker is behind it."""
    found = topics.list_offsets(cluster, [cluster.partition("a.orders", 0)], topics.LATEST, committed_only=True)
    return found["a.orders", 0].offset - 1


def test_what_cannot_be_switched_is_refused_with_a_sentence(brokers: Pair, tmp_path: Path) -> None:
    command = Command(brokers.a.bootstrap_servers)
    file = brokers.write(tmp_path / "mirror.properties", LINES)
    command.refused("mirror", "switch", "nobody", file, words=("group 'nobody' has no committed offsets in 'a'",))
    command.refused(
        "mirror", "switch", "g", file, "--from", "a", "--to", "c", code=2, words=("--to c is not a cluster",)
    )
    command.refused("mirror", "switch", "g", file, "--from", "a", code=2, words=("name the clusters with --from",))
    with Cluster(brokers.a.bootstrap_servers) as cluster:
        topics.create(cluster, "alone", 1)
        assert not groups.commit_offsets(cluster, "private", {("alone", 0): groups.CommittedOffset(0)})
    words = ("no flow between 'a' and 'b' mirrors a topic of group 'private': alone",)
    command.refused("mirror", "switch", "private", file, words=words)
    words = ("orders-0", "does not exist in 'b'; does the mirror run?")
    with Cluster(brokers.a.bootstrap_servers) as cluster:
        topics.create(cluster, "orders-0", 1)
        assert not groups.commit_offsets(cluster, "early", {("orders-0", 0): groups.CommittedOffset(0)})
    command.refused("mirror", "switch", "early", file, "--set", "topics=orders-.*", words=words)
