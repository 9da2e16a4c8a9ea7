"""The first requests of a connection to another broker, without I/O: versions, login, and what a broker may do wrong."""

from typing import Any

import pytest

from odradek.protocol import ProtocolError, encode_frame
from odradek.protocol.client_connection import (
    ClientConnection,
    CorrelationError,
    UnservedError,
    VersionsRefused,
    converse,
    renewal_s,
)
from odradek.protocol.registry import by_key
from odradek.protocol.schema import Ask
from odradek.protocol.schemas import api_versions, sasl_authenticate, sasl_handshake
from odradek.protocol.schemas.header import ResponseHeader, decode_request_header, response_header_version
from odradek.security.opening import MAX_OPENING_BYTES, opening
from odradek.security.sasl.client import PLAIN, Credentials, LoginError

CREDENTIALS = Credentials(PLAIN, "b", "secret")
SERVED = {18: (0, 3), 17: (0, 1), 36: (0, 2)}


class Broker:
    """Responds to a connection. :ivar requests: API key and version of each request. :ivar responses: by API key."""

    def __init__(self, served: dict[int, tuple[int, int]] = SERVED) -> None:
        row = api_versions.Response.ApiVersion
        rows = [row(api_key=key, min_version=low, max_version=high) for key, (low, high) in served.items()]
        self.responses = {
            18: api_versions.Response(api_keys=rows),
            17: sasl_handshake.Response(mechanisms=[PLAIN]),
            36: sasl_authenticate.Response(session_lifetime_ms=60_000),
        }
        self.requests: list[tuple[int, int]] = []
        self.skipped_ids = 0
        self.connection = ClientConnection("7", MAX_OPENING_BYTES)

    def answer(self, ask: Ask) -> Any:
        header, _ = decode_request_header(self.connection.ask(ask), 4)
        key, version = header.request_api_key, header.request_api_version
        self.requests.append((key, version))
        head = ResponseHeader(correlation_id=header.correlation_id + self.skipped_ids)
        schema = by_key(key)
        frame = encode_frame(head, response_header_version(schema.key, version), self.responses[key], version)
        for at in range(len(frame)):
            assert not self.connection.frames.complete()
            self.connection.frames.feed(frame[at : at + 1])
        return self.connection.response()

    def open(self, credentials: Credentials | None = CREDENTIALS) -> int:
        return converse(opening(credentials), self.answer)


def test_a_connection_without_a_login_only_asks_for_the_versions() -> None:
    broker = Broker()
    assert broker.open(None) == 0
    assert broker.requests == [(18, 3)] and broker.connection.ranges == SERVED


def test_a_login_follows_in_the_newest_versions_and_each_connection_has_its_own() -> None:
    for _ in range(2):  # the session is renewed with a new connection
        broker = Broker()
        lifetime_ms = broker.open()
        assert broker.requests == [(18, 3), (17, 1), (36, 2)]
        assert renewal_s(0.0, lifetime_ms) == 48.0


def test_a_session_of_a_broker_that_states_no_lifetime_is_not_renewed() -> None:
    broker = Broker(SERVED | {36: (0, 0)})
    broker.responses[36].session_lifetime_ms = 0  # version 0 has no lifetime
    assert renewal_s(0.0, broker.open()) is None
    assert broker.requests[-1] == (36, 0)


@pytest.mark.parametrize(
    ("served", "name"),
    [
        ({18: (0, 3)}, "SaslHandshake"),
        (SERVED | {17: (0, 0)}, "SaslHandshake"),
        ({18: (0, 3), 17: (0, 1)}, "SaslAuthenticate"),
    ],
)
def test_a_broker_that_serves_no_version_of_the_login_is_refused(served: dict[int, tuple[int, int]], name: str) -> None:
    with pytest.raises(UnservedError, match=f"it serves no version of {name} that this broker knows"):
        Broker(served).open()


def test_a_refused_login_and_refused_versions_end_the_opening() -> None:
    for key, code, kind, words in (
        (36, 58, LoginError, "SASL_AUTHENTICATION_FAILED"),
        (17, 33, LoginError, "does not enable SASL mechanism PLAIN"),
        (18, 31, VersionsRefused, "ApiVersions: it was refused with error code 31"),
    ):
        broker = Broker()
        broker.responses[key].error_code = code
        with pytest.raises(kind, match=words):
            broker.open()


def test_a_response_to_another_request_and_a_large_one_end_the_opening() -> None:
    broker = Broker()
    broker.skipped_ids = 1
    with pytest.raises(CorrelationError):
        broker.open()
    broker = Broker()
    broker.connection.frames.most_bytes = 20
    with pytest.raises(ProtocolError, match="its size is"):
        broker.open()
