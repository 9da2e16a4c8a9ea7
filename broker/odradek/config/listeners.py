"""Listeners: what ``listeners``, ``advertised.listeners`` and ``listener.security.protocol.map`` mean together.

Pure functions. An address is ``NAME://host:port``; an IPv6 host stands in brackets; an empty host is all interfaces.
"""

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from odradek.config.errors import ConfigError, raise_all

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SUPPORTED_PROTOCOLS = ("PLAINTEXT",)
_ALL_INTERFACES = ("", "0.0.0.0", "::")
_FORM = "must be NAME://host:port, an IPv6 host in [brackets], an empty host for all interfaces"


class Listener(NamedTuple):
    """An address to listen on or to tell clients. ``host`` is without brackets; empty means all interfaces.

    ``port`` 0 means one that the system chooses when the socket is bound.
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
    """Name (upper case), host and port of ``NAME://host:port``. Raises ConfigError that names ``key``."""
    name, found, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    inner = host[1:-1] if bracketed else host
    wrong = (
        not (found and colon and name)
        or not all(char.isascii() and (char.isalnum() or char in "_-.") for char in name)
        or not (port.isascii() and port.isdigit())
        or any(char in "[]/@ \\\0" for char in inner)
        or bracketed != (":" in inner)
    )
    if wrong:
        raise ConfigError(key, text, _FORM)
    if len(port) > 5 or int(port) > 65535:
        raise ConfigError(key, text, "the port must be from 0 to 65535")
    return name.upper(), inner, int(port)


def parse_protocol_map(text: str, key: str = "listener.security.protocol.map") -> dict[str, str]:
    """Listener name to security protocol from ``NAME:PROTOCOL,...``. Raises ConfigError."""
    protocols: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, found, protocol = (part.strip() for part in item.partition(":"))
        if not found or protocol.upper() not in SECURITY_PROTOCOLS:
            raise ConfigError(
                key, item, f"must be NAME:PROTOCOL, a protocol being one of {', '.join(SECURITY_PROTOCOLS)}"
            )
        if name.upper() in protocols:
            raise ConfigError(key, item, "names a listener twice")
        protocols[name.upper()] = protocol.upper()
    return protocols


def parse_listeners(
    key: str, items: Sequence[str], protocols: Mapping[str, str], skip: Sequence[str] = ()
) -> list[Listener]:
    """The listeners of ``listeners`` or ``advertised.listeners``, without those named in ``skip``.

    Raises ConfigError for a malformed address, a name without protocol, a repeated name, a protocol not supported yet:
    one error for each item.
    """
    found: list[Listener] = []
    errors: list[ConfigError] = []
    names: set[str] = set()
    for item in items:
        try:
            name, host, port = parse_address(key, item)
            if name in names:
                raise ConfigError(key, item, f"names the listener {name} twice")
            names.add(name)
            if name not in skip:
                found.append(Listener(name, host, port, _protocol_of(key, item, name, protocols)))
        except ConfigError as error:
            errors.append(error)
    raise_all(errors)
    if not found:
        raise ConfigError(key, ",".join(items), "must name at least one listener for clients")
    return found


def _protocol_of(key: str, item: str, name: str, protocols: Mapping[str, str]) -> str:
    protocol = protocols.get(name)
    if protocol is None:
        raise ConfigError(key, item, f"listener.security.protocol.map must give {name} a security protocol")
    if protocol not in SUPPORTED_PROTOCOLS:
        raise ConfigError(key, item, f"{protocol} is not supported yet; must be {' or '.join(SUPPORTED_PROTOCOLS)}")
    return protocol


def check_ports(listeners: Sequence[Listener], key: str = "listeners") -> None:
    """Refuses two listeners on one port, except one IPv4 and one IPv6 address (KIP-797), and port 0.

    Raises ConfigError.
    """
    by_port: dict[int, list[Listener]] = {}
    for listener in listeners:
        if listener.port:
            by_port.setdefault(listener.port, []).append(listener)
    for port, group in by_port.items():
        families = {listener.ipv6 for listener in group}
        if len(group) > 1 and not (len(group) == 2 and families == {True, False} and all(one.host for one in group)):
            raise ConfigError(key, ",".join(map(str, group)), f"uses the port {port} twice")


def advertise(listeners: Sequence[Listener]) -> list[Listener]:
    """What clients are told when nothing says otherwise: the listeners, this machine's name for all interfaces."""
    return [one._replace(host=os.uname().nodename) if one.host in _ALL_INTERFACES else one for one in listeners]


def check_advertised(
    listeners: Sequence[Listener], advertised: Sequence[Listener], key: str = "advertised.listeners"
) -> None:
    """Every advertised name must be listened on and its host one that clients can reach. Raises ConfigError."""
    names = {listener.name for listener in listeners}
    for one in advertised:
        if one.name not in names:
            raise ConfigError(key, str(one), f"listeners has no {one.name}; must be one of {', '.join(sorted(names))}")
        if one.host in _ALL_INTERFACES:
            raise ConfigError(key, str(one), "must name a host that clients can reach")
