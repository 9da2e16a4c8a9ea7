"""The first requests of a connection to another broker, without I/O: ApiVersions, and the login if the listener uses SASL.

A generator yields each request as bytes and receives the response. Blocking connections and those of an event loop use the
same one.
"""

from collections.abc import Generator
from typing import Any, NamedTuple

from odradek import __version__
from odradek.protocol import ProtocolError, decode, encode_frame
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ApiSchema
from odradek.protocol.schemas import api_versions
from odradek.protocol.schemas.header import (
    RequestHeader,
    ResponseHeader,
    request_header_version,
    response_header_version,
)
from odradek.security.sasl.client import Credentials, LoginError, TokenCredentials, login

SOFTWARE = "odradek"
_VERSIONS_VERSION = 3

RETRY_MS = 500
"""The least time between two attempts to connect to a broker after a failed handshake or login."""


class PeerRefused(Exception):
    """The TLS handshake or the login with another broker failed. The message is one line, without secrets."""


Ranges = dict[int, tuple[int, int]]
"""By API key: the oldest and the newest version that a broker serves."""


class Opened(NamedTuple):
    """The result. :param lifetime_ms: of the session; 0: unlimited. :param correlation_id: of the last request."""

    ranges: Ranges
    lifetime_ms: int
    correlation_id: int


Opening = Generator[bytes, bytes, Opened]
"""Yields frames with their length, receives frames without it. Raises LoginError, ProtocolError."""


def opening(client_id: str, credentials: Credentials | TokenCredentials | None) -> Opening:
    """Ask for the versions that the broker serves, then log in. :param credentials: None: the listener does not use SASL."""
    correlation_id = 1
    message = api_versions.Request(client_software_name=SOFTWARE, client_software_version=__version__)
    frame = yield _encode(api_versions.SCHEMA, message, _VERSIONS_VERSION, correlation_id, client_id)
    ranges = _ranges(frame, correlation_id)
    if credentials is None:
        return Opened(ranges, 0, correlation_id)
    steps = login(credentials)
    ask = next(steps)
    while True:
        oldest, newest = ranges.get(ask.api.key, (0, -1))
        version = min(newest, ask.api.max_version)
        if version < max(oldest, ask.oldest):
            raise LoginError(f"it serves no version of {ask.api.name} that this broker knows")
        correlation_id += 1
        frame = yield _encode(ask.api, ask.request, version, correlation_id, client_id)
        response = _decode(ask.api, version, correlation_id, frame)
        try:
            ask = steps.send(response)
        except StopIteration as end:
            return Opened(ranges, int(end.value), correlation_id)


def _encode(api: ApiSchema, message: Any, version: int, correlation_id: int, client_id: str) -> bytes:
    header = RequestHeader(
        request_api_key=api.key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    return encode_frame(header, request_header_version(api.key, version), message, version)


def _decode(api: ApiSchema, version: int, correlation_id: int, frame: bytes) -> Any:
    header, start = decode(ResponseHeader, response_header_version(api.key, version), frame)
    if header.correlation_id != correlation_id:
        raise ProtocolError(f"it sent a response with another correlation id to {api.name}")
    if api is api_versions.SCHEMA and frame[start : start + 2] == int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big"):
        version = 0  # of a broker that does not know this version of ApiVersions
    return decode(api.response, version, frame, start)[0]


def _ranges(frame: bytes, correlation_id: int) -> Ranges:
    response = _decode(api_versions.SCHEMA, _VERSIONS_VERSION, correlation_id, frame)
    if response.error_code not in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
        raise ProtocolError(f"it refused ApiVersions with error code {response.error_code}")
    return {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
