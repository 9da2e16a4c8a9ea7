"""Which batches of a Fetch answer are committed data: against a model, and with damaged bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.clients.errors import ClientError
from odradek.clients.fetching import FetchedRecords
from odradek.mirror.committed import batches_of
from odradek.storage.batch import ABORT, COMMIT, TRANSACTIONAL, Record, build_batch, build_end_marker
from odradek.storage.old_messages import OldMessage

PLACE = ("t", 0)


class Log:
    """A log of transactions of two producers, of records without one, and of messages of format v1.

    :ivar committed: the offsets that a consumer with read_committed sees. :ivar ended: (producer id, first offset, offset of
        the marker) of the aborted transactions.
    """

    def __init__(self) -> None:
        self.data: list[bytes] = []
        self.starts: list[int] = []
        self.committed: list[int] = []
        self.ended: list[tuple[int, int, int]] = []
        self.open: dict[int, list[int]] = {}
        self.end = 0

    def append(self, producer_id: int, records: int, codec: int) -> None:
        offsets = list(range(self.end, self.end + records))
        content = [Record(None, b"%d" % offset, 1, (), offset) for offset in offsets]
        attributes = TRANSACTIONAL if producer_id >= 0 else 0
        self._add(
            build_batch(content, base_offset=self.end, codec=codec, producer_id=producer_id, attributes=attributes),
            records,
        )
        if producer_id >= 0:
            self.open.setdefault(producer_id, []).extend(offsets)
        else:
            self.committed += offsets

    def append_old(self) -> None:
        self._add(OldMessage(self.end, 1, 0, 5, None, b"%d" % self.end).encoded(), 1)
        self.committed.append(self.end - 1)

    def end_transaction(self, producer_id: int, kind: int) -> None:
        offsets = self.open.pop(producer_id, [])
        marker = build_end_marker(
            kind, base_offset=self.end, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=1
        )
        self._add(marker, 1)
        if kind == COMMIT:
            self.committed += offsets
        elif offsets:
            self.ended.append((producer_id, offsets[0], self.end - 1))

    def aborted(self, position: int = 0) -> list[tuple[int, int]]:
        """What a broker names in a Fetch answer: the aborted transactions that end at or after the position."""
        return [(producer_id, first) for producer_id, first, marker in self.ended if marker >= position]

    def _add(self, data: bytes, records: int) -> None:
        self.data.append(data)
        self.starts.append(self.end)
        self.end += records


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from((0, 0, 0, 1, -1)), st.integers(1, 4), st.sampled_from((0, 1, 4))),
        st.tuples(st.just("end"), st.sampled_from((0, 0, 1)), st.sampled_from((ABORT, COMMIT))),
        st.tuples(st.just("old")),
    ),
    min_size=6,
    max_size=25,
)


def written(steps: list[tuple[object, ...]]) -> Log:
    log = Log()
    for step in steps:
        if step[0] == "write":
            log.append(*step[1:])  # type: ignore[arg-type]
        elif step[0] == "end":
            log.end_transaction(*step[1:])  # type: ignore[arg-type]
        else:
            log.append_old()
    for producer_id in sorted(log.open):
        log.end_transaction(producer_id, ABORT)
    return log


def read(data: bytes, aborted: list[tuple[int, int]], position: int) -> tuple[list[int], int]:
    """The offsets of committed data, and the next offset."""
    offsets: list[int] = []
    end = position
    for batch, end in batches_of(FetchedRecords(PLACE, memoryview(data), aborted), position):  # noqa: B007
        if batch is not None:
            records = batch.records()
            assert batch.count == len(records) and batch.first <= records[0].offset <= records[-1].offset <= batch.last
            offsets += [record.offset for record in records]
    return offsets, end


@given(STEPS, st.data())
def test_committed_data_is_what_remains_from_any_position_and_any_cut(
    steps: list[tuple[object, ...]], data: st.DataObject
) -> None:
    log = written(steps)
    if not log.data:
        return
    first = data.draw(st.integers(0, len(log.data) - 1))
    content = b"".join(log.data[first:])
    position = log.starts[first]
    seen, end = read(content, log.aborted(position), position)
    assert seen == sorted(offset for offset in log.committed if offset >= position) and end == log.end
    cut = data.draw(st.integers(0, len(content)))
    seen, end = read(content[:cut], log.aborted(position), position)
    assert seen == sorted(offset for offset in log.committed if position <= offset < end)
    assert end in [*log.starts, log.end]


@given(STEPS, st.data())
def test_damaged_bytes_raise_one_error_or_change_nothing(steps: list[tuple[object, ...]], data: st.DataObject) -> None:
    log = written(steps)
    content = bytearray(b"".join(log.data))
    if not content:
        return
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        read(bytes(content), log.aborted(), 0)
    except ClientError as error:
        assert "\n" not in str(error)


@given(st.binary(max_size=200))
def test_garbage_raises_one_error_or_contains_no_batch(data: bytes) -> None:
    try:
        assert read(data, [], 0)[0] == []
    except ClientError as error:
        assert "\n" not in str(error)


def test_a_batch_with_a_wrong_checksum_is_refused() -> None:
    batch = bytearray(build_batch([Record(None, b"x" * 50, 1)], base_offset=7))
    batch[-2] ^= 1
    with pytest.raises(ClientError, match="t-0 returned a damaged batch at offset 7"):
        read(bytes(batch), [], 0)
