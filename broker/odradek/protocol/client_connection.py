"""The client's side of a connection, without I/O: frames, correlation ids, headers, and the versions that the broker serves.

The owner passes in the bytes that it receives and sends the frames that the methods return. The owner has the socket, the
clock and the limits of time, and decides what an error means; after a ProtocolError the connection cannot be used any more.
Not thread-safe. Three modules use it: `net.peers` (an event loop), `clients.wire` and `replication.leader_connection` (blocking
sockets). Decision 47 says what differs between them.

A conversation that needs several requests, such as a login, is a generator: it yields each `Ask` and receives the response.
"""

import struct
from collections import deque
from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple, TypeVar

from odradek import __version__
from odradek._ext.protocol.decoder import decode
from odradek._ext.protocol.encoder import encode_frame
from odradek._ext.protocol.messages import ProtocolError
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ApiSchema, Ask
from odradek.protocol.schemas import api_versions
from odradek.protocol.schemas.header import (
    RequestHeader,
    ResponseHeader,
    request_header_version,
    response_header_version,
)

SOFTWARE = "odradek"
"""The software name that this client sends; Odradek lists its private APIs only to clients with this name."""
RENEWED_AFTER = 0.8
"""A connection is replaced after this fraction of the lifetime of its session."""
_SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">ihhih")
"""Size, API key, version, correlation id, length of the client id: a request header before the flexible versions."""
_FIRST_BYTES = 1 << 20
"""The memory of a larger frame grows as its bytes arrive: a sender cannot cause a large allocation with a size alone."""
_NOTHING = memoryview(b"")
_UNSUPPORTED = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")

Result = TypeVar("Result")
Frame = bytearray | memoryview
"""A response without its size."""


class FrameSizeError(ProtocolError):
    """A frame is too large, or too small for a header. :ivar head: the bytes that should be its size."""

    def __init__(self, size: int, head: bytes) -> None:
        super().__init__(f"its size is {size} bytes", message="response")
        self.size, self.head = size, head


class CorrelationError(ProtocolError):
    """A response does not belong to the oldest request that has no response yet."""

    def __init__(self, api: ApiSchema, received: int, expected: int) -> None:
        super().__init__(
            f"it has the correlation id {received} instead of {expected}", message=f"response to {api.name}"
        )
        self.received, self.expected = received, expected


class VersionsRefused(ProtocolError):
    """The broker returned an error to ApiVersions."""

    def __init__(self, code: int) -> None:
        super().__init__(f"it was refused with error code {code}", message="ApiVersions")
        self.code = code


class UnservedError(Exception):
    """The broker serves no version of an API that the client knows, or does not serve the API."""

    def __init__(self, api: ApiSchema) -> None:
        super().__init__(f"it serves no version of {api.name} that this broker knows")


class PendingRequest(NamedTuple):
    """A request that waits for its response. :ivar changes: False if the broker only validates the request."""

    correlation_id: int
    api: ApiSchema
    version: int
    changes: bool = True


class Frames:
    """Cuts the received bytes into frames. The owner receives into `room`, without a copy, or passes bytes to `feed`.

    :ivar most_bytes: a larger frame raises FrameSizeError. :ivar shares_memory: all frames use the same memory, so that
        the next frame overwrites the one that `take` has returned.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.shares_memory = False
        self.ahead = _NOTHING
        """Bytes that were passed to `feed` and are not in a frame yet."""
        self._head = bytearray(_SIZE.size)
        self._body: Frame | None = None  # None: the size has not arrived
        self._body_bytes = 0  # of the whole frame
        self._memory = bytearray()
        self.room = memoryview(self._head)
        """The missing part of the size or of the frame; empty if the frame is complete or is held."""

    def filled(self, count: int) -> None:
        """Note that `count` bytes were received into the beginning of `room`."""
        self.room = self.room[count:]

    def feed(self, data: bytes) -> None:
        """Add bytes that were received into other memory."""
        self.ahead = memoryview(bytes(self.ahead) + data if self.ahead else data)

    @property
    def begun(self) -> bool:
        """Whether bytes have arrived that `take` has not returned."""
        return bool(self.ahead) or self._body is not None or len(self.room) < _SIZE.size

    @property
    def held_bytes(self) -> int:
        """The size of a frame that `complete` does not begin, because it is larger than `most_now`; 0: there is none."""
        return 0 if self._body is not None or self.room else int(_SIZE.unpack(self._head)[0])

    @property
    def begun_bytes(self) -> int:
        """The size of the frame that is being received; 0: its size has not arrived, or the frame is held."""
        return 0 if self._body is None else self._body_bytes

    @property
    def arrived_bytes(self) -> int:
        """How much of the frame has arrived, without its size."""
        return 0 if self._body is None else len(self._body) - len(self.room)

    def complete(self, most_now: int | None = None) -> bool:
        """Whether a whole frame has arrived. Raises FrameSizeError.

        :param most_now: a larger frame is held: only its size is taken.
        """
        while True:
            if self.ahead and self.room:
                taken = min(len(self.ahead), len(self.room))
                self.room[:taken] = self.ahead[:taken]
                self.ahead, self.room = self.ahead[taken:] or _NOTHING, self.room[taken:]
            if self.room:
                return False
            if self._body is not None:
                if len(self._body) == self._body_bytes:
                    return True
                self._grow(self._body)
                continue
            size = self.held_bytes
            if not _SIZE.size <= size <= self.most_bytes:
                raise FrameSizeError(size, bytes(self._head))
            if most_now is not None and size > most_now:
                return False
            self._body_bytes = size
            if not self.shares_memory:
                self._body = bytearray(min(size, _FIRST_BYTES))
            else:
                if size > len(self._memory):
                    self._memory = bytearray(size)
                self._body = memoryview(self._memory)[:size]
            self.room = memoryview(self._body)

    def _grow(self, body: Frame) -> None:
        """Double the memory of the frame, which is full."""
        assert isinstance(body, bytearray)
        filled = len(body)
        self.room.release()
        body.extend(bytes(min(filled, self._body_bytes - filled)))
        self.room = memoryview(body)[filled:]

    def take(self) -> Frame | None:
        """The next frame, which the owner keeps; None if it is not complete. Raises FrameSizeError."""
        if not self.complete():
            return None
        frame, self._body, self.room = self._body, None, memoryview(self._head)
        return frame

    def release(self, most_bytes: int) -> None:
        """Free the memory that frames share if it has more than this."""
        if len(self._memory) > most_bytes:
            self._memory = bytearray()


class ClientConnection:
    """Makes requests and reads responses, which arrive in the order of the requests. :param most_bytes: see `Frames`.

    :ivar ranges: the oldest and newest version that the broker serves, by API key; None until it has responded to ApiVersions.
    """

    def __init__(self, client_id: str, most_bytes: int) -> None:
        self.frames = Frames(most_bytes)
        self.pending: deque[PendingRequest] = deque()
        self.ranges: Mapping[int, tuple[int, int]] | None = None
        self._client_id = client_id
        self._correlation_id = 0

    def version_of(self, api: ApiSchema, oldest: int = 0, newest: int | None = None) -> int:
        """The newest version that both sides know, within these limits; `ranges` None: the newest that this side knows.

        Raises UnservedError.
        """
        first, last = (0, api.max_version) if self.ranges is None else self.ranges.get(api.key, (0, -1))
        last = min(last, api.max_version, api.max_version if newest is None else newest)
        if last < max(first, api.min_version, oldest):
            raise UnservedError(api)
        return last

    def ask(self, ask: Ask) -> bytes:
        """The frame of a request. Raises UnservedError, ProtocolError."""
        return self.request(ask.api, ask.request, self.version_of(ask.api, ask.oldest, ask.newest))

    def request(self, api: ApiSchema, message: Any, version: int, answered: bool = True) -> bytes:
        """The frame of a request. Raises ProtocolError. :param answered: whether the broker responds."""
        number = self._next_id()
        header = RequestHeader(
            request_api_key=api.key, request_api_version=version, correlation_id=number, client_id=self._client_id
        )
        frame = encode_frame(header, request_header_version(api.key, version), message, version)
        if answered:
            changes = not getattr(message, "validate_only", False)
            self.pending.append(PendingRequest(number, api, version, changes))
        return frame

    def head(self, api: ApiSchema, version: int, body_bytes: int) -> bytes:
        """Size and header of a request with a body of so many bytes. :param version: not a flexible one."""
        client_id, number = self._client_id.encode(), self._next_id()
        self.pending.append(PendingRequest(number, api, version))
        size = _HEAD.size - _SIZE.size + len(client_id) + body_bytes
        return _HEAD.pack(size, api.key, version, number, len(client_id)) + client_id

    def _next_id(self) -> int:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        return self._correlation_id

    def response(self) -> Any:
        """The response to the oldest request, decoded; None if it is not complete. Raises ProtocolError."""
        frame = self.frames.take()
        return None if frame is None else self.decode(frame)

    def decode(self, frame: Frame) -> Any:
        """The response in a frame. Fields of type `records` are memoryviews of it. Raises ProtocolError."""
        if not self.pending:
            raise ProtocolError("a response arrived without a request")
        number, api, version, _ = self.pending.popleft()
        (received,) = _SIZE.unpack_from(frame)
        if received != number:
            raise CorrelationError(api, received, number)
        start = decode(ResponseHeader, 1, frame)[1] if response_header_version(api.key, version) else _SIZE.size
        if api.key == api_versions.API_KEY and bytes(frame[start : start + 2]) == _UNSUPPORTED:
            version = 0  # a broker that does not know the requested version answers in version 0
        message = decode(api.response, version, frame, start)[0]
        if api.key == api_versions.API_KEY and not message.error_code:
            self.ranges = {row.api_key: (row.min_version, row.max_version) for row in message.api_keys}
        return message


def negotiation(version: int) -> Generator[Ask, Any, Any]:
    """Request the versions that the broker serves. Returns the response to ApiVersions. Raises VersionsRefused.

    A broker that does not know the version answers in version 0, which names the versions that it knows. Then the request is
    sent again in the newest of these, or in version 0 if the response names none (before Kafka 2.4).
    """
    request = api_versions.Request(client_software_name=SOFTWARE, client_software_version=__version__)
    response = yield Ask(api_versions.SCHEMA, request, newest=version)
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        known = (row.max_version for row in response.api_keys if row.api_key == api_versions.API_KEY)
        response = yield Ask(api_versions.SCHEMA, request, newest=max(0, min(next(known, 0), version)))
    if response.error_code:
        raise VersionsRefused(response.error_code)
    return response


def converse(steps: Generator[Ask, Any, Result], ask: Callable[[Ask], Any]) -> Result:
    """Hold a conversation and return its result. :param ask: sends a request and returns the response."""
    try:
        wanted = next(steps)
        while True:
            wanted = steps.send(ask(wanted))
    except StopIteration as end:
        result: Result = end.value
        return result


def renewal_s(began_s: float, lifetime_ms: int) -> float | None:
    """When a connection must be replaced, because the session of its login ends soon: in seconds of the clock of `began_s`.

    :param began_s: a time before the login. :param lifetime_ms: of the session; 0: unlimited, and None is returned.
    """
    return began_s + lifetime_ms / 1000 * RENEWED_AFTER if lifetime_ms > 0 else None
