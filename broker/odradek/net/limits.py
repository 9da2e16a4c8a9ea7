"""The limits of open connections, in total, per listener and per address, and of new connections per second (KIP-402, KIP-612).

Connections are counted by id, so no close is counted twice. IPv6 addresses are counted by their /64 networks, because one host
usually has all addresses of it, except addresses for which a limit is set by name.

The acceptor owns the counts. A connection counts from its acceptance until its worker reports that it is closed, or dies.
"""

import ipaddress
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from odradek.config.key import MAX_INT
from odradek.quotas.rate import RatesByName, WindowedRate
from odradek.security.owners import network_of_peer


def canonical_address(host: str) -> str:
    """The address as text. An IPv4 address mapped into IPv6 becomes the IPv4 address."""
    if ":" not in host:
        return host  # an IPv4 address from the system has one form
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


class ListenerLimits(NamedTuple):
    """The limits of one listener.

    :param connections: the most open connections. :param rate: the most new connections per second.
    :param protected: whether it is the listener of brokers, besides others: it does not wait for the limits of the whole
    broker.
    """

    connections: int
    rate: int
    protected: bool = False


class Limits(NamedTuple):
    """All limits of connections.

    :param total: the most open connections. :param per_address: the most of one address; `overrides`: of single addresses, by
        their canonical text. :param rate: the most new connections per second. :param listeners: by index.
    """

    total: int
    per_address: int
    overrides: Mapping[str, int] = {}
    rate: int = MAX_INT
    listeners: Sequence[ListenerLimits] = ()

    @property
    def of_open(self) -> bool:
        """Whether the number of open connections is limited anywhere."""
        most = (self.total, self.per_address, *self.overrides.values(), *(one.connections for one in self.listeners))
        return min(most) < MAX_INT


UNLIMITED = ListenerLimits(MAX_INT, MAX_INT)


class ConnectionLimits:
    """Counts open and new connections against the limits.

    :param windows: `quota.window.num`. :param window_ms: `quota.window.size.seconds` in ms.
    :param address_rate: returns the connections per second that an address may create; None: any number.
    :param clock_ms: monotonic.
    """

    def __init__(
        self,
        limits: Limits,
        windows: int = 11,
        window_ms: int = 1000,
        address_rate: Callable[[str], float | None] = lambda _: None,
        clock_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    ) -> None:
        self.limits = limits
        self.of_open = limits.of_open
        self.address_rate = address_rate
        self._clock_ms = clock_ms
        self._counted: dict[int, tuple[str, int]] = {}
        self._count: Counter[str] = Counter()
        self._of_listener: Counter[int] = Counter()
        self._rate = WindowedRate(windows, window_ms)
        self._listener_rates = [WindowedRate(windows, window_ms) for _ in limits.listeners]
        self._address_rates = RatesByName(windows, window_ms)
        self._paused_until: dict[int, int] = {}

    def change(self, limits: Limits) -> None:
        """Replace the limits. Open connections stay open, even above the new limits."""
        self.limits = limits
        self.of_open = limits.of_open

    @property
    def total(self) -> int:
        """The limit of all open connections."""
        return self.limits.total

    def __len__(self) -> int:
        return len(self._counted)

    @property
    def full(self) -> bool:
        """Whether the total limit is reached."""
        return len(self._counted) >= self.limits.total

    @property
    def excess(self) -> int:
        """How many connections are open above the total limit: the protected listener accepted them."""
        return max(0, len(self._counted) - self.limits.total)

    def of_listener(self, index: int) -> ListenerLimits:
        """The limits of a listener."""
        return self.limits.listeners[index] if index < len(self.limits.listeners) else UNLIMITED

    def listener_full(self, index: int) -> bool:
        """Whether the listener must not accept another connection now, because of its own limit or the total one."""
        limits = self.of_listener(index)
        if len(self._counted) >= self.limits.total and not limits.protected:
            return True
        return self._of_listener[index] >= limits.connections

    def pause_ms(self, index: int) -> int:
        """How long the listener must not accept because of the limits of new connections."""
        until_ms = self._paused_until.get(index)
        return 0 if until_ms is None else max(0, until_ms - self._clock_ms())

    def accepted(self, index: int) -> None:
        """Count a new connection of a listener; pause the listener if new connections are too frequent, at most for a
        window."""
        now_ms, limits = self._clock_ms(), self.of_listener(index)
        wait_ms = 0
        if not limits.protected:
            self._rate.add(1.0, now_ms)
            if self.limits.rate < MAX_INT:
                wait_ms = self._rate.wait_ms(self.limits.rate, now_ms)
        if index < len(self._listener_rates):
            rate = self._listener_rates[index]
            rate.add(1.0, now_ms)
            if limits.rate < MAX_INT:
                wait_ms = max(wait_ms, rate.wait_ms(limits.rate, now_ms))
        if wait_ms:
            self._paused_until[index] = now_ms + wait_ms
        else:
            self._paused_until.pop(index, None)

    def address_wait_ms(self, address: str) -> int:
        """Count a new connection of an address. Returns 0, or after how long the connection must be closed instead of
        served."""
        limit = self.address_rate(address)
        if limit is None:
            return 0
        network = network_of_peer(address)
        name = network if limit == self.address_rate(network) else address
        return self._address_rates.admit(name, limit, self._clock_ms())

    def refusal(self, address: str) -> str | None:
        """The reason to refuse one more connection from this canonical address; None if it is allowed."""
        limit = self.limits.overrides.get(address, self.limits.per_address)
        if limit >= MAX_INT:
            return None
        name = self._counted_as(address)
        if self._count[name] >= limit:
            return f"{name} has reached max.connections.per.ip={limit}"
        return None

    def _counted_as(self, address: str) -> str:
        return address if address in self.limits.overrides else network_of_peer(address)

    def add(self, connection_id: int, address: str, listener_index: int = 0) -> None:
        """Count a connection."""
        name = self._counted_as(address)
        self._counted[connection_id] = name, listener_index
        self._count[name] += 1
        self._of_listener[listener_index] += 1

    def remove(self, connection_id: int) -> None:
        """Stop counting a connection; does nothing if it is not counted."""
        known = self._counted.pop(connection_id, None)
        if known is None:
            return
        name, listener_index = known
        self._of_listener[listener_index] -= 1
        self._count[name] -= 1
        if not self._count[name]:
            del self._count[name]
