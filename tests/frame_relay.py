"""A relay that reads Kafka's frames: a test can delay, drop or hold back single requests, or drop their responses.

As `tests.relay.Relay`, it forwards every connection to one port, and decides about each request by a rule. The
requests of a connection stay in order: those behind a delayed one wait, while other connections go on. So a request
can arrive at the server after later requests of the same client, which has given it up and sent it again on another
connection. A client that closes a connection does not take a delayed request back: the server receives it, and its
end of the connection stays open until it answers.
"""

from __future__ import annotations

import math
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from tests.threaded_server import LENGTH_BYTES, ThreadedServer, received_frame
from tests.waiting import PATIENCE_S

_HEADER = struct.Struct(">hhi")
HELD = math.inf


class Frame(NamedTuple):
    """A request on its way. ``connection``: connections are numbered in the order in which clients opened them."""

    connection: int
    api_key: int
    version: int
    correlation_id: int
    data: bytes  # with its length

    @property
    def body(self) -> bytes:
        """Everything behind the first three fields of the request header."""
        return self.data[LENGTH_BYTES + _HEADER.size :]


class Fate(NamedTuple):
    """What the relay does with a request.

    ``delay_s``: the time in seconds until it is forwarded; `HELD`: until `Held.release`. ``lost``: it is not
    forwarded. ``cut``: the connection is closed: instead of the answer, or if the request is lost, at once.
    ``answer_lost``: the answer is not forwarded.
    """

    delay_s: float = 0.0
    lost: bool = False
    answer_lost: bool = False
    cut: bool = False


FORWARD = Fate()
Rule = Callable[[Frame], Fate]


def forward_all(_: Frame) -> Fate:
    """The rule of a network without faults."""
    return FORWARD


@dataclass
class Held:
    """A request that is held back. ``answer``: the server's, with its length; empty if the server closed the
    connection.
    """

    frame: Frame
    answer: bytes = b""
    _released: threading.Event = field(default_factory=threading.Event)
    _answered: threading.Event = field(default_factory=threading.Event)

    def release(self) -> bytes:
        """Let the request go to the server, and wait until the server answers or closes the connection; the answer."""
        self._released.set()
        assert self._answered.wait(PATIENCE_S), "a request that was held back was not answered"
        return self.answer

    def end(self, answer: bytes = b"") -> None:
        """The server has answered, or closed the connection."""
        if not self._answered.is_set():
            self.answer = answer
            self._answered.set()


class FrameRelay:
    """Forwards every connection to ``127.0.0.1:server_port``; ``port`` is its own.

    ``rule`` decides about each request; a test may replace it at any time. ``server_port`` may be told later, too.
    ``silent``: nothing is forwarded in either direction, and connections are closed instead.
    """

    def __init__(self, server_port: int = 0, rule: Rule = forward_all) -> None:
        self.rule = rule
        self.server_port = server_port
        self.silent = False
        self._holds = True
        self._changed = threading.Condition()
        self._held: list[Held] = []
        self._requests: Counter[tuple[int, int]] = Counter()
        self._server = ThreadedServer(self._serve)
        self.port = self._server.port

    def __enter__(self) -> FrameRelay:
        return self

    def __exit__(self, *_: object) -> None:
        self.rule = forward_all
        with self._changed:
            self._holds = False
        self.release_all()
        self._server.close()

    def go_silent(self) -> None:
        """Send no responses to clients until `silent` is unset."""
        self.silent = True
        self.cut()

    def heal(self) -> None:
        """Forward everything from now on, and what is held back."""
        self.rule = forward_all
        self.release_all()

    def cut(self) -> None:
        """Close all connections of clients; new ones are forwarded. A request that is held back can still be
        released.
        """
        self._server.cut_clients()

    def wait_for_held(self, count: int = 1) -> list[Held]:
        """Wait until ``count`` requests are held back; all of them, the oldest first."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._held) >= count, PATIENCE_S), "nothing was held back"
            return list(self._held)

    def requests_of(self, api_key: int) -> Counter[int]:
        """How many requests of an API came from clients, by version."""
        with self._changed:
            return Counter({version: count for (key, version), count in self._requests.items() if key == api_key})

    def release_all(self) -> None:
        """Let everything that is held back go to the server, the oldest first."""
        with self._changed:
            held = list(self._held)
        for one in held:
            one._released.set()

    def _serve(self, client: socket.socket, number: int) -> None:
        connection = _Connection(number)
        there, back = partial(self._forward_requests, connection), partial(self._forward_answers, connection)
        self._server.relay(client, self.server_port, there, back)

    def _forward_requests(self, connection: _Connection, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := received_frame(client):
                api_key, version, correlation_id = _HEADER.unpack_from(data, LENGTH_BYTES)
                with self._changed:
                    self._requests[api_key, version] += 1
                frame = Frame(connection.number, api_key, version, correlation_id, data)
                fate = self.rule(frame)
                if fate.lost or self.silent:
                    if fate.cut or self.silent:
                        break
                    continue
                if fate.answer_lost or fate.cut:
                    connection.lost_answers[correlation_id] = fate.cut
                if fate.delay_s > 0:
                    self._wait(connection, frame, fate.delay_s)
                server.sendall(data)
        if connection.held is not None:
            connection.held._answered.wait(PATIENCE_S)

    def _wait(self, connection: _Connection, frame: Frame, delay_s: float) -> None:
        held = connection.held = Held(frame)
        if connection.answers_ended:
            held.end()
        with self._changed:
            if not self._holds:
                return
            self._held.append(held)
            self._changed.notify_all()
        held._released.wait(None if delay_s == HELD else delay_s)
        with self._changed:
            self._held.remove(held)

    def _forward_answers(self, connection: _Connection, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := received_frame(server):
                correlation_id = int.from_bytes(data[LENGTH_BYTES : 2 * LENGTH_BYTES], "big", signed=True)
                held = connection.held
                if held is not None and held.frame.correlation_id == correlation_id:
                    held.end(data)
                if self.silent:
                    break
                if (cut := connection.lost_answers.pop(correlation_id, None)) is None:
                    with suppress(OSError):  # the client may have gone, while a request is held back
                        client.sendall(data)
                elif cut:
                    break
        connection.answers_ended = True
        if connection.held is not None:
            connection.held.end()


@dataclass(eq=False)
class _Connection:
    number: int
    held: Held | None = None  # the newest request that was held back
    answers_ended: bool = False  # the server has closed its end
    lost_answers: dict[int, bool] = field(default_factory=dict)  # by correlation id: whether the connection is cut then
