"""A group: its committed offsets, and the protocol of its members.

A group that has only offsets (its clients assign partitions themselves) has a classic protocol without members. Used in the
coordinator's loop.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from odradek.coordination.environment import Record
from odradek.groups.classic import ClassicGroup
from odradek.groups.classic_member import JoinRequest
from odradek.groups.classic_rebalance import State
from odradek.groups.consumer_group import ConsumerGroup
from odradek.groups.consumer_metadata import CONSUMER, topics_of
from odradek.groups.offsets import CommitRequest, Offsets
from odradek.groups.transactions import PendingOffsets
from odradek.protocol.schemas.group_records import GROUP_METADATA, record
from odradek.topic_partition import TopicPartition


class Group:
    """A group. :param protocol: the state machine of its members; an upgrade or downgrade replaces it.

    :ivar downgrade_refused_at: the epoch at which the consumer group was too large for a downgrade; None if it was not.
    :ivar pending: the pending offsets of open transactions, which are not returned to clients.
    :ivar under_way: commits that are appended and not acknowledged, keyed by an opaque handle.
    :ivar transactional_under_way: those of them that belong to transactions.
    """

    def __init__(self, group_id: str, protocol: ClassicGroup | ConsumerGroup) -> None:
        self.group_id = group_id
        self.protocol = protocol
        self.offsets = Offsets()
        self.pending = PendingOffsets()
        self.downgrade_refused_at: int | None = None
        self.under_way: dict[object, CommitRequest] = {}
        self.transactional_under_way: dict[object, CommitRequest] = {}

    @property
    def classic(self) -> ClassicGroup | None:
        """The state machine if the group is classic, otherwise None."""
        return self.protocol if isinstance(self.protocol, ClassicGroup) else None

    @property
    def consumer(self) -> ConsumerGroup | None:
        """The state machine if the group is a consumer group (KIP-848), otherwise None."""
        return self.protocol if isinstance(self.protocol, ConsumerGroup) else None

    @property
    def empty(self) -> bool:
        """Whether the group has no members and no pending member ids."""
        return self.protocol.empty

    @property
    def disposable(self) -> bool:
        """Whether the group has no members, no committed offsets, no pending offsets, and no commits under way."""
        return self.empty and not self.offsets and not self.pending and not self.under_way

    def places_under_way(self) -> set[TopicPartition]:
        """The places of commits under way, including those in transactions."""
        return {place for commit in self.under_way.values() for place, _ in commit.items()}

    def unstable_places(self) -> Collection[TopicPartition]:
        """The places whose committed offset an open transaction may change: those with a pending offset, or with a commit in a
        transaction under way."""
        if not self.transactional_under_way:
            return frozenset(self.pending.places())
        under_way = self.transactional_under_way.values()
        return {place for commit in under_way for place, _ in commit.items()}.union(self.pending.places())

    def places_in(self, topics: Collection[str]) -> list[TopicPartition]:
        """All places in these topics with committed offsets, pending offsets, or commits under way."""
        places = self.offsets.of_topics(topics)
        if self.under_way or self.pending:
            uncommitted = self.places_under_way().union(self.pending.places()).difference(places)
            places += sorted(place for place in uncommitted if place[0] in topics)
        return places

    @property
    def metadata_size(self) -> int:
        """The characters of the metadata of its committed and pending offsets."""
        return self.offsets.metadata_size + self.pending.metadata_size

    def put(self, commit: CommitRequest) -> None:
        """Store the offsets of a commit outside of transactions. Its records are newer than those of all stored offsets."""
        self.offsets.put_all(commit)
        if self.pending:
            for place in self.pending.places() & {place for place, _ in commit.items()}:
                self.pending.overtake(place)

    def forget(self, topic: str, partition: int) -> None:
        """Remove the committed offset and all pending offsets of a place whose tombstone is in the log."""
        self.offsets.remove(topic, partition)
        self.pending.drop((topic, partition))

    def expired(self, now_ms: int, retention_ms: int) -> list[TopicPartition]:
        """Places with expired offsets, see `Offsets.expired`; without places with pending offsets or commits under way."""
        places = self.offsets.expired(now_ms, retention_ms, self.needed, self.empty_since_ms)
        if places and (self.pending or self.under_way):
            kept = self.places_under_way().union(self.pending.places())
            places = [place for place in places if place not in kept]
        return places

    @property
    def protocol_type(self) -> str:
        """The protocol type, "consumer" for consumers; "" if the group never had a member."""
        return self.protocol.protocol_type or ""

    @property
    def state_name(self) -> str:
        """Kafka's name of the state."""
        return self.protocol.state_name

    @property
    def type_name(self) -> str:
        """Kafka's name of the group type."""
        return "classic" if self.consumer is None else "consumer"

    def subscribed(self) -> set[str] | None:
        """Topics that the members subscribe to; None if unknown: they are not consumers, or their metadata is malformed."""
        if isinstance(self.protocol, ConsumerGroup):
            return self.protocol.subscribed()
        if not self.protocol.members:
            return set()
        if self.protocol.protocol_type != CONSUMER:
            return None
        subscribed: set[str] = set()
        for member in self.protocol.members.values():
            for _, metadata in member.protocols:
                topics = topics_of(metadata)
                if topics is None:
                    return None
                subscribed |= topics
        return subscribed

    @property
    def empty_since_ms(self) -> int | None:
        """Wall clock when the group lost its last member, also with pending member ids; None if it has, or never
        had, members.
        """
        protocol = self.protocol
        empty = protocol.empty if isinstance(protocol, ConsumerGroup) else protocol.rebalance.state is State.EMPTY
        return protocol.state_since_ms if protocol.protocol_type is not None and empty else None

    @property
    def needed(self) -> set[str] | None:
        """Topics whose offsets do not expire; None: no offsets expire, also during a classic rebalance, as in Kafka."""
        classic = self.classic
        if classic is not None and classic.rebalance.state in (State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE):
            return None
        return self.subscribed()

    def tombstones(self) -> list[Record]:
        """The tombstones of the group's members and state."""
        if isinstance(self.protocol, ConsumerGroup):
            return self.protocol.tombstones()
        return [classic_tombstone(self.group_id)]


def classic_record(group: ClassicGroup, assignments: Mapping[str, bytes]) -> Record:
    """The record of a classic group's generation, with these assignments by member id."""
    make_member = GROUP_METADATA.value.MemberMetadata
    value = GROUP_METADATA.value(
        protocol_type=group.protocol_type or "",
        generation=group.rebalance.generation_id,
        protocol=group.roster.protocol_name,
        leader=group.roster.leader,
        current_state_timestamp=group.state_since_ms,
        members=[
            make_member(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.roster.protocol_name),
                assignment=assignments.get(member.member_id, b""),
            )
            for member in group.members.values()
        ],
    )
    return record(GROUP_METADATA, value, group=group.group_id)


def classic_tombstone(group_id: str) -> Record:
    """The tombstone of a classic group."""
    return record(GROUP_METADATA, None, group=group_id)


def restore_classic(group: ClassicGroup, value: Any) -> None:
    """Restore a group from the value of its record."""
    members = [
        (
            JoinRequest(
                member.member_id,
                member.session_timeout,
                member.rebalance_timeout if member.rebalance_timeout >= 0 else member.session_timeout,
                value.protocol_type,
                [(value.protocol or "", member.subscription)],
                member.client_id,
                member.client_host,
                member.group_instance_id,
            ),
            bytes(member.assignment),
        )
        for member in value.members
    ]
    group.restore(
        value.generation,
        value.protocol_type or None,
        value.protocol,
        value.leader,
        members,
        value.current_state_timestamp,
    )
