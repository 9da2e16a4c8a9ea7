"""Reads the log of one partition of an internal topic (`__consumer_offsets`, `__transaction_state`) when its coordinator
loads it.

Runs in a thread, and reads only files.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.records.replayed_batches import read_batches
from odradek.coordination.environment import NO_PRODUCER, LogBatch
from odradek.storage.batch import ABORT, COMMIT, END_TXN_KEY, read_batch
from odradek.storage.file_names import partition_directory_name
from odradek.storage.old_messages import MAGIC_AT, is_old, read_message

PIECE_BYTES = 1 << 20
LENGTH_BYTES = 12
HEAD_BYTES = MAGIC_AT + 1
"""The bytes of a batch or an old message that contain base offset, length, and format version."""


class LogMoved(Exception):
    """The log's files changed while they were read."""


def read_records(slot: int, log_dirs: Sequence[Path]) -> Iterator[list[LogBatch]]:
    """The records of the log, from the oldest one to the present log end, in pieces; offsets ascend.

    It reads to the log end and not to the high watermark: a new leader learns the high watermark late, and the former leader
    may have acknowledged records above it.

    :raises LogMoved: a file vanished, or the log's files changed, while the log was read: the result may have gaps.
    :raises OSError: the log cannot be read, contains a corrupt batch, or ends before the log end: a state built from it would
        be incomplete.
    """
    state = slot_facts.describe(slot)
    end = state.log_end_offset
    directory = log_dirs[state.log_dir] / partition_directory_name(state.topic, state.partition)
    generation = state.generation
    reached = state.log_start_offset
    try:
        for path in sorted(directory.glob("*.log")):
            reached = max(reached, int(path.stem))  # compaction may have taken the last records of the segment before
            if reached >= end:
                break
            for upto, piece in _read_file(path, state.log_start_offset, end):
                reached = upto
                yield piece
    except FileNotFoundError as error:
        raise LogMoved(f"{error.filename} was removed") from error
    if slot_facts.describe(slot).generation != generation:
        raise LogMoved("its segments changed")
    if reached < end:
        raise OSError(errno.EIO, f"the log ends at offset {reached}, expected {end}", str(directory))


def _read_file(path: Path, start: int, end: int) -> Iterator[tuple[int, list[LogBatch]]]:
    """The records of one segment in pieces, each with the offset after its last record."""
    reached = 0
    with path.open("rb") as file:
        data, at = file.read(PIECE_BYTES), 0
        piece: list[LogBatch] = []
        while len(data) - at >= HEAD_BYTES:
            at, upto, batches = read_batches(data, at, start, end)
            if batches:
                _join(piece, map(LogBatch._make, batches))
            reached = max(reached, upto)
            if len(data) - at >= HEAD_BYTES:
                size = _size_of_batch(data, at, path)
                if int.from_bytes(data[at : at + 8], "big") >= end:
                    break
                if size <= len(data) - at:
                    last, batch = _read_unusual(data[at : at + size], start, end, path)
                    _join(piece, [batch])
                    at, reached = at + size, last + 1
                    continue
            else:
                size = HEAD_BYTES
            if piece:
                yield reached, piece
                piece = []
            more = file.read(max(PIECE_BYTES, size))
            if not more and len(data) - at >= HEAD_BYTES:
                raise OSError(errno.EIO, "corrupt batch (the file ends within it)", str(path))
            data, at = data[at:] + more, 0
    if reached:
        yield reached, piece


def _join(piece: list[LogBatch], batches: Iterable[LogBatch]) -> None:
    """Append batches to a piece. Consecutive batches outside of transactions are joined to one."""
    for batch in batches:
        if piece and piece[-1].commits is None and piece[-1].producer_id == batch.producer_id == NO_PRODUCER:
            piece[-1].records.extend(batch.records)
        else:
            piece.append(batch)


def _size_of_batch(data: bytes, at: int, path: Path) -> int:
    length = int.from_bytes(data[at + 8 : at + LENGTH_BYTES], "big", signed=True)
    if length < HEAD_BYTES - LENGTH_BYTES:  # such a batch would end before its own header
        raise OSError(errno.EIO, f"corrupt batch (its length field is {length})", str(path))
    return LENGTH_BYTES + length


def _read_unusual(data: bytes, start: int, end: int, path: Path) -> tuple[int, LogBatch]:
    """Like `_read_batch`, for a batch that is compressed, has an old format, or is corrupt."""
    try:
        return _read_old(data, start, end) if is_old(data) else _read_batch(data, start, end)
    except ValueError as error:  # the batch is corrupt or cannot be decompressed
        raise OSError(errno.EIO, f"corrupt batch ({error})", str(path)) from error


def _read_batch(data: bytes, start: int, end: int) -> tuple[int, LogBatch]:
    """The last offset of a batch, and its records within [start, end). Raises ValueError."""
    batch, _ = read_batch(data)
    selected = [record for record in batch.records() if start <= record.offset < end]
    if batch.is_control:
        kind = selected[0].key if selected else None
        if kind is None or len(kind) < END_TXN_KEY.size or END_TXN_KEY.unpack_from(kind)[1] not in (ABORT, COMMIT):
            return batch.last_offset, LogBatch([])
        commits = END_TXN_KEY.unpack_from(kind)[1] == COMMIT
        return batch.last_offset, LogBatch([], batch.producer_id, commits=commits)
    records = [(record.key or b"", record.value) for record in selected]
    if batch.is_transactional:
        return batch.last_offset, LogBatch(records, batch.producer_id, [record.offset for record in selected])
    return batch.last_offset, LogBatch(records)


def _read_old(data: bytes, start: int, end: int) -> tuple[int, LogBatch]:
    """Like `_read_batch`, for a message of format v0 or v1, from logs of Kafka before 0.11."""
    message, _ = read_message(data)
    selected = [inner for inner in message.opened() if start <= inner.offset < end]
    return message.offset, LogBatch([(inner.key or b"", inner.value) for inner in selected])
