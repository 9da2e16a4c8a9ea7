"""Explains a decision of the authorizer: the deciding rule, and what would change it. Pure functions."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from odradek.security.acl import WILDCARD, Acl, Operation, PatternType, Permission, ResourceType
from odradek.security.authorizer import Authorizer, Rule
from odradek.security.hosts import normal_host
from odradek.security.required import Need

TYPE_NAMES = {
    ResourceType.TOPIC: "topic",
    ResourceType.GROUP: "group",
    ResourceType.CLUSTER: "cluster",
    ResourceType.TRANSACTIONAL_ID: "transactional id",
    ResourceType.DELEGATION_TOKEN: "delegation token",
    ResourceType.USER: "user",
}


ANY_ADDRESS = "any address"
"""The host of a question about a client whose address does not matter: only ACLs for all hosts concern it."""


class Question(NamedTuple):
    """What a client wants to do. :ivar host: the client's address, or `ANY_ADDRESS`."""

    principal: str
    host: str
    operation: Operation
    resource_type: ResourceType
    name: str


class Explanation(NamedTuple):
    """``why`` and ``change`` are sentences for an operator; ``acls``: the ACLs that name the resource and concern the
    client; ``mistaken``: ACLs that would concern the client if their resource were not a prefix; ``elsewhere``: for a question
    about `ANY_ADDRESS`, the addresses for which the decision differs."""

    rule: Rule
    why: str
    change: str
    acls: list[Acl]
    mistaken: Sequence[Acl] = ()
    elsewhere: Mapping[str, Rule] = MappingProxyType({})


def explained(question: Question, authorizer: Authorizer, acls: Sequence[Acl], default_key: str) -> Explanation:
    """Decide, and say why.

    :param acls: those of the authorizer. :param default_key: the setting that decides about resources without an ACL.
    """
    found = _explained(question, authorizer, acls, default_key)
    return found._replace(
        mistaken=_mistaken(question, acls), elsewhere=_elsewhere(question, found.rule, authorizer, acls)
    )


def _elsewhere(question: Question, rule: Rule, authorizer: Authorizer, acls: Sequence[Acl]) -> dict[str, Rule]:
    """The addresses in ACLs from which the decision differs from `rule`; none if the question is about one address."""
    if question.host != ANY_ADDRESS:
        return {}
    hosts = sorted({normal_host(acl.host) for acl in acls} - {WILDCARD})
    rules = {host: authorizer.decide(*question._replace(host=host)) for host in hosts}
    return {host: other for host, other in rules.items() if other.allowed != rule.allowed}


def _mistaken(question: Question, acls: Sequence[Acl]) -> list[Acl]:
    """The prefixed ACLs of `*` that would concern the client if they were literal.

    In a prefix, `*` is a character: such an ACL names only resources whose names begin with it.
    """
    return [
        acl
        for acl in acls
        if acl.pattern_type == PatternType.PREFIXED
        and acl.name == WILDCARD
        and not question.name.startswith(WILDCARD)
        and Authorizer([acl._replace(pattern_type=PatternType.LITERAL)]).decide(*question).acl is not None
    ]


def _explained(question: Question, authorizer: Authorizer, acls: Sequence[Acl], default_key: str) -> Explanation:
    principal, host, operation, kind, name = question
    rule = authorizer.decide(principal, host, operation, kind, name)
    mine = [one for one in acls if Authorizer([one]).decide(principal, host, operation, kind, name).acl is not None]
    wanted = f"{operation.name} on {TYPE_NAMES[kind]} {name}"
    if rule.reason == "SuperUser":
        return Explanation(
            rule, f"{principal} is a super user", "remove it from super.users and restart the broker", mine
        )
    if rule.acl is not None and not rule.allowed:
        allow = any(one.permission == Permission.ALLOW for one in mine)
        then = "" if allow else f", and an ACL must allow {wanted}"
        return Explanation(
            rule,
            f"an ACL denies it: {shown(rule.acl)}",
            f"this ACL must be removed{then}: a denial counts before every allowance",
            mine,
        )
    if rule.acl is not None:
        others = [one for one in mine if one != rule.acl]
        change = "remove this ACL"
        if others:
            change = f"remove this ACL and {len(others)} more that allow it, or add one that denies it"
        return Explanation(rule, f"an ACL allows it: {shown(rule.acl)}", change, mine)
    if rule.allowed:
        return Explanation(
            rule,
            f"no ACL names this resource, and {default_key} is true",
            "add an ACL for this resource: then only principals that an ACL allows can use it",
            mine,
        )
    named = any(
        Authorizer([one], (), True).decide("", "", operation, kind, name).reason == "DefaultDeny" for one in acls
    )
    why = f"no ACL allows {wanted} to {principal} from {host}"
    if not named:
        why = f"no ACL names this resource, and {default_key} is false"
    return Explanation(rule, why, f"add an ACL that allows {wanted}", mine)


def shown(acl: Acl) -> str:
    """An ACL as one line."""
    verb = "allow" if acl.permission == Permission.ALLOW else "deny"
    pattern = "prefix " if acl.pattern_type == 4 else ""
    kind = TYPE_NAMES[ResourceType(acl.resource_type)]
    host = "any host" if acl.host == "*" else f"host {acl.host}"
    return f"{verb} {acl.principal} {Operation(acl.operation).name} on {kind} {pattern}{acl.name} from {host}"


def serves(acl: Acl, need: Need) -> bool:
    """Whether an ACL that allows something gives the right that an API needs."""
    if acl.resource_type != need.resource_type:
        return False
    rule = Authorizer([acl]).decide(acl.principal, acl.host, need.operation, acl.resource_type, acl.name)
    return rule.allowed
