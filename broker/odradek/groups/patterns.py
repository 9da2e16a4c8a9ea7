"""Matches topics with the patterns that members of consumer groups (KIP-848) subscribe to; each pattern once for all groups.

Used in the coordinator's loop. Patterns have RE2's syntax, as in Kafka, so that matching takes time proportional to the
name. But a pattern may need a millisecond per name, and there may be tens of thousands of names. A new pattern is therefore
compiled and matched in time slices of the loop before its heartbeat is handled (`resolve`), and new topics are matched in
slices, too: a group learns of these topics afterwards.

RE2's time to compile a pattern is limited by its length, by its memory, by the number of its counted repetitions and by the
number of its Unicode classes, each of which has hundreds of ranges: see `compiled`.
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from odradek.groups.environment import Topics

log = logging.getLogger("odradek.groups")

_UNICODE_CLASS = re.compile(r"\\[pP]")
_refused: dict[bytes, str] = {}
"""Errors of RE2 by the hash of the pattern, oldest first."""
SLICE_S = 0.002
MOST_COMPILED_BYTES = 1 << 16
"""Memory limit of a compiled pattern and its matching."""
LONGEST = 1000
"""The largest number of characters of a pattern, enough for the names of dozens of topics."""
MOST_UNICODE_CLASSES = 8
MOST_REPETITIONS = 30
"""The largest number of counted repetitions (``{n}``). RE2 parses all of them before it refuses a pattern as too large."""
REFUSED_KEPT = 1000
"""Number of patterns that RE2 has refused and whose error is kept."""
KEPT = 100
"""Number of unused patterns that are kept."""

Slices = Callable[[Callable[[], bool]], None]
"""See `odradek.processes.slices.LoopSlices`."""


class Pattern:
    """A pattern and the topics that it matches.

    :ivar expression: the compiled pattern; None: it is compiled in the first step.
    :ivar matched: names of matching topics; None until all topics were tried once.
    :ivar todo: names that are not tried yet.
    :ivar new_matches: matching names of the current run.
    :ivar waiting: callbacks for the end of the run.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.expression: Any = None
        self.matched: frozenset[str] | None = None
        self.todo = deque(names)
        self.new_matches: set[str] = set()
        self.waiting: list[Callable[[], None]] = []
        self.under_way = False

    def try_some(self, seconds: float | None) -> None:
        """Try names for `seconds`, at least one name; all names if None."""
        until = None if seconds is None else time.monotonic() + seconds
        while self.todo:
            name = self.todo.popleft()
            if self.expression.fullmatch(name):
                self.new_matches.add(name)
            if until is not None and time.monotonic() >= until:
                return


class TopicPatterns:
    """The patterns of all groups.

    :param live: returns the patterns that members have; others may be dropped. None: no pattern is dropped.
    :param slices: (step): calls `step()` in later turns of the loop until it returns False; None: match at once.
    :ivar version: changes whenever the matches of a pattern change.
    """

    def __init__(
        self, topics: Topics, slices: Slices | None = None, live: Callable[[], set[str]] | None = None
    ) -> None:
        self._topics = topics
        self._slices = slices
        self._patterns: dict[str, Pattern] = {}
        self._names: frozenset[str] = frozenset()
        self._seen: int | None = None
        self._most = KEPT
        self.version = 0
        self._live = live

    def __len__(self) -> int:
        return len(self._patterns)

    def names(self) -> frozenset[str]:
        """Names of the existing topics; the same object until they change."""
        self.follow()
        return self._names

    def matches(self, pattern: str) -> frozenset[str]:
        """Names of the topics tried so far that match a pattern; an unresolved pattern is resolved at once."""
        self.follow()
        known = self._patterns.get(pattern) or self._add(pattern)
        if known.matched is None or (known.todo and self._slices is None):
            try:
                self._compile(pattern, known, accepted=True)
            except ValueError as error:  # of a member that another broker or an older version has accepted
                log.error(
                    "pattern %.300r of a stored member matches no topic, because it is invalid: %s", pattern, error
                )
                known.todo.clear()
            known.try_some(None)
            self._finish(known)
        assert known.matched is not None
        return known.matched

    def resolved(self, pattern: str) -> bool:
        """Whether `resolve` has completed for the pattern, so that `matches` is fast."""
        known = self._patterns.get(pattern)
        return known is not None and known.matched is not None

    def resolve(self, pattern: str, then: Callable[[], None]) -> None:
        """Match a pattern with all topics, then call `then`, perhaps at once. An invalid pattern is not resolved, but `then` is
        called; see `error_of`."""
        self.follow()
        known = self._patterns.get(pattern) or self._add(pattern)
        if known.matched is not None:
            then()
            return
        known.waiting.append(then)
        self._go_on(pattern, known)

    def error_of(self, pattern: str) -> str | None:
        """Why a pattern is invalid; None if it is valid."""
        if pattern in self._patterns and self._patterns[pattern].expression is not None:
            return None
        try:
            compiled(pattern)
        except ValueError as error:
            return str(error)
        return None

    def follow(self) -> None:
        """Update the set of existing topics."""
        version = self._topics.version
        if version == self._seen:
            return
        self._seen = version
        before, now = self._names, frozenset(self._topics.names())
        if before == now:
            return
        self._names = now
        added, deleted = self._names - before, before - self._names
        self._forget_unused()
        for pattern, known in list(self._patterns.items()):
            if known.matched is not None and not deleted.isdisjoint(known.matched):
                known.matched -= deleted
                self.version += 1
            if added:
                known.todo.extend(added)
                self._go_on(pattern, known)

    def _add(self, pattern: str) -> Pattern:
        if len(self._patterns) >= self._most:
            self._forget_unused()
        known = self._patterns[pattern] = Pattern(self._names)
        return known

    def _forget_unused(self) -> None:
        if not self._patterns:
            return
        live = self._patterns.keys() if self._live is None else self._live()
        self._patterns = {
            pattern: known for pattern, known in self._patterns.items() if pattern in live or known.waiting
        }
        self._most = 2 * len(self._patterns) + KEPT

    def _go_on(self, pattern: str, known: Pattern) -> None:
        if self._slices is None:
            while self._step(pattern, known, None):
                pass
        elif not known.under_way:
            known.under_way = True
            self._slices(lambda: self._step(pattern, known, SLICE_S))

    def _step(self, pattern: str, known: Pattern, seconds: float | None) -> bool:
        """Compile the pattern, or try some names. Returns whether there is more to do."""
        if known.expression is None:
            try:
                self._compile(pattern, known)
            except ValueError:
                self._drop(pattern, known)
                return False
            return True
        known.try_some(seconds)
        if known.todo:
            return True
        known.under_way = False
        self._finish(known)
        return False

    def _compile(self, pattern: str, known: Pattern, accepted: bool = False) -> None:
        if known.expression is None:
            known.expression = compiled(pattern, accepted)

    def _drop(self, pattern: str, known: Pattern) -> None:
        """Forget an invalid pattern, unless a stored member has it, and call the waiting callbacks."""
        known.under_way = False
        known.todo.clear()
        if known.matched is None and self._patterns.get(pattern) is known:
            del self._patterns[pattern]
        waiting, known.waiting = known.waiting, []
        for then in waiting:
            then()

    def _finish(self, known: Pattern) -> None:
        """Complete a run: publish the matches and call the waiting callbacks."""
        matched = (known.matched or frozenset()) | (known.new_matches & self._names)
        known.new_matches = set()
        if matched != known.matched:
            known.matched = next(
                (other.matched for other in self._patterns.values() if other.matched == matched), matched
            )
            self.version += 1
        waiting, known.waiting = known.waiting, []
        for then in waiting:
            then()


def compiled(pattern: str, accepted: bool = False) -> Any:
    """Compile a pattern, in a few milliseconds at most. Raises ValueError.

    An error of RE2 is kept for the pattern, so that a client that repeats a pattern which is too large costs nothing.

    :param accepted: another broker or an older version has accepted the pattern of a stored member: only RE2's memory limits
        it. To refuse it now would take the member's topics away without an error for it.
    """
    if not accepted:
        _refuse_expensive(pattern)
    digest = hashlib.blake2b(pattern.encode(errors="surrogatepass"), digest_size=16).digest()
    known = _refused.get(digest)
    if known is not None:
        raise ValueError(known)
    import re2  # imported with the first pattern: keeps the start of the broker fast

    options = re2.Options()
    options.max_mem = MOST_COMPILED_BYTES
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        why = error.args[0] if error.args else error
        text = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
        if len(_refused) >= REFUSED_KEPT:
            del _refused[next(iter(_refused))]
        _refused[digest] = text
        raise ValueError(text) from error


def _refuse_expensive(pattern: str) -> None:
    if len(pattern) > LONGEST:
        raise ValueError(f"it has {len(pattern)} characters; a pattern can have at most {LONGEST}")
    for count, what, most in (
        (len(_UNICODE_CLASS.findall(pattern)), "Unicode classes (\\p and \\P)", MOST_UNICODE_CLASSES),
        (pattern.count("{"), "counted repetitions ({})", MOST_REPETITIONS),
    ):
        if count > most:
            raise ValueError(f"it has {count} {what}; a pattern can have at most {most}")
