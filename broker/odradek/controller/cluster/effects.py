"""The effects that machines request: a machine is a generator that yields them and receives their results.

A machine reads and changes the context between its effects, never the store or the network. The executor performs an effect and
sends its result into the generator. If an effect fails as a whole, because another controller was elected or the store is
unavailable, the generator is closed: the controller then discards its context, and reads everything again later.
What the store refuses while the connection is well fails only the group of operations, or only the node of a Read.
"""

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, TypeVar

from odradek.controller.cluster.context import LiveBroker
from odradek.metadata.store import ANY_VERSION, Refused, Stat

PARTITIONS_A_STEP = 200
"""The number of partitions, or of replicas of a deletion, that a request changes in one run of the store thread. The states
are one transaction."""


class Create(NamedTuple):
    """Create a persistent node."""

    path: str
    data: bytes = b""


class Set(NamedTuple):
    """Replace the data of a node."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Delete a node without children."""

    path: str
    version: int = ANY_VERSION


Operation = Create | Set | Delete
Group = tuple[Operation, ...]
"""Operations that are executed all or none, in order."""

GroupResult = list[str | Stat | None] | Refused
"""The results of the operations of a group (path of a Create, Stat of a Set), or the error that prevented all of them: only
that group has failed, and the machine goes on."""


class Write(NamedTuple):
    """Execute groups of operations, each fenced by the controller epoch and independent of the others.

    The result is a list with a `GroupResult` for each group.
    """

    groups: Sequence[Group]


class Read(NamedTuple):
    """Read nodes; the result is a list of (data, Stat), None for a node that does not exist or that this broker may not read.

    :param watched: watch the data and the deletion of the nodes that exist.
    :param awaited: watch also the creation of the nodes that do not exist.
    """

    paths: Sequence[str]
    watched: bool = False
    awaited: bool = False


class Children(NamedTuple):
    """List the children of a node; the result is a list of names, empty if the node does not exist."""

    path: str
    watched: bool = False


class Outgoing(NamedTuple):
    """A request for a broker. ``broker_epoch``: the epoch of the receiver, for which the request is meant."""

    broker_id: int
    broker_epoch: int
    api_key: int
    request: Any


class Send(NamedTuple):
    """Queue requests, in order, in the channels of the brokers."""

    requests: Sequence[Outgoing]


class Later(NamedTuple):
    """Execute another machine later, after other work of the store thread. It does not begin if the controller loses its role
    before that. So it may only do what a successor does as well.

    A machine that writes many partitions does so `PARTITIONS_A_STEP` at a time. Each part ends with the context in a state in
    which any event may follow, and a part examines the context again, because events have followed.
    """

    steps: "Steps[Any]"


class OpenChannel(NamedTuple):
    """Begin a channel to a broker, in place of an older channel to a broker with that id."""

    broker: LiveBroker


class CloseChannel(NamedTuple):
    """End the channel to a broker and drop its queued requests."""

    broker_id: int


Effect = Write | Read | Children | Send | Later | OpenChannel | CloseChannel

Result = TypeVar("Result")
Steps = Generator[Effect, Any, Result]
"""A machine at work: it yields effects, receives their results, and returns ``Result``."""
