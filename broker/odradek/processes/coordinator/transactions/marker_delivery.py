"""Delivers the end markers of transactions to the leaders of their partitions.

Used only in the coordinator's event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from odradek.controller.topic_names import CONSUMER_OFFSETS
from odradek.coordination.environment import EndMarker
from odradek.coordination.gathering import gather
from odradek.processes.coordinator.groups.service import GroupService
from odradek.processes.coordinator.transactions.marker_logs import MarkerLogs
from odradek.protocol.errors import ErrorCode
from odradek.transactions.environment import Marker

if TYPE_CHECKING:
    from odradek.processes.coordinator.transactions.other_brokers import RemoteMarkers

log = logging.getLogger("odradek.transactions")


class LocalMarkers:
    """Writes end markers to partitions that this broker leads. Markers of `__consumer_offsets` go through the groups, which
    apply them to their pending offsets.

    :param note: called with topic, partition and marker before a marker is written.
    """

    def __init__(self, groups: GroupService, logs: MarkerLogs, note: Callable[[str, int, EndMarker], None]) -> None:
        self._groups = groups
        self._logs = logs
        self._note = note

    def put(self, topic: str, partition: int, marker: EndMarker, then: Callable[[ErrorCode], None]) -> None:
        """See `Markers`."""
        self._note(topic, partition, marker)
        if topic == CONSUMER_OFFSETS:
            known = self._groups.topics.get(topic)
            if known is None or not known.exists(partition):
                # The groups cannot tell a partition that does not exist from one of another broker.
                then(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                return
            self._groups.end_transaction(partition, marker, then)
        else:
            self._logs.put(topic, partition, marker, then)


class MarkerDelivery:
    """Delivers the markers of the coordinator's transactions; see `MarkerSender`.

    :param leader_of: returns the broker that leads a partition; None: it is not known.
    :param others: sends markers to other brokers; None for a single broker.
    :param epoch_of_open: (marker, callback): calls the callback with the coordinator epoch that the partition of the marker has
        for the producer's open transaction; None if it has no open transaction. For a single broker.
    """

    def __init__(
        self,
        broker_id: int,
        leader_of: Callable[[str, int], int | None],
        markers: LocalMarkers,
        others: RemoteMarkers | None,
        epoch_of_open: Callable[[Marker, Callable[[int | None], None]], None],
    ) -> None:
        self._epoch_of_open = epoch_of_open
        self._broker_id = broker_id
        self._leader_of = leader_of
        self._markers = markers
        self._others = others

    def send(self, batch: list[Marker], then: Callable[[Sequence[ErrorCode]], None]) -> None:
        """See `MarkerSender`."""
        gather(batch, self._send_alone if self._others is None else self._send_one, then)

    def _send_one(self, marker: Marker, then: Callable[[ErrorCode], None]) -> None:
        leader_id = self._leader_of(marker.topic, marker.partition)
        if leader_id is None:
            then(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif leader_id == self._broker_id:
            self._markers.put(marker.topic, marker.partition, end_of(marker), then)
        elif self._others is not None:
            self._others.put(leader_id, marker, then)

    def _send_alone(self, marker: Marker, then: Callable[[ErrorCode], None]) -> None:
        """Write a marker on a single broker."""
        self._markers.put(marker.topic, marker.partition, end_of(marker), partial(self._written_alone, marker, then))

    def _written_alone(self, marker: Marker, then: Callable[[ErrorCode], None], code: ErrorCode) -> None:
        """There is no newer coordinator: if the partition has a newer coordinator epoch, a client has sent a marker with that
        epoch (WriteTxnMarkers). The transaction is then ended with that epoch, because no other coordinator would end it."""
        if code is not ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            then(code)
            return

        def found(epoch: int | None) -> None:
            if epoch is None:
                then(ErrorCode.INVALID_PRODUCER_EPOCH)  # nothing of the transaction is open
                return
            log.warning(
                "%s-%d: the transaction of %r is ended with the coordinator epoch %d in place of %d: a client has sent a marker"
                " with that epoch",
                marker.topic, marker.partition, marker.transactional_id, epoch, marker.coordinator_epoch,
            )  # fmt: skip
            end = end_of(marker)._replace(coordinator_epoch=epoch)
            self._markers.put(marker.topic, marker.partition, end, then)

        self._epoch_of_open(marker, found)


def end_of(marker: Marker) -> EndMarker:
    """A marker as it is written to its partition."""
    return EndMarker(
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        marker.commits,
        marker.transaction_version,
    )
