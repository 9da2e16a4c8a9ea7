"""Client addresses as ACLs name them.

Kafka compares hosts as text, and writes IPv6 addresses in Java's long form (`0:0:0:0:0:0:0:1`). Here each spelling of an
address is equal. An IPv4 address in an IPv6 socket (`::ffff:10.0.0.1`) is an IPv4 address, as in Java.
"""

import ipaddress
from functools import lru_cache

LOOPBACK = ("127.0.0.1", "::1", "localhost")
"""What is sent to these hosts does not leave the machine."""


@lru_cache(4096)
def normal_host(host: str) -> str:
    """The form in which hosts are compared and shown; other texts than addresses, such as "*", are returned unchanged."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return ":".join(f"{int(part, 16):x}" for part in address.exploded.split(":"))


def host_of_peer(peer: str) -> str:
    """The normal form of the address in "127.0.0.1:5" or "[::1]:5"."""
    return normal_host(peer.rpartition(":")[0].strip("[]"))
