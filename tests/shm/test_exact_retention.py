"""odradek.retention.exact over a partition table in the test's process: the log begins at the first record within
retention.ms.
"""

from pathlib import Path

import pytest

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import slots
from odradek._ext.testing import slot_probe
from odradek.cleaner.retention import Retention
from odradek.shm.checkpoints import read_checkpoints
from odradek.storage.batch import Record, build_batch
from tests.shm.one_broker import OneBroker, batch

SIZE = len(batch(2))


def append(broker: OneBroker, slot: int, *times: int, codec: int = 0) -> None:
    data = build_batch([Record(value=b"v" * 20, timestamp=time) for time in times], codec=codec)
    assert slot_probe.append(slot, [data])[0][0] == 0


def begin(broker: OneBroker, slot: int) -> int:
    return int(slot_facts.describe(slot).log_start_offset)


def bases(broker: OneBroker, slot: int) -> list[int]:
    return sorted(int(path.stem) for path in broker.table.path(slot).glob("*.log"))


@pytest.mark.parametrize("codec", [0, 1, 4])
def test_the_log_begins_at_the_first_record_in_time_also_within_a_batch(broker: OneBroker, codec: int) -> None:
    slot = broker.create(exact_retention=1, retention_ms=1000)
    append(broker, slot, 1000, 2000, 3000, codec=codec)
    append(broker, slot, 4000, 5000, codec=codec)
    retention = Retention(broker.shm, [broker.path])
    for now_ms, first in ((2000, 0), (2001, 1), (3000, 1), (3500, 2), (4001, 3), (6000, 4)):
        retention.run(now_ms)
        assert begin(broker, slot) == first, now_ms
        assert read_checkpoints(broker.path)[1] == ({("t", 0): first} if first else {}), "durable at once"
    assert bases(broker, slot) == [0], "files are deleted by whole segments"
    generation = slot_facts.describe(slot).generation
    retention.run(6000)
    assert slot_facts.describe(slot).generation == generation, "nothing has changed"
    retention.run(6001)
    state = slot_facts.describe(slot)
    assert (begin(broker, slot), state.log_end_offset, bases(broker, slot)) == (5, 5, [5]), "all records are too old"


def test_whole_segments_are_removed_and_the_next_one_begins_inside(broker: OneBroker) -> None:
    slot = broker.create(exact_retention=1, retention_ms=1000, segment_bytes=SIZE + 10)
    for number in range(4):
        append(broker, slot, 2000 * number + 1000, 2000 * number + 2000)
    retention = Retention(broker.shm, [broker.path])
    retention.run(6001)  # 5001 and younger stay
    assert (begin(broker, slot), bases(broker, slot), retention.removed_segments) == (5, [4, 6], 2)
    assert read_checkpoints(broker.path)[1] == {("t", 0): 5}


def test_records_out_of_order_stay_behind_the_first_young_one(broker: OneBroker) -> None:
    slot = broker.create(exact_retention=1, retention_ms=1000)
    append(broker, slot, 1000)
    append(broker, slot, 9000)
    append(broker, slot, 1000)
    Retention(broker.shm, [broker.path]).run(9500)
    assert begin(broker, slot) == 1


def test_records_without_timestamps_are_as_young_as_what_follows_them(broker: OneBroker) -> None:
    slot = broker.create(exact_retention=1, retention_ms=1000)
    for time in (1000, -1, -1, 9000):
        append(broker, slot, time)
    Retention(broker.shm, [broker.path]).run(9500)
    assert begin(broker, slot) == 1
    alone = broker.create("undated", exact_retention=1, retention_ms=10**15)
    append(broker, alone, -1)
    Retention(broker.shm, [broker.path]).run()
    assert begin(broker, alone) == 0, "its file is young"


@pytest.mark.parametrize(
    "settings",
    [{"exact_retention": 0}, {"retention_ms": -1}, {"delete_": 0, "compact": 1}],
    ids=["off", "kept for ever", "compacted only"],
)
def test_other_topics_keep_their_records_as_long_as_their_segment(broker: OneBroker, settings: dict[str, int]) -> None:
    slot = broker.create(**({"exact_retention": 1, "retention_ms": 1000} | settings))
    append(broker, slot, 1000, 9000)
    Retention(broker.shm, [broker.path]).run(9500)
    assert begin(broker, slot) == 0


def test_a_topic_that_is_compacted_and_deleted_begins_at_the_record(broker: OneBroker) -> None:
    slot = broker.create(exact_retention=1, retention_ms=1000, compact=1, delete_=1)
    append(broker, slot, 1000, 9000)
    Retention(broker.shm, [broker.path]).run(9500)
    assert begin(broker, slot) == 1


def test_the_log_never_begins_behind_the_high_watermark(broker: OneBroker) -> None:
    slot = broker.create(alone=False, exact_retention=1, retention_ms=1000)
    append(broker, slot, 1000)
    append(broker, slot, 1000)
    append(broker, slot, 9000)
    slots.raise_high_watermark(slot, 1)
    retention = Retention(broker.shm, [broker.path])
    retention.run(9500)
    assert begin(broker, slot) == 1
    slots.raise_high_watermark(slot, 3)
    retention.run(9500)
    assert begin(broker, slot) == 2


def test_a_damaged_segment_keeps_its_records_and_other_logs_go_on(
    broker: OneBroker, caplog: pytest.LogCaptureFixture
) -> None:
    bad = broker.create("bad", exact_retention=1, retention_ms=1000)
    good = broker.create("good", exact_retention=1, retention_ms=1000)
    for slot in (bad, good):
        append(broker, slot, 1000)
        append(broker, slot, 9000)
    path: Path = broker.table.path(bad) / f"{0:020d}.log"
    path.write_bytes(b"\xff" * path.stat().st_size)
    Retention(broker.shm, [broker.path]).run(9500)
    assert (begin(broker, bad), begin(broker, good)) == (0, 1)
    assert "no batch at position 0" in caplog.text
