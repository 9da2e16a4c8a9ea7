"""Reads the log of one partition of an internal topic, for its coordinator's load: `__consumer_offsets`, `__transaction_state`.

Runs in a thread, and reads only files.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from pathlib import Path

import odradek._ext.partition.slot_facts as slot_facts
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
    piece: list[LogBatch] = []
    reached = size = 0
    with path.open("rb") as file:
        while len(head := file.read(HEAD_BYTES)) == HEAD_BYTES:
            if int.from_bytes(head[:8], "big") >= end:
                break
            length = int.from_bytes(head[8:LENGTH_BYTES], "big", signed=True)
            if length < HEAD_BYTES - LENGTH_BYTES:  # `read` would take a negative number as the rest of the file
                raise OSError(errno.EIO, f"corrupt batch (its length field is {length})", str(path))
            data = head + file.read(length - (HEAD_BYTES - LENGTH_BYTES))
            try:
                last, batch = _read_old(data, start, end) if is_old(data) else _read_batch(data, start, end)
            except ValueError as error:  # the batch is corrupt or cannot be decompressed
                raise OSError(errno.EIO, f"corrupt batch ({error})", str(path)) from error
            reached = last + 1
            size += len(data)
            if piece and piece[-1].producer_id == batch.producer_id == NO_PRODUCER:
                piece[-1].records.extend(batch.records)
            else:
                piece.append(batch)
            if size >= PIECE_BYTES:
                yield reached, piece
                piece, size = [], 0
    if reached:
        yield reached, piece


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
