"""Reads a log file of any message format batch by batch as Python objects: for tools, not for the broker.

Stateless. Reads with `pread` and only below the given size, so that a broker may append meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import odradek._ext.records.record_batch as records
from odradek.storage.batch import CorruptBatchError, Record, RecordBatch, read_batch
from odradek.storage.old_messages import MAGIC_AT, OVERHEAD_BYTES, CorruptMessageError, OldMessage, read_message

HEAD_BYTES = 17  # offset, size, 4 bytes, magic
LEAST_BYTES = 26  # a message of format v0
PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class FileBatch:
    """A valid batch (v2) or message (v0, v1) with its position and size in the file."""

    position: int
    size: int
    content: RecordBatch | OldMessage

    @property
    def base_offset(self) -> int:
        """The base offset of a batch; the offset of an old message."""
        return self.content.offset if isinstance(self.content, OldMessage) else self.content.base_offset


@dataclass(frozen=True)
class Damage:
    """Bytes that are not a valid batch. :param size: the size in the header; 0 if there is no valid header."""

    position: int
    size: int
    what: str


class _Window:
    """A buffer over a part of the file."""

    def __init__(self, descriptor: int, size: int) -> None:
        self.size = size
        self._descriptor = descriptor
        self._data = b""
        self._at = 0

    def bytes_at(self, position: int, count: int) -> memoryview:
        """`count` bytes at `position`; fewer only if the file was truncated."""
        begin = position - self._at
        if begin < 0 or begin + count > len(self._data):
            length = min(max(count, PIECE_BYTES), self.size - position)
            self._data, self._at, begin = os.pread(self._descriptor, length, position), position, 0
        return memoryview(self._data)[begin : begin + count]


def read_file(descriptor: int, size: int) -> Iterator[FileBatch | Damage]:
    """Yield all batches in the first `size` bytes; stop after an invalid header. Raises OSError."""
    window = _Window(descriptor, size)
    position = 0
    while position < size:
        if size - position < LEAST_BYTES:
            yield Damage(position, 0, f"{size - position} bytes are too few for a batch")
            return
        head = window.bytes_at(position, HEAD_BYTES)
        length = OVERHEAD_BYTES + int.from_bytes(head[8:12], "big", signed=True)
        magic = head[MAGIC_AT]
        if magic > 2 or not LEAST_BYTES <= length <= size - position:
            yield Damage(
                position, 0, f"invalid batch header (magic {magic}, size {length} bytes, {size - position} bytes left)"
            )
            return
        data = window.bytes_at(position, length)
        yield _read(data, position, length, magic)
        position += length


def _read(data: memoryview, position: int, length: int, magic: int) -> FileBatch | Damage:
    try:
        if magic < 2:
            return FileBatch(position, length, read_message(data)[0])
        code, _ = records.check(data, False)
        if code:
            return Damage(position, length, "the batch does not match its CRC, or its record count is impossible")
        return FileBatch(position, length, read_batch(data)[0])
    except (CorruptBatchError, CorruptMessageError) as error:
        return Damage(position, length, str(error))


def open_batch(content: RecordBatch | OldMessage) -> list[Record]:
    """The decompressed records with their effective offsets and timestamps (ms). Raises ValueError."""
    if isinstance(content, RecordBatch):
        return content.records()
    return [Record(message.key, message.value, message.timestamp, (), message.offset) for message in content.opened()]
