"""Fake brokers that record what a controller sends to them, and a controller under test in one real process.

A fake broker registers itself in ZooKeeper as Kafka 3.9 does, answers LeaderAndIsr, UpdateMetadata and StopReplica with success
or with the errors that a scenario sets, and records every request in order. The real broker has no replicas: it is only the
controller. Nothing waits for times: see `Run.settle`.
"""

import socketserver
import struct
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from odradek.clients.wire import Connection
from odradek.config.listeners import Listener
from odradek.metadata import znodes
from odradek.metadata.znodes import BrokerRegistration, TopicAssignment
from odradek.protocol import decode, encode_frame
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ApiSchema
from odradek.protocol.schemas import leader_and_isr, stop_replica, update_metadata
from odradek.protocol.schemas.header import (
    ResponseHeader,
    decode_request_header,
    request_header_version,
    response_header_version,
)
from tests.cluster.recorded import Normaliser, Recording
from tests.waiting import until

CONTROLLER_ID = 1
SENTINEL = 19
"""A broker without replicas. `Run.settle` changes its endpoints."""
BARRIER = "BARRIER"
"""The listener of the sentinel whose port is the number of the barrier."""
FIRST_BARRIER = 20_000
TIMEOUT_S = 30.0
PATIENCE_S = 30.0

_APIS = {api.API_KEY: api.SCHEMA for api in (leader_and_isr, stop_replica, update_metadata)}
_SIZE = struct.Struct(">i")


class Record(NamedTuple):
    """A request that a broker received. ``barrier``: it only announces a change of the sentinel."""

    broker_id: int
    request: Any
    api: ApiSchema
    version: int
    barrier: bool


Board = Callable[["FakeBroker", Any, ApiSchema, int], None]


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True


class FakeBroker:
    """A broker that only records. ``epochs``: its broker epochs, the last is the present one.

    :param board: called with each request, its API and version. :ivar failed: topics and partitions of failed log directories.
    """

    def __init__(self, broker_id: int, zookeeper: KazooClient, board: "Board | None" = None) -> None:
        self.id = broker_id
        self.epochs: list[int] = []
        self.failed: set[tuple[str, int]] = set()
        self.extra: list[Listener] = []
        self._zookeeper = zookeeper
        self.board = board
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                outer._serve(self.request)

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), name=f"fake-{broker_id}", daemon=True
        )
        self._thread.start()

    # -- registration -----------------------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        return znodes.broker_path(self.id)

    @property
    def epoch(self) -> int:
        """The present broker epoch."""
        return self.epochs[-1]

    def data(self) -> bytes:
        endpoints = [Listener("PLAINTEXT", "127.0.0.1", self.port, "PLAINTEXT"), *self.extra]
        return znodes.encode_broker(BrokerRegistration(endpoints, None, int(time.time() * 1000)))

    def register(self) -> None:
        """Start: create the registration."""
        self._zookeeper.create(self.path, self.data(), ephemeral=True)
        self.remember_epoch()

    def fail(self) -> None:
        """The session of the broker ends."""
        self._zookeeper.delete(self.path)

    def bounce(self) -> None:
        """End and start between two looks of the controller."""
        transaction = self._zookeeper.transaction()
        transaction.delete(self.path)
        transaction.create(self.path, self.data(), ephemeral=True)
        results = transaction.commit()
        assert not any(isinstance(result, Exception) for result in results), results
        self.remember_epoch()

    def change_endpoints(self, *extra: Listener) -> None:
        """Register further endpoints in the same node."""
        self.extra = list(extra)
        self._zookeeper.set(self.path, self.data())

    def remember_epoch(self) -> None:
        """Note the epoch of a registration."""
        stat = self._zookeeper.exists(self.path)
        assert stat is not None
        self.epochs.append(stat.creation_transaction_id)

    def close(self) -> None:
        """Stop serving and remove the registration."""
        try:
            self._zookeeper.delete(self.path)
        except NoNodeError:
            pass
        self._server.shutdown()
        self._server.server_close()

    # -- requests ---------------------------------------------------------------------------------------------------

    def _serve(self, connection: Any) -> None:
        """Answer the requests of one connection until the other side closes it."""
        with connection, connection.makefile("rwb") as stream:
            while len(head := stream.read(4)) == 4:
                body = stream.read(*_SIZE.unpack(head))
                header, start = decode_request_header(body)
                api, version = _APIS[header.request_api_key], header.request_api_version
                assert request_header_version(api.key, version)
                request, _ = decode(api.request, version, body, start)
                if self.board is not None:
                    self.board(self, request, api, version)
                answer = ResponseHeader(correlation_id=header.correlation_id)
                response = self._answer(api, request)
                stream.write(encode_frame(answer, response_header_version(api.key, version), response, version))
                stream.flush()

    def _answer(self, api: ApiSchema, request: Any) -> Any:
        if api is update_metadata.SCHEMA:
            return api.response()
        if api is stop_replica.SCHEMA:
            stopped = [
                stop_replica.Response.StopReplicaPartitionError(
                    topic_name=topic.topic_name, partition_index=state.partition_index
                )
                for topic in request.topic_states
                for state in topic.partition_states
            ]
            return stop_replica.Response(partition_errors=stopped)
        error = leader_and_isr.Response.LeaderAndIsrPartitionError
        topics = []
        for topic in request.topic_states:
            codes = [
                error(
                    partition_index=state.partition_index,
                    error_code=ErrorCode.KAFKA_STORAGE_ERROR
                    if (topic.topic_name, state.partition_index) in self.failed
                    else ErrorCode.NONE,
                )
                for state in topic.partition_states
            ]
            topics.append(
                leader_and_isr.Response.LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=codes)
            )
        return leader_and_isr.Response(topics=topics)


class Side:
    """A controller under test: a real broker, a ZooKeeper client for its tree, and the sentinel.

    ``name``: of the kind of broker. ``port``: of the broker. :param servers: hosts and chroot of the tree.
    """

    def __init__(self, name: str, servers: str, port: int) -> None:
        self.name = name
        self.port = port
        self.runs = 0
        self.zookeeper = KazooClient(servers, timeout=60)
        self.zookeeper.start(30)
        self.barrier = FIRST_BARRIER
        self._reached = FIRST_BARRIER
        until(lambda: self.zookeeper.exists(znodes.CONTROLLER), f"{name} is the controller")
        self.sentinel = FakeBroker(SENTINEL, self.zookeeper, self._watch)
        self.sentinel.register()
        # Kafka misses a change between its look at a new registration and its watch.
        until(self._watched, f"{name} watches the sentinel", PATIENCE_S)

    def _watch(self, _broker: FakeBroker, request: Any, _api: ApiSchema, _version: int) -> None:
        self._reached = max(self._reached, _barrier_of(request))

    def _watched(self) -> bool:
        if self._reached > FIRST_BARRIER + 1:
            return True
        self.next_barrier()
        return False

    def next_barrier(self) -> int:
        """Change the endpoints of the sentinel; returns the number of the change."""
        self.barrier += 1
        self.sentinel.change_endpoints(Listener(BARRIER, "127.0.0.1", self.barrier, "PLAINTEXT"))
        return self.barrier

    def close(self) -> None:
        self.sentinel.close()
        self.zookeeper.stop()
        self.zookeeper.close()

    def controller_epoch(self) -> int:
        """The epoch of the last election."""
        return znodes.decode_controller_epoch(self.zookeeper.get(znodes.CONTROLLER_EPOCH)[0])


class Run:
    """One scenario with one controller: its brokers, its topics and what was recorded.

    Names of topics in scenarios are short; in the tree they have the number of the run. Used as a context manager, which
    removes topics and brokers again.
    """

    def __init__(self, side: Side, brokers: Sequence[int]) -> None:
        self.side = side
        self.zookeeper = side.zookeeper
        side.runs += 1
        self._suffix = f".{side.runs}"
        self._lock = threading.Lock()
        self._records: list[Record] = []
        self._seen: dict[int, int] = {}
        self._first_epoch = side.controller_epoch()
        self.brokers: dict[int, FakeBroker] = {}
        self._connection: Connection | None = None
        self._ids: dict[str, bytes] = {}
        self._epochs_differ = False
        self.recording = Recording()
        self._sentinel = side.sentinel
        self._receivers = {SENTINEL: self._sentinel}
        for broker_id in brokers:
            self.add_broker(broker_id)

    def add_broker(self, broker_id: int) -> FakeBroker:
        """A fake broker that is not registered yet."""
        broker = self.brokers[broker_id] = FakeBroker(broker_id, self.zookeeper, self._record)
        self._receivers[broker_id] = broker
        return broker

    def __enter__(self) -> "Run":
        try:
            self._sentinel.board = self._record
            self.register(*self.brokers)
            self.settle()
            self._take()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        try:
            if kind is None:
                self._remove_topics()
        finally:
            self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._sentinel.board = None
        for broker in self.brokers.values():
            broker.close()

    def _remove_topics(self) -> None:
        for broker in self.brokers.values():
            broker.failed.clear()
        alive = self._alive()
        self.register(*(broker_id for broker_id in self.brokers if broker_id not in alive))
        self.settle()
        for name in self._topics():
            path = znodes.delete_topic_path(name)
            if self.zookeeper.exists(znodes.topic_path(name)) and not self.zookeeper.exists(path):
                self.zookeeper.create(path)
        until(lambda: not self._topics(), lambda: f"the topics {self._topics()} are deleted", PATIENCE_S)

    def _topics(self) -> list[str]:
        return sorted(name for name in self.zookeeper.get_children(znodes.TOPICS) if name.endswith(self._suffix))

    # -- records ----------------------------------------------------------------------------------------------------

    def _record(self, broker: FakeBroker, request: Any, api: ApiSchema, version: int) -> None:
        with self._lock:
            barrier = False
            if api is update_metadata.SCHEMA:
                number = _barrier_of(request)
                barrier = not request.topic_states and number > self._seen.get(broker.id, 0)
                self._seen[broker.id] = max(number, self._seen.get(broker.id, 0))
            self._records.append(Record(broker.id, request, api, version, barrier))

    def _count(self) -> int:
        with self._lock:
            return sum(not record.barrier for record in self._records)

    def _take(self) -> list[Record]:
        with self._lock:
            records, self._records = self._records, []
        return [record for record in records if not record.barrier]

    def _alive(self) -> set[int]:
        registered = {int(name) for name in self.zookeeper.get_children(znodes.BROKER_IDS)}
        return self._receivers.keys() & registered

    def _wait_for_barrier(self) -> None:
        """Change the sentinel's endpoints and wait until every live broker knows it.

        The controller reacts to changes in their order, and sends the requests for a broker in order. So a broker that has
        received this change has received all that the controller sent because of earlier changes.
        """
        number = self.side.next_barrier()
        alive = self._alive()
        until(
            lambda: all(self._seen.get(broker_id, 0) >= number for broker_id in alive),
            lambda: f"barrier {number} of {self.side.name} reaches {alive}: {self._seen}",
            PATIENCE_S,
        )

    def settle(self) -> None:
        """Wait until the controller has done all that follows from what happened, also from the answers of brokers.

        An answer is queued in the controller before the broker receives the next request. After two barriers in a row
        without any other request, no answer is left that could cause one.
        """
        quiet = 0
        while quiet < 2:
            before = self._count()
            self._wait_for_barrier()
            quiet = quiet + 1 if self._count() == before else 0

    # -- steps ------------------------------------------------------------------------------------------------------

    def step(
        self,
        name: str,
        action: Callable[[], Any],
        *,
        silent: bool = False,
        deletes: Sequence[str] = (),
        requests_differ: bool = False,
        epochs_differ: bool = False,
    ) -> Any:
        """Do something, wait until the controller has reacted, and keep what the brokers received.

        ``requests_differ`` and ``epochs_differ`` are for departures from Kafka's controller, see the decision record.

        :param silent: the controller may send nothing. :param deletes: topics that are deleted at the end.
        :param requests_differ: compare only the answer and the tree.
        :param epochs_differ: leader and partition epochs differ, also in all later steps.
        """
        assert self._count() == 0, "requests arrived after the last step had settled"
        self._epochs_differ |= epochs_differ
        result = action()
        if not silent:
            until(self._count, lambda: f"{self.side.name} sends requests in step {name}: {result}", PATIENCE_S)
        self.settle()
        for topic in deletes:
            path = znodes.delete_topic_path(self.name(topic))
            until(lambda path=path: not self.zookeeper.exists(path), f"{path} is removed", PATIENCE_S)
        normaliser = self._normaliser()
        self.recording.add(
            name,
            [(record.broker_id, normaliser.request(record)) for record in self._take()],
            result,
            normaliser.tree(self.zookeeper, self._topics()),
            requests_differ=requests_differ,
            epochs_differ=self._epochs_differ,
        )
        return result

    def _normaliser(self) -> Normaliser:
        for name in self._topics():
            assignment = znodes.decode_topic(name, self.zookeeper.get(znodes.topic_path(name))[0])
            if assignment.topic_id is not None:
                self._ids[name] = assignment.topic_id.bytes
        ports = {broker.id: broker.port for broker in self._receivers.values()} | {CONTROLLER_ID: self.side.port}
        epochs = {broker.id: broker.epochs for broker in self._receivers.values()}
        hidden = frozenset({BARRIER})
        return Normaliser(self._suffix, self._first_epoch, epochs, ports, self._ids, hidden, CONTROLLER_ID)

    # -- the tree ---------------------------------------------------------------------------------------------------

    def name(self, topic: str) -> str:
        """The name of a scenario's topic in the tree."""
        return topic + self._suffix

    def create_in_tree(
        self, topic: str, partitions: Mapping[int, Sequence[int]], config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic as a broker does that creates it for a client."""
        name = self.name(topic)
        self.zookeeper.create(znodes.topic_config_path(name), znodes.encode_config(config or {}))
        assignment = TopicAssignment(uuid.uuid4(), partitions)
        self.zookeeper.create(znodes.topic_path(name), znodes.encode_topic(assignment))

    def rewrite(self, topic: str, partitions: Mapping[int, Sequence[int]]) -> None:
        """Write other partitions into the node of a topic."""
        name = self.name(topic)
        data, stat = self.zookeeper.get(znodes.topic_path(name))
        changed = znodes.decode_topic(name, data)._replace(partitions=partitions)
        self.zookeeper.set(znodes.topic_path(name), znodes.encode_topic(changed), stat.version)

    def register(self, *brokers: int) -> None:
        """Brokers start, all at once."""
        transaction = self.zookeeper.transaction()
        for broker_id in brokers:
            broker = self.brokers[broker_id]
            transaction.create(broker.path, broker.data(), ephemeral=True)
        results = transaction.commit()
        assert not any(isinstance(result, Exception) for result in results), results
        for broker_id in brokers:
            self.brokers[broker_id].remember_epoch()

    def fail(self, *brokers: int) -> None:
        """The sessions of brokers end, all at once."""
        transaction = self.zookeeper.transaction()
        for broker_id in brokers:
            transaction.delete(self.brokers[broker_id].path)
        results = transaction.commit()
        assert not any(isinstance(result, Exception) for result in results), results

    def failover(self, *failing: int) -> None:
        """The controller loses its role, and becomes the controller again; brokers fail at the same time."""
        epoch = self.side.controller_epoch()
        transaction = self.zookeeper.transaction()
        transaction.delete(znodes.CONTROLLER)  # first, so that the failures belong to the new reign
        for broker_id in failing:
            transaction.delete(self.brokers[broker_id].path)
        results = transaction.commit()
        assert not any(isinstance(result, Exception) for result in results), results
        until(lambda: self.side.controller_epoch() > epoch, f"{self.side.name} is the controller again")

    def state(self, topic: str, partition: int = 0) -> tuple[znodes.PartitionState, int]:
        """A partition's state and its partition epoch."""
        name = self.name(topic)
        data, stat = self.zookeeper.get(znodes.state_path(name, partition))
        return znodes.decode_state(name, partition, data), stat.version

    # -- requests ---------------------------------------------------------------------------------------------------

    def ask(self, api: ApiSchema, request: Any, newest: int | None = None) -> Any:
        """The controller's answer to a request of a client or a broker."""
        if self._connection is None:
            self._connection = Connection("127.0.0.1", self.side.port, TIMEOUT_S)
        return self._connection.ask(api, request, newest=newest)

    def topic_id(self, topic: str) -> bytes:
        """The id of a topic."""
        name = self.name(topic)
        topic_id = znodes.decode_topic(name, self.zookeeper.get(znodes.topic_path(name))[0]).topic_id
        assert topic_id is not None
        return topic_id.bytes


def _barrier_of(request: Any) -> int:
    for broker in request.live_brokers:
        for endpoint in broker.endpoints:
            if endpoint.listener == BARRIER:
                return endpoint.port
    return 0
