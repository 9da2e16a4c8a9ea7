"""Encodes consumer groups (KIP-848) as records of `__consumer_offsets`, and restores groups from them.

Pure functions on a group; used in the coordinator's loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from odradek.coordination.environment import Record
from odradek.groups.consumer_member import ClassicSide, ConsumerMember, MemberState, TopicNames, by_topic
from odradek.protocol.schemas import group_records as records
from odradek.topic_partition import TopicIdPartition

if TYPE_CHECKING:
    from odradek.groups.consumer_group import ConsumerGroup

OF_MEMBER = (
    records.CONSUMER_GROUP_CURRENT_ASSIGNMENT,
    records.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
    records.CONSUMER_GROUP_MEMBER_METADATA,
)
OF_GROUP = (
    records.CONSUMER_GROUP_TARGET_ASSIGNMENT,
    records.CONSUMER_GROUP_PARTITION_METADATA,
    records.CONSUMER_GROUP_METADATA,
)


def group_record(group: ConsumerGroup) -> Record:
    """The record of the group epoch."""
    kind = records.CONSUMER_GROUP_METADATA
    value = kind.value(epoch=group.epoch, metadata_hash=group.metadata_hash)
    return records.record(kind, value, group_id=group.group_id)


def member_record(group: ConsumerGroup, member: ConsumerMember) -> Record:
    """The record of a member and its subscription."""
    kind = records.CONSUMER_GROUP_MEMBER_METADATA
    value = kind.value(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.pattern,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
    )
    if member.classic is not None:
        value.classic_member_metadata = kind.value.ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[
                kind.value.ClassicProtocol(name=name, metadata=metadata) for name, metadata in member.classic.protocols
            ],
        )
    return records.record(kind, value, group_id=group.group_id, member_id=member.member_id)


def target_epoch_record(group: ConsumerGroup, now_ms: int) -> Record:
    """The record of the assignment epoch. :param now_ms: wall clock."""
    kind = records.CONSUMER_GROUP_TARGET_ASSIGNMENT
    value = kind.value(assignment_epoch=group.assignment_epoch, assignment_timestamp=now_ms)
    return records.record(kind, value, group_id=group.group_id)


def target_record(group: ConsumerGroup, member_id: str) -> Record:
    """The record of a member's target assignment."""
    kind = records.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER
    value = kind.value(topic_partitions=_topic_partitions(kind.value.TopicPartition, group.target[member_id]))
    return records.record(kind, value, group_id=group.group_id, member_id=member_id)


def current_record(group: ConsumerGroup, member: ConsumerMember) -> Record:
    """The record of a member's current assignment, epoch and state."""
    kind = records.CONSUMER_GROUP_CURRENT_ASSIGNMENT
    value = kind.value(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=int(member.state),
        assigned_partitions=_held(kind.value.TopicPartitions, member.assigned, member.since),
        partitions_pending_revocation=_held(kind.value.TopicPartitions, member.revoking, member.since),
    )
    return records.record(kind, value, group_id=group.group_id, member_id=member.member_id)


def all_records(group: ConsumerGroup, now_ms: int) -> list[Record]:
    """All records of a group. :param now_ms: wall clock."""
    all_of_group = [member_record(group, member) for member in group.members.values()]
    all_of_group += [group_record(group), *(target_record(group, member_id) for member_id in group.target)]
    all_of_group.append(target_epoch_record(group, now_ms))
    all_of_group += [current_record(group, member) for member in group.members.values()]
    return all_of_group


def tombstones_of_member(group_id: str, member_id: str) -> list[Record]:
    """The tombstones of a member."""
    return [records.record(kind, None, group_id=group_id, member_id=member_id) for kind in OF_MEMBER]


def tombstones_of_group(group_id: str) -> list[Record]:
    """The tombstones of a group without members."""
    return [records.record(kind, None, group_id=group_id) for kind in OF_GROUP]


def _topic_partitions(make: Any, places: Iterable[TopicIdPartition]) -> list[Any]:
    return [make(topic_id=topic, partitions=partitions) for topic, partitions in by_topic(places).items()]


def _held(make: Any, places: Iterable[TopicIdPartition], since: Mapping[TopicIdPartition, int]) -> list[Any]:
    return [
        make(topic_id=topic, partitions=partitions, assignment_epochs=[since[topic, p] for p in partitions])
        for topic, partitions in by_topic(places).items()
    ]


# -- replay --------------------------------------------------------------------------------------------------------


def replay(group: ConsumerGroup, kind: records.Kind, key: Any, value: Any) -> None:
    """Apply one record of the log to a group."""
    REPLAYS[kind.number](group, key, value)


def _group(group: ConsumerGroup, _: Any, value: Any) -> None:
    if value is not None:
        group.epoch, group.metadata_hash = value.epoch, value.metadata_hash


def _target_epoch(group: ConsumerGroup, _: Any, value: Any) -> None:
    if value is not None:
        group.assignment_epoch = value.assignment_epoch


def _target(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is None:
        group.target.pop(key.member_id, None)
    else:
        group.target[key.member_id] = _places(value.topic_partitions)


def _member(group: ConsumerGroup, key: Any, value: Any) -> None:
    member = group.members.get(key.member_id)
    if value is None:
        if member is not None:
            group.forget(member)
        return
    if member is None:
        member = _admitted(group, key.member_id)
    if member.instance_id is not None and group.static_members.get(member.instance_id) == key.member_id:
        del group.static_members[member.instance_id]
    member.instance_id = value.instance_id
    if value.instance_id is not None:
        group.static_members[value.instance_id] = key.member_id
    member.rack_id, member.client_id, member.client_host = value.rack_id, value.client_id, value.client_host
    member.topics = TopicNames(sorted(set(value.subscribed_topic_names)))
    member.pattern = value.subscribed_topic_regex
    member.rebalance_timeout_ms, member.assignor = value.rebalance_timeout_ms, value.server_assignor
    classic = value.classic_member_metadata
    member.classic = None
    if classic is not None:
        protocols = [(protocol.name, bytes(protocol.metadata)) for protocol in classic.supported_protocols]
        member.classic = ClassicSide(classic.session_timeout_ms, protocols)


def _admitted(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    member = ConsumerMember(member_id, confirmed=False)
    group.admit(member)
    return member


def _current(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is None:
        return
    # After a compaction this record may precede the member's own record, if that was written again.
    member = group.members.get(key.member_id) or _admitted(group, key.member_id)
    member.epoch, member.previous_epoch = value.member_epoch, value.previous_member_epoch
    member.state = MemberState(value.state) if value.state in (0, 1, 2) else MemberState.STABLE
    member.assigned = _places(value.assigned_partitions)
    member.revoking = _places(value.partitions_pending_revocation)
    member.since = _since(value)
    group.hold(member)


def _ignored(group: ConsumerGroup, key: Any, value: Any) -> None:
    """Ignore a record that Kafka before 4.1 wrote, or whose content is computed when needed."""


def _places(topics: Iterable[Any]) -> frozenset[TopicIdPartition]:
    return frozenset((bytes(topic.topic_id), partition) for topic in topics for partition in topic.partitions)


def _since(value: Any) -> dict[TopicIdPartition, int]:
    """The epochs in which a member received its partitions; records before Kafka 4.3 lack them, then its current epoch."""
    since: dict[TopicIdPartition, int] = {}
    for topic in [*value.assigned_partitions, *value.partitions_pending_revocation]:
        epochs = topic.assignment_epochs or [value.member_epoch] * len(topic.partitions)
        since.update({(bytes(topic.topic_id), p): epoch for p, epoch in zip(topic.partitions, epochs, strict=False)})
    places = _places(value.assigned_partitions) | _places(value.partitions_pending_revocation)
    return {place: since.get(place, value.member_epoch) for place in places}


REPLAYS: Mapping[int, Callable[[ConsumerGroup, Any, Any], None]] = {
    records.CONSUMER_GROUP_METADATA.number: _group,
    records.CONSUMER_GROUP_PARTITION_METADATA.number: _ignored,
    records.CONSUMER_GROUP_MEMBER_METADATA.number: _member,
    records.CONSUMER_GROUP_TARGET_ASSIGNMENT.number: _target_epoch,
    records.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER.number: _target,
    records.CONSUMER_GROUP_CURRENT_ASSIGNMENT.number: _current,
    records.CONSUMER_GROUP_REGULAR_EXPRESSION.number: _ignored,
}
