"""The batches that `produce` builds from lines and records, read back with a simple reader in Python."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek._ext.records.line_batches import MissingSeparatorError, RecordBatches
from odradek.storage.batch import read_batch
from odradek.storage.compression import compress

LINES = st.lists(st.binary(max_size=30).filter(lambda line: b"\n" not in line), max_size=20)
NOW = 1_700_000_000_000


def batches_of(partitions=1, batch_bytes=1000, **options):
    return RecordBatches(partitions, batch_bytes, **{"open_partitions": range(partitions)} | options)


def by_partition(taken, codec=0):
    """The records of each partition in the order of its batches; asserts that all batches are valid and within their limit."""
    by_number = {}
    for partition, builder in taken:
        data = builder.finish(codec, compress, 7, 2, 5)
        batch, end = read_batch(data)
        assert (end, batch.codec) == (len(data), codec)
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 2, 5)
        assert batch.record_count == builder.count == batch.last_offset_delta + 1
        by_number.setdefault(partition, []).extend(batch.records())
    return by_number


@given(LINES, st.booleans(), st.integers(61, 200))
def test_lines_become_values_without_their_line_ends(lines, is_null, batch_bytes):
    batches = batches_of(batch_bytes=batch_bytes, empty_is_null=is_null)
    batches.add_lines(b"".join(line + b"\n" for line in lines), NOW)
    values = [line.removesuffix(b"\r") for line in lines]
    assert batches.records == len(lines) and batches.bytes == sum(map(len, values))
    taken = batches.take()
    assert all(builder.size <= batch_bytes or builder.count == 1 for _, builder in taken)
    records = by_partition(taken).get(0, [])
    assert [record.value for record in records] == [None if is_null and not value else value for value in values]
    assert all((record.key, record.timestamp, record.headers) == (None, NOW, ()) for record in records)
    assert batches.size == 0 and batches.take() == []


def test_the_last_line_may_lack_its_end():
    batches = batches_of()
    batches.add_lines(bytearray(b"a\r\n\nb\r"), NOW)
    batches.add_lines(b"", NOW)
    assert [record.value for record in by_partition(batches.take())[0]] == [b"a", b"", b"b"]


@given(st.lists(st.tuples(st.binary(max_size=5), st.binary(max_size=5)), max_size=30), st.integers(1, 9))
def test_keys_choose_the_partition_by_crc32_in_order(pairs, partitions):
    batches = batches_of(partitions, batch_bytes=150)
    for key, value in pairs:
        batches.add(key, value, NOW)
    by_number = by_partition(batches.take())
    expected = {}
    for key, value in pairs:
        if key:
            expected.setdefault(zlib.crc32(key) % partitions, []).append((key, value))
    with_key = {
        number: [(record.key, record.value) for record in records if record.key]
        for number, records in by_number.items()
    }
    assert {number: records for number, records in with_key.items() if records} == expected
    assert sum(map(len, by_number.values())) == len(pairs)


def test_records_without_a_key_change_the_partition_after_a_full_batch():
    batches = batches_of(50, batch_bytes=300, open_partitions=range(10, 50))
    for number in range(100):
        batches.add(None, b"%010d" % number, NOW)
    taken = batches.take()
    numbers = [[int(record.value) for record in read_batch(builder.finish())[0].records()] for _, builder in taken]
    assert sorted(numbers) == sorted(numbers, key=lambda batch: batch[0]) and sum(map(len, numbers)) == 100
    assert all(batch == list(range(batch[0], batch[0] + len(batch))) for batch in numbers), "each is of lines in a row"
    assert len({partition for partition, _ in taken}) > 1 and min(partition for partition, _ in taken) >= 10


def test_the_first_separator_divides_key_and_value():
    batches = batches_of(separator=b"::", headers=[("h", b"1"), ("n", None)])
    with pytest.raises(MissingSeparatorError, match="'::'"):
        batches.add_lines(b"k::v::w\n::x\nk::\nnothing\nk::y\n", NOW)
    assert batches.records == 3
    records = by_partition(batches.take())[0]
    assert [(record.key, record.value) for record in records] == [(b"k", b"v::w"), (b"", b"x"), (b"k", b"")]
    assert {record.headers for record in records} == {((b"h", b"1"), (b"n", None))}


@pytest.mark.parametrize("codec", range(5))
def test_a_fixed_key_partition_and_headers_apply_to_all_records(codec):
    batches = batches_of(4, fixed=2, key=b"k", headers=[("h", b"1")])
    batches.add_lines(b"a\n", NOW)
    batches.add(b"ignored", b"b", 5, [("ä", b"2")])
    records = by_partition(batches.take(), codec)
    assert list(records) == [2]
    assert [(record.key, record.value, record.timestamp) for record in records[2]] == [
        (b"k", b"a", NOW),
        (b"k", b"b", 5),
    ]
    assert records[2][1].headers == ((b"h", b"1"), ("ä".encode(), b"2"))


def test_only_full_batches_are_taken_while_more_may_come():
    batches = batches_of(batch_bytes=200)
    batches.add_lines(b"x" * 100 + b"\n", NOW)
    assert batches.take(False) == [] and batches.size > 100
    batches.add_lines(b"y" * 100 + b"\n", NOW)
    assert [record.value[:1] for record in by_partition(batches.take(False))[0]] == [b"x"]
    assert [record.value[:1] for record in by_partition(batches.take())[0]] == [b"y"]
