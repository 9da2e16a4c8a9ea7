"""WriteTxnMarkers (27): writes the end markers of transactions to partitions that this broker leads. Executed by the
coordinator, in its loop.

Other brokers send it for the transactions that they coordinate, and kafka-transactions.sh for a transaction that nobody ends.
"""

from typing import Any

from odradek.api.transaction_call import Answer, TransactionCall
from odradek.coordination.environment import EndMarker
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import write_txn_markers

FIRST_WITH_VERSION = 2
EPOCH_PER_TRANSACTION = 2
"""The transaction version from which on the epoch of a marker tells whether it is late."""
Response = write_txn_markers.Response
Place = tuple[int, str, int]
"""Number of the marker in the request, topic and partition."""


def handle(request: Any, call: TransactionCall, answer: Answer) -> None:
    """Answer when all in-sync replicas have the markers, or refused them."""
    late = _late(request, call)
    if late is not None:
        call.close(
            f"a transaction marker for producer id {late.producer_id} arrived after its coordinator (epoch"
            f" {late.coordinator_epoch}) had used a newer connection"
        )
        return
    codes: dict[Place, ErrorCode] = {}
    wanted = [
        (number, topic.name, partition)
        for number, marker in enumerate(request.markers)
        for topic in marker.topics
        for partition in topic.partition_indexes
    ]
    waiting = len(wanted)

    def written(place: Place, code: ErrorCode) -> None:
        nonlocal waiting
        codes[place] = code
        waiting -= 1
        if waiting == 0:
            answer(_response(request, codes))

    if not wanted:
        answer(_response(request, codes))
    for number, topic, partition in wanted:
        marker = request.markers[number]
        version = marker.transaction_version if call.version >= FIRST_WITH_VERSION else 0
        end = EndMarker(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            bool(marker.transaction_result),
            version,
        )
        if marker.producer_epoch < 0:
            written((number, topic, partition), ErrorCode.INVALID_PRODUCER_EPOCH)
        elif not call.has_partition(topic, partition):
            written((number, topic, partition), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            call.view.markers.put(
                topic,
                partition,
                end,
                lambda code, place=(number, topic, partition): written(place, code),  # type: ignore[misc]
            )


def _late(request: Any, call: TransactionCall) -> Any:
    """A marker that its coordinator has given up, see `NewestMarkers`; None if there is none."""
    for marker in request.markers:
        version = marker.transaction_version if call.version >= FIRST_WITH_VERSION else 0
        if version < EPOCH_PER_TRANSACTION and call.view.newest_markers.is_older(
            marker.producer_id, marker.coordinator_epoch, call.connection_id
        ):
            return marker
    return None


def _response(request: Any, codes: dict[Place, ErrorCode]) -> Any:
    """One result for each producer id, as coordinators expect it, also if several markers name the producer."""
    results: dict[int, dict[str, dict[int, ErrorCode]]] = {}
    for (number, topic, partition), code in codes.items():
        of_producer = results.setdefault(request.markers[number].producer_id, {})
        of_producer.setdefault(topic, {})[partition] = code
    return Response(
        markers=[
            Response.WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    Response.WritableTxnMarkerTopicResult(
                        name=topic,
                        partitions=[
                            Response.WritableTxnMarkerPartitionResult(partition_index=partition, error_code=code)
                            for partition, code in partitions.items()
                        ],
                    )
                    for topic, partitions in topics.items()
                ],
            )
            for producer_id, topics in results.items()
        ]
    )
