"""What each API needs, as data: the operations on which resources, and how a client without them is refused.

The guards in `odradek.api.guards` and the native handlers decide; this table is what documents and `api/table.py`
derive from. Tests check that each served API has a row, and send requests with exactly the rights of a row, and with
one less.
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
READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
)
ACTION, IDEMPOTENT = Operation.CLUSTER_ACTION, Operation.IDEMPOTENT_WRITE
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS


class Need(NamedTuple):
    """An operation on the resources of a type that the request names (or on the cluster)."""

    operation: Operation
    resource_type: ResourceType

    def __str__(self) -> str:
        return f"{self.operation.name} on {RESOURCE_TYPES[self.resource_type].words}"


class Required(NamedTuple):
    """A row.

    :ivar ways: each way is enough; a way consists of needs, all of which are needed.
    :ivar refused: what a client without the rights receives. :ivar note: what else depends on rights.
    """

    ways: tuple[tuple[Need, ...], ...]
    refused: str
    note: str = ""

    def __str__(self) -> str:
        return ", or ".join(" and ".join(map(str, way)) for way in self.ways) or "none"


def _one(operation: Operation, resource_type: ResourceType, refused: str, note: str = "") -> Required:
    return Required(((Need(operation, resource_type),),), refused, note)


TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, ID_DENIED, TOKEN_DENIED = (
    row.denied_as.name for row in RESOURCE_TYPES.values() if row.denied_as is not None
)
OF_PARTITIONS = f"{TOPIC_DENIED} for each partition of the topic"
OF_BROKERS = _one(ACTION, CLUSTER, CLUSTER_DENIED, "sent by brokers")
MEMBER = _one(READ, GROUP, GROUP_DENIED)
ALTERS, DESCRIBES = _one(ALTER, CLUSTER, CLUSTER_DENIED), _one(DESCRIBE, CLUSTER, CLUSTER_DENIED)

# fmt: off
REQUIRED: dict[int, Required] = {
    0: _one(WRITE, TOPIC, OF_PARTITIONS,
        f"also WRITE on transactional id if a batch is transactional, else {ID_DENIED} for all partitions"),
    1: _one(READ, TOPIC, OF_PARTITIONS, "followers: CLUSTER_ACTION on cluster instead"),
    2: _one(DESCRIBE, TOPIC, OF_PARTITIONS),
    3: _one(DESCRIBE, TOPIC, f"{TOPIC_DENIED} for a topic that the request names; other topics are left out",
        "automatic creation: CREATE on cluster or topic"),
    4: OF_BROKERS, 5: OF_BROKERS, 6: OF_BROKERS, 7: OF_BROKERS,
    8: Required(((Need(READ, GROUP), Need(READ, TOPIC)),), f"{GROUP_DENIED}, {TOPIC_DENIED} for each partition"),
    9: Required(((Need(DESCRIBE, GROUP), Need(DESCRIBE, TOPIC)),), f"{GROUP_DENIED}, {TOPIC_DENIED} for each partition",
        "of all offsets of a group, those of hidden topics are left out"),
    10: Required(((Need(DESCRIBE, GROUP),), (Need(DESCRIBE, TXN),)), f"{GROUP_DENIED}, {ID_DENIED}",
        "by the type of the requested key"),
    11: MEMBER, 12: MEMBER, 13: MEMBER, 14: MEMBER,
    15: _one(DESCRIBE, GROUP, GROUP_DENIED),
    16: Required(((Need(DESCRIBE, CLUSTER),), (Need(DESCRIBE, GROUP),)), "other groups are left out"),
    17: Required((), "never"),
    18: Required((), "never"),
    19: Required(((Need(CREATE, CLUSTER),), (Need(CREATE, TOPIC),)), f"{TOPIC_DENIED} for the topic",
        "the settings of a new topic are returned with DESCRIBE_CONFIGS on topic"),
    20: Required(((Need(DELETE, CLUSTER),), (Need(DELETE, TOPIC),)), f"{TOPIC_DENIED} for the topic",
        "by id: without DESCRIBE on topic, the response has no name"),
    21: _one(DELETE, TOPIC, OF_PARTITIONS),
    22: Required(((Need(WRITE, TXN),), (Need(IDEMPOTENT, CLUSTER),), (Need(WRITE, TOPIC),)),
        f"{ID_DENIED}; without a transactional id {CLUSTER_DENIED}",
        "without a transactional id, WRITE on any topic is enough"),
    23: Required(((Need(DESCRIBE, TOPIC),), (Need(ACTION, CLUSTER),)), OF_PARTITIONS),
    24: Required(((Need(WRITE, TXN), Need(WRITE, TOPIC)),), f"{ID_DENIED}, {TOPIC_DENIED} for each partition",
        "from version 4 on, which brokers send: CLUSTER_ACTION on cluster"),
    25: Required(((Need(WRITE, TXN), Need(READ, GROUP)),), f"{ID_DENIED}, {GROUP_DENIED}"),
    26: _one(WRITE, TXN, ID_DENIED),
    27: Required(((Need(ALTER, CLUSTER),), (Need(ACTION, CLUSTER),)), f"{CLUSTER_DENIED} for each partition"),
    28: Required(((Need(WRITE, TXN), Need(READ, GROUP), Need(READ, TOPIC)),),
        f"{ID_DENIED}, {GROUP_DENIED}, {TOPIC_DENIED} for each partition"),
    29: DESCRIBES, 30: ALTERS, 31: ALTERS,
    32: Required(((Need(DESCRIBE_CONFIGS, TOPIC),), (Need(DESCRIBE_CONFIGS, GROUP),), (Need(DESCRIBE_CONFIGS, CLUSTER),)),
        f"{TOPIC_DENIED}, {GROUP_DENIED}, {CLUSTER_DENIED} for the resource", "by the type of the resource; brokers: cluster"),
    33: Required(((Need(ALTER_CONFIGS, TOPIC),), (Need(ALTER_CONFIGS, GROUP),), (Need(ALTER_CONFIGS, CLUSTER),)),
        f"{TOPIC_DENIED}, {GROUP_DENIED}, {CLUSTER_DENIED} for the resource", "by the type of the resource; brokers: cluster"),
    34: ALTERS, 35: DESCRIBES,
    36: Required((), "never"),
    37: _one(ALTER, TOPIC, f"{TOPIC_DENIED} for the topic"),
    38: _one(Operation.CREATE_TOKENS, USER, TOKEN_DENIED, "only for tokens of another owner"),
    39: Required((), "DELEGATION_TOKEN_OWNER_MISMATCH", "the client must be the owner or a renewer of the token"),
    40: Required((), "DELEGATION_TOKEN_OWNER_MISMATCH", "the client must be the owner or a renewer of the token"),
    41: Required(((Need(DESCRIBE, TOKEN),), (Need(Operation.DESCRIBE_TOKENS, USER),)), "other tokens are left out",
        "not for tokens of which the client is owner, requester or renewer"),
    42: _one(DELETE, GROUP, GROUP_DENIED),
    43: ALTERS,
    44: Required(((Need(ALTER_CONFIGS, TOPIC),), (Need(ALTER_CONFIGS, GROUP),), (Need(ALTER_CONFIGS, CLUSTER),)),
        f"{TOPIC_DENIED}, {GROUP_DENIED}, {CLUSTER_DENIED} for the resource", "by the type of the resource; brokers: cluster"),
    45: ALTERS, 46: DESCRIBES,
    47: Required(((Need(DELETE, GROUP), Need(READ, TOPIC)),), f"{GROUP_DENIED}, {TOPIC_DENIED} for each partition"),
    48: _one(DESCRIBE_CONFIGS, CLUSTER, CLUSTER_DENIED),
    49: _one(ALTER_CONFIGS, CLUSTER, f"{CLUSTER_DENIED} for each entity"),
    50: DESCRIBES,
    51: _one(ALTER, CLUSTER, f"{CLUSTER_DENIED} for each user"),
    56: OF_BROKERS,
    57: ALTERS,
    60: Required((), "never", "the authorized operations are 0 without DESCRIBE on cluster"),
    61: _one(READ, TOPIC, OF_PARTITIONS),
    65: _one(DESCRIBE, TXN, ID_DENIED, "topics without DESCRIBE are left out"),
    66: _one(DESCRIBE, TXN, "other transactional ids are left out"),
    67: OF_BROKERS,
    68: Required(((Need(READ, GROUP), Need(DESCRIBE, TOPIC)),), f"{GROUP_DENIED}, {TOPIC_DENIED}",
        "the topics to which the member subscribes by name"),
    69: Required(((Need(DESCRIBE, GROUP), Need(DESCRIBE, TOPIC)),), f"{GROUP_DENIED}, {TOPIC_DENIED} for the group",
        "the topics that members of the group have"),
    74: _one(DESCRIBE_CONFIGS, CLUSTER, CLUSTER_DENIED),
    75: _one(DESCRIBE, TOPIC, f"{TOPIC_DENIED} for a topic that the request names; other topics are left out"),
    20101: _one(DESCRIBE, GROUP, GROUP_DENIED, "pending offsets of topics without DESCRIBE are left out"),
    20102: Required(((Need(DESCRIBE, GROUP), Need(DESCRIBE, TOPIC)),), GROUP_DENIED, "hidden topics are left out"),
    20103: _one(DESCRIBE, TOPIC, TOPIC_DENIED),
}
# fmt: on
