"""Several processes on one mapping: interleaved appends, no lost wake-ups, reused slots."""

import os
import random
import select
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import flushing, slots
from odradek._ext.shm.slot import SlotState
from odradek._ext.shm.topics import TopicDirectory
from odradek._ext.testing import slot_probe
from odradek.storage.batch import read_batches
from tests.children import end_of, fork
from tests.shm.one_broker import OneBroker, batch
from tests.waiting import readable

CHANGES_KEPT = 8192 // 2  # a process further behind than this looks at all slots


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    data = tmp_path / "data"
    data.mkdir()
    with OneBroker(data, processes=6) as made:
        yield made


@pytest.mark.parametrize("writers", [2, 4])
def test_appends_of_several_processes_interleave_without_gap(broker: OneBroker, tmp_path: Path, writers: int) -> None:
    rounds, joined = 60, 5
    slot = broker.create(segment_bytes=20_000, index_interval_bytes=500)

    def write(number: int) -> None:
        for turn in range(rounds):
            items = [
                batch(
                    2, producer_id=number, producer_epoch=0, base_sequence=(turn * joined + i) * 2, timestamp=turn + 1
                )
                for i in range(joined)
            ]
            while True:
                try:
                    answers = slot_probe.append(slot, items)
                    break
                except slots.SlotChanged as reason:
                    assert str(reason) == "busy"
            assert all(error == 0 and not duplicate for error, _, duplicate in answers)
            assert [base - answers[0][1] for _, base, _ in answers] == [0, 2, 4, 6, 8]

    pids = [(broker.fork(place, lambda place=place: write(place)), place) for place in range(1, writers + 1)]
    assert [broker.reap(pid, place) for pid, place in pids] == [0] * writers
    expected, sequences = 0, dict.fromkeys(range(1, writers + 1), 0)
    for one in read_batches(broker.log_bytes(slot)):
        assert one.base_offset == expected
        assert one.base_sequence == sequences[one.producer_id]
        sequences[one.producer_id] += 2
        expected = one.last_offset + 1
    assert expected == slot_facts.describe(slot).log_end_offset == writers * rounds * joined * 2
    loaded = broker.reload(slot, tmp_path / "copy", index_interval_bytes=500)
    assert loaded.log_end_offset == expected
    assert {one.producer_id for one in loaded.producers} == set(sequences)


def test_no_wake_up_is_lost_between_two_processes(broker: OneBroker) -> None:
    """Ping and pong by wake-ups alone: one that is lost stops the game."""
    turns = 3000
    read_end, write_end = os.pipe()

    def wait_for_turn() -> None:
        poll = select.poll()
        poll.register(broker.shm.event_fd(), select.POLLIN)
        assert poll.poll(120_000), "no wake-up came"
        broker.shm.drain_event()

    def answer() -> None:
        os.write(write_end, b"!")
        for _ in range(turns):
            wait_for_turn()
            broker.shm.wake(0)

    pid = broker.fork(1, answer)
    os.read(read_end, 1)
    os.close(read_end)
    os.close(write_end)
    for _ in range(turns):
        broker.shm.wake(1)
        wait_for_turn()
    assert broker.reap(pid, 1) == 0


def test_many_wake_ups_are_one_event(broker: OneBroker) -> None:
    def wake() -> None:
        for _ in range(1000):
            broker.shm.wake(0)

    broker.shm.drain_event()
    assert broker.reap(broker.fork(1, wake), 1) == 0
    # One of the wakes, and the one that every death causes.
    assert os.eventfd_read(broker.shm.event_fd()) == 2


def test_a_wake_up_for_a_slot_alone_brings_no_news(broker: OneBroker) -> None:
    slot = broker.create()
    broker.shm.take_news()
    broker.shm.drain_event()
    slots.await_committed(slot)

    def append() -> None:
        slot_probe.append(slot, [batch()])

    pid = broker.fork(1, append)
    poll = select.poll()
    poll.register(broker.shm.event_fd(), select.POLLIN)
    assert poll.poll(120_000)
    broker.shm.drain_event()
    assert broker.shm.take_ready() == [slot]
    assert not broker.shm.take_news()
    assert broker.reap(pid, 1) == 0
    assert broker.shm.take_news(), "a death is news"
    broker.shm.wake(0)
    assert broker.shm.take_news()
    assert not broker.shm.take_news()


def test_a_death_wakes_every_process_and_releases_the_flusher_word(broker: OneBroker) -> None:
    slot = broker.create()
    slot_probe.append(slot, [batch()])
    broker.shm.take_full_look()
    assert broker.reap(broker.fork(1, lambda: None), 1) == 0
    assert broker.shm.take_full_look()
    assert not broker.shm.take_full_look()
    assert flushing.flush(slot) is True
    assert flushing.flush(slot) is False


class TestSlots:
    def test_a_slot_is_not_used_again_before_every_worker_passed_its_deletion(self, tmp_path: Path) -> None:
        with OneBroker(tmp_path, processes=2, max_slots=64) as broker:
            broker.be(1)
            broker.be(0)
            made = [broker.create("full", number) for number in range(64)]
            broker.table.delete(made[5])
            broker.table.delete(made[6])
            version = broker.table.announce([made[5], made[6]])
            for place, confirmed in ((0, version), (1, version - 1)):
                broker.be(place)
                broker.shm.confirm_version(confirmed)
            with pytest.raises(ValueError, match="slots are in use"):
                broker.create("next")
            # All have passed the first deletion now, and none has a newer version than the second's.
            broker.shm.confirm_version(version)
            old = slot_probe.incarnation_of(made[5])
            again = broker.create("next")
            assert again == made[5]
            assert slot_probe.incarnation_of(again) == old + 2  # before and after it was cleared
            with pytest.raises(ValueError, match="slots are in use"):
                broker.create("later")
            with pytest.raises(slots.SlotChanged, match="stale"):
                slot_probe.append(again, [batch()], incarnation=old)
            assert slot_probe.append(again, [batch()]) == [(0, 0, False)]
            assert slot_facts.describe(again).topic == "next"
            for place in (0, 1):
                broker.be(place)
                broker.shm.confirm_version(broker.shm.metadata_version)
            assert broker.create("later") == made[6]

    def test_a_mirror_follows_creation_deletion_and_the_same_name_again(self, broker: OneBroker) -> None:
        directory = TopicDirectory()
        first = [broker.create("a", number, topic_id=b"1" * 16) for number in range(3)]
        other = broker.create("b")
        assert directory.refresh()
        assert not directory.refresh()
        assert directory.get("a").partitions() == list(enumerate(first))
        broker.table.delete(first[2])
        broker.table.announce([first[2]])
        directory.refresh()
        assert directory.get("a").count == 2
        for slot in first[:2]:
            broker.table.delete(slot)
        broker.table.announce(first[:2])
        second = broker.create("a", topic_id=b"2" * 16)
        directory.refresh()
        assert directory.get("a").partitions() == [(0, second)]
        assert directory.get("a").topic_id == b"2" * 16
        assert set(directory.by_id) == {b"2" * 16, directory.get("b").topic_id}
        assert directory.get("b").partitions() == [(0, other)]

    def test_a_mirror_that_lags_far_scans_all_slots(self, broker: OneBroker) -> None:
        directory = TopicDirectory()
        gone, stays = broker.create("gone"), broker.create("stays")
        directory.refresh()
        broker.table.delete(gone)
        fresh = broker.create("fresh")
        broker.table.announce([gone])
        broker.table.announce([stays] * CHANGES_KEPT * 3)  # what went before has left the ring
        assert directory.refresh()
        assert set(directory.by_name) == {b"stays", b"fresh"}
        assert directory.get("fresh").slot(0) == fresh
        assert directory.version == broker.shm.metadata_version

    def test_a_mirror_that_lags_little_uses_the_ring(self, broker: OneBroker) -> None:
        directory = TopicDirectory()
        stays = broker.create("stays")
        directory.refresh()
        fresh = broker.create("fresh")
        broker.table.announce([stays] * (CHANGES_KEPT - 3))
        directory.refresh()
        assert directory.get("fresh").slot(0) == fresh

    def test_a_mirror_scans_all_slots_after_more_changes_than_the_ring_holds(self, broker: OneBroker) -> None:
        directory = TopicDirectory()
        stays = broker.create("stays")
        directory.refresh()
        fresh = broker.create("fresh", announce=False)
        broker.table.announce([fresh] + [stays] * (CHANGES_KEPT * 2 + 5))
        directory.refresh()
        assert directory.get("fresh").slot(0) == fresh

    def test_partitions_that_are_announced_together_are_seen_together(self, broker: OneBroker) -> None:
        made = [broker.create("topic", number) for number in range(3)]
        base = broker.shm.metadata_version
        reader, writer = os.pipe()

        def look() -> None:
            os.close(writer)
            seen = 0
            while seen % 1000 or not readable(reader):
                seen += 1
                assert (broker.shm.metadata_version - base) % 3 == 0

        child = fork(look)
        os.close(reader)
        for _ in range(20_000):
            broker.table.announce(made)
        os.close(writer)
        assert end_of(child) == 0


def test_a_second_mapping_does_not_append_to_the_first_ones_files(tmp_path: Path) -> None:
    lengths = []
    for name in ("one", "two"):
        path = tmp_path / name
        path.mkdir()
        with OneBroker(path) as broker:
            slot = broker.create()
            slot_probe.append(slot, [batch()])
            lengths.append(len(broker.log_bytes(slot)))
            assert slots.state_of(slot) == SlotState.SLOT_ONLINE
    assert lengths[0] == lengths[1] > 0


def test_another_process_appends_to_the_file_that_a_truncation_made(broker: OneBroker) -> None:
    """Truncated at a segment's very beginning, the new file has the old one's name; descriptors of the old one are no use."""
    slot = broker.create()
    read_end, write_end = os.pipe()
    done_read, done_write = os.pipe()

    def write_twice() -> None:
        slot_probe.append(slot, [batch(3, timestamp=1)])
        os.write(done_write, b"1")
        os.read(read_end, 1)
        slot_probe.append(slot, [batch(2, timestamp=2)])

    pid = broker.fork(1, write_twice)
    os.read(done_read, 1)
    before = (broker.table.path(slot) / f"{0:020d}.log").stat().st_ino
    with (broker.table.path(slot) / f"{0:020d}.log").open("rb") as reader:
        broker.obey(slot, 1)
        slots.truncate(slot, 0)
        broker.lead(slot, 2)
        os.write(write_end, b"2")
        assert broker.reap(pid, 1) == 0
        assert (broker.table.path(slot) / f"{0:020d}.log").stat().st_ino != before
        assert [one.record_count for one in read_batches(broker.log_bytes(slot))] == [2]
        assert [one.record_count for one in read_batches(reader.read())] == [3], "a published byte was written again"


def test_writers_killed_at_random_lose_and_duplicate_nothing(broker: OneBroker, tmp_path: Path) -> None:
    """Each place's writer is killed again and again; its successor sends on from what was last acknowledged."""
    kills_each, places = 12, (1, 2, 3)
    slot = broker.create(segment_bytes=6_000, index_interval_bytes=300)
    moment = random.Random(20)
    acknowledged = dict.fromkeys(places, 0)

    def write(place: int, sequence: int, told: int) -> None:
        while True:
            items = [
                batch(producer_id=place, producer_epoch=0, base_sequence=sequence + i, timestamp=1 + sequence)
                for i in range(3)
            ]
            try:
                answers = slot_probe.append(slot, items)
            except slots.SlotChanged as reason:
                assert str(reason) == "busy"
                continue
            assert [error for error, _, _ in answers] == [0, 0, 0]
            sequence += 3
            os.write(told, sequence.to_bytes(4, "big"))

    for _ in range(kills_each):
        running = {}
        for place in places:
            told_read, told = os.pipe()
            pid = broker.fork(place, lambda place=place, told=told: write(place, acknowledged[place], told))
            os.close(told)
            running[place] = (pid, told_read)
        for place, (pid, told_read) in running.items():
            for _ in range(moment.randrange(1, 40)):
                acknowledged[place] = int.from_bytes(os.read(told_read, 4), "big")
            os.kill(pid, signal.SIGKILL)
            assert broker.reap(pid, place) == -signal.SIGKILL
            while last := os.read(told_read, 4):
                acknowledged[place] = int.from_bytes(last, "big")
            os.close(told_read)
    slot_probe.append(slot, [batch()])  # whoever takes the lock next repairs what the last one left
    expected, sequences = 0, dict.fromkeys(places, 0)
    for one in read_batches(broker.log_bytes(slot)):
        assert one.base_offset == expected
        expected = one.last_offset + 1
        if one.producer_id >= 0:
            assert one.base_sequence == sequences[one.producer_id], "a batch is missing or there twice"
            sequences[one.producer_id] += 1
    for place in places:
        assert acknowledged[place] <= sequences[place] <= acknowledged[place] + 3
    loaded = broker.reload(slot, tmp_path / "copy", index_interval_bytes=300)
    assert loaded.log_end_offset == expected == slot_facts.describe(slot).log_end_offset
