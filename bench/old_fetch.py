"""A consumer of message format v1: Fetch version 2, one request in flight, over a raw socket; for the row
`fetch-downconverted`.

It does not decode messages: it reads only their offsets and sizes.
"""

import socket
import struct
import time

from bench.brokers import BenchError

_HEAD = struct.Struct(">ihhih5s")  # size, key, version, correlation, client id
_BODY = struct.Struct(">iiii")  # replica, wait, least bytes, topics
_PARTITION = struct.Struct(">iiqi")  # partitions, partition, offset, most bytes
_MESSAGE = struct.Struct(">qi")
_RESPONSE = struct.Struct(">iii")  # correlation, throttle time, topics
_PARTITION_RESPONSE = struct.Struct(">iihqi")  # partitions, partition, error, high watermark, bytes
FETCH, VERSION, CLIENT_ID = 1, 2, b"bench"


def read_all(port: int, topic: str, end_offset: int, max_bytes: int) -> dict[str, float]:
    """Read partition 0 of `topic` up to `end_offset`; return bytes of message sets, messages, seconds. Raises BenchError,
    OSError."""
    name = topic.encode()
    offset = total = messages = 0
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = time.monotonic()
        while offset < end_offset:
            body = _BODY.pack(-1, 500, 1, 1) + struct.pack(">h", len(name)) + name
            body += _PARTITION.pack(1, 0, offset, max_bytes)
            head = _HEAD.pack(_HEAD.size - 4 + len(body), FETCH, VERSION, 1, len(CLIENT_ID), CLIENT_ID)
            connection.sendall(head + body)
            response = _exactly(connection, struct.unpack(">i", _exactly(connection, 4))[0])
            at = _RESPONSE.size + 2 + len(name)
            _, _, error, _, size = _PARTITION_RESPONSE.unpack_from(response, at)
            at += _PARTITION_RESPONSE.size
            if error or not size:
                raise BenchError(f"Fetch version {VERSION} at offset {offset} failed: error {error}, {size} bytes")
            end = at + size
            while at + _MESSAGE.size <= end:
                message_offset, length = _MESSAGE.unpack_from(response, at)
                at += _MESSAGE.size + length
                if at > end:
                    break  # truncated: the next response begins with it
                if message_offset < offset:
                    raise BenchError(f"received offset {message_offset} after offset {offset - 1}; offsets must ascend")
                offset = message_offset + 1
                messages += 1
                total += _MESSAGE.size + length
    return {"bytes": total, "messages": messages, "seconds": time.monotonic() - began}


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        got = connection.recv_into(view)
        if not got:
            raise BenchError("the broker closed the connection of an old consumer")
        view = view[got:]
    return bytes(data)
