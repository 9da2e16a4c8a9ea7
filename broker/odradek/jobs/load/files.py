"""Writes the records of a task to Parquet files, and counts them in the same pass. Runs in Spark's Python workers.

A task has a range of offsets of one partition. It writes one file for each date into the staging directory of its step, under
names that no other attempt uses, flushes them to the disk, and returns a row for each. Spark returns the rows of exactly one
successful attempt of each task: the files of the others are in no commit.
"""

import errno
import os
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from odradek.topic_partition import TopicPartition

HASH = "hash"
DECODED = "decoded"
ERROR = "decode_error"
#: The name of a date that a directory cannot have: of timestamps before year 1 or after year 9999.
NO_DATE = "__HIVE_DEFAULT_PARTITION__"
_MICROSECONDS_A_DAY = 86_400_000_000
_FIRST_DAY, _LAST_DAY = (int(np.datetime64(day, "D").astype(np.int64)) for day in ("0001-01-01", "9999-12-31"))
_OPEN_FILES = 16
_BUFFER_BYTES = 64 << 20
_FILE_BYTES = 1 << 30
_HASHES = 1 << 64

#: Errors of a file system that a repeated attempt of the task meets again.
_LASTING = frozenset((
    errno.EACCES, errno.EDQUOT, errno.EFBIG, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOSPC, errno.ENOTDIR, errno.EPERM,
    errno.EROFS,
))  # fmt: skip

#: The row that a task returns for each file; `checksum` is signed. A row with `error` says why the task could not write.
WRITTEN = (
    "topic string, partition int, date string, file string, bytes bigint, records bigint, undecoded bigint, first_offset"
    " bigint,"
    " last_offset bigint, first_timestamp_ms bigint, last_timestamp_ms bigint, checksum bigint, error string"
)
_WRITTEN_SCHEMA = pa.schema([
    ("topic", pa.string()), ("partition", pa.int32()), ("date", pa.string()), ("file", pa.string()),
    *((name, pa.int64()) for name in (
        "bytes", "records", "undecoded", "first_offset", "last_offset", "first_timestamp_ms", "last_timestamp_ms", "checksum",
    )),
    ("error", pa.string()),
])  # fmt: skip


@dataclass
class _Counts:
    """What is in a file."""

    records: int = 0
    undecoded: int = 0
    first_offset: int = 0
    last_offset: int = 0
    first_timestamp_ms: int = 0
    last_timestamp_ms: int = 0
    checksum: int = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Count a batch with the columns offset, which ascends, timestamp, hash, and decode_error if values are decoded."""
        offsets = batch.column("offset")
        times = batch.column("timestamp").view(pa.int64()).to_numpy()
        first_ms, last_ms = int(times.min()) // 1000, int(times.max()) // 1000
        if not self.records:
            self.first_offset, self.first_timestamp_ms, self.last_timestamp_ms = offsets[0].as_py(), first_ms, last_ms
        self.first_timestamp_ms = min(self.first_timestamp_ms, first_ms)
        self.last_timestamp_ms = max(self.last_timestamp_ms, last_ms)
        self.last_offset = offsets[-1].as_py()
        hashes = batch.column(HASH).to_numpy(zero_copy_only=False).view(np.uint64)
        self.checksum = (self.checksum + int(hashes.sum(dtype=np.uint64))) % _HASHES
        self.records += batch.num_rows
        if ERROR in batch.schema.names:
            self.undecoded += batch.num_rows - batch.column(ERROR).null_count


class _OpenFile:
    """A file that is being written: batches are kept until there are enough of them for a row group."""

    def __init__(self, staging: Path) -> None:
        self.path = staging / f"{uuid.uuid4().hex}.parquet"
        self.counts = _Counts()
        self.buffered = 0
        self._batches: list[pa.RecordBatch] = []
        self._file: BinaryIO | None = None
        self._writer: pq.ParquetWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        self.counts.add(batch)
        self._batches.append(batch)
        self.buffered += batch.nbytes

    def flush(self) -> None:
        """Write what is kept as a row group."""
        if not self._batches:
            return
        table = pa.Table.from_batches(self._batches).drop_columns(["topic", HASH])
        if self._writer is None or self._file is None:
            self._file = open(self.path, "xb")  # noqa: SIM115 - `close` closes it
            self._writer = pq.ParquetWriter(self._file, table.schema, compression="zstd")
        self._writer.write_table(table)
        self._batches, self.buffered = [], 0

    @property
    def size(self) -> int:
        """The bytes written so far."""
        return 0 if self._file is None else self._file.tell()

    def close(self) -> int:
        """Flush the file to the disk; return its size in bytes."""
        self.flush()
        assert self._writer is not None and self._file is not None
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        size = self._file.tell()
        self._file.close()
        return size


class Decoder(Protocol):
    """Decodes the values of a task."""

    def decode(self, values: pa.Array) -> tuple[pa.Array, pa.Array]:
        """The columns `decoded` and `decode_error`. Raises LoadError."""


class TaskDecoder(Protocol):
    """How values are decoded: goes to the workers with the task."""

    def opened(self) -> Decoder:
        """What decodes in one task. Raises LoadError."""


def write_batches(
    staging: str, batches: Iterator[pa.RecordBatch], decoder: TaskDecoder | None = None
) -> Iterator[pa.RecordBatch]:
    """Write the records of a task.

    :param batches: with the columns of `frames.read`, in the order of offsets
    :param decoder: decodes their values; None: they have the columns for that already, or need none
    :returns: one batch with a row of `WRITTEN` for each file, or with one row that has an `error`: Spark would repeat a task
        that fails, also where the disk is full
    :raises RuntimeError: the offsets do not ascend, so that a record may be there twice
    :raises LoadError: what decodes the values failed
    """
    try:
        rows = _written(Path(staging), batches, decoder)
    except OSError as error:
        if error.errno not in _LASTING:
            raise
        rows = [{"error": f"{error.filename or staging}: {error.strerror}"}]
    yield pa.RecordBatch.from_pylist(rows, schema=_WRITTEN_SCHEMA)


def _written(directory: Path, batches: Iterator[pa.RecordBatch], decoder: TaskDecoder | None) -> list[dict[str, Any]]:
    """Write the records; return the rows."""
    opened = None if decoder is None else decoder.opened()
    open_files: OrderedDict[tuple[str, int, str], _OpenFile] = OrderedDict()
    rows: list[dict[str, Any]] = []
    last: dict[TopicPartition, int] = {}

    def close(key: tuple[str, int, str]) -> None:
        file = open_files.pop(key)
        topic, partition, date = key
        size = file.close()
        signed = file.counts.checksum - (_HASHES if file.counts.checksum >= _HASHES // 2 else 0)
        row = {"topic": topic, "partition": partition, "date": date, "file": file.path.name, "bytes": size}
        rows.append({**row, **vars(file.counts), "checksum": signed})

    for batch in batches:
        _check_order(last, batch)
        if opened is not None:
            for name, column in zip((DECODED, ERROR), opened.decode(batch.column("value")), strict=True):
                batch = batch.append_column(name, column)
        for key, part in _by_place_and_date(batch):
            if key not in open_files:
                if len(open_files) >= _OPEN_FILES:
                    close(next(iter(open_files)))
                open_files[key] = _OpenFile(directory)
            open_files.move_to_end(key)
            open_files[key].add(part)
        if sum(file.buffered for file in open_files.values()) >= _BUFFER_BYTES:
            for file in open_files.values():
                file.flush()
        for key in [key for key, file in open_files.items() if file.size >= _FILE_BYTES]:
            close(key)
    for key in list(open_files):
        close(key)
    return rows


def _check_order(last: dict[TopicPartition, int], batch: pa.RecordBatch) -> None:
    offsets = batch.column("offset").to_numpy()
    for place, rows in _places(batch):
        ascending = offsets[rows]
        before = last.get(place, -1)
        if ascending[0] <= before or (ascending[1:] <= ascending[:-1]).any():
            raise RuntimeError(f"{place[0]}-{place[1]}: the offsets after {before} do not ascend")
        last[place] = int(ascending[-1])


def _places(batch: pa.RecordBatch) -> list[tuple[TopicPartition, slice | np.ndarray]]:
    """The topics and partitions of a batch, and which rows are theirs; nearly always one has all rows."""
    if not batch.num_rows:
        return []
    topics, partitions = pc.unique(batch.column("topic")), batch.column("partition").to_numpy()
    if len(topics) == 1 and (partitions == partitions[0]).all():
        return [((topics[0].as_py(), int(partitions[0])), slice(None))]
    codes = batch.column("topic").dictionary_encode().indices.to_numpy()
    return [
        ((topic, int(partition)), (codes == code) & (partitions == partition))
        for code, topic in enumerate(topics.to_pylist())
        for partition in np.unique(partitions[codes == code])
    ]


def _by_place_and_date(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, int, str], pa.RecordBatch]]:
    """The rows of a batch by topic, partition and date (UTC), in their order."""
    times = batch.column("timestamp").view(pa.int64()).to_numpy()
    for place, rows in _places(batch):
        first, last = (int(time) // _MICROSECONDS_A_DAY for time in (times[rows].min(), times[rows].max()))
        if first == last and isinstance(rows, slice):
            yield (*place, date_of(first)), batch
            continue
        days = times // _MICROSECONDS_A_DAY
        for day in np.unique(days[rows]):
            chosen = days == day
            yield (
                (*place, date_of(int(day))),
                batch.filter(pa.array(chosen if isinstance(rows, slice) else chosen & rows)),
            )


def date_of(day: int) -> str:
    """The name of a day's directory. :param day: since 1970."""
    return str(np.datetime64(day, "D")) if _FIRST_DAY <= day <= _LAST_DAY else NO_DATE
