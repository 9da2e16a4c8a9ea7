"""Metadata (3): returns brokers and topics. Executed by workers, which first ask the coordinator to create missing topics.

The response contains topics that the request created: by then the worker has taken over the coordinator's metadata version,
so the client's next request finds them, too. In a cluster, a created topic has the error LEADER_NOT_AVAILABLE until the
controller has published its leaders. A large response is built in steps. A request that names more topics than
`MAX_TOPICS_TO_CREATE` creates none.

Topics without DESCRIBE are left out of the list of all topics. A client that names one receives TOPIC_AUTHORIZATION_FAILED,
whether the topic exists or not. To create a topic, it needs CREATE on the cluster or on the topic.
"""

from collections.abc import Generator, Iterator, Mapping, Set
from typing import Any

from odradek._ext.protocol.arrays import new_array
from odradek._ext.shm.topics import Topic
from odradek.api import cluster_view
from odradek.api.api import Api, Guarded, Place
from odradek.api.call import Call
from odradek.api.guarding import (
    made_in_steps,
)
from odradek.controller.topic_names import why_illegal
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import metadata
from odradek.security.acl import Operation, ResourceType
from odradek.security.needs import (
    TOPIC,
    TOPIC_DENIED,
    need,
)
from odradek.stepwise import Pace, Steps, waited

ZERO_ID = bytes(16)
FIRST_BY_ID = 12
"""The first version in which topics may be requested by id: versions 10 and 11 have the field, but the response cannot
contain a null name."""
MAX_TOPICS_TO_CREATE = 1000
FIRST_WITH_LISTENER_NOT_FOUND = 6
STEP = 500
"""The number of topics and partitions per step."""
API = Api(
    metadata.SCHEMA,
    versions=(0, 13),
    place=Place.WORKER,
    rights=need(
        Operation.DESCRIBE,
        TOPIC,
        f"{TOPIC_DENIED} for a topic that the request names; other topics are left out",
        "automatic creation: CREATE on cluster or topic",
    ),
    guarded=Guarded.INSIDE,
    per_partition=1,
    needs_published=True,
)


def handle(request: metadata.Request, call: Call) -> Any:
    """Respond now, or after the coordinator created the missing topics."""
    if len(request.topics or ()) > MAX_TOPICS_TO_CREATE:
        return _without_creation(request, call)
    if call.version < FIRST_BY_ID and any(map(_by_id, request.topics or ())):
        return _refused(request)
    denied = _hidden(request, call)
    missing = [name for name in _to_create(request, call) if name not in denied]
    uncreatable: frozenset[str] = frozenset()
    if missing and not call.permits.cluster(Operation.CREATE, quiet=True):
        uncreatable = call.permits.denied(Operation.CREATE, ResourceType.TOPIC, missing)
        missing = [name for name in missing if name not in uncreatable]
    denied |= uncreatable
    if not missing:
        return _steps(request, call, {}, denied)
    return _with_creation(request, call, missing, denied)


def _with_creation(request: metadata.Request, call: Call, missing: list[str], denied: frozenset[str]) -> Steps:
    """Create topics first."""
    outcomes = yield from waited(lambda then: call.auto_create(missing, then))
    return (yield from _steps(request, call, {name: code for name, code, _ in outcomes}, denied))


def _by_id(topic: Any) -> bool:
    return topic.name is None or topic.topic_id != ZERO_ID


def _without_creation(request: metadata.Request, call: Call) -> Steps:
    if call.version < FIRST_BY_ID and any((yield from made_in_steps(request.topics or (), _by_id))):
        return _refused(request)
    denied = yield from call.permits.denied_in_steps(Operation.DESCRIBE, ResourceType.TOPIC, _named(request))
    return (yield from _steps(request, call, {}, denied))


def _hidden(request: metadata.Request, call: Call) -> frozenset[str]:
    """The names in the request that the client may not describe."""
    return call.permits.denied(Operation.DESCRIBE, ResourceType.TOPIC, _named(request))


def _named(request: metadata.Request) -> Iterator[str]:
    return (topic.name for topic in request.topics or () if topic.name is not None)


def _refused(request: metadata.Request) -> Any:
    make = metadata.Response.MetadataResponseTopic
    return metadata.Response(
        topics=[
            make(error_code=ErrorCode.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id)
            for topic in request.topics or ()
        ]
    )


def _requested(request: metadata.Request, call: Call) -> list[Any] | None:
    """The requested topics without duplicates; None for all topics."""
    if request.topics is None or (call.version == 0 and not request.topics):
        return None
    return list({(topic.name, topic.topic_id): topic for topic in request.topics}.values())


def _requested_in_steps(request: metadata.Request, call: Call) -> Generator[None, None, list[Any] | None]:
    if request.topics is None or len(request.topics) <= STEP:
        return _requested(request, call)
    requested: dict[tuple[str | None, bytes], Any] = {}
    pace = Pace(STEP)
    for topic in request.topics:
        requested[topic.name, topic.topic_id] = topic
        if pace.over():
            yield
    return list(requested.values())


def _to_create(request: metadata.Request, call: Call) -> list[str]:
    allowed = call.version < 4 or request.allow_auto_topic_creation
    if not allowed or not call.view.config["auto.create.topics.enable"]:
        return []
    requested = _requested(request, call)
    if requested is None:
        return []
    return [
        topic.name
        for topic in requested
        if topic.name is not None and cluster_view.find(topic.name, call) is None and why_illegal(topic.name) is None
    ]


def _steps(request: metadata.Request, call: Call, refused: Mapping[str, int], denied: Set[str]) -> Steps:
    requested = yield from _requested_in_steps(request, call)
    operations = call.version >= 8 and request.include_topic_authorized_operations
    topics = new_array()
    pace = Pace(STEP)
    for entry in cluster_view.topics_by_name(call) if requested is None else requested:
        topic = entry if requested is None else _find(entry, call)
        if requested is None and not call.permits.topic(Operation.DESCRIBE, entry.name, quiet=True):
            topic = None
        elif requested is not None and _is_denied(entry, topic, call, denied):
            topics.append(_denied(entry))
            topic = None
        else:
            topics.append(_missing(entry, refused) if topic is None else _topic(topic))
            if operations and topics[-1].name is not None:
                name = topics[-1].name
                topics[-1].topic_authorized_operations = call.permits.operations(ResourceType.TOPIC, name)
        if topic is not None:
            for first in range(0, topic.count, STEP):
                topics[-1].partitions += _partitions(topic, call, first)
                if pace.over(min(STEP, topic.count - first)):
                    yield
        if pace.over():
            yield
    cluster_operations = cluster_view.NOT_ASKED
    if 8 <= call.version <= 10 and request.include_cluster_authorized_operations:
        cluster_operations = call.permits.cluster_operations()
    return metadata.Response(
        brokers=[
            metadata.Response.MetadataResponseBroker(
                node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
            )
            for broker in cluster_view.brokers(call)
        ],
        cluster_id=call.view.shm.cluster_id,
        controller_id=cluster_view.controller_id(call),
        topics=topics,
        cluster_authorized_operations=cluster_operations,
    )


def _find(requested: Any, call: Call) -> Topic | None:
    if requested.name is not None:
        return cluster_view.find(requested.name, call)
    topic: Topic | None = call.view.topics.by_id.get(requested.topic_id)
    return topic if topic is not None and cluster_view.exists(topic, call) else None


def _is_denied(requested: Any, topic: Topic | None, call: Call, denied: Set[str]) -> bool:
    if requested.name is not None:
        return requested.name in denied
    return topic is not None and not call.permits.topic(Operation.DESCRIBE, topic.name)


def _denied(requested: Any) -> Any:
    """The part of the response for a topic that the client may not see: with the name or the id of the request only."""
    return metadata.Response.MetadataResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        name=requested.name,
        topic_id=ZERO_ID if requested.name is not None else requested.topic_id,
    )


def _missing(requested: Any, refused: Mapping[str, int]) -> Any:
    """The part of the response for a topic that does not exist."""
    make = metadata.Response.MetadataResponseTopic
    if requested.name is None:
        return make(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=requested.topic_id)
    code = refused.get(requested.name, ErrorCode.NONE)
    if why_illegal(requested.name) is not None:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    return make(error_code=code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=requested.name, topic_id=ZERO_ID)


def _topic(topic: Topic) -> Any:
    """The part of the response for a topic, without partitions."""
    return metadata.Response.MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[],
    )


def _partitions(topic: Topic, call: Call, first: int) -> list[Any]:
    """The parts of the response for up to STEP partitions of a topic."""
    errors = cluster_view.Errors(call.version >= FIRST_WITH_LISTENER_NOT_FOUND, call.version == 0)
    return [
        metadata.Response.MetadataResponsePartition(
            error_code=state.error,
            partition_index=state.number,
            leader_id=state.leader_id,
            leader_epoch=state.leader_epoch,
            replica_nodes=state.replicas,
            isr_nodes=state.in_sync,
            offline_replicas=state.offline,
        )
        for state in cluster_view.partitions(topic, call, first, first + STEP, errors)
    ]
