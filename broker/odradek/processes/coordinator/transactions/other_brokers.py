"""Requests of the coordinator process to other brokers in a cluster: WriteTxnMarkers, for partitions that they lead, and
AddPartitionsToTxn, for transactions that they coordinate.

Used only in the coordinator's event loop. One request of each kind is under way to each broker; items that are queued until its
response go into the next request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import odradek._ext.shm.brokers as brokers
from odradek.config.broker_config import BrokerConfig
from odradek.net.peers import Address, Peer, setup_ms
from odradek.protocol.errors import ErrorCode, error_of
from odradek.protocol.schema import ApiSchema
from odradek.protocol.schemas import add_partitions_to_txn, write_txn_markers
from odradek.topic_partition import TopicPartition
from odradek.transactions.environment import Marker

if TYPE_CHECKING:
    from odradek.security.peers import PeerSecurity

log = logging.getLogger("odradek.transactions")

MOST_AT_ONCE = 1000
"""The largest number of markers, or of transactions, in one request."""
FIRST_WITH_MARKER_VERSION = 2
BEHIND = dict.fromkeys(
    (int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), int(ErrorCode.OPERATION_NOT_ATTEMPTED)),
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
"""Errors of a coordinator that does not know a partition yet, which this broker leads. The producer can repeat its request."""

Item = TypeVar("Item")
CodeCallback = Callable[[ErrorCode], None]


class BrokerPeers:
    """The connections to other brokers, by broker id. A connection is made with the first request."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, config: BrokerConfig, security: PeerSecurity | None = None
    ) -> None:
        self._loop = loop
        self._security = security
        self._setup_ms = setup_ms(config)
        self._listener = config.inter_broker_listener.name
        self._client_id = str(config.node_id)
        self._timeout_s = config.integer("request.timeout.ms") / 1000
        self._peers: dict[int, Peer] = {}

    def _address(self, broker_id: int) -> Address | None:
        for broker in brokers.brokers():
            if broker.id == broker_id:
                endpoint = broker.endpoint(self._listener)
                return None if endpoint is None else (endpoint.host, endpoint.port)
        return None

    def send(self, broker_id: int, api: ApiSchema, message: Callable[[int], Any], then: Callable[[Any], None]) -> None:
        """Send a request in the newest version that both brokers know; `then` receives the response or a PeerError."""
        peer = self._peers.get(broker_id)
        if peer is None:
            name = f"broker {broker_id}"
            peer = Peer(
                self._loop,
                name,
                lambda: self._address(broker_id),
                self._client_id,
                self._timeout_s,
                self._security,
                self._setup_ms,
            )
            self._peers[broker_id] = peer
        peer.send(api, message, then)

    def give_up(self, broker_id: int, reason: str) -> None:
        """Let the request to a broker that is under way fail, and close the connection."""
        peer = self._peers.get(broker_id)
        if peer is not None:
            peer.give_up(reason)

    def close(self) -> None:
        """Close all connections; requests under way fail."""
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()


class _Batches(Generic[Item]):
    """Collects items for each broker, and sends those of one broker together, one request after the other.

    :param send: (broker id, items, done): sends a request, and calls `done` once when its response was handled.
    :ivar under_way: the items of the request to each broker that has not answered.
    """

    def __init__(self, send: Callable[[int, list[Item], Callable[[], None]], None]) -> None:
        self._send = send
        self._waiting: dict[int, list[Item]] = {}
        self.under_way: dict[int, list[Item]] = {}

    def put(self, broker_id: int, item: Item) -> None:
        """Queue an item, which `flush` sends."""
        self._waiting.setdefault(broker_id, []).append(item)

    def flush(self) -> None:
        """Send the queued items to the brokers that have no request under way."""
        for broker_id in list(self._waiting):
            if broker_id not in self.under_way:
                self._next(broker_id)

    def take(self, moved: Callable[[int, Item], bool]) -> list[Item]:
        """Remove the queued items that are to be sent to another broker now."""
        taken: list[Item] = []
        for broker_id, items in list(self._waiting.items()):
            left = [item for item in items if not moved(broker_id, item)]
            if len(left) < len(items):
                taken += [item for item in items if moved(broker_id, item)]
                self._waiting[broker_id] = left
        return taken

    def _next(self, broker_id: int) -> None:
        items = self._waiting.pop(broker_id, None)
        if not items:
            return
        if len(items) > MOST_AT_ONCE:
            self._waiting[broker_id] = items[MOST_AT_ONCE:]
            items = items[:MOST_AT_ONCE]
        self.under_way[broker_id] = items

        def done() -> None:
            del self.under_way[broker_id]
            self._next(broker_id)

        self._send(broker_id, items, done)


class RemoteMarker(NamedTuple):
    """A marker for a partition that another broker leads."""

    marker: Marker
    then: CodeCallback


class RemoteMarkers:
    """Sends markers to the leaders of their partitions (WriteTxnMarkers).

    :param soon: schedules `flush` for the end of the present turn.
    """

    def __init__(self, peers: BrokerPeers, soon: Callable[[], None]) -> None:
        self._peers = peers
        self._soon = soon
        self._batches = _Batches[RemoteMarker](self._send)

    def put(self, broker_id: int, marker: Marker, then: CodeCallback) -> None:
        """Send a marker. `then` is called once, with the broker's code, or with REQUEST_TIMED_OUT if it did not answer."""
        self._batches.put(broker_id, RemoteMarker(marker, then))
        self._soon()

    def flush(self) -> None:
        """Send the queued markers."""
        self._batches.flush()

    def follow(self, leader_of: Callable[[str, int], int | None]) -> None:
        """Leaders may have changed: fail the markers of partitions that another broker leads now, so that their senders look up
        the leader again. Without this, markers would wait for a broker that does not answer, or that cannot acknowledge them
        because it was deposed, until `request.timeout.ms`."""

        def moved(broker_id: int, item: RemoteMarker) -> bool:
            leader_id = leader_of(item.marker.topic, item.marker.partition)
            return leader_id is not None and leader_id != broker_id

        for item in self._batches.take(moved):
            item.then(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for broker_id, items in list(self._batches.under_way.items()):
            if any(moved(broker_id, item) for item in items):
                self._peers.give_up(broker_id, "another broker leads partitions of its transaction markers")

    def _send(self, broker_id: int, items: list[RemoteMarker], done: Callable[[], None]) -> None:
        ends: dict[tuple[int, int, int, bool, int], dict[str, list[int]]] = {}
        for marker, _ in items:
            end = (
                marker.producer_id,
                marker.producer_epoch,
                marker.coordinator_epoch,
                marker.commits,
                marker.transaction_version,
            )
            ends.setdefault(end, {}).setdefault(marker.topic, []).append(marker.partition)

        def message(version: int) -> Any:
            make = write_txn_markers.Request
            return make(
                markers=[
                    make.WritableTxnMarker(
                        producer_id=producer_id,
                        producer_epoch=epoch,
                        coordinator_epoch=coordinator_epoch,
                        transaction_result=commits,
                        transaction_version=transaction_version if version >= FIRST_WITH_MARKER_VERSION else 0,
                        topics=[
                            make.WritableTxnMarkerTopic(name=topic, partition_indexes=partitions)
                            for topic, partitions in topics.items()
                        ],
                    )
                    for (producer_id, epoch, coordinator_epoch, commits, transaction_version), topics in ends.items()
                ]
            )

        def answered(outcome: Any) -> None:
            codes = {} if isinstance(outcome, Exception) else _codes_of(outcome)
            if isinstance(outcome, Exception):
                log.info(
                    "cannot send %d transaction markers to broker %d: %s; the coordinator retries",
                    len(items),
                    broker_id,
                    outcome,
                )
            done()
            for marker, then in items:
                then(codes.get((marker.producer_id, marker.topic, marker.partition), ErrorCode.REQUEST_TIMED_OUT))

        self._peers.send(broker_id, write_txn_markers.SCHEMA, message, answered)


def _codes_of(response: Any) -> dict[tuple[int, str, int], ErrorCode]:
    return {
        (marker.producer_id, topic.name, partition.partition_index): error_of(partition.error_code)
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    }


class Asked(NamedTuple):
    """A question about a transaction that another broker coordinates."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    places: tuple[TopicPartition, ...]
    then: Callable[[dict[TopicPartition, ErrorCode]], None]


class RemoteTransactions:
    """Asks other brokers to verify or to add partitions of transactions that they coordinate (AddPartitionsToTxn 4 and 5).

    :param soon: schedules `flush` for the end of the present turn.
    """

    def __init__(self, peers: BrokerPeers, soon: Callable[[], None]) -> None:
        self._peers = peers
        self._soon = soon
        self._batches = _Batches[Asked](self._send)

    def put(self, broker_id: int, asked: Asked) -> None:
        """Queue a question. `asked.then` is called once, with an error code for each place."""
        self._batches.put(broker_id, asked)
        self._soon()

    def flush(self) -> None:
        """Send the queued questions."""
        self._batches.flush()

    def follow(self, coordinator_of: Callable[[str], int | None]) -> None:
        """Leaders may have changed: fail the questions about transactions that another broker coordinates now."""

        def moved(broker_id: int, item: Asked) -> bool:
            coordinator_id = coordinator_of(item.transactional_id)
            return coordinator_id is not None and coordinator_id != broker_id

        for item in self._batches.take(moved):
            item.then(dict.fromkeys(item.places, ErrorCode.NOT_COORDINATOR))
        for broker_id, items in list(self._batches.under_way.items()):
            if any(moved(broker_id, item) for item in items):
                self._peers.give_up(broker_id, "another broker coordinates a transactional id that it was asked about")

    def _send(self, broker_id: int, items: list[Asked], done: Callable[[], None]) -> None:
        # A request may name a transactional id only once; further questions about it wait for the next request.
        first: dict[str, Asked] = {}
        for item in items:
            if item.transactional_id in first:
                self._batches.put(broker_id, item)
            else:
                first[item.transactional_id] = item
        make = add_partitions_to_txn.Request

        def message(version: int) -> Any:
            return make(
                transactions=[
                    make.AddPartitionsToTxnTransaction(
                        transactional_id=asked.transactional_id,
                        producer_id=asked.producer_id,
                        producer_epoch=asked.producer_epoch,
                        verify_only=asked.verify_only,
                        topics=_topics(asked.places),
                    )
                    for asked in first.values()
                ]
            )

        def answered(outcome: Any) -> None:
            codes: dict[str, dict[TopicPartition, ErrorCode]] = {}
            otherwise = ErrorCode.COORDINATOR_NOT_AVAILABLE
            if isinstance(outcome, Exception):
                log.info(
                    "cannot ask broker %d about %d transactions: %s; the clients retry", broker_id, len(first), outcome
                )
            elif outcome.error_code:
                otherwise = error_of(outcome.error_code)
            else:
                codes = {row.transactional_id: _places_of(row) for row in outcome.results_by_transaction}
            done()
            for asked in first.values():
                of_id = codes.get(asked.transactional_id, {})
                asked.then({place: of_id.get(place, otherwise) for place in asked.places})

        self._peers.send(broker_id, add_partitions_to_txn.SCHEMA, message, answered)


def _topics(places: tuple[TopicPartition, ...]) -> list[Any]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in places:
        by_topic.setdefault(topic, []).append(partition)
    make = add_partitions_to_txn.Request.AddPartitionsToTxnTopic
    return [make(name=topic, partitions=partitions) for topic, partitions in by_topic.items()]


def _places_of(row: Any) -> dict[TopicPartition, ErrorCode]:
    return {
        (topic.name, partition.partition_index): BEHIND.get(partition.partition_error_code)
        or error_of(partition.partition_error_code)
        for topic in row.topic_results
        for partition in topic.results_by_partition
    }
