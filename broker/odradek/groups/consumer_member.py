"""A member of a group of KIP-848, how it comes to its target assignment, and what goes in and out of the group's verbs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from odradek.groups.assignors import Place
from odradek.groups.environment import Deadline
from odradek.protocol.errors import ErrorCode

JOINING, LEAVING, LEAVING_STATIC = 0, -1, -2
"""Epochs with a meaning of their own: joins, leaves, leaves but comes back under its instance id."""


RECORD_BYTES = 256
"""Of a member's record without its texts, and of its batch, at most."""


class MemberState(IntEnum):
    """How far a member is on the way to its target."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


@dataclass(frozen=True)
class ClassicSide:
    """What a member of the classic protocol brought with its JoinGroup; see `migration.py`.

    :param protocols: its assignors, each with its subscription.
    """

    session_timeout_ms: int
    protocols: Sequence[tuple[str, bytes]]


@dataclass(frozen=True)
class HeartbeatRequest:
    """A ConsumerGroupHeartbeat request; None is "as before".

    :param owned: the partitions that the member holds now.
    """

    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: frozenset[Place] | None = None
    client_id: str = ""
    client_host: str = ""
    classic: ClassicSide | None = None


@dataclass(frozen=True)
class HeartbeatResult:
    """What it is answered. :param assignment: what the member is to hold; None for "as before"."""

    error: ErrorCode
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    assignment: frozenset[Place] | None = None


@dataclass(eq=False)
class ConsumerMember:
    """One member; the group alone changes it.

    :param assigned: what it may hold in its epoch. :param revoking: what it is asked to give up before it goes on.
    :param since: the epoch in which it got each of these (KIP-1251).
    :param heard: whether it sent a request since it was read from the log.
    :param claimed_by: id of the member that has the instance id of this one, by its own account, while this one was not heard.
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
    assigned: frozenset[Place] = frozenset()
    revoking: frozenset[Place] = frozenset()
    since: dict[Place, int] = field(default_factory=dict)
    classic: ClassicSide | None = None
    confirmed: bool = True
    claimed_by: str | None = None
    reported_assignment: frozenset[Place] | None = field(default=None, repr=False)
    session: Deadline | None = field(default=None, repr=False)
    revocation: Deadline | None = field(default=None, repr=False)

    @property
    def client(self) -> str:
        """For people."""
        return f"{self.client_id} at {self.client_host}"

    def reconcile(
        self,
        target: frozenset[Place],
        target_epoch: int,
        owned: Iterable[Place] | None,
        holder_of: Callable[[Place], str | None],
    ) -> bool:
        """Take the next step towards the target; whether anything changed.

        :param owned: what the member says that it holds; None if it says nothing.
        :param holder_of: the member that holds a partition, or has yet to give it up; None if it is free.
        """
        if self.state is MemberState.UNREVOKED_PARTITIONS:
            if owned is None or self.revoking & frozenset(owned):
                return False
        elif self.state is MemberState.STABLE and self.epoch == target_epoch:
            return False
        before = self.epoch, self.state, self.assigned, self.revoking
        kept = self.assigned & target
        revoking = self.assigned - target
        wanted = target - self.assigned
        free = frozenset(place for place in wanted if holder_of(place) in (None, self.member_id))
        if revoking and (owned is None or revoking & frozenset(owned)):
            self.state, self.assigned, self.revoking = MemberState.UNREVOKED_PARTITIONS, kept, revoking
        else:
            waits = free != wanted
            self.state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
            self.assigned, self.revoking = kept | free, frozenset()
            if self.epoch != target_epoch:
                self.previous_epoch, self.epoch = self.epoch, target_epoch
        if before == (self.epoch, self.state, self.assigned, self.revoking):
            return False
        self.since = {place: self.since.get(place, self.epoch) for place in self.assigned | self.revoking}
        return True

    def may_commit(self, epoch: int, places: Iterable[Place | None]) -> bool:
        """Whether one that does not know its newest epoch yet commits only what it has had since `epoch` (KIP-1251).

        :param places: None for a topic that is not known.
        """
        return epoch < self.epoch and all(
            place is not None and place in self.since and self.since[place] <= epoch for place in places
        )


def size_of(beat: HeartbeatRequest) -> int:
    """About how many bytes the record of the member that it makes takes."""
    of_classic = sum(len(name) + len(data) for name, data in beat.classic.protocols) if beat.classic is not None else 0
    texts = (beat.member_id, beat.instance_id, beat.rack_id, beat.pattern, beat.client_id, *(beat.topics or ()))
    return of_classic + sum(len(text.encode()) + 3 for text in texts if text is not None) + RECORD_BYTES


def by_topic(places: Iterable[Place]) -> Mapping[bytes, list[int]]:
    """Partitions, ascending, by topic id."""
    found: dict[bytes, list[int]] = {}
    for topic, partition in sorted(places):
        found.setdefault(topic, []).append(partition)
    return found
