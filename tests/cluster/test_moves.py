"""`odradek partition move`, `moves`, `elect` and `odradek cluster wait` with a cluster of three brokers: a broker is emptied,
removed and added again while producers write, throttles leave nothing behind, and an unclean election asks first."""

import signal
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from odradek.testing.broker_process import Broker
from tests.cli.command import Command
from tests.cli.framework.test_interrupt import assert_stopped, start
from tests.cluster import our_brokers
from tests.faults.checker import faults, read_partitions
from tests.faults.load import Load
from tests.waiting import until
from tests.zookeeper import ZookeeperServer

pytestmark = [pytest.mark.xdist_group("moves"), pytest.mark.timeout(600)]

IDS = (1, 2, 3)
TOPIC = "load"
PARTITIONS = 6
MEGABYTE = 1000
"""Records of 1000 bytes."""
THROTTLED = ("leader.replication.throttled", "follower.replication.throttled")


BATCH_BYTES = 10_000


def fill(servers: str, topic: str, partitions: Iterable[int]) -> None:
    """Write a megabyte into each partition, in batches of `BATCH_BYTES` at most."""
    producer = Producer({"bootstrap.servers": servers, "batch.size": BATCH_BYTES, "acks": "all", "log_level": 0})
    for partition in partitions:
        for _ in range(MEGABYTE):
            producer.produce(topic, bytes(1000), partition=partition)
        assert producer.flush(90) == 0


class Site:
    """Three brokers and ZooKeeper."""

    def __init__(self, brokers: dict[int, Broker]) -> None:
        self.brokers = brokers
        self.servers = ",".join(broker.bootstrap_servers for broker in brokers.values())
        self.odradek = Command(self.servers)

    def replicas(self) -> dict[int, int]:
        """How many replicas each registered broker has."""
        rows = self.odradek.json("cluster", "describe")["brokers"]
        return {row["id"]: row["replicas"] for row in rows if row["registered"]}

    def directories(self, broker_id: int) -> list[str]:
        """The directories of partitions in the log directory of a broker, without those that it deletes later."""
        paths = self.brokers[broker_id].data_dir.iterdir()
        return sorted(path.name for path in paths if path.is_dir() and not path.name.endswith("-delete"))

    def throttles(self, topic: str) -> list[str]:
        """The settings of throttles of a topic and of all brokers."""
        rows: list[Any] = self.odradek.json("config", "get", "--topic", topic, "--changed")
        for broker_id in IDS:
            rows += self.odradek.json("config", "get", "--broker", broker_id, "--changed")
        return [row["key"] for row in rows if row["key"].startswith(THROTTLED)]

    def fill(self, topic: str, assignment: str) -> None:
        """Create a topic with a megabyte of records in small batches, of which a follower fetches one at a time."""
        self.odradek("topic", "create", topic, "--assignment", assignment)
        self.odradek("cluster", "wait", "--in-sync")
        fill(self.servers, topic, [0])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory: Path = tmp_path_factory.mktemp("moves")
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZookeeperServer())
        settings = {
            "zookeeper.connect": f"{zookeeper.hosts}/moves",
            "zookeeper.session.timeout.ms": 30_000,
            "controlled.shutdown.retry.backoff.ms": 100,
            "auto.leader.rebalance.enable": "false",
            "auto.create.topics.enable": "false",
            "replica.fetch.max.bytes": BATCH_BYTES,
            "group.initial.rebalance.delay.ms": 0,
            "offsets.topic.num.partitions": 2,
            "offsets.topic.replication.factor": 2,
        }
        brokers = stack.enter_context(our_brokers.started(directory, IDS, settings))
        made = Site(brokers)
        made.odradek("cluster", "wait", "--brokers", len(IDS), *(f"--broker={broker_id}" for broker_id in IDS))
        yield made


def test_a_broker_is_emptied_removed_and_added_while_producers_write(site: Site) -> None:
    odradek = site.odradek
    odradek("topic", "create", TOPIC, "--assignment", "3:1,3:2,1:3,2:3,1:2,2:1")
    odradek("topic", "create", "everywhere", "--assignment", "1:2:3")
    odradek("cluster", "wait", "--in-sync")
    odradek("consume", TOPIC, "--group", "reader", "--exit")  # creates __consumer_offsets
    with Load(site.servers, TOPIC, PARTITIONS, idempotent=1, plain=1, burst=1) as load:
        load.progress(50)
        odradek.refused(
            "partition", "move", "--off", 3, "--yes", words=["'everywhere'", "replication factor 3", "without broker 3"]
        )
        odradek("topic", "delete", "everywhere", "--yes")
        plan = odradek.json("partition", "move", "--off", 3, "--dry-run")
        assert {row["topic"] for row in plan["moves"]} == {TOPIC, "__consumer_offsets"}
        assert plan["dry_run"] and not plan["complete"] and plan["bytes_to_copy"] > 0
        odradek.refused("partition", "move", "--off", 3, "--json", words=["--yes"])

        done = odradek.json("partition", "move", "--off", 3, "--throttle", "50MB", "--yes", "--wait")
        assert done["complete"] and done["throttled"] and done["skipped"] == []
        assert [row["new_replicas"] for row in done["moves"] if row["topic"] == TOPIC] == [
            [2, 1],
            [1, 2],
            [1, 2],
            [2, 1],
        ]
        assert site.replicas()[3] == 0 and site.throttles(TOPIC) == []
        assert site.directories(3) == [], "no logs are left when the command ends"
        assert "broker 3 has no replicas" in odradek("partition", "move", "--off", 3, "--yes", "--wait")
        load.progress(50)

        site.brokers[3].stop()
        assert odradek("cluster", "wait", "--in-sync", "--brokers", 2).startswith("2 brokers are registered")
        late = odradek.run("cluster", "wait", "--in-sync", "--broker", 3, "--timeout", "0.2")
        assert late.returncode == 1 and "odradek: broker 3 is not registered\n" in late.stderr
        load.progress(50)
        site.brokers[3].start()
        odradek("cluster", "wait", "--in-sync", "--broker", 3)

        assert odradek.json("partition", "move", "--balance", "--yes", "--wait")["complete"]
        counts = site.replicas()
        assert max(counts.values()) - min(counts.values()) <= 1, counts
        odradek("partition", "elect")
        assert odradek.json("partition", "elect")["elections"] == [], "all preferred leaders lead"
        load.progress(50)
        load.finish()
    acknowledged = {record: place for producer in load.producers for record, place in producer.acknowledged.items()}
    assert not [producer.failed or producer.fatal for producer in load.producers if producer.failed or producer.fatal]
    idempotent = [producer.name for producer in load.producers if producer.idempotent]
    assert faults(read_partitions(site.servers, TOPIC, PARTITIONS), acknowledged, idempotent) == []


def test_preferred_leaders_are_elected_again_after_a_restart(site: Site) -> None:
    odradek = site.odradek
    odradek("topic", "create", "restarted", "--assignment", "2:1,2:3,1:3")
    odradek("cluster", "wait", "--in-sync")
    site.brokers[2].stop()
    done = odradek.run("partition", "elect", "-t", "restarted")
    assert done.returncode == 1 and "0 leaders elected, 2 not" in done.stdout
    site.brokers[2].start()
    odradek("cluster", "wait", "--in-sync", "--broker", 2)
    rows = odradek.json("partition", "elect", "-t", "restarted")["elections"]
    assert [(row["partition"], row["before"], row["after"], row["problem"]) for row in rows] == [
        (0, 1, 2, None),
        (1, 3, 2, None),
    ]


def test_an_interrupted_move_continues_and_leaves_no_throttle_behind(site: Site) -> None:
    odradek, topic = site.odradek, "slow"
    site.fill(topic, "1:3")
    move = ("partition", "move", "--off", 3, "-t", topic, "--throttle", "1kB", "--yes", "--wait")
    with start(*move, servers=site.servers) as process:
        until(lambda: odradek.json("partition", "moves"), "the reassignment is in progress")
        words = ["continue", "cancel", "`odradek partition moves --finish` removes the throttle"]
        assert_stopped(process, signal.SIGINT, *words)
    (row,) = odradek.json("partition", "moves", "-t", topic)
    assert (row["new_replicas"], row["removing"], row["copied_to"]) == ([1, 2], [3], 2)
    assert row["bytes"] < row["leader_bytes"], "1 MB at 1 kB/s takes a quarter of an hour"
    finished = odradek("partition", "moves", "--finish")
    assert "1 reassignment is still in progress" in finished and "the throttled rates stay" in finished
    waited = odradek.run("partition", "moves", "--wait", "--timeout", "0.1")
    assert waited.returncode == 1 and "still in progress" in waited.stdout
    assert len(site.throttles(topic)) == 2 + 2 * len(IDS)

    again = odradek.json("partition", "move", "--off", 3, "-t", topic, "--throttle", "50MB/s", "--yes", "--wait")
    assert again["moves"] == [] and [row["topic"] for row in again["in_progress"]] == [topic] and again["complete"]
    assert site.throttles(topic) == [], "the rates of the first command are not restored"


def test_a_move_is_cancelled_with_its_throttle(site: Site) -> None:
    odradek, topic = site.odradek, "cancelled"
    site.fill(topic, "1:3")
    started = odradek("partition", "move", "--off", 3, "-t", topic, "--throttle", "1kB", "--yes")
    assert "are moving" in started and "--finish" in started
    odradek.refused("partition", "moves", "--cancel", words=["new replicas are deleted", "--yes"])
    assert "would cancel the reassignments of 1 partition" in odradek("partition", "moves", "--cancel", "--dry-run")
    done = odradek.json("partition", "moves", "--cancel", "--yes")
    assert done["cancelled"] == [{"topic": topic, "partition": 0, "problem": None}]
    assert done["unthrottled_topics"] == [topic] and done["unthrottled_brokers"] == list(IDS)
    assert odradek.json("partition", "moves") == [] and site.throttles(topic) == []
    assert sorted(odradek.json("topic", "describe", topic)["partitions"][0]["replicas"]) == [1, 3]


def test_two_moves_at_once_keep_the_rates_until_the_last_one_ends(site: Site) -> None:
    odradek = site.odradek
    site.fill("first", "1:3")
    odradek("topic", "create", "second", "--assignment", "1:3")  # empty: nothing has to be copied
    odradek("cluster", "wait", "--in-sync")
    odradek("partition", "move", "--off", 3, "-t", "first", "--throttle", "1kB", "--yes")
    second = odradek.run("partition", "move", "--off", 3, "-t", "second", "--throttle", "5kB", "--yes", "--wait")
    assert second.returncode == 0, second.stderr
    assert "the rates of the brokers 1, 2, 3 stay, because another reassignment is in progress" in second.stderr
    assert set(site.throttles("second")) == {f"{kind}.rate" for kind in THROTTLED}, "no list of the topic"
    (row,) = odradek.json("partition", "moves")
    assert row["topic"] == "first", "1 MB at 5 kB/s takes some minutes"
    odradek("partition", "moves", "--cancel", "--yes")
    assert site.throttles("first") == site.throttles("second") == []


def test_throttled_replicas_of_an_operator_stay(site: Site) -> None:
    odradek, topic = site.odradek, "operated"
    site.fill(topic, "1:3")
    odradek("config", "set", "--topic", topic, f"{THROTTLED[0]}.replicas=0:1,0:7")
    assert odradek.json("partition", "move", "--off", 3, "-t", topic, "--throttle", "50MB", "--yes", "--wait")[
        "complete"
    ]
    assert site.throttles(topic) == [f"{THROTTLED[0]}.replicas"]
    (row,) = (
        row for row in odradek.json("config", "get", "--topic", topic, "--changed") if row["key"].startswith(THROTTLED)
    )
    assert row["value"] == "0:1,0:7"


def test_an_unclean_election_chooses_a_live_replica(site: Site) -> None:
    odradek = site.odradek
    odradek("topic", "create", "alone", "--assignment", "3:2")
    odradek("cluster", "wait", "--in-sync")
    site.brokers[2].stop()
    odradek("produce", "alone", stdin="only at broker 3\n")
    site.brokers[3].stop()
    site.brokers[2].start()
    odradek("cluster", "wait", "--broker", 2)
    refused = odradek.run("partition", "move", "--off", 3, "-t", "alone", "--yes")
    assert refused.returncode == 1 and "alone-0 is not moved: it has no leader" in refused.stderr
    odradek.refused("partition", "elect", "--unclean", "-t", "alone", words=["alone-0 (in sync: 3)", "lost for ever"])
    (row,) = odradek.json("partition", "elect", "--unclean", "-t", "alone", "--yes")["elections"]
    assert (row["before"], row["after"], row["problem"]) == (None, 2, None)
    site.brokers[3].start()
    odradek("cluster", "wait", "--in-sync", "--broker", 3)
    assert odradek("consume", "alone", "--from", "beginning", "--exit") == "", "the record was lost, as announced"
