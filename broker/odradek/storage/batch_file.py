"""Reading a log file batch by batch as Python objects, whatever the message format: for tools, not for the broker.

Stateless; files are read by `pread` below the size given, so that a broker may append meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import odradek._ext.records.record_batch as records
from odradek.storage.batch import CorruptBatchError, Record, RecordBatch, read_batch
from odradek.storage.old_messages import MAGIC_AT, OVERHEAD_BYTES, CorruptMessageError, OldMessage, read_message

HEAD_BYTES = 17  # offset, size, 4 bytes, magic
LEAST_BYTES = 26  # of a message of format v0
PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class Found:
    """A sound batch (v2) or message (v0, v1) and the bytes it takes from `position` on."""

    position: int
    size: int
    content: RecordBatch | OldMessage

    @property
    def base_offset(self) -> int:
        """The first offset; of an old message the one that it states."""
        return self.content.offset if isinstance(self.content, OldMessage) else self.content.base_offset


@dataclass(frozen=True)
class Damage:
    """Bytes that are no sound batch; `size` is what the header states, or 0 where it is no header."""

    position: int
    size: int
    what: str


class _Window:
    """Bytes of a file around where reading is."""

    def __init__(self, descriptor: int, size: int) -> None:
        self.size = size
        self._descriptor = descriptor
        self._data = b""
        self._at = 0

    def bytes_at(self, position: int, count: int) -> memoryview:
        """`count` bytes, fewer only where the file was cut."""
        begin = position - self._at
        if begin < 0 or begin + count > len(self._data):
            wanted = min(max(count, PIECE_BYTES), self.size - position)
            self._data, self._at, begin = os.pread(self._descriptor, wanted, position), position, 0
        return memoryview(self._data)[begin : begin + count]


def read_file(descriptor: int, size: int) -> Iterator[Found | Damage]:
    """All batches in the first `size` bytes; behind a header that is none, nothing. Raises OSError."""
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
            yield Damage(position, 0, f"no batch begins here (magic {magic}, {length} bytes, {size - position} left)")
            return
        data = window.bytes_at(position, length)
        yield _read(data, position, length, magic)
        position += length


def _read(data: memoryview, position: int, length: int, magic: int) -> Found | Damage:
    try:
        if magic < 2:
            return Found(position, length, read_message(data)[0])
        error, _ = records.check(data, False)
        if error:
            return Damage(position, length, "the batch does not match its CRC, or its counts cannot be")
        return Found(position, length, read_batch(data)[0])
    except (CorruptBatchError, CorruptMessageError) as wrong:
        return Damage(position, length, str(wrong))


def open_batch(content: RecordBatch | OldMessage) -> list[Record]:
    """The records, decompressed, with offsets and timestamps (ms) that count. Raises ValueError."""
    if isinstance(content, RecordBatch):
        return content.records()
    return [Record(one.key, one.value, one.timestamp, (), one.offset) for one in content.opened()]
