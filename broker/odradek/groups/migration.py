"""Classic members in a consumer group (KIP-848), and the upgrade and downgrade of a group with members.

While applications are upgraded one by one, consumers of both protocols share a group. The first member of the consumer
protocol upgrades the classic group to a consumer group (`upgrade`). Classic members keep using JoinGroup, SyncGroup and
Heartbeat, which are translated: a generation is the member epoch, and REBALANCE_IN_PROGRESS makes a member rejoin and
report its partitions. When the last member of the consumer protocol leaves, the group is downgraded (`downgrade`).
Functions on groups, used in the coordinator's loop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any

from odradek.coordination.environment import Record
from odradek.groups.classic import ClassicGroup
from odradek.groups.classic_member import (
    MALFORMED,
    JoinRequest,
    JoinResult,
    Member,
    Subscribed,
    SyncRequest,
    SyncResult,
)
from odradek.groups.classic_rebalance import State
from odradek.groups.consumer_group import ConsumerGroup
from odradek.groups.consumer_member import (
    JOINING,
    RECORD_BYTES,
    ClassicSide,
    ConsumerMember,
    HeartbeatRequest,
    HeartbeatResult,
    MemberState,
    TopicNames,
    size_of,
)
from odradek.groups.consumer_metadata import (
    CONSUMER,
    assignment_of,
    encode_assignment,
    subscription_in_steps,
    subscription_of,
    version_of,
)
from odradek.groups.environment import Topics, new_member_id
from odradek.protocol.errors import ErrorCode
from odradek.stepwise import Pace, Stepwise, ordered_in_steps
from odradek.topic_partition import TopicIdPartition

PLACES_A_STEP = 2000
BATCH_BYTES, RECORD_OVERHEAD = 61, 24
"""Largest size of a batch without records, and of a record without key and value."""


def places_in_steps(topics: Topics, partitions: Iterable[Any]) -> Generator[None, None, frozenset[TopicIdPartition]]:
    """Convert topic partitions by name to places by topic id; unknown topics are omitted."""
    places: set[TopicIdPartition] = set()
    pace = Pace(PLACES_A_STEP)
    for topic in partitions:
        known = topics.find(topic.topic)
        if pace.over():
            yield
        if known is None:
            continue
        for partition in topic.partitions:
            places.add((known[0], partition))
            if pace.over():
                yield
    return frozenset(places)


def subscribed_in_steps(metadata: bytes, topics: Topics) -> Generator[None, None, Subscribed]:
    """What a consumer's subscription says, read in steps; `MALFORMED`, if it is."""
    subscription = yield from subscription_in_steps(metadata)
    if subscription is None:
        return MALFORMED
    names = yield from ordered_in_steps(subscription.topics)
    owned = yield from places_in_steps(topics, subscription.owned_partitions)
    return Subscribed(getattr(subscription, "rack_id", None), TopicNames(names), owned)


# -- upgrade and downgrade ------------------------------------------------------------------------------------------


def upgrade_obstacle(group: ClassicGroup, max_size: int, max_bytes: int) -> str | None:
    """The reason why a classic group with members cannot be upgraded; None if it can.

    :param max_size: largest number of members of a consumer group. :param max_bytes: largest size of its records.
    """
    if len(group.members) > max_size:
        return f"it has {len(group.members)} members, more than group.consumer.max.size ({max_size})"
    if group.protocol_type != CONSUMER:
        return f"its protocol type is {group.protocol_type!r}, not {CONSUMER!r}"
    size = sum(_record_bytes(group, member) for member in group.members.values())
    if size > max_bytes:  # before subscriptions are read, which takes longer
        return f"its {len(group.members)} members take about {size} bytes, more than message.max.bytes ({max_bytes})"
    for member in group.members.values():
        for name, metadata in member.protocols:
            if subscription_of(metadata) is None:
                return f"the subscription of member {member.member_id} for assignor {name} is malformed"
    return None


def _record_bytes(group: ClassicGroup, member: Member) -> int:
    """The approximate size of a member's three records: texts, assignors, topics; partitions twice, once with epochs."""
    keys = 3 * (len(group.group_id.encode()) + len(member.member_id.encode()))
    texts = sum(len(text.encode()) for text in (member.instance_id or "", member.client_id, member.client_host))
    protocols = sum(len(name) + len(metadata) for name, metadata in member.protocols)
    return RECORD_BYTES + keys + texts + protocols + len(member.protocols[0][1]) + 3 * len(member.assignment)


def upgrade(group: ClassicGroup, into: ConsumerGroup, topics: Topics) -> list[Record]:
    """Move the members of a classic group and their partitions to an empty consumer group; return its records.

    During a rebalance the members own no partitions afterwards; pending requests get REBALANCE_IN_PROGRESS, and the members
    rejoin. The classic group is dead afterwards.
    """
    rebalancing = group.rebalance.state is not State.STABLE
    into.epoch = into.assignment_epoch = max(group.rebalance.generation_id, 1)
    for old in group.members.values():
        member = _as_consumer(old, topics, rebalancing)
        member.confirmed = old.member_id not in group.roster.unconfirmed
        member.epoch = member.previous_epoch = into.epoch
        member.since = dict.fromkeys(member.assigned, into.epoch)
        into.add_migrated_member(member, member.assigned)
    into.finish_migration()
    into.history = group.history
    group.die(ErrorCode.REBALANCE_IN_PROGRESS)
    return into.all_records()


def _as_consumer(old: Member, topics: Topics, rebalancing: bool) -> ConsumerMember:
    subscription = subscription_of(old.protocols[0][1])
    assignment = None if rebalancing else assignment_of(old.assignment)
    return ConsumerMember(
        old.member_id,
        old.instance_id,
        getattr(subscription, "rack_id", None),
        old.client_id,
        old.client_host,
        old.rebalance_timeout_ms,
        TopicNames(sorted(set(subscription.topics))) if subscription is not None else TopicNames(),
        assigned=Stepwise(
            places_in_steps(topics, assignment.assigned_partitions if assignment is not None else ())
        ).finish(),
        classic=ClassicSide(old.session_timeout_ms, list(old.protocols)),
    )


def downgrade(group: ConsumerGroup, into: ClassicGroup, names: Callable[[bytes], str | None]) -> None:
    """Move the members of a consumer group, all of them classic, to an empty classic group.

    They keep their partitions until the rebalance, which the caller begins. The consumer group is not changed; the caller
    ends it.
    """
    members = []
    for member in group.members.values():
        classic = member.classic
        assert classic is not None
        join = JoinRequest(
            member.member_id,
            classic.session_timeout_ms,
            member.rebalance_timeout_ms,
            CONSUMER,
            classic.protocols,
            member.client_id,
            member.client_host,
            member.instance_id,
        )
        version = version_of(classic.protocols[0][1])
        members.append((join, encode_assignment(member.assigned, names, version)))
    leader = next(iter(group.members))
    # Their own epoch, not that of the group, so that they learn of the rebalance instead of ILLEGAL_GENERATION.
    generation = max(member.epoch for member in group.members.values())
    into.restore(generation, CONSUMER, members[0][0].protocols[0][0], leader, members, group.state_since_ms)
    into.history = group.history


def batch_bytes(records: Iterable[Record]) -> int:
    """The largest size of a batch with these records."""
    return BATCH_BYTES + sum(RECORD_OVERHEAD + len(key) + len(value or b"") for key, value in records)


# -- classic requests in a consumer group---------------------------------------------------------------------------


def join(
    group: ConsumerGroup, topics: Topics, max_bytes: int, request: JoinRequest, then: Callable[[JoinResult], None]
) -> None:
    """Handle a JoinGroup in a consumer group as a heartbeat with the subscription and the owned partitions.

    :param max_bytes: largest size of a member's record, which has its topics twice: in the subscription and by name.
    """
    subscribed = request.subscribed
    if request.protocol_type != CONSUMER:
        why = f"its protocol type is {request.protocol_type!r}, not {CONSUMER!r}"
    elif not shares_protocol(group, request):
        names = ", ".join(name for name, _ in request.protocols) or "none"
        why = f"it does not support an assignor that all classic members have in common; its assignors are {names}"
    else:
        why = ""
        if subscribed is None:
            subscribed = Stepwise(subscribed_in_steps(request.protocols[0][1], topics)).finish()
        if subscribed is MALFORMED:
            why = f"its subscription for assignor {request.protocols[0][0]} is malformed"
    if why or subscribed is None:
        group.record_refusal(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, why)
        then(JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
        return
    member_id, error = _joining_member_id(group, request)
    if error is not ErrorCode.NONE:
        then(JoinResult(error, member_id))
        return
    takes_over = request.instance_id in group.static_members and not request.member_id
    classic = ClassicSide(request.session_timeout_ms, list(request.protocols))
    heartbeat_request = HeartbeatRequest(
        member_id,
        JOINING,
        request.instance_id,
        subscribed.rack_id,
        request.rebalance_timeout_ms,
        subscribed.topics,
        owned=subscribed.owned,
        client_id=request.client_id,
        client_host=request.client_host,
        classic=classic,
    )
    if size_of(heartbeat_request) > max_bytes:
        then(JoinResult(ErrorCode.UNKNOWN_SERVER_ERROR, member_id))
        return
    if takes_over and request.instance_id is not None:
        group.release_instance(request.instance_id)

    def respond(result: HeartbeatResult) -> None:
        error = result.error
        if error is ErrorCode.UNRELEASED_INSTANCE_ID:
            error = ErrorCode.FENCED_INSTANCE_ID
        if error is not ErrorCode.NONE:
            then(JoinResult(error, member_id))
            return
        then(JoinResult(ErrorCode.NONE, member_id, result.member_epoch, CONSUMER, request.protocols[0][0]))

    group.heartbeat(heartbeat_request, respond)


def _joining_member_id(group: ConsumerGroup, request: JoinRequest) -> tuple[str, ErrorCode]:
    """Return the member id of a JoinGroup, a new one if the request has none, and the error that refuses the request."""
    member_id = request.member_id
    if request.instance_id is not None:
        if member_id and group.static_members.get(request.instance_id) != member_id:
            error = group.instance_error(request.instance_id, member_id)
            return member_id, error or ErrorCode.UNKNOWN_MEMBER_ID
        return member_id or new_member_id(request.instance_id), ErrorCode.NONE
    if member_id:
        return member_id, ErrorCode.NONE
    return new_member_id(request.client_id), ErrorCode.MEMBER_ID_REQUIRED if request.id_required else ErrorCode.NONE


def shares_protocol(group: ConsumerGroup, request: JoinRequest) -> bool:
    """Whether the request has an assignor that all other classic members support, which a downgrade needs."""
    shared = {name for name, _ in request.protocols}
    for member in group.members.values():
        if member.classic and member.member_id != request.member_id:
            shared.intersection_update(name for name, _ in member.classic.protocols)
    return bool(shared)


def sync(group: ConsumerGroup, request: SyncRequest, names: Callable[[bytes], str | None]) -> SyncResult:
    """Handle a SyncGroup in a consumer group: return the partitions that the member may own in its epoch."""
    member, error = _classic_member(group, request.member_id, request.instance_id, request.generation_id)
    if member is None:
        return SyncResult(error)
    assert member.classic is not None
    name, metadata = member.classic.protocols[0]
    if request.protocol_type not in (None, CONSUMER) or request.protocol_name not in (None, name):
        return SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if _needs_rejoin(group, member) and member.state is not MemberState.UNREVOKED_PARTITIONS:
        group.start_rejoin_timeout(member)
        return SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
    group.extend_session(member)
    return SyncResult(ErrorCode.NONE, CONSUMER, name, encode_assignment(member.assigned, names, version_of(metadata)))


def heartbeat(group: ConsumerGroup, member_id: str, generation_id: int, instance_id: str | None) -> ErrorCode:
    """Handle a Heartbeat in a consumer group: REBALANCE_IN_PROGRESS if the member must rejoin for its next step."""
    member, error = _classic_member(group, member_id, instance_id, generation_id)
    if member is None:
        return error
    group.extend_session(member)
    waits = member.state is MemberState.UNRELEASED_PARTITIONS and group.has_free_partitions(member)
    if _needs_rejoin(group, member) or member.state is MemberState.UNREVOKED_PARTITIONS or waits:
        group.start_rejoin_timeout(member)
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _needs_rejoin(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether a JoinGroup would bring a newer target. While none is due, the member must not rejoin repeatedly."""
    return member.epoch < group.assignment_epoch or group.assignment_due


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
) -> tuple[ConsumerMember | None, ErrorCode]:
    error = group.instance_error(instance_id, member_id)
    if error is not None:
        return None, error
    member = group.members.get(member_id)
    if member is None or member.classic is None:
        return None, ErrorCode.UNKNOWN_MEMBER_ID
    member.confirmed = True
    if generation_id != member.epoch:
        return None, ErrorCode.ILLEGAL_GENERATION
    return member, ErrorCode.NONE
