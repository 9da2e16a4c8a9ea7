"""One synchronous connection to a broker: one request at a time, in the newest version that both sides know.

Owned by one thread of a client's process. Plain text only: no TLS, no SASL.
"""

import socket
import struct
import time
from collections.abc import Mapping
from typing import Any

from broker import __version__
from broker.clients.errors import ClientError, Unreachable, Unsupported
from broker.protocol import ProtocolError, api_versions, decode, encode_frame
from broker.protocol.errors import ErrorCode
from broker.protocol.header import RequestHeader, request_header_version, response_header_version
from broker.protocol.schema import ApiSchema

SOFTWARE = "odradek"
"""How this client names itself to a broker; ours tells its private APIs to clients of this name."""
MAX_RESPONSE_BYTES = 256 << 20
_SIZE = struct.Struct(">i")
_ERROR = struct.Struct(">h")
_API_VERSIONS_VERSION = 3


class Connection:
    """:param host: name or address of the broker. :param timeout_s: for the connect, and for each answer.

    Raises Unreachable.
    """

    def __init__(self, host: str, port: int, timeout_s: float, client_id: str = SOFTWARE) -> None:
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._timeout_s = timeout_s
        self._client_id = client_id
        self._correlation_id = 0
        self._ranges: Mapping[int, tuple[int, int]] = {}
        self.unanswered: ApiSchema | None = None
        """The API of a request that was sent, or sent in part, and has no answer yet; None if it only asks to validate."""
        try:
            self._socket = socket.create_connection((host, port), timeout_s)
        except OSError as error:
            raise Unreachable(f"no broker answers at {self.address}: {error.strerror or error}") from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._ranges = self._served()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Harmless when called again."""
        self._socket.close()

    def serves(self, api_key: int) -> tuple[int, int] | None:
        """The oldest and newest version that the broker serves of an API; None if it does not serve it."""
        return self._ranges.get(api_key)

    def version_of(self, api: ApiSchema, oldest: int = 0, newest: int | None = None) -> int:
        """The version to speak. :param oldest: and `newest`: what the caller can use. Raises Unsupported."""
        served = self._ranges.get(api.key)
        if served is None:
            raise Unsupported(f"{self.address} does not serve {api.name}")
        first = max(served[0], api.min_version, oldest)
        last = min(served[1], api.max_version, api.max_version if newest is None else newest)
        if first > last:
            wanted = f"{oldest} to {api.max_version if newest is None else newest}"
            raise Unsupported(
                f"{self.address} serves {api.name} in versions {served[0]} to {served[1]}; this needs one of {wanted}"
            )
        return last

    def ask(
        self,
        api: ApiSchema,
        request: Any,
        *,
        oldest: int = 0,
        newest: int | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """Send a request and wait for its response. Raises Unsupported, Unreachable, ClientError."""
        return self._ask(api, self.version_of(api, oldest, newest), request, timeout_s)

    def _ask(self, api: ApiSchema, version: int, request: Any, timeout_s: float | None = None) -> Any:
        self._correlation_id += 1
        header = RequestHeader(
            request_api_key=api.key,
            request_api_version=version,
            correlation_id=self._correlation_id,
            client_id=self._client_id,
        )
        try:
            frame = encode_frame(header, request_header_version(api.key, version), request, version)
        except ProtocolError as error:
            raise ClientError(f"{api.name} cannot be asked that way in version {version}: {error}") from None
        deadline = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        try:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            self.unanswered = None if getattr(request, "validate_only", False) else api
            self._socket.sendall(frame)
            (size,) = _SIZE.unpack(self._exactly(4, deadline))
            if not 4 <= size <= MAX_RESPONSE_BYTES:
                raise Unreachable(f"what answers at {self.address} is no Kafka broker")
            answer = self._exactly(size, deadline)
            self.unanswered = None
        except TimeoutError:
            self.close()
            raise Unreachable(
                f"{self.address} does not answer a {api.name} request in time; --timeout allows more"
            ) from None
        except OSError as error:
            self.close()
            raise Unreachable(f"the connection to {self.address} broke: {error.strerror or error}") from None
        return self._read(api, version, answer)

    def _read(self, api: ApiSchema, version: int, answer: bytes) -> Any:
        (correlation_id,) = _SIZE.unpack_from(answer)
        try:
            if correlation_id != self._correlation_id:
                raise Unreachable(f"{self.address} answered request {correlation_id} instead of {self._correlation_id}")
            start = 4
            if (
                api.key == api_versions.API_KEY
                and _ERROR.unpack_from(answer, start)[0] == ErrorCode.UNSUPPORTED_VERSION
            ):
                version = 0  # what a broker answers that does not know the version asked
            if response_header_version(api.key, version) == 1:
                start = _after_tags(answer, start)
            response, _ = decode(api.response, version, answer, start)
        except (ProtocolError, IndexError, struct.error) as error:
            self.close()
            raise Unreachable(f"{self.address} answered {api.name} in a way that cannot be read: {error}") from None
        return response

    def _exactly(self, size: int, deadline: float) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
            part = self._socket.recv(min(size - len(parts), 1 << 20))
            if not part:
                raise ConnectionResetError(0, "it was closed by the broker")
            parts += part
        return bytes(parts)

    def _served(self) -> dict[int, tuple[int, int]]:
        """ApiVersions; a broker that does not know our version of it answers in version 0, and is asked in that."""
        schema = api_versions.SCHEMA
        request = api_versions.Request(client_software_name=SOFTWARE, client_software_version=__version__)
        try:
            response = self._ask(schema, _API_VERSIONS_VERSION, request)
        except Unreachable as error:
            raise Unreachable(f"{error}; is it a Kafka broker's plain-text listener?") from None
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            response = self._ask(schema, 0, api_versions.Request())
        if response.error_code:
            raise Unreachable(f"{self.address} refuses to tell its versions (error {response.error_code})")
        return {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}


def _after_tags(data: bytes, at: int) -> int:
    """Behind the tagged fields of a response's header."""
    count, at = _varint(data, at)
    for _ in range(count):
        _, at = _varint(data, at)
        size, at = _varint(data, at)
        at += size
    return at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 28:
            raise IndexError("a length of a header's tagged field is too long")
