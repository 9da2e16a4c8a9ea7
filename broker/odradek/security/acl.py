"""Access control lists: their values, filters and validation.

Pure. The numbers are those of Kafka's protocol.
"""

from enum import IntEnum
from typing import NamedTuple

from odradek.printable import printable

CLUSTER_NAME = "kafka-cluster"
WILDCARD = "*"
ANYBODY = "User:*"
ANONYMOUS_USER = "ANONYMOUS"
ANONYMOUS = f"User:{ANONYMOUS_USER}"


class ResourceType(IntEnum):
    """What an ACL is about."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How an ACL names resources. ANY and MATCH occur only in filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """What a client does with a resource. ANY occurs only in filters, ALL only in ACLs."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Whether an ACL denies or allows. ANY occurs only in filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    """An access rule.

    :ivar name: of the resource, "*" (LITERAL: all resources), or the beginning of names (PREFIXED).
    :ivar principal: such as "User:alice", or "User:*" for everybody. :ivar host: an IP address, or "*".
    """

    resource_type: int
    pattern_type: int
    name: str
    principal: str
    host: str
    operation: int
    permission: int

    def __str__(self) -> str:
        """The form in which Kafka's audit log names a rule, without characters that could forge a line of a log."""
        name, principal, host = map(printable, (self.name, self.principal, self.host))
        return (
            f"StandardAcl(resourceType={ResourceType(self.resource_type).name}, resourceName={name}, "
            f"patternType={PatternType(self.pattern_type).name}, principal={principal}, host={host}, "
            f"operation={Operation(self.operation).name}, permissionType={Permission(self.permission).name})"
        )


class AclFilter(NamedTuple):
    """Selects ACLs. None and ANY select everything; MATCH selects what applies to a resource with this name."""

    resource_type: int = ResourceType.ANY
    pattern_type: int = PatternType.ANY
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: int = Operation.ANY
    permission: int = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        """Whether the filter selects an ACL."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self._matches_name(acl)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.name is None or self.name == acl.name:
            return True
        if self.pattern_type != PatternType.MATCH:
            return False
        if acl.pattern_type == PatternType.PREFIXED:
            return self.name.startswith(acl.name)
        return acl.name == WILDCARD


MAX_NAME_BYTES = 32_767
"""The largest size of a name or principal of an ACL in bytes: that of a string in the protocol."""


def problem_of(acl: Acl) -> str | None:
    """Why an ACL cannot be created; None if it can. The texts are Kafka's where Kafka has the check."""
    if acl.resource_type not in _VALUES[ResourceType] or acl.resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        return f"Invalid resourceType {_shown(ResourceType, acl.resource_type)}"
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {_shown(PatternType, acl.pattern_type)}"
    if acl.operation not in _VALUES[Operation] or acl.operation in (Operation.UNKNOWN, Operation.ANY):
        return f"Invalid operation {_shown(Operation, acl.operation)}"
    if acl.permission not in (Permission.DENY, Permission.ALLOW):
        return f"Invalid permissionType {_shown(Permission, acl.permission)}"
    if not acl.name:
        return "Resource name should not be empty"
    if acl.resource_type == ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    return problem_of_principal(acl.principal)


def problem_of_principal(principal: str) -> str | None:
    """Why a text is not a principal; None if it is."""
    kind, separator, _ = principal.partition(":")
    if not separator or not kind:
        return (
            f"Could not parse principal from `{principal}` "
            "(no colon is present separating the principal type from the principal name)"
        )
    return None


def problem_of_filter(wanted: AclFilter) -> str | None:
    """Why a filter is refused; None if it is valid."""
    for kind, value in (
        (ResourceType, wanted.resource_type),
        (PatternType, wanted.pattern_type),
        (Operation, wanted.operation),
        (Permission, wanted.permission),
    ):
        if value not in _VALUES[kind] or value == 0:
            part = "pattern" if kind in (ResourceType, PatternType) else "entry"
            return f"Unknown {part}Filter."
    return None


_VALUES: dict[type[IntEnum], frozenset[int]] = {
    kind: frozenset(kind) for kind in (ResourceType, PatternType, Operation, Permission)
}


def _shown(kind: type[IntEnum], value: int) -> str:
    return kind(value).name if value in _VALUES[kind] else "UNKNOWN"
