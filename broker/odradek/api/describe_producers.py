"""DescribeProducers (61): the producers that a partition's leader knows. Executed by workers, off their loop.

A response describes at most `MOST_PRODUCERS` of them: partitions behind that are refused, to be asked for in another request.
"""

from typing import Any

import odradek._ext.partition.slots as slots
from odradek.api.call import Call
from odradek.api.partition_lookup import leader_state
from odradek.api.stepwise import Steps
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import describe_producers

Response = describe_producers.Response
NOT_SAID = -1
MOST_PRODUCERS = 100_000


def handle(request: Any, call: Call) -> Steps:
    """Every partition for itself, one at a step."""
    topics = []
    room = MOST_PRODUCERS
    for topic in request.topics:
        partitions = []
        for partition in topic.partition_indexes:
            answer = _partition(topic.name, partition, call) if room > 0 else _refused(partition)
            room -= len(answer.active_producers)
            partitions.append(answer)
            yield
        topics.append(Response.TopicResponse(name=topic.name, partitions=partitions))
    return Response(topics=topics)


def _refused(partition: int) -> Any:
    return Response.PartitionResponse(
        partition_index=partition,
        error_code=ErrorCode.INVALID_REQUEST,
        error_message=f"The partitions before this one have {MOST_PRODUCERS} producers or more: name fewer partitions.",
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
