"""Binds the listening sockets. The supervisor binds them before it forks, and closes them first when it stops."""

import errno
import os
import socket
from collections.abc import Sequence
from pathlib import Path

from odradek.config.listeners import Listener

DEFAULT_BACKLOG = 4096


class BindError(Exception):
    """A listener cannot be opened; the message contains the listener and the reason. ``reason``: for a longer message.
    ``in_use``: whether another socket has the port."""

    def __init__(self, message: str, reason: str, in_use: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.in_use = in_use


def bind(
    listener: Listener, *, backlog: int = DEFAULT_BACKLOG, send_buffer: int = -1, receive_buffer: int = -1
) -> socket.socket:
    """A listening, non-blocking socket for one listener. Buffer sizes are in bytes; -1 keeps the system's default.

    :raises BindError: the address is in use, does not belong to this machine, or may not be bound.
    """
    host = listener.host
    try:
        if host == "":
            family, address = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET, ("", listener.port)
        else:
            # As bytes: for a str, Python would load the codec of international names, with its tables.
            name = host.encode() if host.isascii() else host
            resolved = socket.getaddrinfo(name, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, address = resolved[0][0], resolved[0][4]  # type: ignore[assignment]
    except socket.gaierror as error:
        reason = f"{host!r} is not an address of this machine: {error.strerror}"
        raise BindError(f"listener {listener}: {reason}", reason) from error
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(host != ""))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted sockets inherit both
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if send_buffer > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        if receive_buffer > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.bind(address)
        sock.listen(backlog)
    except OSError as error:
        sock.close()
        in_use = error.errno == errno.EADDRINUSE
        reason = _in_use(listener.port) if in_use else (error.strerror or str(error))
        reason = f"cannot be opened: {reason}"
        raise BindError(f"listener {listener} {reason}", reason, in_use) from error
    return sock


def _in_use(port: int) -> str:
    from odradek.net.port_holder import holder_of  # only for this error

    holder = holder_of(port)
    return "the port is in use" + (f" by {holder}" if holder else "")


def as_bound(listener: Listener, sock: socket.socket) -> Listener:
    """The listener with the port to which it is bound."""
    return listener._replace(port=sock.getsockname()[1])


def advertised(configured: Sequence[Listener], bound: Sequence[Listener]) -> list[Listener]:
    """The address that clients receive for each bound listener. An advertised port 0 becomes the bound port; an empty host
    becomes the listener's host or the host name."""
    by_name = {listener.name: listener for listener in configured}
    addresses = []
    for listener in bound:
        address = by_name.get(listener.name, listener)
        host = address.host or listener.host or socket.gethostname()
        addresses.append(address._replace(host=host, port=address.port or listener.port))
    return addresses


def listen_unix(directory: Path, name: str, backlog: int = 64) -> socket.socket:
    """A listening, non-blocking Unix socket to which only this user may connect. An existing file of that name is removed.

    :raises OSError: the socket cannot be created there.
    """
    (directory / name).unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    before = os.umask(0o177)
    try:
        fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sock.bind(f"/proc/self/fd/{fd}/{name}")  # the path of a Unix socket has at most 107 bytes
        finally:
            os.close(fd)
        sock.listen(backlog)
    except OSError:
        sock.close()
        raise
    finally:
        os.umask(before)
    return sock
