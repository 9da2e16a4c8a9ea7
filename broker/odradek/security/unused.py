"""Which ACLs nobody needed, by what clients did. Pure functions."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from odradek.security.acl import ANYBODY, WILDCARD, Acl, Operation, PatternType, Permission, ResourceType
from odradek.security.explaining import serves
from odradek.security.required import REQUIRED

COUNTED = {0: Operation.WRITE, 1: Operation.READ}
"""The APIs whose usage is counted by topic, with what they need: Produce and Fetch."""


class Use(NamedTuple):
    """A principal used an API, with a topic or (None) without one that is counted. :ivar api: its name."""

    principal: str
    api: str
    topic: str | None


def unneeded(acls: Sequence[Acl], uses: Collection[Use], names: dict[str, int]) -> list[Acl]:
    """The ACLs that allow something that nobody did. ACLs that deny are not judged.

    :param names: API keys by name. Of the resources, only the topics of Produce and Fetch are counted: an ACL for
        READ or WRITE on a topic is needed if the topic was read or written; every other ACL is needed if its
        principal used an API that needs this operation on any resource of the type.
    """
    of_topics: set[tuple[str, int, str]] = set()
    of_apis: set[tuple[str, int]] = set()
    for use in uses:
        key = names.get(use.api)
        if key is None:
            continue
        of_apis.add((use.principal, key))
        if use.topic:
            of_topics.add((use.principal, key, use.topic))
    return [acl for acl in acls if acl.permission == Permission.ALLOW and not _needed(acl, of_topics, of_apis)]


def _needed(acl: Acl, of_topics: set[tuple[str, int, str]], of_apis: set[tuple[str, int]]) -> bool:
    if acl.resource_type != ResourceType.TOPIC:
        keys = {key for key, row in REQUIRED.items() if any(serves(acl, need) for way in row.ways for need in way)}
        return any(key in keys and acl.principal in (principal, ANYBODY) for principal, key in of_apis)
    by_name = any(
        _gives(acl, COUNTED[key]) and acl.principal in (principal, ANYBODY) and _names(acl, topic)
        for principal, key, topic in of_topics
        if key in COUNTED
    )
    # Of the other APIs, the topics are not known. What a writer or reader does with them needs the same topics.
    others = {
        key
        for key, row in REQUIRED.items()
        for way in row.ways
        for need in way
        if need.resource_type == acl.resource_type
        and (
            need.operation == acl.operation or (acl.operation == Operation.ALL and need.operation != Operation.DESCRIBE)
        )
        and need.operation not in COUNTED.values()
    }
    return by_name or any(key in others and acl.principal in (principal, ANYBODY) for principal, key in of_apis)


def _gives(acl: Acl, operation: int) -> bool:
    return acl.operation in (operation, Operation.ALL)


def _names(acl: Acl, topic: str) -> bool:
    if acl.pattern_type == PatternType.PREFIXED:
        return topic.startswith(acl.name)
    return acl.name in (topic, WILDCARD)
