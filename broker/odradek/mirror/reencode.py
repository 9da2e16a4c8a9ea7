"""Encodes batches again that cannot be copied as they are, because the target would refuse them or change their meaning.

These are batches with missing records (compaction), batches that begin before the position, messages of the formats v0 and v1,
and batches with LogAppendTime for a topic with CreateTime. The codec stays. Runs in the threads of the lanes; stateless.
"""

from typing import Any, NamedTuple

from odradek._ext.records.batch_builder import BatchBuilder
from odradek._ext.records.messages_to_batch import write_batch
from odradek._ext.records.moved_batches import OPEN_OLD, FetchedBatch, checksum_matches, renumber
from odradek.storage import compression
from odradek.storage.batch import LOG_APPEND_TIME, read_batch
from odradek.storage.old_messages import MOST_MESSAGES, read_messages

LIMIT_BYTES = 256 << 20
"""The largest decompressed size of a batch, so that a few bytes cannot fill the memory."""


class InvalidBatchError(ValueError):
    """A batch of the source cannot be read. The text is a clause that names the offset."""


class Reencoded(NamedTuple):
    """A batch of format v2 that begins at offset 0 and has no gaps; None if none of its records is wanted.

    :param first_offset: the source's offset of its first record. :param max_timestamp: ms, -1 if no record has one.
    """

    data: bytearray
    records: int
    first_offset: int
    max_timestamp: int


def reencode(data: memoryview, batch: FetchedBatch, append_time: bool) -> Reencoded | None:
    """Encode the records of a batch from `batch.first_offset` on again. Raises InvalidBatchError.

    :param data: the records of the Fetch response. :param batch: with the kind OPEN or OPEN_OLD.
    :param append_time: every record of a batch with LogAppendTime gets the batch's largest timestamp, as consumers see it.
    """
    piece = data[batch.start : batch.start + batch.size]
    try:
        return _from_messages(piece, batch) if batch.kind == OPEN_OLD else _from_batch(piece, batch, append_time)
    except ValueError as error:
        raise InvalidBatchError(f"the batch at offset {batch.first_offset} cannot be read: {error}") from None


def _from_batch(piece: memoryview, batch: FetchedBatch, append_time: bool) -> Reencoded | None:
    if not checksum_matches(piece):
        raise InvalidBatchError("it does not match its checksum")
    header, _ = read_batch(piece)
    payload = compression.decompress(header.codec, header.payload, LIMIT_BYTES)
    stamped = append_time and bool(header.attributes & LOG_APPEND_TIME)
    result = renumber(
        payload,
        header.record_count,
        header.base_offset,
        header.base_timestamp,
        batch.first_offset,
        header.max_timestamp if stamped else None,
        header.last_offset_delta,
    )
    if not result.records:
        return None
    packed = compression.compress(header.codec, result.payload)
    data = write_batch(packed, header.codec, result.records, result.base_timestamp, result.max_timestamp)
    return Reencoded(bytearray(data), result.records, result.first_offset, result.max_timestamp)


def _from_messages(piece: memoryview, batch: FetchedBatch) -> Reencoded | None:
    builder: Any = BatchBuilder()  # its stub knows no null
    first_offset, max_timestamp = -1, -1
    for outer in read_messages(piece):
        for message in outer.opened(LIMIT_BYTES, MOST_MESSAGES):
            if message.offset < batch.first_offset:
                continue
            if first_offset < 0:
                first_offset = message.offset
            max_timestamp = max(max_timestamp, message.timestamp)
            builder.add(message.key, message.value, message.timestamp)
    if not builder.count:
        return None
    data = builder.finish(batch.codec, compression.compress)
    return Reencoded(bytearray(data), builder.count, first_offset, max_timestamp)
