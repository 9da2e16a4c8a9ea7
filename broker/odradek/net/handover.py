"""The channel on which the acceptor hands sockets to a worker: SOCK_SEQPACKET, descriptors by SCM_RIGHTS.

The supervisor makes a pair for each worker's place; both ends outlive the worker, so that a socket handed to one that died
stays in the channel. A message to the worker is the connection's id (8 bytes, little-endian), the listener's index (2) and
the peer's "host:port" as text, with one descriptor. In the other direction a message is the ids, 8 bytes each, of
connections that the worker has closed.
"""

import array
import contextlib
import errno
import logging
import os
import socket
import struct
from collections.abc import Iterable
from typing import NamedTuple

log = logging.getLogger("odradek.connections")

_HEAD = struct.Struct("<QH")
_ID = struct.Struct("<Q")
_IDS_A_DATAGRAM = 500


class ChannelClosed(Exception):
    """The acceptor's end of the channel is closed: the supervisor has ended."""


class HandedOver(NamedTuple):
    """An accepted socket on its way to a worker."""

    fd: int
    connection_id: int
    listener_index: int
    peer: str


def make_channel() -> tuple[socket.socket, socket.socket]:
    """(acceptor's end, worker's end), both non-blocking."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    theirs.setblocking(False)
    return ours, theirs


class Sender:
    """The acceptor's end."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel

    def send(self, fd: int, connection_id: int, listener_index: int, peer: str) -> bool:
        """Hand a socket over; False when the channel is full. The caller closes its own `fd` afterwards."""
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
        try:
            self.channel.sendmsg([_HEAD.pack(connection_id, listener_index) + peer.encode()], rights)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in (errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS):  # too many on their way
                return False
            raise
        return True

    def closed(self) -> list[int]:
        """Ids of the connections that the worker has closed since the last call."""
        found: list[int] = []
        while True:
            try:
                data = self.channel.recv(_IDS_A_DATAGRAM * _ID.size)
            except BlockingIOError:
                return found
            if not data:
                return found
            whole = len(data) - len(data) % _ID.size
            found += [number for (number,) in _ID.iter_unpack(data[:whole])]


class Receiver:
    """The worker's end.

    :param fd: the inherited descriptor; it stays open for the worker's successor.
    """

    def __init__(self, fd: int) -> None:
        self.channel = socket.socket(fileno=os.dup(fd))
        self.channel.setblocking(False)
        self._unsent: list[int] = []

    def fileno(self) -> int:
        return self.channel.fileno()

    def receive(self, limit: int = 64) -> list[HandedOver]:
        """The sockets handed over and not yet received, at most `limit`; non-blocking and close-on-exec.

        :raises ChannelClosed: there are no more, and there will be none.
        """
        found: list[HandedOver] = []
        while len(found) < limit:
            try:
                data, ancillary, _, _ = self.channel.recvmsg(512, socket.CMSG_SPACE(4))
            except BlockingIOError:
                break
            except ConnectionResetError:
                data = b""
            if not data:
                if not found:
                    raise ChannelClosed
                break
            fds = array.array("i")
            for level, kind, content in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
            connection_id, listener_index = _HEAD.unpack_from(data)
            if not fds:  # this process has no descriptor left: the kernel closed the socket on the way
                log.warning(
                    "lost a connection from %s: no file descriptor is free; raise the limit of open files",
                    data[_HEAD.size :].decode(),
                )
                self.closed([connection_id])
                continue
            os.set_inheritable(fds[0], False)
            os.set_blocking(fds[0], False)
            found.append(HandedOver(fds[0], connection_id, listener_index, data[_HEAD.size :].decode()))
        return found

    def closed(self, connection_ids: Iterable[int]) -> None:
        """Tell the acceptor which connections are closed; what does not fit now goes with the next call."""
        self._unsent += connection_ids
        while self._unsent:
            batch = self._unsent[:_IDS_A_DATAGRAM]
            try:
                self.channel.send(b"".join(_ID.pack(number) for number in batch))
            except BlockingIOError:
                return
            except OSError:
                self._unsent.clear()  # the supervisor is gone, and this process will be in a moment
                return
            del self._unsent[: len(batch)]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.channel.close()
