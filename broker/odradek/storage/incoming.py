"""Prepares produced records for the append: checks compressed records, converts message sets of format v0 and v1,
and compresses records with the topic's codec.

Runs in the append threads of workers; stateless. Uncompressed batches of the current format on a topic with
``compression.type=producer`` do not need it.
"""

from __future__ import annotations

from typing import Any

import odradek._ext.records.messages_to_batch as messages_to_batch
from odradek._ext.records.message_sets import BadMessageError
from odradek.codecs import AS_SENT, NONE
from odradek.storage import compression
from odradek.storage.compression import (
    INVALID_RECORD,
    CorruptCompressedDataError,
    DecompressionLimitError,
)

LIMIT_REACHED = -1

Prepared = tuple[int, dict[str, Any] | None, bytes | None, int]
"""Kafka's error code; properties of the records; the batch to append, None for the batch as sent; the largest number
of bytes to which the records were decompressed, or LIMIT_REACHED.

The properties: ``keyless``, ``found_max_timestamp``, ``found_min_timestamp``, ``log_append_time`` (set by the producer),
``records`` (the decompressed records of the batch) and ``separate`` (each record was sent as a separate message).
"""

TOO_LARGE: Prepared = (0, None, None, LIMIT_REACHED)


def prepare(
    data: bytes | memoryview, old: bool, codec: int, level: int, limit: int, max_message_bytes: int
) -> Prepared:
    """Prepare the records of one partition of a Produce request for the append.

    :param old: `data` is a message set of format v0 or v1; otherwise one record batch.
    :param codec: the codec of the topic; 255 (AS_SENT): keep the codec of the producer.
    :param level: compression level of that codec.
    :param limit: largest decompressed size, in bytes; for larger records the result is TOO_LARGE, without an error code.
    :param max_message_bytes: the topic's max.message.bytes, the size limit of each message of a set.
    """
    if old:
        return from_messages(data, codec, level, limit, max_message_bytes)
    try:
        error, info, plain = compression.open_batch(data, limit)
    except DecompressionLimitError:
        return TOO_LARGE
    if error or info is None:
        return error, None, None, limit
    properties = {**info, "records": plain, "separate": False}
    if codec in (AS_SENT, properties["codec"]):
        return error, properties, None, len(plain)
    packed = compression.compress(codec, plain, level)
    try:
        return 0, properties, messages_to_batch.replace_payload(data, packed, codec), len(plain)
    except BadMessageError as bad_message:
        return bad_message.code, None, None, len(plain)


def from_messages(data: bytes | memoryview, codec: int, level: int, limit: int, max_message_bytes: int) -> Prepared:
    """Convert a message set to one record batch, in the codec of the topic or else in that of the set.

    The records keep key, value and timestamp (v0 has none). Compressed data is decompressed once. Offsets are ignored: the
    broker assigns them.
    """
    if len(data) > limit:
        return TOO_LARGE
    try:
        records = messages_to_batch.read_produced(data, compression.decompress_produced, limit, max_message_bytes)
        codec_used = records.codec if codec == AS_SENT else codec
        plain = records.payload
        packed = compression.compress(codec_used, plain, None if codec == AS_SENT else level)
        batch = messages_to_batch.write_batch(
            packed, codec_used, records.count, records.base_timestamp, records.max_timestamp
        )
    except BadMessageError as bad_message:
        return bad_message.code, None, None, limit
    except CorruptCompressedDataError:
        return INVALID_RECORD, None, None, limit
    except DecompressionLimitError:
        return TOO_LARGE
    properties = {
        "keyless": records.keyless,
        "found_max_timestamp": records.max_timestamp,
        "found_min_timestamp": records.min_timestamp,
        "log_append_time": records.log_append_time,
        "records": plain,
        "separate": records.codec == NONE,
    }
    return 0, properties, batch, len(plain)
