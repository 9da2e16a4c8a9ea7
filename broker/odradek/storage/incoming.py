"""What a producer sent, made into the batch to be appended: compressed records opened and checked, message sets of format v0
and v1 converted, records compressed by the topic's own codec.

Runs in the append threads of workers; stateless. A producer of the current format on a topic with ``compression.type=producer``
and no codec never comes here.
"""

from __future__ import annotations

from typing import Any

import odradek._ext.records.messages_to_batch as messages_to_batch
from odradek._ext.records.message_sets import BadMessageError
from odradek.storage import compression
from odradek.storage.compression import (
    CORRUPT_MESSAGE,
    CorruptCompressedDataError,
    DecompressionLimitError,
)

AS_SENT = 255

LIMIT_REACHED = -1

Prepared = tuple[int, dict[str, Any] | None, bytes | None, int]
"""Kafka's error code; what was found in the records; the batch to append instead of what was sent, None to append that; to how
many bytes the records were opened, at most, or LIMIT_REACHED.

What was found: ``keyless``, ``found_max_timestamp``, ``found_min_timestamp``, ``log_append_time`` (claimed by the producer),
``records`` (those of a batch, not compressed) and ``separate`` (each record was sent as a message of its own).
"""

TOO_LARGE: Prepared = (0, None, None, LIMIT_REACHED)


def prepare(
    data: bytes | memoryview, old: bool, codec: int, level: int, limit: int, max_message_bytes: int
) -> Prepared:
    """One partition's records of a Produce request, ready to be appended.

    :param old: `data` is a message set of format v0 or v1; otherwise one record batch.
    :param codec: in which the topic keeps its batches; 255: as the producer sent them.
    :param level: of that codec.
    :param limit: the most bytes that compressed records may open to; nothing is decided about records that open to more.
    :param max_message_bytes: the topic's max.message.bytes: the bound of each message of a set.
    """
    if old:
        return from_messages(data, codec, level, limit, max_message_bytes)
    try:
        error, found, plain = compression.open_batch(data, limit)
    except DecompressionLimitError:
        return TOO_LARGE
    if error or found is None:
        return error, found, None, limit
    found |= {"records": plain, "separate": False}
    if codec in (AS_SENT, found["codec"]):
        return error, found, None, len(plain)
    packed = compression.compress(codec, plain, level)
    try:
        return 0, found, messages_to_batch.replace_payload(data, packed, codec), len(plain)
    except BadMessageError as refused:
        return refused.code, None, None, len(plain)


def from_messages(data: bytes | memoryview, codec: int, level: int, limit: int, max_message_bytes: int) -> Prepared:
    """A message set as one record batch, in the codec of the set unless the topic has its own.

    The messages keep key, value and timestamp (those of v0 have none); what is compressed is opened once. Their offsets are
    ignored: the broker assigns offsets.
    """
    if len(data) > limit:
        return TOO_LARGE
    try:
        records = messages_to_batch.read_produced(data, compression.decompress_old, limit, max_message_bytes)
        kept = records.codec if codec == AS_SENT else codec
        plain = records.payload
        packed = compression.compress(kept, plain, None if codec == AS_SENT else level)
        batch = messages_to_batch.write_batch(
            packed, kept, records.count, records.base_timestamp, records.max_timestamp
        )
    except BadMessageError as refused:
        return refused.code, None, None, limit
    except CorruptCompressedDataError:
        return CORRUPT_MESSAGE, None, None, limit
    except DecompressionLimitError:
        return TOO_LARGE
    found = {
        "keyless": records.keyless,
        "found_max_timestamp": records.max_timestamp,
        "found_min_timestamp": records.min_timestamp,
        "log_append_time": records.log_append_time,
        "records": plain,
        "separate": records.codec == compression.NONE,
    }
    return 0, found, batch, len(plain)
