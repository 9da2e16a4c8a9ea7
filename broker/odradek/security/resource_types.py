"""The table of the types of resources that ACLs name: the only place that lists what belongs to a type. Pure values.

The authorizer, the audit log, explanations, the nodes in the metadata tree, error codes and the options of `odradek acl`
derive from `RESOURCE_TYPES`. A new type is a member of `ResourceType`, a row here, and an option with a help text in
`odradek.cli`.
"""

from typing import NamedTuple

from odradek.protocol.errors import ErrorCode
from odradek.security.acl import Operation as Op
from odradek.security.acl import ResourceType


class ResourceTypeRow(NamedTuple):
    """A type of resources.

    :ivar type: its number and its name in Kafka's protocol
    :ivar node: its name in the metadata tree and in the audit log, as Kafka writes it
    :ivar option: the option of `odradek acl` that names resources of this type
    :ivar operations: those that exist for it. Authorized-operations bit fields contain them, and `odradek acl add` accepts them
    :ivar denied_as: the error for a denied request; None: requests about it are denied by the error of another type
    """

    type: ResourceType
    node: str
    option: str
    operations: tuple[Op, ...]
    denied_as: ErrorCode | None

    @property
    def words(self) -> str:
        """Its name in texts."""
        return self.type.name.lower().replace("_", " ")

    @property
    def operation_bits(self) -> int:
        """The authorized-operations bit field of a client that may do everything (KIP-430)."""
        return sum(1 << operation for operation in self.operations)


_TABLE = (
    ResourceTypeRow(
        ResourceType.TOPIC, "Topic", "--topic",
        (Op.READ, Op.WRITE, Op.CREATE, Op.DELETE, Op.ALTER, Op.DESCRIBE, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS),
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ),
    ResourceTypeRow(
        ResourceType.GROUP, "Group", "--group",
        (Op.READ, Op.DELETE, Op.DESCRIBE, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS),
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ),
    ResourceTypeRow(
        ResourceType.CLUSTER, "Cluster", "--cluster",
        (Op.CREATE, Op.ALTER, Op.DESCRIBE, Op.CLUSTER_ACTION, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS, Op.IDEMPOTENT_WRITE),
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ),
    ResourceTypeRow(
        ResourceType.TRANSACTIONAL_ID, "TransactionalId", "--transactional-id",
        (Op.WRITE, Op.DESCRIBE, Op.TWO_PHASE_COMMIT),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    ResourceTypeRow(
        ResourceType.DELEGATION_TOKEN, "DelegationToken", "--delegation-token",
        (Op.DESCRIBE,),
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ),
    ResourceTypeRow(ResourceType.USER, "User", "--user", (Op.CREATE_TOKENS, Op.DESCRIBE_TOKENS), None),
)  # fmt: skip
#: By number.
RESOURCE_TYPES: dict[int, ResourceTypeRow] = {row.type: row for row in _TABLE}
