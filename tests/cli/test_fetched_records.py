"""The records that `consume` reads from a Fetch response, compared with those that a simple reader in Python returns."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek._ext.records.fetched_records import CorruptRecordsError, RecordReader
from odradek.cli.direct_reading import record_reader
from odradek.cli.record_format import printer
from odradek.storage.batch import ABORT, COMMIT, LOG_APPEND_TIME, TRANSACTIONAL, Record, build_batch, build_end_marker
from tests.storage.old_writer import message, wrapper

FORM = "{topic}-{partition}@{offset} {timestamp} {key}={value} {headers}\\n"


class WrittenRecords:
    """A reader, and the lines that it wrote."""

    def __init__(self, **options):
        self.data = b""
        defaults = {"pattern": None, "limit": None, "until_ms": None, "committed_only": True}
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


def test_a_pattern_selects_by_key_and_value():
    import re

    written = WrittenRecords(pattern=re.compile(b"a.c"), limit=2)
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
