"""A Python class of the operator that deletes segments besides retention by time and size (docs/policies.md).

Runs in the cleaner, in a thread of its own, which asks the class about one log after the other. The cleaner's own thread hands
over the logs and takes the answers, and never waits: a class that is slow, raises or hangs delays only what it would delete
itself. It cannot delete what must stay: an answer is a number of the oldest segments, cut down to closed segments below the
high watermark, and is carried out by the removal of retention, which checks that under the slot's lock.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from odradek.config.broker_config import BrokerConfig
from odradek.config.plugins import make_plugin

log = logging.getLogger("odradek.cleaner.retention")

KEY = "odradek.segment.deletion.policy.class.name"
PATIENCE_S = 30.0
MOST_STUCK = 3
"""So many threads may be stuck in the class at once; with more the class is not asked any more."""


class SegmentOfLog(Protocol):
    """A segment as the class sees it. `size` and `largest_timestamp_ms` read the disk when they are first asked for.

    `base_offset`: of its first record; `end_offset`: of the first record behind it. `size`: bytes of its log file.
    `largest_timestamp_ms`: of its records, or when the file was last written where they have none. `is_active`: whether it
    is the one that is written to, which is never deleted by the class.
    """

    @property
    def base_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def largest_timestamp_ms(self) -> int: ...
    @property
    def is_active(self) -> bool: ...


class LogToJudge(NamedTuple):
    """A log with cleanup.policy=delete. :param segments: all of it, the oldest first.

    :param settings: of its topic: those that concern retention, by their names, as numbers, booleans or a tuple of words.
    """

    topic: str
    partition: int
    segments: Sequence[SegmentOfLog]
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    settings: Mapping[str, Any]


class DeletionPolicy(Protocol):
    """What the class has. It is made without arguments; `configure` need not be there."""

    def configure(self, configs: Mapping[str, str]) -> None:
        """Called once, with the broker's settings that somebody set, passwords left out."""

    def deletable(self, log: LogToJudge) -> int:
        """How many of the oldest segments may be deleted; 0 for none."""


class Question(NamedTuple):
    """A log to ask about. :param most: how many of its segments may be deleted at the most."""

    slot: int
    incarnation: int
    log: LogToJudge
    most: int

    @property
    def name(self) -> str:
        return f"{self.log.topic}-{self.log.partition}"


class Answer(NamedTuple):
    """The class deletes the segments of a log before that at `keep`."""

    slot: int
    incarnation: int
    keep: int


def load_policy(config: BrokerConfig) -> DeletionPolicy | None:
    """An object of the class that the configuration names; None if it names none. Raises ConfigError."""
    policy: DeletionPolicy | None = make_plugin(config, KEY, "deletable", "log")
    return policy


class PolicyThread:
    """Asks the class. All methods are called by the cleaner's own thread; `_lock` protects what the two share.

    :param clock: seconds, monotonic. :param patience_s: how long one call may take before the class is asked about other logs
        in another thread.
    """

    def __init__(
        self, policy: DeletionPolicy, clock: Callable[[], float] = time.monotonic, patience_s: float = PATIENCE_S
    ) -> None:
        self._policy = policy
        self._name = f"{type(policy).__module__}:{type(policy).__qualname__}"
        self._clock = clock
        self._patience_s = patience_s
        self._lock = threading.Condition()
        self._waiting: deque[Question] = deque()
        self._answers: list[Answer] = []
        self._asked: dict[int, tuple[Question, float]] = {}  # by the number of the thread: what it asks, and since when
        self._stuck: dict[int, Question] = {}
        self._threads = 0
        self._current = -1
        self._failures = 0
        self._tells_suspended = True

    def ask(self, questions: Sequence[Question]) -> None:
        """Ask about these logs, instead of those of an earlier call that still wait."""
        with self._lock:
            if self._failures > 1:
                log.error("the deletion policy %s failed for %d more logs", self._name, self._failures - 1)
            self._failures = 0
            stuck = {(question.slot, question.incarnation) for question in self._stuck.values()}
            self._waiting = deque(one for one in questions if (one.slot, one.incarnation) not in stuck)
            self._lock.notify_all()
        self._start_thread()

    def answers(self) -> list[Answer]:
        """The answers since the last call that delete something."""
        with self._lock:
            found, self._answers = self._answers, []
        return found

    def look(self) -> None:
        """Give up a call that takes too long: its answer will not count, and another thread goes on with the other logs."""
        with self._lock:
            asked = self._asked.get(self._current)
            if asked is None or self._clock() - asked[1] < self._patience_s:
                return
            question = asked[0]
            self._stuck[self._current] = question
            self._current = -1
            log.warning(
                "the deletion policy %s has not returned for %s within %g s: it deletes nothing there until this call returns",
                self._name, question.name, self._patience_s,
            )  # fmt: skip
        self._start_thread()

    def _start_thread(self) -> None:
        with self._lock:
            if self._current >= 0 or not self._waiting:
                return
            if len(self._stuck) >= MOST_STUCK:
                if self._tells_suspended:
                    self._tells_suspended = False
                    log.error(
                        "%d calls of the deletion policy %s hang: the broker does not call it until one of them returns",
                        len(self._stuck), self._name,
                    )  # fmt: skip
                return
            self._current = number = self._threads
            self._threads += 1
        threading.Thread(target=self._run, args=(number,), name=f"deletion-policy-{number}", daemon=True).start()

    def _run(self, number: int) -> None:
        """Ask about what waits, until this thread is given up."""
        while True:
            with self._lock:
                while not self._waiting and self._current == number:
                    self._lock.wait()
                if self._current != number:
                    return
                question = self._waiting.popleft()
                self._asked[number] = (question, self._clock())
            keep = self._judge(question)
            with self._lock:
                del self._asked[number]
                if self._stuck.pop(number, None) is not None:
                    self._tells_suspended = True
                    log.info(
                        "the delayed call of the deletion policy %s for %s has returned", self._name, question.name
                    )
                elif keep >= 0:
                    self._answers.append(Answer(question.slot, question.incarnation, keep))

    def _judge(self, question: Question) -> int:
        """The base offset of the first segment that stays, or -1: nothing is deleted."""
        try:
            count = self._policy.deletable(question.log)
            if isinstance(count, bool) or not isinstance(count, int) or count < 0:
                raise TypeError(f"deletable() returned {count!r} instead of a number of segments")
            count = min(count, question.most)
            return question.log.segments[count].base_offset if count else -1
        except FileNotFoundError:
            return -1  # a segment was removed while the class looked at it: the next pass asks again
        except Exception:  # it is the operator's code
            with self._lock:
                self._failures += 1
                is_first = self._failures == 1
            if is_first:
                log.exception(
                    "the deletion policy %s failed for %s: it deletes nothing there", self._name, question.name
                )
            return -1
