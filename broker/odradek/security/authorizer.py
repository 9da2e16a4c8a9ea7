"""The rules of Kafka's StandardAuthorizer on an immutable set of ACLs.

Pure. Decisions by Kafka's rules: super users are allowed; else a DENY that matches counts before an ALLOW that matches; else,
if no ACL of any principal names the resource, `allow.everyone.if.no.acl.found` counts; else the client is denied.

A decision costs a look-up for each distinct length of the prefixes of ACLs, and reads only ACLs for the client's principal
and for everybody, so its cost does not depend on the number of ACLs for other principals and other resources.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from odradek.security.acl import (
    ANYBODY,
    WILDCARD,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from odradek.security.hosts import normal_host
from odradek.security.resource_types import RESOURCE_TYPES

_GRANTED_BY: dict[int, frozenset[int]] = {operation: frozenset((operation, Operation.ALL)) for operation in Operation}
"""By operation: the operations of an ALLOW that allow it. A DENY denies only its own operation, or all."""
_GRANTED_BY[Operation.DESCRIBE] |= {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
_GRANTED_BY[Operation.DESCRIBE_CONFIGS] |= {Operation.ALTER_CONFIGS}


class Rule(NamedTuple):
    """Why a client is allowed or denied. ``acl``: the deciding ACL; None for `reason`s other than an ACL."""

    allowed: bool
    reason: str
    acl: Acl | None = None

    def __str__(self) -> str:
        """As in Kafka's audit log."""
        return self.reason if self.acl is None else f"MatchingAcl(acl={self.acl})"


SUPER_USER = Rule(True, "SuperUser")
DEFAULT_ALLOW = Rule(True, "DefaultAllow")
DEFAULT_DENY = Rule(False, "DefaultDeny")

_ByPrincipal = dict[str, list[Acl]]


class _OfType:
    """The ACLs of a type of resources."""

    def __init__(self) -> None:
        self.literal: dict[str, _ByPrincipal] = {}
        self.prefixed: dict[str, _ByPrincipal] = {}
        self.lengths: tuple[int, ...] = ()

    def add(self, acl: Acl) -> None:
        names = self.literal if acl.pattern_type == PatternType.LITERAL else self.prefixed
        names.setdefault(acl.name, {}).setdefault(acl.principal, []).append(acl)

    def naming(self, name: str) -> Iterator[_ByPrincipal]:
        """The ACLs that name a resource: by its name, by a prefix, and all resources."""
        found = self.literal.get(name)
        if found is not None:
            yield found
        for length in self.lengths:
            if length > len(name):
                break
            found = self.prefixed.get(name[:length])
            if found is not None:
                yield found
        if name != WILDCARD and (found := self.literal.get(WILDCARD)) is not None:
            yield found


_NONE = _OfType()


class Authorizer:
    """See the module.

    :param acls: must be valid, see `problem_of`. :param super_users: principals that may do everything.
    :param allow_without_acl: `allow.everyone.if.no.acl.found`.
    """

    def __init__(
        self, acls: Iterable[Acl] = (), super_users: Iterable[str] = (), allow_without_acl: bool = False
    ) -> None:
        self.super_users = frozenset(super_users)
        self.allow_without_acl = allow_without_acl
        self._default = DEFAULT_ALLOW if allow_without_acl else DEFAULT_DENY
        self._types: dict[int, _OfType] = {}
        self.acls = frozenset(acls)
        for acl in sorted(self.acls):
            self._types.setdefault(acl.resource_type, _OfType()).add(acl._replace(host=normal_host(acl.host)))
        for of_type in self._types.values():
            of_type.lengths = tuple(sorted({len(name) for name in of_type.prefixed}))

    def with_acls(self, acls: Iterable[Acl]) -> "Authorizer":
        """An authorizer with other ACLs, and the same super users and default."""
        return Authorizer(acls, self.super_users, self.allow_without_acl)

    def revoked_since(self, before: "Authorizer") -> frozenset[str]:
        """The principals that may have lost a right since `before`, which has the same super users and default; "User:*" means
        everybody."""
        lost = {acl for acl in before.acls - self.acls if acl.permission == Permission.ALLOW}
        added = self.acls - before.acls
        if self._default.allowed and added:
            return frozenset((ANYBODY,))  # the first ACL of a resource ends the default for it
        lost |= {acl for acl in added if acl.permission == Permission.DENY}
        return frozenset(acl.principal for acl in lost)

    def decide(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> Rule:
        """Decide whether a client may do something.

        :param host: the client's address in its normal form, see `hosts`.
        """
        if principal in self.super_users:
            return SUPER_USER
        allow: Acl | None = None
        named = False
        granted = _GRANTED_BY.get(operation, frozenset())
        for by_principal in self._types.get(resource_type, _NONE).naming(name):
            named = True
            for who in (principal, ANYBODY) if principal != ANYBODY else (ANYBODY,):
                for acl in by_principal.get(who, ()):
                    if acl.host not in (WILDCARD, host):
                        continue
                    if acl.permission == Permission.DENY:
                        if acl.operation in (operation, Operation.ALL):
                            return Rule(False, "MatchingAcl", acl)
                    elif allow is None and acl.operation in granted:
                        allow = acl
        if allow is not None:
            return Rule(True, "MatchingAcl", allow)
        return DEFAULT_DENY if named else self._default

    def decide_by_type(self, principal: str, host: str, operation: int, resource_type: int) -> Rule:
        """Decide whether a client may do something with at least one resource of a type, as `authorizeByResourceType` of Kafka.

        Kafka first decides for a resource named "hardcode", which allows super users, and everybody where no ACL exists.
        """
        rule = self.decide(principal, host, operation, resource_type, "hardcode")
        if rule.allowed:
            return rule
        acls = [
            acl
            for acl in self._of(principal, resource_type)
            if acl.host in (WILDCARD, host) and acl.operation in (operation, Operation.ALL)
        ]
        denied = {(acl.pattern_type, acl.name): acl for acl in acls if acl.permission == Permission.DENY}
        everything = denied.get((PatternType.LITERAL, WILDCARD))
        if everything is not None:
            return Rule(False, "MatchingAcl", everything)
        allowed = [acl for acl in acls if acl.permission == Permission.ALLOW]
        for acl in allowed:
            if acl.pattern_type == PatternType.LITERAL and acl.name == WILDCARD:
                return Rule(True, "MatchingAcl", acl)
        for acl in allowed:
            if acl.pattern_type == PatternType.LITERAL and (PatternType.LITERAL, acl.name) in denied:
                continue
            if not any((PatternType.PREFIXED, acl.name[:end]) in denied for end in range(1, len(acl.name) + 1)):
                return Rule(True, "MatchingAcl", acl)
        return DEFAULT_DENY

    def operations(self, principal: str, host: str, resource_type: int, name: str) -> int:
        """The bit field of the operations that the client may do with a resource (KIP-430)."""
        return sum(
            1 << operation
            for operation in RESOURCE_TYPES[resource_type].operations
            if self.decide(principal, host, operation, resource_type, name).allowed
        )

    def _of(self, principal: str, resource_type: int) -> Iterator[Acl]:
        """The ACLs of a type for a principal or for everybody."""
        of_type = self._types.get(resource_type, _NONE)
        for names in (of_type.literal, of_type.prefixed):
            for by_principal in names.values():
                yield from by_principal.get(principal, ())
                if principal != ANYBODY:
                    yield from by_principal.get(ANYBODY, ())

    def can_manage(self) -> bool:
        """Whether there is anybody who may change ACLs: a super user, or an ACL that allows ALTER on the cluster."""
        return (
            bool(self.super_users)
            or self._default.allowed
            or any(
                acl.permission == Permission.ALLOW and acl.operation in (Operation.ALTER, Operation.ALL)
                for names in (of_type.literal for of_type in [self._types.get(ResourceType.CLUSTER, _NONE)])
                for by_principal in names.values()
                for acls in by_principal.values()
                for acl in acls
            )
        )
