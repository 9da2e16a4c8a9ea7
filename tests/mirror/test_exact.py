"""The exact place of a record on the other side: markers, aborted data, compaction, retention, equal records."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from odradek.mirror import exact
from odradek.mirror.committed import Bounds, DataBatch
from odradek.mirror.exact import Anchor, Found, Seen, Side
from odradek.storage.batch import Record

Log = list[list[Record]]
"""Batches of committed data; other offsets hold markers and aborted data."""


def side(log: Log, start: int = 0, append_time: bool = False, reads: list[int] | None = None) -> Side:
    """A partition whose log begins at `start`. :param reads: receives the first offset of each batch that is decompressed."""

    def opened(batch: list[Record]) -> list[Record]:
        if reads is not None:
            reads.append(batch[0].offset)
        return batch

    def batches(first: int, end: int) -> Iterator[DataBatch]:
        assert start <= first, "a read before the log's start"
        for batch in log:
            if batch and batch[-1].offset >= first and batch[0].offset < end:
                yield DataBatch(batch[0].offset, batch[-1].offset, len(batch), append_time, partial(opened, batch))

    ends = [batch[-1].offset + 1 for batch in log if batch]
    return Side(batches, Bounds(start, max(ends, default=start) + 2))


VALUES = st.sampled_from((b"ping", b"pong", b"", None))


@st.composite
def logs(draw: st.DrawFn) -> tuple[Log, Log]:
    """A source and its copy. Many records are equal, timestamps too."""
    source_at, target_at = draw(st.integers(0, 4)), draw(st.integers(0, 4))
    source, target = [], []
    for _ in range(draw(st.integers(1, 12))):
        source_at += draw(st.sampled_from((0, 1, 3)))
        target_at += draw(st.sampled_from((0, 1)))
        values = draw(st.lists(VALUES, min_size=1, max_size=5))
        source.append([Record(None, value, 7, (), source_at + index) for index, value in enumerate(values)])
        target.append([Record(None, value, 7, (), target_at + index) for index, value in enumerate(values)])
        source_at += len(values)
        target_at += len(values)
    return source, target


def pairs_of(source: Log, target: Log) -> list[tuple[Record, Record]]:
    return [*zip([r for batch in source for r in batch], [r for batch in target for r in batch], strict=True)]


@given(logs(), st.data(), st.booleans())
def test_a_record_is_found_by_counting_although_many_are_equal(
    pair: tuple[Log, Log], data: st.DataObject, back: bool
) -> None:
    source, target = reversed(pair) if back else pair
    records = pairs_of(source, target)
    anchored = data.draw(st.sets(st.integers(0, len(records) - 1), max_size=3))
    anchors = [Anchor(records[index][0].offset, records[index][1].offset) for index in sorted(anchored)]
    for here, there in records:
        assert exact.find(side(source), side(target), anchors, Seen(here, False), False) == Found(there.offset, True)


@given(logs(), st.data())
def test_a_record_is_found_although_both_logs_lost_their_beginnings(pair: tuple[Log, Log], data: st.DataObject) -> None:
    source, target = pair
    records = pairs_of(source, target)
    index = data.draw(st.integers(0, len(records) - 1))
    anchor = Anchor(records[index][0].offset, records[index][1].offset)
    kept = data.draw(st.integers(0, index)), data.draw(st.integers(0, index))
    near = side(cut(source, records[kept[0]][0].offset), records[kept[0]][0].offset)
    far = side(cut(target, records[kept[1]][1].offset), records[kept[1]][1].offset)
    for here, there in records[index:]:
        assert exact.find(near, far, [anchor], Seen(here, False), False) == Found(there.offset, True)


def cut(log: Log, start: int) -> Log:
    return [[record for record in batch if record.offset >= start] for batch in log]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.data())
def test_compaction_on_either_side_skips_no_record_that_both_sides_have(keys: list[int], data: st.DataObject) -> None:
    """Compaction keeps the last record of each key, and removes any others."""
    everything = [Record(b"%d" % key, b"%d" % at, at, (), at) for at, key in enumerate(keys)]
    last = {record.key: record.offset for record in everything}

    def compacted() -> list[Record]:
        removed = data.draw(st.sets(st.integers(0, len(keys) - 1)))
        return [record for record in everything if record.offset == last[record.key] or record.offset not in removed]

    source = compacted()
    copies = compacted()
    target = [Record(r.key, r.value, r.timestamp, (), r.offset * 2 + 1) for r in copies]
    for here in source:
        found = exact.find(side([source]), side([target]), [], Seen(here, False), True)
        expected = next(r.offset * 2 + 1 for r in copies if r.offset >= here.offset and r in source)
        assert found == Found(expected, True)


def test_an_ambiguous_record_is_the_first_of_its_equals() -> None:
    equal = [Record(None, b"ping", 5, (), offset) for offset in (3, 4, 5)]
    far = [[Record(None, b"other", 5, (), 10), *(Record(None, b"ping", 5, (), offset) for offset in (11, 12, 13))]]
    assert exact.find(side([equal]), side(far), [], Seen(equal[1], False), True) == Found(11, False)


def test_a_record_that_was_not_copied_is_not_found() -> None:
    near = [[Record(None, b"%d" % offset, 5, (), offset) for offset in range(10)]]
    far = [[Record(None, b"%d" % offset, 5, (), offset) for offset in range(5, 10)]]
    assert exact.find(side(near), side(far), [], Seen(near[0][3], False), False) is None
    assert exact.find(side(near), side(far), [], Seen(near[0][7], False), False) == Found(7, True)


def test_an_anchor_of_a_former_topic_does_no_harm() -> None:
    near = [[Record(None, b"%d" % offset, 5, (), offset) for offset in range(10)]]
    far = [[Record(None, b"%d" % offset, 5, (), offset + 2) for offset in range(10)]]
    assert exact.find(side(near), side(far), [Anchor(1, 9)], Seen(near[0][4], False), False) == Found(6, True)


def test_timestamps_are_compared_unless_a_broker_made_them() -> None:
    near = [[Record(None, b"x", 5, (), 0)]]
    far = [[Record(None, b"x", 6, (), 0)]]
    assert exact.find(side(near), side(far), [], Seen(near[0][0], False), False) is None
    assert exact.find(side(near), side(far, append_time=True), [], Seen(near[0][0], False), False) == Found(0, True)


def test_batches_between_the_anchor_and_the_record_are_not_decompressed() -> None:
    log = [[Record(None, b"%d" % (first + at), 5, (), first + at) for at in range(10)] for first in range(0, 1000, 10)]
    reads: list[int] = []
    wanted = Seen(log[95][4], False)
    assert exact.find(side(log, reads=reads), side(log, reads=reads), [Anchor(20, 20)], wanted, False) == Found(
        954, True
    )
    assert reads == [20, 20, 950, 950]
