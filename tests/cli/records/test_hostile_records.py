"""Records of a hostile broker, as `consume` and a load read them: an error, or what a simple reader in Python finds."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek._ext.records.fetched_records import CorruptRecordsError, RecordReader
from odradek._ext.records.record_columns import RecordColumns
from odradek.cli.records.record_format import printer
from odradek.storage import compression, old_messages
from odradek.storage.batch import Record, build_batch
from tests.hostile_records import (
    HUGE,
    LIMIT,
    MOST,
    SETS,
    Seen,
    exact,
    flipped,
    flipped_inside,
    flipped_wrappers,
    reference,
    repaired,
    with_payload,
    zigzag,
)
from tests.storage.old_writer import message

TEMPLATES = ("{topic} {offset} {time} {key} {value} {headers}\\n", "json")


def reader_into(columns, limit=LIMIT, most_messages=1 << 20):
    return RecordReader(
        columns,
        lambda _: None,
        decompress=lambda codec, data: compression.decompress(codec, data, limit),
        open_old=lambda data: old_messages.read_message(data)[0].opened(limit, most_messages),
    )


def columns_read(data, position, page_bytes):
    """The records, and whether the data is valid; no page has more than its size and one record or old message."""
    columns, seen = RecordColumns(), []
    pages = reader_into(columns).pages("t", 0, exact(data), position, None, [], page_bytes)

    def take():
        rows = [
            Seen(offset, key, value, time, kind, tuple(headers or ()))
            for key, value, offset, time, kind, headers in zip(*columns.take(), strict=True)
        ]
        seen.extend(rows)
        return rows

    try:
        for reached in pages:
            rows = take()
            assert all(row.offset < reached for row in rows)
    except CorruptRecordsError as error:
        assert str(error)
        take()
        return seen, False
    return seen, True


def check(data, position=10, page_bytes=MOST):
    expected = reference(data, position)
    assert columns_read(data, position, page_bytes) == expected, data.hex()
    return expected


def print_all(data, position=10):
    """The printers do not read all fields, so that they accept more."""
    for template in TEMPLATES:
        output = []
        reader = RecordReader(
            printer(template),
            output.append,
            decompress=lambda codec, data: compression.decompress(codec, data, LIMIT),
            open_old=lambda data: old_messages.read_message(data)[0].opened(LIMIT),
        )
        try:
            reader.read("t", 0, exact(data), position)
        except CorruptRecordsError as error:
            assert str(error)
        reader.flush()
        assert b"".join(output).count(b"\n") >= reader.records


@pytest.mark.parametrize("name", SETS)
def test_valid_data_is_read_as_the_reference_reads_it(name):
    for position in range(8, 30):
        seen, valid = check(SETS[name], position, 1)
        assert valid and (seen or position > 10)


@pytest.mark.parametrize("name", SETS)
def test_data_that_is_cut_off_at_any_byte(name):
    for size in range(len(SETS[name])):
        assert check(SETS[name][:size])[1]


@pytest.mark.parametrize("name", SETS)
def test_a_changed_byte_with_a_right_checksum(name):
    for number, data in enumerate(flipped(SETS[name])):
        check(data, 10 + number % 3, (1, 300, MOST)[number % 3])
        print_all(data)


@pytest.mark.parametrize("codec", range(5))
def test_a_changed_byte_before_the_compression(codec):
    for number, data in enumerate(flipped_inside(codec)):
        check(data, 10, (1, 300, MOST)[number % 3])
        if codec == 0:
            print_all(data)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_changed_byte_in_a_compressed_message(magic):
    for data in flipped_wrappers(1, magic):
        check(data, 11)


def record_of(parts):
    body = b"".join(parts)
    return zigzag(len(body)) + body


@st.composite
def payloads(draw):
    """Records whose numbers are mostly right, and sometimes huge, negative or too long for their type."""

    def number(right):
        if draw(st.integers(0, 14)):
            return zigzag(right)
        return draw(
            st.sampled_from([zigzag(value) for value in HUGE] + [b"\x80" * 9 + b"\x01", b"\xff" * 11, b"\x80\0"])
        )

    def field(data):
        return number(-1) if data is None else number(len(data)) + data

    some = st.none() | st.binary(max_size=5)
    records = []
    for at in range(draw(st.integers(0, 4))):
        headers = draw(st.lists(st.tuples(st.binary(max_size=4), some), max_size=2))
        parts = [b"\0", number(at), number(at), field(draw(some)), field(draw(some)), number(len(headers))]
        parts += [field(name) + field(value) for name, value in headers]
        body = b"".join(parts)
        records.append(number(len(body)) + body)
    return b"".join(records), len(records)


@settings(max_examples=400)
@given(
    payloads(),
    st.integers(-2, 2),
    st.sampled_from([0, 0, 0, 1, -1, 1 << 30, (1 << 31) - 1, -(1 << 31)]),
    st.sampled_from([0, 3, 10, (1 << 63) - 1, (1 << 63) - 4, -1, -(1 << 63)]),
    st.integers(0, 4),
    st.integers(1, 600),
)
def test_records_with_any_numbers(payload, more, last_delta_more, base_offset, codec, page_bytes):
    plain, count = payload
    last_delta = count - 1 + last_delta_more
    data = with_payload(
        SETS[f"v2 codec {codec}"],
        plain,
        base_offset=base_offset,
        record_count=count + more,
        last_offset_delta=last_delta if -(1 << 31) <= last_delta < 1 << 31 else last_delta_more,
    )
    for position in (0, 11):
        check(data, position, page_bytes)
    print_all(data, 0)


@given(st.binary(max_size=200), st.sampled_from([0, 1, 2, 3, 255]), st.booleans(), st.integers(1, 600))
def test_garbage(data, magic, repair, page_bytes):
    if len(data) > 17:
        data = data[:8] + struct.pack(">i", len(data) - 12) + data[12:16] + bytes([magic]) + data[17:]
    check(repaired(data) if repair else data, 0, page_bytes)
    print_all(data)


@given(st.lists(st.sampled_from(sorted(SETS)), max_size=4), st.integers(0, 30))
def test_batches_whose_offsets_go_back_are_an_error(names, position):
    seen, valid = check(b"".join(SETS[name] for name in names), position, 200)
    assert valid == (len(names) < 2)
    assert len({one.offset for one in seen}) == len(seen)


@pytest.mark.parametrize("codec", [1, 4])
def test_a_small_batch_with_millions_of_records_needs_the_memory_of_a_page(codec):
    count = 2_000_000
    plain = b"".join(record_of([b"\0\0", zigzag(at), b"\1\1\0"]) for at in range(count))
    data = with_payload(SETS[f"v2 codec {codec}"], plain, record_count=count, last_offset_delta=count - 1)
    assert len(data) < 12_000_000
    columns = RecordColumns()
    reader = reader_into(columns, 64 << 20)
    read = 0
    for reached in reader.pages("t", 0, data, 0, None, [], 1 << 20):
        (_, _, offsets, *_) = columns.take()
        assert len(offsets) < 6000
        read += len(offsets)
        assert reached == 10 + read
        if read > 30_000:
            break
    assert read


def test_a_page_within_a_batch_ends_at_the_end_of_the_range():
    columns = RecordColumns()
    data = SETS["v2 codec 1"] + build_batch([Record(value=b"x")], base_offset=14)
    pages = [(reached, columns.take()[2]) for reached in reader_into(columns).pages("t", 0, data, 11, 13, [], 1)]
    assert pages == [(12, [11]), (13, [12])]


def test_a_message_with_too_many_messages_is_an_error():
    inner = b"".join(message(number, b"", magic=0) for number in range(1000))
    data = message(999, compression.compress(1, inner), magic=0, attributes=1)
    columns = RecordColumns()
    with pytest.raises(CorruptRecordsError, match="has more than 999 messages"):
        reader_into(columns, LIMIT, 999).read("t", 0, data, 0)
    reader_into(columns, LIMIT, 1000).read("t", 0, data, 0)
    assert len(columns.take()[0]) == 1000


def test_a_record_with_too_many_headers_is_an_error():
    count = (1 << 20) + 1
    plain = record_of([b"\0\0\0\1\1", zigzag(count), b"\0\1" * count])
    data = with_payload(SETS["v2 codec 4"], plain, record_count=1, last_offset_delta=0)
    tracemalloc.start()
    try:
        with pytest.raises(
            CorruptRecordsError, match=f"the record at offset 10 has {count} headers; at most {1 << 20}"
        ):
            reader_into(RecordColumns(), 16 << 20).read("t", 0, data, 0)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("time_ms", [1_700_000_000_000_000, (1 << 63) - 1, 253_402_300_800_000 + 86_400_000])
def test_a_time_after_the_year_9999_is_printed_as_a_number(time_ms):
    output = []
    reader = RecordReader(printer("{offset} {time}\\n"), output.append, decompress=None, open_old=None)
    reader.read("t", 0, build_batch([Record(timestamp=time_ms), Record(timestamp=0)]), 0)
    reader.flush()
    assert b"".join(output).startswith(b"0 %d ms\n1 19" % time_ms)


@pytest.mark.parametrize("codec", range(1, 5))
def test_a_batch_that_decompresses_to_more_than_the_limit_is_an_error(codec):
    plain = record_of([b"\0\0\0\1", zigzag(LIMIT), bytes(LIMIT), b"\0"])
    data = with_payload(SETS[f"v2 codec {codec}"], plain, record_count=1, last_offset_delta=0)
    with pytest.raises(CorruptRecordsError, match=r"the batch at offset 10 cannot be decompressed: .*limit"):
        reader_into(RecordColumns()).read("t", 0, data, 0)


@pytest.mark.parametrize("codec", range(4, 8))
def test_a_message_with_a_codec_that_its_format_does_not_have_is_an_error(codec):
    for magic in (0, 1):
        data = message(5, b"x", magic=magic, attributes=codec)
        with pytest.raises(CorruptRecordsError, match=f"compression {codec}, which format v{magic} does not allow"):
            reader_into(RecordColumns()).read("t", 0, data, 0)
