"""A client's view of a cluster: sends each request to the broker that serves it. Used in one thread of the client's process,
which uses other threads to ask several brokers at the same time (`Cluster.of_each`).

Connections are opened when first needed and kept open. A request that fails with a retriable error (no leader yet, a
coordinator that is loading) is retried until the timeout.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from odradek.backoff import Waits
from odradek.clients.errors import (
    ClientError,
    HandshakeError,
    NoBootstrapServerError,
    RefusedError,
    UnknownHostError,
    UnreachableError,
    code_of,
    no_topic,
    only,
)
from odradek.clients.security import PLAIN, ClientSecurity
from odradek.clients.wire import Connection
from odradek.protocol.client_connection import SOFTWARE
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ApiSchema
from odradek.protocol.schemas import find_coordinator, metadata
from odradek.topic_partition import TopicPartition

DEFAULT_PORT = 9092
DEFAULT_TIMEOUT_S = 30.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.5
AT_ONCE = 16
"""The maximum number of brokers that are asked at the same time."""
WITH_CREATION = 4
"""The first version of Metadata in which the client decides whether missing topics are created (Kafka 0.11)."""
WITH_OPERATIONS = 8
"""The first version of Metadata in which the broker says what the client may do with a topic (Kafka 2.3)."""
DESCRIBE_CONFIGS = 10
"""The code of Kafka's operation DescribeConfigs."""
GROUP, TRANSACTION = 0, 1
"""What a coordinator coordinates: a consumer group, or the transactions of a transactional id."""
READS = (
    "ApiVersions",
    "ConsumerGroupDescribe",
    "Describe",
    "Explain",
    "Fetch",
    "Find",
    "List",
    "Metadata",
    "OffsetFetch",
    "OffsetForLeaderEpoch",
    "Sasl",
)
"""How the names of the APIs begin that change nothing."""
RETRIABLE = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
"""Errors that end without help soon. All other codes, also those that Kafka calls retriable, are returned to the caller."""

Result = TypeVar("Result")


class Address(NamedTuple):
    """The host and port of a broker."""

    host: str
    port: int


class Partition(NamedTuple):
    """A partition in a Metadata response. :param leader: -1 if there is none."""

    topic: str
    number: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...]
    error: ErrorCode


class TopicInfo(NamedTuple):
    """A topic in a Metadata response."""

    name: str
    topic_id: bytes
    internal: bool
    partitions: tuple[Partition, ...]


class View(NamedTuple):
    """The cluster in a Metadata response."""

    cluster_id: str | None
    controller_id: int
    brokers: Mapping[int, Address]
    racks: Mapping[int, str | None]
    topics: Mapping[str, TopicInfo]


def parse_servers(text: str) -> list[Address]:
    """Parse "host:port,host:port"; the default port is 9092. Raises ClientError."""
    addresses = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        host, colon, port = word.rpartition(":")
        if (word.startswith("[") and word.endswith("]")) or not colon:
            host, port = word, str(DEFAULT_PORT)
        elif ":" in host and not host.startswith("["):
            host, port = word, str(DEFAULT_PORT)  # a bare IPv6 address
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ClientError(f"'{word}' is not a broker address: use host:port, e.g. localhost:9092")
        addresses.append(Address(host.strip("[]"), int(port)))
    if not addresses:
        raise ClientError("no bootstrap server: use --bootstrap-server host:port")
    return addresses


class Cluster:
    """Connections to the brokers of one cluster.

    :param servers: "host:port,..."; one of them must answer. :param timeout_s: for each response, including retries.
    :param on_silence: called with a line of text for each bootstrap server that accepts the connection and does not respond for
        some seconds, as a program does that is not a broker; the wait continues. :param security: TLS of all connections.
    :param client_id: of all requests. :param single: the cluster is one broker; send all requests to its bootstrap address,
        because the address that it advertises may not be reachable from here.

    Raises ClientError for a malformed address; connects at the first request.
    """

    def __init__(
        self,
        servers: str,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        on_silence: Callable[[str], None] | None = None,
        security: ClientSecurity = PLAIN,
        client_id: str = SOFTWARE,
        single: bool = False,
    ) -> None:
        self._single = single
        self._security = security
        self._client_id = client_id
        self.servers = servers
        self.timeout_s = timeout_s
        self._on_silence = on_silence
        self._bootstrap = parse_servers(servers)
        self._any: Connection | None = None
        self._of_node: dict[int, Connection] = {}
        self._view: View | None = None

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def another(self) -> "Cluster":
        """A client of this cluster with its own connections, for requests while requests are in flight on the present ones. The
        caller closes it."""
        return Cluster(self.servers, self.timeout_s, self._on_silence, self._security, self._client_id, self._single)

    def close(self) -> None:
        """Close all connections."""
        for connection in self._of_node.values():
            connection.close()
        if self._any is not None:
            self._any.close()
        self._of_node.clear()
        self._any = None

    # -- connections ----------------------------------------------------------------------------------------------

    def any_broker(self) -> Connection:
        """A connection to a bootstrap server. Raises NoBootstrapServerError if none answers."""
        if self._any is None or self._any.closed:
            failures: list[UnreachableError] = []
            for address in self._bootstrap:
                try:
                    self._any = Connection(
                        address.host, address.port, self.timeout_s, self._client_id, self._on_silence, self._security
                    )
                    break
                except UnreachableError as error:
                    failures.append(error)
            else:
                refused = all(isinstance(failure, HandshakeError) for failure in failures)
                unknown = all(isinstance(failure, UnknownHostError) for failure in failures)
                raise NoBootstrapServerError("; ".join(map(str, failures)), refused, unknown)
        return self._any

    def forget(self, node_id: int) -> None:
        """Close the connection to a broker; the next use opens another one."""
        connection = self._of_node.pop(node_id, None)
        if connection is not None:
            connection.close()

    def broker(self, node_id: int) -> Connection:
        """A connection to a broker by its id; a new one after a request on the former one failed. Raises UnreachableError."""
        if self._single:
            return self.any_broker()
        connection = self._of_node.get(node_id)
        if connection is None or connection.closed:
            address = self.view().brokers.get(node_id)
            if address is None:
                known = ", ".join(map(str, sorted(self.view().brokers)))
                raise UnreachableError(f"the cluster has no broker {node_id}; its brokers are {known}")
            try:
                connection = Connection(
                    address.host, address.port, self.timeout_s, self._client_id, security=self._security
                )
            except UnknownHostError as error:
                raise UnknownHostError(
                    f"{error}; broker {node_id} advertises this name (advertised.listeners)"
                ) from None
            self._of_node[node_id] = connection
        return connection

    def of_each(
        self, node_ids: Collection[int], work: Callable[[int, Connection], Result]
    ) -> dict[int, Result | ClientError]:
        """Call ``work(node_id, connection)`` for several brokers at the same time, each in a thread. Returns the results by id.

        A broker that cannot be reached, or whose call raises a ClientError, has this error as its result.
        """
        self.view()  # no thread changes it

        def attempt(node_id: int) -> Result | ClientError:
            try:
                return work(node_id, self.broker(node_id))
            except ClientError as error:
                return error

        ordered = sorted(set(node_ids))
        if len(ordered) <= 1:
            return {node_id: attempt(node_id) for node_id in ordered}
        with ThreadPoolExecutor(min(AT_ONCE, len(ordered))) as pool:
            return dict(zip(ordered, pool.map(attempt, ordered), strict=True))

    def of_each_until(
        self,
        node_ids: Collection[int],
        work: Callable[[int, Connection], Result],
        errors: Callable[[Result], Iterable[int]],
    ) -> dict[int, Result | ClientError]:
        """Like `of_each`; brokers whose result has a retriable error are asked again until the timeout.

        :param errors: returns the error codes of a result.
        """
        results: dict[int, Result | ClientError] = {}
        waiting: Collection[int] = node_ids
        backoff = Waits(FIRST_PAUSE_S, LONGEST_PAUSE_S, self.timeout_s)
        while True:
            answers = self.of_each(waiting, work)
            results |= answers
            waiting = [
                node_id
                for node_id, answer in answers.items()
                if not isinstance(answer, ClientError) and RETRIABLE.intersection(errors(answer))
            ]
            if not waiting or not backoff.wait():
                return results

    def unanswered_changes(self) -> list[str]:
        """API names of changes that were requested and have no response: each may have been applied or not."""
        connections = [*self._of_node.values(), *([] if self._any is None else [self._any])]
        return [name for connection in connections for name in connection.unanswered if not name.startswith(READS)]

    # -- metadata -------------------------------------------------------------------------------------------------

    def view(self, fresh: bool = False) -> View:
        """The brokers, from the last Metadata response; `fresh` requests them again, without topics. Raises ClientError."""
        if self._view is None or fresh:
            self._view = self.metadata(())
        return self._view

    def metadata(self, topics: Collection[str] | None = None) -> View:
        """The cluster with all topics, or with the named topics that exist; no topic is created. Raises ClientError."""
        connection = self.any_broker()
        chooses = connection.version_of(metadata.SCHEMA, oldest=1) >= WITH_CREATION
        named = topics if chooses or not topics else None  # an older broker creates a topic that is named
        request = metadata.Request(
            topics=None if named is None else [metadata.Request.MetadataRequestTopic(name=name) for name in named],
            allow_auto_topic_creation=not chooses,
        )
        try:
            response = connection.ask(metadata.SCHEMA, request, oldest=1)
        except UnreachableError:
            self._any = None  # the next attempt opens another connection
            raise
        view = view_from(response)
        for topic in response.topics:
            if topic.error_code not in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE):
                raise RefusedError(topic.error_code, what=f"topic '{topic.name}'")
        if topics is not None and named is None:
            view = view._replace(topics={name: info for name, info in view.topics.items() if name in topics})
        self._view = view
        return view

    def topics(self, names: Sequence[str]) -> list[TopicInfo]:
        """The named topics, in the order of `names`. Raises RefusedError if a topic does not exist."""
        topics = self.metadata(names).topics
        for name in names:
            if name not in topics:
                raise self.no_topic(name)
        return [topics[name] for name in names]

    def no_topic(self, name: str) -> RefusedError:
        """The error for a topic that does not exist; it names the topic that may be meant. Raises ClientError."""
        return no_topic(name, self.metadata().topics)

    def may_describe_configs(self, topic: str) -> bool:
        """Whether this client may read the configuration of an existing topic; True if the broker is too old to say.

        The broker does not log the response as a denial, as it would log a request that it denies. Raises ClientError.
        """
        connection = self.any_broker()
        if connection.version_of(metadata.SCHEMA, oldest=1) < WITH_OPERATIONS:
            return True
        request = metadata.Request(
            topics=[metadata.Request.MetadataRequestTopic(name=topic)],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        )
        response = connection.ask(metadata.SCHEMA, request, oldest=WITH_OPERATIONS)
        return any(row.topic_authorized_operations >> DESCRIBE_CONFIGS & 1 for row in response.topics)

    # -- requests -------------------------------------------------------------------------------------------------

    def ask(self, api: ApiSchema, request: Any, **options: Any) -> Any:
        """Send a request to any broker. :param options: see `Connection.ask`."""
        return self.any_broker().ask(api, request, **options)

    def ask_any(self, api: ApiSchema, request: Any, errors: Callable[[Any], Iterable[int]], **options: Any) -> Any:
        """Send a request to any broker and retry retriable errors. :param errors: returns the error codes of a response."""
        return self._until(lambda: self.ask(api, request, **options), errors)

    def ask_controller(
        self, api: ApiSchema, request: Any, errors: Callable[[Any], Iterable[int]], **options: Any
    ) -> Any:
        """Send a request to the controller (a KRaft cluster names any broker as controller; that broker forwards the request).

        :param errors: returns the error codes of a response; retriable ones, such as NOT_CONTROLLER, are retried.
        """

        return self._until(lambda: self._controller().ask(api, request, **options), errors)

    def _controller(self) -> Connection:
        """A connection to the controller. If it cannot be reached, waits until the timeout for the metadata to name another.

        A KRaft cluster names a broker at random, also one that has just failed. Raises UnreachableError.
        """
        backoff = Waits(FIRST_PAUSE_S, LONGEST_PAUSE_S, self.timeout_s)
        while True:
            node_id = self.view().controller_id
            try:
                return self.broker(node_id) if node_id >= 0 else self.any_broker()
            except HandshakeError:
                raise
            except UnreachableError:
                if len(self.view().brokers) < 2 or not backoff.wait():
                    raise
            self.view(fresh=True)

    def coordinator_of(self, name: str, kind: int = GROUP) -> int:
        """The id of the broker that coordinates a group or a transactional id. Raises RefusedError, ClientError.

        :param kind: GROUP or TRANSACTION.
        """

        def attempt() -> Any:
            if self.any_broker().version_of(find_coordinator.SCHEMA) >= 4:
                request = find_coordinator.Request(key_type=kind, coordinator_keys=[name])
                return only(self.ask(find_coordinator.SCHEMA, request).coordinators, f"the coordinator of '{name}'")
            request = find_coordinator.Request(key=name, key_type=kind)
            return self.ask(find_coordinator.SCHEMA, request, oldest=kind, newest=3)

        coordinator = self._until(attempt, lambda response: [response.error_code])
        if coordinator.error_code:
            what = f"{'group' if kind == GROUP else 'transactional id'} '{name}'"
            raise RefusedError(
                coordinator.error_code, coordinator.error_message, f"cannot find the coordinator of {what}"
            )
        if coordinator.node_id not in self.view().brokers:
            self.view(fresh=True)
        return int(coordinator.node_id)

    def ask_coordinator(
        self,
        name: str,
        api: ApiSchema,
        request: Any,
        errors: Callable[[Any], Iterable[int]],
        *,
        kind: int = GROUP,
        **options: Any,
    ) -> Any:
        """Send a request to the coordinator of a group or transactional id. :param errors: see `ask_controller`."""
        return self._until(lambda: self.broker(self.coordinator_of(name, kind)).ask(api, request, **options), errors)

    def ask_leader(
        self, partition: TopicPartition, api: ApiSchema, request: Any, errors: Callable[[Any], Iterable[int]]
    ) -> Any:
        """Send a request to the leader of a partition (topic, number). :param errors: see `ask_controller`.

        Raises RefusedError if the topic does not exist, ClientError for a partition that does not exist or has no leader.
        """

        def attempt() -> Any:
            leader = self.partition(*partition).leader
            if leader < 0:
                raise RefusedError(
                    ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition[0]}-{partition[1]} has no leader"
                )
            return self.broker(leader).ask(api, request)

        return self._until(attempt, errors)

    def partition(self, topic: str, number: int) -> Partition:
        """The partition, from fresh metadata. Raises RefusedError or ClientError if it does not exist."""
        (info,) = self.topics([topic])
        for partition in info.partitions:
            if partition.number == number:
                return partition
        raise ClientError(f"topic '{topic}' has no partition {number}; it has 0 to {len(info.partitions) - 1}")

    def _until(self, attempt: Callable[[], Any], errors: Callable[[Any], Iterable[int]]) -> Any:
        """Call `attempt` until its response has no retriable error; after the timeout return the last response."""
        backoff = Waits(FIRST_PAUSE_S, LONGEST_PAUSE_S, self.timeout_s)
        while True:
            response = attempt()
            if not RETRIABLE.intersection(errors(response)) or not backoff.wait():
                return response
            self.view(fresh=True)

    def by_leader(self, partitions: Iterable[Partition]) -> Iterator[tuple[Connection, list[Partition]]]:
        """Group partitions by their leader; partitions without a leader are omitted."""
        led: dict[int, list[Partition]] = {}
        for partition in partitions:
            if partition.leader >= 0:
                led.setdefault(partition.leader, []).append(partition)
        for leader, partitions_of_leader in led.items():
            yield self.broker(leader), partitions_of_leader


def view_from(response: Any) -> View:
    """The cluster in a Metadata response, without topics that have an error."""
    return View(
        response.cluster_id,
        response.controller_id,
        {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers},
        {broker.node_id: broker.rack for broker in response.brokers},
        {topic.name: _topic(topic) for topic in response.topics if topic.name and not topic.error_code},
    )


def _topic(topic: Any) -> TopicInfo:
    partitions = tuple(
        Partition(
            topic.name,
            partition.partition_index,
            partition.leader_id,
            partition.leader_epoch,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
            tuple(partition.offline_replicas),
            code_of(partition.error_code),
        )
        for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
    )
    return TopicInfo(topic.name, bytes(topic.topic_id), topic.is_internal, partitions)
