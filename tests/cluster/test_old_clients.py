"""Kafka 0.8.2.2's high-level consumer, SimpleConsumer and old producer with three Odradek brokers and ZooKeeper.

The high-level consumer finds brokers, topics and the other members of its group in ZooKeeper, and registers there itself.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from odradek.testing.broker_process import Broker
from tests.cli.command import Command
from tests.cluster import our_brokers, shown
from tests.cluster.old_clients import EARLIEST, LATEST, OldClients, Record
from tests.cluster.test_odradek_cluster import IDS, Cluster
from tests.waiting import until
from tests.zookeeper import ZookeeperServer

pytestmark = [pytest.mark.xdist_group("old-clients"), pytest.mark.timeout(900)]

PARTITIONS = 4
SESSION_MS = 6000
RECORDS = 50
NOT_LEADER, REPLICA_NOT_AVAILABLE = 6, 9


class Site(Cluster):
    """The cluster, its ZooKeeper, and a JVM with old clients."""

    def __init__(self, brokers: dict[int, Broker], connect: str, nodes: KazooClient, clients: OldClients) -> None:
        super().__init__(brokers)
        self.connect, self.nodes, self.clients = connect, nodes, clients
        self.odradek = Command(",".join(self.servers()))

    def create(self, topic: str, assignment: dict[int, list[int]]) -> None:
        """Create a topic and wait until all brokers show its leaders."""
        self.odradek(
            "topic", "create", topic, "--assignment", ",".join(":".join(map(str, ids)) for ids in assignment.values())
        )
        self.wait_for_leaders(topic, {partition: ids[0] for partition, ids in assignment.items()})

    def spread(self, topic: str) -> None:
        """Create a topic with four partitions of three replicas."""
        self.create(topic, {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2], 3: [1, 3, 2]})

    def fill(self, topic: str, first: int = 0, count: int = RECORDS) -> set[str]:
        """Let the old producer send values to each partition of a topic. Returns the values."""
        values = set()
        for partition in range(PARTITIONS):
            sent = [f"{partition}/{n}" for n in range(first, first + count)]
            self.clients.produce(self.servers(), topic, partition, sent, request_required_acks=-1)
            values.update(sent)
        return values

    def children(self, path: str) -> list[str]:
        """The names of a node's children; none if it does not exist."""
        try:
            return sorted(self.nodes.get_children(path))
        except NoNodeError:
            return []

    def data(self, path: str) -> dict[int, str]:
        """The data of the children of a node, whose names are partitions."""
        found = {}
        for name in self.children(path):
            try:
                found[int(name)] = self.nodes.get(f"{path}/{name}")[0].decode()
            except NoNodeError:
                pass  # it was deleted meanwhile
        return found

    def owners(self, group: str, topic: str) -> dict[int, str]:
        """The consumers that own the partitions of a topic, by the tree."""
        owners = self.data(f"/consumers/{group}/owners/{topic}")
        return {number: thread.removeprefix(f"{group}_").rpartition("-")[0] for number, thread in owners.items()}

    def in_tree(self, group: str, topic: str) -> dict[int, int]:
        """The offsets that a group has in the tree."""
        return {number: int(text) for number, text in self.data(f"/consumers/{group}/offsets/{topic}").items()}

    def in_log(self, group: str, topic: str) -> dict[int, int]:
        """The offsets that a group has in `__consumer_offsets`."""
        rows = self.odradek.json("group", "describe", group)["offsets"]
        return {row["partition"]: row["committed"] for row in rows if row["topic"] == topic}

    def wait_for_owners(self, group: str, topic: str, *names: str) -> dict[int, str]:
        """Wait until these consumers, and no others, own all partitions of a topic. Returns the owners."""

        def shared() -> dict[int, str] | None:
            found = self.owners(group, topic)
            return found if len(found) == PARTITIONS and set(found.values()) == set(names) else None

        found = until(shared, lambda: f"{names} own {topic}: {self.owners(group, topic)}; {self.clients.log_tail()}")
        assert found is not None
        return found


def values_of(records: list[Record]) -> set[str]:
    return {value for _, _, _, value in records}


def wait_for_values(read: Callable[[], list[Record]], expected: set[str]) -> list[Record]:
    """Wait until consumers have received these values. Returns the records."""
    until(lambda: values_of(read()) >= expected, lambda: f"not received: {sorted(expected - values_of(read()))[:20]}")
    found = read()
    assert values_of(found) == expected
    return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory: Path = tmp_path_factory.mktemp("old")
    with ZookeeperServer() as zookeeper:
        connect = f"{zookeeper.hosts}/old"
        config = {
            "zookeeper.connect": connect,
            "zookeeper.session.timeout.ms": SESSION_MS,
            "offsets.topic.num.partitions": 3,
            "offsets.topic.replication.factor": 3,
            "default.replication.factor": 3,
        }
        with (
            our_brokers.started(directory, IDS, config) as brokers,
            OldClients(connect, directory / "clients.log") as clients,
            closing(KazooClient(connect)) as nodes,
        ):
            nodes.start()
            made = Site(brokers, connect, nodes, clients)
            made.wait_for_brokers(set(IDS))
            yield made
            nodes.stop()


@contextmanager
def without(site: Site, broker_id: int) -> Iterator[list[str]]:
    """Kill a broker; yields the addresses of the others. At the end it runs again, and all replicas are in sync."""
    site.brokers[broker_id].kill_group()
    try:
        yield site.servers(*set(IDS) - {broker_id})
    finally:
        site.brokers[broker_id].start()
        site.wait_for_brokers(set(IDS))
        address = site.brokers[broker_id].bootstrap_servers
        names = shown.topics(address)
        until(
            lambda: all(members == set(IDS) for name in names for members in shown.in_sync(address, name).values()),
            lambda: f"all in sync: {[shown.in_sync(address, name) for name in names]}",
        )


@contextmanager
def consuming(clients: OldClients, group: str, topics: list[str], *names: str, **settings: object) -> Iterator[None]:
    """Consumers of a group, which leave it at the end."""
    for name in names:
        clients.consume(name, group, topics, **settings)
    try:
        yield
    finally:
        for name in names:
            clients.stop(name)


@pytest.mark.parametrize("acks", [1, -1])
def test_the_old_producer_and_simple_consumer_follow_the_leader(site: Site, acks: int) -> None:
    topic, clients = f"simple{acks}", site.clients
    site.create(topic, {0: [1, 2, 3]})
    sent = [f"{n}" for n in range(RECORDS)]
    clients.produce(site.servers(3), topic, 0, sent, request_required_acks=acks)

    def leader(servers: list[str]) -> int:
        """The leader that all of these brokers return. Responses of version 0 contain only live replicas: those that the
        controller knows to be alive, so that a killed leader is among them until its session ends."""
        found = [clients.ask("leader", server, topic, 0) for server in servers]
        for answer in found:
            if answer["leader"] > 0 and site.brokers[answer["leader"]].bootstrap_servers in servers:
                expected = (3, 0) if len(servers) == 3 else (2, REPLICA_NOT_AVAILABLE)
                assert (answer["replicas"], answer["error"]) == expected
                assert f"{answer['host']}:{answer['port']}" == site.brokers[answer["leader"]].bootstrap_servers
        ids = {answer["leader"] for answer in found}
        return ids.pop() if len(ids) == 1 else -1

    def fetched(broker_id: int) -> list[str]:
        answer = clients.ask("fetch", site.brokers[broker_id].bootstrap_servers, topic, 0, offset=0)
        assert answer["code"] == 0
        return [value for _, _, _, value in answer["records"]]

    assert leader(site.servers()) == 1
    assert fetched(1) == sent
    assert clients.ask("fetch", site.servers(2)[0], topic, 0, offset=0)["code"] == NOT_LEADER
    assert clients.ask("offsets", site.servers(1)[0], topic, 0, time=LATEST) == {"code": 0, "offsets": [RECORDS]}
    with without(site, 1) as others:
        until(lambda: leader(others) in (2, 3), "another broker leads")
        clients.produce(site.servers(), topic, 0, sent, request_required_acks=acks)
        successor = leader(others)
        until(lambda: len(fetched(successor)) >= 2 * RECORDS, "the high watermark contains all records")
        assert fetched(successor) == 2 * sent
        address = site.servers(successor)[0]
        assert clients.ask("offsets", address, topic, 0, time=EARLIEST) == {"code": 0, "offsets": [0]}


def test_two_consumers_of_a_group_share_the_partitions_and_one_takes_over(site: Site) -> None:
    topic, group, clients = "shared", "sharing", site.clients
    site.spread(topic)
    sent = site.fill(topic)
    clients.consume("a", group, [topic])
    site.wait_for_owners(group, topic, "a")
    wait_for_values(lambda: clients.records("a"), sent)
    clients.commit("a")
    ends = dict.fromkeys(range(PARTITIONS), RECORDS)
    assert site.in_tree(group, topic) == ends
    with OldClients(site.connect, site.brokers[1].directory / "b.log") as second:
        second.consume("b", group, [topic])
        owners = site.wait_for_owners(group, topic, "a", "b")
        assert sorted(owners.values()) == ["a", "a", "b", "b"]
        assert site.children(f"/consumers/{group}/ids") == [f"{group}_a", f"{group}_b"]
        more = site.fill(topic, first=RECORDS)
        wait_for_values(lambda: clients.records("a") + second.records("b"), sent | more)
        owned = {number for number, name in owners.items() if name == "b"}
        assert {number for _, number, _, _ in second.records("b")} == owned
        assert {offset for _, _, offset, _ in second.records("b")} == set(range(RECORDS, 2 * RECORDS))
        second.kill()  # it has committed nothing
        site.wait_for_owners(group, topic, "a")
        expected = {value for value in more if int(value[0]) in owned}
        until(lambda: values_of(clients.records("a")) >= expected, "the other consumer reads them again")
        second.__enter__()
        second.consume("b", group, [topic])
        site.wait_for_owners(group, topic, "a", "b")
        clients.commit("a")
        clients.stop("a")
        site.wait_for_owners(group, topic, "b")
        second.stop("b")
    assert site.children(f"/consumers/{group}/ids") == []
    assert site.owners(group, topic) == {}


@pytest.mark.parametrize("kind", ["whitelist", "blacklist"])
def test_a_topic_filter_finds_new_topics(site: Site, kind: str) -> None:
    clients, group = site.clients, f"filtering-{kind}"
    for topic in (f"{kind}-one", f"other-than-{kind}"):
        site.spread(topic)
    # a blacklist names all topics but those of this test
    pattern = f"{kind}-.*" if kind == "whitelist" else f"(?!{kind}-).*"
    clients.consume("f", group, topic_filter={kind: pattern})
    sent = site.fill(f"{kind}-one")
    site.fill(f"other-than-{kind}")
    wait_for_values(lambda: clients.records("f"), sent)
    site.spread(f"{kind}-two")
    site.wait_for_owners(group, f"{kind}-two", "f")
    sent |= site.fill(f"{kind}-two", first=RECORDS)
    wait_for_values(lambda: clients.records("f"), sent)
    assert {topic for topic, _, _, _ in clients.records("f")} == {f"{kind}-one", f"{kind}-two"}
    registered = json.loads(site.nodes.get(f"/consumers/{group}/ids/{group}_f")[0])
    assert registered["pattern"] == kind.replace("list", "_list")
    clients.stop("f")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
def test_the_asynchronous_producer_sends_its_queue_in_batches(site: Site, codec: str) -> None:
    topic, clients = f"queued-{codec}", site.clients
    site.create(topic, {0: [1, 2, 3]})
    sent = [f"{n}" for n in range(10 * RECORDS)]
    queue: dict[str, object] = {"batch_num_messages": 20, "queue_buffering_max_ms": 100, "queue_enqueue_timeout_ms": -1}
    settings = queue | {"producer_type": "async", "request_required_acks": -1, "compression_codec": codec}
    clients.produce(site.servers(2), topic, 0, sent, **settings)
    with without(site, 1):  # the producer looks for the new leader itself
        clients.produce(site.servers(2, 3), topic, 0, sent, **settings)
    with consuming(clients, f"reading-{topic}", [topic], "q"):
        until(lambda: len(clients.records("q")) >= 2 * len(sent), lambda: clients.log_tail())
        received = [value for _, _, _, value in clients.records("q")]
    # a batch whose acknowledgement the kill delayed may be there again
    assert [value for n, value in enumerate(received) if n < len(sent)] == sent
    assert set(received[len(sent) :]) == set(sent)


def test_a_group_moves_its_offsets_from_zookeeper_to_the_log_and_back(site: Site) -> None:
    """As Kafka documents it: kafka with dual commits, then without; the way back is dual commits again, then zookeeper."""
    topic, group, clients = "moved", "moving", site.clients
    site.spread(topic)
    tree, log = {"offsets_storage": "zookeeper"}, {"offsets_storage": "kafka"}
    both, alone = log | {"dual_commit_enabled": "true"}, log | {"dual_commit_enabled": "false"}
    steps = [(tree, True, False), (both, True, True), (alone, False, True), (both, True, True), (tree, True, False)]
    in_tree: dict[int, int] = {}
    in_log: dict[int, int] = {}
    for step, (settings, to_tree, to_log) in enumerate(steps):
        sent = site.fill(topic, first=step * RECORDS)
        with consuming(clients, group, [topic], "m", **settings):
            records = wait_for_values(lambda: clients.records("m"), sent)
            assert len(records) == len(sent), "the consumer begins at the offsets of the step before"
            clients.commit("m")
        ends = dict.fromkeys(range(PARTITIONS), (step + 1) * RECORDS)
        in_tree, in_log = ends if to_tree else in_tree, ends if to_log else in_log
        assert site.in_tree(group, topic) == in_tree
        if in_log:
            assert site.in_log(group, topic) == in_log


@pytest.mark.parametrize("storage", ["zookeeper", "kafka"])
def test_consumers_go_on_while_leaders_are_killed(site: Site, storage: str) -> None:
    topic, group, clients = f"killed-{storage}", f"surviving-{storage}", site.clients
    site.spread(topic)
    settings = {"offsets_storage": storage, "auto_commit_enable": "true", "auto_commit_interval_ms": 200}
    count = 0
    with consuming(clients, group, [topic], "c", "d", **settings):
        site.wait_for_owners(group, topic, "c", "d")

        def received() -> list[Record]:
            return clients.records("c") + clients.records("d")

        expected = site.fill(topic)
        wait_for_values(received, expected)
        for broker_id in IDS:
            count += 1
            with without(site, broker_id):
                expected |= site.fill(topic, first=count * RECORDS)
                wait_for_values(received, expected)
    ends = dict.fromkeys(range(PARTITIONS), (count + 1) * RECORDS)
    committed = site.in_tree(group, topic) if storage == "zookeeper" else site.in_log(group, topic)
    assert set(committed) == set(ends) and all(committed[number] >= ends[number] for number in ends)
    with consuming(clients, group, [topic], "e", **settings):
        more = site.fill(topic, first=10_000)
        assert values_of(wait_for_values(lambda: clients.records("e"), more)) == more


def test_offsets_in_the_tree_are_listed_by_group_and_deleted_with_their_topic(site: Site) -> None:
    clients, group = site.clients, "listed"
    for topic in ("stays", "deleted"):
        site.spread(topic)
    sent = site.fill("stays") | site.fill("deleted")
    with consuming(clients, group, ["stays", "deleted"], "l"):
        until(lambda: len(clients.records("l")) == 2 * len(sent), "all records are received")
        clients.commit("l")
    simple = {"group": "by-request", "version": 0}
    assert clients.ask("commit offset", site.servers(2)[0], "deleted", 0, offset=7, **simple) == 0
    assert clients.ask("fetch offset", site.servers(3)[0], "deleted", 0, **simple) == {"code": 0, "offset": 7}
    listed = {row["group"] for row in site.odradek.json("group", "list", "--type", "tree")}
    assert {group, "by-request"} <= listed
    rows = site.odradek.json("group", "describe", group)["tree"]
    assert {(row["topic"], row["partition"]): row["committed"] for row in rows} == {
        (topic, number): RECORDS for topic in ("deleted", "stays") for number in range(PARTITIONS)
    }
    site.odradek("topic", "delete", "deleted", "--yes")
    until(lambda: not site.in_tree(group, "deleted"), "its offsets are deleted")
    until(lambda: "by-request" not in site.children("/consumers"), "groups without any offset are deleted")
    assert site.in_tree(group, "stays") == dict.fromkeys(range(PARTITIONS), RECORDS)
    site.spread("deleted")
    again = site.fill("deleted", count=RECORDS // 2)
    with consuming(clients, group, ["stays", "deleted"], "l"):
        wait_for_values(lambda: clients.records("l"), again)
