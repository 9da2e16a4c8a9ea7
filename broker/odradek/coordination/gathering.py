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


def gather_in_steps(
    questions: Sequence[Question],
    ask: Callable[[Question, Callable[[Answer], None]], None],
    then: Callable[[list[Answer]], None],
) -> Iterator[None]:
    """Like `gather`, but yields after each question. If the caller stops before the last one, `then` is never called."""
    answers: list[Any] = [None] * len(questions)
    left = len(questions)

    def answered(number: int, answer: Answer) -> None:
        nonlocal left
        answers[number] = answer
        left -= 1
        if not left:
            then(answers)

    if not questions:
        then([])
    for number, question in enumerate(questions):
        ask(question, partial(answered, number))
        yield


def gathered(
    questions: Sequence[Question],
    ask: Callable[[Question, Callable[[Any], None]], None],
    pace: Pace,
) -> Generator[Any, None, list[Any]]:
    """As `gather`, for a request that works in steps: the answers, in the order of the questions."""
    later = Later()
    for _ in gather_in_steps(questions, ask, lambda answers: later.set(answers)):
        if pace.over():
            yield
    if not later.done:
        yield later
    answers: list[Any] = later.value
    return answers
