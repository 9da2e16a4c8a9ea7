"""Record batches (format v2) as Python objects: tests and tools build them and read logs with them.

Not on the hot path of any process; the checks that the broker relies on are in `odradek._ext.records.record_batch`. Stateless.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import odradek._ext.records.record_batch as records
from odradek.storage import compression
from odradek.storage.checksum import crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
END_TXN_KEY = struct.Struct(">hh")
END_TXN_VALUE = struct.Struct(">hi")
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40
ABORT, COMMIT = 0, 1
NO_LIMIT = 1 << 31
MOST_HEADERS = 1 << 20
"""Limit of the headers of a record that is read: each needs two bytes, and about 100 bytes of memory as an object."""


class CorruptBatchError(ValueError):
    """The bytes are not a valid record batch."""


@dataclass(frozen=True)
class Record:
    """One record; `timestamp` in ms, `offset` absolute (ignored when a batch is built)."""

    key: bytes | None = None
    value: bytes | None = None
    timestamp: int = -1
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    offset: int = -1


@dataclass(frozen=True)
class RecordBatch:
    """The fields of the header, and `payload`: the encoded records, compressed if the batch has a codec."""

    base_offset: int
    partition_leader_epoch: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    payload: bytes = field(repr=False)

    @property
    def codec(self) -> int:
        """See `odradek.codecs`."""
        return self.attributes & 7

    @property
    def last_offset(self) -> int:
        """The offset of the last record at the time of the append; compaction may have removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def is_control(self) -> bool:
        """Whether this is a control batch, such as the end marker of a transaction."""
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    def records(self, limit: int = NO_LIMIT, most_records: int = NO_LIMIT) -> list[Record]:
        """The records, decompressed up to `limit` bytes. Raises CorruptBatchError, or what `decompress` raises.

        :param most_records: a batch with more records is refused.
        """
        if self.record_count > most_records:
            raise CorruptBatchError(f"the batch has {self.record_count} records; at most {most_records} are read")
        data = compression.decompress(self.codec, self.payload, limit)
        content, at = [], 0
        for _ in range(self.record_count):
            record, at = _read_record(data, at, self)
            content.append(record)
        if at != len(data):
            raise CorruptBatchError(f"the batch has {len(data) - at} bytes after its last record")
        return content

    def __bytes__(self) -> bytes:
        body = HEADER.pack(
            self.base_offset,
            HEADER.size - 12 + len(self.payload),
            self.partition_leader_epoch,
            2,
            0,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        )
        covered = body[records.ATTRIBUTES_AT :] + self.payload
        return body[: records.CRC_AT] + crc32c(covered).to_bytes(4, "big") + covered


def varint(number: int) -> bytes:
    """Encode a signed number as a zigzag varint."""
    value = (number << 1) ^ (number >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _bytes(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


def _write_record(record: Record, offset_delta: int, base_timestamp: int) -> bytes:
    body = [
        b"\0",
        varint(record.timestamp - base_timestamp),
        varint(offset_delta),
        _bytes(record.key),
        _bytes(record.value),
    ]
    body.append(varint(len(record.headers)))
    for key, value in record.headers:
        body += [varint(len(key)), key, _bytes(value)]
    joined = b"".join(body)
    return varint(len(joined)) + joined


def build_batch(
    content: Sequence[Record],
    *,
    base_offset: int = 0,
    codec: int = 0,
    partition_leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
    base_timestamp: int | None = None,
    offset_deltas: Sequence[int] | None = None,
    last_offset_delta: int | None = None,
) -> bytes:
    """Encode a valid batch with a correct CRC.

    content: the records. base_timestamp: default: that of the first record. offset_deltas: default: 0, 1, ... (a compacted
    batch has gaps). attributes: flags besides the codec. The remaining arguments are fields of the header.
    """
    first = base_timestamp if base_timestamp is not None else (content[0].timestamp if content else -1)
    deltas = list(offset_deltas) if offset_deltas is not None else list(range(len(content)))
    plain = b"".join(_write_record(record, delta, first) for record, delta in zip(content, deltas, strict=True))
    last = last_offset_delta if last_offset_delta is not None else (deltas[-1] if deltas else 0)
    batch = RecordBatch(
        base_offset=base_offset,
        partition_leader_epoch=partition_leader_epoch,
        attributes=codec | attributes,
        last_offset_delta=last,
        base_timestamp=first,
        max_timestamp=max((record.timestamp for record in content), default=-1),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(content),
        payload=compression.compress(codec, plain),
    )
    return bytes(batch)


def build_end_marker(
    control_type: int,
    *,
    base_offset: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    partition_leader_epoch: int = -1,
) -> bytes:
    """Encode the control batch that ends a transaction. control_type: ABORT or COMMIT."""
    record = Record(END_TXN_KEY.pack(0, control_type), END_TXN_VALUE.pack(0, coordinator_epoch), timestamp)
    return build_batch(
        [record],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        attributes=TRANSACTIONAL | CONTROL,
        partition_leader_epoch=partition_leader_epoch,
    )


def read_batch(data: bytes | memoryview, at: int = 0) -> tuple[RecordBatch, int]:
    """Parse the batch at position `at`; return it and the position after it. Raises CorruptBatchError."""
    error, info = records.check(memoryview(data)[at:], False)
    if error or info is None:
        raise CorruptBatchError(f"the batch at position {at} is invalid (error code {error})")
    values = HEADER.unpack_from(data, at)
    end = at + info["size"]
    payload = bytes(data[at + HEADER.size : end])
    fields = (values[0], values[2], *values[5:], payload)
    return RecordBatch(*fields), end


def read_batches(data: bytes | memoryview) -> Iterator[RecordBatch]:
    """Parse all batches of `data`, which must end with a whole batch. Raises CorruptBatchError."""
    at = 0
    while at < len(data):
        batch, at = read_batch(data, at)
        yield batch


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        if at >= len(data) or shift > 63:
            raise CorruptBatchError(f"the varint at {at} is too long or cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _read_bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = _read_varint(data, at)
    if length < 0:
        return None, at
    if at + length > len(data):
        raise CorruptBatchError(f"the field of {length} bytes at {at} exceeds the data of {len(data)} bytes")
    return data[at : at + length], at + length


def _read_record(data: bytes, at: int, batch: RecordBatch) -> tuple[Record, int]:
    length, at = _read_varint(data, at)
    end = at + length
    timestamp_delta, at = _read_varint(data, at + 1)
    offset_delta, at = _read_varint(data, at)
    key, at = _read_bytes(data, at)
    value, at = _read_bytes(data, at)
    count, at = _read_varint(data, at)
    if count > MOST_HEADERS:
        raise CorruptBatchError(f"a record has {count} headers; at most {MOST_HEADERS} are read")
    headers = []
    for _ in range(count):
        name, at = _read_bytes(data, at)
        content, at = _read_bytes(data, at)
        headers.append((name or b"", content))
    if at != end:
        raise CorruptBatchError(f"a record of {length} bytes ends at {at} instead of {end}")
    timestamp = batch.max_timestamp if batch.attributes & LOG_APPEND_TIME else batch.base_timestamp + timestamp_delta
    return Record(key, value, timestamp, tuple(headers), batch.base_offset + offset_delta), at
