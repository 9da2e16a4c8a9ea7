"""Creates topics with one CreateTopics request on a plain socket, so that tests need no client library."""

import socket
import ssl
import struct
from collections.abc import Mapping
from typing import BinaryIO

_API_KEY, _VERSION, _CORRELATION_ID = 19, 4, 1


def create_topics(
    host: str,
    port: int,
    topics: Mapping[str, int | Mapping[str, str]],
    timeout: float = 30.0,
    context: ssl.SSLContext | None = None,
) -> None:
    """Create topics: for each name the number of partitions, or a configuration that may contain ``partitions``.

    :param context: of TLS; None for a plain listener.
    Raises RuntimeError with the broker's error code and message, OSError if there is no response within ``timeout`` seconds.
    """
    request = struct.pack(">hhih", _API_KEY, _VERSION, _CORRELATION_ID, -1) + struct.pack(">i", len(topics))
    for name, topic in topics.items():
        configs = {} if isinstance(topic, int) else dict(topic)
        partitions = topic if isinstance(topic, int) else int(configs.pop("partitions", 1))
        request += _string(name) + struct.pack(">ihi", partitions, 1, 0) + struct.pack(">i", len(configs))
        request += b"".join(_string(key) + _string(str(value)) for key, value in configs.items())
    request += struct.pack(">i?", int(timeout * 1000), False)
    plain = socket.create_connection((host, port), timeout=timeout)
    with plain if context is None else context.wrap_socket(plain, server_hostname=host) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as stream:
            _check(_exactly(stream, struct.unpack(">i", _exactly(stream, 4))[0]))


def _exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise ConnectionError("the broker closed the connection without a response to CreateTopics")
    return data


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _check(response: bytes) -> None:
    """Raise RuntimeError if the response has an error.

    Its fields are the correlation id and the throttle time, then for each topic the name, error code and message.
    """
    _, _, count = struct.unpack_from(">iii", response)
    position = 12
    failed = []
    for _ in range(count):
        name, position = _text(response, position)
        (code,) = struct.unpack_from(">h", response, position)
        message, position = _text(response, position + 2)
        if code:
            failed.append(f"{name}: error {code} {message or ''}".strip())
    if failed:
        raise RuntimeError("; ".join(failed))


def _text(data: bytes, position: int) -> tuple[str | None, int]:
    (size,) = struct.unpack_from(">h", data, position)
    position += 2
    return (None, position) if size < 0 else (data[position : position + size].decode(), position + size)
