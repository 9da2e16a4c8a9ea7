"""A kill between every two steps of marks, markers, and the list of open transactions.

Needs the debug build, and runs in its copy of the project: ``make test-faults``.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import slots
from odradek._ext.shm.faults import FaultPoint
from odradek._ext.testing import slot_probe
from odradek.storage.batch import read_batches
from tests.shm.fault_build import require_fault_points
from tests.shm.model import Model
from tests.shm.one_broker import OneBroker, batch
from tests.shm.test_transactions import PRODUCER, aborted, allow, begin, end, offered, transactional

pytestmark = pytest.mark.faults
require_fault_points()

MARKERS_WRITTEN = [
    FaultPoint.APPEND_LOCKED,
    FaultPoint.MARKERS_RESERVED,
    FaultPoint.APPEND_LOG_WRITTEN,
    FaultPoint.APPEND_TXN_INDEX_WRITTEN,
    FaultPoint.APPEND_INDEX_WRITTEN,
    FaultPoint.APPEND_BLOCK_FILLED,
]
MARKERS_APPLIED = [
    FaultPoint.APPEND_COMMITTED,
    FaultPoint.UNREPLICATED_HALF_STORED,
    FaultPoint.TRANSACTION_UNREPLICATED,
    FaultPoint.TRANSACTION_ENDED,
    FaultPoint.TRANSACTION_HALF_DELISTED,
    FaultPoint.PRODUCER_MARKER_HALF_STORED,
    FaultPoint.UNSTABLE_HALF_STORED,
    FaultPoint.APPEND_PRODUCER_APPLIED,
    FaultPoint.APPEND_APPLIED,
    FaultPoint.APPEND_RECENT_HALF_WRITTEN,
    FaultPoint.APPEND_BEFORE_UNLOCK,
    FaultPoint.APPEND_UNLOCKED,
    FaultPoint.APPEND_WOKEN,
]
RECOVERY = [FaultPoint.RECOVER_STARTED, FaultPoint.RECOVER_APPLIED_ONE, FaultPoint.RECOVER_BEFORE_CONSISTENT]
FIRST_BATCH = [
    FaultPoint.TRANSACTION_OPENED,
    FaultPoint.TRANSACTION_HALF_LISTED,
    FaultPoint.PRODUCER_BATCH_STORED,
    FaultPoint.UNSTABLE_HALF_STORED,
    FaultPoint.APPEND_APPLIED,
]
OPENED = (5, 3, 9, 1, 7)
MARKERS = [(3, 0, 1, False, 0), (5, 1, 1, False, 2), (8, 0, 1, True, 0), (7, 0, 1, True, 0), (1, 0, 1, False, 0)]
"""Aborts and commits, of the oldest transaction and of others, and of a producer that the partition does not know."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    data = tmp_path / "data"
    data.mkdir()
    with OneBroker(data, processes=3) as made:
        yield made


def touch(slot: int) -> None:
    """Take the slot's lock; this recovers the slot if the owner of its lock is dead."""
    slots.active_producers(slot)


def model_of(broker: OneBroker, slot: int, high_watermark: int) -> Model:
    """The state by Kafka's rules that belongs to the log, if the high watermark was the same all the time."""
    model = Model()
    model.high_watermark = high_watermark
    data, at = broker.log_bytes(slot), 0
    for one in read_batches(data):
        size = 61 + len(one.payload)
        model.take(data[at : at + size])
        at += size
    return model


def check(broker: OneBroker, slot: int) -> int:
    """Producers, open transactions, the last stable offset, its position and the index agree with the log; the log's end."""
    touch(slot)
    found = slot_facts.describe(slot)
    model = model_of(broker, slot, found.high_watermark)
    assert found.log_end_offset == model.log_end
    assert slot_probe.producers(slot) == model.producers_shown()
    opened = slots.transactions_of(slot)
    assert [one["first_offset"] for one in opened] == model.open_offsets()
    assert [one["producer_id"] for one in opened] == sorted(
        (number for number, known in model.producers.items() if known.transaction_first >= 0),
        key=lambda number: model.producers[number].transaction_first,
    )
    assert found.first_unstable_offset == min(model.open_offsets(), default=-1)
    if opened:
        data = (broker.table.path(slot) / f"{found.unstable_base:020d}.log").read_bytes()
        first = next(read_batches(data[found.unstable_position :]))
        assert first.base_offset == found.first_unstable_offset
    else:
        assert (found.unstable_base, found.unstable_position) == (-1, -1)
    assert found.last_stable_offset == model.last_stable_of_kafka
    assert aborted(broker.table.path(slot)) == model.aborted
    assert found.newest_abort_offset >= max((last for _, _, last, _ in model.aborted), default=-1)
    return model.log_end


def begun(broker: OneBroker, alone: bool) -> int:
    slot = broker.create(alone=alone, index_interval_bytes=1, segment_ms=1 << 62)
    begin(slot, *OPENED)
    slot_probe.append(slot, [batch()])
    if not alone:
        slots.raise_high_watermark(slot, 3)
    broker.lead(slot, 1, alone=alone)
    return slot


def repeat(slot: int) -> list[tuple[int, int]]:
    """Repeat the markers, as a coordinator does that received no answer."""
    return end(slot, *MARKERS)


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "replicated"])
@pytest.mark.parametrize("point", MARKERS_WRITTEN, ids=lambda point: point.name)
def test_markers_that_were_not_committed_leave_no_trace(broker: OneBroker, point: FaultPoint, alone: bool) -> None:
    slot = begun(broker, alone)
    before = broker.log_bytes(slot)
    broker.die(lambda: repeat(slot), point)
    assert check(broker, slot) == 6
    assert broker.log_bytes(slot) == before
    assert repeat(slot) == [(0, 6), (0, 7), (0, 8), (0, 9), (0, 10)]
    assert check(broker, slot) == 11
    assert [one["producer_id"] for one in slots.transactions_of(slot)] == [9]


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "replicated"])
@pytest.mark.parametrize("countdown", [1, 2, 4])
@pytest.mark.parametrize("point", MARKERS_APPLIED, ids=lambda point: point.name)
def test_markers_that_were_committed_are_applied(
    broker: OneBroker, point: FaultPoint, countdown: int, alone: bool
) -> None:
    once = point.name.startswith("APPEND_") and point != FaultPoint.APPEND_PRODUCER_APPLIED
    if (countdown > 1 and once) or (alone and point == FaultPoint.UNREPLICATED_HALF_STORED):
        return  # it is not reached
    if countdown > 1 and point == FaultPoint.UNSTABLE_HALF_STORED:
        return  # the oldest transaction changes once
    slot = begun(broker, alone)
    broker.die(lambda: repeat(slot), point, countdown=countdown)
    assert check(broker, slot) == 11
    assert slot_facts.describe(slot).lock_recoveries == (point not in MARKERS_APPLIED[-2:])
    # Those of version 0 are appended again, as Kafka does; that of version 2 is known.
    assert repeat(slot) == [(0, 11), (0, -1), (0, 12), (0, 13), (0, 14)]
    assert check(broker, slot) == 15
    slots.raise_high_watermark(slot, 15)
    assert check(broker, slot) == 15
    assert slot_facts.describe(slot).last_stable_offset == 2


@pytest.mark.parametrize("point", RECOVERY, ids=lambda point: point.name)
@pytest.mark.parametrize("during", [FaultPoint.TRANSACTION_ENDED, FaultPoint.TRANSACTION_HALF_DELISTED])
def test_a_recovery_may_be_killed_too(broker: OneBroker, during: FaultPoint, point: FaultPoint) -> None:
    slot = begun(broker, False)
    broker.die(lambda: repeat(slot), during, countdown=2)
    broker.die(lambda: touch(slot), point, place=2)
    assert check(broker, slot) == 11


@pytest.mark.parametrize("known", ["unknown", "marked", "known"])
@pytest.mark.parametrize("point", FIRST_BATCH, ids=lambda point: point.name)
def test_the_first_batch_of_a_transaction_opens_it_wherever_its_writer_dies(
    broker: OneBroker, point: FaultPoint, known: str
) -> None:
    if known == "unknown" and point == FaultPoint.TRANSACTION_HALF_LISTED:
        point = FaultPoint.PRODUCER_KEY_STORED
    slot = begun(broker, True)
    sequence = 0
    if known == "known":
        slot_probe.append(slot, [batch(producer_id=PRODUCER + 100, producer_epoch=0, base_sequence=0)])
        sequence = 1
    elif known == "marked":
        assert allow(slot, PRODUCER + 100) == 0
    end(slot, (5, 0, 1, True, 0), (3, 0, 1, True, 0), (9, 0, 1, True, 0), (1, 0, 1, True, 0), (7, 0, 1, True, 0))
    before = slot_facts.describe(slot).log_end_offset
    opened = transactional(PRODUCER + 100, 0, sequence)
    broker.die(lambda: slot_probe.append(slot, [opened]), point)
    assert check(broker, slot) == before + 1
    assert slot_probe.append(slot, [opened]) == [(0, before, True)]
    assert slot_facts.describe(slot).last_stable_offset == before


def test_a_first_batch_that_was_not_committed_opens_nothing(broker: OneBroker) -> None:
    slot = begun(broker, True)
    broker.die(lambda: begin(slot, 200), FaultPoint.APPEND_LOG_WRITTEN)
    assert check(broker, slot) == 6


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("point", [FaultPoint.PRODUCER_MARK_STORED, FaultPoint.PRODUCER_KEY_STORED])
def test_a_mark_is_set_or_missing_wherever_its_writer_dies(broker: OneBroker, point: FaultPoint, known: bool) -> None:
    if known and point == FaultPoint.PRODUCER_KEY_STORED:
        return  # it is not reached
    slot = begun(broker, True)
    if known:
        slot_probe.append(slot, [batch(producer_id=100, producer_epoch=0, base_sequence=0)])
    broker.die(lambda: allow(slot, 100), point)
    touch(slot)
    if point == FaultPoint.PRODUCER_MARK_STORED and not known:
        assert offered(slot, 100) != 0
        assert allow(slot, 100) == 0
    assert offered(slot, 100, sequence=int(known)) == 0
    assert slots.transactions_of(slot)[-1]["producer_id"] == 100
    check(broker, slot)


def test_a_mark_that_a_dead_process_had_cleared_is_cleared(broker: OneBroker) -> None:
    """The redo does not know the transaction.version of a marker, so it also clears the mark of the next transaction."""
    slot = begun(broker, True)
    assert allow(slot, 5, epoch=1) == 0
    broker.die(lambda: end(slot, (5, 1, 1, True, 2)), FaultPoint.APPEND_COMMITTED)
    assert check(broker, slot) == 7
    assert offered(slot, 5, epoch=1) == 48
    assert allow(slot, 5, epoch=1) == 0
    assert offered(slot, 5, epoch=1) == 0


@pytest.mark.parametrize(
    "point",
    [
        FaultPoint.PRODUCER_RUN_FILLED,
        FaultPoint.PRODUCER_HALF_LISTED,
        FaultPoint.PRODUCER_KEY_STORED,
        FaultPoint.TRANSACTION_HALF_LISTED,
    ],
    ids=lambda point: point.name,
)
@pytest.mark.parametrize("countdown", [1, 3])
def test_the_list_survives_a_death_during_the_growth_of_the_memory(
    broker: OneBroker, point: FaultPoint, countdown: int
) -> None:
    slot = begun(broker, True)
    order = [1000 + number * 37 % 101 for number in range(101)]
    broker.die(lambda: begin(slot, *order), point, countdown=countdown)
    check(broker, slot)
    for producer in order:
        slot_probe.append(slot, [transactional(producer)])
    check(broker, slot)
    assert [one["producer_id"] for one in slots.transactions_of(slot)] == [*OPENED, *order]


def test_markers_of_one_call_are_one_commit(broker: OneBroker) -> None:
    """The child is alive after the first commit of 64 markers, and dies in the second one, which has the others."""
    slot = broker.create(segment_ms=1 << 62)
    producers = range(100)
    begin(slot, *producers)
    ending: Callable[[], object] = lambda: end(slot, *((number, 0, 0, True, 0) for number in producers))  # noqa: E731
    broker.die(ending, FaultPoint.APPEND_LOG_WRITTEN, countdown=2)
    assert check(broker, slot) == 164
    assert ending() == [(0, 164 + number) for number in producers]
    assert check(broker, slot) == 264


def test_a_follower_joins_markers_and_recovers_them(broker: OneBroker, tmp_path: Path) -> None:
    leader, follower = begun(broker, True), broker.create("follower", segment_ms=1 << 62)
    repeat(leader)
    broker.obey(follower, 2)
    data = broker.log_bytes(leader)
    for point in (FaultPoint.APPEND_TXN_INDEX_WRITTEN, FaultPoint.TRANSACTION_ENDED):
        broker.die(lambda data=data: slots.follow(follower, data, 2), point)
        touch(follower)
        found = slot_facts.describe(follower).log_end_offset
        data = b"".join(part for part in parts(broker.log_bytes(leader)) if int.from_bytes(part[:8], "big") >= found)
    slots.follow(follower, data, 2)
    assert broker.log_bytes(follower) == broker.log_bytes(leader)
    assert check(broker, follower) == 11
    assert slots.transactions_of(follower) == slots.transactions_of(leader)


def parts(data: bytes) -> Iterator[bytes]:
    at = 0
    for one in read_batches(data):
        size = 61 + len(one.payload)
        yield data[at : at + size]
        at += size
