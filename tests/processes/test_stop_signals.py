"""The number of stop requests that the supervisor counts."""

import signal
from collections.abc import Iterator

import pytest

from odradek.processes.event_loop import REPEATED_S, StopSignals


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def signals(clock: Clock) -> Iterator[StopSignals]:
    made = StopSignals(clock)
    yield made
    made.close()


def test_a_signal_to_the_process_and_to_its_group_is_one_request(signals: StopSignals) -> None:
    """As `timeout` sends it. A second request would kill the processes that are still stopping."""
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
    assert signals.count == 1


def test_the_same_signal_counts_again_after_a_moment(signals: StopSignals, clock: Clock) -> None:
    signal.raise_signal(signal.SIGINT)
    clock.now += REPEATED_S
    signal.raise_signal(signal.SIGINT)
    assert signals.count == 2


def test_another_signal_counts_at_once(signals: StopSignals) -> None:
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGINT)
    assert signals.count == 2
