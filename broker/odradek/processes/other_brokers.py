"""Requests of the coordinator process to other brokers in a cluster: WriteTxnMarkers, for partitions that they lead, and
AddPartitionsToTxn, for transactions that they coordinate.

Used only in the coordinator's event loop. One request of each kind is under way to each broker; items that are queued until its
response go into the next request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import odradek._ext.shm.brokers as brokers
from odradek.config.broker_config import BrokerConfig
from odradek.net.peers import Address, Peer
from odradek.protocol.errors import ErrorCode, error_of
from odradek.protocol.schema import ApiSchema
from odradek.protocol.schemas import add_partitions_to_txn, write_txn_markers
from odradek.transactions.environment import Marker, Place

log = logging.getLogger("odradek.transactions")

MOST_AT_ONCE = 1000
"""The largest number of markers, or of transactions, in one request."""
FIRST_WITH_MARKER_VERSION = 2

Item = TypeVar("Item")
CodeCallback = Callable[[ErrorCode], None]


class BrokerPeers:
    """The connections to other brokers, by broker id. A connection is made with the first request."""

    def __init__(self, loop: asyncio.AbstractEventLoop, config: BrokerConfig) -> None:
        self._loop = loop
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
            peer = Peer(self._loop, name, lambda: self._address(broker_id), self._client_id, self._timeout_s)
            self._peers[broker_id] = peer
        peer.send(api, message, then)

    def close(self) -> None:
        """Close all connections; requests under way fail."""
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()


class _Batches(Generic[Item]):
    """Collects items for each broker, and sends those of one broker together, one request after the other.

    :param send: (broker id, items, done): sends a request, and calls `done` once when its response was handled.
    """

    def __init__(self, send: Callable[[int, list[Item], Callable[[], None]], None]) -> None:
        self._send = send
        self._waiting: dict[int, list[Item]] = {}
        self._busy: set[int] = set()

    def put(self, broker_id: int, item: Item) -> None:
        """Queue an item, which `flush` sends."""
        self._waiting.setdefault(broker_id, []).append(item)

    def flush(self) -> None:
        """Send the queued items to the brokers that have no request under way."""
        for broker_id in list(self._waiting):
            if broker_id not in self._busy:
                self._next(broker_id)

    def _next(self, broker_id: int) -> None:
        items = self._waiting.pop(broker_id, None)
        if not items:
            return
        if len(items) > MOST_AT_ONCE:
            self._waiting[broker_id] = items[MOST_AT_ONCE:]
            items = items[:MOST_AT_ONCE]
        self._busy.add(broker_id)

        def done() -> None:
            self._busy.discard(broker_id)
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
            for marker, then in items:
                then(codes.get((marker.producer_id, marker.topic, marker.partition), ErrorCode.REQUEST_TIMED_OUT))
            done()

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
    places: tuple[Place, ...]
    then: Callable[[dict[Place, ErrorCode]], None]


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
            codes: dict[str, dict[Place, ErrorCode]] = {}
            otherwise = ErrorCode.COORDINATOR_NOT_AVAILABLE
            if isinstance(outcome, Exception):
                log.info(
                    "cannot ask broker %d about %d transactions: %s; the clients retry", broker_id, len(first), outcome
                )
            elif outcome.error_code:
                otherwise = error_of(outcome.error_code)
            else:
                codes = {row.transactional_id: _places_of(row) for row in outcome.results_by_transaction}
            for asked in first.values():
                of_id = codes.get(asked.transactional_id, {})
                asked.then({place: of_id.get(place, otherwise) for place in asked.places})
            done()

        self._peers.send(broker_id, add_partitions_to_txn.SCHEMA, message, answered)


def _topics(places: tuple[Place, ...]) -> list[Any]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in places:
        by_topic.setdefault(topic, []).append(partition)
    make = add_partitions_to_txn.Request.AddPartitionsToTxnTopic
    return [make(name=topic, partitions=partitions) for topic, partitions in by_topic.items()]


def _places_of(row: Any) -> dict[Place, ErrorCode]:
    return {
        (topic.name, partition.partition_index): error_of(partition.partition_error_code)
        for topic in row.topic_results
        for partition in topic.results_by_partition
    }
