"""Look-ups by offset and by timestamp agree with a linear search, with few reads, and with wrong indexes too."""

import os
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek._ext.storage.lookup import CorruptLogError, find_in_records, time_of
from odradek._ext.testing import storage_probe
from odradek.storage import compression
from odradek.storage.batch import LOG_APPEND_TIME, Record, build_batch, read_batch
from odradek.storage.lookup import find_in_compressed, find_timestamp
from tests.storage.log_writer import LogWriter
from tests.storage.test_segments import fill
from tests.wire import with_crc


class Opened:
    """The descriptors of a writer's first segment."""

    def __init__(self, writer):
        segment = writer.segments[0]
        self.base, self.size = segment.base_offset, len(segment.log)
        paths = [writer.path(segment, kind) for kind in (".log", ".index", ".timeindex")]
        self.log, self.index, self.time = (os.open(path, os.O_RDONLY) for path in paths)
        self.entries, self.times = len(segment.index), len(segment.times)

    def position(self, offset, limit=None, entries=None):
        limit = self.size if limit is None else limit
        entries = self.entries if entries is None else entries
        return storage_probe.position_of(self.log, self.index, entries, self.base, limit, offset)

    def time_of(self, timestamp, from_offset=0):
        return find_timestamp(
            self.log, self.index, self.entries, self.time, self.times, self.base, self.size, timestamp, from_offset
        )

    def close(self):
        for descriptor in (self.log, self.index, self.time):
            os.close(descriptor)


@pytest.fixture
def opened():
    made = []

    def make(writer):
        made.append(Opened(writer))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("interval", [1, 300, 1 << 20])
def test_every_offset_is_found_where_it_is(tmp_path, opened, interval):
    writer = fill(LogWriter(tmp_path / "t-0", interval, base_offset=1000), 1500, seed=1, roll_every=10**9)
    writer.close()
    files = opened(writer)
    positions = iter(writer.segments[0].positions)
    base, last, position, _ = next(positions)
    for offset in range(1000, writer.end):
        while offset > last:
            base, last, position, _ = next(positions)
        found = files.position(offset)
        assert (found["base_offset"], found["last_offset"], found["position"]) == (base, last, position)
    assert files.position(writer.end) is None
    assert files.position(0)["base_offset"] == 1000


def test_removed_offsets_give_the_next_batch(tmp_path, opened):
    writer = LogWriter(tmp_path / "t-0", 100)
    for base in range(0, 3000, 10):
        writer.append(
            build_batch([Record(b"k"), Record(b"l")], base_offset=base, offset_deltas=[1, 3], last_offset_delta=4)
        )
    writer.close()
    files = opened(writer)
    for offset in range(2990):
        expected = offset // 10 * 10 + (10 if offset % 10 > 4 else 0)
        assert files.position(offset)["base_offset"] == expected


def test_the_limit_hides_what_lies_behind(tmp_path, opened):
    writer = fill(LogWriter(tmp_path / "t-0", 100), 100, seed=2, roll_every=10**9)
    writer.close()
    files = opened(writer)
    base, last, position, _ = writer.segments[0].positions[50]
    assert files.position(base, limit=position) is None
    assert files.position(base - 1, limit=position)["last_offset"] == base - 1
    assert files.position(last, limit=writer.segments[0].positions[51][2])["position"] == position


@pytest.mark.parametrize("wrong", [b"\0" * 80, b"\x7f\xff\xff\xff" * 20, (5).to_bytes(4, "big") * 20])
def test_a_wrong_index_costs_time_but_no_truth(tmp_path, opened, wrong):
    writer = fill(LogWriter(tmp_path / "t-0", 100), 60, seed=3, roll_every=10**9)
    writer.close()
    writer.path(writer.segments[0], ".index").write_bytes(wrong)
    files = opened(writer)
    for base, last, position, _ in writer.segments[0].positions:
        assert files.position(last, entries=10)["position"] == position
        assert files.position(base, entries=10)["position"] == position


def test_a_damaged_log_is_told_apart_from_its_end(tmp_path, opened):
    writer = fill(LogWriter(tmp_path / "t-0", 100), 20, seed=3, roll_every=10**9)
    writer.close()
    path = writer.path(writer.segments[0], ".log")
    position = writer.segments[0].positions[10][2]
    path.write_bytes(path.read_bytes()[:position] + b"\xff" * 200)
    files = opened(writer)
    with pytest.raises(CorruptLogError, match="no batch"):
        files.position(writer.end - 1)


@given(st.data())
@settings(max_examples=40)
def test_timestamps_agree_with_a_linear_search(tmp_path_factory, data):
    writer = LogWriter(tmp_path_factory.mktemp("log") / "t-0", data.draw(st.sampled_from([0, 150, 5000])))
    everything = []
    for _ in range(data.draw(st.integers(0, 40))):
        times = data.draw(st.lists(st.integers(-1, 300), min_size=1, max_size=4))
        attributes = data.draw(st.sampled_from([0, 0, LOG_APPEND_TIME]))
        batch = build_batch(
            [Record(b"k", b"v" * 20, time) for time in times],
            base_offset=writer.end,
            codec=data.draw(st.sampled_from([0, 0, 1, 2, 3, 4])),
            attributes=attributes,
            partition_leader_epoch=7,
        )
        everything += [(record.offset, record.timestamp) for record in read_batch(batch)[0].records()]
        writer.append(batch)
    writer.close()
    files = Opened(writer)
    for _ in range(10):
        target, start = data.draw(st.integers(0, 310)), data.draw(st.integers(0, max(writer.end, 1)))
        expected = next(((offset, time, 7) for offset, time in everything if time >= target and offset >= start), None)
        assert files.time_of(target, start) == expected
    files.close()


FAR = 1000
"""Batches with an index entry each: more than one block of the time index."""


@pytest.fixture(scope="module")
def far_apart(tmp_path_factory):
    """A log whose timestamps are as far apart as they can be; and its timestamps."""
    writer = LogWriter(tmp_path_factory.mktemp("far") / "t-0", 0)
    times = [(2**63 - 1) // FAR * (number + 1) for number in range(FAR)]
    for number, time in enumerate(times):
        writer.append(build_batch([Record(b"k", b"v", time)], base_offset=number))
    writer.close()
    return writer, times


def test_timestamps_as_far_apart_as_they_can_be_are_found(far_apart, opened):
    writer, times = far_apart
    files = opened(writer)
    for number in (0, 1, 340, 341, 342, 681, 682, 683, *range(3, FAR, 50), FAR - 1):
        for target in (times[number] - 1, times[number]):
            assert files.time_of(target)[:2] == (number, times[number])
    assert files.time_of(2**63 - 1) is None


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_an_index_of_whatever_bytes_leads_to_a_batch_or_nowhere(far_apart, tmp_path_factory, data):
    writer, times = far_apart
    files = Opened(writer)
    extremes = st.sampled_from([-(2**63), -1, 0, 1, 2**31, 2**62, 2**63 - 1]) | st.integers(-(2**63), 2**63 - 1)
    keys = data.draw(st.lists(extremes, min_size=1, max_size=8))
    keys = sorted(keys) if data.draw(st.booleans()) else keys
    repeats = data.draw(st.sampled_from([1, 100, 400]))
    content = b"".join(key.to_bytes(8, "big", signed=True) * repeats for key in keys)
    path = tmp_path_factory.mktemp("index") / "index"
    path.write_bytes(content + b"\xff" * data.draw(st.sampled_from([0, 5, 9000])))
    with path.open("rb") as index:
        entries = data.draw(st.sampled_from([len(content) // 8, len(content) // 8 + 2000]))
        offset, target = (
            data.draw(st.integers(0, FAR - 1)),
            data.draw(st.sampled_from([0, 1, 2**62, 2**63 - 1, *times])),
        )
        found = storage_probe.position_of(files.log, index.fileno(), entries, files.base, files.size, offset)
        assert found is None or found["base_offset"] >= offset
        times_index = index.fileno(), entries * 2 // 3
        time_of(files.log, index.fileno(), entries, *times_index, files.base, files.size, target, 0, None)
    files.close()


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_record_in_a_compressed_batch_is_found_by_time_and_offset(codec):
    batch = build_batch([Record(b"k", b"v", 5), Record(b"k", b"v", 9)], base_offset=40, codec=codec)
    assert [find_in_compressed(batch, *wanted) for wanted in ((0, 0), (6, 0), (0, 41), (10, 0), (0, 42))] == [
        (40, 5), (41, 9), (41, 9), None, None,
    ]  # fmt: skip


def test_records_that_are_not_those_of_their_batch_are_corrupt():
    batch = build_batch([Record(b"k", b"v", 5), Record(b"k", b"v", 9)], base_offset=40)
    for records in (b"", b"\xff" * 20, batch[61:-5]):
        with pytest.raises(ValueError, match="not well formed"):
            find_in_records(batch, records, 100, 0)


def test_a_search_in_a_batch_of_a_million_records_makes_no_object_for_each():
    """A few kilobytes decompress to millions of records; objects for all of them would exhaust the memory."""
    record = bytes([2 * 6, 0, 0, 0, 1, 1, 0])  # without key and value, at the batch's own time and offset
    count = 1_000_000
    plain = record * count
    packed = bytearray(build_batch([Record(None, None, 5)], base_offset=0))
    packed[61:] = compression.compress(4, plain)
    packed[8:12] = (len(packed) - 12).to_bytes(4, "big")
    packed[21:23] = (4).to_bytes(2, "big")
    packed[23:27] = (count - 1).to_bytes(4, "big")
    packed[57:61] = count.to_bytes(4, "big")
    batch = with_crc(packed)
    assert len(batch) < 10_000
    tracemalloc.start()
    try:
        assert find_in_compressed(batch, 6, 0) is None
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(plain)


def test_few_reads_find_an_offset(tmp_path, opened):
    """One or two blocks of the index and one of the log, however many entries there are."""
    writer = LogWriter(tmp_path / "t-0", 0)
    for number in range(20_000):
        writer.append(build_batch([Record(b"k")], base_offset=number))
    writer.close()
    files = opened(writer)

    def reads():
        with open("/proc/thread-self/io") as io:  # what other threads of this process read is not of this test
            return int(next(line for line in io if line.startswith("syscr")).split()[1])

    for offset in (0, 1, 777, 9_999, 15_000, 19_998, 19_999):
        assert files.position(offset)["base_offset"] == offset
    before = reads()
    idle = reads() - before
    before = reads()
    for offset in range(0, 20_000, 100):
        files.position(offset)
    assert (reads() - before - idle) / 200 < 4


def test_time_of_raises_for_a_closed_descriptor(tmp_path):
    with pytest.raises(OSError, match="looking up"):
        time_of(-1, -1, 0, -1, 0, 0, 100, 5, 0, None)
