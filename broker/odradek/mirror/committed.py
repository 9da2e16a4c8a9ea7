"""Reads the committed data of one partition: record batches without control batches and without aborted transactions.

Used in one thread: by the thread of a flow for internal topics, and by `odradek mirror switch`. Bytes from a broker are checked
before they are used; a malformed batch raises ClientError. Needs brokers that serve Fetch 4 (Kafka 0.11 and later).
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import NamedTuple

from odradek.clients import topics
from odradek.clients.cluster import Cluster, Partition
from odradek.clients.errors import ClientError, RefusedError
from odradek.clients.fetching import FetchedRecords, Fetcher
from odradek.storage.batch import (
    ABORT,
    END_TXN_KEY,
    HEADER,
    LOG_APPEND_TIME,
    CorruptBatchError,
    Record,
    RecordBatch,
    read_batch,
)
from odradek.storage.old_messages import MOST_MESSAGES, read_message
from odradek.topic_partition import TopicPartition

MOST_DECOMPRESSED_BYTES = 1 << 30
MOST_RECORDS = 1 << 21
"""Limit of the records of a batch, which are in memory as objects: a small batch can have many more."""
POLL_S = 0.5
MAGIC_AT = 16
_PREFIX = struct.Struct(">qi")
PREFIX_BYTES = 12
LEAST_BYTES = 26
"""The size of the smallest message of format v0: offset, size, CRC, magic, attributes, and two lengths."""


class Bounds(NamedTuple):
    """Of a partition. :param start: its log start offset. :param end: its last stable offset."""

    start: int
    end: int


class DataBatch:
    """A batch of committed data records; `records` decompresses it.

    :ivar first: the first offset that it may contain. :ivar last: the last one. :ivar count: its number of records.
    :ivar append_time: whether the broker stamped it (LogAppendTime).
    """

    def __init__(
        self, first: int, last: int, count: int, append_time: bool, opened: Callable[[], list[Record]]
    ) -> None:
        self.first = first
        self.last = last
        self.count = count
        self.append_time = append_time
        self._opened = opened

    def records(self) -> list[Record]:
        """Its records, by offset. Raises ClientError."""
        try:
            records = self._opened()
        except ValueError as error:  # of a batch, a message, or a codec
            raise ClientError(f"the batch at offset {self.first} cannot be read: {error}") from None
        before = self.first - 1
        for record in records:
            if not before < record.offset <= self.last:
                raise ClientError(
                    f"the batch of the offsets {self.first} to {self.last} has a record at offset {record.offset} after "
                    f"{before}"
                )
            before = record.offset
        return records


def bounds(cluster: Cluster, place: TopicPartition) -> Bounds:
    """The log start offset and last stable offset of a partition. Raises RefusedError, ClientError."""
    partition = cluster.partition(*place)
    return Bounds(_offset(cluster, partition, topics.EARLIEST, True), _offset(cluster, partition, topics.LATEST, True))


def log_end(cluster: Cluster, place: TopicPartition) -> int:
    """The high watermark of a partition, also if a transaction is open. Raises RefusedError, ClientError."""
    return _offset(cluster, cluster.partition(*place), topics.LATEST, False)


def _offset(cluster: Cluster, partition: Partition, time_ms: int, committed_only: bool) -> int:
    place = partition.topic, partition.number
    found = topics.list_offsets(cluster, [partition], time_ms, committed_only=committed_only).get(place)
    if found is None:
        raise ClientError(f"{place[0]}-{place[1]} has no leader")
    if found.error:
        raise RefusedError(found.error, what=f"{place[0]}-{place[1]}")
    return found.offset


def read(
    cluster: Cluster, place: TopicPartition, start: int, end: int, timeout_s: float | None = None
) -> Iterator[DataBatch]:
    """Yield the batches with committed data records in [start, end), in order; the first and last may exceed the range.

    :param end: at most the last stable offset. :param timeout_s: the longest time without a response that has data; default:
        that of the cluster.

    Raises RefusedError (for example if `start` was deleted), ClientError.
    """
    if start >= end:
        return
    limit_s = cluster.timeout_s if timeout_s is None else timeout_s
    position, heard = start, time.monotonic()
    with closing(Fetcher(cluster, {place: start}, True, lambda _: None)) as fetcher:
        while position < end:
            for fetched in fetcher.poll(POLL_S):
                for batch, next_position in batches_of(fetched, position):
                    position, heard = next_position, time.monotonic()
                    if batch is not None and batch.first < end and batch.last >= start:
                        yield batch
                    if position >= end:
                        return
                fetcher.advance(place, position)
            if time.monotonic() - heard > limit_s:
                raise ClientError(
                    f"{place[0]}-{place[1]} returned no records from offset {position} on for {limit_s:g} s, although its last"
                    f" stable offset is {end}; use a larger --timeout"
                )


def batches_of(fetched: FetchedRecords, position: int) -> Iterator[tuple[DataBatch | None, int]]:
    """Yield (batch, next offset) for each whole batch that is not before `position`; None for one without committed data.

    Raises ClientError for a malformed batch.
    """
    place, data, at = fetched.place, fetched.records, 0
    starting = sorted(fetched.aborted, key=lambda transaction: transaction[1])
    aborted: set[int] = set()
    while at + PREFIX_BYTES <= len(data):
        _, length = _PREFIX.unpack_from(data, at)
        end = at + PREFIX_BYTES + length
        if length < LEAST_BYTES - PREFIX_BYTES:
            raise ClientError(f"{place[0]}-{place[1]} returned a batch of {length} bytes, which is too small")
        if end > len(data):
            return
        if data[at + MAGIC_AT] < 2:
            batch: DataBatch | None = _old(place, data[at:end])
        else:
            header = _header(place, data[at:end])
            while starting and starting[0][1] <= header.last_offset:
                aborted.add(starting.pop(0)[0])
            batch = _data(header, aborted)
        last = header.last_offset if batch is None else batch.last
        at = end
        if last >= position:
            yield batch, last + 1


def _header(place: TopicPartition, data: memoryview) -> RecordBatch:
    """The batch, with its CRC checked. Raises ClientError."""
    if len(data) < HEADER.size:
        raise ClientError(f"{place[0]}-{place[1]} returned a batch of {len(data)} bytes; its header has {HEADER.size}")
    try:
        return read_batch(data)[0]
    except CorruptBatchError as error:
        (offset, _) = _PREFIX.unpack_from(data)
        raise ClientError(f"{place[0]}-{place[1]} returned a damaged batch at offset {offset}: {error}") from None


def _data(batch: RecordBatch, aborted: set[int]) -> DataBatch | None:
    """The batch if it has committed data; notes the end of an aborted transaction in `aborted`."""
    if batch.is_control:
        if batch.producer_id in aborted and _is_abort(batch):
            aborted.discard(batch.producer_id)
        return None
    if not batch.record_count or (batch.is_transactional and batch.producer_id in aborted):
        return None
    return DataBatch(
        batch.base_offset,
        batch.last_offset,
        batch.record_count,
        bool(batch.attributes & LOG_APPEND_TIME),
        lambda: batch.records(MOST_DECOMPRESSED_BYTES, MOST_RECORDS),
    )


def _is_abort(batch: RecordBatch) -> bool:
    try:
        key = batch.records(MOST_DECOMPRESSED_BYTES, MOST_RECORDS)[0].key or b""
    except (ValueError, IndexError) as error:
        raise ClientError(f"the control batch at offset {batch.base_offset} cannot be read: {error}") from None
    return len(key) >= END_TXN_KEY.size and END_TXN_KEY.unpack_from(key)[1] == ABORT


def _old(place: TopicPartition, data: memoryview) -> DataBatch:
    """A message of format v0 or v1, with its inner messages if it is compressed. Raises ClientError."""
    try:
        message, _ = read_message(data)
        inner = message.opened(MOST_DECOMPRESSED_BYTES, MOST_MESSAGES)
    except ValueError as error:  # of a message or a codec
        raise ClientError(f"{place[0]}-{place[1]} returned a damaged message: {error}") from None
    records = [Record(old.key, old.value, old.timestamp, (), old.offset) for old in inner]
    if not records:
        raise ClientError(
            f"{place[0]}-{place[1]} returned a compressed message at offset {message.offset} without messages"
        )
    stamped = bool(message.attributes & LOG_APPEND_TIME)
    return DataBatch(records[0].offset, records[-1].offset, len(records), stamped, lambda: records)
