"""A member of a consumer group (KIP-848), its reconciliation, and the group's requests and results.

Used in the coordinator's loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from odradek.coordination.environment import Deadline
from odradek.groups.history import client_text
from odradek.groups.visible_topics import Visible
from odradek.protocol.errors import ErrorCode
from odradek.topic_partition import TopicIdPartition

JOINING, LEAVING, LEAVING_STATIC = 0, -1, -2
"""Special member epochs: the member joins, leaves, or leaves for a while as a static member."""


RECORD_BYTES = 256
"""Largest size of a member's record and its batch, without texts."""


class TopicNames(tuple[str, ...]):
    """The names of the topics that a member subscribes to: ascending, each once. The hash is computed once: a member may name a
    hundred thousand topics, and a heartbeat uses the names as a key several times."""

    _hash: int

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            self._hash = super().__hash__()
            return self._hash


class MemberState(IntEnum):
    """The reconciliation state of a member; see `consumer_group`."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


@dataclass(frozen=True)
class ClassicSide:
    """Fields of a classic member's JoinGroup; see `migration.py`.

    :param protocols: its assignors, each with its subscription.
    """

    session_timeout_ms: int
    protocols: Sequence[tuple[str, bytes]]


@dataclass(frozen=True)
class HeartbeatRequest:
    """A ConsumerGroupHeartbeat request; None means that a field is unchanged.

    :param topics: ascending, each once; see `TopicNames`.
    :param owned: the partitions that the member owns now.
    :param classic: set for a translated JoinGroup of a classic member.
    :param visible: the topics of its pattern that the member may see; None: all.
    """

    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: frozenset[TopicIdPartition] | None = None
    client_id: str = ""
    client_host: str = ""
    classic: ClassicSide | None = None
    visible: Visible | None = None
    principal: str = ""


@dataclass(frozen=True)
class HeartbeatResult:
    """The result of a heartbeat. :param assignment: partitions that the member may own; None: unchanged."""

    error: ErrorCode
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    assignment: frozenset[TopicIdPartition] | None = None


@dataclass(eq=False)
class ConsumerMember:
    """A member. Only the group changes it.

    :param assigned: partitions that it may own in its epoch. :param revoking: partitions that it must release first.
    :param since: the epoch in which it received each of these partitions (KIP-1251).
    :param confirmed: whether it has sent a request since it was loaded from the log.
    :param claimed_by: id of a member that claims the instance id while this member is not confirmed.
    :param reported_assignment: the assignment in the last response; None if the member needs it again.
    :param visible: see `HeartbeatRequest`; as of its last heartbeat.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: frozenset[TopicIdPartition] = frozenset()
    revoking: frozenset[TopicIdPartition] = frozenset()
    since: dict[TopicIdPartition, int] = field(default_factory=dict)
    classic: ClassicSide | None = None
    confirmed: bool = True
    claimed_by: str | None = None
    reported_assignment: frozenset[TopicIdPartition] | None = field(default=None, repr=False)
    visible: Visible | None = field(default=None, repr=False)
    session: Deadline | None = field(default=None, repr=False)
    revocation: Deadline | None = field(default=None, repr=False)

    @property
    def client(self) -> str:
        """The client id and the address, for events."""
        return client_text(self.client_id, self.client_host)

    def forget_subscription(self) -> None:
        """Clear what a member states about itself, before a request that states all of it."""
        self.topics, self.pattern, self.assignor, self.rack_id, self.rebalance_timeout_ms = (), None, None, None, -1

    def reconcile(
        self,
        target: frozenset[TopicIdPartition],
        target_epoch: int,
        owned: Iterable[TopicIdPartition] | None,
        holder_of: Callable[[TopicIdPartition], str | None],
    ) -> bool:
        """Take the next step towards the target; return whether the member changed.

        :param owned: partitions that the member reports as owned; None if it reports none.
        :param holder_of: the member that holds a partition or must still release it; None if it is free.
        """
        if self.state is MemberState.UNREVOKED_PARTITIONS:
            if owned is None or self.revoking & frozenset(owned):
                return False
        elif self.state is MemberState.STABLE and self.epoch == target_epoch:
            return False
        before = self.epoch, self.state, self.assigned, self.revoking
        kept = self.assigned & target
        revoking = self.assigned - target
        missing = target - self.assigned
        free = frozenset(place for place in missing if holder_of(place) in (None, self.member_id))
        if revoking and (owned is None or revoking & frozenset(owned)):
            self.state, self.assigned, self.revoking = MemberState.UNREVOKED_PARTITIONS, kept, revoking
        else:
            waits = free != missing
            self.state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
            self.assigned, self.revoking = kept | free, frozenset()
            if self.epoch != target_epoch:
                self.previous_epoch, self.epoch = self.epoch, target_epoch
        if before == (self.epoch, self.state, self.assigned, self.revoking):
            return False
        self.since = {place: self.since.get(place, self.epoch) for place in self.assigned | self.revoking}
        return True

    def may_commit(self, epoch: int, places: Iterable[TopicIdPartition | None]) -> bool:
        """Whether a member with an older `epoch` may commit: it has had all these partitions since then (KIP-1251).

        :param places: None for an unknown topic.
        """
        return epoch < self.epoch and all(
            place is not None and place in self.since and self.since[place] <= epoch for place in places
        )


def size_of(request: HeartbeatRequest) -> int:
    """The approximate size in bytes of the member's record."""
    of_classic = (
        sum(len(name) + len(data) for name, data in request.classic.protocols) if request.classic is not None else 0
    )
    texts = (
        request.member_id,
        request.instance_id,
        request.rack_id,
        request.pattern,
        request.client_id,
    )
    topics = request.topics or ()
    of_topics = len("".join(topics).encode()) + 3 * len(topics)
    return of_classic + of_topics + sum(len(text.encode()) + 3 for text in texts if text is not None) + RECORD_BYTES


def by_topic(places: Iterable[TopicIdPartition]) -> Mapping[bytes, list[int]]:
    """Ascending partition numbers by topic id."""
    partitions: dict[bytes, list[int]] = {}
    for topic, partition in sorted(places):
        partitions.setdefault(topic, []).append(partition)
    return partitions
