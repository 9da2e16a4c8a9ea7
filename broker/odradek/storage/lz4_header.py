"""The header of an lz4 frame: what Java's reader refuses in it, its correct checksum byte, and the wrong one of message
format v0 (KAFKA-3160).

Stateless. The checksum is the second byte of the xxHash32 of the descriptor (flags, block size, and, depending on the
flags, content size and dictionary id). Clients up to Kafka 0.9 also hashed the magic number of the frame.
"""

from __future__ import annotations

MAGIC = b"\x04\x22\x4d\x18"
FLAGS_AT = 4
CONTENT_SIZE_FLAG, DICTIONARY_FLAG = 0x08, 0x01
INDEPENDENT_BLOCKS_FLAG = 0x20

_P1, _P2, _P3, _P4, _P5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_MASK = 0xFFFFFFFF


def xxhash32(data: bytes) -> int:
    """The xxHash32 with seed 0 of at most 15 bytes, which suffices for a header. Raises ValueError for more bytes."""
    if len(data) >= 16:
        raise ValueError(f"cannot hash {len(data)} bytes: the limit is 15")
    value = _P5 + len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        value = value + int.from_bytes(data[at : at + 4], "little") * _P3 & _MASK
        value = (value << 17 | value >> 15) * _P4 & _MASK
    for byte in data[whole:]:
        value = value + byte * _P5 & _MASK
        value = (value << 11 | value >> 21) * _P1 & _MASK
    value = (value ^ value >> 15) * _P2 & _MASK
    value = (value ^ value >> 13) * _P3 & _MASK
    return value ^ value >> 16


def refusal_of_java(data: bytes | memoryview) -> str:
    """Why Java's reader refuses the header of a frame that the lz4 library reads; empty if it does not."""
    if len(data) <= FLAGS_AT or bytes(data[:FLAGS_AT]) != MAGIC:
        return "the data does not start with the magic number of a frame"
    if not data[FLAGS_AT] & INDEPENDENT_BLOCKS_FLAG:
        return "the blocks of the frame depend on each other; compress with independent blocks"
    if data[FLAGS_AT] & DICTIONARY_FLAG:
        return "the frame names a dictionary"
    return ""


def _checksum_at(frame: bytes | memoryview) -> int | None:
    """The position of the checksum byte of the first frame; None if the data is not a frame, or is shorter."""
    if len(frame) <= FLAGS_AT or bytes(frame[:FLAGS_AT]) != MAGIC:
        return None
    flags = frame[FLAGS_AT]
    at = FLAGS_AT + 2 + (8 if flags & CONTENT_SIZE_FLAG else 0) + (4 if flags & DICTIONARY_FLAG else 0)
    return at if at < len(frame) else None


def _put(frame: bytes | memoryview, at: int, hashed: bytes) -> bytes:
    return bytes(frame[:at]) + bytes([xxhash32(hashed) >> 8 & 0xFF]) + bytes(frame[at + 1 :])


def with_right_checksum(frame: bytes | memoryview) -> bytes:
    """The frame with the correct checksum, which the lz4 library requires; other data is returned unchanged."""
    at = _checksum_at(frame)
    return bytes(frame) if at is None else _put(frame, at, bytes(frame[FLAGS_AT:at]))


def with_checksum_of_format_0(frame: bytes) -> bytes:
    """The frame with the checksum that clients of message format v0 expect. The frame must not state its content size."""
    at = _checksum_at(frame)
    return bytes(frame) if at is None else _put(frame, at, bytes(frame[:at]))
