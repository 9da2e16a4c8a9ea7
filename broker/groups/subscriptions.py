"""Which topics the members of a group of KIP-848 read, by names and by patterns. Owned by the group, in its loop."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from broker.groups.consumer_member import ConsumerMember
from broker.groups.environment import Topics


class Subscriptions:
    """:param topics: those there are. What was computed of them holds until they, or a subscription, change."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._hash = 0
        self._hashed_at: int | None = None  # version of the topics; None: who reads what has changed since
        self._patterns: dict[str, tuple[int, frozenset[str]]] = {}

    def changed(self) -> None:
        """A member came, went or reads something else."""
        self._hashed_at = None

    def names_of(self, member: ConsumerMember) -> set[str]:
        """Names of the topics that a member reads."""
        names = set(member.topics)
        if member.pattern is not None:
            names |= self._matches(member.pattern)
        return names

    def _matches(self, pattern: str) -> frozenset[str]:
        names = list(self._topics.names())
        mark = zlib.crc32("\0".join(sorted(names)).encode())
        known = self._patterns.get(pattern)
        if known is None or known[0] != mark:
            expression = compiled(pattern)
            known = mark, frozenset(name for name in names if expression.fullmatch(name))
            self._patterns[pattern] = known
        return known[1]

    def of(self, members: Iterable[ConsumerMember]) -> set[str]:
        """Names of the topics that members read."""
        return {name for member in members for name in self.names_of(member)}

    def hash(self, members: Mapping[str, ConsumerMember]) -> int:
        """Another one when a topic that is read appears, goes or grows. Computed when topics or a subscription have changed."""
        version = self._topics.version
        if self._hashed_at != version:
            self._hashed_at = version
            asked = {member.pattern for member in members.values()}
            self._patterns = {pattern: known for pattern, known in self._patterns.items() if pattern in asked}
            text = "\0".join(f"{name}:{self._topics.find(name)}" for name in sorted(self.of(members.values())))
            self._hash = zlib.crc32(text.encode())
        return self._hash


def compiled(pattern: str) -> Any:
    """A subscription's pattern in RE2's syntax, as in Kafka: no pattern takes more than linear time. Raises ValueError."""
    import re2  # not before somebody subscribes by a pattern: the broker starts without it

    try:
        return re2.compile(pattern)
    except re2.error as error:
        why = error.args[0] if error.args else error
        raise ValueError(why.decode(errors="replace") if isinstance(why, bytes) else str(why)) from error
