"""Messages of format v0 and v1 as Python objects, for look-ups by timestamp in compressed wrappers, and for tools.

Stateless. The broker's native code treats each such message as one batch and never decompresses it; this module does. Format:
see `_ext/records/old_messages.pyx`.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

import odradek._ext.records.crc32 as crc32
from odradek.codecs import IN_MESSAGES, NONE
from odradek.storage import compression

HEAD = struct.Struct(">qiIbB")
TIMESTAMP = struct.Struct(">q")
LENGTH = struct.Struct(">i")
OVERHEAD_BYTES, MAGIC_AT, CRC_FROM = 12, 16, 16
CODEC_MASK, LOG_APPEND_TIME = 0x07, 0x08
NO_LIMIT = 1 << 31
MOST_MESSAGES = 1 << 20
"""Limit of the messages in a wrapper from a foreign broker: as an object, a message needs about 256 bytes, besides its key and
value, and a few bytes of a compressed wrapper can become millions of messages."""


class CorruptMessageError(ValueError):
    """The bytes are not a valid message of format v0 or v1."""


@dataclass(frozen=True, slots=True)
class OldMessage:
    """A message; `timestamp` in ms, -1 in v0. In a wrapper, `offset` is that of its last message, and `value` is compressed."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> int:
        """See `odradek.codecs`."""
        return self.attributes & CODEC_MASK

    def opened(self, limit: int = NO_LIMIT, most_messages: int = NO_LIMIT) -> list[OldMessage]:
        """The messages of a wrapper with absolute offsets and effective timestamps; the message itself if it is not compressed.

        :param limit: largest decompressed size in bytes. :param most_messages: largest number of messages.
        :raises CorruptMessageError: the value is not a message set of the wrapper's format.
        :raises ValueError: errors of `decompress`.
        """
        if self.codec == NONE:
            return [self]
        if self.codec not in IN_MESSAGES:
            raise CorruptMessageError(
                f"the wrapper at offset {self.offset} has compression {self.codec}, which format v{self.magic} does not allow"
            )
        plain = compression.decompress_old(self.codec, self.value or b"", limit, self.magic)
        inner: list[OldMessage] = []
        for message in read_messages(plain):
            if message.codec or message.magic != self.magic:
                inner.clear()
                break
            if len(inner) == most_messages:
                raise compression.DecompressionLimitError(
                    f"the wrapper at offset {self.offset} has more than {most_messages} messages"
                )
            inner.append(message)
        if not inner:
            raise CorruptMessageError(
                f"the wrapper at offset {self.offset} must contain uncompressed messages of format v{self.magic}"
            )
        offsets = [message.offset for message in inner]
        if offsets != sorted(set(offsets)) or offsets[0] < 0 or offsets[-1] > self.offset:
            raise CorruptMessageError(
                f"the wrapper at offset {self.offset} contains messages at invalid offsets {offsets[:5]}, ..."
            )
        if self.magic == 0:
            return inner
        # Inner offsets are relative (with gaps after compaction); the wrapper has the offset of the last message.
        shift = self.offset - inner[-1].offset
        stamped = self.attributes & LOG_APPEND_TIME
        return [
            OldMessage(
                message.offset + shift,
                message.magic,
                message.attributes,
                self.timestamp if stamped else message.timestamp,
                message.key,
                message.value,
            )
            for message in inner
        ]

    def encoded(self) -> bytes:
        """Encode the message."""
        body = struct.pack(">bB", self.magic, self.attributes)
        if self.magic == 1:
            body += TIMESTAMP.pack(self.timestamp)
        for field in (self.key, self.value):
            body += LENGTH.pack(-1) if field is None else LENGTH.pack(len(field)) + field
        return struct.pack(">qiI", self.offset, 4 + len(body), crc32.checksum(body)) + body


def contents(data: bytes) -> list[tuple[int, bytes | None, bool]]:
    """(offset, key, whether it is a tombstone) of a message, or of each message in a wrapper.

    :raises ValueError: the message is invalid, see `OldMessage.opened` and `read_message`.
    """
    message, _ = read_message(data)
    return [(inner.offset, inner.key, inner.value is None) for inner in message.opened()]


def reduced(data: bytes, offsets: Collection[int]) -> bytes:
    """Reduce a message or wrapper to the messages at `offsets` (at least one of them), unchanged and in the same codec.

    :raises ValueError: see `contents`.
    """
    message, _ = read_message(data)
    kept = [inner for inner in message.opened() if inner.offset in offsets]
    if message.codec == NONE:
        return data
    first, last = kept[0].offset, kept[-1].offset
    message_set = b"".join(
        replace(inner, offset=inner.offset - first if message.magic else inner.offset).encoded() for inner in kept
    )
    timestamp = message.timestamp
    if message.magic == 1 and not message.attributes & LOG_APPEND_TIME:
        timestamp = max(inner.timestamp for inner in kept)
    packed = compression.compress_old(message.codec, message_set, message.magic)
    return replace(message, offset=last, timestamp=timestamp, value=packed).encoded()


def is_old(data: bytes | memoryview, at: int = 0) -> bool:
    """Whether the magic byte of the message or batch at position `at` is 0 or 1."""
    return len(data) - at > MAGIC_AT and data[at + MAGIC_AT] < 2


def read_message(data: bytes | memoryview, at: int = 0) -> tuple[OldMessage, int]:
    """Parse and check the message at position `at`; return it and the position after it. Raises CorruptMessageError."""
    try:
        offset, size, crc, magic, attributes = HEAD.unpack_from(data, at)
        end = at + OVERHEAD_BYTES + size
        if magic not in (0, 1) or not at < end <= len(data):
            raise CorruptMessageError(f"invalid message header at position {at}: magic {magic}, {size} bytes")
        if crc32.checksum(memoryview(data)[at + CRC_FROM : end]) != crc:
            raise CorruptMessageError(f"the message at position {at} does not match its CRC")
        next_at, timestamp = at + HEAD.size, -1
        if magic == 1:
            (timestamp,) = TIMESTAMP.unpack_from(data, next_at)
            next_at += TIMESTAMP.size
        key, next_at = _read_bytes(data, next_at, end)
        value, next_at = _read_bytes(data, next_at, end)
    except struct.error as error:
        raise CorruptMessageError(f"the message at position {at} is truncated") from error
    if next_at != end:
        raise CorruptMessageError(f"the message at position {at} has {end - next_at} bytes after its value")
    return OldMessage(offset, magic, attributes, timestamp, key, value), end


def read_messages(data: bytes | memoryview) -> Iterator[OldMessage]:
    """Parse the messages of a set without decompressing them; the set must end with a whole message.

    Raises CorruptMessageError.
    """
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
        raise CorruptMessageError(f"field of {length} bytes at position {at}, but {end - at} bytes are left")
    return bytes(data[at : at + length]), at + length
