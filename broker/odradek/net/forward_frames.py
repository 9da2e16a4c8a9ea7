"""The frames in which workers hand requests to the coordinator, and it the answers back.

Pure functions; what every request passes is native (`_ext/net/forward_frames.pyx`), and here is what frames say.
Big-endian, length-prefixed (u32, not counting itself). Request: correlation
u64, kind u8, deadline f64, time of forwarding i64 (CLOCK_MONOTONIC, ms), size of the context u32, context, then the payload.
Context: connection u64, listener u16, five texts (u16 length; 65535 for none). Response: correlation u64, status u8, metadata
version u64, payload.

A connection's context is the same with each of its requests, so both sides keep the ones seen last in the form they need.
"""

import struct
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from odradek._ext.net.connection import client_name
from odradek._ext.net.forward_frames import MalformedFrame

CONTEXTS_KEPT = 4096
KEPT_BYTES = 1024
"""Of a context that is kept: a client may say a name of 32 KiB, and another one with each request."""
_CONTEXT = struct.Struct(">QH")
_TEXT = struct.Struct(">H")
_NO_TEXT = 0xFFFF


class Kind(IntEnum):
    """What a request frame asks for."""

    KAFKA = 0  # payload: a Kafka request with its header, without its length
    AUTO_CREATE = 1  # payload: topic names, see `encode_names`; answered by `encode_auto_created`
    METRICS = 3  # no payload: all groups, for the reporter; answered as `odradek.metrics.group_rows` writes them
    CANCEL = 2  # the connection is closed: drop what it asked for; never answered
    LOOKED = 4  # as Status.LOOK demanded: requests of connections that had ended are cancelled; never answered
    HANG_UP = 5  # the client sends no more on the connection, and may still read answers; never answered


class Status(IntEnum):
    """How a request ended. Payload comes with OK alone."""

    OK = 0
    FAILED = 1  # the handler raised: answer UNKNOWN_SERVER_ERROR, or close
    MALFORMED = 2  # the request cannot be decoded: close the connection
    UNSUPPORTED = 3  # no handler for that API or version
    LOOK = (
        4  # no answer: the coordinator has requests that waited long; cancel those of connections that ended meanwhile
    )


class ForwardContext(NamedTuple):
    """Where a request came from: what authorisation, quotas and logs need to know of the client's connection."""

    connection_id: int
    listener: int  # index in ``listeners``
    peer: str
    client_id: str | None = None
    principal: str = "User:ANONYMOUS"
    software_name: str | None = None
    software_version: str | None = None

    @property
    def client(self) -> str:
        """The client as log lines name it."""
        return str(client_name(self.peer, self.client_id))


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


def encode_context(context: ForwardContext) -> bytes:
    """As a request's frame tells it. A connection's is kept with the connection."""
    texts = (context.peer, context.client_id, context.principal, context.software_name, context.software_version)
    return _CONTEXT.pack(context.connection_id, context.listener) + _texts(texts)


def decode_context(data: bytes) -> ForwardContext:
    """What `encode_context` made. Raises MalformedFrame."""
    return _decode_kept(data) if len(data) <= KEPT_BYTES else _decode(data)


def _decode(data: bytes) -> ForwardContext:
    if len(data) < _CONTEXT.size:
        raise MalformedFrame(f"request context of {len(data)} bytes")
    connection_id, listener = _CONTEXT.unpack_from(data)
    (peer, client_id, principal, name, version), position = _read_texts(data, _CONTEXT.size, 5)
    if position != len(data):
        raise MalformedFrame(f"request context of {len(data)} bytes, {position} were expected")
    return ForwardContext(connection_id, listener, peer or "", client_id, principal or "", name, version)


_decode_kept = lru_cache(CONTEXTS_KEPT)(_decode)


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
