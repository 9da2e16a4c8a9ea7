"""A cluster as a client sees it: who answers which request. Used in one thread of the client's process.

Connections are made when first needed and kept. What a broker asks to try again (no leader yet, a coordinator that loads) is
tried again until the time is over.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from odradek.clients.errors import ClientError, Refused, Unreachable, code_of
from odradek.clients.wire import Connection
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ApiSchema
from odradek.protocol.schemas import find_coordinator, metadata

DEFAULT_PORT = 9092
DEFAULT_TIMEOUT_S = 30.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.5
GROUP = 0
CHANGES = frozenset(
    {
        "CreateTopics",
        "CreatePartitions",
        "DeleteTopics",
        "DeleteRecords",
        "DeleteGroups",
        "IncrementalAlterConfigs",
        "OffsetCommit",
    }
)
"""Names of the APIs by which a `Cluster` is asked to change something."""
WAITING = frozenset(
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
"""What goes away by itself soon; whatever else a code may say of trying again, it is told to the caller."""


class Address(NamedTuple):
    """Where a broker is."""

    host: str
    port: int


class Partition(NamedTuple):
    """A partition as Metadata tells it. :param leader: -1 if there is none."""

    topic: str
    number: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...]
    error: ErrorCode


class TopicInfo(NamedTuple):
    """A topic as Metadata tells it."""

    name: str
    topic_id: bytes
    internal: bool
    partitions: tuple[Partition, ...]


class View(NamedTuple):
    """What Metadata tells of the cluster."""

    cluster_id: str | None
    controller_id: int
    brokers: Mapping[int, Address]
    racks: Mapping[int, str | None]
    topics: Mapping[str, TopicInfo]


def parse_servers(text: str) -> list[Address]:
    """ "host:port,host:port"; the port may be left out. Raises ClientError."""
    found = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        host, colon, port = word.rpartition(":")
        if (word.startswith("[") and word.endswith("]")) or not colon:
            host, port = word, str(DEFAULT_PORT)
        elif ":" in host and not host.startswith("["):
            host, port = word, str(DEFAULT_PORT)  # a bare IPv6 address
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ClientError(f"'{word}' is no address of a broker: write host:port, e.g. localhost:9092")
        found.append(Address(host.strip("[]"), int(port)))
    if not found:
        raise ClientError("no broker is given: write --bootstrap-server host:port")
    return found


class Cluster:
    """:param servers: "host:port,...", of which one has to answer. :param timeout_s: for each answer, with what is tried again.

    Raises ClientError for an address that is none; connects when first asked.
    """

    def __init__(self, servers: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self.servers = servers
        self.timeout_s = timeout_s
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
        """A connection to one of the servers that were named. Raises Unreachable."""
        if self._any is None:
            failures = []
            for address in self._bootstrap:
                try:
                    self._any = Connection(address.host, address.port, self.timeout_s)
                    break
                except Unreachable as error:
                    failures.append(str(error))
            else:
                raise Unreachable("; ".join(failures))
        return self._any

    def forget(self, node_id: int) -> None:
        """Close the connection to a broker by its id; the next use makes another one."""
        connection = self._of_node.pop(node_id, None)
        if connection is not None:
            connection.close()

    def broker(self, node_id: int) -> Connection:
        """A connection to a broker by its id. Raises Unreachable."""
        connection = self._of_node.get(node_id)
        if connection is None:
            address = self.view().brokers.get(node_id)
            if address is None:
                known = ", ".join(map(str, sorted(self.view().brokers)))
                raise Unreachable(f"there is no broker {node_id} in the cluster; there is {known}")
            connection = self._of_node[node_id] = Connection(address.host, address.port, self.timeout_s)
        return connection

    def unanswered_changes(self) -> list[str]:
        """Names of the changes that brokers were asked for and have not answered: each may have been made or not."""
        connections = [*self._of_node.values(), *([] if self._any is None else [self._any])]
        return [name for connection in connections for name in connection.unanswered if name in CHANGES]

    # -- what there is --------------------------------------------------------------------------------------------

    def view(self, fresh: bool = False) -> View:
        """The brokers, from the last answer; no topics are asked for. Raises ClientError."""
        if self._view is None or fresh:
            self._view = self.metadata(())
        return self._view

    def metadata(self, topics: Iterable[str] | None = None, create: bool = False) -> View:
        """The cluster with all topics, or with those of these names that exist. Raises ClientError.

        :param create: have the broker create those that do not exist, if it is configured to do so.
        """
        asked = None if topics is None else [metadata.Request.MetadataRequestTopic(name=name) for name in topics]
        request = metadata.Request(topics=asked, allow_auto_topic_creation=create)
        connection = self.any_broker()
        try:
            answer = connection.ask(metadata.SCHEMA, request, oldest=1)
        except Unreachable:
            self._any = None  # so that the next attempt makes another connection
            raise
        view = View(
            answer.cluster_id,
            answer.controller_id,
            {one.node_id: Address(one.host, one.port) for one in answer.brokers},
            {one.node_id: one.rack for one in answer.brokers},
            {one.name: _topic(one) for one in answer.topics if not one.error_code},
        )
        for one in answer.topics:
            if one.error_code not in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE):
                raise Refused(one.error_code, what=f"topic '{one.name}'")
        self._view = view
        return view

    def topics(self, names: Sequence[str]) -> list[TopicInfo]:
        """These topics, in this order. Raises Refused if one does not exist."""
        found = self.metadata(names).topics
        for name in names:
            if name not in found:
                raise Refused(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"there is no topic '{name}'; `odradek topic list` shows what there is",
                )
        return [found[name] for name in names]

    # -- asking ---------------------------------------------------------------------------------------------------

    def ask(self, api: ApiSchema, request: Any, **options: Any) -> Any:
        """Ask any broker; options as `Connection.ask`."""
        return self.any_broker().ask(api, request, **options)

    def ask_any(self, api: ApiSchema, request: Any, errors: Callable[[Any], Iterable[int]], **options: Any) -> Any:
        """Ask any broker, again while it is not ready. :param errors: the error codes of a response."""
        return self._until(lambda: self.ask(api, request, **options), errors)

    def ask_controller(
        self, api: ApiSchema, request: Any, errors: Callable[[Any], Iterable[int]], **options: Any
    ) -> Any:
        """Ask the controller (a cluster without ZooKeeper names any broker, which passes it on).

        :param errors: the error codes of a response, to see whether it was the wrong one.
        """

        def attempt() -> Any:
            node_id = self.view().controller_id
            return (self.broker(node_id) if node_id >= 0 else self.any_broker()).ask(api, request, **options)

        return self._until(attempt, errors)

    def coordinator_of(self, group_id: str) -> int:
        """Id of the broker that coordinates a group. Raises Refused, ClientError."""

        def attempt() -> Any:
            if self.any_broker().version_of(find_coordinator.SCHEMA) >= 4:
                request = find_coordinator.Request(key_type=GROUP, coordinator_keys=[group_id])
                return self.ask(find_coordinator.SCHEMA, request).coordinators[0]
            return self.ask(find_coordinator.SCHEMA, find_coordinator.Request(key=group_id), newest=3)

        found = self._until(attempt, lambda answer: [answer.error_code])
        if found.error_code:
            raise Refused(found.error_code, found.error_message, f"the coordinator of group '{group_id}'")
        if found.node_id not in self.view().brokers:
            self.view(fresh=True)
        return int(found.node_id)

    def ask_coordinator(
        self, group_id: str, api: ApiSchema, request: Any, errors: Callable[[Any], Iterable[int]], **options: Any
    ) -> Any:
        """Ask the coordinator of a group. :param errors: as for `ask_controller`."""
        return self._until(lambda: self.broker(self.coordinator_of(group_id)).ask(api, request, **options), errors)

    def _until(self, attempt: Callable[[], Any], errors: Callable[[Any], Iterable[int]]) -> Any:
        """Again while the answer says that it will be better soon; the last answer when the time is over."""
        deadline = time.monotonic() + self.timeout_s
        pause = FIRST_PAUSE_S
        while True:
            answer = attempt()
            if not WAITING.intersection(errors(answer)) or time.monotonic() + pause > deadline:
                return answer
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)
            self.view(fresh=True)

    def by_leader(self, partitions: Iterable[Partition]) -> Iterator[tuple[Connection, list[Partition]]]:
        """Partitions grouped by the broker that leads them; those without a leader are left out."""
        led: dict[int, list[Partition]] = {}
        for partition in partitions:
            if partition.leader >= 0:
                led.setdefault(partition.leader, []).append(partition)
        for leader, theirs in led.items():
            yield self.broker(leader), theirs


def _topic(told: Any) -> TopicInfo:
    partitions = tuple(
        Partition(
            told.name,
            one.partition_index,
            one.leader_id,
            one.leader_epoch,
            tuple(one.replica_nodes),
            tuple(one.isr_nodes),
            tuple(one.offline_replicas),
            code_of(one.error_code),
        )
        for one in sorted(told.partitions, key=lambda one: one.partition_index)
    )
    return TopicInfo(told.name, bytes(told.topic_id), told.is_internal, partitions)
