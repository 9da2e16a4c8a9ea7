"""DescribeProducers (61): the producers that a partition's leader knows. Executed by workers, off their loop."""

from typing import Any

import broker._ext.slots as slots
from broker.api.call import Call
from broker.api.partition_lookup import leader_state
from broker.protocol import describe_producers
from broker.protocol.errors import ErrorCode

Response = describe_producers.Response
NOT_SAID = -1


def handle(request: Any, call: Call) -> Any:
    """Every partition for itself."""
    return Response(
        topics=[
            Response.TopicResponse(
                name=topic.name, partitions=[_partition(topic.name, p, call) for p in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )


def _partition(name: str, partition: int, call: Call) -> Any:
    error, slot, _ = leader_state(call, name, partition, NOT_SAID)
    answer = Response.PartitionResponse(partition_index=partition, error_code=error)
    if error is ErrorCode.NONE:
        answer.active_producers = [
            Response.ProducerState(
                producer_id=one["producer_id"],
                producer_epoch=one["epoch"],
                last_sequence=one["last_sequence"],
                last_timestamp=one["last_timestamp"],
                coordinator_epoch=one["coordinator_epoch"],
                current_txn_start_offset=one["txn_start_offset"],
            )
            for one in slots.active_producers(slot)
        ]
    return answer
