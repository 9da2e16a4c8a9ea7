"""Accepts connections on the listening sockets while there is room for them. Runs in the supervisor, on its loop.

It connects the acceptor (`net/acceptor.py`), which does the work, with the event loop: it watches the listening sockets while
connections may be accepted, watches the workers' channels, and retries the hand-over of
sockets that wait for room in a channel.

Workers report each connection that they close. To read each report at once would wake the supervisor as often as new
connections do. Therefore a channel is not watched for a short time after it was read, unless connections wait for room. If the
number of open connections is limited, all channels are read before a connection is accepted, so that the limits are judged by
all that was reported. Otherwise only the choice of a worker uses the numbers, which may be as old as that time.
"""

import socket
from collections.abc import Callable, Sequence, Set
from functools import partial

from odradek.net.acceptor import Acceptor
from odradek.net.limits import ConnectionLimits
from odradek.processes.supervisor.event_loop import EventLoop

ACCEPT_PAUSE_S = 0.2
HAND_OVER_RETRY_S = 0.02
REPORTS_APART_S = 0.05
"""The time for which a channel is not watched after it was read."""
_PAUSE, _HAND_OVER, _HELD, _REPORTS = "pause", "hand over", "close held connections", "watch channels"


class Intake:
    """The intake of one running broker: closed at first, open from `open` to `stop`.

    :param sockets: the listening sockets, in the order of the listeners. Their owner closes them, after `stop`.
    :param channels: for each worker's place, both ends of its channel. Their owner closes them, after `close`.
    :param ready: returns whether the worker of that ordinal serves now.
    """

    def __init__(
        self,
        loop: EventLoop,
        sockets: Sequence[socket.socket],
        channels: Sequence[tuple[socket.socket, socket.socket]],
        limits: ConnectionLimits,
        ready: Callable[[int], bool],
    ) -> None:
        self.acceptor = Acceptor(channels, limits, ready)
        self._loop = loop
        self._sockets = sockets
        self._channel_fds = [ours.fileno() for ours, _ in channels]
        self._open = False
        self._watched: set[int] = set()
        self._unwatched: set[int] = set(range(len(channels)))  # ordinals of channels
        self._watch_channels()

    def open(self) -> None:
        """Accept connections from now on."""
        self._open = True
        self._follow_room()

    def stop(self) -> None:
        """Accept no more, and close the sockets that were not handed over. Connections that workers close are still
        counted."""
        self._open = False
        self._watch_sockets(frozenset())
        self._loop.cancel(_PAUSE)
        self._loop.cancel(_HELD)
        for index in range(len(self._sockets)):
            self._loop.cancel(_pause_of(index))
        self._loop.cancel(_HAND_OVER)
        self.acceptor.close()

    def close(self) -> None:
        """Stop, and leave the channels. May be called twice."""
        self.stop()
        self._loop.cancel(_REPORTS)
        for fd in self._channel_fds:
            self._loop.unwatch(fd)
        self._unwatched.clear()
        self._channel_fds.clear()

    def hand_over(self) -> None:
        """Hand over the sockets that wait, as far as the channels have room."""
        self.acceptor.hand_over()
        self._follow_room()

    def worker_died(self, ordinal: int) -> None:
        """Forget the connections of a worker that was reaped, and hand over again those that it had not received."""
        self.acceptor.worker_died(ordinal)
        self._follow_room()

    def _channel_readable(self, ordinal: int) -> None:
        self.acceptor.read_closed(ordinal)
        self._loop.unwatch(self._channel_fds[ordinal])
        self._unwatched.add(ordinal)
        if not self._loop.has_timer(_REPORTS):
            self._loop.after(REPORTS_APART_S, _REPORTS, self._watch_channels)
        self.hand_over()

    def _watch_channels(self) -> None:
        self._loop.cancel(_REPORTS)
        for ordinal in self._unwatched:
            self._loop.watch(self._channel_fds[ordinal], partial(self._channel_readable, ordinal))
        self._unwatched.clear()

    def _accept(self, sock: socket.socket, index: int) -> None:
        if self.acceptor.limits.of_open:
            for ordinal in self._unwatched:
                self.acceptor.read_closed(ordinal)
        if not self.acceptor.accept(sock, index):
            self._loop.after(ACCEPT_PAUSE_S, _PAUSE, self._follow_room)
        self._close_held()
        # A connection changes what its own listener may accept; other listeners only when the total limit is reached.
        if (
            self.acceptor.waiting
            or len(self._watched) < len(self._sockets)
            or self._loop.has_timer(_PAUSE)
            or self.acceptor.limits.full
            or self.acceptor.limits.pause_ms(index)
            or not self.acceptor.may_accept(index)
        ):
            self._follow_room()

    def _follow_room(self) -> None:
        """Accept while there is room for new connections; retry the sockets that wait for room in a channel."""
        if not self._open:
            return
        if self.acceptor.waiting:
            self._loop.after(HAND_OVER_RETRY_S, _HAND_OVER, self.hand_over)
        accepting = set()
        for index in range(len(self._sockets)):
            pause_ms = self.acceptor.limits.pause_ms(index)
            if pause_ms:
                self._loop.after(pause_ms / 1000, _pause_of(index), self._follow_room)
            elif self.acceptor.may_accept(index):
                accepting.add(index)
        self._watch_sockets(set() if self._loop.has_timer(_PAUSE) else accepting)
        if self._unwatched and (self.acceptor.waiting or len(accepting) < len(self._sockets)):
            self._watch_channels()  # a closed connection may make room

    def _close_held(self) -> None:
        next_ms = self.acceptor.close_held()
        if next_ms >= 0:
            self._loop.after(next_ms / 1000, _HELD, self._close_held)

    def _watch_sockets(self, accepting: Set[int]) -> None:
        for index, sock in enumerate(self._sockets):
            if index in accepting and index not in self._watched:
                self._loop.watch(sock.fileno(), partial(self._accept, sock, index))
            elif index not in accepting and index in self._watched:
                self._loop.unwatch(sock.fileno())
        self._watched = set(accepting)


def _pause_of(index: int) -> str:
    """The name of the timer that ends a pause of a listener."""
    return f"pause of listener {index}"
