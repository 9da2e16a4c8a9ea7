"""Explains a decision of the authorizer: the deciding rule, and what would change it. Pure functions."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from odradek.security.acl import ANYBODY, WILDCARD, Acl, Operation, PatternType, Permission, ResourceType
from odradek.security.authorizer import Authorizer, Rule
from odradek.security.hosts import normal_host
from odradek.security.needs import Need
from odradek.security.resource_types import RESOURCE_TYPES

ANY_ADDRESS = "any address"
"""The host of a question about a client whose address does not matter: only ACLs for all hosts concern it."""


class Question(NamedTuple):
    """What a client wants to do. :ivar host: the client's address, or `ANY_ADDRESS`."""

    principal: str
    host: str
    operation: Operation
    resource_type: ResourceType
    name: str


class Change(NamedTuple):
    """A change of the ACLs.

    :param adds: False: it removes the ACL. :param broader: it also changes decisions about other principals, resources,
        operations or addresses, which the ACL concerns too.
    """

    adds: bool
    acl: Acl
    broader: bool = False


class Explanation(NamedTuple):
    """``why`` and ``change`` are sentences for an operator; ``acls``: the ACLs that name the resource and concern the
    client; ``mistaken``: ACLs that would concern the client if their resource were not a prefix; ``elsewhere``: for a question
    about `ANY_ADDRESS`, the addresses for which the decision differs; ``changes``: what changes the decision, in this
    order, see `changes_of`; ``still_elsewhere``: the addresses for which the old decision still counts after the changes."""

    rule: Rule
    why: str
    change: str
    acls: list[Acl]
    mistaken: Sequence[Acl] = ()
    elsewhere: Mapping[str, Rule] = MappingProxyType({})
    changes: Sequence[Change] = ()
    still_elsewhere: Mapping[str, Rule] = MappingProxyType({})


def explained(question: Question, authorizer: Authorizer, acls: Sequence[Acl], default_key: str) -> Explanation:
    """Decide, and say why.

    :param acls: those of the authorizer. :param default_key: the setting that decides about resources without an ACL.
    """
    found = _explained(question, authorizer, acls, default_key)
    changes = changes_of(question, authorizer, acls)
    after = changed(acls, changes)
    return found._replace(
        mistaken=_mistaken(question, acls),
        elsewhere=_elsewhere(question, authorizer, acls),
        changes=changes,
        still_elsewhere=_elsewhere(question, authorizer.with_acls(after), after) if changes else {},
    )


def changes_of(question: Question, authorizer: Authorizer, acls: Sequence[Acl]) -> list[Change]:
    """What changes a decision and, except where a change is `Change.broader`, no decision about another principal or resource.

    The decisions about others do not change between two of the changes either. Empty if there are no such changes: for a super
    user; and for all resources (`*`) where the first ACL of all resources would end `allow.everyone.if.no.acl.found`.
    """
    principal, host, operation, kind, name = question
    rule = authorizer.decide(*question)
    at = WILDCARD if host == ANY_ADDRESS else host
    own = Acl(kind, PatternType.LITERAL, name, principal, at, operation, Permission.ALLOW)
    opposite = own._replace(permission=Permission.DENY)
    if rule.reason == "SuperUser" or operation not in RESOURCE_TYPES[kind].operations:
        return []
    mine = _concerning(question, acls)
    allowing = [acl for acl in mine if acl.permission == Permission.ALLOW]
    denying = [acl for acl in mine if acl.permission == Permission.DENY]
    if denying:  # the allowance is first: without an ACL, the default would count for everybody
        changes = [Change(False, acl, not _is(acl, opposite)) for acl in denying]
        if not any(name != WILDCARD or _is_of_all(acl, kind) for acl in allowing):
            changes.insert(0, Change(True, own))
    elif not rule.allowed:
        changes = [Change(True, own)]
    elif rule.acl is None:  # the first ACL of a resource ends the default for everybody
        everybody = own._replace(principal=ANYBODY, host=WILDCARD, operation=Operation.ALL)
        changes = [Change(True, everybody), Change(True, opposite)]
    elif len(allowing) == 1 and _is(allowing[0], own) and not _ends_naming(allowing[0], authorizer, acls):
        changes = [Change(False, allowing[0])]
    else:
        changes = [Change(True, opposite)]
    names_all = any(_is_of_all(acl, kind) for acl in acls)
    if authorizer.allow_without_acl and name == WILDCARD and changes[0].adds and not names_all:
        return []
    return changes


def changed(acls: Sequence[Acl], changes: Sequence[Change]) -> list[Acl]:
    """The ACLs after the changes."""
    after = set(acls)
    for change in changes:
        if change.adds:
            after.add(change.acl)
        else:
            after.discard(change.acl)
    return sorted(after)


def _is(acl: Acl, other: Acl) -> bool:
    return acl._replace(host=normal_host(acl.host)) == other


def _is_of_all(acl: Acl, kind: int) -> bool:
    return (acl.resource_type, acl.pattern_type, acl.name) == (kind, PatternType.LITERAL, WILDCARD)


def _ends_naming(acl: Acl, authorizer: Authorizer, acls: Sequence[Acl]) -> bool:
    """Whether the default counts for the resource of a literal ACL, or for all, once the ACL is removed."""
    others = [other for other in acls if other != acl]
    if acl.name == WILDCARD:
        return authorizer.allow_without_acl and not any(_is_of_all(other, acl.resource_type) for other in others)
    after = authorizer.with_acls(others)
    return after.decide(acl.principal, acl.host, acl.operation, acl.resource_type, acl.name).allowed


def _concerning(question: Question, acls: Sequence[Acl]) -> list[Acl]:
    """The ACLs that name the resource and concern the client."""
    return [acl for acl in acls if Authorizer([acl]).decide(*question).acl is not None]


def _elsewhere(question: Question, authorizer: Authorizer, acls: Sequence[Acl]) -> dict[str, Rule]:
    """The addresses in ACLs from which the decision differs from that of the question; none if it is about one address."""
    if question.host != ANY_ADDRESS:
        return {}
    allowed = authorizer.decide(*question).allowed
    hosts = sorted({normal_host(acl.host) for acl in acls} - {WILDCARD})
    rules = {host: authorizer.decide(*question._replace(host=host)) for host in hosts}
    return {host: rule for host, rule in rules.items() if rule.allowed != allowed}


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
    mine = _concerning(question, acls)
    wanted = f"{operation.name} on {RESOURCE_TYPES[kind].words} {name}"
    if rule.reason == "SuperUser":
        return Explanation(
            rule, f"{principal} is a super user", "remove it from super.users and restart the broker", mine
        )
    allowing = [acl for acl in mine if acl.permission == Permission.ALLOW]
    if rule.acl is not None and not rule.allowed:
        then = "" if allowing else f", and an ACL must allow {wanted}"
        more = len(mine) - len(allowing) - 1
        these = f"this ACL and {more} more that deny it" if more else "this ACL"
        return Explanation(
            rule,
            f"an ACL denies it: {shown(rule.acl)}",
            f"{these} must be removed{then}: a denial counts before every allowance",
            mine,
        )
    if rule.acl is not None:
        change = "add an ACL that denies it: a denial counts before every allowance"
        if [change.acl for change in changes_of(question, authorizer, acls)] == [rule.acl]:
            change = "remove this ACL"
        return Explanation(rule, f"an ACL allows it: {shown(rule.acl)}", change, mine)
    if rule.allowed:
        return Explanation(
            rule,
            f"no ACL names this resource, and {default_key} is true",
            "add ACLs for the resources that it must not use"
            if name == WILDCARD
            else "add an ACL that allows everybody to use this resource, and then one that denies it:"
            f" {default_key} does not count for a resource with an ACL",
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
    kind = RESOURCE_TYPES[acl.resource_type].words
    host = "any host" if acl.host == "*" else f"host {acl.host}"
    return f"{verb} {acl.principal} {Operation(acl.operation).name} on {kind} {pattern}{acl.name} from {host}"


def serves(acl: Acl, need: Need) -> bool:
    """Whether an ACL that allows something gives the right that an API needs."""
    if acl.resource_type != need.resource_type:
        return False
    rule = Authorizer([acl]).decide(acl.principal, acl.host, need.operation, acl.resource_type, acl.name)
    return rule.allowed
