"""The deletion policy: a Python class of the operator that deletes segments, in addition to retention by time and size
(docs/operate/policies.md).

Runs in the cleaner, in a separate thread, which calls the class for one log after the other. The cleaner's main thread
submits the logs and collects the answers, and never waits: a class that is slow, raises or hangs delays only its own
deletions. It cannot delete records that must stay: its answer is a number of the oldest segments, limited to closed segments
below the high watermark, and retention carries it out, which checks this again under the slot's lock.
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
MAX_STUCK = 3
"""The number of threads that may hang in the class; when it is reached, the class is not called until one of them returns."""


class SegmentOfLog(Protocol):
    """A segment as the class sees it. `size` and `largest_timestamp_ms` read the disk at their first use.

    `base_offset`: the offset of its first record. `end_offset`: the offset after its last record. `size`: bytes of its log
    file. `largest_timestamp_ms`: the largest timestamp of its records, or the file's modification time if they have none.
    `is_active`: whether it is the segment that is written to; the class cannot delete it.
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


class LogView(NamedTuple):
    """A log with cleanup.policy=delete.

    :param segments: all segments, oldest first.
    :param settings: the topic's settings of retention, by name, as numbers, booleans or a tuple of words.
    """

    topic: str
    partition: int
    segments: Sequence[SegmentOfLog]
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    settings: Mapping[str, Any]


class DeletionPolicy(Protocol):
    """The interface of the class. It is instantiated without arguments; `configure` is optional."""

    def configure(self, configs: Mapping[str, str]) -> None:
        """Called once, with the broker's settings that were set explicitly, without passwords."""

    def deletable(self, log: LogView) -> int:
        """Returns how many of the oldest segments the broker deletes; 0 for none."""


class Question(NamedTuple):
    """A log for which the class is called. :param most: the largest number of its segments that may be deleted."""

    slot: int
    incarnation: int
    log: LogView
    most: int

    @property
    def name(self) -> str:
        return f"{self.log.topic}-{self.log.partition}"


class Answer(NamedTuple):
    """The decision of the class: delete the segments of a log before the segment with base offset `keep`."""

    slot: int
    incarnation: int
    keep: int


def load_policy(config: BrokerConfig) -> DeletionPolicy | None:
    """An instance of the configured class; None if no class is configured. Raises ConfigError."""
    policy: DeletionPolicy | None = make_plugin(config, KEY, "deletable", "log")
    return policy


class PolicyThread:
    """Calls the class in a thread. All public methods are called by the cleaner's main thread; `_lock` protects the shared
    state.

    :param clock: monotonic time in seconds.
    :param patience_s: how long one call may take; after that, another thread calls the class for the other logs.
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
        self._running: dict[int, tuple[Question, float]] = {}  # by number of the thread: its question, and since when
        self._stuck: dict[int, Question] = {}
        self._threads = 0
        self._current = -1
        self._failed: dict[str, str] = {}  # the reason by log, since the last `ask`
        self._failed_before: dict[str, str] = {}  # between the last two calls of `ask`
        self._log_suspension = True

    def ask(self, questions: Sequence[Question]) -> None:
        """Submit these logs. They replace the waiting logs of an earlier call."""
        with self._lock:
            if len(self._failed) > 1:
                log.error("the deletion policy %s failed for %d more logs", self._name, len(self._failed) - 1)
            self._failed_before, self._failed = self._failed, {}
            stuck = {(question.slot, question.incarnation) for question in self._stuck.values()}
            self._waiting = deque(
                question for question in questions if (question.slot, question.incarnation) not in stuck
            )
            self._lock.notify_all()
        self._start_thread()

    def answers(self) -> list[Answer]:
        """The answers since the last call that delete segments."""
        with self._lock:
            answers, self._answers = self._answers, []
        return answers

    def failures(self) -> dict[str, str]:
        """For which logs the class failed or does not return, and why."""
        with self._lock:
            late = (
                f"the deletion policy {self._name} has not returned: it deletes nothing there until this call returns"
            )
            return self._failed_before | self._failed | {question.name: late for question in self._stuck.values()}

    def look(self) -> None:
        """Abandon a call that takes too long: its answer is ignored, and another thread continues with the other logs."""
        with self._lock:
            running = self._running.get(self._current)
            if running is None or self._clock() - running[1] < self._patience_s:
                return
            question = running[0]
            self._stuck[self._current] = question
            self._current = -1
            log.warning(
                "the deletion policy %s has not returned for %s within %g s: it deletes nothing there until this call returns",
                self._name, question.name, self._patience_s,
            )  # fmt: skip
        self._start_thread()

    def close(self) -> None:
        """End the thread that waits for questions. A thread that calls the class ends after its call."""
        with self._lock:
            self._waiting.clear()
            self._current = -1
            self._lock.notify_all()

    def _start_thread(self) -> None:
        with self._lock:
            if self._current >= 0 or not self._waiting:
                return
            if len(self._stuck) >= MAX_STUCK:
                if self._log_suspension:
                    self._log_suspension = False
                    log.error(
                        "%d calls of the deletion policy %s hang: the broker does not call it until one of them returns",
                        len(self._stuck), self._name,
                    )  # fmt: skip
                return
            self._current = number = self._threads
            self._threads += 1
        threading.Thread(target=self._run, args=(number,), name=f"deletion-policy-{number}", daemon=True).start()

    def _run(self, number: int) -> None:
        """Call the class for the waiting logs, until this thread is abandoned."""
        while True:
            with self._lock:
                while not self._waiting and self._current == number:
                    self._lock.wait()
                if self._current != number:
                    return
                question = self._waiting.popleft()
                self._running[number] = (question, self._clock())
            keep = self._judge(question)
            with self._lock:
                del self._running[number]
                if self._stuck.pop(number, None) is not None:
                    self._log_suspension = True
                    log.info(
                        "the delayed call of the deletion policy %s for %s has returned", self._name, question.name
                    )
                elif keep >= 0:
                    self._answers.append(Answer(question.slot, question.incarnation, keep))

    def _judge(self, question: Question) -> int:
        """The base offset of the first segment that stays; -1 if nothing is deleted."""
        try:
            count = self._policy.deletable(question.log)
            if isinstance(count, bool) or not isinstance(count, int) or count < 0:
                raise TypeError(f"deletable() returned {count!r} instead of a number of segments")
            count = min(count, question.most)
            return question.log.segments[count].base_offset if count else -1
        except FileNotFoundError:
            return -1  # a segment was removed during the call: the next pass calls the class again
        except Exception as error:  # the class is the operator's code
            with self._lock:
                is_first = not self._failed
                self._failed[question.name] = f"the deletion policy {self._name} failed: {error!r}"
            if is_first:
                log.exception(
                    "the deletion policy %s failed for %s: it deletes nothing there", self._name, question.name
                )
            return -1
