"""How many connections there may be, in all and from one address; counted by connection, so that no close is counted twice.

The acceptor owns it. A connection counts from its acceptance until its worker says that it is closed, or the worker dies.
"""

import ipaddress
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


class ConnectionLimits:
    """:param overrides: limits of single addresses, ``max.connections.per.ip.overrides``."""

    def __init__(self, total: int, per_address: int, overrides: Mapping[str, int] | None = None) -> None:
        self._total = total
        self._per_address = per_address
        self._overrides = {canonical_address(host): limit for host, limit in (overrides or {}).items()}
        self._address_of: dict[int, str] = {}
        self._count: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._address_of)

    def refusal(self, host: str) -> str | None:
        """Why one more connection from `host` is too many; None if it is not."""
        address = canonical_address(host)
        if len(self._address_of) >= self._total:
            return f"max.connections={self._total} are open"
        limit = self._overrides.get(address, self._per_address)
        if self._count[address] >= limit:
            return f"max.connections.per.ip={limit} are open from {address}"
        return None

    def opened(self, connection_id: int, host: str) -> None:
        """Count a connection."""
        address = canonical_address(host)
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
