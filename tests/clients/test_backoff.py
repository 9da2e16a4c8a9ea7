"""The waits between the attempts of a loop."""

import pytest

from odradek.clients import backoff
from odradek.clients.backoff import Backoff


class Clock:
    """A clock that only sleeps move."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(backoff, "time", made)
    return made


def test_waits_become_longer_and_the_last_one_ends_at_the_deadline(clock: Clock) -> None:
    waits = Backoff(1, 4, 14)
    while waits.wait():
        pass
    assert clock.slept == [1, 2, 4, 4, 3]
    assert waits.left_s == 0


def test_without_a_deadline_the_waits_do_not_end(clock: Clock) -> None:
    waits = Backoff(0.5, 2)
    assert all(waits.wait() for _ in range(5))
    assert clock.slept == [0.5, 1, 2, 2, 2]


def test_after_the_deadline_nothing_is_waited_for(clock: Clock) -> None:
    waits = Backoff(1, 1, 0)
    assert not waits.wait()
    assert clock.slept == []
