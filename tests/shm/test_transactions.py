"""The changes of the transaction coordinator in a partition (marks, markers, its own batches), and the last stable offset."""

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import slot_loading, slot_upkeep, slots, snapshot_publishing
from odradek._ext.partition.slot_access import AppendResult
from odradek._ext.records.batch_builder import BatchBuilder
from odradek._ext.shm.layout import DiskState
from odradek._ext.storage.segments import load_log
from odradek._ext.testing import slot_probe
from odradek._ext.testing.lock_probe import SlotLock
from odradek.storage.batch import (
    ABORT,
    COMMIT,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    RecordBatch,
    build_batch,
    build_end_marker,
    read_batch,
    read_batches,
)
from odradek.storage.indexes import read_txn_index
from odradek.storage.producer_snapshot import read_snapshot
from tests.shm.model import Model
from tests.shm.one_broker import OneBroker, batch
from tests.shm.test_producers import LATER

NOT_ENOUGH_REPLICAS, FENCED, WRONG_STATE, COORDINATOR_FENCED, MESSAGE_TOO_LARGE = 19, 47, 48, 52, 10
ALICE, BOB = 1, 2
PRODUCER = 7
MARKER_BYTES = 78
LAST_EPOCH = 32767


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    data = tmp_path / "data"
    data.mkdir()
    with OneBroker(data) as made:
        yield made


def transactional(producer: int = PRODUCER, epoch: int = 0, sequence: int = 0, count: int = 1) -> bytes:
    return batch(count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, attributes=TRANSACTIONAL)


def begin(slot: int, *producers: int, epoch: int = 0) -> list[int]:
    """Open a transaction of each producer; the offsets."""
    return [slot_probe.append(slot, [transactional(producer, epoch)])[0][1] for producer in producers]


def allow(slot: int, producer: int = PRODUCER, epoch: int = 0, version: int = 2, **more: int) -> int:
    return slots.allow_transaction(slot, slot_probe.incarnation_of(slot), -1, "id", producer, epoch, version, **more)


def end(slot: int, *markers: tuple[int | bool, ...]) -> list[tuple[int, int]]:
    return slots.append_markers(slot, slot_probe.incarnation_of(slot), -1, list(markers))


def commit(slot: int, *producers: int, epoch: int = 0) -> list[tuple[int, int]]:
    return end(slot, *((producer, epoch, 1, True, 0) for producer in producers))


def abort(slot: int, *producers: int, epoch: int = 0) -> list[tuple[int, int]]:
    return end(slot, *((producer, epoch, 1, False, 0) for producer in producers))


def offered(slot: int, producer: int = PRODUCER, epoch: int = 0, sequence: int = 0) -> int:
    """The error of a batch of a client, which needs a mark to open a transaction."""
    return slot_probe.append(slot, [transactional(producer, epoch, sequence)], trusted=False)[0][0]


def batches(broker: OneBroker, slot: int) -> list[RecordBatch]:
    return list(read_batches(broker.log_bytes(slot)))


def aborted(directory: Path) -> list[tuple[int, int, int, int]]:
    """(producer id, first offset, last offset, last stable offset) of the transaction indexes."""
    entries = [entry for path in sorted(directory.glob("*.txnindex")) for entry in read_txn_index(path.read_bytes())]
    return [(one.producer_id, one.first_offset, one.last_offset, one.last_stable_offset) for one in entries]


def stable(slot: int) -> int:
    return slot_facts.describe(slot).last_stable_offset


def start_again(broker: OneBroker, slot: int, high_watermark: int = 0) -> None:
    """Load the slot's log into it, as a start does."""
    loaded = load_log(broker.table.path(slot), 0, 0, False)
    slot_loading.fill(slot, loaded, False, at_start=True, high_watermark=high_watermark)


class TestMarksOfSeveralPartitions:
    def test_are_set_in_those_that_this_broker_leads(self, broker: OneBroker) -> None:
        first, second, obeying = (broker.create(topic) for topic in ("first", "second", "obeying"))
        broker.obey(obeying, 1)
        commit(second, PRODUCER, epoch=3)
        assert slots.allow_transactions([first, -1, second, obeying], "id", PRODUCER, 0, 2, 0, 5) == [0, 0, FENCED, 0]
        assert [offered(slot) for slot in (first, second)] == [0, FENCED]

    def test_a_lock_that_is_not_free_concerns_one_partition(self, broker: OneBroker) -> None:
        free, held = broker.create("free"), broker.create("held")
        with SlotLock(held):
            assert slots.allow_transactions([held, free], "id", PRODUCER, 0, 2, 0, 5) == [None, 0]
        assert slots.allow_transactions([held], "id", PRODUCER, 0, 2, 0, 5) == [0]


class TestAMark:
    def test_allows_the_first_batch_of_the_transaction(self, broker: OneBroker) -> None:
        slot = broker.create()
        assert offered(slot) == WRONG_STATE
        assert allow(slot) == 0
        assert offered(slot) == 0
        assert slots.transactions_of(slot)[0]["first_offset"] == 0

    @pytest.mark.parametrize("version", [0, 1, 2])
    def test_is_of_one_epoch(self, broker: OneBroker, version: int) -> None:
        slot = broker.create()
        assert allow(slot, epoch=3, version=version) == 0
        assert [offered(slot, epoch=epoch) for epoch in (2, 4, 3)] == [WRONG_STATE, WRONG_STATE, 0]
        assert allow(slot, epoch=2) == FENCED
        assert allow(slot, epoch=4) == 0

    def test_ends_with_the_leader_epoch(self, broker: OneBroker) -> None:
        slot = broker.create()
        assert allow(slot) == 0
        broker.lead(slot, 1)
        assert offered(slot) == WRONG_STATE
        assert allow(slot) == 0
        assert offered(slot) == 0

    @pytest.mark.parametrize(
        ("version", "marked", "marker", "stays"),
        [(0, 0, 0, False), (0, 1, 1, False), (1, 1, 2, False), (0, 2, 1, True), (2, 0, 1, False), (2, 1, 1, True)],
    )
    def test_is_cleared_by_the_marker_of_its_transaction(
        self, broker: OneBroker, version: int, marked: int, marker: int, stays: bool
    ) -> None:
        """With version 2, a marker has the epoch of the next transaction, whose mark may be set before the marker is
        written."""
        slot = broker.create()
        assert allow(slot, epoch=marked, version=version) == 0
        assert end(slot, (PRODUCER, marker, 0, True, version)) == [(0, 0)]
        assert offered(slot, epoch=max(marked, marker)) == (0 if stays else WRONG_STATE)

    def test_of_the_next_transaction_survives_a_repeated_marker(self, broker: OneBroker) -> None:
        slot = broker.create()
        begin(slot, PRODUCER)
        assert end(slot, (PRODUCER, 1, 0, True, 2)) == [(0, 1)]
        assert allow(slot, epoch=1) == 0
        assert end(slot, (PRODUCER, 1, 0, True, 2)) == [(0, -1)]
        assert offered(slot, epoch=1) == 0

    def test_is_no_part_of_the_log(self, broker: OneBroker) -> None:
        """Neither snapshots nor DescribeProducers contain an entry with only a mark; a follower and a start do not have it."""
        slot = broker.create()
        for number in range(10):
            allow(slot, 100 + number)
        slot_probe.append(slot, [batch(producer_id=1, producer_epoch=0, base_sequence=0)])
        slot_probe.roll(slot)
        assert [known["producer_id"] for known in slots.active_producers(slot)] == [1]
        assert slots.transactions_of(slot) == []
        assert snapshot_publishing.publish() == {}
        assert [known.producer_id for known in read_snapshot(broker.table.path(slot) / f"{1:020d}.snapshot")] == [1]
        start_again(broker, slot)
        assert offered(slot, 100) == WRONG_STATE
        assert set(slot_probe.producers(slot)) == {1}

    def test_survives_the_growth_of_the_memory(self, broker: OneBroker) -> None:
        slot = broker.create()
        for number in range(60):
            assert allow(slot, number) == 0
        assert [offered(slot, number) for number in range(60)] == [0] * 60

    def test_expires_and_is_evicted_like_another_producer(self, broker: OneBroker) -> None:
        slot = broker.create()
        for number in range(100):
            assert allow(slot, number, owner=ALICE) == 0
        assert set(slot_probe.producers(slot)) == set(range(36, 100)), "as many as a client may have here"
        assert offered(slot, 0) == WRONG_STATE
        assert offered(slot, 99) == 0
        assert slot_upkeep.expire(slot, LATER) == 63
        assert set(slot_probe.producers(slot)) == {99}

    def test_is_refused_if_there_is_no_room(self, broker: OneBroker) -> None:
        slot = broker.create()
        for number in range(64):
            slot_probe.append(slot, [transactional(number)], owner=ALICE)
        assert allow(slot, 100, owner=ALICE) == NOT_ENOUGH_REPLICAS
        assert allow(slot, 100, owner=BOB) == 0

    def test_is_refused_to_a_coordinator_that_is_older_than_one_whose_marker_the_partition_has(
        self, broker: OneBroker
    ) -> None:
        """Its successor has ended the transaction that the older one still takes for open."""
        slot = broker.create()
        assert allow(slot, coordinator_epoch=0) == 0
        begin(slot, PRODUCER)
        assert [error for error, _ in end(slot, (PRODUCER, 0, 5, True, 0))] == [0]
        assert allow(slot, coordinator_epoch=4) == COORDINATOR_FENCED
        assert not slots.transactions_of(slot) and offered(slot, sequence=1) != 0
        assert allow(slot, coordinator_epoch=5) == 0
        assert offered(slot, sequence=1) == 0

    def test_needs_the_leader(self, broker: OneBroker) -> None:
        slot = broker.create()
        incarnation = slot_probe.incarnation_of(slot)
        for expected, epoch, result in (
            (incarnation + 1, 0, AppendResult.APPEND_STALE),
            (incarnation, 1, AppendResult.APPEND_FENCED_EPOCH),
        ):
            with pytest.raises(slots.SlotChanged) as raised:
                slots.allow_transaction(slot, expected, epoch, "id", PRODUCER, 0, 2)
            assert raised.value.result == result
        broker.obey(slot, 1)
        with pytest.raises(slots.SlotChanged, match="not leader"):
            allow(slot)


class TestMarkers:
    @pytest.mark.parametrize("kind", [ABORT, COMMIT])
    @pytest.mark.parametrize("identity", [(7, 0, 0), ((1 << 63) - 1, LAST_EPOCH, (1 << 31) - 1)])
    def test_are_those_of_kafka_byte_for_byte(
        self, broker: OneBroker, kind: int, identity: tuple[int, int, int]
    ) -> None:
        slot = broker.create()
        producer, epoch, coordinator_epoch = identity
        assert end(slot, (producer, epoch, coordinator_epoch, kind == COMMIT, 0)) == [(0, 0)]
        written = broker.log_bytes(slot)
        assert len(written) == MARKER_BYTES
        assert written == build_end_marker(
            kind,
            base_offset=0,
            producer_id=producer,
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=read_batch(written)[0].max_timestamp,
            partition_leader_epoch=0,
        )

    def test_get_the_time_of_the_append_if_the_topic_wants_it(self, broker: OneBroker) -> None:
        slot = broker.create(log_append_time=1)
        begin(slot, PRODUCER)
        assert commit(slot, PRODUCER) == [(0, 1)]
        marker = batches(broker, slot)[1]  # its CRC was checked
        assert marker.attributes & LOG_APPEND_TIME
        assert marker.is_control

    def test_of_many_transactions_are_ended_at_once(self, broker: OneBroker) -> None:
        slot = broker.create()
        producers = range(200)
        begin(slot, *producers)
        assert commit(slot, *producers) == [(0, 200 + number) for number in producers]
        assert slots.transactions_of(slot) == []
        assert stable(slot) == 400

    def test_of_one_producer_twice(self, broker: OneBroker) -> None:
        slot = broker.create()
        begin(slot, 1, 2)
        found = end(slot, (1, 1, 0, False, 2), (1, 1, 0, False, 2), (2, 1, 0, True, 2), (1, 1, 0, False, 0))
        assert found == [(0, 2), (0, -1), (0, 3), (0, 4)]

    def test_are_divided_into_segments(self, broker: OneBroker) -> None:
        slot = broker.create(segment_bytes=5 * MARKER_BYTES)
        producers = range(20)
        begin(slot, *producers)
        before = slot_facts.describe(slot).rolls
        assert abort(slot, *producers) == [(0, 20 + number) for number in producers]
        assert slot_facts.describe(slot).rolls - before == 4
        assert aborted(broker.table.path(slot)) == [
            (number, number, 20 + number, number + 1 if number < 19 else 40) for number in producers
        ]

    def test_of_one_write_are_indexed_as_if_each_was_written_alone(self, broker: OneBroker) -> None:
        slot = broker.create()
        begin(slot, 1, 2, 3, 4, 5)
        markers = [
            (4, 0, 1, False, 0),
            (1, 0, 1, True, 0),
            (3, 0, 1, False, 0),
            (2, 0, 1, False, 0),
            (9, 0, 1, False, 0),
        ]
        assert [offset for _, offset in end(slot, *markers)] == [5, 6, 7, 8, 9]
        assert aborted(broker.table.path(slot)) == [(4, 3, 5, 0), (3, 2, 7, 1), (2, 1, 8, 4)]
        state = slot_facts.describe(slot)
        assert (state.newest_abort_offset, state.txnindex_entries, state.last_stable_offset) == (8, 3, 4)

    @pytest.mark.parametrize(
        ("version", "known", "opened", "marker", "expected"),
        [
            (0, 5, True, 4, (FENCED, -1)),
            (0, 5, True, 5, (0, 1)),
            (0, 5, False, 5, (0, 2)),
            (1, 5, True, 6, (0, 1)),
            (2, 5, True, 4, (FENCED, -1)),
            (2, 5, True, 5, (FENCED, -1)),
            (2, 5, True, 6, (0, 1)),
            (2, 5, False, 4, (FENCED, -1)),
            (2, 5, False, 5, (0, -1)),
            (2, 5, False, 6, (0, 2)),
            (2, LAST_EPOCH, True, LAST_EPOCH, (0, 1)),
            (2, LAST_EPOCH, False, LAST_EPOCH, (0, -1)),
        ],
    )
    def test_follow_the_rule_of_their_version(
        self, broker: OneBroker, version: int, known: int, opened: bool, marker: int, expected: tuple[int, int]
    ) -> None:
        slot = broker.create()
        begin(slot, PRODUCER, epoch=known)
        if not opened:
            commit(slot, PRODUCER, epoch=known)
        assert end(slot, (PRODUCER, marker, 1, True, version)) == [expected]

    def test_of_an_older_coordinator_are_refused(self, broker: OneBroker) -> None:
        slot = broker.create()
        begin(slot, PRODUCER)
        assert end(slot, (PRODUCER, 0, 5, True, 0)) == [(0, 1)]
        begin(slot, 8)
        found = end(
            slot, (PRODUCER, 0, 4, True, 0), (PRODUCER, 0, 4, True, 2), (8, 0, 4, True, 0), (PRODUCER, 0, 5, True, 0)
        )
        assert found == [(COORDINATOR_FENCED, -1), (COORDINATOR_FENCED, -1), (0, 3), (0, 4)]

    def test_of_an_unknown_producer_fence_its_older_epochs(self, broker: OneBroker) -> None:
        slot = broker.create()
        assert end(slot, (PRODUCER, 3, 2, False, 0)) == [(0, 0)]
        assert offered(slot, epoch=2) == FENCED
        (known,) = slots.active_producers(slot)
        assert (known["epoch"], known["coordinator_epoch"], known["last_sequence"]) == (3, 2, -1)
        assert not list(broker.table.path(slot).glob("*.txnindex")), "an abort without records is in the index"

    def test_are_not_refused_on_a_full_disk(self, broker: OneBroker) -> None:
        slot = broker.create()
        begin(slot, PRODUCER)
        broker.shm.set_disk(0, DiskState.DISK_FULL, 0, 0)
        assert offered(slot, epoch=0, sequence=1) == NOT_ENOUGH_REPLICAS
        assert abort(slot, PRODUCER) == [(0, 1)]
        assert stable(slot) == 2

    def test_evict_a_producer_if_there_is_no_room(self, broker: OneBroker) -> None:
        slot = broker.create()
        for number in range(256):  # as many as a partition may have, none of which was silent for long
            attributes = TRANSACTIONAL if number else 0
            slot_probe.append(
                slot, [batch(producer_id=number, producer_epoch=0, base_sequence=0, attributes=attributes)]
            )
        assert commit(slot, 1000) == [(0, 256)]
        assert set(slot_probe.producers(slot)) == {*range(1, 256), 1000}
        assert begin(slot, 1000) == [257]
        assert commit(slot, 1001, 5) == [(NOT_ENOUGH_REPLICAS, -1), (0, 258)]
        assert commit(slot, 1001) == [(0, 259)]

    def test_need_the_leader(self, broker: OneBroker) -> None:
        slot = broker.create()
        begin(slot, PRODUCER)
        incarnation, marker = slot_probe.incarnation_of(slot), (PRODUCER, 0, 0, True, 0)
        for stale, epoch, result in (
            (incarnation + 1, 0, AppendResult.APPEND_STALE),
            (incarnation, 1, AppendResult.APPEND_FENCED_EPOCH),
        ):
            with pytest.raises(slots.SlotChanged) as raised:
                slots.append_markers(slot, stale, epoch, [marker])
            assert raised.value.result == result
        assert slots.append_markers(slot, incarnation, 0, []) == []
        broker.obey(slot, 1)
        with pytest.raises(slots.SlotChanged, match="not leader"):
            end(slot, marker)
        assert slot_facts.describe(slot).log_end_offset == 1

    def test_wait_for_the_device_where_flush_messages_asks_for_it(self, broker: OneBroker) -> None:
        slot = broker.create(flush_messages=1)
        begin(slot, PRODUCER)
        ((error, offset),) = commit(slot, PRODUCER)
        assert error == 0
        assert slots.awaits_flush(slot)
        assert slots.high_watermark(slot) <= offset


class TestBatchesOfACoordinator:
    def append(self, slot: int, count: int = 2, max_bytes: int = 1 << 20, **fields: Any) -> tuple[int, int]:
        builder = BatchBuilder()
        for number in range(count):
            builder.add(b"key", b"%d" % number, 1000 + number)
        return slots.append_built(slot, builder, slot_probe.incarnation_of(slot), -1, 0, None, max_bytes, **fields)

    def test_belong_to_a_transaction_without_a_mark_and_each_begins_at_sequence_0(self, broker: OneBroker) -> None:
        slot = broker.create()
        identity = {"producer_id": PRODUCER, "producer_epoch": 2, "transactional": True}
        assert [self.append(slot, **identity) for _ in range(7)] == [(0, 2 * number) for number in range(7)]
        assert self.append(slot, max_bytes=50, **identity) == (MESSAGE_TOO_LARGE, -1)
        assert stable(slot) == 0
        written = batches(broker, slot)
        expected = build_batch(
            written[0].records(), producer_id=PRODUCER, producer_epoch=2, base_sequence=0, attributes=TRANSACTIONAL
        )
        assert broker.log_bytes(slot)[16 : len(expected)] == expected[16:]
        assert {(one.base_sequence, one.attributes) for one in written} == {(0, TRANSACTIONAL)}
        assert slot_probe.producers(slot)[PRODUCER] == (
            2, [(0, 1, 2 * number, 2 * number + 1) for number in range(6, 1, -1)]
        )  # fmt: skip
        assert end(slot, (PRODUCER, 3, 0, True, 2)) == [(0, 14)]
        assert self.append(slot, **identity) == (FENCED, -1)

    def test_leave_the_same_state_after_a_start(self, broker: OneBroker) -> None:
        slot = broker.create()
        self.append(slot, producer_id=PRODUCER, producer_epoch=2, transactional=True)
        self.append(slot, producer_id=8, producer_epoch=0, transactional=True)
        commit(slot, 8)
        before = slot_probe.producers(slot)
        slot_probe.roll(slot)
        assert snapshot_publishing.publish() == {}
        snapshot = broker.table.path(slot) / f"{5:020d}.snapshot"
        (known,) = [known for known in read_snapshot(snapshot) if known.producer_id == PRODUCER]
        ((last_sequence, last_offset, delta),) = [
            (b.last_sequence, b.last_offset, b.offset_delta) for b in known.batches
        ]
        assert (known.current_txn_first_offset, last_sequence, last_offset, delta) == (0, 1, 1, 1)
        start_again(broker, slot)
        assert slot_probe.producers(slot) == before
        snapshot.unlink()
        start_again(broker, slot)
        assert slot_probe.producers(slot) == before
        assert [(one["producer_id"], one["first_offset"]) for one in slots.transactions_of(slot)] == [(PRODUCER, 0)]
        assert self.append(slot, producer_id=PRODUCER, producer_epoch=2, transactional=True) == (0, 5)


class TestTheLastStableOffset:
    def test_follows_the_oldest_open_transaction(self, broker: OneBroker) -> None:
        slot = broker.create()
        assert begin(slot, 1, 2, 3, 4) == [0, 1, 2, 3]
        for producer, expected in ((2, 0), (4, 0), (1, 2), (3, 8)):
            commit(slot, producer)
            assert stable(slot) == expected

    def test_is_held_until_the_high_watermark_passes_the_marker(self, broker: OneBroker) -> None:
        """Kafka calls such a transaction unreplicated: after a change of the leader it might be open again."""
        slot = broker.create(alone=False)
        begin(slot, 1)
        slot_probe.append(slot, [batch()])
        commit(slot, 1)
        for high_watermark, expected in ((0, 0), (1, 0), (2, 0), (3, 3)):
            slots.raise_high_watermark(slot, high_watermark)
            assert stable(slot) == expected
        assert slots.transactions_of(slot) == []

    def test_moves_on_although_there_is_always_a_marker_above_the_high_watermark(self, broker: OneBroker) -> None:
        slot = broker.create(alone=False)
        seen = []
        for _ in range(50):
            ((_, first, _),) = slot_probe.append(slot, [transactional(1, sequence=len(seen))])
            commit(slot, 1)
            slots.raise_high_watermark(slot, max(0, first - 5))
            seen.append(stable(slot))
        assert seen == sorted(seen)
        assert max(2 * number - offset for number, offset in enumerate(seen)) == 12, (
            "more than two turns of markers are held"
        )

    def test_is_held_after_a_start_while_the_high_watermark_is_below_a_marker(self, broker: OneBroker) -> None:
        slot = broker.create(flush_messages=1)
        begin(slot, 1)
        commit(slot, 1)
        slot_probe.append(slot, [batch()])
        start_again(broker, slot)
        state = slot_facts.describe(slot)
        assert (state.high_watermark, state.last_stable_offset) == (0, 0)
        slots.raise_high_watermark(slot, 1)
        assert stable(slot) == 0
        slots.raise_high_watermark(slot, 2)
        assert stable(slot) == 2

    def test_its_position_is_known_while_transactions_come_and_go(self, broker: OneBroker) -> None:
        slot = broker.create(segment_bytes=1000)
        order = [3, 1, 4, 15, 9, 2, 6, 5, 35, 8, 97, 93]
        begin(slot, *order)
        for producer in order:
            state = slot_facts.describe(slot)
            data = (broker.table.path(slot) / f"{state.unstable_base:020d}.log").read_bytes()
            found, _ = read_batch(data, state.unstable_position)
            assert (found.base_offset, found.producer_id) == (state.first_unstable_offset, producer)
            slot_probe.roll(slot)
            commit(slot, producer)
        state = slot_facts.describe(slot)
        assert (state.first_unstable_offset, state.unstable_base, state.unstable_position) == (-1, -1, -1)

    def test_its_position_is_not_known_after_a_start(self, broker: OneBroker) -> None:
        slot = broker.create()
        begin(slot, 5, 4, 3)
        start_again(broker, slot)
        state = slot_facts.describe(slot)
        assert (state.first_unstable_offset, state.unstable_base) == (0, -1)
        begin(slot, 2)
        assert [one["producer_id"] for one in slots.transactions_of(slot)] == [5, 4, 3, 2]
        commit(slot, 5, 4, 3)
        state = slot_facts.describe(slot)
        assert (state.first_unstable_offset, state.unstable_base) == (3, 0)

    def test_the_order_survives_growth_and_a_start(self, broker: OneBroker) -> None:
        """The list is made again by first offset, whatever places the producers have."""
        slot = broker.create()
        order = [number * 7919 % 211 for number in range(211)]
        for producer in order:
            begin(slot, producer)
        for shown in range(2):
            opened = slots.transactions_of(slot)
            assert [one["producer_id"] for one in opened] == order
            assert [one["first_offset"] for one in opened] == list(range(211)), shown
            start_again(broker, slot)
        commit(slot, *order[:210:2])
        assert [one["producer_id"] for one in slots.transactions_of(slot)] == [*order[1:211:2], order[210]]
        assert stable(slot) == 1


def test_recovery_from_any_prefix_of_a_log(broker: OneBroker, tmp_path: Path) -> None:
    """A start finds the transactions of exactly the batches that are there; entries of later aborts are cut from the index."""
    slot = broker.create(segment_ms=1 << 62)  # the batches are of 1970, the markers of now
    sequences = {producer: itertools.count() for producer in range(6)}
    epochs = dict.fromkeys(range(6), 0)
    for turn in range(12):
        for producer in range(turn % 3, 6, 2):
            slot_probe.append(slot, [transactional(producer, epochs[producer], next(sequences[producer]))])
        ended = [producer for producer in range(6) if (producer + turn) % 3]
        for producer in ended:
            epochs[producer] += turn % 2
            sequences[producer] = itertools.count() if turn % 2 else sequences[producer]
        end(
            slot,
            *((producer, epochs[producer], turn, (producer + turn) % 4 == 0, 2 * (turn % 2)) for producer in ended),
        )
    data, source = broker.log_bytes(slot), broker.table.path(slot)
    model, at, copy = Model(), 0, tmp_path / "copy"
    ends = [0]
    while at < len(data):
        ends.append(read_batch(data, at)[1])
        at = ends[-1]
    for start, stop in zip(ends, [*ends[1:], len(data)], strict=True):
        for cut in {start, (start + stop) // 2}:
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(source, copy)
            (copy / f"{0:020d}.log").write_bytes(data[:cut])
            loaded = load_log(copy, 0, 0, False)
            found = {
                one.producer_id: (one.producer_epoch, one.coordinator_epoch, one.current_txn_first_offset)
                for one in loaded.producers
            }
            assert found == {
                number: (known.epoch, known.coordinator_epoch, known.transaction_first)
                for number, known in model.producers.items()
            }
            assert aborted(copy) == model.aborted
            assert loaded.first_open_txn_offset == min(model.open_offsets(), default=-1)
        if stop > start:
            model.take(data[start:stop])


def test_a_marker_that_names_a_first_offset_ends_only_that_transaction(broker: OneBroker) -> None:
    slot = broker.create("t")
    allow(slot)
    (first,) = begin(slot, PRODUCER)
    assert end(slot, (PRODUCER, 0, 1, False, 0, first + 1)) == [(WRONG_STATE, -1)]
    assert end(slot, (BOB, 0, 1, False, 0, first)) == [(WRONG_STATE, -1)], "of a producer that is not known"
    ((error, offset),) = end(slot, (PRODUCER, 0, 1, False, 0, first))
    assert (error, offset) == (0, first + 1)
    assert end(slot, (PRODUCER, 0, 1, False, 0, first)) == [(WRONG_STATE, -1)], "nothing is open any more"


def test_wrong_values_of_a_marker_do_not_harm_others(broker: OneBroker) -> None:
    slot = broker.create("t")
    allow(slot)
    begin(slot, PRODUCER)
    assert end(slot, (-1, 0, 1, True, 0), (PRODUCER, 0, 1, True, -5), (-8, 0, 1, True, 500)) == [
        (49, -1),
        (0, 1),
        (49, -1),
    ]
