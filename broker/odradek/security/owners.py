"""The owner of what clients use together: the one whose share of a limit a client takes, and whose turn a request has.

Any process. Every table whose key is a client's address uses `network_of_peer` or `owner_of`, so that one host does not become
many by using other addresses of its IPv6 network (`tests/security/test_owners.py` looks for other keys).
"""

from typing import NamedTuple

from odradek._ext.shm.owners import network_of
from odradek.security.acl import ANONYMOUS


def network_of_peer(peer: str) -> str:
    """The IPv4 address, or the 64-bit network of the IPv6 address; another text as it is.

    :param peer: an address, with or without a port: "10.0.0.1:5", "[::1]:5", "::1".
    """
    host, colon, port = peer.rpartition(":")
    return network_of(host if colon and port.isdigit() and (host.endswith("]") or ":" not in host) else peer)


def owner_of(principal: str, peer: str) -> str:
    """The principal of a client that has logged in, else its network. :param peer: see `network_of_peer`."""
    return network_of_peer(peer) if principal in ("", ANONYMOUS) else principal


class Client(NamedTuple):
    """The client of a request, as text in log lines. :param host: its address without a port."""

    principal: str = ""
    host: str = ""

    @property
    def owner(self) -> str:
        """See `owner_of`."""
        return owner_of(*self)

    def __str__(self) -> str:
        return self.host if self.principal in ("", ANONYMOUS) else f"{self.host} ({self.principal})"


NOBODY = Client()
"""The client of what no request causes."""
