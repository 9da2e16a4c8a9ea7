"""One connection to a broker: requests in the newest version that both sides know, one at a time or several on their way.

Owned by one thread of a client's process. Plain text only: no TLS, no SASL.
"""

import socket
import struct
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from odradek import __version__
from odradek.clients.errors import ClientError, Unreachable, Unsupported
from odradek.protocol import ProtocolError, decode, encode_frame
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ApiSchema
from odradek.protocol.schemas import api_versions
from odradek.protocol.schemas.header import RequestHeader, request_header_version, response_header_version

SOFTWARE = "odradek"
"""How this client names itself to a broker; ours tells its private APIs to clients of this name."""
MAX_RESPONSE_BYTES = 256 << 20
_SIZE = struct.Struct(">i")
_ERROR = struct.Struct(">h")
_API_VERSIONS_VERSION = 3
_ALLOW_MORE = "--timeout allows more"


class Readable(Protocol):
    """What `select` can wait for."""

    def fileno(self) -> int: ...


class _Sent(NamedTuple):
    """A request that waits for its response. :param changes: False if it only asks to validate."""

    correlation_id: int
    api: ApiSchema
    version: int
    changes: bool


class Connection:
    """:param host: name or address of the broker. :param timeout_s: for the connect, and for each answer.

    ``features``: the lowest and highest level that the broker supports of each feature of a cluster that it tells.

    Raises Unreachable.
    """

    def __init__(self, host: str, port: int, timeout_s: float, client_id: str = SOFTWARE) -> None:
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._timeout_s = timeout_s
        self._client_id = client_id
        self._correlation_id = 0
        self._ranges: Mapping[int, tuple[int, int]] = {}
        self.features: Mapping[str, tuple[int, int]] = {}
        self._sent: deque[_Sent] = deque()
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

    @property
    def apis(self) -> Mapping[int, tuple[int, int]]:
        """The oldest and newest version that the broker serves, by API key."""
        return self._ranges

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
        self.send(api, request, version=self.version_of(api, oldest, newest))
        return self.receive(timeout_s)

    def send(self, api: ApiSchema, request: Any, *, version: int, answered: bool = True) -> None:
        """Send a request, whose response `receive` returns. Raises Unreachable, ClientError.

        :param answered: False for a request that gets no response (Produce with acks=0).
        """
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
            raise ClientError(f"a {api.name} request of version {version} cannot be written: {error}") from None
        if answered:
            changes = not getattr(request, "validate_only", False)
            self._sent.append(_Sent(self._correlation_id, api, version, changes))
        try:
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(frame)
        except TimeoutError:
            self.close()
            raise Unreachable(f"{self.address} did not take a {api.name} request in time; {_ALLOW_MORE}") from None
        except OSError as error:
            self.close()
            raise Unreachable(f"the connection to {self.address} broke: {error.strerror or error}") from None

    def receive(self, timeout_s: float | None = None) -> Any:
        """Wait for the response to the oldest request that has none yet. Raises Unreachable.

        Fields of type `records` are views of memory that is the caller's.
        """
        sent = self._sent[0]
        deadline = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        try:
            (size,) = _SIZE.unpack(self._exactly(4, deadline))
            if not 4 <= size <= MAX_RESPONSE_BYTES:
                raise Unreachable(f"what answers at {self.address} is no Kafka broker")
            answer = self._exactly(size, deadline)
        except TimeoutError:
            self.close()
            raise Unreachable(
                f"{self.address} does not answer a {sent.api.name} request in time; {_ALLOW_MORE}"
            ) from None
        except OSError as error:
            self.close()
            raise Unreachable(f"the connection to {self.address} broke: {error.strerror or error}") from None
        self._sent.popleft()
        return self._read(sent, answer)

    def fileno(self) -> int:
        """Readable when a response, or the end of the connection, has come; -1 once it is closed."""
        return self._socket.fileno()

    @property
    def unanswered(self) -> list[str]:
        """Names of the APIs of requests that have no response yet and do more than validate."""
        return [sent.api.name for sent in self._sent if sent.changes]

    def _read(self, sent: "_Sent", answer: bytearray) -> Any:
        api, version = sent.api, sent.version
        (correlation_id,) = _SIZE.unpack_from(answer)
        try:
            if correlation_id != sent.correlation_id:
                raise Unreachable(f"{self.address} answered request {correlation_id} instead of {sent.correlation_id}")
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

    def _exactly(self, size: int, deadline: float) -> bytearray:
        answer = bytearray(size)
        left = memoryview(answer)
        while left:
            wait = deadline - time.monotonic()
            if wait <= 0:
                raise TimeoutError
            self._socket.settimeout(wait)
            got = self._socket.recv_into(left)
            if not got:
                raise ConnectionResetError(0, "it was closed by the broker")
            left = left[got:]
        return answer

    def _served(self) -> dict[int, tuple[int, int]]:
        """ApiVersions; a broker that does not know our version of it answers in version 0, and is asked in that."""
        schema = api_versions.SCHEMA
        request = api_versions.Request(client_software_name=SOFTWARE, client_software_version=__version__)
        try:
            self.send(schema, request, version=_API_VERSIONS_VERSION)
            response = self.receive()
        except Unreachable as error:
            raise Unreachable(f"{error}; is it a Kafka broker's plain-text listener?") from None
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            self.send(schema, api_versions.Request(), version=0)
            response = self.receive()
        if response.error_code:
            raise Unreachable(f"{self.address} refuses to tell its versions (error {response.error_code})")
        self.features = {one.name: (one.min_version, one.max_version) for one in response.supported_features}
        return {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}


def _after_tags(data: bytearray, at: int) -> int:
    """Behind the tagged fields of a response's header."""
    count, at = _varint(data, at)
    for _ in range(count):
        _, at = _varint(data, at)
        size, at = _varint(data, at)
        at += size
    return at


def _varint(data: bytearray, at: int) -> tuple[int, int]:
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
