"""WriteTxnMarkers (27): writes the end markers of transactions to partitions that this broker leads. Executed by the
coordinator, in its loop.

Other brokers send it for the transactions that they coordinate, and `kafka-transactions.sh` and `odradek transaction abort`
send it for hanging transactions.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any

from odradek._ext.protocol.arrays import new_array
from odradek.api.api import Api, Place
from odradek.api.elements import Elements
from odradek.api.guarding import (
    of_whole,
)
from odradek.api.transactions.transaction_call import A_STEP, TransactionCall
from odradek.coordination.environment import EndMarker
from odradek.coordination.gathering import gathered
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import write_txn_markers
from odradek.security.acl import Operation
from odradek.security.needs import (
    CLUSTER,
    CLUSTER_DENIED,
    either,
)
from odradek.stepwise import Pace, Steps

log = logging.getLogger("odradek.transactions")

FIRST_WITH_VERSION = 2
EPOCH_PER_TRANSACTION = 2
"""The transaction version from which on the epoch of a marker tells whether it is late."""
Response = write_txn_markers.Response
MarkedPartition = tuple[int, str, int]
"""Number of the marker in the request, topic and partition."""
API = Api(
    write_txn_markers.SCHEMA,
    versions=(0, 2),
    place=Place.TRANSACTIONS,
    rights=either(
        (Operation.ALTER, CLUSTER), (Operation.CLUSTER_ACTION, CLUSTER), refused=f"{CLUSTER_DENIED} for each partition"
    ),
    per_partition=2,
    refused=Elements(write_txn_markers.SCHEMA, "markers.topics.partition_indexes", "markers.topics.partitions"),
)
guard = of_whole(API)


def handle(request: write_txn_markers.Request, call: TransactionCall) -> Steps:
    """Respond when each marker is on all in-sync replicas, or was refused."""
    wanted: list[MarkedPartition] = []

    def write(place: MarkedPartition, then: Callable[[ErrorCode], None]) -> None:
        number, topic, partition = place
        marker = request.markers[number]
        version = marker.transaction_version if call.version >= FIRST_WITH_VERSION else 0
        end = EndMarker(
            marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.transaction_result, version
        )
        if marker.producer_id < 0:
            then(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        elif marker.producer_epoch < 0:
            then(ErrorCode.INVALID_PRODUCER_EPOCH)
        elif not call.has_partition(topic, partition):
            then(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif version < EPOCH_PER_TRANSACTION and call.view.newest_markers.is_older(
            marker.producer_id, marker.coordinator_epoch, call.connection_id
        ):  # the coordinator has sent it again on a newer connection since the first step
            then(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            call.view.markers.put(topic, partition, end, then)

    pace = Pace(A_STEP)
    for number, marker in enumerate(request.markers):
        if _is_late(marker, call):
            call.close(
                f"a transaction marker for producer id {marker.producer_id} arrived late, after its coordinator (epoch"
                f" {marker.coordinator_epoch}) had used a newer connection; it is not written"
            )
            return None
        for topic in marker.topics:
            for partition in topic.partition_indexes:
                wanted.append((number, topic.name, partition))
                if pace.over():
                    yield
            if pace.over():
                yield
        if pace.over():
            yield
    codes = yield from gathered(wanted, write, pace)
    if not call.from_broker:
        yield from _log_markers(request, wanted, codes, call.client)
    return (yield from _response(request, zip(wanted, codes, strict=True)))


def _log_markers(
    request: write_txn_markers.Request, wanted: list[MarkedPartition], codes: list[ErrorCode], client: str
) -> Steps:
    """Log the markers of a client, which decide what consumers read: nobody else records who ended these transactions."""
    pace = Pace(A_STEP)
    for (number, topic, partition), code in zip(wanted, codes, strict=True):
        if pace.over():
            yield
        marker = request.markers[number]
        kind = "a commit" if marker.transaction_result else "an abort"
        if code is ErrorCode.NONE:
            log.info(
                "wrote %s marker of producer id %d (epoch %d, coordinator epoch %d) into %s-%d, because %s requested it",
                kind, marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, topic, partition, client,
            )  # fmt: skip
        else:
            log.info(
                "did not write %s marker of producer id %d (epoch %d, coordinator epoch %d) into %s-%d, which %s requested: %s",
                kind, marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, topic, partition, client, code.name,
            )  # fmt: skip


def _is_late(marker: Any, call: TransactionCall) -> bool:
    """Whether the coordinator of a marker has given it up, see `NewestMarkers`."""
    version = marker.transaction_version if call.version >= FIRST_WITH_VERSION else 0
    return version < EPOCH_PER_TRANSACTION and call.view.newest_markers.is_older(
        marker.producer_id, marker.coordinator_epoch, call.connection_id
    )


def _response(request: write_txn_markers.Request, codes: Iterable[tuple[MarkedPartition, ErrorCode]]) -> Steps:
    """The response: one result for each producer id, even if several markers name the same producer, as coordinators expect."""
    pace = Pace(A_STEP)
    results: dict[int, dict[str, dict[int, Any]]] = {}
    for (number, topic, partition), code in codes:
        of_topic = results.setdefault(request.markers[number].producer_id, {}).setdefault(topic, {})
        of_topic[partition] = Response.WritableTxnMarkerPartitionResult(partition_index=partition, error_code=code)
        if pace.over():
            yield
    markers = new_array()
    for producer_id, of_producer in results.items():
        topics = new_array()
        for name, partitions in of_producer.items():
            topics.append(Response.WritableTxnMarkerTopicResult(name=name, partitions=list(partitions.values())))
            if pace.over():
                yield
        markers.append(Response.WritableTxnMarkerResult(producer_id=producer_id, topics=topics))
        if pace.over():
            yield
    return Response(markers=markers)
