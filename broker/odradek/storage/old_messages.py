"""Messages of format v0 and v1 as Python objects: to find records by time inside compressed wrappers, and for tools.

Stateless. The broker's native code treats such a message as a batch of its own and never opens it; this module does. Format:
see `_ext/records/old_messages.pyx`.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

import odradek._ext.records.crc32 as crc32
from odradek.storage import compression

HEAD = struct.Struct(">qiIbB")
TIMESTAMP = struct.Struct(">q")
LENGTH = struct.Struct(">i")
OVERHEAD_BYTES, MAGIC_AT, CRC_FROM = 12, 16, 16
CODEC_MASK, LOG_APPEND_TIME = 0x07, 0x08
NO_LIMIT = 1 << 31


class CorruptMessageError(ValueError):
    """The bytes are not a sound message of format v0 or v1."""


@dataclass(frozen=True)
class OldMessage:
    """One message; `timestamp` in ms, -1 in v0. Of a wrapper `offset` is its last message's and `value` compressed."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4."""
        return self.attributes & CODEC_MASK

    def opened(self, limit: int = NO_LIMIT) -> list[OldMessage]:
        """The messages inside, with absolute offsets and the timestamps that count; itself if it is not compressed.

        :param limit: the most bytes they may have.
        :raises CorruptMessageError: what it holds is not a message set of its own format.
        :raises ValueError: what `decompress` raises.
        """
        if self.codec == compression.NONE:
            return [self]
        inner = list(read_messages(compression.decompress_old(self.codec, self.value or b"", limit, self.magic)))
        if not inner or any(one.codec or one.magic != self.magic for one in inner):
            raise CorruptMessageError(f"the wrapper at offset {self.offset} holds no plain messages of its own format")
        offsets = [one.offset for one in inner]
        if offsets != sorted(set(offsets)) or offsets[0] < 0 or offsets[-1] > self.offset:
            raise CorruptMessageError(f"the wrapper at offset {self.offset} holds messages at {offsets[:5]}, ...")
        if self.magic == 0:
            return inner
        # They count from 0 (with gaps after compaction); the wrapper has the last one's offset.
        shift = self.offset - inner[-1].offset
        stamped = self.attributes & LOG_APPEND_TIME
        return [
            OldMessage(
                one.offset + shift,
                one.magic,
                one.attributes,
                self.timestamp if stamped else one.timestamp,
                one.key,
                one.value,
            )
            for one in inner
        ]

    def encoded(self) -> bytes:
        """The message as it lies in a log."""
        body = struct.pack(">bB", self.magic, self.attributes)
        if self.magic == 1:
            body += TIMESTAMP.pack(self.timestamp)
        for field in (self.key, self.value):
            body += LENGTH.pack(-1) if field is None else LENGTH.pack(len(field)) + field
        return struct.pack(">qiI", self.offset, 4 + len(body), crc32.checksum(body)) + body


def contents(data: bytes) -> list[tuple[int, bytes | None, bool]]:
    """(offset, key, whether it is a tombstone) of one message, or of those in a wrapper.

    :raises ValueError: it is not sound, CorruptMessageError among them.
    """
    message, _ = read_message(data)
    return [(one.offset, one.key, one.value is None) for one in message.opened()]


def reduced(data: bytes, offsets: Collection[int]) -> bytes:
    """One message, or a wrapper, with only the messages at `offsets` (one at least), none of which changes; in its own codec.

    :raises ValueError: as `contents`.
    """
    message, _ = read_message(data)
    kept = [one for one in message.opened() if one.offset in offsets]
    if message.codec == compression.NONE:
        return data
    first, last = kept[0].offset, kept[-1].offset
    inner = b"".join(replace(one, offset=one.offset - first if message.magic else one.offset).encoded() for one in kept)
    timestamp = message.timestamp
    if message.magic == 1 and not message.attributes & LOG_APPEND_TIME:
        timestamp = max(one.timestamp for one in kept)
    packed = compression.compress_old(message.codec, inner, message.magic)
    return replace(message, offset=last, timestamp=timestamp, value=packed).encoded()


def is_old(data: bytes | memoryview, at: int = 0) -> bool:
    """Whether what begins at position `at` states magic 0 or 1."""
    return len(data) - at > MAGIC_AT and data[at + MAGIC_AT] < 2


def read_message(data: bytes | memoryview, at: int = 0) -> tuple[OldMessage, int]:
    """The message that begins at position `at`, checked, and the position behind it. Raises CorruptMessageError."""
    try:
        offset, size, crc, magic, attributes = HEAD.unpack_from(data, at)
        end = at + OVERHEAD_BYTES + size
        if magic not in (0, 1) or not at < end <= len(data):
            raise CorruptMessageError(f"no message at position {at}: magic {magic}, {size} bytes")
        if crc32.checksum(memoryview(data)[at + CRC_FROM : end]) != crc:
            raise CorruptMessageError(f"the message at position {at} does not match its CRC")
        next_at, timestamp = at + HEAD.size, -1
        if magic == 1:
            (timestamp,) = TIMESTAMP.unpack_from(data, next_at)
            next_at += TIMESTAMP.size
        key, next_at = _read_bytes(data, next_at, end)
        value, next_at = _read_bytes(data, next_at, end)
    except struct.error as error:
        raise CorruptMessageError(f"the message at position {at} ends early") from error
    if next_at != end:
        raise CorruptMessageError(f"the message at position {at} has {end - next_at} bytes behind its value")
    return OldMessage(offset, magic, attributes, timestamp, key, value), end


def read_messages(data: bytes | memoryview) -> Iterator[OldMessage]:
    """All messages of a set, unopened; it must end where a message ends. Raises CorruptMessageError."""
    at = 0
    while at < len(data):
        message, at = read_message(data, at)
        yield message


def _read_bytes(data: bytes | memoryview, at: int, end: int) -> tuple[bytes | None, int]:
    (length,) = LENGTH.unpack_from(data, at)
    at += LENGTH.size
    if length == -1:
        return None, at
    if length < 0 or length > end - at:
        raise CorruptMessageError(f"{length} bytes at position {at} where {end - at} are left")
    return bytes(data[at : at + length]), at + length
