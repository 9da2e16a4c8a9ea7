"""One group: its committed offsets, and the protocol by which its members share the work.

A group of which only offsets are known (a reader that assigns itself) has a classic protocol without members. Owned by the
coordinator's loop.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from odradek.groups.classic import ClassicGroup
from odradek.groups.classic_member import JoinRequest
from odradek.groups.classic_rebalance import Rebalance, State
from odradek.groups.consumer_group import ConsumerGroup
from odradek.groups.consumer_metadata import CONSUMER, topics_of
from odradek.groups.environment import Record
from odradek.groups.offsets import CommitRequest, Offsets, Place
from odradek.protocol.schemas.group_records import GROUP_METADATA, record


class Group:
    """:param protocol: how members share the work; it may change from one to the other while there is no member.

    :ivar downgrade_refused_at: the epoch of the consumer group at which it was found too large to become a classic one.
    :ivar pending: offsets of transactions that were open when the log was taken over from another broker: no client sees them.
    :ivar under_way: the commits that were appended and are not acknowledged, each by something of its own.
    """

    def __init__(self, group_id: str, protocol: ClassicGroup | ConsumerGroup) -> None:
        self.group_id = group_id
        self.protocol = protocol
        self.offsets = Offsets()
        self.pending = Offsets()
        self.downgrade_refused_at: int | None = None
        self.under_way: dict[object, CommitRequest] = {}

    @property
    def classic(self) -> ClassicGroup | None:
        """The protocol, if it is the classic one."""
        return self.protocol if isinstance(self.protocol, ClassicGroup) else None

    @property
    def consumer(self) -> ConsumerGroup | None:
        """The protocol, if it is that of KIP-848."""
        return self.protocol if isinstance(self.protocol, ConsumerGroup) else None

    @property
    def empty(self) -> bool:
        """Whether it has no members, and nobody is about to become one."""
        if isinstance(self.protocol, ConsumerGroup):
            return self.protocol.empty
        return self.protocol.state is State.EMPTY and not self.protocol.pending

    @property
    def disposable(self) -> bool:
        """Whether nothing is left of it: no member, no offset, and no commit that is on its way to the log."""
        return self.empty and not self.offsets and not self.pending and not self.under_way

    def places_under_way(self) -> set[Place]:
        """Where commits that are on their way to the log are about to be."""
        return {place for commit in self.under_way.values() for place, _ in commit.items()}

    def places_in(self, topics: Collection[str]) -> list[Place]:
        """All places in these topics where something is committed, or is about to be."""
        places = self.offsets.of_topics(topics)
        if self.under_way or self.pending:
            others = self.places_under_way().union(self.pending.of_topics(topics)).difference(places)
            places += sorted(place for place in others if place[0] in topics)
        return places

    def forget(self, topic: str, partition: int) -> None:
        """A tombstone of this offset is in the log."""
        self.offsets.remove(topic, partition)
        self.pending.remove(topic, partition)

    def expired(self, now_ms: int, retention_ms: int) -> list[Place]:
        """Places whose offset nobody needs any more, see `Offsets.expired`; not those that are about to be committed to."""
        needed, empty_since_ms = self.needed, self.empty_since_ms
        places = self.offsets.expired(now_ms, retention_ms, needed, empty_since_ms)
        if self.pending:
            old = self.pending.expired(now_ms, retention_ms, needed, empty_since_ms)
            places += [place for place in old if self.offsets.get(*place) is None]
        if places and self.under_way:
            coming = self.places_under_way()
            places = [place for place in places if place not in coming]
        return places

    @property
    def protocol_type(self) -> str:
        """ "consumer" for consumers; "" where there never was a member."""
        return self.protocol.protocol_type or ""

    @property
    def state_name(self) -> str:
        """As Kafka calls it."""
        return self.protocol.state_name

    @property
    def type_name(self) -> str:
        """As Kafka calls it."""
        return "classic" if self.consumer is None else "consumer"

    def subscribed(self) -> set[str] | None:
        """Topics that its members read; None if they do not say."""
        if isinstance(self.protocol, ConsumerGroup):
            return self.protocol.subscribed()
        if not self.protocol.members:
            return set()
        if self.protocol.protocol_type != CONSUMER:
            return None
        found: set[str] = set()
        for member in self.protocol.members.values():
            for _, metadata in member.protocols:
                topics = topics_of(metadata)
                if topics is None:
                    return None
                found |= topics
        return found

    @property
    def empty_since_ms(self) -> int | None:
        """Wall clock when it lost its last member, also while one was told an id; None if it never had any, or has some."""
        protocol = self.protocol
        nobody = protocol.empty if isinstance(protocol, ConsumerGroup) else protocol.state is State.EMPTY
        return protocol.state_since_ms if protocol.protocol_type is not None and nobody else None

    @property
    def needed(self) -> set[str] | None:
        """Topics whose offsets do not expire; None: of none do they, also amid a classic rebalance, as in Kafka."""
        classic = self.classic
        if classic is not None and classic.state in (State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE):
            return None
        return self.subscribed()

    def tombstones(self) -> list[Record]:
        """The records that end the group's protocol."""
        if isinstance(self.protocol, ConsumerGroup):
            return self.protocol.tombstones()
        return [classic_tombstone(self.group_id)]


def classic_record(group: Rebalance, assignments: Mapping[str, bytes]) -> Record:
    """The record of a classic group's generation, with these assignments by member id."""
    member = GROUP_METADATA.value.MemberMetadata
    value = GROUP_METADATA.value(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader,
        current_state_timestamp=group.state_since_ms,
        members=[
            member(
                member_id=one.member_id,
                group_instance_id=one.instance_id,
                client_id=one.client_id,
                client_host=one.client_host,
                rebalance_timeout=one.rebalance_timeout_ms,
                session_timeout=one.session_timeout_ms,
                subscription=one.metadata(group.protocol_name),
                assignment=assignments.get(one.member_id, b""),
            )
            for one in group.members.values()
        ],
    )
    return record(GROUP_METADATA, value, group=group.group_id)


def classic_tombstone(group_id: str) -> Record:
    """The record that ends a classic group."""
    return record(GROUP_METADATA, None, group=group_id)


def restore_classic(group: ClassicGroup, said: Any) -> None:
    """Make the group what the value of its record says."""
    members = [
        (
            JoinRequest(
                one.member_id,
                one.session_timeout,
                one.rebalance_timeout if one.rebalance_timeout >= 0 else one.session_timeout,
                said.protocol_type,
                [(said.protocol or "", one.subscription)],
                one.client_id,
                one.client_host,
                one.group_instance_id,
            ),
            bytes(one.assignment),
        )
        for one in said.members
    ]
    group.restore(
        said.generation,
        said.protocol_type or None,
        said.protocol,
        said.leader,
        members,
        said.current_state_timestamp,
    )
