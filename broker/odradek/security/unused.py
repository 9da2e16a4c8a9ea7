"""Which ACLs nobody needed, by what clients did. Pure functions."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from odradek.security.acl import ANYBODY, WILDCARD, Acl, Operation, PatternType, Permission, ResourceType
from odradek.security.explaining import serves
from odradek.security.needs import Need, Ways

COUNTED = {"Produce": Operation.WRITE, "Fetch": Operation.READ}
"""The APIs whose usage is counted by topic, with what they need."""


class Use(NamedTuple):
    """A principal used an API, with a topic or (None) without one that is counted. :ivar api: its name."""

    principal: str
    api: str
    topic: str | None


def unneeded(acls: Sequence[Acl], uses: Collection[Use], ways: Mapping[str, Ways]) -> list[Acl]:
    """The ACLs that allow something that nobody did. ACLs that deny are not judged.

    :param ways: what each API needs, by its name. Of the resources, only the topics of Produce and Fetch are counted: an ACL
        for READ or WRITE on a topic is needed if the topic was read or written; every other ACL is needed if its
        principal used an API that needs this operation on any resource of the type.
    """
    known = [use for use in uses if use.api in ways]
    return [acl for acl in acls if acl.permission == Permission.ALLOW and not _needed(acl, known, ways)]


def _needed(acl: Acl, uses: Collection[Use], ways: Mapping[str, Ways]) -> bool:
    own = [use for use in uses if acl.principal in (use.principal, ANYBODY)]
    if acl.resource_type != ResourceType.TOPIC:
        return any(serves(acl, need) for use in own for way in ways[use.api] for need in way)
    if any(
        use.topic and use.api in COUNTED and _gives(acl, COUNTED[use.api]) and _names(acl, use.topic) for use in own
    ):
        return True
    # Of the other APIs, the topics are not known. What a writer or reader does with them needs the same topics.
    return any(_gives_uncounted(acl, need) for use in own for way in ways[use.api] for need in way)


def _gives_uncounted(acl: Acl, need: Need) -> bool:
    if need.resource_type != acl.resource_type or need.operation in COUNTED.values():
        return False
    return need.operation == acl.operation or (acl.operation == Operation.ALL and need.operation != Operation.DESCRIBE)


def _gives(acl: Acl, operation: int) -> bool:
    return acl.operation in (operation, Operation.ALL)


def _names(acl: Acl, topic: str) -> bool:
    if acl.pattern_type == PatternType.PREFIXED:
        return topic.startswith(acl.name)
    return acl.name in (topic, WILDCARD)
