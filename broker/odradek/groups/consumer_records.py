"""What groups of KIP-848 write into `__consumer_offsets`, and how a group is made from it again.

Pure functions on a group; used in the coordinator's loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from odradek.groups.assignors import Place
from odradek.groups.consumer_member import ClassicSide, ConsumerMember, MemberState, by_topic
from odradek.groups.environment import Record
from odradek.protocol.schemas import group_records as records

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
    """The group's epoch."""
    kind = records.CONSUMER_GROUP_METADATA
    value = kind.value(epoch=group.epoch, metadata_hash=group.metadata_hash)
    return records.record(kind, value, group_id=group.group_id)


def member_record(group: ConsumerGroup, member: ConsumerMember) -> Record:
    """Who a member is and what it subscribes to."""
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
    """The epoch of the target assignment. :param now_ms: wall clock."""
    kind = records.CONSUMER_GROUP_TARGET_ASSIGNMENT
    value = kind.value(assignment_epoch=group.assignment_epoch, assignment_timestamp=now_ms)
    return records.record(kind, value, group_id=group.group_id)


def target_record(group: ConsumerGroup, member_id: str) -> Record:
    """What a member is to hold."""
    kind = records.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER
    value = kind.value(topic_partitions=_written(kind.value.TopicPartition, group.target[member_id]))
    return records.record(kind, value, group_id=group.group_id, member_id=member_id)


def current_record(group: ConsumerGroup, member: ConsumerMember) -> Record:
    """What a member holds, and how far it is."""
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
    """The whole group. :param now_ms: wall clock."""
    found = [member_record(group, member) for member in group.members.values()]
    found += [group_record(group), *(target_record(group, member_id) for member_id in group.target)]
    found.append(target_epoch_record(group, now_ms))
    found += [current_record(group, member) for member in group.members.values()]
    return found


def tombstones_of_member(group_id: str, member_id: str) -> list[Record]:
    """Those that end a member."""
    return [records.record(kind, None, group_id=group_id, member_id=member_id) for kind in OF_MEMBER]


def tombstones_of_group(group_id: str) -> list[Record]:
    """Those that end a group without members."""
    return [records.record(kind, None, group_id=group_id) for kind in OF_GROUP]


def _written(make: Any, places: Iterable[Place]) -> list[Any]:
    return [make(topic_id=topic, partitions=partitions) for topic, partitions in by_topic(places).items()]


def _held(make: Any, places: Iterable[Place], since: Mapping[Place, int]) -> list[Any]:
    return [
        make(topic_id=topic, partitions=partitions, assignment_epochs=[since[topic, p] for p in partitions])
        for topic, partitions in by_topic(places).items()
    ]


# -- and back -------------------------------------------------------------------------------------------------------


def replay(group: ConsumerGroup, kind: records.Kind, key: Any, value: Any) -> None:
    """Take over one record of the log."""
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
    if value.instance_id is not None:
        member.instance_id = value.instance_id
        group.static_members[value.instance_id] = key.member_id
    member.rack_id, member.client_id, member.client_host = value.rack_id, value.client_id, value.client_host
    member.topics = tuple(sorted(set(value.subscribed_topic_names)))
    member.pattern = value.subscribed_topic_regex
    member.rebalance_timeout_ms, member.assignor = value.rebalance_timeout_ms, value.server_assignor
    side = value.classic_member_metadata
    member.classic = None
    if side is not None:
        protocols = [(one.name, bytes(one.metadata)) for one in side.supported_protocols]
        member.classic = ClassicSide(side.session_timeout_ms, protocols)


def _admitted(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    member = ConsumerMember(member_id, confirmed=False)
    group.admit(member)
    return member


def _current(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is None:
        return
    # A compaction may have left it before the member's own record, if that was written again.
    member = group.members.get(key.member_id) or _admitted(group, key.member_id)
    member.epoch, member.previous_epoch = value.member_epoch, value.previous_member_epoch
    member.state = MemberState(value.state) if value.state in (0, 1, 2) else MemberState.STABLE
    member.assigned = _places(value.assigned_partitions)
    member.revoking = _places(value.partitions_pending_revocation)
    member.since = _since(value)
    group.hold(member)


def _ignored(group: ConsumerGroup, key: Any, value: Any) -> None:
    """Of Kafka before 4.1, or computed anew when needed."""


def _places(written: Iterable[Any]) -> frozenset[Place]:
    return frozenset((bytes(one.topic_id), partition) for one in written for partition in one.partitions)


def _since(value: Any) -> dict[Place, int]:
    """The epochs in which a member got its partitions; its newest one where that was not written, before Kafka 4.3."""
    found: dict[Place, int] = {}
    for one in [*value.assigned_partitions, *value.partitions_pending_revocation]:
        epochs = one.assignment_epochs or [value.member_epoch] * len(one.partitions)
        found.update({(bytes(one.topic_id), p): epoch for p, epoch in zip(one.partitions, epochs, strict=False)})
    places = _places(value.assigned_partitions) | _places(value.partitions_pending_revocation)
    return {place: found.get(place, value.member_epoch) for place in places}


REPLAYS: Mapping[int, Callable[[ConsumerGroup, Any, Any], None]] = {
    records.CONSUMER_GROUP_METADATA.number: _group,
    records.CONSUMER_GROUP_PARTITION_METADATA.number: _ignored,
    records.CONSUMER_GROUP_MEMBER_METADATA.number: _member,
    records.CONSUMER_GROUP_TARGET_ASSIGNMENT.number: _target_epoch,
    records.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER.number: _target,
    records.CONSUMER_GROUP_CURRENT_ASSIGNMENT.number: _current,
    records.CONSUMER_GROUP_REGULAR_EXPRESSION.number: _ignored,
}
