"""The limits of open connections, in total and per address. Connections are counted by id, so no close is counted twice.

The acceptor owns the counts. A connection counts from its acceptance until its worker reports that it is closed, or dies.
"""

import ipaddress
import socket
from collections import Counter
from collections.abc import Mapping


def canonical_address(host: str) -> str:
    """The address as text. An IPv4 address mapped into IPv6 becomes the IPv4 address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def parse_overrides(text: str) -> dict[str, int]:
    """The limits by address from ``max.connections.per.ip.overrides``: "host:count,...". A host name means all its
    addresses.

    :raises ValueError: a host is neither an address nor a name that can be resolved; the message names it.
    """
    limits: dict[str, int] = {}
    for item in filter(None, text.split(",")):
        host, _, count = item.strip().rpartition(":")
        try:
            resolved = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            raise ValueError(
                f"max.connections.per.ip.overrides: {host!r} is neither an address nor a known host name: {error.strerror}"
            ) from error
        for *_, address in resolved:
            limits[canonical_address(str(address[0]))] = int(count)
    return limits


class ConnectionLimits:
    """Counts open connections against the limits. :param overrides: limits of single addresses, by their canonical text."""

    def __init__(self, total: int, per_address: int, overrides: Mapping[str, int] | None = None) -> None:
        self.change(total, per_address, overrides)
        self._address_of: dict[int, str] = {}
        self._count: Counter[str] = Counter()

    def change(self, total: int, per_address: int, overrides: Mapping[str, int] | None = None) -> None:
        """Replace the limits. Open connections stay open, even above the new limits."""
        self.total = total
        self._per_address = per_address
        self._overrides = dict(overrides or {})

    def __len__(self) -> int:
        return len(self._address_of)

    @property
    def full(self) -> bool:
        """Whether the total limit is reached."""
        return len(self._address_of) >= self.total

    def refusal(self, address: str) -> str | None:
        """The reason to refuse one more connection from this canonical address; None if it is allowed."""
        limit = self._overrides.get(address, self._per_address)
        if self._count[address] >= limit:
            return f"{address} has reached max.connections.per.ip={limit}"
        return None

    def add(self, connection_id: int, address: str) -> None:
        """Count a connection."""
        self._address_of[connection_id] = address
        self._count[address] += 1

    def remove(self, connection_id: int) -> None:
        """Stop counting a connection; does nothing if it is not counted."""
        address = self._address_of.pop(connection_id, None)
        if address is None:
            return
        self._count[address] -= 1
        if not self._count[address]:
            del self._count[address]
