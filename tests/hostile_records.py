"""Damaged record batches for tests, and a slow reader in Python that says what they contain.

The reader is written from the description of the formats, without the code under test, except for the codecs.
"""

from __future__ import annotations

import codecs
import ctypes
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from odradek.storage import compression
from odradek.storage.batch import (
    ABORT,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Record,
    RecordBatch,
    build_batch,
    build_end_marker,
    read_batch,
)
from tests.storage.old_writer import message, wrapper

LIMIT = 1 << 20
"""Of the size of a batch after decompression."""
MOST = (1 << 63) - 1
RECORDS_AT = 61
MASKS = (0x01, 0x10, 0x80, 0xFF)


class Seen(NamedTuple):
    """A record as a reader returns it. :param kind: of the timestamp: -1 none, 0 CreateTime, 1 LogAppendTime."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    kind: int
    headers: tuple[tuple[str, bytes | None], ...]


class BadRecordsError(Exception):
    """The reference reader refuses the data."""


def exact(data: bytes) -> memoryview:
    """The bytes in memory of exactly their size, so that AddressSanitizer notices a read of one byte more."""
    return memoryview((ctypes.c_char * len(data)).from_buffer_copy(data)).cast("B") if data else memoryview(b"")


# -- the reference -----------------------------------------------------------------------------------------------------


def reference(data: bytes, position: int) -> tuple[list[Seen], bool]:
    """The records from an offset on, and whether the data is valid. Those before the first error are returned."""
    seen: list[Seen] = []
    try:
        seen.extend(_records(data, position))
    except (BadRecordsError, ValueError):
        return seen, False
    return seen, True


def _records(data: bytes, position: int) -> Iterator[Seen]:
    at, least = 0, 0
    while len(data) - at > 16 and position < MOST:
        (length,) = struct.unpack_from(">i", data, at + 8)
        (magic,) = struct.unpack_from(">b", data, at + 16)
        size = length + 12
        if length < 5 or size > 0x7FFFFFFF or magic > 2:
            raise BadRecordsError
        if size > len(data) - at:
            return
        batch = data[at : at + size]
        if magic in (0, 1):
            for record in _old(batch):
                if record.offset < least or record.offset == MOST:
                    raise BadRecordsError
                least = record.offset + 1
                if record.offset >= position:
                    yield record
                    position = record.offset + 1
        else:
            if magic != 2 or size < RECORDS_AT or struct.unpack_from(">I", batch, 17)[0] != crc32c(batch[21:]):
                raise BadRecordsError
            base, last, count = _header(batch)
            if base < least:
                raise BadRecordsError
            least = base + last + 1
            if not batch[22] & 0x20 and least > position:
                for record in _new(batch, base, last, count, position):
                    yield record
                    position = record.offset + 1
            position = max(position, least)
        at += size


def _header(batch: bytes) -> tuple[int, int, int]:
    (base,), (last,), (count,) = (
        struct.unpack_from(form, batch, at) for form, at in ((">q", 0), (">i", 23), (">i", 57))
    )
    if base < 0 or last < 0 or base + last >= MOST or not 0 <= count <= last + 1 or batch[22] & 7 > 4:
        raise BadRecordsError
    return base, last, count


def _new(batch: bytes, base: int, last: int, count: int, position: int) -> Iterator[Seen]:
    appended = bool(batch[22] & LOG_APPEND_TIME)
    first_time, append_time = struct.unpack_from(">qq", batch, 27)
    payload = compression.decompress(batch[22] & 7, batch[RECORDS_AT:], LIMIT)
    at, before = 0, -1
    for _ in range(count):
        length, at = _varint(payload, at, 32)
        if not 0 <= length <= len(payload) - at:
            raise BadRecordsError
        body, at = payload[at : at + length], at + length
        if not body:
            raise BadRecordsError
        time_delta, here = _varint(body, 1, 64)
        delta, here = _varint(body, here, 32)
        key, here = _field(body, here)
        value, here = _field(body, here)
        headers, here = _varint(body, here, 32)
        if headers < 0 or delta <= before or delta > last:
            raise BadRecordsError
        before = delta
        if base + delta >= position:
            timestamp = (first_time + time_delta + (1 << 63)) % (1 << 64) - (1 << 63)
            read = _headers(body, here, headers)
            yield Seen(base + delta, key, value, append_time if appended else timestamp, int(appended), read)
    if at != len(payload):
        raise BadRecordsError


def _headers(body: bytes, at: int, count: int) -> tuple[tuple[str, bytes | None], ...]:
    headers = []
    for _ in range(count):
        name, at = _field(body, at)
        if name is None:
            raise BadRecordsError
        value, at = _field(body, at)
        headers.append((name.decode("utf-8", "java"), value))
    if at != len(body):
        raise BadRecordsError
    return tuple(headers)


def _old(data: bytes, inside: int | None = None) -> list[Seen]:
    """A message of format v0 or v1, or those in it. :param inside: the magic of the wrapper."""
    if len(data) < (34 if data[16] else 26) or struct.unpack_from(">I", data, 12)[0] != zlib.crc32(data[16:]):
        raise BadRecordsError
    (offset,), magic, attributes = struct.unpack_from(">q", data), data[16], data[17]
    (timestamp,) = struct.unpack_from(">q", data, 18) if magic else (-1,)
    key, at = _sized(data, 26 if magic else 18)
    value, at = _sized(data, at)
    if at != len(data):
        raise BadRecordsError
    kind = (attributes >> 3 & 1) if magic else -1
    if inside is not None and (magic != inside or attributes & 7):
        raise BadRecordsError
    if not attributes & 7:
        return [Seen(offset, key, value, timestamp, kind, ())]
    if attributes & 7 > 3:
        raise BadRecordsError
    plain = compression.decompress_old(attributes & 7, value or b"", LIMIT, magic)
    found: list[Seen] = []
    start = 0
    while start < len(plain):
        if len(plain) - start < 17:
            raise BadRecordsError
        end = start + 12 + struct.unpack_from(">i", plain, start + 8)[0]
        if not start + 17 <= end <= len(plain) or plain[start + 16] > 1:
            raise BadRecordsError
        found += _old(plain[start:end], magic)
        start = end
    offsets = [one.offset for one in found]
    if not found or offsets != sorted(set(offsets)) or offsets[0] < 0 or offsets[-1] > offset:
        raise BadRecordsError
    shift = offset - offsets[-1] if magic else 0
    return [
        one._replace(offset=one.offset + shift, kind=kind, timestamp=timestamp if kind == 1 else one.timestamp)
        for one in found
    ]


def _sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    if len(data) - at < 4:
        raise BadRecordsError
    (size,) = struct.unpack_from(">i", data, at)
    if size < -1 or size > len(data) - at - 4:
        raise BadRecordsError
    return (None, at + 4) if size < 0 else (data[at + 4 : at + 4 + size], at + 4 + size)


def _field(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at, 32)
    if size < -1 or size > len(data) - at:
        raise BadRecordsError
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def _varint(data: bytes, at: int, bits: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data):
            raise BadRecordsError
        value |= (data[at] & 0x7F) << shift
        at += 1
        if value >> bits or (shift + 7 >= bits and data[at - 1] & 0x80):
            raise BadRecordsError
        if not data[at - 1] & 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _as_java(error: UnicodeError) -> tuple[str, int]:
    """A surrogate, whole or cut off, is one malformed character in Java."""
    assert isinstance(error, UnicodeDecodeError)
    piece = error.object[error.start : error.start + 3]
    if piece[0] == 0xED and len(piece) > 1 and 0xA0 <= piece[1] <= 0xBF:
        return "\ufffd", error.start + (3 if len(piece) == 3 and 0x80 <= piece[2] <= 0xBF else 2)
    return "\ufffd", error.end


codecs.register_error("java", _as_java)


# -- valid data, and damage --------------------------------------------------------------------------------------------

CONTENT = [
    Record(None, b"first", 1000, ()),
    Record(b"key", None, 1001, ((b"name", b"value"), (b"", None))),
    Record(b"", b"", 999, ((b"\xff\xed\xa0\x80", b""),)),
    Record(b"k" * 70, b"v" * 90, 1 << 40, ((b"name", b"x" * 70),) * 2),
]
OLD = [(None, b"a"), (b"k", None), (b"", b""), (b"k" * 70, b"v" * 90)]


def valid_sets() -> dict[str, bytes]:
    """Answers of all formats and codecs; each begins at offset 10."""
    sets = {}
    for codec in range(5):
        sets[f"v2 codec {codec}"] = build_batch(CONTENT, base_offset=10, codec=codec, partition_leader_epoch=3)
    gaps = [1, 4, 5, 9]
    sets["v2 compacted"] = build_batch(CONTENT, base_offset=10, codec=4, offset_deltas=gaps, last_offset_delta=12)
    sets["v2 append time"] = build_batch(CONTENT, base_offset=10, attributes=LOG_APPEND_TIME)
    sets["v2 transaction"] = build_batch(
        CONTENT[:2], base_offset=10, producer_id=7, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL
    ) + build_end_marker(ABORT, base_offset=12, producer_id=7, producer_epoch=0, coordinator_epoch=1, timestamp=5)
    for magic in (0, 1):
        times = [1000 + number if magic else -1 for number in range(len(OLD))]
        sets[f"v{magic}"] = b"".join(
            message(10 + number, value, magic=magic, key=key, timestamp=times[number])
            for number, (key, value) in enumerate(OLD)
        )
        for codec in (1, 2, 3):
            sets[f"v{magic} codec {codec}"] = wrapper(10, OLD, codec=codec, magic=magic, timestamps=times)
    sets["v1 append time"] = wrapper(10, OLD, codec=1, timestamps=[1, 2, 3, 4], append_time=99)
    sets["several"] = (
        message(10, b"old", magic=0)
        + wrapper(11, OLD[:2], codec=1)
        + build_batch(CONTENT[:2], base_offset=13)
        + build_batch(CONTENT[2:], base_offset=20, codec=1)
    )
    return sets


SETS = valid_sets()


def repaired(data: bytes) -> bytes:
    """With the right checksum of each batch and message whose length is right."""
    out, at = bytearray(data), 0
    while len(out) - at > 17:
        size = 12 + struct.unpack_from(">i", out, at + 8)[0]
        if size < 26 or size > len(out) - at:
            break
        if out[at + 16] < 2:
            struct.pack_into(">I", out, at + 12, zlib.crc32(out[at + 16 : at + size]))
        elif size >= RECORDS_AT:
            struct.pack_into(">I", out, at + 17, crc32c(bytes(out[at + 21 : at + size])))
        at += size
    return bytes(out)


def flipped(data: bytes) -> Iterator[bytes]:
    """Each byte changed in several ways, with the checksums repaired."""
    for at in range(len(data)):
        for mask in MASKS:
            yield repaired(data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :])


def with_payload(batch: bytes, payload: bytes, **fields: int) -> bytes:
    """A batch of format v2 with other records, compressed as it was. :param fields: of RecordBatch."""
    head = read_batch(batch)[0]
    values = {name: getattr(head, name) for name in head.__dataclass_fields__} | fields
    values["payload"] = compression.compress(head.codec, payload)
    return bytes(RecordBatch(**values))


def flipped_inside(codec: int) -> Iterator[bytes]:
    """As `flipped`, but of the records before their compression."""
    batch = SETS[f"v2 codec {codec}"]
    plain = compression.decompress(codec, read_batch(batch)[0].payload, LIMIT)
    for at in range(len(plain)):
        for mask in MASKS:
            yield with_payload(batch, plain[:at] + bytes([plain[at] ^ mask]) + plain[at + 1 :])


def flipped_wrappers(codec: int, magic: int) -> Iterator[bytes]:
    """As `flipped_inside`, of the messages in a wrapper, with their checksums repaired."""
    inner = b"".join(
        message(number if magic else 10 + number, value, magic=magic, key=key)
        for number, (key, value) in enumerate(OLD)
    )
    for at in range(len(inner)):
        for mask in MASKS:
            plain = repaired(inner[:at] + bytes([inner[at] ^ mask]) + inner[at + 1 :])
            packed = compression.compress(codec, plain)
            yield message(13, packed, magic=magic, attributes=codec)


HUGE = (0, -1, 1, -2, 5, 127, 1 << 20, (1 << 31) - 1, -(1 << 31), (1 << 31), (1 << 62), (1 << 63) - 1, -(1 << 63))
"""Values of varints, also such that do not fit into their type."""


def zigzag(value: int) -> bytes:
    """A value as a varint of at most 10 bytes."""
    left, out = ((value << 1) ^ (value >> 63)) & ((1 << 64) - 1), bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])
