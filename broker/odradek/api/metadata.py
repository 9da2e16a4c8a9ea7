"""Metadata (3): brokers and topics. Executed by workers; topics to be created are asked of the coordinator first.

A topic that is created on the way is answered in the same response: the worker has taken over the coordinator's version by
then, so that the client's next request finds it. A large answer is put together in steps. A request that names more topics than
`MOST_TO_CREATE_FROM` creates none.
"""

from collections.abc import Mapping
from typing import Any

from odradek._ext.shm.topics import Topic
from odradek.api import cluster_view
from odradek.api.call import Call
from odradek.api.stepwise import Pace, Steps
from odradek.controller.topic_names import why_illegal
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import metadata

ZERO_ID = bytes(16)
FIRST_BY_ID = 12
"""Versions 10 and 11 have the field for ids, but no null name in the response."""
MOST_TO_CREATE_FROM = 1000
STEP = 500
"""Topics and partitions that are described in one go."""


def handle(request: Any, call: Call) -> Any:
    """Answer now, or after the coordinator created what is missing."""
    if call.version < FIRST_BY_ID and any(
        topic.name is None or topic.topic_id != ZERO_ID for topic in request.topics or ()
    ):
        return _refused(request)
    missing = _to_create(request, call)
    if not missing:
        return _steps(request, call, {})
    answer = call.answer_later()

    def created(outcomes: list[tuple[str, int, str | None]]) -> None:
        answer(_steps(request, call, {name: code for name, code, _ in outcomes}))

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
    """The topics that are asked for, each once; None for all."""
    if request.topics is None or (call.version == 0 and not request.topics):
        return None
    return list({(topic.name, topic.topic_id): topic for topic in request.topics}.values())


def _to_create(request: Any, call: Call) -> list[str]:
    allowed = call.version < 4 or request.allow_auto_topic_creation
    if (
        not allowed
        or len(request.topics or ()) > MOST_TO_CREATE_FROM
        or not call.view.config["auto.create.topics.enable"]
    ):
        return []
    wanted = _wanted(request, call)
    if wanted is None:
        return []
    return [
        topic.name
        for topic in wanted
        if topic.name is not None and call.view.topics.get(topic.name) is None and why_illegal(topic.name) is None
    ]


def _steps(request: Any, call: Call, refused: Mapping[str, int]) -> Steps:
    wanted = _wanted(request, call)
    operations = call.version >= 8 and request.include_topic_authorized_operations
    topics = []
    pace = Pace(STEP)
    for one in [topic for _, topic in sorted(call.view.topics.by_name.items())] if wanted is None else wanted:
        found = one if wanted is None else _find(one, call)
        topics.append(_missing(one, refused) if found is None else _topic(found, operations))
        if found is not None:
            for first in range(0, found.count, STEP):
                topics[-1].partitions += _partitions(found, first)
                if pace.over(min(STEP, found.count - first)):
                    yield
        if pace.over():
            yield
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


def _find(one: Any, call: Call) -> Topic | None:
    found: Topic | None = (
        call.view.topics.by_id.get(one.topic_id) if one.name is None else call.view.topics.get(one.name)
    )
    return found


def _missing(one: Any, refused: Mapping[str, int]) -> Any:
    """What is said of a topic that there is not."""
    make = metadata.Response.MetadataResponseTopic
    if one.name is None:
        return make(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=one.topic_id)
    code = refused.get(one.name, ErrorCode.NONE)
    if why_illegal(one.name) is not None:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    return make(error_code=code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=one.name, topic_id=ZERO_ID)


def _topic(topic: Topic, operations: bool) -> Any:
    """A topic, still without its partitions."""
    return metadata.Response.MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[],
        topic_authorized_operations=cluster_view.TOPIC_OPERATIONS if operations else cluster_view.NOT_ASKED,
    )


def _partitions(topic: Topic, first: int) -> list[Any]:
    """Up to STEP partitions of a topic."""
    return [
        metadata.Response.MetadataResponsePartition(
            error_code=one.error,
            partition_index=one.number,
            leader_id=one.leader_id,
            leader_epoch=one.leader_epoch,
            replica_nodes=one.replicas,
            isr_nodes=one.in_sync,
            offline_replicas=one.offline,
        )
        for one in cluster_view.partitions(topic, first, first + STEP)
    ]
