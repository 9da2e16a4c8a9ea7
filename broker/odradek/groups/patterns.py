"""Which topics match the patterns that members of groups of KIP-848 subscribe to: for all groups, each pattern once.

Owned by the coordinator's loop. Patterns have RE2's syntax, as in Kafka, so that matching takes time in proportion to
the name; but a pattern may need a millisecond for a name, and there may be tens of thousands of names. So a new pattern
is matched in slices of the loop before the heartbeat that brings it is executed (`resolve`), and patterns are matched
with new topics in slices, too: a group learns of these topics when that is done.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from odradek.groups.environment import Topics

log = logging.getLogger("odradek.groups")

SLICE_S = 0.002
MOST_COMPILED_BYTES = 1 << 20
"""Of a compiled pattern, and of what matching it needs."""
KEPT = 100
"""Patterns that are kept although no member has them (any more)."""

Slices = Callable[[Callable[[], bool]], None]
"""As `odradek.processes.slices.LoopSlices`."""


class Pattern:
    """A pattern and the topics that it matches.

    :ivar matched: names; None until all topics that there were have been tried.
    :ivar todo: names that are still to be tried.
    :ivar found: of these, those that match.
    :ivar waiting: called when nothing is left to be tried.
    """

    def __init__(self, expression: Any, names: Iterable[str]) -> None:
        self.expression = expression
        self.matched: frozenset[str] | None = None
        self.todo = deque(names)
        self.found: set[str] = set()
        self.waiting: list[Callable[[], None]] = []
        self.under_way = False

    def try_some(self, seconds: float | None) -> None:
        """Try names for so long, at least one; all of them if None."""
        until = None if seconds is None else time.monotonic() + seconds
        while self.todo:
            name = self.todo.popleft()
            if self.expression.fullmatch(name):
                self.found.add(name)
            if until is not None and time.monotonic() >= until:
                return


class TopicPatterns:
    """:param slices: (step): calls `step()` in later turns of the loop until it returns False; None: matching is done at once.
    :ivar version: another one whenever a pattern matches other topics than before.
    :ivar live: the patterns that members have; to be set by their owner.
    """

    def __init__(self, topics: Topics, slices: Slices | None = None) -> None:
        self._topics = topics
        self._slices = slices
        self._patterns: dict[str, Pattern] = {}
        self._names: frozenset[str] = frozenset()
        self._seen: int | None = None
        self._most = KEPT
        self.version = 0
        self.live: Callable[[], set[str]] = lambda: set(self._patterns)

    def __len__(self) -> int:
        return len(self._patterns)

    def names(self) -> frozenset[str]:
        """Names of the topics there are; the same object until they change."""
        self.follow()
        return self._names

    def matches(self, pattern: str) -> frozenset[str]:
        """Names of the topics that a pattern matches, as far as they were tried; an unresolved pattern is resolved now."""
        self.follow()
        known = self._patterns.get(pattern) or self._add(pattern)
        if known.matched is None or (known.todo and self._slices is None):
            known.try_some(None)
            self._finish(known)
        assert known.matched is not None
        return known.matched

    def resolved(self, pattern: str) -> bool:
        """Whether `matches` finds what it needs: `resolve` was called, and is done."""
        known = self._patterns.get(pattern)
        return known is not None and known.matched is not None

    def resolve(self, pattern: str, then: Callable[[], None]) -> None:
        """Have a pattern matched with all topics; `then` is called once that is done, perhaps at once. Raises ValueError."""
        self.follow()
        known = self._patterns.get(pattern) or self._add(pattern)
        if known.matched is not None:
            then()
            return
        known.waiting.append(then)
        self._go_on(known)

    def follow(self) -> None:
        """Take over which topics there are now."""
        version = self._topics.version
        if version == self._seen:
            return
        self._seen = version
        before, now = self._names, frozenset(self._topics.names())
        if before == now:
            return
        self._names = now
        added, gone = self._names - before, before - self._names
        self._forget_unused()
        for known in self._patterns.values():
            if known.matched is not None and not gone.isdisjoint(known.matched):
                known.matched -= gone
                self.version += 1
            if added:
                known.todo.extend(added)
                self._go_on(known)

    def _add(self, pattern: str) -> Pattern:
        if len(self._patterns) >= self._most:
            self._forget_unused()
        known = self._patterns[pattern] = Pattern(compiled(pattern), self._names)
        return known

    def _forget_unused(self) -> None:
        if not self._patterns:
            return
        live = self.live()
        self._patterns = {
            pattern: known for pattern, known in self._patterns.items() if pattern in live or known.waiting
        }
        self._most = 2 * len(self._patterns) + KEPT

    def _go_on(self, known: Pattern) -> None:
        if self._slices is None:
            known.try_some(None)
            self._finish(known)
        elif not known.under_way:
            known.under_way = True
            self._slices(lambda: self._step(known))

    def _step(self, known: Pattern) -> bool:
        known.try_some(SLICE_S)
        if known.todo:
            return True
        known.under_way = False
        self._finish(known)
        return False

    def _finish(self, known: Pattern) -> None:
        """All names were tried."""
        matched = (known.matched or frozenset()) | (known.found & self._names)
        known.found = set()
        if matched != known.matched:
            known.matched = next((one.matched for one in self._patterns.values() if one.matched == matched), matched)
            self.version += 1
        waiting, known.waiting = known.waiting, []
        for then in waiting:
            then()


def compiled(pattern: str) -> Any:
    """A pattern, compiled. Raises ValueError."""
    import re2  # not before somebody subscribes by a pattern: the broker starts without it

    options = re2.Options()
    options.max_mem = MOST_COMPILED_BYTES
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        why = error.args[0] if error.args else error
        raise ValueError(why.decode(errors="replace") if isinstance(why, bytes) else str(why)) from error
