"""Accepts connections and hands each one to the worker with the fewest connections. Runs in the supervisor, on its loop.

Nothing is read from a socket before it is handed over. No socket is lost if the worker is dead at that moment: sockets that are
still in its channel after it was reaped are taken back and handed over again, to its successor or to other workers.
"""

import errno
import logging
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence, Set
from operator import attrgetter

from odradek._ext.net.accepting import accept
from odradek._ext.shm.client_quotas import count_throttled_connection
from odradek._ext.shm.metering import count, gauge
from odradek.net.handover import NO_LISTENER, SOCKETS_PER_MESSAGE, AcceptedConnection, Receiver, Sender
from odradek.net.limits import ConnectionLimits, canonical_address

log = logging.getLogger("odradek.connections")
_id_of = attrgetter("connection_id")

ACCEPTS_PER_WAKE = 64
MAX_WAITING = 256
REASONS_KEPT = 1000
MAX_HELD = 512
"""The largest number of connections of throttled addresses that are kept open and not served."""
_PROGRAM_ERRORS = {errno.EBADF, errno.EINVAL, errno.ENOTSOCK, errno.EFAULT}
_NO_ROOM = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Acceptor:
    """Accepts connections, applies the connection limits, and hands sockets to workers.

    :param channels: for each worker's place, both ends of its channel.
    :param ready: returns whether the worker of that ordinal serves now. While no worker serves, sockets go to any channel.
    """

    def __init__(
        self,
        channels: Sequence[tuple[socket.socket, socket.socket]],
        limits: ConnectionLimits,
        ready: Callable[[int], bool],
        clock_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
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
        self._waiting: deque[AcceptedConnection] = deque()
        self._logged_reasons: set[str] = set()
        self._logged_full = False
        self._closing = False
        self._clock_ms = clock_ms
        self._held: deque[tuple[int, int]] = deque()  # when each is closed, and its descriptor

    def publish_limit(self) -> None:
        """Set the metric of the total connection limit; must be called again after the limit changed."""
        gauge("connections_limit", self.limits.total)

    @property
    def waiting(self) -> int:
        """The number of accepted sockets that wait for room in a channel."""
        return len(self._waiting)

    def may_accept(self, listener_index: int) -> bool:
        """False while `MAX_WAITING` sockets wait for a channel, or while a limit of connections is reached: then new
        connections of the listener stay in its backlog."""
        if self.limits.listener_full(listener_index):
            if not self._logged_full:
                self._logged_full = True
                count("connections_full")
                limit = self.limits.of_listener(listener_index).connections
                which = (
                    f"max.connections={self.limits.total}"
                    if self.limits.full
                    else f"max.connections={limit} of a listener"
                )
                log.warning("%s is reached: new connections wait in the backlog until open connections close", which)
            return False
        if self._logged_full and len(self.limits) < self.limits.total * 0.9:
            self._logged_full = False
        return len(self._waiting) < MAX_WAITING

    def accept(self, listening: socket.socket, listener_index: int) -> bool:
        """Accept the connections that wait on a listener. Returns False if the system has no resources for more, and accepting
        should pause."""
        for _ in range(ACCEPTS_PER_WAKE):
            if not self.may_accept(listener_index) or self.limits.pause_ms(listener_index):
                break
            try:
                accepted = accept(listening.fileno())
            except OSError as error:
                if error.errno in _PROGRAM_ERRORS:
                    raise
                if error.errno in _NO_ROOM:
                    log.warning("cannot accept connections: %s; retrying after a pause", error.strerror)
                    return False
                continue  # that connection failed before it was accepted
            if accepted is None:
                break
            fd, host, port = accepted
            self._admit(fd, host, port, listener_index)
        self.hand_over()
        return True

    def close_held(self) -> int:
        """Close the connections of throttled addresses whose time is over. Returns the ms until the next one; -1: there is
        none."""
        now_ms = self._clock_ms()
        while self._held and self._held[0][0] <= now_ms:
            os.close(self._held.popleft()[1])
        return self._held[0][0] - now_ms if self._held else -1

    def _hold(self, fd: int, wait_ms: int) -> None:
        """Close a connection of an address that creates too many, after a time in which it is not served (KIP-612)."""
        count_throttled_connection()
        if len(self._held) >= MAX_HELD:
            os.close(fd)
            return
        # Every wait is at most a window; a shorter one that follows a longer one ends with it.
        self._held.append((max(self._clock_ms() + wait_ms, self._held[-1][0] if self._held else 0), fd))

    def _admit(self, fd: int, host: str, port: int, listener_index: int) -> None:
        """Count a new connection and queue it for a worker; close it if a limit refuses it."""
        address = canonical_address(host)
        self.limits.accepted(listener_index)
        wait_ms = self.limits.address_wait_ms(address)
        if wait_ms:
            self._hold(fd, wait_ms)
            return
        reason = self.limits.refusal(address)
        if reason is not None:
            self.refused += 1
            count("connections_refused")
            if reason not in self._logged_reasons:
                if len(self._logged_reasons) >= REASONS_KEPT:
                    self._logged_reasons.clear()
                self._logged_reasons.add(reason)
                log.warning("refusing connections: %s", reason)
            os.close(fd)
            return
        peer = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        connection_id = self._next_id
        self._next_id += 1
        self.accepted += 1
        self.limits.add(connection_id, address, listener_index)
        self._waiting.append(AcceptedConnection(fd, connection_id, listener_index, peer))
        if self.limits.excess:
            self._close_one()

    def _close_one(self) -> None:
        """The listener of brokers accepted a connection above max.connections: let the worker with the most connections close
        the one that it used least recently, of another listener."""
        protected = next(
            (index for index, limits in enumerate(self.limits.limits.listeners) if limits.protected), NO_LISTENER
        )
        for ordinal in sorted(range(len(self._senders)), key=self.handed.__getitem__, reverse=True):
            if self._ready(ordinal) and self._senders[ordinal].request_close(protected):
                return

    def hand_over(self) -> None:
        """Hand over the waiting sockets until no channel has room."""
        if len(self._waiting) == 1:  # most often
            ordinal = min(self._serving(), key=self.handed.__getitem__)
            if self._senders[ordinal].send_all(self._waiting):
                self._handed_over((self._waiting.popleft(),), ordinal)
                return
        full: set[int] = set()
        while self._waiting:
            groups = self._assign(full)
            if not groups:
                return
            try:
                for ordinal in list(groups):
                    if self._senders[ordinal].send_all(groups[ordinal]):
                        self._handed_over(groups.pop(ordinal), ordinal)
                    else:
                        full.add(ordinal)
            finally:
                unsent = [waiting for group in groups.values() for waiting in group]
                self._waiting.extendleft(sorted(unsent, key=_id_of, reverse=True))

    def _serving(self) -> Sequence[int]:
        """The ordinals of the workers that serve; if none does, all."""
        ordinals = range(len(self._senders))
        return [ordinal for ordinal in ordinals if self._ready(ordinal)] or ordinals

    def _handed_over(self, group: Sequence[AcceptedConnection], ordinal: int) -> None:
        for sent in group:
            self._worker_of[sent.connection_id] = ordinal
            os.close(sent.fd)
        self.handed[ordinal] += len(group)

    def _assign(self, full: Set[int]) -> dict[int, list[AcceptedConnection]]:
        """Take waiting sockets, a message of them for each worker at most: each is for the serving worker with the fewest
        connections whose channel has room; if no worker serves, for any worker. Empty if no channel has room."""
        counts = {ordinal: self.handed[ordinal] for ordinal in self._serving() if ordinal not in full}
        groups: dict[int, list[AcceptedConnection]] = {}
        while self._waiting and counts:
            ordinal = min(counts, key=counts.__getitem__)
            group = groups.setdefault(ordinal, [])
            if len(group) == SOCKETS_PER_MESSAGE:
                break
            group.append(self._waiting.popleft())
            counts[ordinal] += 1
        return groups

    def read_closed(self, ordinal: int) -> None:
        """Read from a worker's channel which connections it has closed."""
        for connection_id in self._senders[ordinal].read_closed():
            self._forget(connection_id)

    def worker_died(self, ordinal: int) -> None:
        """Forget the connections of a worker that was reaped, and hand over again those that it had not received yet."""
        self.read_closed(ordinal)
        receiver = Receiver(self._workers_ends[ordinal].fileno())
        while taken_back := receiver.receive():
            for item in taken_back:
                if self._worker_of.pop(item.connection_id, None) is not None:
                    self.handed[ordinal] -= 1
                self._waiting.append(item)
        receiver.close()
        for connection_id in [number for number, worker in self._worker_of.items() if worker == ordinal]:
            self._forget(connection_id)
        if self._closing:
            self.close()
        else:
            self.hand_over()

    def _forget(self, connection_id: int) -> None:
        ordinal = self._worker_of.pop(connection_id, None)
        self.limits.remove(connection_id)
        if ordinal is not None:
            self.handed[ordinal] -= 1

    def close(self) -> None:
        """Close the sockets that were not handed over, and hand over no more."""
        self._closing = True
        for waiting in self._waiting:
            self.limits.remove(waiting.connection_id)
            os.close(waiting.fd)
        self._waiting.clear()
        for _, held in self._held:
            os.close(held)
        self._held.clear()
