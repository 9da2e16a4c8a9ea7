"""The records that `consume` reads from a Fetch response, compared with those that a simple reader in Python returns."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek._ext.records.fetched_records import CorruptRecordsError, RecordReader
from odradek._ext.records.record_columns import RecordColumns
from odradek.cli.framework.interrupt import Interruption
from odradek.cli.records.direct_reading import record_reader
from odradek.cli.records.reading import keeping
from odradek.cli.records.record_format import printer
from odradek.storage.batch import ABORT, COMMIT, LOG_APPEND_TIME, TRANSACTIONAL, Record, build_batch, build_end_marker
from tests.storage.old_writer import message, wrapper
from tests.wire import with_crc

FORM = "{topic}-{partition}@{offset} {timestamp} {key}={value} {headers}\\n"


class WrittenRecords:
    """A reader, and the lines that it wrote."""

    def __init__(self, **options):
        self.data = b""
        defaults = {"keep": None, "limit": None, "until_ms": None, "committed_only": True}
        self.reader = record_reader(printer(FORM), self.write, **(defaults | options))

    def write(self, data):
        self.data += data

    def read(self, data, position=0, end=None, aborted=()):
        at = self.reader.read("t", 3, data, position, end, aborted)
        self.reader.flush()
        return at

    @property
    def lines(self):
        return self.data.decode().splitlines()


def line(record):
    headers = ",".join(f"{name.decode()}={(part or b'').decode()}" for name, part in record.headers)
    key, value = ((part or b"").decode() for part in (record.key, record.value))
    return f"t-3@{record.offset} {record.timestamp} {key}={value} {headers}"


TEXTS = st.one_of(st.none(), st.sampled_from([b"", b"abc", b"x" * 300]))
CONTENT = st.builds(
    Record,
    key=TEXTS,
    value=TEXTS,
    timestamp=st.integers(1000, 1010),
    headers=st.lists(st.tuples(st.sampled_from([b"h", b"i"]), TEXTS), max_size=2).map(tuple),
)


@st.composite
def logs(draw):
    """Batches with gaps within and between them, of all codecs, and the records in them."""
    batches, records, offset = [], [], 0
    for content in draw(st.lists(st.lists(CONTENT, max_size=4), max_size=5)):
        offset += draw(st.integers(0, 2))
        deltas = sorted(draw(st.lists(st.integers(0, 9), min_size=len(content), max_size=len(content), unique=True)))
        last = draw(st.integers(max(deltas, default=0), 10))
        appended = draw(st.booleans())
        batches.append(
            build_batch(
                content,
                base_offset=offset,
                offset_deltas=deltas,
                last_offset_delta=last,
                codec=draw(st.integers(0, 4)),
                attributes=LOG_APPEND_TIME if appended else 0,
            )
        )
        newest = max((record.timestamp for record in content), default=-1)
        records += [
            Record(record.key, record.value, newest if appended else record.timestamp, record.headers, offset + delta)
            for record, delta in zip(content, deltas, strict=True)
        ]
        offset += last + 1
    return batches, records, offset


@settings(max_examples=150)
@given(logs(), st.integers(0, 40), st.integers(0, 60), st.data())
def test_records_from_a_position_to_an_end_are_written_in_order(log, position, end, data):
    batches, records, log_end = log
    whole = b"".join(batches)
    cut = data.draw(st.integers(0, len(whole)))
    written = WrittenRecords()
    at = written.read(whole[:cut], position, end)
    if at < min(end, log_end) and cut < len(whole):  # the next response begins with the batch that was cut off
        left = [batch for batch in batches if _last_offset(batch) >= at]
        at = written.read(b"".join(left), at, end)
    assert written.lines == [line(record) for record in records if position <= record.offset < end]
    assert written.reader.records == len(written.lines)
    assert at >= min(end, log_end) or at == position


def _last_offset(batch):
    return struct.unpack_from(">q", batch)[0] + struct.unpack_from(">i", batch, 23)[0]


@given(logs(), st.integers(1, 6), st.integers(1000, 1011))
def test_reading_ends_at_a_limit_and_at_a_time(log, limit, until_ms):
    batches, records, _ = log
    written = WrittenRecords(limit=limit, until_ms=until_ms)
    at = written.read(b"".join(batches))
    before = next((n for n, record in enumerate(records) if record.timestamp >= until_ms), len(records))
    expected = records[: min(limit, before)]
    assert written.lines == [line(record) for record in expected]
    assert bool(written.reader.full) == (len(expected) == limit)
    assert bool(written.reader.ended) == (before < len(records) and before < limit)
    if written.reader.full:
        assert at == expected[-1].offset + 1
    elif written.reader.ended:
        assert at == records[before].offset


@given(logs(), st.integers(0, 40), st.integers(0, 60), st.integers(1, 2000))
def test_pages_have_the_same_records_as_the_whole(log, position, end, page_bytes):
    batches, records, _ = log
    columns = RecordColumns()
    reader = record_reader(columns, bytes, None, None, None, True)
    data = b"".join(batches)
    found, reached = [], []
    for at in reader.pages("t", 3, data, position, end, [], page_bytes):
        keys, values, offsets, times, types, headers = columns.take()
        assert set(types) <= {0, 1}
        reached.append(at)
        found += [
            Record(key, value, when, tuple((name.encode(), part) for name, part in some or ()), offset)
            for key, value, offset, when, some in zip(keys, values, offsets, times, headers, strict=True)
        ]
    assert found == [record for record in records if position <= record.offset < end]
    assert reached == sorted(reached) and reached[-1] == WrittenRecords().read(data, position, end)
    assert len(reached) <= len(found) + 1


def test_aborted_records_are_left_out_whatever_page_they_are_in():
    data = b"".join(
        (
            transaction(7, 0, [b"aborted"]),
            transaction(8, 1, [b"committed"]),
            transaction(7, 2, [b"aborted"]),
            end_marker(ABORT, 7, 3),
            transaction(7, 4, [b"committed"]),
            end_marker(COMMIT, 8, 5),
            end_marker(COMMIT, 7, 6),
        )
    )
    columns = RecordColumns()
    reader = record_reader(columns, bytes, None, None, None, True)
    pages = [(at, columns.take()[2]) for at in reader.pages("t", 0, data, 0, None, [(7, 0)], 1)]
    assert [offset for _, offsets in pages for offset in offsets] == [1, 4]
    assert len(pages) == 3 and pages[-1][0] == 7, "a page for each record, and the rest"


def test_columns_tell_the_timestamp_types_of_old_messages():
    data = b"".join(
        (
            message(0, b"a", magic=0),
            wrapper(1, [(None, b"b")], codec=1, magic=0),
            message(2, b"c", timestamp=5),
            wrapper(3, [(b"k", b"d")], codec=1, timestamps=[6]),
            wrapper(4, [(None, b"e"), (None, None)], codec=1, timestamps=[1, 2], append_time=9),
        )
    )
    columns = RecordColumns()
    assert record_reader(columns, bytes, None, None, None, True).read("t", 0, data, 0) == 6
    keys, values, offsets, times, types, headers = columns.take()
    assert (keys, values) == ([None, None, None, b"k", None, None], [b"a", b"b", b"c", b"d", b"e", None])
    assert (offsets, times, types) == ([0, 1, 2, 3, 4, 5], [-1, -1, 5, 6, 9, 9], [-1, -1, 0, 0, 1, 1])
    assert headers == [None] * 6 and columns.take() == ([],) * 6


@pytest.mark.parametrize("headers", [b"\x02", b"\x02\x04a", b"\x02\x02a\x04b", b"\x02\x02a\x02bc", b"\x00\x00"])
def test_columns_refuse_headers_that_do_not_end_with_the_record(headers):
    body = b"\x00\x00\x00\x01\x01" + headers  # attributes, time and offset deltas, no key, no value
    data = with_crc(bytes(build_batch([])[:57]) + struct.pack(">i", 1) + bytes([2 * len(body)]) + body)
    data = with_crc(data[:8] + struct.pack(">i", len(data) - 12) + data[12:])
    with pytest.raises(CorruptRecordsError, match="the headers of the record at offset 0 cannot be read"):
        record_reader(RecordColumns(), bytes, None, None, None, True).read("t", 0, data, 0)


@pytest.mark.parametrize(
    ("raw", "decoded"),
    [  # what `new String(raw, UTF_8)` of Java 17 returns
        (b"a\xed\xa0\x80b", "a\ufffdb"),
        (b"\xed\xbf\xbf\xed\xa0\x80", "\ufffd\ufffd"),
        (b"\xed\xa0", "\ufffd"),
        (b"\xed\xa0A", "\ufffdA"),
        (b"\xed\x9f\xbf", "\ud7ff"),
        (b"\xc0\x80\xe2\x82\xf0\x9f\x90", "\ufffd" * 4),
    ],
)
def test_names_of_headers_are_decoded_as_java_does(raw, decoded):
    columns = RecordColumns()
    data = build_batch([Record(headers=((raw, b"x"),))])
    record_reader(columns, bytes, None, None, None, True).read("t", 0, data, 0)
    assert columns.take()[-1] == [[(decoded, b"x")]]


def test_a_record_of_the_last_time_that_there_is_ends_nothing():
    written = WrittenRecords()
    content = [Record(b"k", b"a", (1 << 63) - 1), Record(b"k", b"b", 5)]
    assert written.read(build_batch(content)) == 2
    assert len(written.lines) == 2 and not written.reader.ended


def test_a_pattern_selects_by_key_and_value():
    import re

    written = WrittenRecords(keep=keeping(re.compile(b"a.c"), Interruption()), limit=2)
    content = [Record(b"abc", None), Record(None, b"-abc-"), Record(b"x", b"y"), Record(None, b"axc")]
    at = written.read(build_batch(content, base_offset=5))
    assert [text.split()[0] for text in written.lines] == ["t-3@5", "t-3@6"] and at == 7


def transaction(producer_id, base, values):
    return build_batch(
        [Record(value=value) for value in values],
        base_offset=base,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        attributes=TRANSACTIONAL,
    )


def end_marker(kind, producer_id, base):
    return build_end_marker(
        kind, base_offset=base, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=0
    )


@pytest.mark.parametrize("committed_only", [True, False])
def test_records_of_aborted_transactions_and_all_markers_are_skipped(committed_only):
    log = [
        transaction(1, 0, [b"a0", b"a1"]),
        transaction(2, 2, [b"b2"]),
        transaction(1, 3, [b"a3"]),
        end_marker(ABORT, 1, 4),
        transaction(1, 5, [b"a5"]),
        end_marker(COMMIT, 2, 6),
        end_marker(COMMIT, 1, 7),
        build_batch([Record(value=b"plain")], base_offset=8),
        transaction(2, 9, [b"b9"]),
        end_marker(ABORT, 2, 10),
    ]
    written = WrittenRecords(committed_only=committed_only)
    at = written.read(b"".join(log), aborted=[(2, 9), (1, 0)])
    values = [text.split("=")[1].strip() for text in written.lines]
    everything = ["a0", "a1", "b2", "a3", "a5", "plain", "b9"]
    assert values == (["b2", "a5", "plain"] if committed_only else everything)
    assert at == 11
    again = WrittenRecords(committed_only=committed_only)
    again.read(b"".join(log[3:]), position=5, aborted=[(1, 0), (2, 9)])
    assert [text.split("=")[1].strip() for text in again.lines] == (
        ["a5", "plain"] if committed_only else everything[4:]
    )


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1])
def test_messages_of_old_formats_are_read_too(magic, codec):
    stamp = 1234 if magic else -1
    contents = [(b"k5", b"v"), (b"k6", None), (b"k7", b"v")]
    if codec:
        data = wrapper(5, contents, codec=codec, magic=magic, timestamps=[stamp] * 3)
    else:
        data = b"".join(
            message(5 + index, value, magic=magic, key=key, timestamp=stamp)
            for index, (key, value) in enumerate(contents)
        )
    written = WrittenRecords()
    assert written.read(data + build_batch([Record(b"new", b"v", 9)], base_offset=8), position=6) == 9
    assert written.lines == [f"t-3@6 {stamp} k6= ", f"t-3@7 {stamp} k7=v ", "t-3@8 9 new=v "]


def test_an_invalid_batch_is_an_error_with_its_offset():
    good = build_batch([Record(value=b"abc")], base_offset=40)
    for at in range(17, len(good)):
        damaged = bytearray(good)
        damaged[at] ^= 0x10
        with pytest.raises(CorruptRecordsError, match="40"):
            WrittenRecords().read(bytes(damaged), position=40)
    with pytest.raises(CorruptRecordsError, match="39"):
        WrittenRecords().read(good[:16] + b"\x07" + good[17:], position=40)
    with pytest.raises(CorruptRecordsError, match="39"):
        WrittenRecords().read(good[:8] + struct.pack(">i", -5) + good[12:], position=40)


@pytest.mark.parametrize(
    ("base_offset", "attributes", "last_delta", "reason"),
    [
        (40, 0, -1, "the batch at offset 40 has the last offset delta -1"),
        (40, 0x20, -(1 << 31), "the batch at offset 40 has the last offset delta -2147483648"),
        (-1, 0, 0, "the batch at offset -1 has"),
        ((1 << 63) - 2, 0, 1, "the batch at offset 9223372036854775806 has"),
        (40, 5, 0, "the batch at offset 40 has the unknown compression 5"),
        (40, 7, 0, "the batch at offset 40 has the unknown compression 7"),
    ],
)
def test_a_header_with_wrong_values_is_an_error(base_offset, attributes, last_delta, reason):
    good = build_batch([Record(value=b"abc")])
    values = struct.pack(">hi", attributes, last_delta)
    data = with_crc(struct.pack(">q", base_offset) + good[8:21] + values + good[27:])
    with pytest.raises(CorruptRecordsError, match=reason):
        WrittenRecords().read(data)


@given(st.binary(max_size=60), st.integers(1, 5), st.integers(0, 4))
def test_records_with_wrong_lengths_are_an_error(payload, count, codec):
    """Only the records of the batch are invalid: nothing is read beyond their end, and the records before stay counted."""
    from odradek.storage.batch import RecordBatch

    batch = RecordBatch(7, 0, codec, count - 1, 0, 0, -1, -1, -1, count, payload)
    written = WrittenRecords()
    try:
        written.read(bytes(batch), position=7)
    except CorruptRecordsError:
        written.reader.flush()
    assert written.reader.records == written.data.count(b"t-3@") if b"t-3@" not in payload else True


def test_records_that_were_not_written_are_not_counted():
    def write(_):
        raise BrokenPipeError

    reader = RecordReader(printer("value"), write, decompress=None, open_old=None)
    reader.read("t", 0, build_batch([Record(value=b"a")]), 0)
    with pytest.raises(BrokenPipeError):
        reader.flush()
    reader.flush()
    assert reader.records == 0
