"""The topics that the members of a consumer group (KIP-848) subscribe to, by name and by pattern.

Used by the group, in its loop.

Only names of existing topics are considered: a member may name tens of thousands of others. They are computed once for
members with equal subscriptions, and updated when topics are created or deleted.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Iterable, Mapping

from odradek.groups.consumer_member import ConsumerMember
from odradek.groups.environment import Topics
from odradek.groups.patterns import TopicPatterns
from odradek.groups.visible_topics import Visible

Subscription = tuple[tuple[str, ...], str | None, frozenset[str] | None]
"""Names of topics, ascending; a pattern; the topics that the member may see among those that the pattern matches, None: all."""


class Subscriptions:
    """The subscriptions of a group. Results are cached until topics or subscriptions change.

    :ivar sight_changed: what members may see has changed the topics of a subscription; the group resets it.
    """

    def __init__(self, topics: Topics, patterns: TopicPatterns) -> None:
        self._topics = topics
        self._topic_patterns = patterns
        self._hash = 0
        # Versions of topics and patterns at the last hash; None: a subscription has changed.
        self._hashed_at: tuple[int, int] | None = None
        self._patterns: frozenset[str] | None = None
        self._names: frozenset[str] = frozenset()
        self._existing: dict[tuple[str, ...], frozenset[str]] = {}
        self.sight_changed = False

    def changed(self) -> None:
        """Invalidate the caches: a member joined, left or changed its subscription."""
        self._hashed_at = None
        self._patterns = None

    def see(self, member: ConsumerMember, visible: Visible | None) -> None:
        """Change what a member may see."""
        former = subscription_of(member)
        member.visible = visible
        now = subscription_of(member)
        if former != now:
            self.changed()
            self.sight_changed |= self.names_of(former) != self.names_of(now)

    def patterns(self, members: Mapping[str, ConsumerMember]) -> frozenset[str]:
        """The patterns that members subscribe to."""
        if self._patterns is None:
            self._patterns = frozenset(member.pattern for member in members.values() if member.pattern is not None)
        return self._patterns

    def pattern_error(self, pattern: str) -> str | None:
        """Why a pattern is invalid; None if it is valid."""
        return self._topic_patterns.error_of(pattern)

    def names_of(self, subscription: Subscription) -> frozenset[str]:
        """Names of the existing topics of a subscription."""
        topics, pattern, visible = subscription
        self._follow()
        names = self._existing.get(topics)
        if names is None:
            if len(topics) <= len(self._names):
                names = frozenset(name for name in topics if name in self._names)
            else:
                names = frozenset(name for name in self._names if _contains(topics, name))
            self._existing[topics] = names
        if pattern is None:
            return names
        matched = self._topic_patterns.matches(pattern)
        return names | (matched if visible is None else matched & visible)

    def _follow(self) -> None:
        """Update the cached names for created and deleted topics."""
        before, self._names = self._names, self._topic_patterns.names()
        if before is self._names:
            return
        added, deleted = self._names - before, before - self._names
        for topics, names in self._existing.items():
            new = [name for name in added if _contains(topics, name)]
            if new or not deleted.isdisjoint(names):
                self._existing[topics] = names.union(new) - deleted

    def of(self, members: Iterable[ConsumerMember]) -> set[str]:
        """Names of the existing topics that members subscribe to."""
        subscriptions = {subscription_of(member) for member in members}
        subscribed: set[str] = set()
        for subscription in subscriptions:
            subscribed |= self.names_of(subscription)
        in_use = {topics for topics, _, _ in subscriptions}
        self._existing = {topics: names for topics, names in self._existing.items() if topics in in_use}
        return subscribed

    def hash(self, members: Mapping[str, ConsumerMember]) -> int:
        """A hash that changes when a subscribed topic is created, deleted or extended; cached until a change."""
        if self.patterns(members):
            self._topic_patterns.follow()
        version = self._topics.version, self._topic_patterns.version
        if self._hashed_at != version:
            text = "\0".join(f"{name}:{self._topics.find(name)}" for name in sorted(self.of(members.values())))
            self._hash = zlib.crc32(text.encode())
            self._hashed_at = self._topics.version, self._topic_patterns.version
        return self._hash


def subscription_of(member: ConsumerMember) -> Subscription:
    """The subscription of a member."""
    visible = None if member.visible is None or member.pattern is None else member.visible.names
    return member.topics, member.pattern, visible


def _contains(names: tuple[str, ...], name: str) -> bool:
    place = bisect_left(names, name)
    return place < len(names) and names[place] == name
