"""The frames in which workers hand requests to the coordinator, and it the answers back.

Pure functions, and a cutter of streams. Big-endian, length-prefixed (u32, not counting itself). Request: correlation
u64, kind u8, connection u64, deadline f64, listener u16, five texts (u16 length; 65535 for none), then the payload.
Response: correlation u64, status u8, metadata version u64, payload.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

MAX_FRAME_BYTES = 128 << 20

_LENGTH = struct.Struct(">I")
_REQUEST = struct.Struct(">QBQdH")
_RESPONSE = struct.Struct(">QBQ")
_TEXT = struct.Struct(">H")
_NO_TEXT = 0xFFFF


class Kind(IntEnum):
    """What a request frame asks for."""

    KAFKA = 0  # payload: a Kafka request with its header, without its length
    AUTO_CREATE = 1  # payload: topic names, see `encode_names`; answered by `encode_auto_created`
    METRICS = 3  # no payload: all groups, for the reporter; answered as `broker.metrics.group_rows` writes them
    CANCEL = 2  # the connection is gone: drop what it asked for; never answered


class Status(IntEnum):
    """How a request ended. Payload comes with OK alone."""

    OK = 0
    FAILED = 1  # the handler raised: answer UNKNOWN_SERVER_ERROR, or close
    MALFORMED = 2  # the request cannot be decoded: close the connection
    UNSUPPORTED = 3  # no handler for that API or version


class MalformedFrame(ValueError):
    """Bytes that are no frame of this protocol."""


class ForwardContext(NamedTuple):
    """Where a request came from: what authorisation, quotas and logs need to know of the client's connection."""

    connection_id: int
    listener: int  # index in ``listeners``
    peer: str
    client_id: str | None = None
    principal: str = "User:ANONYMOUS"
    software_name: str | None = None
    software_version: str | None = None


class ForwardRequest(NamedTuple):
    """A request as the coordinator gets it.

    ``deadline`` is in the time of the event loops, which on one machine is the same in every process (CLOCK_MONOTONIC):
    afterwards nobody waits for the answer.
    """

    kind: Kind
    context: ForwardContext
    deadline: float
    payload: bytes


class ForwardReply(NamedTuple):
    """An answer; a worker passes it on only once it has taken over ``metadata_version``."""

    status: Status
    metadata_version: int
    payload: bytes = b""


def _texts(values: tuple[str | None, ...]) -> bytes:
    parts = []
    for value in values:
        data = b"" if value is None else value.encode()[: _NO_TEXT - 1]
        parts.append(_TEXT.pack(_NO_TEXT if value is None else len(data)) + data)
    return b"".join(parts)


def _read_texts(frame: bytes, position: int, count: int) -> tuple[list[str | None], int]:
    found: list[str | None] = []
    for _ in range(count):
        if position + 2 > len(frame):
            raise MalformedFrame("text beyond the frame's end")
        (length,) = _TEXT.unpack_from(frame, position)
        position += 2
        if length == _NO_TEXT:
            found.append(None)
            continue
        if position + length > len(frame):
            raise MalformedFrame("text beyond the frame's end")
        found.append(frame[position : position + length].decode("utf-8", "replace"))
        position += length
    return found, position


def encode_request(correlation: int, kind: Kind, context: ForwardContext, deadline: float, payload: bytes) -> bytes:
    """A request's frame, length included."""
    texts = _texts(
        (context.peer, context.client_id, context.principal, context.software_name, context.software_version)
    )
    head = _REQUEST.pack(correlation, kind, context.connection_id, deadline, context.listener)
    return b"".join((_LENGTH.pack(len(head) + len(texts) + len(payload)), head, texts, payload))


def decode_request(frame: bytes) -> tuple[int, ForwardRequest]:
    """Correlation and request of a frame without its length. Raises MalformedFrame."""
    if len(frame) < _REQUEST.size:
        raise MalformedFrame(f"request frame of {len(frame)} bytes")
    correlation, kind, connection_id, deadline, listener = _REQUEST.unpack_from(frame)
    (peer, client_id, principal, name, version), position = _read_texts(frame, _REQUEST.size, 5)
    try:
        known = Kind(kind)
    except ValueError:
        raise MalformedFrame(f"request frame of kind {kind}") from None
    context = ForwardContext(connection_id, listener, peer or "", client_id, principal or "", name, version)
    return correlation, ForwardRequest(known, context, deadline, frame[position:])


def encode_reply(correlation: int, reply: ForwardReply) -> bytes:
    """A response's frame, length included."""
    head = _RESPONSE.pack(correlation, reply.status, reply.metadata_version)
    return b"".join((_LENGTH.pack(len(head) + len(reply.payload)), head, reply.payload))


def decode_reply(frame: bytes) -> tuple[int, ForwardReply]:
    """Correlation and response of a frame without its length. Raises MalformedFrame."""
    if len(frame) < _RESPONSE.size:
        raise MalformedFrame(f"response frame of {len(frame)} bytes")
    correlation, status, version = _RESPONSE.unpack_from(frame)
    try:
        return correlation, ForwardReply(Status(status), version, frame[_RESPONSE.size :])
    except ValueError:
        raise MalformedFrame(f"response frame of status {status}") from None


def encode_names(names: list[str]) -> bytes:
    """The payload of AUTO_CREATE."""
    return _texts(tuple(names))


def decode_names(payload: bytes) -> list[str]:
    """Topic names of AUTO_CREATE. Raises MalformedFrame."""
    names, position = [], 0
    while position < len(payload):
        (name,), position = _read_texts(payload, position, 1)
        names.append(name or "")
    return names


def encode_auto_created(errors: list[tuple[str, int, str | None]]) -> bytes:
    """The answer to AUTO_CREATE: name, error code (0: it exists now) and message of each topic."""
    return b"".join(struct.pack(">h", code) + _texts((name, message)) for name, code, message in errors)


def decode_auto_created(payload: bytes) -> list[tuple[str, int, str | None]]:
    """What `encode_auto_created` made. Raises MalformedFrame."""
    found, position = [], 0
    while position < len(payload):
        if position + 2 > len(payload):
            raise MalformedFrame("error code beyond the frame's end")
        (code,) = struct.unpack_from(">h", payload, position)
        (name, message), position = _read_texts(payload, position + 2, 2)
        found.append((name or "", code, message))
    return found


class FrameCutter:
    """Cuts a byte stream into frames, however it arrives. Raises MalformedFrame for one that is too long."""

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max = max_frame_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames, without their lengths, that are complete with `data`."""
        self._buffer += data
        frames, position = [], 0
        while len(self._buffer) - position >= 4:
            (length,) = _LENGTH.unpack_from(self._buffer, position)
            if length > self._max:
                raise MalformedFrame(f"frame of {length} bytes, at most {self._max} are allowed")
            end = position + 4 + length
            if end > len(self._buffer):
                break
            frames.append(bytes(memoryview(self._buffer)[position + 4 : end]))
            position = end
        del self._buffer[:position]
        return frames
