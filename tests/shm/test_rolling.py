"""When a segment is rolled: by size, by the batches' timestamps or the clock, by a full index, by an offset too far from its
base.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import slots
from odradek._ext.testing import slot_probe
from tests.shm.one_broker import SETTINGS, OneBroker, batch

SIZE = len(batch())


@pytest.fixture
def broker(tmp_path) -> Iterator[OneBroker]:
    with OneBroker(tmp_path) as one:
        yield one


def rolled(slot: int, *appends: tuple[int, int]) -> list[int]:
    """The base offset of the segment that each batch went into; each is (timestamp of its record, wall clock), in ms."""
    found = []
    for timestamp, wall_ms in appends:
        assert slot_probe.append(slot, [batch(timestamp=timestamp)], wall_ms=wall_ms)[0][0] == 0
        found.append(slot_facts.describe(slot).segment_base)
    return found


def test_by_size(broker: OneBroker) -> None:
    slot = broker.create(segment_bytes=2 * SIZE)
    assert rolled(slot, *[(1000, 1)] * 5) == [0, 0, 2, 2, 4]


def test_by_size_in_the_middle_of_a_joined_write(broker: OneBroker) -> None:
    slot = broker.create(segment_bytes=2 * SIZE)
    assert [offset for _, offset, _ in slot_probe.append(slot, [batch()] * 5)] == [0, 1, 2, 3, 4]
    names = sorted(int(path.stem) for path in broker.table.path(slot).glob("*.log"))
    assert names == [0, 2, 4]


def test_by_the_time_of_the_batches(broker: OneBroker) -> None:
    slot = broker.create(segment_ms=100)
    late = 10**15
    assert rolled(slot, (10_000, 1), (10_100, late), (9_000, late), (10_101, late), (10_150, late)) == [0, 0, 0, 3, 3]


def test_by_the_clock_if_batches_have_no_timestamp(broker: OneBroker) -> None:
    slot = broker.create(segment_ms=100)
    made = slot_facts.describe(slot).created_ms
    assert rolled(slot, (-1, made + 500), (-1, made + 501)) == [0, 1]  # an empty segment is never left
    assert rolled(slot, (-1, made + 601), (-1, made + 602)) == [1, 3]


@pytest.mark.parametrize(("lag_ms", "compact", "expected"), [(60, 1, 60), (500, 1, 100), (60, 0, 100), (0, 1, 100)])
def test_a_compacted_log_also_rolls_by_max_compaction_lag(
    broker: OneBroker, lag_ms: int, compact: int, expected: int
) -> None:
    """The active segment is not compacted, so that its age bounds how long a record stays as it is."""
    slot = broker.create(segment_ms=100, max_compaction_lag_ms=lag_ms, compact=compact)
    assert rolled(slot, (10_000, 1), (10_000 + expected, 1), (10_001 + expected, 1)) == [0, 0, 2]


def test_jitter_does_not_reduce_the_lag(broker: OneBroker) -> None:
    """It spreads the rolls of segment.ms; to take it off a shorter limit would roll with each batch."""
    slot = broker.create(segment_ms=1000, segment_jitter_ms=900, max_compaction_lag_ms=50, compact=1)
    assert rolled(slot, (10_000, 1), (10_050, 1), (10_051, 1)) == [0, 0, 2]


def age(path: Path, by_s: float) -> None:
    """As if all that was written were so much older; the birth of a file cannot be changed, so it is a copy's."""
    for file in path.iterdir():
        status = file.stat()
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns - int(by_s * 1e9)))


@pytest.mark.parametrize("clean", [True, False])
def test_the_age_of_a_segment_without_timestamps_survives_a_start(broker: OneBroker, clean: bool) -> None:
    slot = broker.create(segment_ms=1 << 50)
    path = broker.table.path(slot)
    slot_probe.append(slot, [batch(timestamp=-1)])
    made_ms = slot_facts.describe(slot).created_ms
    age(path, 3600)
    path.rename(broker.path / "u-0")
    again = broker.table.create(
        "u", bytes(16), 0, log_dir=0, replicas=[1], in_sync=[1], leader_id=1, leader_epoch=0, partition_epoch=0,
        settings=SETTINGS | {"segment_ms": 3_000_000},
    )  # fmt: skip
    broker.table.open(again, clean=clean)
    created_ms = slot_facts.describe(again).created_ms
    assert made_ms - 3_610_000 <= created_ms <= made_ms - 3_590_000
    assert rolled(again, (-1, made_ms)) == [1], "it is an hour old, and 50 minutes are allowed"


def test_the_age_of_a_segment_is_measured_by_its_timestamps(broker: OneBroker, tmp_path: Path) -> None:
    slot = broker.create()
    slot_probe.append(slot, [batch(timestamp=1000)])
    age(broker.table.path(slot), 3600)
    loaded = broker.reload(slot, tmp_path / "copy")
    assert (loaded.created_ms, loaded.first_timestamp) == (-1, 1000)


def test_by_a_full_index(broker: OneBroker) -> None:
    """The first batch of a segment has no entry, and the time index keeps one free for the end of its segment."""
    offsets = broker.create("offsets", index_interval_bytes=0, index_max_bytes=8 * 4 + 4)
    assert rolled(offsets, *[(1000, 1)] * 7) == [0] * 5 + [5] * 2
    times = broker.create("times", index_interval_bytes=0, index_max_bytes=12 * 5)
    assert rolled(times, *[(1000 + i, 1) for i in range(7)]) == [0] * 5 + [5] * 2


def test_by_an_offset_that_an_index_entry_cannot_contain(broker: OneBroker) -> None:
    slot = broker.create()
    broker.obey(slot, 1)
    gap = 2**31 - 1
    for offset in (0, gap, gap + 1):
        slots.follow(slot, batch(base_offset=offset), 0)
    assert slot_facts.describe(slot).segment_base == gap + 1


def test_a_first_batch_after_such_a_gap_gets_no_wrong_time_entry(broker: OneBroker) -> None:
    """What compaction left of a log may begin far from where a new follower's first segment does."""
    slot = broker.create()
    broker.obey(slot, 1)
    for offset in (5 * 2**30, 5 * 2**30 + 1):
        slots.follow(slot, batch(base_offset=offset, timestamp=offset), 0)
    slot_probe.roll(slot)
    path = broker.table.path(slot)
    assert (path / f"{0:020d}.timeindex").read_bytes() == b""
    second = 5 * 2**30 + 1
    assert struct.unpack(">qi", (path / f"{second:020d}.timeindex").read_bytes()) == (second, 0)
