"""DescribeProducers (61): returns the producers that a partition's leader knows. Executed by workers, off their loop.

When a response contains `MAX_PRODUCERS` producers, its remaining partitions are refused; the client must request them
separately.
"""

from typing import Any

import odradek._ext.partition.slots as slots
from odradek._ext.protocol.arrays import new_array
from odradek.api.api import Api, Place
from odradek.api.call import Call
from odradek.api.elements import Elements
from odradek.api.guarding import (
    Asked,
    Merged,
    VerdictInSteps,
    appended,
    refused_elements,
    taken_out,
)
from odradek.api.records.partition_lookup import leader_state
from odradek.controller.topic_names import why_illegal
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import describe_producers
from odradek.security.acl import Operation
from odradek.security.needs import (
    OF_PARTITIONS,
    TOPIC,
    need,
)
from odradek.stepwise import Pace, Steps

Response = describe_producers.Response
NO_EPOCH = -1
MAX_PRODUCERS = 100_000
TOPICS_A_STEP = 50
ELEMENTS = Elements(describe_producers.SCHEMA, "topics.partition_indexes", "topics.partitions")
API = Api(
    describe_producers.SCHEMA,
    versions=(0, 0),
    place=Place.WORKER_THREAD,
    rights=need(Operation.READ, TOPIC, OF_PARTITIONS),
    per_partition=2,
)


def guard(asked: Asked) -> VerdictInSteps:
    """READ on the topics; an illegal name is refused before."""
    refuse = refused_elements(ELEMENTS, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    refused = yield from taken_out(asked, Operation.READ, refuse, decides=lambda name: why_illegal(name) is None)
    return Merged(appended("topics", refused)) if refused else None


def handle(request: describe_producers.Request, call: Call) -> Steps:
    """Describe each partition independently, one per step."""
    topics = new_array()
    room = MAX_PRODUCERS
    pace = Pace(TOPICS_A_STEP)
    for topic in request.topics:
        partitions = new_array()
        for partition in topic.partition_indexes:
            answer = _partition(topic.name, partition, call) if room > 0 else _refused(partition)
            room -= len(answer.active_producers)
            partitions.append(answer)
            yield
        topics.append(Response.TopicResponse(name=topic.name, partitions=partitions))
        if pace.over():
            yield
    return Response(topics=topics)


def _refused(partition: int) -> Any:
    return Response.PartitionResponse(
        partition_index=partition,
        error_code=ErrorCode.INVALID_REQUEST,
        error_message=f"The partitions before this one have {MAX_PRODUCERS} producers or more: name fewer partitions.",
    )


def _partition(name: str, partition: int, call: Call) -> Any:
    if (reason := why_illegal(name)) is not None:
        return Response.PartitionResponse(
            partition_index=partition, error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, error_message=reason
        )
    error, slot, _ = leader_state(call, name, partition, NO_EPOCH)
    answer = Response.PartitionResponse(partition_index=partition, error_code=error)
    if error is ErrorCode.NONE:
        answer.active_producers = [
            Response.ProducerState(
                producer_id=producer["producer_id"],
                producer_epoch=producer["epoch"],
                last_sequence=producer["last_sequence"],
                last_timestamp=producer["last_timestamp"],
                coordinator_epoch=producer["coordinator_epoch"],
                current_txn_start_offset=producer["txn_start_offset"],
            )
            for producer in slots.active_producers(slot)
        ]
    return answer
