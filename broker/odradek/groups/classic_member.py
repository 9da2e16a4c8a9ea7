"""A member of a classic group, and the requests and results of the group's methods. Used in the coordinator's loop."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from odradek.coordination.environment import Deadline
from odradek.groups.consumer_member import TopicNames
from odradek.groups.history import client_text
from odradek.protocol.errors import ErrorCode
from odradek.topic_partition import TopicIdPartition

Protocols = Sequence[tuple[str, bytes]]
"""The assignors that a member supports, in its order of preference, each with the member's subscription."""


NO_ASSIGNMENTS: Mapping[str, bytes] = MappingProxyType({})


class Subscribed(NamedTuple):
    """What the subscription of a classic consumer says. :param owned: the partitions that it owns, of existing topics."""

    rack_id: str | None
    topics: TopicNames
    owned: frozenset[TopicIdPartition]


MALFORMED = Subscribed(None, TopicNames(), frozenset())
"""What a malformed subscription says."""


class JoinRequest(NamedTuple):
    """A JoinGroup request.

    :param member_id: "" for a new member.
    :param id_required: a new dynamic member receives a member id and must repeat the request with it (version 4 and later).
    :param subscribed: what the subscription of its first assignor says, if it was read before because it is long; only a
        consumer group uses it.
    :param skip_assignment: the client supports SkipAssignment: as leader it can be asked to keep the assignment (version 9 and
        later).
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
    principal: str = ""
    subscribed: Subscribed | None = None


class JoinResult(NamedTuple):
    """The result of a JoinGroup. :param members: (member id, instance id, subscription), only for the group leader."""

    error: ErrorCode
    member_id: str = ""
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: Sequence[tuple[str, str | None, bytes]] = ()


class SyncRequest(NamedTuple):
    """A SyncGroup request. :param assignments: by member id; only those of the group leader are used."""

    member_id: str
    generation_id: int
    assignments: Mapping[str, bytes] = NO_ASSIGNMENTS
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None


class SyncResult(NamedTuple):
    """The result of a SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(eq=False)
class Member:
    """A member. Only the group changes it; `joining` and `protocols` only through the roster's methods, which count by them.

    :param joining: callback for its pending JoinGroup; None without one.
    :param syncing: callback for its pending SyncGroup; None without one.
    :param session: deadline of its session timeout; suspended while the member waits for a response.
    :param disconnected: its client closed the connection while its JoinGroup was pending.
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
        """The client id and the address, for events and logs."""
        return client_text(self.client_id, self.client_host)

    def extend_session(self, now_ms: int) -> None:
        """Restart the session timeout. :param now_ms: see `Timers.now_ms`."""
        self.session.set(now_ms + self.session_timeout_ms)

    def metadata(self, name: str | None) -> bytes:
        """The subscription for the assignor `name`; b"" if the member does not support it."""
        for protocol, metadata in self.protocols:
            if protocol == name:
                return metadata
        return b""

    def answer_sync(self, answer: SyncResult) -> None:
        """Answer the pending SyncGroup, if any."""
        then, self.syncing = self.syncing, None
        if then is not None:
            then(answer)
