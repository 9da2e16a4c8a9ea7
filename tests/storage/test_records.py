"""A batch from a client is accepted exactly when it is valid; its properties equal those of a simple reader."""

import struct

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

import odradek._ext.records.record_batch as records
from odradek._ext.testing import record_probe
from odradek.storage import compression
from odradek.storage.batch import (
    CONTROL,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    CorruptBatchError,
    Record,
    build_batch,
    build_end_marker,
    read_batch,
    read_batches,
    varint,
)

CORRUPT_MESSAGE, INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD = 2, 32, 76, 87

small = st.none() | st.binary(max_size=200)
record = st.builds(
    Record,
    key=small,
    value=small,
    timestamp=st.integers(-1, 1 << 45),
    headers=st.lists(st.tuples(st.binary(max_size=20), small), max_size=4).map(tuple),
)
contents = st.lists(record, min_size=1, max_size=20)


def with_crc(batch: bytes | bytearray) -> bytes:
    out = bytearray(batch)
    out[17:21] = crc32c(bytes(out[21:])).to_bytes(4, "big")
    return bytes(out)


def patched(batch: bytes, at: int, layout: str, value: int) -> bytes:
    out = bytearray(batch)
    struct.pack_into(">" + layout, out, at, value)
    return with_crc(out)


PLAIN = build_batch([Record(b"k", b"v", 1000), Record(None, b"w", 3000, ((b"h", None),)), Record(b"k", None, 3000)])


@given(contents, st.integers(0, 4), st.integers(-1, 5))
@settings(max_examples=60)
def test_sound_batches_are_accepted_and_described(content, codec, producer):
    batch = build_batch(
        content, codec=codec, producer_id=producer, producer_epoch=min(producer, 3), base_sequence=min(producer, 7)
    )
    error, info, _ = compression.open_batch(batch + b"trailing", 1 << 20)
    assert error == 0
    assert info["size"] == len(batch)
    assert (info["record_count"], info["codec"], info["producer_id"]) == (len(content), codec, producer)
    assert info["keyless"] == any(item.key is None for item in content)
    times = [item.timestamp for item in content]
    assert info["found_max_timestamp"] == info["max_timestamp"] == max(times)
    assert info["offset_delta_of_max_timestamp"] == times.index(max(times))
    assert info["found_min_timestamp"] == min((time for time in times if time != -1), default=-1)
    read, end = read_batch(batch)
    assert end == len(batch)
    assert [(r.key, r.value, r.timestamp, r.headers) for r in read.records()] == [
        (r.key, r.value, r.timestamp, r.headers) for r in content
    ]


@given(contents, st.data())
@settings(max_examples=300)
def test_any_change_behind_a_right_crc_is_refused_or_still_readable(content, data):
    batch = bytearray(build_batch(content))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(21, len(batch) - 1))
        batch[at] = data.draw(st.integers(0, 255))
    changed = with_crc(batch)
    error, info = records.check(changed)
    if error == 0 and info["codec"] == 0:
        read, _ = read_batch(changed)
        found = read.records()
        assert [item.offset for item in found] == list(range(info["record_count"]))
        times = [((item.timestamp + (1 << 63)) % (1 << 64)) - (1 << 63) for item in found]
        assert info["found_max_timestamp"] == max(-1, *times)
        assert info["keyless"] == any(item.key is None for item in found)
    elif error:
        assert error in (INVALID_RECORD, INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE)


def test_every_truncation_is_corrupt():
    for end in range(len(PLAIN)):
        assert records.check(PLAIN[:end])[0] == CORRUPT_MESSAGE, end


def test_every_changed_bit_is_noticed():
    for at in range(len(PLAIN)):
        for bit in range(8):
            batch = bytearray(PLAIN)
            batch[at] ^= 1 << bit
            error, _ = records.check(batch)
            # The leader epoch is the one field that the CRC does not cover and that the broker overwrites.
            assert (error == 0) == (12 <= at < 16), (at, bit)


@pytest.mark.parametrize("length", [-(1 << 31), -1, 0, 4, 48, 1 << 30, (1 << 31) - 1])
def test_lying_lengths_are_corrupt(length):
    assert records.check(patched(PLAIN, 8, "i", length))[0] == CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("at", "layout", "value", "expected"),
    [
        (0, "q", 5, INVALID_RECORD),
        (16, "b", 1, INVALID_RECORD),
        (16, "b", 3, INVALID_RECORD),
        (21, "h", 5, UNSUPPORTED_COMPRESSION_TYPE),
        (21, "h", 7, UNSUPPORTED_COMPRESSION_TYPE),
        (21, "h", CONTROL, INVALID_RECORD),
        (21, "h", TRANSACTIONAL, INVALID_RECORD),
        (21, "h", 0x40, INVALID_RECORD),
        (23, "i", 3, INVALID_RECORD),
        (23, "i", -1, INVALID_RECORD),
        (57, "i", 0, INVALID_RECORD),
        (57, "i", -1, INVALID_RECORD),
        (57, "i", 2, INVALID_RECORD),
        (57, "i", 4, INVALID_RECORD),
        (57, "i", (1 << 31) - 1, INVALID_RECORD),
        (43, "q", -2, INVALID_RECORD),
        (43, "q", 7, INVALID_RECORD),
    ],
)
def test_a_lying_header_is_refused(at, layout, value, expected):
    assert records.check(patched(PLAIN, at, layout, value))[0] == expected


@pytest.mark.parametrize(
    ("epoch", "sequence", "expected"), [(-1, 0, 87), (0, -1, 87), (0, 0, 0), (32767, 2147483647, 0)]
)
def test_a_producer_id_needs_epoch_and_sequence(epoch, sequence, expected):
    batch = build_batch([Record(b"k")], producer_id=3, producer_epoch=epoch, base_sequence=sequence)
    assert records.check(batch)[0] == expected


def test_without_a_producer_id_epoch_and_sequence_may_be_zero():
    """kafkajs and sarama send zeros in this field."""
    assert records.check(build_batch([Record(b"k")], producer_epoch=0, base_sequence=0))[0] == 0


def test_counts_that_agree_with_each_other_but_not_with_the_records_are_refused():
    for count in (1, 2, 4, 100):
        lying = patched(patched(PLAIN, 23, "i", count - 1), 57, "i", count)
        assert records.check(lying)[0] == INVALID_RECORD


@pytest.mark.parametrize(
    "body",
    [
        b"\0" + varint(0) + varint(1) + varint(-1) + varint(-1) + varint(0),  # offset delta 1 first
        b"\0" + varint(0) + varint(0) + varint(-2) + varint(-1) + varint(0),  # key length -2
        b"\0" + varint(0) + varint(0) + varint(-1) + varint(-2) + varint(0),  # value length -2
        b"\0" + varint(0) + varint(0) + varint(9) + varint(-1) + varint(0),  # key passes the record
        b"\0" + varint(0) + varint(0) + varint(-1) + varint(2147483647) + varint(0),
        b"\0" + varint(0) + varint(0) + varint(-1) + varint(-1) + varint(-1),  # header count -1
        b"\0" + varint(0) + varint(0) + varint(-1) + varint(-1) + varint(2147483647),
        b"\0"
        + varint(0)
        + varint(0)
        + varint(-1)
        + varint(-1)
        + varint(1)
        + varint(-1)
        + varint(-1),  # null header key
        b"\0" + varint(0) + varint(0) + varint(-1) + varint(-1) + varint(0) + b"x",  # a byte too many
        b"\0" + b"\xff" * 10 + varint(0) + varint(-1) + varint(-1) + varint(0),  # eleven-byte timestamp
        b"\0"
        + varint(0)
        + b"\x80\x80\x80\x80\x10"
        + varint(-1)
        + varint(-1)
        + varint(0),  # offset delta beyond 32 bits
    ],
)
def test_misframed_records_are_refused(body):
    framed = varint(len(body)) + body
    batch = bytearray(PLAIN[:61]) + framed
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 23, 0)
    struct.pack_into(">i", batch, 57, 1)
    assert records.check(with_crc(batch))[0] == INVALID_RECORD


def test_bytes_behind_the_last_record_are_refused():
    batch = bytearray(PLAIN + b"\0")
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    assert records.check(with_crc(batch))[0] == INVALID_RECORD


def test_a_replica_takes_what_a_client_may_not_send():
    marker = build_end_marker(1, base_offset=77, producer_id=4, producer_epoch=2, coordinator_epoch=9, timestamp=5)
    compacted = build_batch([Record(b"k"), Record(b"l")], base_offset=12, offset_deltas=[1, 4], last_offset_delta=9)
    emptied = build_batch([], base_offset=40, last_offset_delta=3)
    for batch in (marker, compacted, emptied):
        assert records.check(batch)[0] == INVALID_RECORD
        assert records.check(batch, False)[0] == 0
    assert [batch.last_offset for batch in read_batches(marker + compacted + emptied)] == [77, 21, 43]


@pytest.mark.parametrize("codec", [0, 3])
def test_restamping_keeps_the_batch_sound(codec):
    batch = bytearray(build_batch([Record(b"k", b"v", 1000), Record(b"k", b"v", 2000)], codec=codec))
    before = bytes(batch)
    record_probe.restamp(batch, 2000, False)
    assert bytes(batch) == before
    record_probe.restamp(batch, 5000, True)
    read, _ = read_batch(batch)
    assert read.attributes == codec | LOG_APPEND_TIME
    assert [item.timestamp for item in read.records()] == [5000, 5000]
    with pytest.raises(ValueError, match="whole"):
        record_probe.restamp(bytearray(before[:-1]), 1, False)


def test_the_plain_reader_refuses_corrupt_bytes():
    with pytest.raises(CorruptBatchError):
        read_batch(PLAIN[:-1])
