"""A partition whose log contains messages v0 and v1: appended unchanged from a leader, truncated, rolled, served."""

import os
import random
from pathlib import Path

import pytest

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import slot_upkeep, slots, snapshot_publishing
from odradek._ext.testing import slot_probe
from odradek.storage.batch import Record, build_batch
from odradek.storage.lookup import find_timestamp
from tests.shm.one_broker import OneBroker, batch
from tests.storage.old_writer import message, wrapper

START = 1_400_000_000_000
SETS = [
    message(0, b"zero", magic=0),
    wrapper(1, [(b"k", b"a"), (b"k", b"b"), (b"k", b"c")], codec=2, magic=0),
    message(4, b"one", magic=1, timestamp=START + 4),
    wrapper(5, [(None, b"x"), (None, b"y")], codec=1, magic=1, timestamps=[START + 9, START + 6]),
    build_batch([Record(b"k", b"v", START + 20)], base_offset=7, partition_leader_epoch=1),
]
ENDS = [1, 4, 5, 7, 8]
BEFORE = (0, 0)  # the epoch in which this broker led the empty log; old messages bring none


def followed(broker: OneBroker, sets: list[bytes] = SETS, **settings: int) -> int:
    slot = broker.create(index_interval_bytes=1, **settings)
    broker.obey(slot, 1)
    slots.follow(slot, b"".join(sets), 8)
    return slot


def test_a_follower_keeps_the_bytes_of_its_leader(broker: OneBroker, tmp_path: Path) -> None:
    slot = followed(broker)
    state = slot_facts.describe(slot)
    assert broker.log_bytes(slot) == b"".join(SETS)
    assert (state.log_end_offset, state.high_watermark) == (8, 8)
    assert state.epochs == [BEFORE, (1, 7)]
    path = broker.table.path(slot)
    indexes = {file.name: file.read_bytes() for file in path.glob("*index")}
    loaded = broker.reload(slot, tmp_path / "copy", index_interval_bytes=1)
    assert (loaded.log_end_offset, loaded.epochs, loaded.max_timestamp) == (8, [BEFORE, (1, 7)], START + 20)
    for name, content in indexes.items():
        assert (tmp_path / "copy" / name).read_bytes().startswith(content)
        assert content


@pytest.mark.parametrize("cut", range(1, len(SETS[1])))
def test_an_incomplete_message_at_the_end_is_left_out(broker: OneBroker, cut: int) -> None:
    slot = followed(broker, [SETS[0], SETS[1][:-cut]])
    assert broker.log_bytes(slot) == SETS[0]
    assert slots.follow(slot, b"".join(SETS[1:]), 8) == 8


@pytest.mark.parametrize(
    "bad",
    [
        SETS[2][:12] + b"\0\0\0\0" + SETS[2][16:],
        SETS[2][:-1] + b"\xff",
        SETS[2][:16] + b"\x07" + SETS[2][17:],
        SETS[2][:8] + (5).to_bytes(4, "big") + SETS[2][12:],
        message(0, b"again"),
    ],
    ids=["crc", "value", "magic", "size", "offset"],
)
def test_a_bad_message_is_refused_and_what_came_before_kept(broker: OneBroker, bad: bytes) -> None:
    slot = followed(broker, SETS[:2])
    with pytest.raises(slots.SlotChanged, match=r"corrupt|out of range"):
        slots.follow(slot, bad, 0)
    assert broker.log_bytes(slot) == b"".join(SETS[:2])


def test_segments_roll_between_old_messages(broker: OneBroker, tmp_path: Path) -> None:
    slot = followed(broker, segment_bytes=80)
    path = broker.table.path(slot)
    assert len(list(path.glob("*.log"))) > 2
    assert broker.log_bytes(slot) == b"".join(SETS)
    assert broker.reload(slot, tmp_path / "copy").log_end_offset == 8


@pytest.mark.parametrize("kept", range(len(SETS)))
@pytest.mark.parametrize("segment_bytes", [80, 1 << 20])
def test_a_truncation_cuts_between_old_messages(
    broker: OneBroker, tmp_path: Path, kept: int, segment_bytes: int
) -> None:
    slot = followed(broker, segment_bytes=segment_bytes)
    end = ENDS[kept - 1] if kept else 0
    slots.truncate(slot, end)
    assert broker.log_bytes(slot) == b"".join(SETS[:kept])
    assert slot_facts.describe(slot).log_end_offset == end
    assert slot_facts.describe(slot).epochs == ([BEFORE] if kept else [])
    assert slots.follow(slot, b"".join(SETS[kept:]), 8) == 8
    assert broker.log_bytes(slot) == b"".join(SETS)
    assert broker.reload(slot, tmp_path / "copy").log_end_offset == 8


def test_the_new_leader_appends_format_v2_after_old_messages(broker: OneBroker) -> None:
    slot = followed(broker, SETS[:4])
    broker.lead(slot, 2)
    assert slot_probe.append(slot, [batch(2, timestamp=START + 30)]) == [(0, 7, False)]
    assert slot_facts.describe(slot).epochs == [BEFORE, (2, 7)]
    path = broker.table.path(slot)
    opened = [os.open(path / f"{0:020d}{kind}", os.O_RDONLY) for kind in (".log", ".index", ".timeindex")]
    try:
        size, entries, times = (os.fstat(fd).st_size // by for fd, by in zip(opened, (1, 8, 12), strict=True))
        found = [
            find_timestamp(opened[0], opened[1], entries, opened[2], times, 0, size, target)
            for target in (START, START + 5, START + 7, START + 10)
        ]
    finally:
        for fd in opened:
            os.close(fd)
    # The first of the wrapper's messages has its largest timestamp.
    assert found == [(4, START + 4, -1), (5, START + 9, -1), (5, START + 9, -1), (7, START + 30, 2)]


def producer(number: int, sequence: int, offset: int) -> bytes:
    fields = {"producer_id": number, "producer_epoch": 0, "base_sequence": sequence}
    return batch(1, timestamp=START, base_offset=offset, partition_leader_epoch=1, **fields)


class TestProducersAfterATruncation:
    """They come from the newest snapshot before the cut; what lies before it is not read again."""

    @pytest.fixture
    def slot(self, broker: OneBroker) -> int:
        slot = broker.create()
        broker.obey(slot, 1)
        for number in range(300):
            slots.follow(slot, producer(number % 100, number // 100, number), 0)
            if number in (99, 199):
                slot_probe.roll(slot)
        snapshot_publishing.publish()
        return slot

    def rot(self, broker: OneBroker, slot: int, base: int) -> None:
        (broker.table.path(slot) / f"{base:020d}.log").write_bytes(random.Random(1).randbytes(5000))

    def test_the_log_before_the_snapshot_is_not_read(self, broker: OneBroker, slot: int) -> None:
        self.rot(broker, slot, 0)
        self.rot(broker, slot, 100)
        slots.truncate(slot, 250)
        shown = slot_probe.producers(slot)
        assert shown[0] == (0, [(2, 2, 200, 200), (1, 1, 100, 100)])
        assert shown[49] == (0, [(2, 2, 249, 249), (1, 1, 149, 149)])
        assert shown[50] == (0, [(1, 1, 150, 150)])
        assert len(shown) == 100
        assert slots.follow(slot, producer(50, 2, 250), 0) == 251

    def test_a_cut_exactly_at_a_snapshot_reads_nothing(self, broker: OneBroker, slot: int) -> None:
        for base in (0, 100):
            self.rot(broker, slot, base)
        slots.truncate(slot, 200)
        assert slot_probe.producers(slot) == {
            number: (0, [(1, 1, 100 + number, 100 + number)]) for number in range(100)
        }

    @pytest.mark.parametrize("damage", [b"", b"\0" * 56, None])
    def test_a_corrupt_snapshot_is_skipped(self, broker: OneBroker, slot: int, damage: bytes | None) -> None:
        snapshot = broker.table.path(slot) / f"{200:020d}.snapshot"
        content = snapshot.read_bytes()
        snapshot.write_bytes(content[:-1] + bytes([content[-1] ^ 1]) if damage is None else damage)
        self.rot(broker, slot, 0)
        slots.truncate(slot, 250)
        assert slot_probe.producers(slot)[0] == (0, [(2, 2, 200, 200), (1, 1, 100, 100), (0, 0, 0, 0)])

    def test_without_a_snapshot_the_whole_log_is_read(self, broker: OneBroker, slot: int) -> None:
        for path in broker.table.path(slot).glob("*.snapshot"):
            path.unlink()
        slots.truncate(slot, 250)
        assert slot_probe.producers(slot)[50] == (0, [(1, 1, 150, 150), (0, 0, 50, 50)])

    def test_a_snapshot_between_the_segment_and_the_cut_counts(self, broker: OneBroker, slot: int) -> None:
        slot_upkeep.snapshot(slot)
        snapshot_publishing.publish()
        assert (broker.table.path(slot) / f"{300:020d}.snapshot").exists()
        for number in range(300, 310):
            slots.follow(slot, producer(number, 0, number), 0)
        slots.truncate(slot, 305)
        assert (broker.table.path(slot) / f"{300:020d}.snapshot").exists()
        shown = slot_probe.producers(slot)
        assert shown[99] == (0, [(2, 2, 299, 299)])
        assert set(shown) == {*range(100), *range(300, 305)}
        slots.truncate(slot, 299)
        assert not (broker.table.path(slot) / f"{300:020d}.snapshot").exists()
        assert slot_probe.producers(slot)[99] == (0, [(1, 1, 199, 199)])
