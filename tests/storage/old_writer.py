"""Messages of format v0 and v1 and their compressed wrappers, built byte by byte as Kafka 0.8-0.10 and its clients did."""

from __future__ import annotations

import struct
import zlib

from odradek.storage import compression

LOG_APPEND_TIME = 0x08


def message(offset, value, *, magic=1, key=None, timestamp=-1, attributes=0) -> bytes:
    """offset, size, crc, magic, attributes, timestamp (v1), key, value."""
    body = struct.pack(">bB", magic, attributes)
    if magic == 1:
        body += struct.pack(">q", timestamp)
    for field in (key, value):
        body += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    crc = struct.pack(">I", zlib.crc32(body))
    return struct.pack(">qi", offset, len(crc) + len(body)) + crc + body


def wrapper(first, contents, *, codec, magic=1, timestamps=None, append_time=None) -> bytes:
    """A wrapper of messages at first, first + 1, ...; contents: [(key, value)]. In v1 the offsets inside count from 0."""
    times = timestamps or [-1] * len(contents)
    inner = b"".join(
        message(index if magic else first + index, value, magic=magic, key=key, timestamp=times[index])
        for index, (key, value) in enumerate(contents)
    )
    return message(
        first + len(contents) - 1,
        compression.compress(codec, inner),
        magic=magic,
        timestamp=max(times) if append_time is None else append_time,
        attributes=codec | (0 if append_time is None else LOG_APPEND_TIME),
    )
