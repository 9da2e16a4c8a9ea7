"""Metadata (3): brokers and topics. Executed by workers; topics to be created are asked of the coordinator first.

A topic that is created on the way is answered in the same response: the worker has taken over the coordinator's version by
then, so that the client's next request finds it.
"""

from typing import Any

from broker._ext.topics import Topic
from broker.api import cluster_view
from broker.api.call import Call
from broker.controller.topic_names import why_illegal
from broker.protocol import metadata
from broker.protocol.errors import ErrorCode

ZERO_ID = bytes(16)
FIRST_BY_ID = 12
"""Versions 10 and 11 have the field for ids, but no null name in the response."""


def handle(request: Any, call: Call) -> Any:
    """Answer now, or after the coordinator created what is missing."""
    if call.version < FIRST_BY_ID and any(
        topic.name is None or topic.topic_id != ZERO_ID for topic in request.topics or ()
    ):
        return _refused(request)
    missing = _to_create(request, call)
    if not missing:
        return _response(request, call, {})
    answer = call.answer_later()

    def created(outcomes: list[tuple[str, int, str | None]]) -> None:
        answer(_response(request, call, {name: code for name, code, _ in outcomes}))

    call.auto_create(missing, created)
    return None


def _refused(request: Any) -> Any:
    make = metadata.Response.MetadataResponseTopic
    return metadata.Response(
        topics=[
            make(error_code=ErrorCode.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id)
            for topic in request.topics
        ]
    )


def _wanted(request: Any, call: Call) -> list[Any] | None:
    """The topics that are asked for; None for all."""
    if request.topics is None or (call.version == 0 and not request.topics):
        return None
    return list({(topic.name, topic.topic_id): topic for topic in request.topics}.values())  # each is told once


def _to_create(request: Any, call: Call) -> list[str]:
    wanted = _wanted(request, call)
    allowed = call.version < 4 or request.allow_auto_topic_creation
    if wanted is None or not allowed or not call.view.config["auto.create.topics.enable"]:
        return []
    return [
        topic.name
        for topic in wanted
        if topic.name is not None and call.view.topics.get(topic.name) is None and why_illegal(topic.name) is None
    ]


def _response(request: Any, call: Call, refused: dict[str, int]) -> Any:
    wanted = _wanted(request, call)
    operations = call.version >= 8 and request.include_topic_authorized_operations
    if wanted is None:
        topics = [_topic(topic, operations) for _, topic in sorted(call.view.topics.by_name.items())]
    else:
        topics = [_asked_for(one, call, refused, operations) for one in wanted]
    cluster_operations = cluster_view.NOT_ASKED
    if 8 <= call.version <= 10 and request.include_cluster_authorized_operations:
        cluster_operations = cluster_view.CLUSTER_OPERATIONS
    return metadata.Response(
        brokers=[
            metadata.Response.MetadataResponseBroker(node_id=one.node_id, host=one.host, port=one.port, rack=one.rack)
            for one in cluster_view.brokers(call)
        ],
        cluster_id=call.view.shm.cluster_id,
        controller_id=cluster_view.controller_id(call),
        topics=topics,
        cluster_authorized_operations=cluster_operations,
    )


def _asked_for(one: Any, call: Call, refused: dict[str, int], operations: bool) -> Any:
    make = metadata.Response.MetadataResponseTopic
    if one.name is None:
        found = call.view.topics.by_id.get(one.topic_id)
        if found is None:
            return make(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=one.topic_id)
        return _topic(found, operations)
    found = call.view.topics.get(one.name)
    if found is not None:
        return _topic(found, operations)
    code = refused.get(one.name, ErrorCode.NONE)
    if why_illegal(one.name) is not None:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    return make(error_code=code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=one.name, topic_id=ZERO_ID)


def _topic(topic: Topic, operations: bool) -> Any:
    return metadata.Response.MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[
            metadata.Response.MetadataResponsePartition(
                error_code=one.error,
                partition_index=one.number,
                leader_id=one.leader_id,
                leader_epoch=one.leader_epoch,
                replica_nodes=one.replicas,
                isr_nodes=one.in_sync,
                offline_replicas=one.offline,
            )
            for one in cluster_view.partitions(topic)
        ],
        topic_authorized_operations=cluster_view.TOPIC_OPERATIONS if operations else cluster_view.NOT_ASKED,
    )
