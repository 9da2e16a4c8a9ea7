"""Files of a log that only tests write or read in Python: the broker does it in `_ext`."""

import os
from collections.abc import Iterable

from crc32c import crc32c

from odradek.storage.atomic_file import replace_file
from odradek.storage.indexes import OFFSET_ENTRY, TIME_ENTRY
from odradek.storage.producer_snapshot import COUNT, ENTRY, HEAD, VERSION, ProducerBatch, ProducerState


def encode_snapshot(producers: Iterable[ProducerState]) -> bytes:
    """Encode the content of a snapshot file."""
    entries = []
    for state in producers:
        last = state.batches[-1] if state.batches else ProducerBatch(-1, -1, 0, -1)
        entries.append(
            ENTRY.pack(
                state.producer_id,
                state.producer_epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                state.last_timestamp,
                state.coordinator_epoch,
                state.current_txn_first_offset,
            )
        )
    body = COUNT.pack(len(entries)) + b"".join(entries)
    return HEAD.pack(VERSION, crc32c(body)) + body


def write_snapshot(path: str | os.PathLike[str], producers: Iterable[ProducerState], *, sync: bool = True) -> None:
    """Replace a producer snapshot. Raises OSError."""
    replace_file(path, encode_snapshot(producers), sync=sync)


def read_offset_index(data: bytes, base_offset: int) -> list[tuple[int, int]]:
    """[(last offset of a batch, position)]; `data` holds whole entries."""
    return [(base_offset + offset, position) for offset, position in OFFSET_ENTRY.iter_unpack(data)]


def read_time_index(data: bytes, base_offset: int) -> list[tuple[int, int]]:
    """[(timestamp in ms, offset)]; `data` holds whole entries."""
    return [(timestamp, base_offset + offset) for timestamp, offset in TIME_ENTRY.iter_unpack(data)]
