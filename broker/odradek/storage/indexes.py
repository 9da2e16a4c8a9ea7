"""Entries of the three indexes of a segment as Python values, for retention, the choice of logs to compact, tools and tests.

The broker's look-ups and writers are in `_ext`; `_ext/storage/index_entries.pxd` is the native counterpart.

    offset index, 8 bytes:  last offset of a batch less the segment's base i32, that batch's position i32
    time index, 12 bytes:   largest timestamp so far i64, last offset of the batch that has it less the base i32
    txn index, 34 bytes:    version i16 (0), producer id i64, first offset i64, last offset i64, last stable offset i64

The holder of the partition's lock writes them at their true length. (Kafka preallocates the indexes of the active segment
and trims them at a roll or close; it also reads files without preallocation.)
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
TXN_ENTRY = struct.Struct(">hqqqq")
TXN_VERSION = 0


@dataclass(frozen=True)
class AbortedTransaction:
    """An entry of a txn index. Offsets are absolute; `last_offset` is that of the abort marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def __bytes__(self) -> bytes:
        return TXN_ENTRY.pack(
            TXN_VERSION, self.producer_id, self.first_offset, self.last_offset, self.last_stable_offset
        )


def last_timestamp(descriptor: int) -> int:
    """The largest timestamp of a closed segment in ms, which is that of the last entry of its time index; -1 if that is empty.

    :param descriptor: the open time index. :raises OSError: it could not be read.
    """
    entries = os.fstat(descriptor).st_size // TIME_ENTRY.size
    last = os.pread(descriptor, TIME_ENTRY.size, (entries - 1) * TIME_ENTRY.size) if entries else b""
    return int(TIME_ENTRY.unpack(last)[0]) if len(last) == TIME_ENTRY.size else -1


def last_timestamp_of(path: str | os.PathLike[str]) -> int:
    """Like `last_timestamp`, for the time index `path`. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return last_timestamp(descriptor)
    finally:
        os.close(descriptor)


def read_txn_index(data: bytes) -> list[AbortedTransaction]:
    """The aborted transactions of a txn index; `data` holds whole entries. Raises ValueError for an unknown version."""
    transactions = []
    for version, *fields in TXN_ENTRY.iter_unpack(data):
        if version != TXN_VERSION:
            raise ValueError(f"txn index entry of unsupported version {version}; expected {TXN_VERSION}")
        transactions.append(AbortedTransaction(*fields))
    return transactions
