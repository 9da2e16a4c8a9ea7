"""The records of MirrorMaker 2's internal topics: the bytes, and damaged ones (Kafka's classes: test_mirror_maker.py)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.mirror.records import (
    Checkpoint,
    Heartbeat,
    MirrorRecordError,
    OffsetSync,
    read_checkpoint,
    read_heartbeat,
    read_offset_sync,
)

NAMES = st.text(st.characters(codec="utf-8"), max_size=40)
PARTITIONS = st.integers(0, 2**31 - 1)
OFFSETS = st.integers(-(2**63), 2**63 - 1)
PLACES = st.tuples(NAMES, PARTITIONS)
READERS = {OffsetSync: read_offset_sync, Checkpoint: read_checkpoint, Heartbeat: read_heartbeat}
RECORDS = st.one_of(
    st.builds(OffsetSync, PLACES, OFFSETS, OFFSETS),
    st.builds(Checkpoint, NAMES, PLACES, OFFSETS, OFFSETS, NAMES),
    st.builds(Heartbeat, NAMES, NAMES, OFFSETS),
)


def test_an_offset_sync_has_no_version() -> None:
    key, value = OffsetSync(("top", 7), 258, 3).encoded()
    assert key == b"\0\3top\0\0\0\7"
    assert value == bytes.fromhex("0000000000000102 0000000000000003")


def test_the_value_of_a_checkpoint_begins_with_version_0() -> None:
    key, value = Checkpoint("g", ("a.top", 1), 5, 6, "m").encoded()
    assert key == b"\0\1g\0\5a.top\0\0\0\1"
    assert value == bytes.fromhex("0000 0000000000000005 0000000000000006 0001") + b"m"


def test_the_value_of_a_heartbeat_begins_with_version_0() -> None:
    key, value = Heartbeat("a", "bc", 9).encoded()
    assert key == b"\0\1a\0\2bc"
    assert value == bytes.fromhex("0000 0000000000000009")


@given(RECORDS)
def test_a_record_is_read_as_it_was_written(record: OffsetSync | Checkpoint | Heartbeat) -> None:
    assert READERS[type(record)](*record.encoded()) == record


@given(RECORDS, st.data())
def test_a_record_that_is_cut_or_continued_is_refused(
    record: OffsetSync | Checkpoint | Heartbeat, data: st.DataObject
) -> None:
    key, value = record.encoded()
    read = READERS[type(record)]
    cut = data.draw(st.integers(0, len(value) - 1))
    for wrong in (
        (key[: min(cut, len(key) - 1)], value),
        (key, value[:cut]),
        (key + b"\0", value),
        (key, value + b"\0"),
    ):
        with pytest.raises(MirrorRecordError):
            read(*wrong)
    with pytest.raises(MirrorRecordError, match="is null"):
        read(None, value)


@pytest.mark.parametrize("record", [Checkpoint("g", ("t", 0), 1, 2, ""), Heartbeat("a", "b", 1)])
def test_another_version_is_refused(record: Checkpoint | Heartbeat) -> None:
    key, value = record.encoded()
    with pytest.raises(MirrorRecordError, match="has version 1; this program reads version 0"):
        READERS[type(record)](key, b"\0\1" + value[2:])
