"""DescribeTopicPartitions (75): returns topics in pages, sorted by name (KIP-966). Executed by workers."""

from bisect import bisect_left
from typing import Any

from odradek.api import cluster_view
from odradek.api.api import Api, Guarded, Place
from odradek.api.call import Call
from odradek.controller.topic_names import why_illegal
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import describe_topic_partitions
from odradek.security.acl import Operation, ResourceType
from odradek.security.needs import (
    TOPIC,
    TOPIC_DENIED,
    need,
)
from odradek.stepwise import Pace, Steps, ordered_in_steps

LARGEST_PAGE = "max.request.partition.size.limit"
STEP = 1000
"""The number of topics per step."""
API = Api(
    describe_topic_partitions.SCHEMA,
    versions=(0, 0),
    place=Place.WORKER,
    rights=need(
        Operation.DESCRIBE, TOPIC, f"{TOPIC_DENIED} for a topic that the request names; other topics are left out"
    ),
    guarded=Guarded.INSIDE,
    per_partition=1,
    needs_published=True,
)


def handle(request: describe_topic_partitions.Request, call: Call) -> Steps:
    """Return a page that begins at the cursor. If the limit of partitions is reached, the page ends with the next cursor."""
    response = describe_topic_partitions.Response()
    room = min(max(request.response_partition_limit, 1), call.view.config.integer(LARGEST_PAGE))
    named = yield from ordered_in_steps([topic.name for topic in request.topics])
    names = named or [topic.name for topic in cluster_view.topics_by_name(call)]
    denied: list[str] = []
    first, first_index = "", 0
    if request.cursor is not None:
        first, first_index = request.cursor.topic_name, max(request.cursor.partition_index, 0)
    pace = Pace(STEP)
    for name in names[bisect_left(names, first) :]:
        if pace.over():
            yield
        if not call.permits.topic(Operation.DESCRIBE, name, quiet=not named):
            if named:
                denied.append(name)
            continue
        if room == 0:
            response.next_cursor = describe_topic_partitions.Response.Cursor(topic_name=name, partition_index=0)
            break
        topic = cluster_view.find(name, call)
        if topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if why_illegal(name) is not None:
                code = ErrorCode.INVALID_TOPIC_EXCEPTION
            response.topics.append(
                describe_topic_partitions.Response.DescribeTopicPartitionsResponseTopic(
                    error_code=code,
                    name=name,
                    topic_authorized_operations=call.permits.operations(ResourceType.TOPIC, name),
                )
            )
            continue
        begin = first_index if name == first else 0
        states = cluster_view.partitions(topic, call, begin, begin + room)
        response.topics.append(_topic(topic, states, call))
        if topic.count > begin + room:
            response.next_cursor = describe_topic_partitions.Response.Cursor(
                topic_name=name, partition_index=begin + room
            )
            break
        room -= len(states)
    make = describe_topic_partitions.Response.DescribeTopicPartitionsResponseTopic
    response.topics += [make(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name) for name in denied]
    return response


def _topic(topic: Any, states: list[cluster_view.PartitionState], call: Call) -> Any:
    make = describe_topic_partitions.Response.DescribeTopicPartitionsResponsePartition
    return describe_topic_partitions.Response.DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[
            make(
                error_code=state.error,
                partition_index=state.number,
                leader_id=state.leader_id,
                leader_epoch=state.leader_epoch,
                replica_nodes=state.replicas,
                isr_nodes=state.in_sync,
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=state.offline,
            )
            for state in states
        ],
        topic_authorized_operations=call.permits.operations(ResourceType.TOPIC, topic.name),
    )
