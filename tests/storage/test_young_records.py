"""The first record that odradek.retention.exact keeps agrees with a linear search, in every format and with damaged indexes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek._ext.storage.lookup import CorruptLogError
from odradek._ext.storage.young_records import first_young
from odradek.storage.batch import LOG_APPEND_TIME, Record, build_batch, read_batch
from odradek.storage.lookup import find_in_compressed
from odradek.storage.old_messages import is_old, read_message
from tests.storage.log_writer import LogWriter
from tests.storage.old_writer import message, wrapper

UNDATED = -1
BASE = 50


def look(writer: LogWriter, limit_ms: int, from_offset: int, beat: Callable[[], None] = lambda: None) -> int | None:
    segment = writer.segments[0]
    descriptors = [os.open(writer.path(segment, kind), os.O_RDONLY) for kind in (".log", ".index", ".timeindex")]
    log_fd, index_fd, time_fd = descriptors
    try:
        return first_young(
            log_fd, index_fd, len(segment.index), time_fd, len(segment.times), segment.base_offset, len(segment.log),
            limit_ms, from_offset, find_in_compressed, beat,
        )  # fmt: skip
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def expected(records: list[tuple[int, int]], limit_ms: int, from_offset: int) -> int | None:
    """The first young record, or the undated ones right in front of it; undated ones at the end are young."""
    kept = [(offset, time) for offset, time in records if offset >= from_offset]
    first = next((at for at, (_, time) in enumerate(kept) if time >= limit_ms), len(kept))
    while first > 0 and kept[first - 1][1] == UNDATED:
        first -= 1
    return kept[first][0] if first < len(kept) else None


def records_of(batch: bytes) -> list[tuple[int, int]]:
    """(offset, timestamp) of each record."""
    if is_old(batch):
        return [(one.offset, one.timestamp) for one in read_message(batch)[0].opened()]
    return [(one.offset, one.timestamp) for one in read_batch(batch)[0].records()]


BATCH = st.tuples(
    st.sampled_from(["batch", "batch", "append time", "undated", "v0", "v1", "v0 wrapper", "v1 wrapper"]),
    st.lists(st.integers(0, 300), min_size=1, max_size=4),
    st.sampled_from([0, 0, 1, 2, 3, 4]),
)


def bytes_of(kind: str, offset: int, times: list[int], codec: int) -> bytes:
    if kind == "v0":
        return message(offset, b"v" * 20, magic=0)
    if kind == "v1":
        return message(offset, b"v" * 20, timestamp=times[0])
    if kind.endswith("wrapper"):
        magic = int(kind[1])
        contents = [(None, b"v" * 20) for _ in times]
        return wrapper(offset, contents, codec=codec % 3 + 1, magic=magic, timestamps=times if magic else None)
    given = [UNDATED] * len(times) if kind == "undated" else times
    return build_batch(
        [Record(b"k", b"v" * 20, time) for time in given],
        base_offset=offset,
        codec=codec,
        attributes=LOG_APPEND_TIME if kind == "append time" else 0,
    )


@given(st.data())
@settings(max_examples=150)
def test_it_agrees_with_a_linear_search(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    interval = data.draw(st.sampled_from([0, 150, 5000]))
    writer = LogWriter(tmp_path_factory.mktemp("log") / "t-0", interval, base_offset=BASE)
    records: list[tuple[int, int]] = []
    for kind, times, codec in data.draw(st.lists(BATCH, max_size=30)):
        one = bytes_of(kind, writer.end, times, codec)
        records += records_of(one)
        writer.append(one)
    writer.close()
    for _ in range(10):
        limit = data.draw(st.integers(0, 310))
        start = data.draw(st.integers(BASE - 5, writer.end))
        assert look(writer, limit, start) == expected(records, limit, start), (limit, start, records)


def dated(tmp_path: Path, times: list[int], interval: int = 100) -> LogWriter:
    """A record a batch."""
    writer = LogWriter(tmp_path / "t-0", interval)
    for time in times:
        writer.append(build_batch([Record(b"k", b"v" * 50, time)], base_offset=writer.end))
    writer.close()
    return writer


@pytest.mark.parametrize("wrong", [b"\0" * 80, b"\x7f\xff\xff\xff" * 20, b"\0\0\0\0\0\0\x03\xe8" * 10])
def test_a_damaged_index_hides_no_young_record(tmp_path: Path, wrong: bytes) -> None:
    writer = dated(tmp_path, list(range(100)))
    writer.path(writer.segments[0], ".index").write_bytes(wrong.ljust(8 * len(writer.segments[0].index), b"\xff"))
    assert [look(writer, limit, 0) for limit in (0, 1, 40, 99, 100)] == [0, 1, 40, 99, None]


def test_the_index_spares_the_walk_through_what_is_too_old(tmp_path: Path) -> None:
    """Only some blocks of the log are read: the result does not depend on its beginning."""
    writer = dated(tmp_path, list(range(2000)), interval=1000)
    path = writer.path(writer.segments[0], ".log")
    content = path.read_bytes()
    path.write_bytes(b"\xff" * (len(content) // 2) + content[len(content) // 2 :])
    assert look(writer, 1900, 0) == 1900
    with pytest.raises(CorruptLogError, match="no batch at position 0"):
        look(writer, 10, 0)


def test_a_long_walk_shows_that_it_goes_on(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path / "t-0", 1 << 30)
    for number in range(40):
        writer.append(build_batch([Record(b"k", os.urandom(1 << 20), number)], base_offset=writer.end))
    writer.close()
    beats = []
    assert look(writer, 39, 0, lambda: beats.append(1)) == 39
    assert len(beats) == 2
