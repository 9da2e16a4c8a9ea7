"""Responses over lines of any speed: they may take as long as they go on arriving."""

import socket
import struct
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.clients import fetch_deadline
from odradek.clients.errors import ResponseTooLargeError, UnreachableError
from odradek.clients.fetch_deadline import LEAST_PROGRESS_BYTES, FetchDeadline
from odradek.clients.wire import Connection
from odradek.protocol.schemas import metadata
from tests.mirror.test_lying_source import _metadata, lying_broker

TIMEOUT_S = 30.0


class Line:
    """A connection on which the bytes of one response arrive at a constant rate."""

    buffered = False

    def __init__(self, bytes_s: float) -> None:
        self.now = 1000.0
        self._bytes_s = bytes_s
        self._quiet, self._other = socket.socketpair()
        self.fileno = self._quiet.fileno

    @property
    def arrived_bytes(self) -> int:
        return int((self.now - 1000.0) * self._bytes_s)

    def close(self) -> None:
        self._quiet.close()
        self._other.close()


@pytest.mark.parametrize(
    ("bytes_s", "arrives"), [(100, False), (500, False), (600, True), (32_000, True), (1_000_000, True)]
)
def test_a_response_of_any_size_arrives_over_a_line_that_is_not_too_slow(
    monkeypatch: pytest.MonkeyPatch, bytes_s: float, arrives: bool
) -> None:
    line = Line(bytes_s)
    monkeypatch.setattr(fetch_deadline, "time", SimpleNamespace(monotonic=lambda: line.now))
    deadline = FetchDeadline(cast(Connection, line), 0.0, TIMEOUT_S)
    while line.arrived_bytes < (1 << 20) and not deadline.missed():
        line.now += 0.5
    assert (line.arrived_bytes >= 1 << 20) == arrives
    assert arrives or line.now == 1000.0 + TIMEOUT_S, "a leader that is too slow is left after the first timeout"
    line.close()


def test_a_line_that_becomes_quiet_is_left_after_one_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    line, now = Line(0), 0.0
    line.__class__ = type("Quiet", (Line,), {"arrived_bytes": 5 * LEAST_PROGRESS_BYTES})
    monkeypatch.setattr(fetch_deadline, "time", SimpleNamespace(monotonic=lambda: now))
    deadline = FetchDeadline(cast(Connection, line), 0.5, TIMEOUT_S)
    now = 30.5
    assert not deadline.missed() and deadline.at == 60.5
    now = 60.5
    assert deadline.missed()
    line.close()


# -- what has arrived, without waiting ------------------------------------------------------------------------------------


class Parts:
    """A broker's end of a connection that sends what a test says."""

    def __init__(self, connection: Connection, ours: socket.socket) -> None:
        self.connection, self._ours = connection, ours
        self._number = connection._protocol._correlation_id

    def send(self, data: bytes) -> None:
        self._ours.sendall(data)

    def request(self) -> bytes:
        """Send a request. Returns its response."""
        self._number += 1
        self.connection.send(metadata.SCHEMA, metadata.Request(), version=metadata.SCHEMA.max_version)
        return _metadata(self._number)


@pytest.fixture(params=[False, True], ids=["single", "streams"])
def parts(request: Any) -> Iterator[Parts]:
    with lying_broker() as connection:
        connection.streams = request.param
        ours, theirs = socket.socketpair()
        connection._socket.close()
        connection._socket = ours
        with theirs:
            yield Parts(connection, theirs)


def test_a_response_that_arrives_byte_by_byte_is_taken_without_waiting(parts: Parts) -> None:
    for _ in range(2):
        response = parts.request()
        for number, byte in enumerate(response, 1):
            assert not parts.connection.advance()
            parts.send(bytes((byte,)))
            assert parts.connection.advance() == (number == len(response))
            assert parts.connection.arrived_bytes == max(0, number - 4)
        assert parts.connection.receive().brokers == []
        assert parts.connection.arrived_bytes == 0


def test_responses_that_arrive_at_once_are_taken_one_by_one(parts: Parts) -> None:
    both = parts.request() + parts.request()
    parts.send(both[:-3])
    assert parts.connection.advance() and parts.connection.receive().brokers == []
    assert not parts.connection.advance()
    parts.send(both[-3:])
    assert parts.connection.receive().brokers == [], "it waits for what is missing"


def test_a_large_response_is_held_until_there_is_room(parts: Parts) -> None:
    response = parts.request()
    size = len(response) - 4
    parts.send(response)
    assert not parts.connection.advance(size - 1)
    assert (parts.connection.held_bytes, parts.connection.begun_bytes) == (size, 0)
    assert parts.connection.advance(size)
    assert (parts.connection.held_bytes, parts.connection.begun_bytes) == (0, size)
    assert parts.connection.receive().brokers == []


def test_a_response_that_is_too_large_or_ends_early_closes_the_connection(parts: Parts) -> None:
    parts.connection.most_response_bytes = 1000
    parts.request()
    parts.send(struct.pack(">i", 1001))
    with pytest.raises(ResponseTooLargeError, match="with 1001 bytes; this client takes at most 1000"):
        parts.connection.advance()
    assert parts.connection.closed


def test_a_connection_that_ends_within_a_response_is_lost(parts: Parts) -> None:
    parts.send(parts.request()[:10])
    assert not parts.connection.advance()
    parts._ours.close()
    with pytest.raises(UnreachableError, match="lost the connection"):
        parts.connection.advance()
    assert parts.connection.closed
