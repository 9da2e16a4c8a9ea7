"""What an operator sees of a cluster of two Odradek brokers: status, doctor, metrics, `cluster check`, log directories, lag."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.cli.health.local import examine_broker
from odradek.cli.inspection.local_broker import find, status_of
from odradek.metadata import znodes
from odradek.metadata.zookeeper import ZookeeperStore
from odradek.metadata.zookeeper_connection import ZookeeperOptions
from odradek.testing.broker_process import Broker
from tests.cli.command import Command
from tests.cluster import our_brokers, shown
from tests.metrics.scraping import scrape
from tests.waiting import until
from tests.zookeeper import ZookeeperServer

pytestmark = [pytest.mark.xdist_group("operator-views"), pytest.mark.timeout(600)]

IDS = (1, 2)
PARTITIONS = 2
TOPIC = "orders"


class Site:
    """Two brokers and ZooKeeper; the topic `orders` has two replicas of each partition, `single` one at broker 1."""

    def __init__(self, zookeeper: ZookeeperServer, brokers: dict[int, Broker]) -> None:
        self.zookeeper, self.brokers = zookeeper, brokers
        self.odradek = Command(",".join(broker.bootstrap_servers for broker in brokers.values()))

    def in_sync(self) -> bool:
        found = shown.in_sync(self.brokers[1].bootstrap_servers, TOPIC)
        return len(found) == PARTITIONS and all(members == set(IDS) for members in found.values())

    def status(self, broker_id: int) -> Any:
        return status_of(*find(None, (), str(self.brokers[broker_id].data_dir), None))["cluster"]

    def check(self, topic: str) -> tuple[int, set[tuple[int, str, str, str]]]:
        """The exit code of `cluster check`, and (broker, field, in the tree, reported) of each difference."""
        done = self.odradek.run("cluster", "check", "--topic", topic, "--json", "--settle", "0.1")
        rows = json.loads(done.stdout)["differences"] if done.stdout else []
        return done.returncode, {(row["broker_id"], row["field"], row["in_tree"], row["reported"]) for row in rows}

    def metrics(self, broker_id: int) -> dict[str, float]:
        lines = scrape(self.brokers[broker_id]).text.splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory: Path = tmp_path_factory.mktemp("site")
    config = {
        "zookeeper.session.timeout.ms": 30_000,
        "offsets.topic.num.partitions": 2,
        "offsets.topic.replication.factor": 2,
        "metrics.listener": "127.0.0.1:0",
    }
    with ZookeeperServer() as zookeeper:
        config["zookeeper.connect"] = f"{zookeeper.hosts}/views"
        with our_brokers.started(directory, IDS, config) as brokers:
            made = Site(zookeeper, brokers)
            until(lambda: shown.brokers(brokers[1].bootstrap_servers)[1] == set(IDS), "both brokers are registered")
            made.odradek("topic", "create", TOPIC, "--assignment", "1:2,2:1")
            made.odradek("topic", "create", "single", "--assignment", "1")
            until(made.in_sync, "all replicas are in sync")
            made.odradek("produce", TOPIC, stdin="".join(f"value {n}\n" for n in range(100)))
            yield made


def test_the_status_shows_the_membership(site: Site) -> None:
    controller, _ = shown.brokers(site.brokers[1].bootstrap_servers)
    for broker_id in IDS:
        until(lambda broker_id=broker_id: site.status(broker_id)["controller"] == controller, "the controller is known")
        found = site.status(broker_id)
        assert found["registered"] and found["broker_epoch"] > 0
        assert found["zookeeper"]["connect"] == f"{site.zookeeper.hosts}/views"
        assert found["zookeeper"]["state"] == "connected" and found["zookeeper"]["since_s"] > 0
        assert {broker["id"] for broker in found["brokers"]} == set(IDS)
        replicas = found["replicas"]
        assert replicas["led"] >= 1 and replicas["followed"] >= 1 and replicas["under_replicated"] == 0
        text = site.odradek("status", "--data-dir", site.brokers[broker_id].data_dir)
        assert re.search(r"membership   registered, broker epoch \d+; live brokers: 1, 2; controller: ", text)


def test_replication_is_no_usage_of_clients(site: Site) -> None:
    prefix = "kafka_server_brokertopicmetrics_"

    def total(name: str) -> float:
        return sum(site.metrics(broker_id)[f"{prefix}{name}_total"] for broker_id in IDS)

    until(lambda: total("replicationbytesin") == total("replicationbytesout") > 0, "followers count what leaders sent")
    assert total("bytesout") == 0, "no client has consumed"
    for broker_id in IDS:
        found = site.metrics(broker_id)
        assert found["odradek_broker_registered"] == 1 and found["odradek_zookeeper_disconnected_seconds"] == 0
        assert found[f'kafka_server_fetcherlagmetrics_consumerlag{{partition="{2 - broker_id}",topic="{TOPIC}"}}'] == 0


def test_a_cluster_without_problems_has_no_findings_and_no_differences(site: Site) -> None:
    for broker_id in IDS:
        assert examine_broker(str(site.brokers[broker_id].data_dir)) == []
    assert site.odradek.json("doctor")["findings"] == []
    report = site.odradek.json("cluster", "check")
    assert report["differences"] == report["silent"] == [] and report["partitions"] >= PARTITIONS + 1
    assert "no differences" in site.odradek(
        "cluster", "check", "--topic", TOPIC, "--zookeeper", f"{site.zookeeper.hosts}/views"
    )


def test_settings_that_endanger_records_are_findings(site: Site) -> None:
    settings = {"min.insync.replicas": "2", "unclean.leader.election.enable": "true"}
    site.odradek("config", "set", "--topic", TOPIC, *(f"{key}={value}" for key, value in settings.items()))
    try:
        found = {finding["what"] for finding in site.odradek.json("doctor")["findings"]}
        assert found == {
            "1 topic whose min.insync.replicas is the number of replicas",
            "1 topic with unclean.leader.election.enable=true",
        }
    finally:
        site.odradek("config", "set", "--topic", TOPIC, *(word for key in settings for word in ("--unset", key)))


def test_a_tree_that_was_changed_by_hand_differs_from_the_brokers(site: Site) -> None:
    topic = "changed"
    site.odradek("topic", "create", topic, "--assignment", "1:2")
    until(lambda: site.check(topic)[0] == 0, "the topic is created everywhere")
    path = znodes.state_path(topic, 0)
    store = ZookeeperStore(ZookeeperOptions(f"{site.zookeeper.hosts}/views"))
    store.start_session()
    try:
        state = znodes.decode_state(topic, 0, store.get(path)[0])
        wrong = state._replace(leader_epoch=state.leader_epoch + 7, in_sync_replicas=[1])
        store.set(path, znodes.encode_state(wrong))
        code, found = site.check(topic)
        epochs = (str(wrong.leader_epoch), str(state.leader_epoch))
        expected = {(broker_id, "leader epoch", *epochs) for broker_id in IDS}
        expected |= {(broker_id, "in sync", "1", "1,2") for broker_id in IDS}
        assert (code, found) == (1, expected)
        assert "LeaderAndIsr" in site.odradek.run("cluster", "check", "--settle", "0.1").stdout
        store.set(path, znodes.encode_state(state))
        assert site.check(topic) == (1, {(1, "partition epoch", "2", "0")}), (
            "the leader cannot change the node any more"
        )
    finally:
        store.end_session()
        store.close()


def test_the_loss_of_zookeeper_is_a_finding(site: Site) -> None:
    site.zookeeper.pause()
    try:
        until(lambda: site.status(1)["zookeeper"]["state"] != "connected", "the broker notices the loss")
        subjects = {finding.subject for finding in examine_broker(str(site.brokers[1].data_dir))}
        assert subjects & {"ZooKeeper", "membership"}
        until(lambda: site.metrics(1)["odradek_zookeeper_disconnected_seconds"] > 0, "the metric shows it")
    finally:
        site.zookeeper.resume()
    until(
        lambda: site.status(1)["registered"] and site.status(1)["zookeeper"]["state"] == "connected",
        "it is connected again",
    )
