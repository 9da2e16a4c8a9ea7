"""Collects the answers to several questions. A callback receives each answer."""

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from odradek.stepwise import Later, Pace

Question = TypeVar("Question")
Answer = TypeVar("Answer")


def gather(
    questions: Sequence[Question],
    ask: Callable[[Question, Callable[[Answer], None]], None],
    then: Callable[[list[Answer]], None],
) -> None:
    """Ask all questions. When all are answered, call `then` once, with the answers in the order of the questions.

    :param ask: called with each question and with a callback, which it must call exactly once: at once, or later in the same
        thread. If `ask` raises, the exception reaches the caller, and `then` is never called.
    """
    if len(questions) == 1:  # the most frequent case
        ask(questions[0], lambda answer: then([answer]))
        return
    for _ in gather_in_steps(questions, ask, then):
        pass


class Gathering:
    """The answers to a known number of questions, each of which comes once.

    :param then: called once, with all answers in the order of the questions.
    """

    def __init__(self, number: int, then: Callable[[list[Any]], None]) -> None:
        self._answers: list[Any] = [None] * number
        self._left = number
        self._then = then
        if not number:
            then([])

    def take(self, number: int, answer: Any) -> None:
        """An answer. :param number: that of its question, from 0 on."""
        self._answers[number] = answer
        self._left -= 1
        if not self._left:
            self._then(self._answers)


def gather_in_steps(
    questions: Sequence[Question],
    ask: Callable[[Question, Callable[[Answer], None]], None],
    then: Callable[[list[Answer]], None],
) -> Iterator[None]:
    """Like `gather`, but yields after each question. If the caller stops before the last one, `then` is never called."""
    gathering = Gathering(len(questions), then)
    for number, question in enumerate(questions):
        ask(question, partial(gathering.take, number))
        yield


def gathered(
    questions: Sequence[Question],
    ask: Callable[[Question, Callable[[Any], None]], None],
    pace: Pace,
) -> Generator[Any, None, list[Any]]:
    """As `gather`, for a request that works in steps: the answers, in the order of the questions.

    :param pace: each question counts as one.
    """
    later = Later()
    for _ in gather_in_steps(questions, ask, later.set):
        if pace.over():
            yield
    if not later.done:
        yield later
    answers: list[Any] = later.value
    return answers
