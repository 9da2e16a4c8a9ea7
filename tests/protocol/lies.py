"""What a hostile client puts in the place of counts, lengths and other bytes."""

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
"""Null, less than null, more than there can be; varints that are too long, or say nothing in many bytes."""

VERSION_AT = 2
CORRELATION_END = 8


def cut_short(frame: bytes) -> Iterator[bytes]:
    """A request without its length, cut at every byte behind its correlation id."""
    for end in range(CORRELATION_END, len(frame)):
        yield frame[:end]


def with_lies(chance: random.Random, frame: bytes, start: int = VERSION_AT) -> Iterator[bytes]:
    """A request without its length: a lie at every byte from `start` on, in the place of others or between them; then some
    bytes changed at a time."""
    for at in range(start, len(frame)):
        lie = chance.choice(LIES)
        yield frame[:at] + lie + frame[at + len(lie) * (chance.random() < 0.7) :]
    for _ in range(len(frame) // 2):
        changed = bytearray(frame)
        for _ in range(chance.randrange(1, 6)):
            changed[chance.randrange(start, len(changed))] = chance.choice(
                (0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256))
            )
        yield bytes(changed)
