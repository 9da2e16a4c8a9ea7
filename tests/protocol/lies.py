"""Wrong values that a hostile client sends in place of counts, lengths and other bytes."""

import random
import struct
from collections.abc import Iterator

LIES = (
    b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff",
    struct.pack(">h", -1), struct.pack(">h", -2), struct.pack(">h", 0x7FFF), struct.pack(">h", -0x8000),
    struct.pack(">i", -1), struct.pack(">i", -2), struct.pack(">i", 0x7FFFFFFF), struct.pack(">i", -(1 << 31)),
    struct.pack(">i", 0x10000), bytes(4), struct.pack(">q", 0x7FFFFFFFFFFFFFFF), struct.pack(">q", -(1 << 63)),
    b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x00", b"\xff" * 10, b"\x80\x80\x80\x80\x10",
)  # fmt: skip
"""Null, less than null, and too large values; varints that are too long or padded with zeros."""

VERSION_AT = 2
CORRELATION_END = 8


def cut_short(frame: bytes) -> Iterator[bytes]:
    """Yield a request without its length, cut at every byte after its correlation id."""
    for end in range(CORRELATION_END, len(frame)):
        yield frame[:end]


def with_lies(rng: random.Random, frame: bytes, start: int = VERSION_AT) -> Iterator[bytes]:
    """Yield variants of a request without its length: with a wrong value at every byte from `start` on, which replaces bytes
    or is inserted; then with several changed bytes."""
    for position in range(start, len(frame)):
        lie = rng.choice(LIES)
        yield frame[:position] + lie + frame[position + len(lie) * (rng.random() < 0.7) :]
    for _ in range(len(frame) // 2):
        changed = bytearray(frame)
        for _ in range(rng.randrange(1, 6)):
            changed[rng.randrange(start, len(changed))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        yield bytes(changed)
