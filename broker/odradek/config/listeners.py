"""Parsing and checks of ``listeners``, ``advertised.listeners`` and ``listener.security.protocol.map``.

Pure functions. An address is ``NAME://host:port``. An IPv6 host is in brackets. An empty host means all interfaces.
"""

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from odradek.config.errors import ConfigError, raise_all

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""In the order of their numbers in requests between brokers."""
SUPPORTED_PROTOCOLS = SECURITY_PROTOCOLS
"""Of listeners for clients and for other brokers."""
ENCRYPTED = ("SSL", "SASL_SSL")
_ALL_INTERFACES = ("", "0.0.0.0", "::")
_FORM = "must be NAME://host:port, with an IPv6 host in [brackets], or an empty host for all interfaces"


class Listener(NamedTuple):
    """An address to bind or to return to clients. ``host`` has no brackets; an empty host means all interfaces.

    If ``port`` is 0, the operating system chooses the port when the socket is bound.
    """

    name: str
    host: str
    port: int
    protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"

    @property
    def ipv6(self) -> bool:
        """True if the host is an IPv6 address."""
        return ":" in self.host


def parse_address(key: str, text: str) -> tuple[str, str, int]:
    """Name (upper case), host and port of ``NAME://host:port``. Raises ConfigError for ``key``."""
    name, separator, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    inner = host[1:-1] if bracketed else host
    malformed = (
        not (separator and colon and name)
        or not all(char.isascii() and (char.isalnum() or char in "_-.") for char in name)
        or not (port.isascii() and port.isdigit())
        or any(char in "[]/@ \\\0" for char in inner)
        or bracketed != (":" in inner)
    )
    if malformed:
        raise ConfigError(key, text, _FORM)
    if len(port) > 5 or int(port) > 65535:
        raise ConfigError(key, text, "the port must be from 0 to 65535")
    return name.upper(), inner, int(port)


def parse_protocol_map(text: str, key: str = "listener.security.protocol.map") -> dict[str, str]:
    """Listener name to security protocol from ``NAME:PROTOCOL,...``. Raises ConfigError."""
    protocols: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, separator, protocol = (part.strip() for part in item.partition(":"))
        if not separator or protocol.upper() not in SECURITY_PROTOCOLS:
            raise ConfigError(
                key, item, f"must be NAME:PROTOCOL, where PROTOCOL is one of {', '.join(SECURITY_PROTOCOLS)}"
            )
        if name.upper() in protocols:
            raise ConfigError(key, item, "contains a listener name twice; each name must occur once")
        protocols[name.upper()] = protocol.upper()
    return protocols


def parse_listeners(
    key: str, items: Sequence[str], protocols: Mapping[str, str], skip: Sequence[str] = ()
) -> list[Listener]:
    """Parse ``listeners`` or ``advertised.listeners``; leave out the names in ``skip``.

    Raises ConfigError, with one error per item, for a malformed address, a name without a protocol, a repeated name or a
    protocol that is not supported yet.
    """
    listeners: list[Listener] = []
    errors: list[ConfigError] = []
    names: set[str] = set()
    for item in items:
        try:
            name, host, port = parse_address(key, item)
            if name in names:
                raise ConfigError(key, item, f"the listener name {name} is used twice; each name must occur once")
            names.add(name)
            if name not in skip:
                listeners.append(Listener(name, host, port, _protocol_of(key, item, name, protocols)))
        except ConfigError as error:
            errors.append(error)
    raise_all(errors)
    if not listeners:
        raise ConfigError(key, ",".join(items), "must contain at least one listener for clients")
    return listeners


def _protocol_of(key: str, item: str, name: str, protocols: Mapping[str, str]) -> str:
    protocol = protocols.get(name)
    if protocol is None:
        raise ConfigError(
            key,
            item,
            f"listener.security.protocol.map must contain {name}:PROTOCOL",
        )
    if protocol not in SUPPORTED_PROTOCOLS:
        raise ConfigError(key, item, f"{protocol} is not supported yet; must be {' or '.join(SUPPORTED_PROTOCOLS)}")
    return protocol


def check_ports(listeners: Sequence[Listener], key: str = "listeners") -> None:
    """Refuse two listeners on one port, except one IPv4 and one IPv6 address (KIP-797), and port 0.

    Raises ConfigError.
    """
    by_port: dict[int, list[Listener]] = {}
    for listener in listeners:
        if listener.port:
            by_port.setdefault(listener.port, []).append(listener)
    for port, group in by_port.items():
        families = {listener.ipv6 for listener in group}
        dual_stack = len(group) == 2 and families == {True, False} and all(listener.host for listener in group)
        if len(group) > 1 and not dual_stack:
            raise ConfigError(key, ",".join(map(str, group)), f"port {port} is used twice; each port must occur once")


def means_all_interfaces(listener: Listener) -> bool:
    """Whether the listener is bound to all addresses of this machine."""
    return listener.host in _ALL_INTERFACES


def by_connection(listener: Listener) -> bool:
    """Whether clients of a single broker may receive the address to which they have connected instead of the listener's. Not
    if the listener has a host, which is meant for clients, or TLS, because certificates name hosts."""
    return means_all_interfaces(listener) and listener.protocol not in ENCRYPTED


def parse_host(key: str, text: str) -> tuple[str, int | None]:
    """Host and port of ``host`` or ``host:port``; the port is None if there is none. Raises ConfigError for ``key``."""
    has_port = text.rpartition(":")[2].isdigit() and (text.count(":") == 1 or "]:" in text)
    form = "must be host or host:port, with an IPv6 host in [brackets]"
    try:
        _, host, port = parse_address(key, f"HOST://{text}" if has_port else f"HOST://{text}:0")
    except ConfigError:
        raise ConfigError(key, text, form) from None
    if not host or (has_port and port == 0):
        raise ConfigError(key, text, form)
    return host, port if has_port else None


def advertise(listeners: Sequence[Listener]) -> list[Listener]:
    """The default of advertised.listeners: the listeners, with this machine's name in place of "all interfaces"."""
    return [
        listener._replace(host=os.uname().nodename) if means_all_interfaces(listener) else listener
        for listener in listeners
    ]


def check_advertised(
    listeners: Sequence[Listener], advertised: Sequence[Listener], key: str = "advertised.listeners"
) -> None:
    """Raise ConfigError if an advertised name is not in ``listeners``, or if its host means all interfaces."""
    names = {listener.name for listener in listeners}
    for listener in advertised:
        if listener.name not in names:
            reason = f"listeners does not contain {listener.name}; must be one of {', '.join(sorted(names))}"
            raise ConfigError(key, str(listener), reason)
        if means_all_interfaces(listener):
            raise ConfigError(key, str(listener), "must contain a host name or address that clients can reach")
