"""Consumer groups of a cluster: listed, described, deleted; their offsets read and written. Functions over a `Cluster`."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from odradek.clients.cluster import Cluster
from odradek.clients.errors import Refused, Unsupported, code_of
from odradek.protocol import ProtocolError, decode
from odradek.protocol.errors import ErrorCode

Place = tuple[str, int]
NEWEST_BY_NAME = 9
"""Of OffsetCommit and OffsetFetch: later versions name topics by id."""


class Listed(NamedTuple):
    """A group in a list. :param state: and `type`: "" from brokers that do not tell them."""

    group_id: str
    protocol_type: str
    state: str
    type: str
    coordinator: int


@dataclass
class Member:
    """A member of a group. :param assigned: None where it cannot be read. :param wants: what it will have, if that differs."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assigned: list[Place] | None
    epoch: int | None = None
    topics: list[str] = field(default_factory=list)
    wants: list[Place] | None = None


@dataclass
class Described:
    """A group. :param assignor: or protocol, as its members agreed. :param epoch: generation, where the broker tells it."""

    group_id: str
    type: str
    state: str
    assignor: str
    coordinator: int
    protocol_type: str = "consumer"
    epoch: int | None = None
    members: list[Member] = field(default_factory=list)


class Committed(NamedTuple):
    """An offset of a group. :param leader_epoch: -1 if not known."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class Event(NamedTuple):
    """What happened to a group, as its coordinator remembers: see `odradek.groups.history.Event`."""

    at_ms: int
    kind: str
    member: str
    client: str
    why: str
    took_ms: int | None


def list_groups(cluster: Cluster, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[Listed]:
    """All groups, by name. Raises Refused, ClientError; Unsupported if the brokers cannot filter."""
    from odradek.protocol.schemas import list_groups as api

    found = []
    oldest = 5 if types else 4 if states else 0
    for node_id in sorted(cluster.view(fresh=True).brokers):
        request = api.Request(states_filter=list(states), types_filter=list(types))
        answer = cluster.broker(node_id).ask(api.SCHEMA, request, oldest=oldest)
        if answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
            continue
        if answer.error_code:
            raise Refused(answer.error_code, what=f"the groups of broker {node_id}")
        found += [
            Listed(one.group_id, one.protocol_type, one.group_state, one.group_type.capitalize(), node_id)
            for one in answer.groups
        ]
    return sorted(found)


def describe(cluster: Cluster, group_id: str) -> Described:
    """A group of either protocol. Raises Refused if there is none, ClientError."""
    node_id = cluster.coordinator_of(group_id)
    try:
        found = _describe_consumer(cluster, group_id, node_id)
    except Unsupported:
        found = None
    return found or _describe_classic(cluster, group_id, node_id)


def _describe_consumer(cluster: Cluster, group_id: str, node_id: int) -> Described | None:
    from odradek.protocol.schemas import consumer_group_describe as api

    answer = cluster.ask_coordinator(
        group_id, api.SCHEMA, api.Request(group_ids=[group_id]), lambda answer: [answer.groups[0].error_code]
    )
    (told,) = answer.groups
    if told.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    if told.error_code:
        raise Refused(told.error_code, told.error_message, f"group '{group_id}'")
    return Described(
        group_id,
        "Consumer",
        told.group_state,
        told.assignor_name,
        node_id,
        epoch=told.group_epoch,
        members=[
            Member(
                one.member_id,
                one.instance_id,
                one.client_id,
                one.client_host,
                _places(one.assignment),
                one.member_epoch,
                list(one.subscribed_topic_names) + ([one.subscribed_topic_regex] if one.subscribed_topic_regex else []),
                _places(one.target_assignment),
            )
            for one in told.members
        ],
    )


def _places(assignment: Any) -> list[Place]:
    return sorted((one.topic_name, index) for one in assignment.topic_partitions for index in one.partitions)


def _describe_classic(cluster: Cluster, group_id: str, node_id: int) -> Described:
    from odradek.protocol.schemas import describe_groups as api

    answer = cluster.ask_coordinator(
        group_id, api.SCHEMA, api.Request(groups=[group_id]), lambda answer: [answer.groups[0].error_code]
    )
    (told,) = answer.groups
    if told.error_code == ErrorCode.GROUP_ID_NOT_FOUND or told.group_state == "Dead":
        raise no_group(group_id)
    if told.error_code:
        raise Refused(told.error_code, told.error_message, f"group '{group_id}'")
    consumers = told.protocol_type == "consumer"
    return Described(
        group_id,
        "Classic",
        told.group_state,
        told.protocol_data,
        node_id,
        told.protocol_type,
        members=[
            Member(
                one.member_id,
                one.group_instance_id,
                one.client_id,
                one.client_host,
                assignment_of(one.member_assignment) if consumers else None,
                topics=subscription_of(one.member_metadata) if consumers else [],
            )
            for one in told.members
        ],
    )


def no_group(group_id: str) -> Refused:
    """What to say of a group that there is not."""
    return Refused(
        ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group '{group_id}'; `odradek group list` shows what there is"
    )


def assignment_of(data: bytes) -> list[Place] | None:
    """What a consumer of a classic group was assigned; None if its bytes cannot be read."""
    from odradek.protocol.schemas.consumer_protocol import Assignment

    if not data:
        return []
    read = _versioned(Assignment, data)
    if read is None:
        return None
    return sorted((one.topic, index) for one in read.assigned_partitions for index in one.partitions)


def subscription_of(data: bytes) -> list[str]:
    """The topics that a consumer of a classic group subscribes to; none if its bytes cannot be read."""
    from odradek.protocol.schemas.consumer_protocol import Subscription

    read = _versioned(Subscription, data)
    return [] if read is None else list(read.topics)


def _versioned(cls: Any, data: bytes) -> Any:
    try:
        (version,) = struct.unpack_from(">h", data)
        return decode(cls, min(max(version, 0), 3), data, 2)[0]
    except (struct.error, ProtocolError):
        return None


def delete(cluster: Cluster, group_id: str) -> None:
    """Delete a group without members, with its offsets. Raises Refused, ClientError."""
    from odradek.protocol.schemas import delete_groups as api

    answer = cluster.ask_coordinator(
        group_id, api.SCHEMA, api.Request(groups_names=[group_id]), lambda answer: [answer.results[0].error_code]
    )
    code = answer.results[0].error_code
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise no_group(group_id)
    if code == ErrorCode.NON_EMPTY_GROUP:
        raise Refused(
            code, f"group '{group_id}' has members; stop them first (`odradek group describe {group_id}` shows who)"
        )
    if code:
        raise Refused(code, what=f"group '{group_id}'")


def fetch_offsets(cluster: Cluster, group_id: str) -> dict[Place, Committed]:
    """All offsets that a group has committed. Raises Refused, ClientError."""
    from odradek.protocol.schemas import offset_fetch as api

    make = api.Request
    node = cluster.broker(cluster.coordinator_of(group_id))
    version = node.version_of(api.SCHEMA, oldest=2, newest=NEWEST_BY_NAME)
    if version >= 8:
        request = make(groups=[make.OffsetFetchRequestGroup(group_id=group_id, topics=None)])
    else:
        request = make(group_id=group_id, topics=None)

    def told(answer: Any) -> Any:
        return answer.groups[0] if version >= 8 else answer

    answer = cluster.ask_coordinator(
        group_id, api.SCHEMA, request, lambda answer: [told(answer).error_code], oldest=version, newest=version
    )
    one = told(answer)
    if one.error_code:
        raise Refused(one.error_code, what=f"the offsets of group '{group_id}'")
    return {
        (topic.name, part.partition_index): Committed(
            part.committed_offset, part.committed_leader_epoch, part.metadata or ""
        )
        for topic in one.topics
        for part in topic.partitions
        if part.committed_offset >= 0
    }


def commit_offsets(cluster: Cluster, group_id: str, offsets: Mapping[Place, Committed]) -> dict[Place, ErrorCode]:
    """Commit from outside of a group without members: the places that were refused. Raises ClientError."""
    from odradek.protocol.schemas import offset_commit as api

    make = api.Request
    topics: dict[str, list[Any]] = {}
    for (topic, index), one in offsets.items():
        topics.setdefault(topic, []).append(
            make.OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=one.offset,
                committed_leader_epoch=one.leader_epoch,
                committed_metadata=one.metadata,
            )
        )
    request = make(
        group_id=group_id,
        topics=[make.OffsetCommitRequestTopic(name=name, partitions=ones) for name, ones in topics.items()],
    )

    def codes(answer: Any) -> list[int]:
        return [part.error_code for topic in answer.topics for part in topic.partitions]

    answer = cluster.ask_coordinator(group_id, api.SCHEMA, request, codes, oldest=2, newest=NEWEST_BY_NAME)
    return {
        (topic.name, part.partition_index): code_of(part.error_code)
        for topic in answer.topics
        for part in topic.partitions
        if part.error_code
    }


def explain(cluster: Cluster, group_id: str) -> list[Event]:
    """The last events of a group, oldest first. Raises Refused, Unsupported from a broker other than Odradek's, ClientError."""
    from odradek.protocol.schemas import explain_group as api

    try:
        answer = cluster.ask_coordinator(
            group_id, api.SCHEMA, api.Request(group_id=group_id), lambda answer: [answer.error_code]
        )
    except Unsupported:
        raise Unsupported(
            f"this broker does not keep a group's last events (Odradek's do); `odradek group describe {group_id}` shows "
            "how the group is now"
        ) from None
    if answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise no_group(group_id)
    if answer.error_code:
        raise Refused(answer.error_code, answer.error_message, f"group '{group_id}'")
    return [
        Event(one.at_ms, one.kind, one.member_id, one.client, one.why, one.took_ms if one.took_ms >= 0 else None)
        for one in answer.events
    ]


def lags(committed: Mapping[Place, Committed], ends: Mapping[Place, int]) -> dict[Place, int | None]:
    """How many records each committed offset is behind the end; None where the end is not known."""
    return {place: max(0, ends[place] - one.offset) if place in ends else None for place, one in committed.items()}
