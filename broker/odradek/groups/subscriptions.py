"""Which topics the members of a group of KIP-848 read, by names and by patterns. Owned by the group, in its loop.

Of the names only those of topics that exist are looked at: a member may name tens of thousands of others. They are found
once for members with the same subscription, and again only for topics that come or go.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Iterable, Mapping

from odradek.groups.consumer_member import ConsumerMember
from odradek.groups.environment import Topics
from odradek.groups.patterns import TopicPatterns

Subscription = tuple[tuple[str, ...], str | None]
"""Names of topics, ascending, and a pattern."""


class Subscriptions:
    """:param topics: those there are. What was computed of them holds until they, or a subscription, change."""

    def __init__(self, topics: Topics, patterns: TopicPatterns) -> None:
        self._topics = topics
        self._topic_patterns = patterns
        self._hash = 0
        self._hashed_at: tuple[int, int] | None = (
            None  # versions of topics and patterns; None: a subscription has changed
        )
        self._patterns: frozenset[str] | None = None
        self._names: frozenset[str] = frozenset()
        self._existing: dict[tuple[str, ...], frozenset[str]] = {}

    def changed(self) -> None:
        """A member came, went or reads something else."""
        self._hashed_at = None
        self._patterns = None

    def patterns(self, members: Mapping[str, ConsumerMember]) -> frozenset[str]:
        """Those that members subscribe to."""
        if self._patterns is None:
            self._patterns = frozenset(member.pattern for member in members.values() if member.pattern is not None)
        return self._patterns

    def names_of(self, subscription: Subscription) -> frozenset[str]:
        """Names of the topics, among those there are, that a member with this subscription reads."""
        topics, pattern = subscription
        self._follow()
        names = self._existing.get(topics)
        if names is None:
            names = self._existing[topics] = frozenset(name for name in topics if name in self._names)
        return names if pattern is None else names | self._topic_patterns.matches(pattern)

    def _follow(self) -> None:
        """Take over which topics there are now."""
        before, self._names = self._names, self._topic_patterns.names()
        if before is self._names:
            return
        added, gone = self._names - before, before - self._names
        for topics, names in self._existing.items():
            new = [name for name in added if _contains(topics, name)]
            if new or not gone.isdisjoint(names):
                self._existing[topics] = names.union(new) - gone

    def of(self, members: Iterable[ConsumerMember]) -> set[str]:
        """Names of the topics, among those there are, that members read."""
        kinds = {subscription_of(member) for member in members}
        found: set[str] = set()
        for kind in kinds:
            found |= self.names_of(kind)
        topics = {topics for topics, _ in kinds}
        self._existing = {one: names for one, names in self._existing.items() if one in topics}
        return found

    def hash(self, members: Mapping[str, ConsumerMember]) -> int:
        """Another one when a topic that is read appears, goes or grows. Computed when topics or a subscription have changed."""
        if self.patterns(members):
            self._topic_patterns.follow()
        version = self._topics.version, self._topic_patterns.version
        if self._hashed_at != version:
            text = "\0".join(f"{name}:{self._topics.find(name)}" for name in sorted(self.of(members.values())))
            self._hash = zlib.crc32(text.encode())
            self._hashed_at = self._topics.version, self._topic_patterns.version
        return self._hash


def subscription_of(member: ConsumerMember) -> Subscription:
    """What a member reads."""
    return member.topics, member.pattern


def _contains(names: tuple[str, ...], name: str) -> bool:
    place = bisect_left(names, name)
    return place < len(names) and names[place] == name
