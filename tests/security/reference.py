"""The rules of Kafka's StandardAuthorizer in their plainest form: one loop over all ACLs for each question. For tests only."""

from collections.abc import Sequence

from odradek.security.acl import Acl, Operation, PatternType, Permission

IMPLIED = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}


def names(acl: Acl, resource_type: int, name: str) -> bool:
    """Whether an ACL names a resource."""
    if acl.resource_type != resource_type:
        return False
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.name)
    return acl.name in (name, "*")


def concerns(acl: Acl, principal: str, host: str) -> bool:
    """Whether an ACL is about a client."""
    return acl.principal in (principal, "User:*") and acl.host in (host, "*")


def allowed(
    acls: Sequence[Acl],
    super_users: Sequence[str],
    default: bool,
    principal: str,
    host: str,
    operation: int,
    resource_type: int,
    name: str,
) -> bool:
    """Whether the client may do that."""
    if principal in super_users:
        return True
    naming = [acl for acl in acls if names(acl, resource_type, name)]
    if not naming:
        return default
    mine = [acl for acl in naming if concerns(acl, principal, host)]
    for acl in mine:
        if acl.permission == Permission.DENY and acl.operation in (operation, Operation.ALL):
            return False
    for acl in mine:
        if acl.permission == Permission.ALLOW and (
            acl.operation in (operation, Operation.ALL) or acl.operation in IMPLIED.get(Operation(operation), ())
        ):
            return True
    return False


def allowed_by_type(
    acls: Sequence[Acl], super_users: Sequence[str], default: bool, principal: str, host: str, operation: int, kind: int
) -> bool:
    """Whether the client may do that with any resource of a type."""
    if allowed(acls, super_users, default, principal, host, operation, kind, "hardcode"):
        return True
    mine = [
        acl
        for acl in acls
        if acl.resource_type == kind and concerns(acl, principal, host) and acl.operation in (operation, Operation.ALL)
    ]
    denies = [acl for acl in mine if acl.permission == Permission.DENY]
    allows = [acl for acl in mine if acl.permission == Permission.ALLOW]
    if any(acl.pattern_type == PatternType.LITERAL and acl.name == "*" for acl in denies):
        return False
    for acl in allows:
        if acl.pattern_type == PatternType.LITERAL and acl.name == "*":
            return True
        covered = any(
            acl.name.startswith(deny.name)
            if deny.pattern_type == PatternType.PREFIXED
            else acl.pattern_type == PatternType.LITERAL and deny.name == acl.name
            for deny in denies
        )
        if not covered:
            return True
    return False
