"""Reads Kafka's files entry by entry as plain values: segments, indexes, snapshots, checkpoints, identity files.

Runs in `odradek log dump`. Only reads; a broker may run on the files. Every entry is a mapping of numbers and texts with a
``type``; unreadable data is an entry of type ``damage``.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from odradek import codecs
from odradek.storage import batch_file
from odradek.storage.batch import (
    CONTROL,
    DELETE_HORIZON,
    END_TXN_KEY,
    END_TXN_VALUE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Record,
    RecordBatch,
)
from odradek.storage.checkpoints import (
    CorruptCheckpointError,
    read_gap_limit,
    read_leader_epochs,
    read_offset_checkpoint,
)
from odradek.storage.file_names import (
    GAPS_CHECKPOINT,
    INDEX,
    LEADER_EPOCH_CHECKPOINT,
    LOG,
    META_PROPERTIES,
    PARTITION_METADATA,
    SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    parse_segment_file_name,
)
from odradek.storage.indexes import OFFSET_ENTRY, TIME_ENTRY, TXN_ENTRY, read_txn_index
from odradek.storage.log_directory import (
    CorruptMetadataError,
    encode_uuid,
    read_meta_properties,
    read_partition_metadata,
)
from odradek.storage.old_messages import OldMessage
from odradek.storage.producer_snapshot import CorruptSnapshotError, read_snapshot

Entry = dict[str, Any]
Decoder = Callable[[Record], Entry]
CONTROL_TYPES = {0: "abort", 1: "commit", 2: "leader_change", 3: "snapshot_header", 4: "snapshot_footer",
                 5: "kraft_version", 6: "kraft_voters"}  # fmt: skip
_KRAFT_SNAPSHOT = re.compile(r"\d{20}-\d{10}\.checkpoint|bootstrap\.checkpoint", re.ASCII)
_OFFSET_CHECKPOINT = "-offset-checkpoint"
MOST_OFFSET = (1 << 63) - 1


class UnknownFileError(ValueError):
    """A file name of an unknown kind; the message names the file."""


def files_of(path: str | os.PathLike[str]) -> list[Path]:
    """A file itself; for a directory its files of a known kind and those of its subdirectories, sorted. Raises OSError."""
    place = Path(path)
    if not place.is_dir():
        return [place]
    files: list[Path] = []
    for child in sorted(place.iterdir()):
        if child.is_dir():
            files += [file for file in sorted(child.iterdir()) if file.is_file() and _reader(file.name) is not None]
        elif _reader(child.name) is not None:
            files.append(child)
    return files


def dump_file(
    path: Path,
    *,
    deep: bool = False,
    from_offset: int = 0,
    to_offset: int = MOST_OFFSET,
    decode: Decoder | None = None,
) -> Iterator[Entry]:
    """Yield the entries of a file.

    :param deep: also yield the records of batches. :param decode: decodes a record; None: keys and values as text or base64.
    :param from_offset: skip batches and records of a log before it. :param to_offset: exclusive end.
    :raises UnknownFileError: the file name is of an unknown kind. :raises OSError: the file cannot be read.
    """
    reader = _reader(path.name)
    if reader is None:
        raise UnknownFileError(
            f"{path}: unknown kind of file; expected a segment, index, snapshot, checkpoint or identity file of Kafka"
        )
    if reader is _log:
        yield from _log(path, deep, from_offset, to_offset, decode)
    else:
        try:
            yield from reader(path)
        except (CorruptCheckpointError, CorruptMetadataError, CorruptSnapshotError, ValueError) as error:
            yield damage(str(error))


def damage(what: str, position: int | None = None) -> Entry:
    """The entry for unreadable data."""
    return {"type": "damage", "what": what} | ({} if position is None else {"position": position})


def _reader(name: str) -> Callable[..., Iterator[Entry]] | None:
    parsed = parse_segment_file_name(name)
    if parsed is not None:
        return _SEGMENT_READERS[parsed.kind]
    if _KRAFT_SNAPSHOT.fullmatch(name):
        return _log
    return _offset_checkpoint if name.endswith(_OFFSET_CHECKPOINT) else _READERS.get(name)


# -- logs ------------------------------------------------------------------------------------------------------------


def _log(path: Path, deep: bool, from_offset: int, to_offset: int, decode: Decoder | None) -> Iterator[Entry]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for batch in batch_file.read_file(descriptor, os.fstat(descriptor).st_size):
            if isinstance(batch, batch_file.Damage):
                yield damage(batch.what, batch.position) | {"size": batch.size}
                continue
            entry = _batch(batch) if isinstance(batch.content, RecordBatch) else _message(batch)
            if entry["last_offset"] < from_offset:
                continue
            if batch.base_offset >= to_offset and isinstance(batch.content, RecordBatch):
                return
            yield entry
            if deep:
                yield from _records(batch, from_offset, to_offset, decode)
    finally:
        os.close(descriptor)


def _batch(entry: batch_file.FileBatch) -> Entry:
    batch = entry.content
    assert isinstance(batch, RecordBatch)
    return {
        "type": "batch",
        "position": entry.position,
        "size": entry.size,
        "magic": 2,
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "count": batch.record_count,
        "base_timestamp": batch.base_timestamp,
        "max_timestamp": batch.max_timestamp,
        "timestamp_type": _timestamp_type(batch.attributes),
        "codec": codecs.NAMES[batch.codec],
        "leader_epoch": batch.partition_leader_epoch,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "transactional": bool(batch.attributes & TRANSACTIONAL),
        "control": bool(batch.attributes & CONTROL),
        "delete_horizon": bool(batch.attributes & DELETE_HORIZON),
    }


def _message(entry: batch_file.FileBatch) -> Entry:
    message = entry.content
    assert isinstance(message, OldMessage)
    return {
        "type": "message",
        "position": entry.position,
        "size": entry.size,
        "magic": message.magic,
        "last_offset": message.offset,
        "timestamp": message.timestamp,
        "timestamp_type": _timestamp_type(message.attributes),
        "codec": codecs.NAMES[message.codec],
    }


def _timestamp_type(attributes: int) -> str:
    return "LogAppendTime" if attributes & LOG_APPEND_TIME else "CreateTime"


def _records(batch: batch_file.FileBatch, from_offset: int, to_offset: int, decode: Decoder | None) -> Iterator[Entry]:
    try:
        records = batch_file.open_batch(batch.content)
    except ValueError as error:
        yield damage(f"cannot decode the records: {error}", batch.position)
        return
    control = isinstance(batch.content, RecordBatch) and batch.content.is_control
    for record in records:
        if from_offset <= record.offset < to_offset:
            entry = {"type": "record", "offset": record.offset, "timestamp": record.timestamp}
            yield entry | (_control(record) if control else decode(record) if decode else record_text(record))


def record_text(record: Record) -> Entry:
    """Key, value and headers as text; as base64 under `<name>_base64` if they are not UTF-8."""
    headers = [_text("key", key) | _text("value", value) for key, value in record.headers]
    return _text("key", record.key) | _text("value", record.value) | ({"headers": headers} if headers else {})


def _text(name: str, value: bytes | None) -> Entry:
    if value is None:
        return {name: None}
    try:
        return {name: bytes(value).decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def _control(record: Record) -> Entry:
    """An end marker of a transaction, or a control record of KRaft's log."""
    if record.key is None or len(record.key) < END_TXN_KEY.size:
        return damage("the key of a control record is too short")
    _, number = END_TXN_KEY.unpack_from(record.key)
    entry: Entry = {"control": CONTROL_TYPES.get(number, number)}
    if number in (0, 1) and record.value is not None and len(record.value) >= END_TXN_VALUE.size:
        entry["coordinator_epoch"] = END_TXN_VALUE.unpack_from(record.value)[1]
    return entry


# -- other files -----------------------------------------------------------------------------------------------------


def _whole(data: bytes, size: int) -> tuple[bytes, int]:
    """The whole entries without preallocated zero bytes, and the number of bytes after the last whole entry."""
    used = -(-len(data.rstrip(b"\0")) // size) * size
    return data[: min(used, len(data) // size * size)], max(0, len(data) % size)


def _base(path: Path) -> int:
    parsed = parse_segment_file_name(path.name)
    assert parsed is not None
    return parsed.base_offset


def _index(path: Path) -> Iterator[Entry]:
    data, rest = _whole(path.read_bytes(), OFFSET_ENTRY.size)
    for offset, position in OFFSET_ENTRY.iter_unpack(data):
        yield {"type": "index_entry", "offset": _base(path) + offset, "position": position}
    if rest:
        yield damage(f"{rest} trailing bytes are not a whole entry", len(data))


def _time_index(path: Path) -> Iterator[Entry]:
    data, rest = _whole(path.read_bytes(), TIME_ENTRY.size)
    for timestamp, offset in TIME_ENTRY.iter_unpack(data):
        yield {"type": "time_index_entry", "timestamp": timestamp, "offset": _base(path) + offset}
    if rest:
        yield damage(f"{rest} trailing bytes are not a whole entry", len(data))


def _txn_index(path: Path) -> Iterator[Entry]:
    data = path.read_bytes()
    rest = len(data) % TXN_ENTRY.size
    for transaction in read_txn_index(data[: len(data) - rest]):
        yield {
            "type": "aborted_transaction",
            "producer_id": transaction.producer_id,
            "first_offset": transaction.first_offset,
            "last_offset": transaction.last_offset,
            "last_stable_offset": transaction.last_stable_offset,
        }
    if rest:
        yield damage(f"{rest} trailing bytes are not a whole entry", len(data) - rest)


def _snapshot(path: Path) -> Iterator[Entry]:
    for producer in read_snapshot(path):
        entry: Entry = {
            "type": "producer",
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "coordinator_epoch": producer.coordinator_epoch,
            "current_txn_first_offset": producer.current_txn_first_offset,
            "last_timestamp": producer.last_timestamp,
        }
        for batch in producer.batches:
            entry |= {"first_sequence": batch.base_sequence, "last_sequence": batch.last_sequence,
                      "first_offset": batch.first_offset, "last_offset": batch.last_offset}  # fmt: skip
        yield entry


def _leader_epochs(path: Path) -> Iterator[Entry]:
    for epoch, offset in read_leader_epochs(path):
        yield {"type": "leader_epoch", "leader_epoch": epoch, "start_offset": offset}


def _gap_limit(path: Path) -> Iterator[Entry]:
    limit = read_gap_limit(path.parent)
    if limit is not None:
        yield {"type": "gap_limit", "offset": limit}


def _offset_checkpoint(path: Path) -> Iterator[Entry]:
    for (topic, partition), offset in read_offset_checkpoint(path).items():
        yield {"type": "offset", "topic": topic, "partition": partition, "offset": offset}


def _partition_metadata(path: Path) -> Iterator[Entry]:
    topic_id = read_partition_metadata(path.parent)
    if topic_id is not None:
        yield {"type": "partition_metadata", "topic_id": encode_uuid(topic_id)}


def _meta_properties(path: Path) -> Iterator[Entry]:
    meta = read_meta_properties(path.parent)
    if meta is not None:
        yield {
            "type": "meta_properties",
            "version": meta.version,
            "node_id": meta.node_id,
            "cluster_id": meta.cluster_id,
            "directory_id": None if meta.directory_id is None else encode_uuid(meta.directory_id),
        }


_SEGMENT_READERS: dict[str, Callable[..., Iterator[Entry]]] = {
    LOG: _log,
    INDEX: _index,
    TIME_INDEX: _time_index,
    TXN_INDEX: _txn_index,
    SNAPSHOT: _snapshot,
}
_READERS: dict[str, Callable[..., Iterator[Entry]]] = {
    LEADER_EPOCH_CHECKPOINT: _leader_epochs,
    GAPS_CHECKPOINT: _gap_limit,
    PARTITION_METADATA: _partition_metadata,
    META_PROPERTIES: _meta_properties,
}
