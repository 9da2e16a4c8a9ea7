"""Accepts connections and hands each to the worker that has the fewest. Runs in the supervisor, on its loop.

Nothing is read from a socket before it is handed over. A worker that is dead at that moment does no harm: what is still in
its channel once it was reaped is taken back and handed over again, to its successor or to others.
"""

import errno
import logging
import socket
from collections import deque
from collections.abc import Callable, Sequence

from odradek._ext.shm.metering import count, gauge
from odradek.net.handover import Receiver, Sender
from odradek.net.limits import ConnectionLimits, canonical_address

log = logging.getLogger("odradek.connections")

ACCEPTS_A_WAKE = 64
BACKLOG = 256
TOLD_KEPT = 1000
_OWN_MISTAKES = {errno.EBADF, errno.EINVAL, errno.ENOTSOCK, errno.EFAULT}
_NO_ROOM = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class _Waiting:
    """An accepted socket that no worker has been given yet."""

    __slots__ = ("connection_id", "listener_index", "peer", "socket")

    def __init__(self, sock: socket.socket, connection_id: int, listener_index: int, peer: str) -> None:
        self.socket = sock
        self.connection_id = connection_id
        self.listener_index = listener_index
        self.peer = peer


class Acceptor:
    """:param channels: for each worker's place, both ends of its channel.
    :param ready: whether the worker of that ordinal takes connections now; while none does, any may be given some.
    """

    def __init__(
        self,
        channels: Sequence[tuple[socket.socket, socket.socket]],
        limits: ConnectionLimits,
        ready: Callable[[int], bool],
    ) -> None:
        self.limits = limits
        self.publish_limit()
        self.accepted = 0
        self.refused = 0
        self.handed = [0] * len(channels)
        self._senders = [Sender(ours) for ours, _ in channels]
        self._workers_ends = [theirs for _, theirs in channels]
        self._ready = ready
        self._next_id = 1
        self._worker_of: dict[int, int] = {}
        self._waiting: deque[_Waiting] = deque()
        self._told: set[str] = set()
        self._told_full = False
        self._closing = False

    def publish_limit(self) -> None:
        """Set the metric of the total connection limit; must be called again after the limit changed."""
        gauge("connections_limit", self.limits.total)

    @property
    def waiting(self) -> int:
        """How many sockets no channel had room for."""
        return len(self._waiting)

    @property
    def may_accept(self) -> bool:
        """False while as many wait as may, or as many are open as may be: what comes stays in the listener's backlog."""
        if self.limits.full:
            if not self._told_full:
                self._told_full = True
                count("connections_full")
                log.warning(
                    "max.connections=%d is reached: new connections wait in the backlog until others close",
                    self.limits.total,
                )
            return False
        if len(self.limits) < self.limits.total * 0.9:
            self._told_full = False
        return len(self._waiting) < BACKLOG

    def accept(self, listening: socket.socket, listener_index: int) -> bool:
        """Accept what waits on a listener; False when the system has no room for more and accepting should pause."""
        for _ in range(ACCEPTS_A_WAKE):
            if not self.may_accept:
                break
            try:
                sock, address = listening.accept()
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno in _OWN_MISTAKES:
                    raise
                if error.errno in _NO_ROOM:
                    log.warning("cannot accept connections: %s; retrying after a pause", error.strerror)
                    return False
                continue  # what befell that one connection before it was accepted
            self._take(sock, address[0], address[1], listener_index)
        self.hand_over()
        return True

    def _take(self, sock: socket.socket, host: str, port: int, listener_index: int) -> None:
        address = canonical_address(host)
        reason = self.limits.refusal(address)
        if reason is not None:
            self.refused += 1
            count("connections_refused")
            if reason not in self._told:
                if len(self._told) >= TOLD_KEPT:
                    self._told.clear()
                self._told.add(reason)
                log.warning("refusing connections: %s", reason)
            sock.close()
            return
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except OSError as error:
            log.info("a connection from %s ended right after it was accepted: %s", address, error.strerror)
            sock.close()
            return
        connection_id = self._next_id
        self._next_id += 1
        self.accepted += 1
        self.limits.opened(connection_id, address)
        peer = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        self._waiting.append(_Waiting(sock, connection_id, listener_index, peer))

    def hand_over(self) -> None:
        """Hand over what waits, as far as the channels take it."""
        while self._waiting:
            ordinal = self._give(self._waiting[0])
            if ordinal is None:
                return
            given = self._waiting.popleft()
            self._worker_of[given.connection_id] = ordinal
            self.handed[ordinal] += 1
            given.socket.close()

    def _give(self, one: _Waiting) -> int | None:
        """Which worker's channel took it: of those that serve, the one with the fewest connections and room."""
        ordinals = sorted(range(len(self._senders)), key=self.handed.__getitem__)
        none_ready = True
        for must_be_ready in (True, False):
            for ordinal in ordinals:
                if must_be_ready:
                    if not self._ready(ordinal):
                        continue
                    none_ready = False
                if self._senders[ordinal].send(one.socket.fileno(), one.connection_id, one.listener_index, one.peer):
                    return ordinal
            if not none_ready:
                return None
        return None

    def read_closed(self, ordinal: int) -> None:
        """Take from a worker which connections it has closed."""
        for connection_id in self._senders[ordinal].closed():
            self._forget(connection_id)

    def worker_died(self, ordinal: int) -> None:
        """After it was reaped: its connections died with it; those it had not received yet are handed over again."""
        self.read_closed(ordinal)
        receiver = Receiver(self._workers_ends[ordinal].fileno())
        while taken_back := receiver.receive():
            for item in taken_back:
                if self._worker_of.pop(item.connection_id, None) is not None:
                    self.handed[ordinal] -= 1
                sock = socket.socket(fileno=item.fd)
                self._waiting.append(_Waiting(sock, item.connection_id, item.listener_index, item.peer))
        receiver.close()
        for connection_id in [number for number, worker in self._worker_of.items() if worker == ordinal]:
            self._forget(connection_id)
        if self._closing:
            self.close()
        else:
            self.hand_over()

    def _forget(self, connection_id: int) -> None:
        ordinal = self._worker_of.pop(connection_id, None)
        self.limits.closed(connection_id)
        if ordinal is not None:
            self.handed[ordinal] -= 1

    def close(self) -> None:
        """Drop what was not handed over, and hand over nothing more."""
        self._closing = True
        for one in self._waiting:
            self.limits.closed(one.connection_id)
            one.socket.close()
        self._waiting.clear()
