"""The thread that keeps the session in ZooKeeper shows that it runs: in its waits, from the first connection on."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from odradek.metadata.zookeeper_connection import _Handler

OFTEN_S = 0.01
LONG_S = 60.0


class Beats:
    """Counts the beats. :ivar stop_at: the number of the beat that ends the waits of the handler."""

    def __init__(self) -> None:
        self.count = 0
        self.stop_at = -1
        self.handler: _Handler

    def __call__(self) -> float:
        self.count += 1
        if self.count == self.stop_at:
            self.handler.abort()
        return OFTEN_S


@pytest.fixture
def beats() -> Iterator[Beats]:
    made = Beats()
    made.handler = _Handler(None, 1.0, made)
    yield made
    made.handler.close()


def test_a_long_wait_contains_several_beats(beats: Beats) -> None:
    """The wait ends only by its tenth beat."""
    beats.handler.connected()
    beats.stop_at = 10
    left, right = socket.socketpair()
    with closing(left), closing(right), pytest.raises(OSError, match="closed"):
        beats.handler.select([left], [], [], LONG_S)
    assert beats.count == 10


def test_the_sleep_between_two_attempts_to_connect_contains_beats(beats: Beats) -> None:
    beats.handler.connected()
    beats.stop_at = 10
    beats.handler.sleep_func(LONG_S)
    assert beats.count == 10


def test_before_the_first_connection_there_is_no_beat(beats: Beats) -> None:
    """A successor must not vouch for a session that it has not resumed."""
    assert beats.handler.select([], [], [], 5 * OFTEN_S) == ([], [], [])
    beats.handler.sleep_func(5 * OFTEN_S)
    assert beats.count == 0


@pytest.mark.parametrize("timeout_s", [0, 5 * OFTEN_S, None])
def test_what_is_ready_ends_a_wait_at_once(beats: Beats, timeout_s: float | None) -> None:
    beats.handler.connected()
    left, right = socket.socketpair()
    with closing(left), closing(right):
        right.send(b"x")
        assert beats.handler.select([left], [], [], timeout_s) == ([left], [], [])
        assert beats.handler.select([], [left], [], timeout_s) == ([], [left], [])


def test_a_wait_does_not_end_before_its_time(beats: Beats) -> None:
    beats.handler.connected()
    began = time.monotonic()
    assert beats.handler.select([], [], [], 5 * OFTEN_S) == ([], [], [])
    assert time.monotonic() - began >= 5 * OFTEN_S


def test_a_handler_without_beats_waits_as_ever() -> None:
    handler = _Handler(None, 1.0, None)
    handler.connected()
    read, write = os.pipe()
    try:
        assert handler.select([read], [], [], OFTEN_S) == ([], [], [])
        os.write(write, b"x")
        assert handler.select([read], [], [], LONG_S) == ([read], [], [])
    finally:
        handler.close()
        os.close(read)
        os.close(write)
