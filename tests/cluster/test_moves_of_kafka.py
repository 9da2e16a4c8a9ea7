"""`odradek partition move`, `moves`, `elect` and `odradek cluster wait` with clusters of Apache Kafka: 3.9.1 with ZooKeeper,
and 4.3 with KRaft. Kafka's own tool agrees with what they did."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.command import Command
from tests.clients.kafka_peer import Peer
from tests.cluster.peer_processes import Peers, tool
from tests.cluster.test_moves import BATCH_BYTES, MEGABYTE, fill

pytestmark = [
    pytest.mark.java,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("moves-of-kafka"),
]

IDS = (1, 2, 3)
SETTINGS: Mapping[str, str | int] = {
    "default.replication.factor": 2,
    "offsets.topic.replication.factor": 2,
    "offsets.topic.num.partitions": 2,
    "auto.leader.rebalance.enable": "false",
    "replica.fetch.backoff.ms": 100,
    "replica.fetch.max.bytes": BATCH_BYTES,
    "replica.fetch.response.max.bytes": BATCH_BYTES,
}
TOPIC = "orders"


class Site(NamedTuple):
    """A cluster. :param kill: ends all processes of a broker."""

    odradek: Command
    servers: str
    kill: Callable[[int], None]


def zookeeper_mode(directory: Path, stack: ExitStack) -> Site:
    """Three brokers of Kafka 3.9.1."""
    peers = stack.enter_context(Peers(directory))
    for broker_id in IDS:
        peers.start_kafka(broker_id, SETTINGS)
    servers = ",".join(f"127.0.0.1:{broker.port}" for broker in peers.brokers.values())
    return Site(Command(servers), servers, lambda broker_id: peers.brokers[broker_id].kill())


def kraft_mode(directory: Path, stack: ExitStack) -> Site:
    """Three brokers of Kafka 4.3, of which the first is also the controller."""
    settings = SETTINGS | {"broker.session.timeout.ms": 6000}
    first = stack.enter_context(Peer(directory / "1", settings))
    peers = {1: first}
    for broker_id in IDS[1:]:
        address = "PLAINTEXT://127.0.0.1:{port}"
        roles = {"node.id": broker_id, "process.roles": "broker", "listeners": address, "advertised.listeners": address}
        voters = {"controller.quorum.voters": f"1@127.0.0.1:{first.port + 1}"}
        peers[broker_id] = stack.enter_context(Peer(directory / str(broker_id), settings | roles | voters))
    servers = ",".join(peer.bootstrap_servers for peer in peers.values())
    return Site(Command(servers), servers, lambda broker_id: peers[broker_id].kill())


@pytest.fixture(scope="module", params=[zookeeper_mode, kraft_mode], ids=["zookeeper", "kraft"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with ExitStack() as stack:
        made: Site = request.param(tmp_path_factory.mktemp("kafka"), stack)
        made.odradek("cluster", "wait", "--brokers", len(IDS), *(f"--broker={broker_id}" for broker_id in IDS))
        yield made


def throttles(site: Site) -> list[str]:
    """The settings of throttles of the topic and of all brokers, as Kafka's own tool lists them."""
    entities = [("topics", TOPIC), *(("brokers", str(broker_id)) for broker_id in IDS)]
    output = "".join(
        tool("kafka.admin.ConfigCommand", "--bootstrap-server", site.servers, "--entity-type", kind,
             "--entity-name", name, "--describe")
        for kind, name in entities
    )  # fmt: skip
    return [line.strip() for line in output.splitlines() if ".replication.throttled." in line]


def test_a_broker_of_kafka_is_emptied_and_filled_again(site: Site, tmp_path: Path) -> None:
    odradek = site.odradek
    odradek("topic", "create", TOPIC, "--assignment", "3:1,3:2,1:2,2:3")
    odradek("cluster", "wait", "--in-sync", "--brokers", 3)
    fill(site.servers, TOPIC, range(4))
    odradek("consume", TOPIC, "--group", "reader", "-n", 1)

    started = odradek("partition", "move", "--off", 3, "-t", TOPIC, "--throttle", "1kB", "--yes")
    assert "are moving" in started
    moving = odradek.json("partition", "moves")
    assert [(row["topic"], row["partition"], row["removing"]) for row in moving] == [(TOPIC, n, [3]) for n in (0, 1, 3)]
    plan = tmp_path / "plan.json"
    rows = [{"topic": TOPIC, "partition": row["partition"], "replicas": row["new_replicas"]} for row in moving]
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    verified = tool("org.apache.kafka.tools.reassign.ReassignPartitionsCommand", "--bootstrap-server", site.servers,
                    "--reassignment-json-file", str(plan), "--verify", "--preserve-throttles")  # fmt: skip
    assert verified.count("is still in progress") == len(rows), verified
    assert len(throttles(site)) == 1 + len(IDS) or len(throttles(site)) == 2 + 2 * len(IDS), throttles(site)
    assert odradek.json("partition", "moves", "--cancel", "--yes")["unthrottled_brokers"] == list(IDS)
    assert odradek.json("partition", "moves") == [] and throttles(site) == []

    done = odradek.json("partition", "move", "--off", 3, "--throttle", "100MB", "--yes", "--wait")
    assert done["complete"] and {row["topic"] for row in done["moves"]} == {TOPIC, "__consumer_offsets"}
    assert throttles(site) == []
    counts = {row["id"]: row["replicas"] for row in odradek.json("cluster", "describe")["brokers"]}
    assert counts[3] == 0 and sum(counts.values()) == 12
    assert odradek.json("partition", "move", "--balance", "--yes", "--wait")["complete"]
    counts = {row["id"]: row["replicas"] for row in odradek.json("cluster", "describe")["brokers"]}
    assert set(counts.values()) == {4}
    odradek("partition", "elect")
    assert odradek.json("partition", "elect")["elections"] == []
    assert odradek("consume", TOPIC, "--from", "beginning", "--exit").count("\n") == 4 * MEGABYTE


def test_a_killed_broker_of_kafka_is_missing_at_once(site: Site) -> None:
    odradek = site.odradek
    odradek("cluster", "wait", "--in-sync", "--brokers", 3)
    site.kill(3)
    missing = odradek.run("cluster", "wait", "--in-sync", "--timeout", "0.2")
    assert missing.returncode == 1 and "odradek: broker 3 is " in missing.stderr, missing
    assert odradek.json("partition", "move", "--off", 3, "--yes", "--wait")["complete"]
    odradek("cluster", "wait", "--in-sync", "--brokers", 2)
