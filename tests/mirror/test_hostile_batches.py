"""Batches of a hostile or broken source, as a lane copies them: a problem, or what a simple reader in Python finds."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek._ext.records.moved_batches import MOVE, renumber, stamp, walk
from odradek.mirror import reencode
from odradek.mirror.reencode import InvalidBatchError
from odradek.storage import compression
from odradek.storage.batch import build_batch, read_batch
from tests.hostile_records import (
    CONTENT,
    LIMIT,
    SETS,
    Seen,
    exact,
    flipped,
    flipped_inside,
    flipped_wrappers,
    reference,
    repaired,
    with_payload,
)
from tests.storage.old_writer import message

Content = list[tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]]


@pytest.fixture(autouse=True)
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reencode, "LIMIT_BYTES", LIMIT)


def copied(data: bytes, position: int) -> tuple[Content, bool]:
    """What the target gets of an answer, without batches that it refuses, and whether the lane found no problem.

    The checks of the target: the checksum of a batch, its records, and that their number is right.
    """
    memory = exact(bytearray(data))
    found = walk(memory, position, (), True)
    assert 0 <= found.consumed <= len(data) and found.position >= position
    content: Content = []
    before = position
    for batch in found.batches:
        assert 0 <= batch.start < batch.start + batch.size <= found.consumed
        assert before <= batch.first_offset <= batch.last_offset < found.position
        before = batch.last_offset + 1
        if batch.kind == MOVE:
            piece = bytearray(memory[batch.start : batch.start + batch.size])
            count, first = batch.records, batch.first_offset
        else:
            try:
                again = reencode.reencode(memory, batch, True)
            except InvalidBatchError as error:
                assert str(error)
                return content, False
            if again is None:
                continue
            piece, count, first = again.data, again.records, again.first_offset
        assert batch.first_offset <= first <= batch.last_offset
        stamp(piece, 0, len(piece), 5, 0, 0, True)
        records, valid = reference(bytes(piece), 0)
        if not valid or [record.offset for record in records] != list(range(count)):
            return content, False
        content += map(_content, records)
    return content, found.problem is None


def _content(record: Seen) -> tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]:
    return record.key, record.value, record.timestamp, record.headers


def check(data: bytes, position: int = 10) -> None:
    records, valid = reference(data, position)
    content, accepted = copied(data, position)
    expected = [_content(record) for record in records]
    if position <= 10:  # else the lane does not check the fields of records before the position
        assert content == expected[: len(content)], data.hex()
    if valid:
        assert (content, accepted) == (expected, True), data.hex()


@pytest.mark.parametrize("name", SETS)
def test_valid_data_that_is_cut_off_at_any_byte_is_copied(name: str) -> None:
    for position in range(8, 24):
        check(SETS[name], position)
    for size in range(len(SETS[name])):
        check(SETS[name][:size], 11)


@pytest.mark.parametrize("name", SETS)
def test_a_changed_byte_with_a_right_checksum(name: str) -> None:
    for number, data in enumerate(flipped(SETS[name])):
        check(data, 10 + number % 3)


@pytest.mark.parametrize("codec", range(5))
def test_a_changed_byte_before_the_compression(codec: int) -> None:
    for data in flipped_inside(codec):
        check(data, 11)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_changed_byte_in_a_compressed_message(magic: int) -> None:
    for data in flipped_wrappers(1, magic):
        check(data, 11)


@settings(max_examples=300)
@given(st.binary(max_size=120), st.sampled_from([0, 1, 2, 3, 255]), st.booleans(), st.integers(0, 1 << 40))
def test_garbage(data: bytes, magic: int, repair: bool, position: int) -> None:
    if len(data) > 17:
        data = data[:8] + struct.pack(">i", len(data) - 12) + data[12:16] + bytes([magic]) + data[17:]
    check(repaired(data) if repair else data, position)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_that_is_shorter_than_its_header_is_a_problem(magic: int) -> None:
    for size in range(17, 26):
        data = struct.pack(">qi", 10, size - 12) + bytes(4) + bytes([magic]) + bytes(size - 17)
        found = walk(exact(data), 0)
        assert found.problem == f"the message at offset 0 states a length of {size - 12} bytes"
        assert not found.batches and found.consumed == 0


@pytest.mark.parametrize("codec", range(4, 8))
def test_a_message_with_a_codec_that_its_format_does_not_have_is_invalid(codec: int) -> None:
    data = message(5, b"x", magic=1, attributes=codec)
    (batch,) = walk(data, 0).batches
    with pytest.raises(InvalidBatchError, match=f"compression {codec}, which format v1 does not allow"):
        reencode.reencode(memoryview(data), batch, False)


@pytest.mark.parametrize("codec", range(5, 8))
@pytest.mark.parametrize("position", [10, 11])
def test_a_batch_with_an_unknown_codec_is_a_problem(codec: int, position: int) -> None:
    data = bytearray(build_batch(CONTENT, base_offset=10))
    data[22] = codec
    found = walk(repaired(bytes(data)), position)
    assert found.problem == f"the batch at offset 10 has the unknown compression {codec}" and not found.batches


def test_a_record_behind_the_end_of_its_batch_is_invalid() -> None:
    payload = read_batch(build_batch(CONTENT, offset_deltas=[0, 1, 2, 9]))[0].payload
    assert renumber(payload, 4, 10, 0, 0, None, 9).records == 4
    with pytest.raises(ValueError, match="the records of the batch at offset 10 cannot be read"):
        renumber(payload, 4, 10, 0, 0, None, 8)


def test_a_message_with_too_many_messages_is_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reencode, "MOST_MESSAGES", 999)
    inner = b"".join(message(number, b"", magic=0) for number in range(1000))
    data = message(999, compression.compress(1, inner), magic=0, attributes=1)
    (batch,) = walk(data, 0).batches
    with pytest.raises(InvalidBatchError, match="has more than 999 messages"):
        reencode.reencode(memoryview(data), batch, False)


@pytest.mark.parametrize("codec", range(1, 5))
def test_a_batch_that_decompresses_to_more_than_the_limit_is_invalid(codec: int) -> None:
    data = with_payload(SETS[f"v2 codec {codec}"], bytes(LIMIT + 1), record_count=1, last_offset_delta=1)
    (batch,) = walk(data, 0).batches
    with pytest.raises(InvalidBatchError, match="limit"):
        reencode.reencode(memoryview(data), batch, False)
