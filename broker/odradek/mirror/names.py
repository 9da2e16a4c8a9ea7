"""Names of the target's topics (replication policies), patterns of names, and cycles between flows. Pure functions and values.

The rules are those of MirrorMaker 2 (KIP-382 and KIP-690), so that its client library (`RemoteClusterUtils`) finds the topics.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from odradek.mirror.keys import POLICIES

HEARTBEATS = "heartbeats"
LONGEST_NAME = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True)
class ReplicationPolicy:
    """How a topic of a source is named in a target.

    :param identity: IdentityReplicationPolicy: all names but that of heartbeats stay. :param separator: between alias and name.
    :param internal_separator: the separator in the names of MirrorMaker 2's internal topics.
    """

    identity: bool = False
    separator: str = "."
    internal_separator: str = "."

    def __str__(self) -> str:
        return POLICIES[self.identity]

    def remote(self, alias: str, topic: str) -> str:
        """The name in the target of a topic of the cluster `alias`."""
        if self.identity and self.original(topic) != HEARTBEATS:
            return topic
        return f"{alias}{self.separator}{topic}"

    def source_of(self, topic: str) -> str | None:
        """The alias in the name of a topic; None if the name contains none, or if names do not show it."""
        alias, separator, rest = topic.partition(self.separator)
        if not separator or not alias or not rest:
            return None
        if self.identity and not topic.endswith(f"{self.separator}{HEARTBEATS}"):
            return None
        return alias

    def upstream(self, topic: str) -> str | None:
        """The name of the topic in the cluster of which it is a copy; None if its name does not show that it is a copy."""
        alias = self.source_of(topic)
        return None if alias is None else topic[len(alias) + len(self.separator) :]

    def original(self, topic: str) -> str:
        """The name of the topic in the cluster where it was made."""
        while (upstream := self.upstream(topic)) is not None:
            topic = upstream
        return topic

    def came_from(self, topic: str, alias: str) -> bool:
        """Whether the name shows that the topic was copied from the cluster `alias`, directly or through others."""
        while (source := self.source_of(topic)) is not None:
            if source == alias:
                return True
            topic = topic[len(source) + len(self.separator) :]
        return False

    def is_heartbeats(self, topic: str) -> bool:
        """Whether the topic contains heartbeats, of this cluster or of another one."""
        return self.original(topic) == HEARTBEATS

    def is_internal(self, topic: str) -> bool:
        """Whether the topic is one of Kafka, Kafka Connect or MirrorMaker 2, which is never mirrored."""
        ending = f"{self.internal_separator}internal"
        return (
            topic.startswith(("__", "."))
            or topic.endswith(("-internal", ".internal", f"{self.internal_separator}checkpoints{ending}"))
            or (topic.startswith("mm2") and topic.endswith(ending))
        )


@dataclass(frozen=True)
class Patterns:
    """Regular expressions for names, each for a whole name. Raises re.error for an invalid one when it is made."""

    include: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    _compiled: "tuple[re.Pattern[str] | None, re.Pattern[str] | None]" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_compiled", (_joined(self.include), _joined(self.exclude)))

    def selects(self, name: str) -> bool:
        """Whether an included pattern matches the whole name, and no excluded one."""
        include, exclude = self._compiled
        if include is None or not include.fullmatch(name):
            return False
        return exclude is None or not exclude.fullmatch(name)

    @cached_property
    def literal(self) -> tuple[str, ...]:
        """The included items that are names and not patterns."""
        return tuple(item for item in self.include if _LEGAL.fullmatch(item))


def _joined(items: Sequence[str]) -> "re.Pattern[str] | None":
    for item in items:
        re.compile(item)  # an error names the item, not the whole list
    return re.compile("|".join(f"(?:{item})" for item in items)) if items else None


def illegal_name(topic: str) -> str | None:
    """Why a topic cannot have this name; None if it can."""
    if len(topic) > LONGEST_NAME:
        return f"the name '{topic}' has {len(topic)} characters; a topic's name has at most {LONGEST_NAME}"
    if not _LEGAL.fullmatch(topic) or topic in (".", ".."):
        return f"the name '{topic}' contains characters other than letters, digits, '.', '_' and '-'"
    return None


@dataclass(frozen=True)
class Edge:
    """A flow as the search for cycles sees it. :param topics: the patterns of its topics."""

    source: str
    target: str
    policy: ReplicationPolicy
    topics: Patterns


def cycle(topic: str, first: Edge, edges: Iterable[Edge]) -> list[str] | None:
    """The aliases through which a topic of `first` would come back to its source under the same name; None if it does not.

    Only flows with IdentityReplicationPolicy keep a name. With DefaultReplicationPolicy the name itself shows the way
    (`ReplicationPolicy.came_from`).
    """
    if not first.policy.identity:
        return None
    usable = [edge for edge in edges if edge.policy.identity and edge.topics.selects(topic)]
    ways = [[first.source, first.target]]
    seen = {first.target}
    for way in ways:
        for edge in usable:
            if edge.source != way[-1]:
                continue
            if edge.target == first.source:
                return [*way, edge.target]
            if edge.target not in seen:
                seen.add(edge.target)
                ways.append([*way, edge.target])
    return None
