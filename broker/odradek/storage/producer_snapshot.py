"""`.snapshot` files: the state of a partition's producers at an offset (Kafka's ProducerSnapshot, version 1).

    version i16, crc u32 (CRC-32C of the rest), count i32, then 46 bytes per producer: producer id i64, epoch i16,
    last sequence i32, last offset i64, offset delta i32, timestamp i64, coordinator epoch i32, current txn first
    offset i64

The holder of the partition's lock writes a snapshot when a segment rolls and when the broker stops; opening a log reads it.
A snapshot has only the last batch of a producer. Opening a log finds the four before it at the end of the log, if they are
near it (`_ext/storage/producer_batches.pyx`).
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path

from odradek.storage.checksum import crc32c

VERSION = 1
HEAD = struct.Struct(">hI")
COUNT = struct.Struct(">i")
ENTRY = struct.Struct(">qhiqiqiq")


class CorruptSnapshotError(ValueError):
    """A snapshot whose version, length or CRC is wrong."""


@dataclass(frozen=True)
class ProducerBatch:
    """A batch of a producer: its last sequence and offset, last minus first offset, and largest timestamp in ms."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def base_sequence(self) -> int:
        """The first sequence; sequences wrap from 2^31-1 to 0."""
        return (self.last_sequence - self.offset_delta) % (1 << 31)

    @property
    def first_offset(self) -> int:
        """The offset of the first record of the batch."""
        return self.last_offset - self.offset_delta


@dataclass(frozen=True)
class ProducerState:
    """The state of a producer in a partition. `batches`: at most the last five, oldest first.

    `current_txn_first_offset` and `coordinator_epoch` are -1 without a transaction; `last_timestamp` in ms.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = -1
    last_timestamp: int = -1
    current_txn_first_offset: int = -1
    batches: tuple[ProducerBatch, ...] = ()


def decode_snapshot(data: bytes) -> list[ProducerState]:
    """Decode the content of a snapshot file. Raises CorruptSnapshotError."""
    if len(data) < HEAD.size + COUNT.size:
        raise CorruptSnapshotError(f"{len(data)} bytes are too few for a header")
    version, crc = HEAD.unpack_from(data)
    if version != VERSION:
        raise CorruptSnapshotError(f"unsupported version {version}; expected {VERSION}")
    if crc32c(data[HEAD.size :]) != crc:
        raise CorruptSnapshotError("the content does not match its CRC")
    (count,) = COUNT.unpack_from(data, HEAD.size)
    entries = data[HEAD.size + COUNT.size :]
    if count < 0 or len(entries) != count * ENTRY.size:
        raise CorruptSnapshotError(f"{len(entries)} bytes of entries, but {count} producers need {count * ENTRY.size}")
    producers = []
    for fields in ENTRY.iter_unpack(entries):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, txn_offset = fields
        batches = (ProducerBatch(sequence, offset, delta, timestamp),) if offset >= 0 else ()
        producers.append(ProducerState(producer_id, epoch, coordinator_epoch, timestamp, max(txn_offset, -1), batches))
    return producers


def read_snapshot(path: str | os.PathLike[str]) -> list[ProducerState]:
    """Read the producers in the file. Raises CorruptSnapshotError, OSError."""
    return decode_snapshot(Path(path).read_bytes())
