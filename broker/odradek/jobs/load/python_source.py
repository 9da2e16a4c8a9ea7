"""Reads ranges of offsets with Odradek's own client: a Spark data source in Python, with the columns of Spark's Kafka source.

For machines that cannot get Spark's connector. `partitions` runs in a Python process of the driver, `read` in Spark's
Python workers: in one thread, with its own connections, for one range of one partition.
"""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from odradek._ext.records.fetched_records import CorruptRecordsError, RecordReader
from odradek._ext.records.record_columns import RecordColumns
from odradek.clients.cluster import Cluster
from odradek.clients.errors import ClientError, HandshakeError, NoBootstrapServerError, UnreachableError
from odradek.clients.fetching import Fetcher, OffsetOutOfRangeError
from odradek.clients.security import ClientSecurity
from odradek.config.errors import ConfigError
from odradek.storage import compression, old_messages

NAME = "odradek_topics"
CLIENT_ID = "odradek-load"
_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int,"
    " headers array<struct<key: string, value: binary>>"
)
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_ARROW = pa.schema([
    ("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()),
    ("timestamp", _TIMESTAMP), ("timestampType", pa.int32()), ("headers", _HEADERS),
])  # fmt: skip
#: The largest time in milliseconds that a column of microseconds can have, in the year 294247.
_LAST_MS = (1 << 63) // 1000
#: The most records of an Arrow batch, and about the most bytes of the records that are in memory as Python objects.
_BATCH, _PAGE_BYTES = 1000, 16 << 20
#: The longest time without a record, in seconds.
_SILENCE_S = 120.0
_POLL_S = 1.0
#: Limit of the size of one batch of records after decompression.
_MOST_DECOMPRESSED_BYTES = 1 << 30


@dataclass
class OffsetRange(InputPartition):
    """What one task reads. :param until: exclusive."""

    topic: str
    partition: int
    start: int
    until: int


class TopicSource(DataSource):
    """The data source; its options are those of Spark's Kafka source: assign, startingOffsets, endingOffsets, minPartitions,
    kafka.*
    """

    @classmethod
    def name(cls) -> str:
        """The name under which it is registered."""
        return NAME

    def schema(self) -> str:
        """The columns."""
        return _SCHEMA

    def reader(self, schema: StructType) -> "TopicReader":
        """The reader of a frame."""
        return TopicReader(dict(self.options))


class TopicReader(DataSourceReader):
    """Reads the ranges that the options name."""

    def __init__(self, options: Mapping[str, str]) -> None:
        named = {key.lower(): value for key, value in options.items()}  # Spark does not keep the case of option names
        starting, ending = json.loads(named["startingoffsets"]), json.loads(named["endingoffsets"])
        self._ranges = [
            OffsetRange(topic, int(number), start, ending[topic][number])
            for topic, partitions in starting.items()
            for number, start in partitions.items()
        ]
        self._least = int(named.get("minpartitions", "0"))
        self._settings = {key.removeprefix("kafka."): value for key, value in named.items() if key.startswith("kafka.")}

    def partitions(self) -> list[OffsetRange]:
        """The ranges, cut into at least `minPartitions` tasks if there are that many offsets."""
        total = sum(part.until - part.start for part in self._ranges)
        tasks = []
        for part in self._ranges:
            size = part.until - part.start
            count = max(1, min(size, -(-size * self._least // max(1, total))))
            edges = [part.start + size * number // count for number in range(count + 1)]
            tasks += [OffsetRange(part.topic, part.partition, start, until) for start, until in pairwise(edges)]
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The committed records of an `OffsetRange`. Raises RuntimeError if some of it cannot be read."""
        assert isinstance(partition, OffsetRange)
        name = f"{partition.topic}-{partition.partition}"
        try:
            security = ClientSecurity.from_settings(self._settings)
            with Cluster(self._settings["bootstrap.servers"], security=security, client_id=CLIENT_ID) as cluster:
                for columns in _pages(cluster, partition):
                    yield from _batches(partition, columns)
        except OffsetOutOfRangeError as error:
            if error.position >= error.start:
                raise RuntimeError(str(error)) from None
            gone = f"offsets {error.position} to {error.start - 1} were deleted during the load"
            raise RuntimeError(f"{name}: {gone}") from None
        except (ClientError, ConfigError, CorruptRecordsError) as error:
            text = str(error)
            raise RuntimeError(text if text.startswith(name) else f"{name}: {text}") from None


def _pages(cluster: Cluster, wanted: OffsetRange) -> Iterator[tuple[list[Any], ...]]:
    """The columns of `RecordColumns` for parts of the range. Raises RuntimeError, ClientError, CorruptRecordsError."""
    _check_certificates(cluster)
    place, position = (wanted.topic, wanted.partition), wanted.start
    silence = _Silence(wanted)
    fetcher = Fetcher(cluster, {place: position}, committed_only=True, warn=silence.note)
    columns = RecordColumns()
    reader = RecordReader(
        columns,
        _write_nothing,
        decompress=lambda codec, data: compression.decompress(codec, data, _MOST_DECOMPRESSED_BYTES),
        open_old=lambda data: old_messages.read_message(data)[0].opened(
            _MOST_DECOMPRESSED_BYTES, old_messages.MOST_MESSAGES
        ),
    )
    while position < wanted.until:
        before = position
        for fetched in fetcher.poll(_POLL_S):
            page = columns.take()  # empty
            for reached in reader.pages(*place, fetched.records, position, wanted.until, fetched.aborted, _PAGE_BYTES):
                yield page
                page, position = columns.take(), reached
            fetcher.advance(place, position)
            if position < wanted.until:
                fetcher.request()  # the broker reads while Spark uses the last page
            yield page
        silence.check(position > before)


def _check_certificates(cluster: Cluster) -> None:
    """Raise ClientError if TLS handshakes fail, which waiting does not change. The fetcher waits for other errors."""
    try:
        cluster.view()
    except UnreachableError as error:
        if isinstance(error, HandshakeError) or (isinstance(error, NoBootstrapServerError) and error.refused):
            raise


def _write_nothing(data: bytes) -> None:
    """Records are taken from `RecordColumns` as they are."""


class _Silence:
    """Ends a range if brokers send none of its records for `_SILENCE_S`."""

    def __init__(self, wanted: OffsetRange) -> None:
        self._name = f"{wanted.topic}-{wanted.partition}"
        self._until = time.monotonic() + _SILENCE_S
        self._reason = ""

    def note(self, warning: str) -> None:
        """Keep the reason for which a broker is unreachable."""
        self._reason = f": {warning.removesuffix('; retrying')}"

    def check(self, received: bool) -> None:
        """:param received: whether there were records since the last call. Raises RuntimeError."""
        now = time.monotonic()
        if received:
            self._until, self._reason = now + _SILENCE_S, ""
        elif now > self._until:
            raise RuntimeError(f"{self._name}: no broker sent a record within {_SILENCE_S:.0f} s{self._reason}")


def _batches(wanted: OffsetRange, columns: tuple[list[Any], ...]) -> Iterator[pa.RecordBatch]:
    """Batches of at most `_BATCH` records: slices of one that has all records, because each array costs time."""
    keys, values, offsets, times, kinds, headers = columns
    count = len(offsets)
    if not count:
        return
    in_range = np.clip(np.array(times, np.int64), -_LAST_MS, _LAST_MS)
    arrays = [
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.repeat(wanted.topic, count),
        pa.repeat(pa.scalar(wanted.partition, pa.int32()), count),
        pa.array(np.array(offsets, np.int64)),
        pa.array(in_range * 1000).cast(_TIMESTAMP),
        pa.array(np.array(kinds, np.int32)),
        _headers(headers),
    ]
    whole = pa.RecordBatch.from_arrays(arrays, schema=_ARROW)
    for first in range(0, count, _BATCH):
        yield whole.slice(first, _BATCH)


def _headers(column: list[Any]) -> pa.Array:
    if not any(column):  # most topics have none
        return pa.nulls(len(column), _HEADERS)
    return pa.array([some and [{"key": name, "value": value} for name, value in some] for some in column], _HEADERS)
