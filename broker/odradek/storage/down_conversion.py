"""What a log holds, as consumers before Kafka 0.11 read it: message sets of format v0 or v1, made batch by batch.

Runs in the conversion thread of a worker, in steps; reads files whose descriptors its caller keeps open. No more is held
than one batch (opened) and the bytes of the response. Rules, as in Kafka: control batches are left out, headers are
lost, a compressed batch becomes one wrapper in its codec, a message has the log append time of its batch; zstd has no
place in these formats.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

import odradek._ext.records.batch_to_messages as batch_to_messages
import odradek._ext.records.crc32c as crc32c
import odradek._ext.records.message_sets as message_sets
from odradek.storage import batch as batches
from odradek.storage import compression, old_messages

HEADER_BYTES = 61
LENGTH_END = 17  # up to the magic: what tells how long a batch or message is, and which it is
OPEN_LIMIT = 128 * 1024 * 1024
OPENED_BUDGET = 256 * 1024 * 1024
STEP_BYTES = 256 * 1024

CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR, UNSUPPORTED_VERSION = 2, 56, 35


class Part(NamedTuple):
    """A range of one segment's log file, for one partition of a Fetch.

    :param owner: keeps `fd` open.
    :param position: of a batch, in the file.
    :param extent: bytes from there on that may be read; ends with a batch.
    :param fetch_offset: the first offset that is wanted.
    :param limit: bytes of the partition's part of the response.
    :param magic: of the format wanted, 0 or 1.
    :param at_least_one: a batch is given even if it is larger than the limits.
    :param may_convert: whether ``message.downconversion.enable`` allows it.
    """

    owner: Any
    fd: int
    position: int
    extent: int
    fetch_offset: int
    limit: int
    magic: int
    at_least_one: bool
    may_convert: bool


Converted = tuple[int, bytes, int]
"""Kafka's error code, the message set, and the offset from which to go on."""


def conversion(
    parts: Sequence[tuple[Any, ...]], budget: int, opened_budget: int = OPENED_BUDGET
) -> Generator[None, None, list[Converted]]:
    """Every part (the fields of `Part`) as a message set, a few batches or messages at a step.

    All of them together have no more than `budget` bytes, but for what the last one gives at least, and are made of
    batches that were opened to no more than `opened_budget` bytes, but for the last one. Parts behind that give nothing
    this time.
    """
    results: list[Converted] = []
    opened = Opened(opened_budget)
    given = False
    for number, fields in enumerate(parts):
        if number:
            yield
        part = Part(*fields)
        at_least_one = part.at_least_one and (budget > 0 or not given) and opened.left > 0
        limit = min(part.limit, budget) if opened.left > 0 else 0
        result = yield from convert_part(part._replace(limit=limit, at_least_one=at_least_one), opened)
        given = given or bool(result[1])
        budget = max(0, budget - len(result[1]))
        results.append(result)
    return results


class Opened:
    """How many bytes compressed batches may still be opened to for one request."""

    def __init__(self, left: int) -> None:
        self.left = left


def convert_part(part: Part, opened: Opened) -> Generator[None, None, Converted]:
    """One part. A batch that cannot be converted, and all behind it, is left for the next request, which receives the error."""
    found: list[bytes] = []
    room, offset, at, end = part.limit, part.fetch_offset, part.position, part.position + part.extent
    step_from, opened_before = at, opened.left
    while at < end and opened.left > 0 and (room > 0 or (part.at_least_one and not found)):
        if at - step_from >= STEP_BYTES or opened_before - opened.left >= STEP_BYTES:
            yield
            step_from, opened_before = at, opened.left
        try:
            entry = _read_entry(part.fd, at, end)
            at += entry.size
            if entry.skipped or entry.last_offset < part.fetch_offset:
                offset = max(offset, entry.last_offset + 1)
                continue
            if entry.magic > part.magic and not part.may_convert:
                raise message_sets.BadMessageError(UNSUPPORTED_VERSION, at, "down-conversion is switched off")
            converted, following = _convert_entry(entry, part, room, opened)
        except message_sets.BadMessageError as error:
            return (0, b"".join(found), offset) if found else (error.code, b"", offset)
        except OSError:
            return (0, b"".join(found), offset) if found else (KAFKA_STORAGE_ERROR, b"", offset)
        except ValueError:  # what a codec says of bytes that are not its own
            return (0, b"".join(found), offset) if found else (CORRUPT_MESSAGE, b"", offset)
        if len(converted) > room and (found or not part.at_least_one):
            break
        offset = max(offset, following)
        if converted:
            found.append(converted)
            room -= len(converted)
        if following <= entry.last_offset:
            break
    return 0, b"".join(found), offset


class _Entry(NamedTuple):
    """A batch, or a message of an old format, as it lies in the file; `data` is empty if it is to be skipped."""

    magic: int
    size: int
    last_offset: int
    skipped: bool
    data: bytes


def _read_entry(fd: int, at: int, end: int) -> _Entry:
    head = _read(fd, at, min(HEADER_BYTES, end - at), LENGTH_END)
    magic = head[16]
    size = int.from_bytes(head[8:12], "big") + 12
    offset = int.from_bytes(head[:8], "big")
    if size > end - at or magic > 2 or (magic == 2 and size < HEADER_BYTES):
        raise message_sets.BadMessageError(CORRUPT_MESSAGE, at, f"no batch: magic {magic}, {size} bytes")
    if magic < 2:
        message = _read(fd, at, size, size)
        message_sets.check_set(message)
        return _Entry(magic, size, offset, False, message)
    last_offset = offset + int.from_bytes(head[23:27], "big")
    count = int.from_bytes(head[57:61], "big")
    if int.from_bytes(head[21:23], "big") & batches.CONTROL or count == 0:
        return _Entry(magic, size, last_offset, True, b"")
    data = _read(fd, at, size, size)
    if crc32c.checksum(memoryview(data)[21:]) != int.from_bytes(data[17:21], "big"):
        raise message_sets.BadMessageError(CORRUPT_MESSAGE, at, "a stored batch does not match its CRC")
    return _Entry(magic, size, last_offset, False, data)


def _read(fd: int, at: int, size: int, least: int) -> bytes:
    data = os.pread(fd, size, at)
    while len(data) < least:
        more = os.pread(fd, size - len(data), at + len(data))
        if not more:
            raise OSError(5, f"the log ends at {at + len(data)}, within a batch")
        data += more
    return data


def _convert_entry(entry: _Entry, part: Part, room: int, opened: Opened) -> tuple[bytes, int]:
    """The entry in the format wanted, and the offset from which to go on: within the entry, if it was cut at `room`."""
    if entry.magic <= part.magic:
        return entry.data, entry.last_offset + 1
    if entry.magic == 1:
        return _from_format_1(entry, part, opened), entry.last_offset + 1
    payload = memoryview(entry.data)[HEADER_BYTES:]
    codec = entry.data[22] & 7
    plain: bytes | memoryview = payload
    if codec not in (compression.NONE, compression.ZSTD):
        plain = compression.decompress(codec, payload, OPEN_LIMIT)
        opened.left -= len(plain)
    converted: bytes
    converted, following = batch_to_messages.batch_to_messages(
        entry.data, plain, part.magic, part.fetch_offset, room, compression.compress_old
    )
    return converted, following


def _from_format_1(entry: _Entry, part: Part, opened: Opened) -> bytes:
    """A message of format v1 in format v0: without timestamps, offsets absolute."""
    message, _ = old_messages.read_message(entry.data)
    inner = b"".join(
        batch_to_messages.write_message(0, 0, False, one.offset, -1, one.key, one.value)
        for one in message.opened(OPEN_LIMIT)
        if message.codec or one.offset >= part.fetch_offset
    )
    if not message.codec:
        return inner
    opened.left -= len(inner)
    packed = compression.compress_old(message.codec, inner, 0)
    wrapped: bytes = batch_to_messages.write_message(0, message.codec, False, message.offset, -1, message.key, packed)
    return wrapped
