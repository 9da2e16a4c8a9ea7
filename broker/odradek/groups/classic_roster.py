"""The members of a classic group, its leader, and counts of supported assignors, so that a join need not scan all members.

A member of the group (`classic.py`), which shares it with its rebalance. It has no timers and no state machine. Used in the
coordinator's loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from odradek.coordination.environment import Deadline
from odradek.groups.classic_member import JoinRequest, JoinResult, Member, Protocols
from odradek.groups.fencing import instance_error
from odradek.protocol.errors import ErrorCode


class Roster:
    """The members of a group in the order in which they joined.

    :ivar protocol_type: of the first member; None if the group never had members.
    :ivar protocol_name: the assignor of the present generation; None without one.
    :ivar leader: the member id of the group leader; None without members.
    :ivar static_members: member ids by instance id.
    :ivar unconfirmed: ids of static members that have sent no request since they were loaded from the log.
    :ivar pending: deadlines by member id of new clients that received an id and have not joined with it yet.
    :ivar joining: number of members with a pending JoinGroup.
    """

    def __init__(self) -> None:
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.unconfirmed: set[str] = set()
        self.pending: dict[str, Deadline] = {}
        self.joining = 0
        self._supporters: Counter[str] = Counter()  # number of members by assignor

    def member_error(self, member_id: str, instance_id: str | None) -> ErrorCode | None:
        """The error if this is not a member of the group; None if it is. A known member counts as confirmed."""
        error = instance_error(self.static_members, instance_id, member_id, self.unconfirmed)
        if error is not None:
            return error
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if self.unconfirmed:
            self.unconfirmed.discard(member_id)
        return None

    def can_join(self, join: JoinRequest) -> bool:
        """Whether the request supports an assignor that all present members support (including its own former subscription)."""
        if not self.members:
            return can_be_first(join)
        if join.protocol_type == self.protocol_type:
            for name, _ in join.protocols:
                if self._all_support(name):
                    return True
        return False

    def _all_support(self, name: str) -> bool:
        return self._supporters[name] == len(self.members)

    def vote(self) -> str | None:
        """The assignor with the most votes among those that all members support; each member votes for its first one."""
        candidates = [
            name
            for name, _ in self.members[self.leader or next(iter(self.members))].protocols
            if self._all_support(name)
        ]
        if len(candidates) == 1:
            return candidates[0]
        votes = Counter(
            next(name for name, _ in member.protocols if name in candidates) for member in self.members.values()
        )
        return max(candidates, key=lambda name: votes[name])

    def subscriptions(self) -> list[tuple[str, str | None, bytes]]:
        """(member id, instance id, subscription for the present assignor) of all members, for the group leader."""
        return [
            (member.member_id, member.instance_id, member.metadata(self.protocol_name))
            for member in self.members.values()
        ]

    def assignments(self) -> dict[str, bytes]:
        """The assignments by member id."""
        return {member.member_id: member.assignment for member in self.members.values()}

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # -- changes ---------------------------------------------------------------------------------------------------------

    def admit(self, member: Member) -> None:
        """Add a member; the first one becomes leader."""
        if not self.members:
            self.protocol_type = member.protocol_type
        self.members[member.member_id] = member
        self._supporters.update(names_of(member.protocols))
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member: Member) -> None:
        """Remove a member; if it was the leader, the oldest member becomes leader."""
        del self.members[member.member_id]
        self.unconfirmed.discard(member.member_id)
        self._remove_support(names_of(member.protocols))
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def rename(self, member: Member, member_id: str) -> None:
        """Give a member another id; it keeps its position."""
        old_id = member.member_id
        self.unconfirmed.discard(old_id)
        self.members = {(member_id if key == old_id else key): other for key, other in self.members.items()}
        member.member_id = member_id
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member_id
        if self.leader == old_id:
            self.leader = member_id

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        """Replace the protocols of a member of the group."""
        before, after = names_of(member.protocols), names_of(protocols)
        member.protocols = protocols
        if before != after:
            self._remove_support(before)
            self._supporters.update(after)

    def _remove_support(self, names: set[str]) -> None:
        for name in names:
            self._supporters[name] -= 1
            if not self._supporters[name]:
                del self._supporters[name]

    def set_joining(self, member: Member, then: Callable[[JoinResult], None]) -> None:
        """Register the pending JoinGroup of a member that has none."""
        member.joining = then
        self.joining += 1

    def forget_pending(self, member_id: str) -> None:
        """Remove a pending member id, if it exists."""
        deadline = self.pending.pop(member_id, None)
        if deadline is not None:
            deadline.clear()

    def answer_join(self, member: Member, answer: JoinResult) -> None:
        """Answer the pending JoinGroup of a member, if any."""
        then, member.joining = member.joining, None
        if then is not None:
            self.joining -= 1
            then(answer)


def names_of(protocols: Protocols) -> set[str]:
    """The names of the assignors."""
    return {name for name, _ in protocols}


def can_be_first(join: JoinRequest) -> bool:
    """Whether this request can create the first member of a group."""
    return bool(join.protocol_type) and bool(join.protocols)
