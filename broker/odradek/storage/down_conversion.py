"""Down-conversion: converts logs batch by batch to message sets of format v0 or v1, for consumers before Kafka 0.11.

Runs in the conversion thread of a worker, in steps; reads files whose descriptors its caller keeps open. It holds at most
one decompressed batch and the bytes of the response. Rules, as in Kafka: control batches are skipped, headers are dropped,
a compressed batch becomes one wrapper in its codec, a message gets the log append time of its batch; these formats have no
zstd.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

import odradek._ext.records.batch_to_messages as batch_to_messages
import odradek._ext.records.message_sets as message_sets
from odradek.codecs import IN_MESSAGES, NONE
from odradek.storage import batch as batches
from odradek.storage import compression, old_messages
from odradek.storage.checksum import crc32c

HEADER_BYTES = 61
LENGTH_END = 17  # end of the magic byte: enough to know the size and the format of a batch or message
OPEN_LIMIT = 128 * 1024 * 1024
OPENED_BUDGET = 256 * 1024 * 1024
SCANNED_BUDGET = 4 * 1024 * 1024
STEP_BYTES = 256 * 1024

CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR, UNSUPPORTED_VERSION = 2, 56, 35


class Part(NamedTuple):
    """A range of one segment's log file, for one partition of a Fetch.

    :param owner: keeps `fd` open.
    :param position: file position of a batch.
    :param extent: number of bytes to read from there; ends with a whole batch.
    :param fetch_offset: the first offset to return.
    :param limit: largest size of the partition's part of the response, in bytes.
    :param magic: the target format, 0 or 1.
    :param at_least_one: return one batch even if it exceeds the limits.
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


ConversionResult = tuple[int, bytes, int]
"""Kafka's error code, the message set, and the next fetch offset."""


def conversion(
    parts: Sequence[tuple[Any, ...]],
    budget: int,
    opened_budget: int = OPENED_BUDGET,
    scanned_budget: int = SCANNED_BUDGET,
) -> Generator[None, None, list[ConversionResult]]:
    """Convert all parts (tuples of the fields of `Part`) to message sets, a few batches or messages per step.

    The message sets together take at most `budget` bytes, except for a batch of an `at_least_one` part. The batches
    decompress to at most `opened_budget` bytes together, except for the last batch. Parts after a spent budget return
    nothing. Of `scanned_budget`, each part has an equal share: if so many bytes of its log contain no message, it ends without
    messages, with the next offset.
    """
    results: list[ConversionResult] = []
    decompression = DecompressionBudget(opened_budget)
    any_result = False
    for number, fields in enumerate(parts):
        if number:
            yield
        part = Part(*fields)
        at_least_one = part.at_least_one and (budget > 0 or not any_result) and decompression.left > 0
        limit = min(part.limit, budget) if decompression.left > 0 else 0
        part = part._replace(limit=limit, at_least_one=at_least_one)
        result = yield from convert_part(part, decompression, scanned_budget // len(parts))
        any_result = any_result or bool(result[1])
        budget = max(0, budget - len(result[1]))
        results.append(result)
    return results


class DecompressionBudget:
    """The bytes to which compressed batches of one request may still be decompressed."""

    def __init__(self, left: int) -> None:
        self.left = left


def convert_part(
    part: Part, decompression: DecompressionBudget, most_scanned: int = SCANNED_BUDGET
) -> Generator[None, None, ConversionResult]:
    """Convert one part. If `most_scanned` bytes from its beginning on contain no message, it ends there.

    A batch that cannot be converted ends the part; the next request, which starts with it, gets the error.
    """
    sets: list[bytes] = []
    room, offset, at, end = part.limit, part.fetch_offset, part.position, part.position + part.extent
    step_from, left_before = at, decompression.left
    while at < end and decompression.left > 0 and (room > 0 or (part.at_least_one and not sets)):
        if not sets and at > part.position and at - part.position >= most_scanned:
            break
        if at - step_from >= STEP_BYTES or left_before - decompression.left >= STEP_BYTES:
            yield
            step_from, left_before = at, decompression.left
        try:
            entry = _read_entry(part.fd, at, end)
            at += entry.size
            if entry.skipped or entry.last_offset < part.fetch_offset:
                offset = max(offset, entry.last_offset + 1)
                continue
            if entry.magic > part.magic and not part.may_convert:
                raise message_sets.BadMessageError(UNSUPPORTED_VERSION, at, "message.downconversion.enable is false")
            converted, following = _convert_entry(entry, part, room, decompression)
        except message_sets.BadMessageError as error:
            return (0, b"".join(sets), offset) if sets else (error.code, b"", offset)
        except OSError:
            return (0, b"".join(sets), offset) if sets else (KAFKA_STORAGE_ERROR, b"", offset)
        except ValueError:  # a codec cannot decompress the batch
            return (0, b"".join(sets), offset) if sets else (CORRUPT_MESSAGE, b"", offset)
        if len(converted) > room and (sets or not part.at_least_one):
            break
        offset = max(offset, following)
        if converted:
            sets.append(converted)
            room -= len(converted)
        if following <= entry.last_offset:
            break
    return 0, b"".join(sets), offset


class _Entry(NamedTuple):
    """A batch or old message in the file. :param skipped: a batch without messages to return; `data` is empty."""

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
        raise message_sets.BadMessageError(CORRUPT_MESSAGE, at, f"invalid batch header: magic {magic}, {size} bytes")
    if magic < 2:
        message = _read(fd, at, size, size)
        message_sets.check_set(message)
        return _Entry(magic, size, offset, False, message)
    last_offset = offset + int.from_bytes(head[23:27], "big")
    count = int.from_bytes(head[57:61], "big")
    if int.from_bytes(head[21:23], "big") & batches.CONTROL or count == 0:
        return _Entry(magic, size, last_offset, True, b"")
    data = _read(fd, at, size, size)
    if crc32c(memoryview(data)[21:]) != int.from_bytes(data[17:21], "big"):
        raise message_sets.BadMessageError(CORRUPT_MESSAGE, at, "a stored batch does not match its CRC")
    return _Entry(magic, size, last_offset, False, data)


def _read(fd: int, at: int, size: int, least: int) -> bytes:
    data = os.pread(fd, size, at)
    while len(data) < least:
        more = os.pread(fd, size - len(data), at + len(data))
        if not more:
            raise OSError(5, f"the log file ends at position {at + len(data)}, within a batch")
        data += more
    return data


def _convert_entry(entry: _Entry, part: Part, room: int, decompression: DecompressionBudget) -> tuple[bytes, int]:
    """Convert an entry to the target format; return it and the next fetch offset, which is within the entry if
    `room` cut it.
    """
    if entry.magic <= part.magic:
        return entry.data, entry.last_offset + 1
    if entry.magic == 1:
        return _from_format_1(entry, part, decompression), entry.last_offset + 1
    payload = memoryview(entry.data)[HEADER_BYTES:]
    codec = entry.data[22] & 7
    plain: bytes | memoryview = payload
    if codec != NONE and codec in IN_MESSAGES:
        plain = compression.decompress(codec, payload, OPEN_LIMIT)
        decompression.left -= len(plain)
    converted: bytes
    converted, following = batch_to_messages.batch_to_messages(
        entry.data, plain, part.magic, part.fetch_offset, room, compression.compress_old
    )
    return converted, following


def _from_format_1(entry: _Entry, part: Part, decompression: DecompressionBudget) -> bytes:
    """Convert a message of format v1 to v0: without timestamps, with absolute offsets."""
    message, _ = old_messages.read_message(entry.data)
    inner = b"".join(
        batch_to_messages.write_message(0, 0, False, plain.offset, -1, plain.key, plain.value)
        for plain in message.opened(OPEN_LIMIT)
        if message.codec or plain.offset >= part.fetch_offset
    )
    if not message.codec:
        return inner
    decompression.left -= len(inner)
    packed = compression.compress_old(message.codec, inner, 0)
    wrapped: bytes = batch_to_messages.write_message(0, message.codec, False, message.offset, -1, message.key, packed)
    return wrapped
