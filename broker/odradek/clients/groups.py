"""Lists, describes and deletes the consumer groups of a cluster; reads and writes their offsets. Functions over a `Cluster`."""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from odradek.clients.cluster import Cluster
from odradek.clients.errors import ClientError, RefusedError, UnsupportedError, code_of, hint_on, only
from odradek.protocol import ProtocolError, decode
from odradek.protocol.errors import ErrorCode
from odradek.topic_partition import TopicPartition

NEWEST_BY_NAME = 9
"""The newest version of OffsetCommit and OffsetFetch that names topics; later versions identify topics by id."""
FIRST_WITH_GROUPS = 8
"""The first version of OffsetFetch that names several groups."""
FIRST_STABLE = 7
"""The first version of OffsetFetch that can wait for the end of transactions."""


class GroupListing(NamedTuple):
    """A group in a list. :param state: and `type`: "" if the broker does not report them. :param coordinator: broker id."""

    group_id: str
    protocol_type: str
    state: str
    type: str
    coordinator: int


@dataclass
class Member:
    """A member of a group.

    :param assigned: None if it cannot be parsed. :param wants: its target assignment, if the broker reports member.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assigned: list[TopicPartition] | None
    epoch: int | None = None
    topics: list[str] = field(default_factory=list)
    wants: list[TopicPartition] | None = None


@dataclass
class GroupDescription:
    """A group.

    :param assignor: the protocol on which its members agreed. :param epoch: None if the broker does not report it.
    """

    group_id: str
    type: str
    state: str
    assignor: str
    coordinator: int
    protocol_type: str = "consumer"
    epoch: int | None = None
    members: list[Member] = field(default_factory=list)


class CommittedOffset(NamedTuple):
    """A committed offset of a group. :param leader_epoch: -1 if unknown."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class PendingOffset(NamedTuple):
    """An offset that was committed in a transaction which has not ended.

    :param overtaken: the group has committed a newer offset since; the end of the transaction does not change that one.
    """

    offset: int
    producer_id: int
    overtaken: bool = False


class Event(NamedTuple):
    """An event in the history of a group; see `odradek.groups.history.Event`."""

    at_ms: int
    kind: str
    member: str
    client: str
    why: str
    took_ms: int | None


def list_groups(cluster: Cluster, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[GroupListing]:
    """All groups, sorted by id. Raises RefusedError, ClientError; Unsupported if the brokers cannot filter."""
    from odradek.protocol.schemas import list_groups as api

    groups = []
    oldest = 5 if types else 4 if states else 0
    request = api.Request(states_filter=list(states), types_filter=list(types))
    brokers = cluster.view(fresh=True).brokers
    responses = cluster.of_each_until(
        brokers,
        lambda _, connection: connection.ask(api.SCHEMA, request, oldest=oldest),
        lambda response: [response.error_code] if response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else [],
    )
    for node_id, response in responses.items():
        if isinstance(response, ClientError):
            raise response
        if response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
            continue
        if response.error_code:
            raise RefusedError(response.error_code, what=f"cannot list the groups of broker {node_id}")
        groups += [
            GroupListing(group.group_id, group.protocol_type, group.group_state, group.group_type.capitalize(), node_id)
            for group in response.groups
        ]
    return sorted(groups)


def describe(cluster: Cluster, group_id: str) -> GroupDescription:
    """Describe a group of either protocol. Raises RefusedError if it does not exist, ClientError."""
    node_id = cluster.coordinator_of(group_id)
    try:
        description = _describe_consumer(cluster, group_id, node_id)
    except UnsupportedError:
        description = None
    return description or _describe_classic(cluster, group_id, node_id)


def _codes_of_groups(response: Any) -> list[int]:
    return [group.error_code for group in response.groups]


def _describe_consumer(cluster: Cluster, group_id: str, node_id: int) -> GroupDescription | None:
    from odradek.protocol.schemas import consumer_group_describe as api

    response = cluster.ask_coordinator(group_id, api.SCHEMA, api.Request(group_ids=[group_id]), _codes_of_groups)
    group = only(response.groups, f"group '{group_id}'")
    if group.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    if group.error_code:
        raise RefusedError(group.error_code, group.error_message, f"group '{group_id}'")
    return GroupDescription(
        group_id,
        "Consumer",
        group.group_state,
        group.assignor_name,
        node_id,
        epoch=group.group_epoch,
        members=[
            Member(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host.removeprefix("/"),
                _places(member.assignment),
                member.member_epoch,
                list(member.subscribed_topic_names)
                + ([member.subscribed_topic_regex] if member.subscribed_topic_regex else []),
                _places(member.target_assignment),
            )
            for member in group.members
        ],
    )


def _places(assignment: Any) -> list[TopicPartition]:
    return sorted((topic.topic_name, index) for topic in assignment.topic_partitions for index in topic.partitions)


def _describe_classic(cluster: Cluster, group_id: str, node_id: int) -> GroupDescription:
    from odradek.protocol.schemas import describe_groups as api

    response = cluster.ask_coordinator(group_id, api.SCHEMA, api.Request(groups=[group_id]), _codes_of_groups)
    group = only(response.groups, f"group '{group_id}'")
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND or group.group_state == "Dead":
        raise no_group(group_id)
    if group.error_code:
        raise RefusedError(group.error_code, group.error_message, f"group '{group_id}'")
    consumers = group.protocol_type == "consumer"
    return GroupDescription(
        group_id,
        "Classic",
        group.group_state,
        group.protocol_data,
        node_id,
        group.protocol_type,
        members=[
            Member(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host.removeprefix("/"),
                assignment_of(member.member_assignment) if consumers else None,
                topics=subscription_of(member.member_metadata) if consumers else [],
            )
            for member in group.members
        ],
    )


def known_groups(cluster: Cluster) -> list[str]:
    """The ids of the groups that coordinators know. Raises ClientError."""
    return [group.group_id for group in list_groups(cluster)]


def described_or_none(cluster: Cluster, group_id: str, in_tree: bool) -> GroupDescription | None:
    """Describe a group; None if its coordinator does not know it. Raises RefusedError if it does not exist, ClientError.

    :param in_tree: it may exist in the metadata tree alone.
    """
    try:
        return describe(cluster, group_id)
    except RefusedError as error:
        if not in_tree or error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return None


def no_group(group_id: str, known: Callable[[], Iterable[str]] = tuple) -> RefusedError:
    """The error for a group that does not exist. :param known: see `hint_on`."""
    hint = hint_on(group_id, known, "`odradek group list` shows all groups")
    return RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"group '{group_id}' does not exist; {hint}")


def assignment_of(data: bytes) -> list[TopicPartition] | None:
    """The assignment of a consumer of a classic group; None if it cannot be parsed."""
    from odradek.protocol.schemas.consumer_protocol import Assignment

    if not data:
        return []
    read = _versioned(Assignment, data)
    if read is None:
        return None
    return sorted((topic.topic, index) for topic in read.assigned_partitions for index in topic.partitions)


def subscription_of(data: bytes) -> list[str]:
    """The topics that a consumer of a classic group subscribes to; empty if the subscription cannot be parsed."""
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
    """Delete a group without members, and its offsets. Raises RefusedError, ClientError."""
    from odradek.protocol.schemas import delete_groups as api

    response = cluster.ask_coordinator(
        group_id, api.SCHEMA, api.Request(groups_names=[group_id]), lambda response: [response.results[0].error_code]
    )
    code = response.results[0].error_code
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise no_group(group_id)
    if code == ErrorCode.NON_EMPTY_GROUP:
        raise RefusedError(
            code, f"group '{group_id}' has members; stop them first (`odradek group describe {group_id}` lists them)"
        )
    if code:
        raise RefusedError(code, what=f"group '{group_id}'")


def fetch_offsets(cluster: Cluster, group_id: str, stable: bool = False) -> dict[TopicPartition, CommittedOffset]:
    """All committed offsets of a group. Raises RefusedError, ClientError.

    :param stable: wait for the end of transactions in which offsets of the group were committed; needs Kafka 2.5 or later.
    """
    from odradek.protocol.schemas import offset_fetch as api

    make = api.Request
    node = cluster.broker(cluster.coordinator_of(group_id))
    version = node.version_of(api.SCHEMA, oldest=FIRST_STABLE if stable else 2, newest=NEWEST_BY_NAME)
    if version >= FIRST_WITH_GROUPS:
        request = make(groups=[make.OffsetFetchRequestGroup(group_id=group_id, topics=None)], require_stable=stable)
    else:
        request = make(group_id=group_id, topics=None, require_stable=stable)

    def group_of(response: Any) -> Any:
        return only(response.groups, f"group '{group_id}'") if version >= FIRST_WITH_GROUPS else response

    def codes(response: Any) -> list[int]:
        group = group_of(response)
        unstable = [part.error_code for topic in group.topics for part in topic.partitions] if stable else []
        return [group.error_code, *unstable]

    response = cluster.ask_coordinator(group_id, api.SCHEMA, request, codes, oldest=version, newest=version)
    for code in filter(None, codes(response)):
        raise RefusedError(code, what=f"cannot read the offsets of group '{group_id}'")
    return committed_in(group_of(response))


def committed_in(answer: Any) -> dict[TopicPartition, CommittedOffset]:
    """The committed offsets in the answer of OffsetFetch for one group."""
    return {
        (topic.name, part.partition_index): CommittedOffset(
            part.committed_offset, part.committed_leader_epoch, part.metadata or ""
        )
        for topic in answer.topics
        for part in topic.partitions
        if part.committed_offset >= 0
    }


def commit_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
) -> dict[TopicPartition, ErrorCode]:
    """Commit offsets for a group without members; return the errors of failed partitions. Raises ClientError."""
    from odradek.protocol.schemas import offset_commit as api

    make = api.Request
    topics: dict[str, list[Any]] = {}
    for (topic, index), committed in offsets.items():
        topics.setdefault(topic, []).append(
            make.OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                committed_metadata=committed.metadata,
            )
        )
    request = make(
        group_id=group_id,
        topics=[make.OffsetCommitRequestTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
    )

    def codes(response: Any) -> list[int]:
        return [part.error_code for topic in response.topics for part in topic.partitions]

    response = cluster.ask_coordinator(group_id, api.SCHEMA, request, codes, oldest=2, newest=NEWEST_BY_NAME)
    return {
        (topic.name, part.partition_index): code_of(part.error_code)
        for topic in response.topics
        for part in topic.partitions
        if part.error_code
    }


def explain(cluster: Cluster, group_id: str) -> list[Event]:
    """The recorded events of a group, oldest first.

    Raises RefusedError, ClientError; UnsupportedError if the broker is not Odradek.
    """
    from odradek.protocol.schemas import explain_group as api

    try:
        response = cluster.ask_coordinator(
            group_id, api.SCHEMA, api.Request(group_id=group_id), lambda response: [response.error_code]
        )
    except UnsupportedError:
        raise UnsupportedError(
            f"this broker does not record the events of a group (only Odradek does); `odradek group describe {group_id}` shows "
            "the current state of the group"
        ) from None
    if response.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise no_group(group_id)
    if response.error_code:
        raise RefusedError(response.error_code, response.error_message, f"group '{group_id}'")
    return [
        Event(
            event.at_ms,
            event.kind,
            event.member_id,
            event.client,
            event.why,
            event.took_ms if event.took_ms >= 0 else None,
        )
        for event in response.events
    ]


def pending_offsets(cluster: Cluster, group_id: str) -> dict[TopicPartition, list[PendingOffset]]:
    """A group's offsets in open transactions; empty if the broker is not Odradek. Raises RefusedError, ClientError."""
    from odradek.protocol.schemas import explain_group as api

    try:
        response = cluster.ask_coordinator(
            group_id, api.SCHEMA, api.Request(group_id=group_id), lambda response: [response.error_code], oldest=1
        )
    except UnsupportedError:
        return {}
    if response.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return {}
    if response.error_code:
        raise RefusedError(response.error_code, response.error_message, f"group '{group_id}'")
    places: dict[TopicPartition, list[PendingOffset]] = {}
    for row in response.pending_offsets:
        pending = PendingOffset(row.offset, row.producer_id, row.overtaken)
        places.setdefault((row.topic, row.partition), []).append(pending)
    return places
