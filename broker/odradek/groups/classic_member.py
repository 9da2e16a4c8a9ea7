"""A member of a classic group, and what goes in and out of the group's verbs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from odradek.groups.environment import Deadline
from odradek.protocol.errors import ErrorCode

Protocols = Sequence[tuple[str, bytes]]
"""Assignors that a member supports, the one it likes best first, each with the member's subscription."""


NOTHING: Mapping[str, bytes] = MappingProxyType({})


class JoinRequest(NamedTuple):
    """A JoinGroup request.

    :param member_id: "" for a new member.
    :param id_required: a new dynamic member is to come again with the id it is told (from version 4 on).
    :param skip_assignment: the client can be told, as leader, to leave the assignment as it is (from version 9 on).
    """

    member_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    id_required: bool = True
    skip_assignment: bool = True
    reason: str = ""


class JoinResult(NamedTuple):
    """What a JoinGroup is answered. :param members: (member id, instance id, subscription), for the group leader only."""

    error: ErrorCode
    member_id: str = ""
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: Sequence[tuple[str, str | None, bytes]] = ()


class SyncRequest(NamedTuple):
    """A SyncGroup request. :param assignments: by member id; the group leader's counts."""

    member_id: str
    generation_id: int
    assignments: Mapping[str, bytes] = NOTHING
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None


class SyncResult(NamedTuple):
    """What a SyncGroup is answered."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(eq=False)
class Member:
    """One member; the group alone changes it, and `joining` and `protocols` by verbs alone, since it counts by them.

    :param joining: answers its JoinGroup, None while it has none under way; likewise `syncing`.
    :param session: expels it when it was silent for too long; not set while it waits for an answer.
    :param gone: its client's connection ended while its JoinGroup was under way.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    session: Deadline
    assignment: bytes = b""
    joining: Callable[[JoinResult], None] | None = None
    skip_assignment: bool = False
    syncing: Callable[[SyncResult], None] | None = None
    disconnected: bool = False

    @property
    def client(self) -> str:
        """For people."""
        return f"{self.client_id} at {self.client_host}"

    def metadata(self, name: str | None) -> bytes:
        """Its subscription for the assignor `name`, b"" if it does not support it."""
        for one, metadata in self.protocols:
            if one == name:
                return metadata
        return b""

    def answer_sync(self, answer: SyncResult) -> None:
        """Answer its SyncGroup, if one is under way."""
        then, self.syncing = self.syncing, None
        if then is not None:
            then(answer)
