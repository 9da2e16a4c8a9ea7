"""Which ACLs nobody needed, by what clients did. Pure functions."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from odradek.security.acl import ANYBODY, WILDCARD, Acl, PatternType, Permission, ResourceType
from odradek.security.explaining import serves
from odradek.security.required import REQUIRED


class Use(NamedTuple):
    """A principal used an API, with a topic or (None) without one that is counted. :ivar api: its name."""

    principal: str
    api: str
    topic: str | None


def unneeded(acls: Sequence[Acl], uses: Collection[Use], names: dict[str, int]) -> list[Acl]:
    """The ACLs that allow something that nobody did. ACLs that deny are not judged.

    :param names: API keys by name. Of the resources, only topics are counted: an ACL for a group is needed if its
        principal used an API that needs this right on any group.
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
    keys = {key for key, row in REQUIRED.items() if any(serves(acl, need) for way in row.ways for need in way)}
    if acl.resource_type == ResourceType.TOPIC and any(
        key in keys and acl.principal in (principal, ANYBODY) and _names(acl, topic)
        for principal, key, topic in of_topics
    ):
        return True
    counted = {key for _, key, _ in of_topics} if acl.resource_type == ResourceType.TOPIC else set()
    return any(
        key in keys and key not in counted and acl.principal in (principal, ANYBODY) for principal, key in of_apis
    )


def _names(acl: Acl, topic: str) -> bool:
    if acl.pattern_type == PatternType.PREFIXED:
        return topic.startswith(acl.name)
    return acl.name in (topic, WILDCARD)
