"""Finds records by timestamp in compressed batches, for which `odradek._ext.storage.lookup` has no codecs.

Runs in the look-up thread of workers, for ListOffsets. Stateless; descriptors, counts and size come from one snapshot of
the slot. Creates no object per record: a few bytes may decompress to millions of records.
"""

from __future__ import annotations

import odradek._ext.storage.lookup as native
from odradek.storage import compression
from odradek.storage.batch import read_batch
from odradek.storage.old_messages import is_old, read_message

OPEN_LIMIT = 128 * 1024 * 1024


def find_in_compressed(batch: bytes, target_timestamp: int, from_offset: int) -> tuple[int, int] | None:
    """(offset, timestamp in ms) of the first record in a batch or wrapper at or after both the timestamp and the
    offset; or None.

    :raises ValueError: the batch is invalid: CorruptBatchError, CorruptMessageError, or an error of `decompress`.
    """
    if not is_old(batch):
        content = read_batch(batch)[0]
        plain = compression.decompress(content.codec, content.payload, OPEN_LIMIT)
        match: tuple[int, int] | None = native.find_in_records(batch, plain, target_timestamp, from_offset)
        return match
    for message in read_message(batch)[0].opened(OPEN_LIMIT):
        if message.timestamp >= target_timestamp and message.offset >= from_offset:
            return message.offset, message.timestamp
    return None


def find_timestamp(
    log_fd: int,
    index_fd: int,
    index_entries: int,
    time_fd: int,
    time_entries: int,
    segment_base: int,
    size_limit: int,
    target_timestamp: int,
    from_offset: int = 0,
) -> tuple[int, int, int] | None:
    """Find the first record of a segment at or after both `target_timestamp` (ms) and `from_offset`.

    log_fd, index_fd, time_fd: the segment's files. index_entries, time_entries: the committed counts of index entries.
    size_limit: number of readable bytes of the log. Returns (offset, timestamp, leader epoch of its batch), or None. With the
    largest timestamp of a segment as target, it serves ListOffsets for the maximal timestamp. Raises CorruptLogError,
    ValueError (see `find_in_compressed`), OSError.
    """
    return native.time_of(
        log_fd,
        index_fd,
        index_entries,
        time_fd,
        time_entries,
        segment_base,
        size_limit,
        target_timestamp,
        from_offset,
        find_in_compressed,
    )
