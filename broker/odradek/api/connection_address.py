"""The address that a client of a single broker receives without `advertised.listeners`: the one to which it has connected.

It is the local address of the client's own connection. Clients of a published port of a container often cannot reach this
address, so they receive `odradek.published.address` if it is set (decision 52).

Used in a worker's loop, for each response that contains the broker's address. No address of a connection is kept, so no client
can receive the address of another connection.
"""

import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from odradek.config.listeners import Listener, by_connection

ROUTES_KEPT_S = 5.0
"""The routes are read again after this time, because a container can be connected to more networks while it runs."""
MAPPED = "::ffff:"
"""The prefix of an IPv4 address of an IPv6 socket."""


class Ends(NamedTuple):
    """The addresses of a connection, without the prefix `MAPPED`; the port is the local one."""

    client: str
    local: str
    port: int


class Address(NamedTuple):
    """`port` is None for the port to which the client has connected."""

    host: str
    port: int | None


class Routes(NamedTuple):
    """The networks that this machine reaches without a gateway, as (address, mask) in network order, and the gateways."""

    networks: tuple[tuple[bytes, bytes], ...]
    gateways: frozenset[bytes]

    def is_beside(self, host: str) -> bool:
        """Whether an address is in one of the networks and is not a gateway."""
        address = packed(host)
        if address in self.gateways:
            return False
        number = int.from_bytes(address)
        return any(
            len(network) == len(address) and number & int.from_bytes(mask) == int.from_bytes(network)
            for network, mask in self.networks
        )


class ConnectionAddresses:
    """Returns the address for the client of a connection; see the module.

    :param listeners: the bound listeners, as in `WorkerView.advertised`. For those with TLS or with a host, `of` returns None:
        certificates name hosts, and clients receive a configured host.
    :param published: `odradek.published.address`; None if it is not set.
    """

    def __init__(
        self,
        listeners: Sequence[Listener],
        published: Address | None,
        routes: "Callable[[], Routes] | None" = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._own = {index for index, listener in enumerate(listeners) if by_connection(listener)}
        self._published = published
        self._read_routes = routes or read_routes
        self._clock = clock
        self._routes: Routes | None = None
        self._read_at = 0.0

    def of(self, listener_index: int, connection: Any) -> tuple[str, int] | None:
        """Host and port for the client of a connection; None if the client receives those advertised for its listener."""
        if listener_index not in self._own:
            return None
        ends = ends_of(connection.fd)
        if ends is None:
            return None
        if self._published is not None and self._is_published(ends):
            return self._published.host, self._published.port or ends.port
        return ends.local, ends.port

    def _is_published(self, ends: Ends) -> bool:
        """Whether the client connects through a published port: from the broker's own address, if that is not loopback, from
        a gateway, or from a network that this machine reaches only through a gateway."""
        if is_loopback(ends.local):
            return False
        return ends.client == ends.local or not self._present_routes().is_beside(ends.client)

    def _present_routes(self) -> Routes:
        now = self._clock()
        if self._routes is None or now - self._read_at >= ROUTES_KEPT_S:
            try:
                self._routes, self._read_at = self._read_routes(), now
            except OSError:  # no descriptor is free: the former routes are most likely still right
                return self._routes or Routes((), frozenset())
        return self._routes


def ends_of(fd: int) -> Ends | None:
    """The addresses of a connected socket. None if it is closed, does not use TCP, or has a link-local IPv6 address, which is
    valid on this machine only."""
    if fd < 0:
        return None
    sock = socket.socket(fileno=fd)  # no duplicate, which would need a free descriptor
    try:
        if sock.family not in (socket.AF_INET, socket.AF_INET6):
            return None
        local, client = sock.getsockname(), sock.getpeername()
    except OSError:  # the client has closed the connection and will not receive the response
        return None
    finally:
        sock.detach()
    host = str(local[0])
    return None if "%" in host else Ends(_plain(str(client[0])), _plain(host), int(local[1]))


def _plain(host: str) -> str:
    return host.removeprefix(MAPPED) if "." in host else host.partition("%")[0]


def is_loopback(host: str) -> bool:
    """Whether an address is a loopback address."""
    return host == "::1" or host.startswith("127.")


def packed(host: str) -> bytes:
    """An address in network order."""
    return socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)


def read_routes(directory: Path = Path("/proc/net")) -> Routes:
    """The routes of this machine, as far as the files below `directory` exist and can be read.
    Raises OSError if no descriptor is free."""
    networks: list[tuple[bytes, bytes]] = []
    gateways: set[bytes] = set()
    for line in _lines(directory / "route")[1:]:
        fields = line.split()
        network, gateway, mask = (int(fields[index], 16).to_bytes(4, sys.byteorder) for index in (1, 2, 7))
        if any(gateway):
            gateways.add(gateway)
        elif any(mask):
            networks.append((network, mask))
    for line in _lines(directory / "ipv6_route"):
        fields = line.split()
        network, length, gateway = bytes.fromhex(fields[0]), int(fields[1], 16), bytes.fromhex(fields[4])
        if any(gateway):
            gateways.add(gateway)
        elif length and fields[9] != "lo":
            networks.append((network, ((1 << 128) - (1 << (128 - length))).to_bytes(16)))
    return Routes(tuple(networks), frozenset(gateways))


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except (FileNotFoundError, PermissionError):
        return []
