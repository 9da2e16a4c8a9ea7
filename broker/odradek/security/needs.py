"""What a client needs for a request: operations on resources, as data.

Each API declares its `Rights` (`odradek.api`); guards decide, and documents and commands explain with them. Tests send requests
with exactly the rights of an API, and with one less.
"""

from typing import NamedTuple

from odradek.security.acl import Operation, ResourceType
from odradek.security.resource_types import RESOURCE_TYPES

TOPIC, GROUP, CLUSTER, TXN = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
TOKEN, USER = ResourceType.DELEGATION_TOKEN, ResourceType.USER
TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, ID_DENIED, TOKEN_DENIED = (
    row.denied_as.name for row in RESOURCE_TYPES.values() if row.denied_as is not None
)
OF_PARTITIONS = f"{TOPIC_DENIED} for each partition of the topic"


class Need(NamedTuple):
    """An operation on the resources of a type that the request names (or on the cluster)."""

    operation: Operation
    resource_type: ResourceType

    def __str__(self) -> str:
        return f"{self.operation.name} on {RESOURCE_TYPES[self.resource_type].words}"


Ways = tuple[tuple[Need, ...], ...]
"""Each way is enough; a way consists of needs, all of which are needed. Without ways, every client may send the request."""


def ways_of(text: str) -> Ways:
    """The ways that a text such as "READ GROUP & READ TOPIC | ALTER CLUSTER" names."""
    return tuple(
        tuple(Need(Operation[one.split()[0]], ResourceType[one.split()[1]]) for one in way.split("&"))
        for way in text.split("|")
        if way
    )


def text_of(ways: Ways) -> str:
    """The ways as a sentence for documents."""
    return ", or ".join(" and ".join(map(str, way)) for way in ways) or "none"


class Rights(NamedTuple):
    """What a client needs for an API.

    :ivar ways: see `Ways`. :ivar refused: what a client without the rights receives. :ivar note: what else depends on rights.
    :ivar of_brokers: only brokers send the API.
    """

    ways: Ways
    refused: str
    note: str = ""
    of_brokers: bool = False


def need(operation: Operation, resource_type: ResourceType, refused: str, note: str = "") -> Rights:
    """One operation."""
    return Rights(((Need(operation, resource_type),),), refused, note)


def each(*needs: tuple[Operation, ResourceType], refused: str, note: str = "") -> Rights:
    """All of some operations."""
    return Rights((tuple(Need(*one) for one in needs),), refused, note)


def either(*needs: tuple[Operation, ResourceType], refused: str, note: str = "") -> Rights:
    """One of some operations."""
    return Rights(tuple((Need(*one),) for one in needs), refused, note)


NOTHING = Rights((), "never")
OF_BROKERS = Rights(((Need(Operation.CLUSTER_ACTION, CLUSTER),),), CLUSTER_DENIED, "sent by brokers", of_brokers=True)
OF_MEMBER = need(Operation.READ, GROUP, GROUP_DENIED)
ALTERS, DESCRIBES = need(Operation.ALTER, CLUSTER, CLUSTER_DENIED), need(Operation.DESCRIBE, CLUSTER, CLUSTER_DENIED)
