"""Finds the record of one cluster in a partition of another one, to which or from which it was mirrored.

Used in the thread of `odradek mirror switch`. The mirror copies every committed data record once and in order, but not control
batches and aborted data, so that offsets differ by varying amounts. From a pair of offsets that is known to belong together (an
anchor: an offset sync), the committed data records are counted on both sides. The record that is found is compared with the one
that was searched for, and the first records that were counted with each other: key, value, headers and timestamp. If the count
does not fit, because compaction or retention removed records on one side only, the record is searched for by its content.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from odradek.mirror.committed import Bounds, DataBatch
from odradek.storage.batch import Record

WINDOW = 64
"""Records after the searched one that are looked for if compaction may have removed it on the other side."""


class Anchor(NamedTuple):
    """The record at offset `near` of one side is the record at offset `far` of the other side."""

    near: int
    far: int


class Side(NamedTuple):
    """A partition in one cluster.

    :param batches: returns the batches with committed data in [start, end); the first and the last may exceed the range.
    :param bounds: the part of the log that is read.
    """

    batches: Callable[[int, int], Iterator[DataBatch]]
    bounds: Bounds


class Found(NamedTuple):
    """:param offset: in the far partition. :param exact: False if there are several equal records, and this is the first."""

    offset: int
    exact: bool


class _Content(NamedTuple):
    """What is equal on both sides; timestamps are compared only if no broker stamped the record."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]


@dataclass(frozen=True)
class Seen:
    """A record and whether the broker stamped it (LogAppendTime)."""

    record: Record
    append_time: bool

    def equals(self, other: Seen) -> bool:
        """Whether this is a copy of the other one."""
        if _content(self) != _content(other):
            return False
        return self.append_time or other.append_time or self.record.timestamp == other.record.timestamp


def _content(seen: Seen) -> _Content:
    return _Content(seen.record.key, seen.record.value, seen.record.headers)


def records(side: Side, start: int, end: int | None = None) -> Iterator[Seen]:
    """Yield the committed data records in [start, end). :param end: default: the last stable offset. Raises ClientError."""
    end = side.bounds.end if end is None else end
    for batch in side.batches(max(start, side.bounds.start), end):
        for record in batch.records():
            if start <= record.offset < end:
                yield Seen(record, batch.append_time)


def first_record(side: Side, start: int, end: int | None = None) -> Seen | None:
    """The first committed data record in [start, end), if there is one. Raises ClientError."""
    return next(records(side, start, end), None)


def count(side: Side, start: int, end: int) -> int:
    """The number of committed data records in [start, end). Batches inside are not decompressed. Raises ClientError."""
    total = 0
    for batch in side.batches(start, end):
        if start <= batch.first and batch.last < end:
            total += batch.count
        else:
            total += sum(start <= record.offset < end for record in batch.records())
    return total


def nth_record(side: Side, start: int, index: int) -> Seen | None:
    """The committed data record number `index` (from 0) at or after `start`; None if there are fewer. Raises ClientError."""
    for batch in side.batches(start, side.bounds.end):
        if start <= batch.first and batch.count <= index:
            index -= batch.count
            continue
        for record in batch.records():
            if record.offset >= start:
                if index == 0:
                    return Seen(record, batch.append_time)
                index -= 1
    return None


def find(near: Side, far: Side, anchors: Sequence[Anchor], wanted: Seen, compacted: bool) -> Found | None:
    """The offset in `far` of the record that is `wanted` in `near`. None if it is not there. Raises ClientError.

    :param anchors: in ascending order. :param compacted: whether compaction may remove records on one of the sides. Then the
        result may be the next record that both sides have.
    """
    anchor = _anchor(near, far, anchors, wanted.record.offset)
    if _belong_together(near, far, anchor):
        found = nth_record(far, anchor.far, count(near, anchor.near, wanted.record.offset))
        if found is not None and found.equals(wanted):
            return Found(found.record.offset, True)
    window = _window(near, wanted) if compacted else [wanted]
    found_after = _search(far, anchor.far, window)
    if found_after is None and anchor.far > far.bounds.start:
        found_after = _search(far, far.bounds.start, window)  # the offset syncs are not of these topics
    return found_after


def _anchor(near: Side, far: Side, anchors: Sequence[Anchor], offset: int) -> Anchor:
    """The last anchor at or before the offset whose records still exist; without one, the beginning of both logs."""
    for anchor in reversed(anchors[: bisect_right(anchors, offset, key=lambda anchor: anchor.near)]):
        if anchor.near < near.bounds.start or anchor.far < far.bounds.start:
            break
        if anchor.far <= far.bounds.end:
            return anchor
    return Anchor(near.bounds.start, far.bounds.start)


def _belong_together(near: Side, far: Side, anchor: Anchor) -> bool:
    """Whether the first records from the anchor on are equal."""
    first, copy = first_record(near, anchor.near), first_record(far, anchor.far)
    return first is not None and copy is not None and first.equals(copy)


def _window(near: Side, wanted: Seen) -> list[Seen]:
    """The record and those after it, up to WINDOW."""
    window = [wanted]
    for seen in records(near, wanted.record.offset + 1):
        window.append(seen)
        if len(window) == WINDOW:
            break
    return window


def _search(far: Side, start: int, window: Sequence[Seen]) -> Found | None:
    """Find the first record of the window that is in `far`, by its content."""
    offsets: list[list[int]] = [[] for _ in window]
    by_content: dict[_Content, list[int]] = {}
    for index, seen in enumerate(window):
        by_content.setdefault(_content(seen), []).append(index)
    for candidate in records(far, start):
        for index in by_content.get(_content(candidate), ()):
            if candidate.equals(window[index]):
                offsets[index].append(candidate.record.offset)
    for found in offsets:
        if found:
            return Found(found[0], len(found) == 1)
    return None
