"""The channel on which the acceptor hands sockets to a worker: SOCK_SEQPACKET, with descriptors passed by SCM_RIGHTS.

The supervisor creates a socket pair for each worker's place. Both ends outlive the worker, so a socket that was handed to a
dead worker stays in the channel. A message to the worker contains up to `SOCKETS_PER_MESSAGE` connections, with a descriptor
for each: the connection's id (8 bytes, little-endian), the listener's index (2 bytes), the length of the peer's "host:port"
(1 byte), and this text. A message in the other direction contains the ids of connections that the worker has closed, 8 bytes
each, in the byte order of the machine.
"""

import array
import contextlib
import errno
import logging
import os
import socket
import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from odradek._ext.net.accepting import read_reports

log = logging.getLogger("odradek.connections")

_HEAD = struct.Struct("<QHB")
SOCKETS_PER_MESSAGE = 16
_LONGEST_MESSAGE = SOCKETS_PER_MESSAGE * (_HEAD.size + 255)
_RIGHTS_BYTES = socket.CMSG_SPACE(4 * SOCKETS_PER_MESSAGE)
_ID = struct.Struct("=Q")
_IDS_PER_MESSAGE = 500  # as `accepting.read_reports` expects
NO_LISTENER = 0xFFFF
"""The index of no listener."""
CLOSE_ONE = (1 << 64) - 1
"""Stands for the id of a connection in a message that asks the worker to close the connection that it used least recently, but
none of the listener whose index the message contains."""


class ChannelClosed(Exception):
    """The acceptor's end of the channel is closed: the supervisor has ended."""


class AcceptedConnection(NamedTuple):
    """A connection that the acceptor has handed to this worker; `fd` is its socket, `peer` the client's address and port."""

    fd: int
    connection_id: int
    listener_index: int
    peer: str

    @property
    def log_fields(self) -> dict[str, object]:
        """The connection and the client as attributes of a log record: `extra` of a logging call."""
        return {"connection_id": self.connection_id, "client_address": self.peer}


def make_channel() -> tuple[socket.socket, socket.socket]:
    """A new channel: (acceptor's end, worker's end), both non-blocking."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    theirs.setblocking(False)
    return ours, theirs


class Sender:
    """The acceptor's end of a channel."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel

    def send(self, fd: int, connection_id: int, listener_index: int, peer: str) -> bool:
        """Send a socket. Returns False if the channel is full. The caller closes its own `fd` afterwards."""
        return self.send_all([AcceptedConnection(fd, connection_id, listener_index, peer)])

    def send_all(self, sockets: Iterable[AcceptedConnection]) -> bool:
        """Send up to `SOCKETS_PER_MESSAGE` sockets: all, or, if the channel is full, none; then it returns False. The caller
        closes its own descriptors afterwards."""
        fds = array.array("i")
        parts: list[bytes] = []
        for fd, connection_id, listener_index, peer in sockets:
            fds.append(fd)
            text = peer.encode()
            parts += _HEAD.pack(connection_id, listener_index, len(text)), text
        try:
            self.channel.sendmsg(parts, [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in (errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS):  # too many descriptors in transit
                return False
            raise
        return True

    def request_close(self, protected_listener: int) -> bool:
        """Ask the worker to close a connection, see `CLOSE_ONE`. Returns False if the channel is full."""
        try:
            self.channel.send(_HEAD.pack(CLOSE_ONE, protected_listener, 0))
        except BlockingIOError:
            return False
        return True

    def read_closed(self) -> list[int]:
        """The ids of the connections that the worker has closed since the last call."""
        return read_reports(self.channel.fileno())


class Receiver:
    """The worker's end of a channel.

    :param fd: the inherited descriptor; it stays open for the worker's successor.
    """

    def __init__(self, fd: int) -> None:
        self.channel = socket.socket(fileno=os.dup(fd))
        self.channel.setblocking(False)
        self._unsent: list[int] = []
        self.to_close: list[int] = []  # for each request to close a connection, the protected listener

    def fileno(self) -> int:
        return self.channel.fileno()

    def receive(self, limit: int = 64, until_empty: bool = True) -> list[AcceptedConnection]:
        """Receive the sockets that wait in the channel, until there are at least `limit`; they are close-on-exec.

        :param until_empty: False: end behind a message that is not full, because most often nothing waits behind it. The result
            is empty only if the channel is.

        :raises ChannelClosed: the channel is empty, and the acceptor's end is closed.
        """
        received: list[AcceptedConnection] = []
        while len(received) < limit:
            try:
                data, ancillary, _, _ = self.channel.recvmsg(_LONGEST_MESSAGE, _RIGHTS_BYTES, socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                break
            except ConnectionResetError:
                data = b""
            if not data:
                if not received:
                    raise ChannelClosed
                break
            fds = array.array("i")
            for level, kind, content in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
            before = len(received)
            self._take(data, fds, received)
            if not until_empty and before < len(received) < before + SOCKETS_PER_MESSAGE:
                break
        return received

    def _take(self, data: bytes, fds: Sequence[int], received: list[AcceptedConnection]) -> None:
        """Append the connections of a message. If too few descriptors are free, the kernel passes the first ones and closes the
        others."""
        at = taken = 0
        while at < len(data):
            connection_id, listener_index, length = _HEAD.unpack_from(data, at)
            at += _HEAD.size
            if connection_id == CLOSE_ONE:
                self.to_close.append(listener_index)
                continue
            peer = data[at : at + length].decode()
            at += length
            item = AcceptedConnection(fds[taken] if taken < len(fds) else -1, connection_id, listener_index, peer)
            taken += 1
            if item.fd < 0:
                log.warning(
                    "lost connection %d from %s: no file descriptor is free; raise the limit of open files",
                    item.connection_id, item.peer, extra=item.log_fields,
                )  # fmt: skip
                self.report_closed([item.connection_id])
            else:
                received.append(item)

    def report_closed(self, connection_ids: Iterable[int]) -> None:
        """Report closed connections to the acceptor. Ids that do not fit into the channel now are sent by the next call."""
        self._unsent += connection_ids
        while self._unsent:
            batch = self._unsent[:_IDS_PER_MESSAGE]
            try:
                self.channel.send(b"".join(_ID.pack(number) for number in batch))
            except BlockingIOError:
                return
            except OSError:
                self._unsent.clear()  # the supervisor has ended, and this process will end soon
                return
            del self._unsent[: len(batch)]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.channel.close()
