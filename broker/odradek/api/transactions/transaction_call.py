"""The context of a request about transactions: the client, and the transactional ids. Used in the coordinator's loop.

The handlers of these APIs work in steps, so that they do not delay other clients
(docs/decisions/0022-what-one-request-may-cost.md), and a step that waits for an append yields a `Later`. No task is made for a
request, so the appends of all requests of one read are written together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from odradek._ext.shm.topics import TopicDirectory
from odradek.api.permits import UNRESTRICTED, Permits
from odradek.config.broker_config import BrokerConfig
from odradek.coordination.environment import EndMarker
from odradek.protocol.errors import ErrorCode
from odradek.transactions.coordinator import TransactionCoordinator
from odradek.transactions.environment import NO_OWNER

A_STEP = 200
"""The number of partitions, transactional ids or markers that one step handles. Each takes up to 20 us."""


class Producer(NamedTuple):
    """The producer of a request, as the request names it."""

    transactional_id: str
    producer_id: int
    epoch: int


class ProducerIdSource(Protocol):
    """A stock of allocated producer ids."""

    def next(self) -> int | None:
        """Take an id that no producer has had; None if the stock is empty."""

    def when_ready(self, then: Callable[[Exception | None], None]) -> None:
        """Call `then` once: with None as soon as the stock has an id, possibly at once; or with the error of the metadata
        store."""


class Markers(Protocol):
    """Writes end markers to partitions that this broker leads."""

    def put(self, topic: str, partition: int, marker: EndMarker, then: Callable[[ErrorCode], None]) -> None:
        """Write a marker. `then` is called once: with NONE when all in-sync replicas have the marker, or with the error."""


class NewestConnections:
    """For each producer, the newest connection on which a request passed the checks of producer id and epoch.

    Before transaction.version 2, the epoch of a producer does not change between its transactions. So a request that the
    network delays, and that the client has repeated on another connection, could act on the producer's next transaction. A
    producer uses one connection to a coordinator at a time, and the ids of connections ascend while the broker runs. If a
    request arrives on an older connection, its client therefore does not wait for it any more
    (docs/decisions/0031-transactions.md).

    A producer with another producer id or epoch is another one: the coordinator refuses its requests with the proper error. In
    place of the names, which clients choose with up to 32 KB, a hash of 64 bits is kept, whose key differs in each process.

    :param most: the largest number of producers; beyond it, the one whose last request is the oldest is removed.
    """

    def __init__(self, most: int = 100_000) -> None:
        self._most = most
        self._newest: dict[int, int] = {}

    def is_older(self, producer: Producer, connection_id: int) -> bool:
        """Whether a request of the producer came on a newer connection than this one."""
        return connection_id < self._newest.get(hash(producer), -1)

    def note(self, producer: Producer, connection_id: int) -> None:
        """Note that a request on this connection passed the checks."""
        key = hash(producer)
        newest = max(connection_id, self._newest.pop(key, -1))
        self._newest[key] = newest  # behind all others, which matters for the removal
        if len(self._newest) > self._most:
            del self._newest[next(iter(self._newest))]


class NewestMarkers:
    """By producer id: the newest connection on which a marker came, and the epoch of the coordinator that sent it.

    Before transaction.version 2, the markers of all transactions of a producer have the same epoch. So a marker that the
    network delayed, and that the coordinator has sent again on another connection, would end the next transaction. A
    coordinator has one connection to a broker after the other, and a newer coordinator has a larger epoch.

    :param most: how many producer ids are remembered; the oldest are forgotten.
    """

    def __init__(self, most: int = 100_000) -> None:
        self._most = most
        self._newest: dict[int, tuple[int, int]] = {}

    def is_older(self, producer_id: int, coordinator_epoch: int, connection_id: int) -> bool:
        """Whether this coordinator has sent a marker of this producer on a newer connection. Otherwise note this one."""
        known = self._newest.get(producer_id)
        if known is not None and known[0] == coordinator_epoch and connection_id < known[1]:
            return True
        if known is None or coordinator_epoch >= known[0]:
            self._newest.pop(producer_id, None)
            self._newest[producer_id] = coordinator_epoch, connection_id
            if len(self._newest) > self._most:
                del self._newest[next(iter(self._newest))]
        return False


@dataclass
class TransactionView:
    """What requests about transactions use; only in the loop of the coordinator process.

    :param coordinator: the ids of the partitions of `__transaction_state` that this broker leads.
    :param offsets_partitions: returns the number of partitions of `__consumer_offsets`; 0: it does not exist.
    :param newest: the newest connections of producers, for EndTxn.
    """

    config: BrokerConfig
    coordinator: TransactionCoordinator
    topics: TopicDirectory
    producer_ids: ProducerIdSource
    markers: Markers
    offsets_partitions: Callable[[], int]
    newest: NewestConnections
    newest_markers: NewestMarkers = field(default_factory=NewestMarkers)


@dataclass
class TransactionCall:
    """The context of one request.

    :param connection_id: of the client's connection; larger for a newer connection.
    :param close: closes the client's connection without a response; its argument is the reason for the log. The handler then
        returns None.
    :param owner: the number of the client's address; see `Mark`. :param client_id: in the request's header.
    """

    version: int
    client: str
    connection_id: int
    principal: str
    view: TransactionView
    close: Callable[[str], None]
    owner: int = NO_OWNER
    client_id: str | None = None
    permits: Permits = UNRESTRICTED

    @property
    def log_fields(self) -> dict[str, object]:
        """As those of a `ForwardContext`."""
        return {"connection_id": self.connection_id, "client_address": self.address, "client_id": self.client_id}

    @property
    def address(self) -> str:
        """The client's address and port."""
        return self.client.partition(" ")[0]  # a client's name begins with its address

    @property
    def from_broker(self) -> bool:
        """Whether another broker of the cluster probably sent the request: its client id is a broker id, or that of Kafka's
        sender of markers."""
        name = self.client_id or ""
        return bool(self.view.config.clustered) and (name.isdecimal() or name.startswith("broker-"))

    def is_late(self, api: str, producer: Producer) -> bool:
        """Whether this request arrived late (see `NewestConnections`). If so, closes the connection."""
        late = self.view.newest.is_older(producer, self.connection_id)
        if late:
            self.close(
                f"a request {api} for the transactional id {producer.transactional_id!r} arrived late, after its producer had"
                " used a newer connection; it is not executed"
            )
        return late

    def has_partition(self, topic: str, partition: int) -> bool:
        """Whether a partition exists."""
        known = self.view.topics.get(topic)
        return known is not None and bool(known.exists(partition))


def fenced_before(first: int, code: ErrorCode, version: int) -> ErrorCode:
    """The error code for a version of a request: INVALID_PRODUCER_EPOCH replaces PRODUCER_FENCED in versions before `first`
    (KIP-588)."""
    if code is ErrorCode.PRODUCER_FENCED and version < first:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
