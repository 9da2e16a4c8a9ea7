"""Answers to several questions are passed on together, once, in the order of the questions."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.coordination.gathering import gather


@given(st.permutations(range(5)), st.sets(st.integers(0, 4)))
def test_answers_come_once_in_the_order_of_the_questions(order: list[int], at_once: set[int]) -> None:
    callbacks: dict[int, Callable[[str], None]] = {}
    received: list[list[str]] = []

    def ask(question: int, then: Callable[[str], None]) -> None:
        if question in at_once:
            then(f"answer {question}")
        else:
            callbacks[question] = then

    gather(range(5), ask, received.append)
    for question in order:
        if question not in at_once:
            assert received == []
            callbacks[question](f"answer {question}")
    assert received == [[f"answer {question}" for question in range(5)]]


def test_no_question_is_answered_at_once() -> None:
    received: list[list[object]] = []
    gather([], lambda question, then: pytest.fail("nothing is asked"), received.append)
    assert received == [[]]
