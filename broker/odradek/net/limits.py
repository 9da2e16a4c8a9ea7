"""How many connections there may be, in all and from one address; counted by connection, so that no close is counted twice.

The acceptor owns it. A connection counts from its acceptance until its worker says that it is closed, or the worker dies.
"""

import ipaddress
import socket
from collections import Counter
from collections.abc import Mapping


def canonical_address(host: str) -> str:
    """The address as text, an IPv4 address mapped into IPv6 as the IPv4 one it is."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def parse_overrides(text: str) -> dict[str, int]:
    """Limits by address from ``max.connections.per.ip.overrides``: "host:count,..."; a name counts for all its addresses.

    :raises ValueError: a host that is neither an address nor a name that can be looked up; the message names it.
    """
    limits: dict[str, int] = {}
    for item in filter(None, text.split(",")):
        host, _, count = item.strip().rpartition(":")
        try:
            found = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            raise ValueError(
                f"max.connections.per.ip.overrides: {host!r} is neither an address nor a known host name: {error.strerror}"
            ) from error
        for *_, address in found:
            limits[canonical_address(str(address[0]))] = int(count)
    return limits


class ConnectionLimits:
    """:param overrides: limits of single addresses, by their canonical text."""

    def __init__(self, total: int, per_address: int, overrides: Mapping[str, int] | None = None) -> None:
        self.change(total, per_address, overrides)
        self._address_of: dict[int, str] = {}
        self._count: Counter[str] = Counter()

    def change(self, total: int, per_address: int, overrides: Mapping[str, int] | None = None) -> None:
        """Other limits from now on; connections that are open stay."""
        self.total = total
        self._per_address = per_address
        self._overrides = dict(overrides or {})

    def __len__(self) -> int:
        return len(self._address_of)

    @property
    def full(self) -> bool:
        """Whether as many are open in all as may be."""
        return len(self._address_of) >= self.total

    def refusal(self, address: str) -> str | None:
        """Why one more connection from this canonical address is too many; None if it is not."""
        limit = self._overrides.get(address, self._per_address)
        if self._count[address] >= limit:
            return f"{address} has reached max.connections.per.ip={limit}"
        return None

    def opened(self, connection_id: int, address: str) -> None:
        """Count a connection."""
        self._address_of[connection_id] = address
        self._count[address] += 1

    def closed(self, connection_id: int) -> None:
        """Count it no longer; nothing if it is not counted."""
        address = self._address_of.pop(connection_id, None)
        if address is None:
            return
        self._count[address] -= 1
        if not self._count[address]:
            del self._count[address]
