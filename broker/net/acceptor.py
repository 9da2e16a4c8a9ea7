"""Accepts connections and hands each to the worker that has the fewest. Runs in the supervisor, on its epoll.

Nothing is read from a socket before it is handed over. A worker that is dead at that moment does no harm: what is in its
channel is received by its successor.
"""

import errno
import logging
import socket
from collections import deque
from collections.abc import Callable, Sequence

from broker.net.handover import HandedOver, Sender
from broker.net.limits import ConnectionLimits

log = logging.getLogger(__name__)

ACCEPTS_A_WAKE = 64
BACKLOG = 256
_PASSING = {errno.ECONNABORTED, errno.EINTR, errno.EPROTO, errno.ENETDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH}


class Acceptor:
    """:param ready: whether the worker of that ordinal takes connections now; all are asked if none does."""

    def __init__(
        self, senders: Sequence[Sender], limits: ConnectionLimits, ready: Callable[[int], bool], keep_alive: bool = True
    ) -> None:
        self.senders = list(senders)
        self.limits = limits
        self._ready = ready
        self._keep_alive = keep_alive
        self._next_id = 1
        self._worker_of: dict[int, int] = {}
        self.handed = [0] * len(self.senders)
        self._waiting: deque[tuple[socket.socket, HandedOver]] = deque()
        self.accepted = 0
        self.refused = 0
        self._told: set[str] = set()

    @property
    def full(self) -> bool:
        """True while as many wait as may: do not accept."""
        return len(self._waiting) >= BACKLOG

    def accept(self, listening: socket.socket, listener_index: int) -> bool:
        """Accept what waits on a listener; False when the process is out of descriptors and should pause."""
        for _ in range(ACCEPTS_A_WAKE):
            if self.full:
                return True
            try:
                sock, address = listening.accept()
            except BlockingIOError:
                return True
            except OSError as error:
                if error.errno in _PASSING:
                    continue
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    log.warning("accepting pauses: %s", error.strerror)
                    return False
                raise
            self._take(sock, address[0], address[1], listener_index)
        return True

    def _take(self, sock: socket.socket, host: str, port: int, listener_index: int) -> None:
        reason = self.limits.refusal(host)
        if reason is not None:
            self.refused += 1
            if reason not in self._told:
                self._told.add(reason)
                log.warning("a connection from %s is refused: %s", host, reason)
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._keep_alive:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection_id = self._next_id
        self._next_id += 1
        self.accepted += 1
        self.limits.opened(connection_id, host)
        peer = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._waiting.append((sock, HandedOver(sock.fileno(), connection_id, listener_index, peer)))
        self.hand_over()

    def hand_over(self) -> None:
        """Hand over what waits, as far as the channels take it."""
        while self._waiting:
            sock, item = self._waiting[0]
            ordinals = sorted(range(len(self.senders)), key=self.handed.__getitem__)
            serving = [ordinal for ordinal in ordinals if self._ready(ordinal)]
            for ordinal in serving or ordinals:
                if self.senders[ordinal].send(item.fd, item.connection_id, item.listener_index, item.peer):
                    self._worker_of[item.connection_id] = ordinal
                    self.handed[ordinal] += 1
                    break
            else:
                return
            self._waiting.popleft()
            sock.close()

    def read_closed(self, ordinal: int) -> None:
        """Take from a worker which connections it has closed."""
        for connection_id in self.senders[ordinal].closed():
            self._forget(connection_id)

    def worker_died(self, ordinal: int) -> None:
        """Its connections died with it; those still in its channel are counted again when its successor closes them."""
        self.read_closed(ordinal)
        for connection_id in [number for number, worker in self._worker_of.items() if worker == ordinal]:
            self._forget(connection_id)
        self.handed[ordinal] = 0

    def _forget(self, connection_id: int) -> None:
        ordinal = self._worker_of.pop(connection_id, None)
        self.limits.closed(connection_id)
        if ordinal is not None:
            self.handed[ordinal] -= 1

    def close(self) -> None:
        """Drop what was not handed over."""
        for sock, item in self._waiting:
            self.limits.closed(item.connection_id)
            sock.close()
        self._waiting.clear()
