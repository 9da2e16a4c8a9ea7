"""Which topics the members of a group of KIP-848 read, by names and by patterns. Owned by the group, in its loop.

Members with the same subscription are looked at together: most groups have one.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping

from broker.groups.consumer_member import ConsumerMember
from broker.groups.environment import Topics
from broker.groups.patterns import TopicPatterns

Subscription = tuple[tuple[str, ...], str | None]
"""Names of topics, and a pattern."""


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

    def changed(self) -> None:
        """A member came, went or reads something else."""
        self._hashed_at = None
        self._patterns = None

    def patterns(self, members: Mapping[str, ConsumerMember]) -> frozenset[str]:
        """Those that members subscribe to."""
        if self._patterns is None:
            self._patterns = frozenset(member.pattern for member in members.values() if member.pattern is not None)
        return self._patterns

    def names_of(self, subscription: Subscription) -> set[str]:
        """Names of the topics that a member with this subscription reads."""
        topics, pattern = subscription
        names = set(topics)
        if pattern is not None:
            names |= self._topic_patterns.matches(pattern)
        return names

    def of(self, members: Iterable[ConsumerMember]) -> set[str]:
        """Names of the topics that members read."""
        return {name for kind in {subscription_of(member) for member in members} for name in self.names_of(kind)}

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
