"""Odradek's brokers leave the same tree in ZooKeeper as Kafka's after the same actions of an administrator.

Three brokers of each execute `golden_script` side by side. After each step both trees must become equal, apart from
`DEPARTURES`, which docs/decisions/0028-cluster.md describes. ODRADEK_GOLDEN_ALL=1 shows the differences of all steps.
"""

import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from odradek.metadata import znodes
from odradek.testing.broker_process import Broker
from tests.clients.kafka_tools import KafkaTools
from tests.cluster.golden_script import BY_CHANCE, IDS, SCRIPT, Side, Step
from tests.cluster.golden_trees import TOPIC, Apply, Comparison, Departure, Fields
from tests.cluster.peer_processes import VERSION, JavaProcess, Peers
from tests.waiting import until

pytestmark = [pytest.mark.xdist_group("golden-trees"), pytest.mark.timeout(600)]

SHOW_ALL = "ODRADEK_GOLDEN_ALL" in os.environ
EQUAL_WITHIN_S = 5.0 if SHOW_ALL else 30.0
SETTINGS = {
    "zookeeper.session.timeout.ms": 6000,
    "auto.leader.rebalance.enable": "false",
    "offsets.topic.num.partitions": 2,
    "offsets.topic.replication.factor": 3,
    "default.replication.factor": 2,
}
SMALL_HEAP = {"log.cleaner.dedupe.buffer.size": 2 << 20}
"""A change of a setting of all brokers restarts Kafka's cleaner, which allocates this buffer. If it cannot, the broker applies
no setting any more."""


def without(*fields: str) -> Apply:
    """Compare nodes without these fields."""
    return lambda node, _: {name: value for name, value in node.items() if name not in fields}


def one_write_less(node: Fields, of_kafka: bool) -> Fields:
    """Compare states with those of Kafka before its last write of a failover, which changed only the leader and the epoch."""
    if of_kafka and node["data"]["controller_epoch"] > 1:
        node["data"] = node["data"] | {"leader_epoch": node["data"]["leader_epoch"] - 1}
        node["version"] -= 1
    return node


DEPARTURES = {
    "settings of groups": Departure(
        znodes.GROUP_CONFIGS, "Odradek has settings of groups, and makes sure of their node.", lambda node, _: None
    ),
    "writes of topics": Departure(
        TOPIC.pattern,
        "Reassignments that complete together are one write of the topic, not one for each partition.",
        without("version"),
    ),
    "failover": Departure(
        rf"{znodes.TOPICS}/(assigned/partitions/[02]|plain/partitions/0)/state",
        "If the dead controller led a partition, Kafka's next controller removes it from the in-sync replicas, then elects a "
        "leader in another write and epoch. Odradek's writes once.",
        one_write_less,
    ),
}


class KafkaMember:
    """A Kafka broker as a member of the script."""

    def __init__(self, process: JavaProcess, configuration: Path) -> None:
        self._process, self._configuration = process, configuration

    def start(self) -> None:
        self._process.start(self._configuration)

    def stop(self) -> None:
        self._process.stop()

    def kill(self) -> None:
        self._process.kill()

    def applied(self, entity: str, setting: str) -> bool:
        found = f"Processing override for entityPath: {entity} with config: "
        return any(found in line and setting in line for line in self._process.log().splitlines())


class OwnMember:
    """An Odradek broker as a member of the script."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def start(self) -> None:
        self._broker.start()

    def stop(self) -> None:
        self._broker.stop()

    def kill(self) -> None:
        self._broker.kill_group()

    def applied(self, entity: str, setting: str) -> bool:
        return True  # `hold` needs no settings

    def hold(self, number: int) -> None:
        """Send a signal to the process that fetches from leaders."""
        (pid,) = (int(row["pid"]) for row in self._broker.processes() if row["kind"] == "replicator")
        os.kill(pid, number)


class Clusters:
    """Both clusters, with one ZooKeeper. Used as a context manager, which ends all processes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stack = ExitStack()

    def __enter__(self) -> "Clusters":
        with ExitStack() as stack:
            self._peers = stack.enter_context(Peers(self._directory))
            self._stack = stack
            with ThreadPoolExecutor(2) as threads:
                kafka, ours = threads.submit(self._kafka), threads.submit(self._odradek)
                self.kafka, self.ours = kafka.result(), ours.result()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _client(self, chroot: str) -> KazooClient:
        client = KazooClient(f"{self._peers.connect}/{chroot}", timeout=60)
        client.start(30)
        self._stack.callback(client.close)
        self._stack.callback(client.stop)
        return client

    def _kafka(self) -> Side:
        members = {}
        for broker_id in IDS:
            settings = SETTINGS | SMALL_HEAP | {"zookeeper.connect": f"{self._peers.connect}/kafka"}
            process = self._peers.start_kafka(broker_id, settings)
            members[broker_id] = KafkaMember(process, process.directory / "server.properties")
        servers = ",".join(f"127.0.0.1:{process.port}" for process in self._peers.brokers.values())
        return self._side("kafka", members, servers, lambda broker_id, number: None)

    def _odradek(self) -> Side:
        members = {}
        servers = []
        for broker_id in IDS:
            settings = SETTINGS | {
                "broker.id": broker_id,
                "zookeeper.connect": f"{self._peers.connect}/odradek",
                "num.network.threads": 1,
                "group.initial.rebalance.delay.ms": 0,
            }
            broker = self._stack.enter_context(Broker(settings, directory=self._directory / f"odradek-{broker_id}"))
            members[broker_id] = OwnMember(broker)
            servers.append(broker.bootstrap_servers)
        return self._side(
            "odradek", members, ",".join(servers), lambda broker_id, number: members[broker_id].hold(number)
        )

    def _side(self, name: str, members: Mapping, servers: str, hold) -> Side:
        directory = self._directory / f"tools-{name}"
        directory.mkdir()
        tools = self._stack.enter_context(KafkaTools(servers, directory / "errors", VERSION))
        return Side(name, members, servers, self._client(name), tools, directory, hold)


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[Clusters]:
    with Clusters(tmp_path) as clusters:
        yield clusters


def test_both_trees_are_equal_after_each_step(clusters: Clusters) -> None:
    comparison = Comparison(DEPARTURES, BY_CHANCE)
    sides = (clusters.kafka, clusters.ours)
    differences: dict[str, list[str]] = {}

    def difference() -> list[str]:
        return comparison.difference(*(side.tree() for side in sides))

    def execute(step: Step, side: Side) -> None:
        step.do(side)
        side.wait(step.done, step.name)

    with ThreadPoolExecutor(len(sides)) as threads:
        for step in SCRIPT:
            print(time.strftime("%X"), step.name, flush=True)
            for executed in [threads.submit(execute, step, side) for side in sides]:
                executed.result()
            try:
                until(lambda: not difference(), "equal", EQUAL_WITHIN_S)
            except AssertionError:
                differences[step.name] = difference()
                print("\n".join(differences[step.name]))
                if not SHOW_ALL:
                    break
    texts = [f"after the step {name!r}:\n" + "\n".join(lines) for name, lines in differences.items()]
    assert not differences, "the trees differ " + "\n".join(texts)
    assert comparison.used == set(DEPARTURES), f"departures that do not occur: {set(DEPARTURES) - comparison.used}"
