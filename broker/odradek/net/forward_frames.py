"""The frames in which workers send requests to the coordinator, and the coordinator sends the answers back.

Pure functions. The encoding that every request passes is native (`_ext/net/forward_frames.pyx`); this module contains the types
and the encoding of contexts and of special payloads.

Frames are big-endian, with a length prefix (u32, not counting itself). Request: correlation u64, kind u8, deadline f64, time
of forwarding i64 (CLOCK_MONOTONIC, ms), size of the context u32, context, payload. Context: connection u64, listener u16, login
by token u8, five texts (u16 length; 65535 for None). Response: correlation u64, status u8, metadata version u64, time that the
coordinator spent u32 (us), throttle time u32 (ms; the payload contains it), payload.

A connection sends the same context with each of its requests, so both sides cache the contexts seen last in the form they need.
"""

import struct
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from odradek._ext.net.connection import client_name
from odradek._ext.net.forward_frames import MalformedFrame
from odradek.security.sasl.scram_credential import ScramCredential

CONTEXTS_KEPT = 4096
KEPT_BYTES = 1024
"""Largest size of a cached context: a client may send a name of 32 KiB, and a different one with each request."""
_CONTEXT = struct.Struct(">QH?")
_TEXT = struct.Struct(">H")
_NO_TEXT = 0xFFFF


class Kind(IntEnum):
    """The kind of a request frame."""

    KAFKA = 0  # payload: a Kafka request with its header, without its length
    AUTO_CREATE = 1  # create topics; payload: topic names, see `encode_names`; answered with `encode_auto_created`
    METRICS = 3  # all groups, for the reporter; no payload; answered in the format of `odradek.metrics.group_rows`
    CANCEL = 2  # the connection is closed: cancel its requests; never answered
    LOOKED = 4  # the reaction to Status.LOOK: requests of ended connections are cancelled now; never answered
    HANG_UP = 5  # the client sends no more on the connection, but may still read answers; never answered
    CREDENTIAL = 7  # a SCRAM credential; payload: `encode_credential_question`; answered with `encode_credential`
    KEYS = 8  # look for newer keys of OAUTHBEARER; payload: see `encode_keys_question`; answered when there may be newer keys
    ADD_PARTITIONS = 6  # do these partitions belong to these transactions? see `_ext/net/transaction_questions.pyx`


class Status(IntEnum):
    """The result of a request. Only OK has a payload."""

    OK = 0
    FAILED = 1  # the handler raised: answer UNKNOWN_SERVER_ERROR, or close the connection
    MALFORMED = 2  # the request cannot be decoded: close the connection
    UNSUPPORTED = 3  # there is no handler for this API or version
    LOOK = (
        4  # not an answer: requests have waited long for the coordinator; cancel those of connections that have ended
    )


class ForwardContext(NamedTuple):
    """The origin of a request: the properties of the client's connection that authorization, quotas and logs need."""

    connection_id: int
    listener: int  # index in ``listeners``
    peer: str
    client_id: str | None = None
    principal: str = "User:ANONYMOUS"
    software_name: str | None = None
    software_version: str | None = None
    by_token: bool = False  # the client logged in with a delegation token

    @property
    def client(self) -> str:
        """The client as shown in log lines."""
        return str(client_name(self.peer, self.client_id))

    @property
    def log_fields(self) -> dict[str, object]:
        """The connection and the client as attributes of a log record: `extra` of a logging call."""
        return {"connection_id": self.connection_id, "client_address": self.peer, "client_id": self.client_id}


class ForwardReply(NamedTuple):
    """An answer; a worker passes it to the client only after it has taken over ``metadata_version``."""

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
    texts: list[str | None] = []
    for _ in range(count):
        if position + 2 > len(frame):
            raise MalformedFrame("a text ends after the end of its frame")
        (length,) = _TEXT.unpack_from(frame, position)
        position += 2
        if length == _NO_TEXT:
            texts.append(None)
            continue
        if position + length > len(frame):
            raise MalformedFrame("a text ends after the end of its frame")
        texts.append(frame[position : position + length].decode("utf-8", "replace"))
        position += length
    return texts, position


def encode_context(context: ForwardContext) -> bytes:
    """Encode a context for a request frame. The encoded context of a client's connection is cached with the connection."""
    texts = (context.peer, context.client_id, context.principal, context.software_name, context.software_version)
    return _CONTEXT.pack(context.connection_id, context.listener, context.by_token) + _texts(texts)


def decode_context(data: bytes) -> ForwardContext:
    """Decode the result of `encode_context`. Raises MalformedFrame."""
    return _decode_kept(data) if len(data) <= KEPT_BYTES else _decode(data)


def _decode(data: bytes) -> ForwardContext:
    if len(data) < _CONTEXT.size:
        raise MalformedFrame(f"a request context has {len(data)} bytes, but needs at least {_CONTEXT.size}")
    connection_id, listener, by_token = _CONTEXT.unpack_from(data)
    (peer, client_id, principal, name, version), position = _read_texts(data, _CONTEXT.size, 5)
    if position != len(data):
        raise MalformedFrame(f"a request context has {len(data)} bytes, but its texts end at byte {position}")
    return ForwardContext(connection_id, listener, peer or "", client_id, principal or "", name, version, by_token)


_decode_kept = lru_cache(CONTEXTS_KEPT)(_decode)


def encode_names(names: list[str]) -> bytes:
    """Encode the payload of AUTO_CREATE."""
    return _texts(tuple(names))


def decode_names(payload: bytes) -> list[str]:
    """Decode the topic names of AUTO_CREATE. Raises MalformedFrame."""
    names, position = [], 0
    while position < len(payload):
        (name,), position = _read_texts(payload, position, 1)
        names.append(name or "")
    return names


def encode_auto_created(errors: list[tuple[str, int, str | None]]) -> bytes:
    """Encode the answer to AUTO_CREATE: name, error code (0: the topic exists now) and message of each topic."""
    return b"".join(struct.pack(">h", code) + _texts((name, message)) for name, code, message in errors)


def decode_auto_created(payload: bytes) -> list[tuple[str, int, str | None]]:
    """Decode the result of `encode_auto_created`. Raises MalformedFrame."""
    outcomes, position = [], 0
    while position < len(payload):
        if position + 2 > len(payload):
            raise MalformedFrame("an error code ends after the end of its frame")
        (code,) = struct.unpack_from(">h", payload, position)
        (name, message), position = _read_texts(payload, position + 2, 2)
        outcomes.append((name or "", code, message))
    return outcomes


_CREDENTIAL = struct.Struct(">QI?qd")
_PART = struct.Struct(">I")


class CredentialReply(NamedTuple):
    """The answer to CREDENTIAL: the credential of a user or a delegation token, or a made-up one.

    :param version: the version of the credentials (or tokens) before they were read, see `odradek.shm.credentials_version`.
    :param answered_s: when the coordinator answered, in seconds of CLOCK_MONOTONIC, which all processes share.
    """

    version: int
    credential: ScramCredential
    answered_s: float = 0.0

    def __repr__(self) -> str:
        return f"<CredentialReply of version {self.version}>"


def encode_credential_question(mechanism: str, user: str, by_token: bool = False) -> bytes:
    """Encode the payload of CREDENTIAL: mechanism, user or id of a token, and "token" or None. Raises ValueError if the name is
    longer than 65,534 bytes."""
    if len(user.encode()) >= _NO_TEXT:
        raise ValueError(f"a user name of {len(user)} characters")
    return _texts((mechanism, user, "token" if by_token else None))


def decode_credential_question(payload: bytes) -> tuple[str, str, bool]:
    """Mechanism, user (or id of a token) and whether it is a token. Raises MalformedFrame."""
    (mechanism, user, token), position = _read_texts(payload, 0, 3)
    if position != len(payload) or not mechanism or not user:
        raise MalformedFrame("a question for a credential names no mechanism or no user")
    return mechanism, user, token is not None


_KEYS = struct.Struct(">Q")


def encode_keys_question(listener: str, version: int) -> bytes:
    """Encode the payload of KEYS. :param version: of the published keys (`odradek.shm.published_jwks`) that the sender has."""
    return _KEYS.pack(version) + listener.encode()


def decode_keys_question(payload: bytes) -> tuple[str, int]:
    """Listener and version of KEYS. Raises MalformedFrame."""
    if len(payload) <= _KEYS.size:
        raise MalformedFrame("a question for keys names no listener")
    return payload[_KEYS.size :].decode("utf-8", "replace"), _KEYS.unpack_from(payload)[0]


def encode_credential(reply: CredentialReply) -> bytes:
    """Encode the answer to CREDENTIAL."""
    credential = reply.credential
    parts = (credential.salt, credential.stored_key, credential.server_key, credential.owner.encode())
    head = _CREDENTIAL.pack(
        reply.version, credential.iterations, credential.known, credential.expires_ms, reply.answered_s
    )
    return head + b"".join(_PART.pack(len(part)) + part for part in parts)


def decode_credential(payload: bytes) -> CredentialReply:
    """Decode the result of `encode_credential`. Raises MalformedFrame."""
    try:
        version, iterations, known, expires_ms, answered_s = _CREDENTIAL.unpack_from(payload)
        parts, position = [], _CREDENTIAL.size
        for _ in range(4):
            (length,) = _PART.unpack_from(payload, position)
            position += _PART.size
            parts.append(payload[position : position + length])
            position += length
    except struct.error:
        position = -1
    if position != len(payload):
        raise MalformedFrame("an answer to a question for a credential has the wrong length")
    salt, stored_key, server_key, owner = parts
    credential = ScramCredential(salt, stored_key, server_key, iterations, known, owner.decode(), expires_ms)
    return CredentialReply(version, credential, answered_s)
