"""Finding a record by time where batches are compressed: what `broker._ext.lookup` cannot do without the codecs.

Called by workers for ListOffsets, in an append thread when batches are large. Stateless; the descriptors, counts and
the size come from one snapshot of the slot.
"""

from __future__ import annotations

from collections.abc import Iterator

import broker._ext.lookup as native
from broker.storage.batch import read_batch
from broker.storage.old_messages import is_old, read_message


def records_of(batch: bytes) -> Iterator[tuple[int, int]]:
    """(offset, timestamp in ms) of the records of one whole batch or wrapper. Raises ValueError: CorruptBatchError,
    CorruptMessageError, what `decompress` raises."""
    if is_old(batch):
        for message in read_message(batch)[0].opened():
            yield message.offset, message.timestamp
        return
    for record in read_batch(batch)[0].records():
        yield record.offset, record.timestamp


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
    """The first record of a segment that is not before `target_timestamp` (ms) nor `from_offset`.

    log_fd, index_fd, time_fd: the segment's files. index_entries, time_entries: their committed counts. size_limit:
    bytes of the log that may be seen. Returns (offset, timestamp, leader epoch of its batch), or None. With the
    largest timestamp of a segment as target it answers ListOffsets for the maximal timestamp. Raises CorruptLogError,
    ValueError as `records_of`, OSError.
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
        records_of,
    )
