"""Logins over `tests.wire`, and the settings of a broker with SASL listeners."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from odradek.protocol.schemas import api_versions, sasl_authenticate, sasl_handshake
from odradek.security.sasl.client import Credentials, login
from tests.wire import Wire, request_frame

PLAIN_LINE = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="admin-secret" '
    'user_admin="admin-secret" user_alice="alice-secret";'
)
ALICE = Credentials("PLAIN", "alice", "alice-secret")
GOOD = b"\0alice\0alice-secret"
BAD = b"\0alice\0wrong"
CORRELATION_ID = 7
"""Of the requests of `frame`."""


def settings(*listeners: str, mechanisms: str = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512") -> dict[str, str]:
    """The settings of a broker with these SASL_PLAINTEXT listeners, and PLAINTEXT as the first one, which `Broker` uses."""
    names = listeners or ("SASL_PLAINTEXT",)
    protocols = [f"{name}:SASL_PLAINTEXT" for name in names]
    config = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in ("PLAINTEXT", *names)),
        "listener.security.protocol.map": ",".join((*protocols, "PLAINTEXT:PLAINTEXT")),
        "sasl.enabled.mechanisms": mechanisms,
    }
    return config | {f"listener.name.{name.lower()}.plain.sasl.jaas.config": PLAIN_LINE for name in names}


def port_of(broker: Any, listener: str) -> int:
    """The port of a listener of a broker."""
    return int(next(one["port"] for one in broker.status()["listeners"] if one["name"] == listener))


def frame(request: Any, api_key: int, version: int) -> bytes:
    """A request as the exchange of a login receives it, without its length."""
    return request_frame(request, api_key, version, CORRELATION_ID, "me")[4:]


def handshake_frame(mechanism: str = "PLAIN", version: int = 1) -> bytes:
    """A SaslHandshake."""
    return frame(sasl_handshake.Request(mechanism=mechanism), sasl_handshake.API_KEY, version)


def authenticate_frame(token: bytes = GOOD, version: int = 2) -> bytes:
    """A SaslAuthenticate."""
    return frame(sasl_authenticate.Request(auth_bytes=token), sasl_authenticate.API_KEY, version)


def versions_frame(version: int = 0, name: str = "x") -> bytes:
    """An ApiVersions of a client with this software name."""
    request = api_versions.Request(client_software_name=name, client_software_version="1")
    return frame(request, api_versions.API_KEY, version)


class SaslWire(Wire):
    """A connection to a listener of a broker, by its name; not logged in."""

    @classmethod
    def on(cls, broker: Any, listener: str = "SASL_PLAINTEXT") -> SaslWire:
        """Connect."""
        return cls("127.0.0.1", port_of(broker, listener))

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> Any:
        """SaslHandshake."""
        return self.ask(sasl_handshake.Request(mechanism=mechanism), sasl_handshake.API_KEY, version)

    def authenticate(self, token: bytes = GOOD, version: int = 2) -> Any:
        """SaslAuthenticate."""
        return self.ask(sasl_authenticate.Request(auth_bytes=token), sasl_authenticate.API_KEY, version)

    def steps(self, credentials: Credentials = ALICE) -> Iterator[Any]:
        """The responses of a login, each of which is yielded before it is used. Raises LoginError, EOFError."""
        client = login(credentials)
        ask = next(client)
        while True:
            response = self.ask(ask.request, ask.api.key, ask.api.max_version)
            yield response
            try:
                ask = client.send(response)
            except StopIteration:
                return

    def log_in(self, credentials: Credentials = ALICE) -> int:
        """Log in; returns the lifetime of the session in ms. Raises LoginError, EOFError."""
        for response in self.steps(credentials):
            last = response
        return int(last.session_lifetime_ms)
