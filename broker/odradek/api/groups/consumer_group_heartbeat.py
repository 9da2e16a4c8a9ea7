"""ConsumerGroupHeartbeat (68): a member of a consumer group (KIP-848) joins, stays in the group, or leaves. Executed in the
coordinator's loop.
"""

from collections.abc import Generator
from dataclasses import replace
from typing import Any

from odradek.api.api import Api, Place
from odradek.api.groups.group_call import GroupCall
from odradek.api.groups.visible_topics import sight_of
from odradek.api.guarding import (
    Asked,
    Refused,
    VerdictInSteps,
)
from odradek.groups.consumer_member import (
    JOINING,
    LEAVING_STATIC,
    HeartbeatRequest,
    HeartbeatResult,
    TopicNames,
    by_topic,
)
from odradek.groups.environment import new_member_id
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import consumer_group_heartbeat
from odradek.security.acl import Operation, ResourceType
from odradek.security.needs import (
    GROUP,
    GROUP_DENIED,
    TOPIC,
    TOPIC_DENIED,
    each,
)
from odradek.stepwise import Pace, Steps, ordered_in_steps, waited
from odradek.topic_partition import TopicIdPartition

Response = consumer_group_heartbeat.Response
RUN = 1_000
"""The number of partitions of a request that are handled between two pauses."""
API = Api(
    consumer_group_heartbeat.SCHEMA,
    versions=(0, 1),
    place=Place.GROUPS,
    rights=each(
        (Operation.READ, GROUP),
        (Operation.DESCRIBE, TOPIC),
        refused=f"{GROUP_DENIED}, {TOPIC_DENIED}",
        note="the topics to which the member subscribes by name",
    ),
    per_partition=2,
)


def guard(asked: Asked) -> VerdictInSteps:
    """READ on the group, DESCRIBE on the topics to which the member subscribes by name."""
    request, permits = asked.request, asked.permits
    make = consumer_group_heartbeat.Response
    if not permits.group(Operation.READ, request.group_id):
        return Refused(make(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    names = request.subscribed_topic_names or ()
    if (yield from permits.denied_in_steps(Operation.DESCRIBE, ResourceType.TOPIC, names)):
        return Refused(make(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    return None


def handle(request: consumer_group_heartbeat.Request, call: GroupCall) -> Steps:
    """Execute the heartbeat; the response is sent when the changes are durable."""
    disabled = call.view.without_consumer_protocol
    if disabled is not None:
        return Response(error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=disabled)
    problem = _problem(request, call.version)
    interval_ms = call.view.groups.shards.consumer_settings.of(request.group_id).heartbeat_interval_ms
    if problem is not None:
        return Response(error_code=ErrorCode.INVALID_REQUEST, error_message=problem)
    names = request.subscribed_topic_names
    heartbeat = HeartbeatRequest(
        member_id=request.member_id or new_member_id(call.client_id),
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=None if names is None else TopicNames((yield from ordered_in_steps(names))),
        pattern=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=(yield from _places(request.topic_partitions)),
        client_id=call.client_id or "",
        client_host=f"/{call.host}",
        principal=call.principal,
    )
    for pattern in call.view.groups.members.unresolved_patterns(request.group_id, heartbeat):
        yield from _resolved(pattern, call)
    sight = yield from sight_of(call, request.group_id, heartbeat)
    if sight.own is not None:
        heartbeat = replace(heartbeat, visible=sight.own)
        call.view.groups.members.see(request.group_id, sight.others)
    result: HeartbeatResult = yield from waited(
        lambda then: call.view.groups.members.beat(request.group_id, heartbeat, then)
    )
    response = Response(
        error_code=result.error,
        error_message=result.message,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=interval_ms
        if result.error is ErrorCode.NONE and heartbeat.member_epoch >= JOINING
        else 0,
    )
    if result.assignment is not None:
        response.assignment = Response.Assignment(
            topic_partitions=[
                Response.TopicPartitions(topic_id=topic, partitions=partitions)
                for topic, partitions in by_topic(result.assignment).items()
            ]
        )
    return response


def _places(topics: list[Any] | None) -> Generator[None, None, frozenset[TopicIdPartition] | None]:
    """The partitions that a member owns, with pauses."""
    if topics is None:
        return None
    pace = Pace(RUN)
    places: set[TopicIdPartition] = set()
    for topic in topics:
        topic_id = bytes(topic.topic_id)
        for first in range(0, len(topic.partitions), RUN):
            some = topic.partitions[first : first + RUN]
            places.update((topic_id, partition) for partition in some)
            if pace.over(len(some)):
                yield
        if pace.over():
            yield
    return frozenset(places)


def _resolved(pattern: str, call: GroupCall) -> Generator[Any, None, None]:
    """Wait until a pattern was matched with all topics, or was found invalid: then the group refuses it."""
    yield from waited(lambda then: call.view.groups.shards.patterns.resolve(pattern, then))


def _problem(request: consumer_group_heartbeat.Request, version: int) -> str | None:
    """The error message for an invalid request; None if the request is valid."""
    if not request.group_id.strip():
        return "GroupId can't be empty."
    if request.member_epoch < LEAVING_STATIC:
        return f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -2."
    for name, value in (("InstanceId", request.instance_id), ("RackId", request.rack_id)):
        if value is not None and not value.strip():
            return f"{name} can't be empty."
    if request.member_epoch == LEAVING_STATIC and request.instance_id is None:
        return "InstanceId can't be null."
    if not request.member_id and (version >= 1 or request.member_epoch != JOINING):
        return "MemberId can't be empty."
    if request.member_epoch == JOINING:
        if request.rebalance_timeout_ms < 0:
            return "RebalanceTimeoutMs must be provided in first request."
        if request.topic_partitions is None or request.topic_partitions:
            return "TopicPartitions must be empty when (re-)joining."
        if request.subscribed_topic_names is None and not request.subscribed_topic_regex:
            return "SubscribedTopicNames or SubscribedTopicRegex must be set in first request."
    return None
