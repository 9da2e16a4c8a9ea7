"""Batches of a Fetch answer: which are moved, and the headers that they get. `odradek.storage.batch` is the oracle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek._ext.records.moved_batches import MOVE, OPEN, OPEN_OLD, checksum_matches, renumber, stamp, walk
from odradek.mirror.reencode import InvalidBatchError, reencode
from odradek.storage import compression
from odradek.storage.batch import (
    ABORT,
    COMMIT,
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Record,
    build_batch,
    build_end_marker,
    read_batch,
)
from odradek.storage.old_messages import OldMessage

HEADERS = st.lists(st.tuples(st.binary(max_size=4), st.none() | st.binary(max_size=9)), max_size=2).map(tuple)
RECORDS = st.lists(
    st.builds(
        Record,
        key=st.none() | st.binary(max_size=20),
        value=st.none() | st.binary(max_size=300),
        timestamp=st.integers(0, 1 << 42),
        headers=HEADERS,
    ),
    min_size=1,
    max_size=20,
)


@given(
    records=RECORDS,
    codec=st.integers(0, 4),
    base_offset=st.integers(0, 1 << 62),
    attributes=st.sampled_from([0, LOG_APPEND_TIME, TRANSACTIONAL, DELETE_HORIZON, LOG_APPEND_TIME | TRANSACTIONAL]),
    producer_id=st.integers(-1, (1 << 63) - 1),
    epoch=st.integers(-1, (1 << 15) - 1),
    sequence=st.integers(-1, (1 << 31) - 1),
    transactional=st.booleans(),
)
def test_a_stamped_batch_has_the_producers_header_a_right_checksum_and_the_same_records(
    records: list[Record],
    codec: int,
    base_offset: int,
    attributes: int,
    producer_id: int,
    epoch: int,
    sequence: int,
    transactional: bool,
) -> None:
    original = build_batch(
        records, base_offset=base_offset, codec=codec, attributes=attributes, producer_id=9, partition_leader_epoch=4
    )
    data = bytearray(b"ab" + original + b"cd")
    stamp(data, 2, len(original), producer_id, epoch, sequence, transactional)
    assert data[:2] == b"ab"
    assert data[-2:] == b"cd"
    batch, end = read_batch(bytes(data[2:-2]))  # checks the CRC over the whole batch
    assert end == len(original)
    assert (batch.base_offset, batch.partition_leader_epoch) == (0, -1)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (producer_id, epoch, sequence)
    assert batch.attributes == codec | (TRANSACTIONAL if transactional else 0)
    before, _ = read_batch(original)
    assert batch.payload == before.payload
    assert (batch.record_count, batch.max_timestamp) == (before.record_count, before.max_timestamp)


@given(records=RECORDS, data=st.data())
def test_a_batch_that_was_damaged_keeps_a_wrong_checksum(records: list[Record], data: st.DataObject) -> None:
    batch = bytearray(build_batch(records, base_offset=7))
    bit = data.draw(st.integers(8 * 17, 8 * len(batch) - 1))
    # The fields that `stamp` overwrites cannot be damaged in the result.
    overwritten = {*range(8 * 43, 8 * 57), 8 * 22 + 1, 8 * 22 + 3, 8 * 22 + 4}
    batch[bit // 8] ^= 0x80 >> bit % 8
    stamp(batch, 0, len(batch), 1, 2, 3, True)
    assert checksum_matches(batch) is False or bit in overwritten


@pytest.mark.parametrize(("start", "size"), [(0, 60), (-1, 70), (1, 70), (0, 71), (0, 1 << 40), (1 << 40, 70)])
def test_a_place_without_a_batch_is_not_stamped(start: int, size: int) -> None:
    data = bytearray(build_batch([Record(value=b"vv")]))
    assert len(data) == 70
    before = bytes(data)
    with pytest.raises(ValueError, match="no batch"):
        stamp(data, start, size, 1, 2, 3, True)
    assert data == before


def _marker(kind: int, producer_id: int, offset: int) -> bytes:
    return build_end_marker(
        kind, base_offset=offset, producer_id=producer_id, producer_epoch=0, coordinator_epoch=1, timestamp=1
    )


def _three() -> list[bytes]:
    return [build_batch([Record(value=b"x" * n)] * n, base_offset=10 * n) for n in (1, 2, 3)]


def test_an_answer_that_is_cut_off_at_any_byte_gives_its_whole_batches() -> None:
    batches = _three()
    data = b"".join(batches)
    ends = [len(b"".join(batches[:count])) for count in range(4)]
    for size in range(len(data) + 1):
        found = walk(data[:size], 0)
        whole = max(count for count in range(4) if ends[count] <= size)
        assert found.problem is None
        assert found.consumed == ends[whole]
        assert [batch.first_offset for batch in found.batches] == [10, 20, 30][:whole]
        assert found.position == [0, 11, 22, 33][whole]


@given(data=st.binary(max_size=400), position=st.integers(0, (1 << 63) - 1))
def test_garbage_is_a_problem_or_cut_off_and_never_more(data: bytes, position: int) -> None:
    found = walk(data, position)
    assert 0 <= found.consumed <= len(data)
    for batch in found.batches:
        assert 0 <= batch.start <= batch.start + batch.size <= found.consumed


@given(data=st.data(), position=st.integers(0, 40))
def test_changed_bytes_are_never_read_past_the_end(data: st.DataObject, position: int) -> None:
    answer = bytearray(b"".join([*_three(), _marker(ABORT, 5, 40)]))
    for _ in range(data.draw(st.integers(1, 4))):
        answer[data.draw(st.integers(0, len(answer) - 1))] = data.draw(st.integers(0, 255))
    found = walk(answer, position, [(5, 0)])
    view = memoryview(bytes(answer))
    for batch in found.batches:
        assert 0 <= batch.start <= batch.start + batch.size <= found.consumed <= len(answer)
        if batch.kind != MOVE:
            try:
                reencode(view, batch, False)
            except InvalidBatchError as error:
                assert "the batch at offset" in str(error)


@pytest.mark.parametrize(
    ("at", "value", "words"),
    [
        (8, b"\xff\xff\xff\xff", "a length of -1 bytes"),
        (8, b"\0\0\0\2", "a length of 2 bytes"),
        (16, b"\3", "an invalid header of format v3"),
        (23, b"\xff\xff\xff\xff", "last offset delta -1"),
        (57, b"\0\0\0\7", "7 records"),
        (57, b"\xff\xff\xff\xfe", "-2 records"),
        (0, b"\xff" * 8, "base offset -1"),
        (0, b"\x7f" + b"\xff" * 7, "base offset 9223372036854775807"),
        (0, b"\0" * 7 + b"\x0a", "begins at offset 10"),
        (0, b"\0" * 7 + b"\x02", "ends at offset 3"),
    ],
)
def test_an_invalid_second_batch_stops_after_the_first(at: int, value: bytes, words: str) -> None:
    first, second, _ = _three()
    broken = bytearray(second)
    broken[at : at + len(value)] = value
    found = walk(first + broken, 0)
    assert [batch.first_offset for batch in found.batches] == [10]
    assert found.position == 11
    assert words in found.problem


def test_control_batches_and_aborted_transactions_are_left_out() -> None:
    def of(producer_id: int, base_offset: int) -> bytes:
        return build_batch(
            [Record(value=b"v")] * 2, base_offset=base_offset, producer_id=producer_id, attributes=TRANSACTIONAL
        )

    data = b"".join(
        [
            of(1, 0),  # aborted at 6
            of(2, 2),  # committed at 7
            build_batch([Record(value=b"v")] * 2, base_offset=4, producer_id=1, attributes=0),  # not transactional
            _marker(ABORT, 1, 6),
            _marker(COMMIT, 2, 7),
            of(1, 8),  # committed at 10
            _marker(COMMIT, 1, 10),
            of(1, 11),  # aborted at 13
            _marker(ABORT, 1, 13),
        ]
    )
    found = walk(data, 0, [(1, 11), (1, 0)])
    assert found.problem is None
    assert [batch.first_offset for batch in found.batches] == [2, 4, 8]
    assert found.position == 14


@pytest.mark.parametrize("attributes", [TRANSACTIONAL, TRANSACTIONAL | CONTROL])
def test_a_damaged_batch_that_is_left_out_is_a_problem(attributes: int) -> None:
    data = bytearray(build_batch([Record(value=b"v")], producer_id=1, attributes=attributes))
    data[-1] ^= 1
    assert "does not match its checksum" in walk(data, 0, [(1, 0)]).problem


@given(
    records=st.lists(RECORDS.map(lambda found: found[0]), min_size=1, max_size=9),
    gaps=st.data(),
    codec=st.integers(0, 4),
    append_time=st.booleans(),
)
def test_batches_with_gaps_or_before_the_position_are_encoded_again(
    records: list[Record], gaps: st.DataObject, codec: int, append_time: bool
) -> None:
    deltas = sorted(gaps.draw(st.sets(st.integers(0, 40), min_size=len(records), max_size=len(records))))
    last = deltas[-1] + gaps.draw(st.integers(0, 3))
    position = gaps.draw(st.integers(90, 100 + last))
    original = build_batch(
        records,
        base_offset=100,
        codec=codec,
        offset_deltas=deltas,
        last_offset_delta=last,
        attributes=LOG_APPEND_TIME if append_time else 0,
    )
    found = walk(original, position, (), append_time)
    (batch,) = found.batches
    dense = last == len(records) - 1
    assert batch.kind == (MOVE if dense and position <= 100 and not append_time else OPEN)
    assert found.position == 101 + last
    kept = [(delta, record) for delta, record in zip(deltas, records, strict=True) if 100 + delta >= position]
    result = reencode(memoryview(original), batch, append_time)
    if not kept:
        assert result is None
        return
    assert result is not None
    assert result.first_offset == 100 + kept[0][0]
    stamp(result.data, 0, len(result.data), 5, 0, 0, True)
    again, _ = read_batch(bytes(result.data))
    stamped = max(record.timestamp for record in records)
    assert again.codec == codec
    assert again.last_offset_delta + 1 == again.record_count == result.records == len(kept)
    assert [(r.offset, r.key, r.value, r.headers) for r in again.records()] == [
        (number, record.key, record.value, record.headers) for number, (_, record) in enumerate(kept)
    ]
    times = [stamped if append_time else record.timestamp for _, record in kept]
    assert [record.timestamp for record in again.records()] == times
    assert again.max_timestamp == max(times) == result.max_timestamp


def test_records_whose_offsets_do_not_grow_are_refused() -> None:
    payload = read_batch(build_batch([Record(value=b"a"), Record(value=b"b")], offset_deltas=[3, 3]))[0].payload
    with pytest.raises(ValueError, match="the batch at offset 50 cannot be read"):
        renumber(payload, 2, 50, 0, 0)
    for size in range(len(payload)):
        with pytest.raises(ValueError, match="cannot be read"):
            renumber(payload[:size], 2, 50, 0, 0)


@given(count=st.integers(-5, 5), data=st.binary(max_size=60))
def test_records_of_garbage_are_refused_or_counted(count: int, data: bytes) -> None:
    try:
        result = renumber(data, count, 0, 0, 0)
    except ValueError:
        return
    assert result.records == max(count, 0)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_messages_of_the_old_formats_become_batches(magic: int, codec: int) -> None:
    def message(offset: int, value: bytes) -> OldMessage:
        return OldMessage(offset, magic, 0, 1000 + offset if magic else -1, None if offset % 2 else b"k", value)

    if codec:
        inner = b"".join(message(offset - (50 if magic else 0), b"%d" % offset).encoded() for offset in (50, 51, 53))
        packed = compression.compress_old(codec, inner, magic)
        data = OldMessage(53, magic, codec, 1003 if magic else -1, None, packed).encoded()
    else:
        data = b"".join(message(offset, b"%d" % offset).encoded() for offset in (50, 51, 53))
    found = walk(data, 51)
    (batch,) = found.batches
    assert (batch.kind, batch.first_offset, batch.last_offset, found.position) == (OPEN_OLD, 51, 53, 54)
    result = reencode(memoryview(data), batch, False)
    assert result is not None
    again, _ = read_batch(bytes(result.data))
    assert again.codec == codec
    assert result.first_offset == 51
    assert [record.value for record in again.records()] == [b"51", b"53"]
    damaged = bytearray(data)
    damaged[-1] ^= 1
    with pytest.raises(InvalidBatchError, match="the batch at offset 51 cannot be read"):
        reencode(memoryview(bytes(damaged)), batch, False)


def test_uncompressed_messages_of_the_old_formats_become_batches_of_a_limited_size() -> None:
    messages = [OldMessage(offset, 1, 0, 1, None, b"x" * 1000).encoded() for offset in range(200)]
    found = walk(b"".join(messages), 0)
    assert len(found.batches) == 4
    assert max(batch.size for batch in found.batches) <= 1 << 16
    assert [batch.first_offset for batch in found.batches][1:] == [
        batch.last_offset + 1 for batch in found.batches[:-1]
    ]
    assert sum(batch.size for batch in found.batches) == found.consumed == len(b"".join(messages))
