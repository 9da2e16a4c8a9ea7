"""Who is in a classic group, who leads it and what its members support: counted, so that a join looks at no other member.

Owned by the group's state machine (`classic.py`), in the coordinator's loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from odradek.groups.classic_member import JoinRequest, JoinResult, Member, Protocols
from odradek.groups.fencing import instance_error
from odradek.protocol.errors import ErrorCode


class Roster:
    """The members of a group in the order in which they came.

    :ivar static_members: member ids by instance id.
    :ivar unconfirmed: ids of static members that sent no request since they were read from the log.
    """

    def __init__(self) -> None:
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.unconfirmed: set[str] = set()
        self._joining = 0  # members with a JoinGroup under way
        self._supporters: Counter[str] = Counter()  # members by assignor

    def member_error(self, member_id: str, instance_id: str | None) -> ErrorCode | None:
        """Why this is not a member of the group; None if it is."""
        error = instance_error(self.static_members, instance_id, member_id, self.unconfirmed)
        if error is not None:
            return error
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if self.unconfirmed:
            self.unconfirmed.discard(member_id)
        return None

    def _can_join(self, join: JoinRequest) -> bool:
        """Whether a member with these protocols has one in common with all the others, itself as it was among them."""
        if not self.members:
            return can_be_first(join)
        if join.protocol_type == self.protocol_type:
            for name, _ in join.protocols:
                if self._all_support(name):
                    return True
        return False

    def _all_support(self, name: str) -> bool:
        return self._supporters[name] == len(self.members)

    def _vote(self) -> str | None:
        """The assignor that most members like best among those that all support."""
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

    def _subscriptions(self) -> list[tuple[str, str | None, bytes]]:
        return [
            (member.member_id, member.instance_id, member.metadata(self.protocol_name))
            for member in self.members.values()
        ]

    def assignments(self) -> dict[str, bytes]:
        """By member id."""
        return {member.member_id: member.assignment for member in self.members.values()}

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of the members'."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # -- changes ---------------------------------------------------------------------------------------------------------

    def _admit(self, member: Member) -> None:
        if not self.members:
            self.protocol_type = member.protocol_type
        self.members[member.member_id] = member
        self._supporters.update(names_of(member.protocols))
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def _remove_member(self, member: Member) -> None:
        """It is no member any more."""
        del self.members[member.member_id]
        self.unconfirmed.discard(member.member_id)
        self._count_out(names_of(member.protocols))
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def _rename(self, member: Member, member_id: str) -> None:
        """A member goes by another id, in its old place."""
        old_id = member.member_id
        self.unconfirmed.discard(old_id)
        self.members = {(member_id if one == old_id else one): other for one, other in self.members.items()}
        member.member_id = member_id
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member_id
        if self.leader == old_id:
            self.leader = member_id

    def _set_protocols(self, member: Member, protocols: Protocols) -> None:
        """Of a member of the group."""
        before, after = names_of(member.protocols), names_of(protocols)
        member.protocols = protocols
        if before != after:
            self._count_out(before)
            self._supporters.update(after)

    def _count_out(self, names: set[str]) -> None:
        for name in names:
            self._supporters[name] -= 1
            if not self._supporters[name]:
                del self._supporters[name]

    def _set_joining(self, member: Member, then: Callable[[JoinResult], None]) -> None:
        """Of one who has no JoinGroup under way: it has."""
        member.joining = then
        self._joining += 1

    def _answer_join(self, member: Member, answer: JoinResult) -> None:
        """Answer a member's JoinGroup, if one is under way."""
        then, member.joining = member.joining, None
        if then is not None:
            self._joining -= 1
            then(answer)


def names_of(protocols: Protocols) -> set[str]:
    """The assignors, each once."""
    return {name for name, _ in protocols}


def can_be_first(join: JoinRequest) -> bool:
    """Whether this makes a member of a group that has none."""
    return bool(join.protocol_type) and bool(join.protocols)
