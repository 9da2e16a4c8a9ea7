"""Transactional producers in a cluster whose brokers die: the coordinator, or the leader of a partition, in the middle of a
transaction. One cluster is of three Odradek brokers, at transaction.version 2; the other one is of two Kafka 3.9.1 brokers and
one of Odradek, so that each kind writes markers to leaders of the other kind, and asks coordinators of the other kind about
batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from odradek._ext.api.offset_commits import partition_for
from odradek.controller.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import elect_leaders
from odradek.testing.broker_process import Broker
from tests.clients.transactions import BY_NAME, Library, Program
from tests.cluster import shown
from tests.cluster.failures import three_brokers
from tests.cluster.peer_processes import Peers
from tests.transactions.checker.history import Place
from tests.transactions.rounds.cluster import IN_CLUSTER, raise_level
from tests.transactions.wire_calls import Routes, Timing
from tests.transactions.wire_producer import WireProducer
from tests.waiting import until
from tests.wire import Wire, batch

pytestmark = [pytest.mark.xdist_group("producers-of-a-cluster"), pytest.mark.timeout(1200), pytest.mark.java]

IDS = (1, 2, 3)
OURS = 2
"""The Odradek broker among brokers of Kafka."""
CONTROLLER = 1
"""The broker of Kafka that is not killed."""
PARTITIONS = 6
LAST = "the end"
PREFERRED = 0
ANSWER_S = 30.0
LIST_OFFSETS = 7
"""A version that Kafka 3.9 serves."""
SESSION_MS = 6000
COMMON = IN_CLUSTER | {
    "offsets.topic.num.partitions": PARTITIONS,
    "transaction.state.log.num.partitions": PARTITIONS,
    "default.replication.factor": 3,
    "replica.lag.time.max.ms": 10_000,
    "request.timeout.ms": 30_000,
}
CLIENTS = ("java-4.3", "confluent-kafka")


@dataclass
class Server:
    """A broker of either kind. :ivar address: for clients."""

    address: str
    kill: Callable[[], None]
    start: Callable[[], None]
    alive: bool = True

    @property
    def place(self) -> tuple[str, int]:
        """Host and port."""
        host, port = self.address.rsplit(":", 1)
        return host, int(port)


@dataclass
class Room:
    """A cluster, and the programs that are its clients. :ivar name: of the kind of cluster."""

    name: str
    servers: dict[int, Server]
    stack: ExitStack
    _programs: dict[str, Program] = field(default_factory=dict)

    def program(self, library: Library) -> Program:
        """The program of a library, which is started once."""
        if library.name not in self._programs:
            servers = ",".join(server.address for server in self.servers.values())
            self._programs[library.name] = self.stack.enter_context(Program(library, servers))
        return self._programs[library.name]

    @property
    def alive(self) -> list[str]:
        """The addresses of the brokers that run."""
        return [server.address for server in self.servers.values() if server.alive]

    def leaders(self, topic: str) -> dict[int, int]:
        """The leaders of a topic, once all brokers that run show the same ones, which run; empty before that."""
        found = [shown.leaders(address, topic) for address in self.alive]
        led = all(self.servers[leader].alive for leader in found[0].values())
        return found[0] if led and all(other == found[0] for other in found) else {}

    def until_in_sync(self, *topics: str) -> None:
        """Wait until all replicas of topics are in sync."""

        def in_sync() -> bool:
            return all(
                sets and set(map(frozenset, sets.values())) == {frozenset(IDS)}
                for topic in topics
                for address in self.alive
                for sets in [shown.in_sync(address, topic)]
            )

        until(in_sync, lambda: f"{topics} are in sync: {[shown.in_sync(self.alive[0], topic) for topic in topics]}")

    def create(self, topic: str, *first: int) -> None:
        """Make a topic whose partitions are led by these brokers, with all brokers as replicas."""
        assignment = [[leader, *(number for number in IDS if number != leader)] for leader in first]
        wanted = NewTopic(topic, len(first), replica_assignment=assignment, config={"min.insync.replicas": "2"})
        admin = AdminClient({"bootstrap.servers": ",".join(self.alive), "log_level": 0})

        def created() -> bool:
            try:
                admin.create_topics([wanted], request_timeout=10)[topic].result(60)
            except KafkaException as error:
                return error.args[0].name() == "TOPIC_ALREADY_EXISTS"
            return True

        until(created, f"{topic} is created")
        until(lambda: self.leaders(topic) == dict(enumerate(first)), lambda: f"the leaders: {self.leaders(topic)}")
        self.until_in_sync(topic)

    def id_at(self, broker_id: int, prefix: str) -> str:
        """A transactional id that a broker coordinates."""
        self.elect()
        leaders: dict[int, int] = {}

        def known() -> bool:
            nonlocal leaders
            leaders = self.leaders(TRANSACTION_STATE)
            return len(leaders) == PARTITIONS and broker_id in leaders.values()

        until(known, lambda: f"broker {broker_id} coordinates transactions: {leaders}")
        names = (f"{prefix}-{number}" for number in range(1000))
        return next(name for name in names if leaders[partition_for(name, PARTITIONS)] == broker_id)

    def kill(self, broker_id: int) -> None:
        """Kill all processes of a broker."""
        self.servers[broker_id].kill()
        self.servers[broker_id].alive = False

    def start(self, broker_id: int, *topics: str) -> None:
        """Start a broker again, and wait until it is in sync."""
        self.servers[broker_id].start()
        self.servers[broker_id].alive = True
        self.until_in_sync(TRANSACTION_STATE, CONSUMER_OFFSETS, *topics)

    def elect(self) -> None:
        """Give each partition of `__transaction_state` back to its first replica."""
        make = elect_leaders.Request
        partitions = [make.TopicPartitions(topic=TRANSACTION_STATE, partitions=list(range(PARTITIONS)))]
        request = make(election_type=PREFERRED, topic_partitions=partitions, timeout_ms=30_000)

        def elected() -> bool:
            controller, _ = shown.brokers(self.alive[0])
            if controller not in IDS:
                return False
            with Wire(*self.servers[controller].place) as wire:
                return bool(wire.ask(request, elect_leaders.API_KEY, 2).error_code == ErrorCode.NONE)

        until(elected, "the controller elects the preferred leaders")

    def wire(self, topic: str, partition: int) -> Wire:
        """A connection to the leader of a partition."""
        until(lambda: partition in self.leaders(topic), f"{topic}-{partition} has a leader")
        return Wire(*self.servers[self.leaders(topic)[partition]].place)

    def is_open(self, topic: str, partition: int) -> bool:
        """Whether the last stable offset of a partition is not its end."""
        with self.wire(topic, partition) as wire:
            stable, end = (
                wire.offset_at(topic, -1, partition, version=LIST_OFFSETS, isolation_level=level).offset
                for level in (1, 0)
            )
            return bool(stable != end)

    def read(self, topic: str, partitions: int, library: Library) -> list[list[str]]:
        """What a client reads once no transaction is open."""
        for partition in range(partitions):
            until(lambda partition=partition: not self.is_open(topic, partition), f"{topic}-{partition} is stable")
            with self.wire(topic, partition) as wire:
                assert wire.produce(topic, batch(LAST.encode(), key=None), partition, version=9).error_code == 0
        return self.program(library).read(topic, partitions, LAST)


def odradek(directory: Path, stack: ExitStack) -> dict[int, Server]:
    """Three brokers of Odradek at transaction.version 2."""
    running = stack.enter_context(three_brokers(directory, COMMON))
    raise_level(running, 2)
    return {
        number: Server(broker.bootstrap_servers.split(",")[0], broker.kill_group, broker.start)
        for number, broker in running.brokers.items()
    }


def mixed(directory: Path, stack: ExitStack) -> dict[int, Server]:
    """Two brokers of Kafka 3.9.1 and one of Odradek. Kafka 3.9 knows no transaction.version: the level is 0."""
    peers = stack.enter_context(Peers(directory))
    settings = COMMON | {"zookeeper.session.timeout.ms": SESSION_MS, "replica.fetch.backoff.ms": 100}
    servers = {}
    for number in IDS:
        if number == OURS:
            config = settings | {
                "broker.id": OURS, "metadata.store": "zookeeper", "zookeeper.connect": peers.connect,
                "num.network.threads": 2,
            }  # fmt: skip
            ours = stack.enter_context(Broker(config, directory=directory / "odradek"))
            servers[OURS] = Server(ours.bootstrap_servers, ours.kill_group, ours.start)
        else:
            kafka = peers.start_kafka(number, settings)
            configuration = kafka.directory / "server.properties"
            servers[number] = Server(
                f"127.0.0.1:{kafka.port}", kafka.kill, lambda kafka=kafka, path=configuration: kafka.start(path)
            )
    for server in servers.values():
        until(lambda server=server: shown.brokers(server.address)[1] == set(IDS), f"{server.address} shows all brokers")
    return servers


@pytest.fixture(scope="module", params=[odradek, mixed], ids=lambda make: make.__name__)
def room(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    with ExitStack() as stack:
        directory = tmp_path_factory.mktemp(request.param.__name__)
        made = Room(request.param.__name__, request.param(directory, stack), stack)
        made.create("first", *IDS)
        routes = Routes([server.place for server in made.servers.values()], ANSWER_S)
        producer = WireProducer(routes, "first", 1, Timing(ANSWER_S, 120.0))
        producer.init()  # makes one internal topic
        producer.begin(1)
        producer.write(Place("first", 0))
        producer.send_offsets("first", {Place("first", 0): 1})  # makes the other one
        producer.commit()
        producer.close()
        made.until_in_sync(TRANSACTION_STATE, CONSUMER_OFFSETS)
        yield made


@pytest.fixture(params=CLIENTS)
def library(request: pytest.FixtureRequest) -> Library:
    return BY_NAME[request.param]


_coordinators = pytest.mark.parametrize("coordinator", [2, 3], ids=["coordinator-2", "coordinator-3"])
"""The Odradek broker and one of Kafka, in the cluster of both."""


@_coordinators
def test_transactions_end_in_the_partitions_of_all_leaders(room: Room, library: Library, coordinator: int) -> None:
    """Markers go to leaders of the other kind; leaders ask coordinators of the other kind."""
    topic = f"ends-{library.name}-{coordinator}"
    room.create(topic, *IDS)
    producer = room.program(library).open(topic, room.id_at(coordinator, topic))
    for text, commits in (("a", True), ("b", False), ("c", True)):
        producer.begin()
        for partition in range(len(IDS)):
            producer.write(topic, partition, text, text + text)
        producer.offsets(topic, topic, 0, ord(text))
        assert all(room.is_open(topic, partition) for partition in range(len(IDS)))
        producer.commit() if commits else producer.abort()
    producer.close()
    assert room.read(topic, len(IDS), library) == [["a", "aa", "c", "cc"]] * len(IDS)


@_coordinators
def test_the_coordinator_is_killed_in_a_transaction(room: Room, library: Library, coordinator: int) -> None:
    """Another broker loads the transaction, perhaps of the other kind, and commits it."""
    topic = f"coordinator-{library.name}-{coordinator}"
    others = [number for number in IDS if number != coordinator]
    room.create(topic, *others)
    producer = room.program(library).open(topic, room.id_at(coordinator, topic))
    producer.begin()
    producer.write(topic, 0, "before")
    room.kill(coordinator)
    producer.write(topic, 1, "after")
    producer.commit()
    producer.begin()
    producer.write(topic, 1, "aborted")
    producer.abort()
    room.start(coordinator, topic)
    producer.begin()
    producer.write(topic, 0, "again")
    producer.commit()
    producer.close()
    assert room.read(topic, len(others), library) == [["before", "again"], ["after"]]


@pytest.mark.parametrize("commits", [True, False], ids=["commits", "aborts"])
@pytest.mark.parametrize("leader", [2, 3], ids=["leader-2", "leader-3"])
def test_the_leader_of_a_partition_is_killed_with_an_open_transaction(
    room: Room, library: Library, leader: int, commits: bool
) -> None:
    """The next leader has the transaction open, too, and receives the marker."""
    topic = f"leader-{library.name}-{leader}-{commits}"
    room.create(topic, leader, CONTROLLER)
    producer = room.program(library).open(topic, room.id_at(CONTROLLER, topic))
    producer.begin()
    producer.write(topic, 0, "before")
    producer.write(topic, 1, "before")
    room.kill(leader)
    producer.write(topic, 0, "after")
    assert room.is_open(topic, 0)
    producer.commit() if commits else producer.abort()
    producer.begin()
    producer.write(topic, 0, "next")
    producer.commit()
    room.start(leader, topic)
    producer.close()
    expected = [["before", "after", "next"], ["before"]] if commits else [["next"], []]
    assert room.read(topic, 2, library) == expected


def test_a_broker_starts_again_with_a_transaction_whose_end_is_decided(room: Room, library: Library) -> None:
    """The leader of a partition is away when its marker is to be written, and then the coordinator dies, too."""
    topic = f"prepared-{library.name}"
    room.create(topic, 3, CONTROLLER)
    producer = room.program(library).open(topic, room.id_at(OURS, topic))
    producer.begin()
    producer.write(topic, 0, "a")
    producer.write(topic, 1, "b")
    room.kill(3)
    producer.commit()
    room.kill(OURS)
    for number in (3, OURS):
        room.servers[number].start()
        room.servers[number].alive = True
    room.until_in_sync(TRANSACTION_STATE, topic)
    producer.begin()
    producer.write(topic, 0, "c")
    producer.commit()
    producer.close()
    assert room.read(topic, 2, library) == [["a", "c"], ["b"]]
