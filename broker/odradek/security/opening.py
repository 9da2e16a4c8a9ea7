"""The first requests of a connection to another broker: ApiVersions, and the login if the listener uses SASL."""

from collections.abc import Generator
from typing import Any

from odradek.protocol.client_connection import negotiation
from odradek.protocol.schema import Ask
from odradek.security.sasl.client import Credentials, TokenCredentials, login

VERSIONS_VERSION = 3
"""The version of ApiVersions that a broker requests."""
MAX_OPENING_BYTES = 1 << 20
"""The largest response of a broker that has not been authenticated yet."""
RETRY_MS = 500
"""The least time between two attempts to connect to a broker after a failed handshake or login."""

Opening = Generator[Ask, Any, int]
"""Returns the lifetime of the session in ms; 0: unlimited. Raises LoginError, VersionsRefused."""


class PeerRefused(Exception):
    """The TLS handshake or the login with another broker failed. The message is one line, without secrets."""


def opening(credentials: Credentials | TokenCredentials | None) -> Opening:
    """Ask for the versions that the broker serves, then log in. :param credentials: None: the listener does not use SASL."""
    yield from negotiation(VERSIONS_VERSION)
    return 0 if credentials is None else (yield from login(credentials))
