"""Finds the log start offset for odradek.retention.exact: the first record within retention.ms, which may be inside a segment.

Runs in the cleaner's retention passes, without a lock: the caller checks the slot's generation afterwards.
docs/operate/durability.md defines the rule, `_ext/storage/young_records.pyx` contains the search.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Protocol

from odradek._ext.partition.slot_facts import SlotFacts
from odradek._ext.storage.lookup import CorruptLogError
from odradek._ext.storage.young_records import first_young
from odradek.storage.file_names import INDEX, LOG, TIME_INDEX, segment_file_name
from odradek.storage.indexes import OFFSET_ENTRY, TIME_ENTRY
from odradek.storage.lookup import find_in_compressed


class DatedSegment(Protocol):
    """A segment; `newest_ms` is the largest timestamp of its records, -1 if they have none."""

    base_offset: int

    @property
    def size(self) -> int: ...
    @property
    def newest_ms(self) -> int: ...
    @property
    def largest_timestamp_ms(self) -> int: ...


def first_young_offset(
    directory: str,
    segments: Sequence[DatedSegment],
    facts: SlotFacts,
    limit_ms: int,
    beat: Callable[[], None],
) -> int | None:
    """The offset of the first record that retention keeps; None if all records of the segments are older than `limit_ms`.

    :param facts: the slot's facts; the last segment may be the active one.
    :param beat: called regularly during the search.
    :raises OSError: a file could not be read. :raises ValueError: a segment contains a corrupt batch.
    """
    limit_ms = max(limit_ms, 0)
    for segment in segments:
        if segment.size == 0 or segment.largest_timestamp_ms < limit_ms:
            continue
        if segment.newest_ms < 0:  # none of its records has a timestamp: the file's modification time counts
            return max(segment.base_offset, int(facts.log_start_offset))
        try:
            offset = _first_in(directory, segment.base_offset, facts, limit_ms, beat)
        except CorruptLogError as error:
            raise ValueError(str(error)) from error
        if offset is not None:
            return offset
    return None


def _first_in(
    directory: str, base_offset: int, facts: SlotFacts, limit_ms: int, beat: Callable[[], None]
) -> int | None:
    with ExitStack() as stack:

        def opened(kind: str) -> int:
            path = f"{directory}/{segment_file_name(base_offset, kind)}"
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, descriptor)
            return descriptor

        log_fd, index_fd, time_fd = opened(LOG), opened(INDEX), opened(TIME_INDEX)
        if base_offset == facts.segment_base:
            size, entries, time_entries = facts.size, facts.index_entries, facts.timeindex_entries
        else:
            size = os.fstat(log_fd).st_size
            entries = os.fstat(index_fd).st_size // OFFSET_ENTRY.size
            time_entries = os.fstat(time_fd).st_size // TIME_ENTRY.size
        offset: int | None = first_young(
            log_fd, index_fd, entries, time_fd, time_entries, base_offset, size, limit_ms,
            facts.log_start_offset, find_in_compressed, beat,
        )  # fmt: skip
        return offset
