"""The end markers that the coordinator writes to partitions of this broker: together, in order, and acknowledged when all
in-sync replicas have them.
"""

from types import SimpleNamespace
from typing import Any

import pytest

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import slots
from odradek._ext.partition.flusher import Flusher
from odradek._ext.partition.slot_access import AppendResult
from odradek._ext.testing import slot_probe
from odradek.coordination.environment import EndMarker
from odradek.processes.coordinator.internal_topics.coordinator_log import AppendTurn, CoordinatorLog
from odradek.processes.coordinator.transactions import marker_logs
from odradek.processes.coordinator.transactions.marker_logs import MarkerLogs
from odradek.protocol.errors import ErrorCode
from odradek.storage.batch import TRANSACTIONAL, read_batches
from tests.processes.coordinator.internal_topics.test_coordinator_log import HandLoop
from tests.shm.one_broker import OneBroker, batch

NONE = ErrorCode.NONE
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
PRODUCERS = (7, 8, 9)


class Bench:
    """The markers of a broker with the topics `orders` (this broker is its only replica) and `shared` (with a follower).

    :ivar told: what was called back, in order. :ivar writes: the producer ids of each write, by slot.
    """

    def __init__(self, broker: OneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broker = broker
        self.loop: Any = HandLoop()
        self.turn = AppendTurn(self.loop)
        self.flusher = Flusher()
        self.slots = {"orders": broker.create("orders"), "shared": broker.create("shared", alone=False)}
        topics: Any = {
            name: SimpleNamespace(exists=(0).__eq__, slot=lambda partition, slot=slot: slot)
            for name, slot in self.slots.items()
        }
        self.logs = MarkerLogs(topics, self.turn, self._make_log)
        self.told: list[Any] = []
        self.writes: list[tuple[int, list[int]]] = []
        self.busy = False
        self.append_markers = slots.append_markers
        monkeypatch.setattr(slots, "append_markers", self._append)

    def _make_log(self, place: tuple[int, int, int]) -> CoordinatorLog:
        return CoordinatorLog(
            self.loop, self.turn, place, 0, 1 << 20, 5000, self.flusher, not_written=ErrorCode.NOT_ENOUGH_REPLICAS
        )

    def _append(self, slot: int, incarnation: int, epoch: int, markers: Any) -> Any:
        if self.busy:
            raise slots.SlotChanged("busy", AppendResult.APPEND_BUSY)
        self.writes.append((slot, [marker.producer_id for marker in markers]))
        return self.append_markers(slot, incarnation, epoch, markers)

    def begin(self, topic: str, *producers: int) -> None:
        """Open a transaction of each producer."""
        for producer in producers:
            records = batch(1, producer_id=producer, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)
            assert slot_probe.append(self.slots[topic], [records])[0][0] == 0

    def put(self, topic: str, producer: int, epoch: int = 0, partition: int = 0, version: int = 0) -> None:
        end = EndMarker(producer, epoch, 1, True, version)
        self.logs.put(topic, partition, end, lambda code: self.told.append((producer, code)))

    def markers(self, topic: str) -> list[int]:
        """The producer ids of the markers in the log."""
        return [one.producer_id for one in read_batches(self.broker.log_bytes(self.slots[topic])) if one.is_control]

    def replicate(self, topic: str, offset: int) -> None:
        slots.raise_high_watermark(self.slots[topic], offset)
        self.logs.look([self.slots[topic]])


@pytest.fixture
def bench(tmp_path, monkeypatch):
    with OneBroker(tmp_path) as broker:
        made = Bench(broker, monkeypatch)
        yield made
        made.flusher.close()  # its threads use the broker's memory


def test_the_markers_of_one_turn_for_one_partition_are_one_write(bench):
    bench.begin("orders", *PRODUCERS)
    bench.begin("shared", 7)
    for producer in PRODUCERS:
        bench.put("orders", producer)
    bench.put("shared", 7)
    assert not bench.told
    bench.turn.run()
    assert bench.writes == [(bench.slots["orders"], [7, 8, 9]), (bench.slots["shared"], [7])]
    assert bench.told == [(7, NONE), (8, NONE), (9, NONE)], "the follower of `shared` does not have the marker"
    assert bench.markers("orders") == [7, 8, 9]


def test_many_markers_are_several_writes(bench, monkeypatch):
    monkeypatch.setattr(marker_logs, "MAX_MARKERS", 2)
    bench.begin("orders", *PRODUCERS)
    for producer in PRODUCERS:
        bench.put("orders", producer)
    bench.turn.run()
    assert [producers for _, producers in bench.writes] == [[7, 8], [9]]
    assert bench.told == [(7, NONE), (8, NONE), (9, NONE)]


def test_a_marker_that_is_refused_does_not_affect_the_others(bench):
    bench.begin("orders", *PRODUCERS)
    bench.put("orders", 7)
    bench.put("orders", 8, epoch=3)
    bench.put("orders", 9)
    bench.turn.run()
    bench.put("orders", 8, epoch=1)
    bench.turn.run()
    assert bench.told == [(7, NONE), (8, NONE), (9, NONE), (8, ErrorCode.INVALID_PRODUCER_EPOCH)]


def test_partitions_that_do_not_exist_or_have_another_leader(bench):
    bench.put("missing", 7)
    bench.put("orders", 8, partition=1)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert bench.told == [(7, unknown), (8, unknown)]
    bench.put("shared", 9)
    bench.broker.obey(bench.slots["shared"], 1)
    bench.turn.run()
    assert bench.told[2:] == [(9, NOT_LEADER)]


def test_a_new_epoch_of_the_same_leader_fails_no_marker(bench):
    bench.broker.lead(bench.slots["shared"], 1, alone=False)
    bench.begin("shared", *PRODUCERS)
    bench.put("shared", 7)
    bench.turn.run()
    bench.broker.lead(bench.slots["shared"], 2, alone=False)
    bench.put("shared", 8)
    bench.turn.run()
    bench.logs.look_at_all()
    assert not bench.told and bench.markers("shared") == [7, 8]
    bench.broker.lead(bench.slots["shared"], 3)
    bench.logs.look_at_all()
    assert bench.told == [(7, NONE), (8, NONE)]


def test_markers_wait_for_the_high_watermark_and_later_ones_behind_them(bench):
    bench.begin("shared", *PRODUCERS)
    bench.put("shared", 7)
    bench.put("shared", 8)
    bench.turn.run()
    bench.put("shared", 9)
    bench.turn.run()
    assert bench.told == []
    assert bench.markers("shared") == [7, 8, 9]
    bench.replicate("shared", 5)
    assert bench.told == [(7, NONE), (8, NONE)]
    bench.replicate("shared", 6)
    assert bench.told == [(7, NONE), (8, NONE), (9, NONE)]


def test_a_repeated_marker_waits_for_the_first_one(bench):
    """Another coordinator wrote the first one; it may be lost with this leader."""
    bench.begin("shared", 7)
    slot = bench.slots["shared"]
    ends = [EndMarker(7, 1, 1, True, 2)]
    assert bench.append_markers(slot, slot_probe.incarnation_of(slot), -1, ends) == [(0, 1)]
    bench.put("shared", 7, epoch=1, version=2)
    bench.turn.run()
    bench.replicate("shared", 1)
    assert bench.told == []
    bench.replicate("shared", 2)
    assert bench.told == [(7, NONE)]
    assert slot_facts.describe(slot).log_end_offset == 2


def test_a_lock_that_is_not_free_delays_markers_and_keeps_their_order(bench):
    bench.begin("orders", *PRODUCERS)
    bench.busy = True
    for producer in PRODUCERS:
        bench.put("orders", producer)
        bench.turn.run()
    bench.loop.advance(100)
    assert bench.told == []
    bench.busy = False
    bench.loop.advance(1)
    assert bench.told == [(7, NONE), (8, NONE), (9, NONE)]
    assert bench.markers("orders") == [7, 8, 9]
    bench.logs.look_at_all()
    assert not bench.logs._logs, "nothing waits"


def test_too_few_replicas_refuse_markers(bench, monkeypatch):
    bench.begin("orders", 7)
    monkeypatch.setattr(slots, "has_min_in_sync", lambda slot, maximal=False: False)
    bench.put("orders", 7)
    bench.turn.run()
    assert (bench.told, bench.writes) == ([(7, ErrorCode.NOT_ENOUGH_REPLICAS)], [])
    monkeypatch.setattr(slots, "has_min_in_sync", lambda slot, maximal=False: not maximal)
    bench.put("orders", 7)
    bench.turn.run()
    assert bench.told[1:] == [(7, ErrorCode.NOT_ENOUGH_REPLICAS)], "written, and not acknowledged"


def test_an_internal_error_concerns_one_partition(bench, monkeypatch, caplog):
    bench.begin("orders", 7)
    bench.begin("shared", 8)

    def fails(slot, *rest):
        if slot == bench.slots["shared"]:
            raise MemoryError("as if memory were short")
        return bench.append_markers(slot, *rest)

    monkeypatch.setattr(slots, "append_markers", fails)
    bench.put("shared", 8)
    bench.put("orders", 7)
    bench.turn.run()
    assert bench.told == [(8, ErrorCode.UNKNOWN_SERVER_ERROR), (7, NONE)]
    assert "internal error" in caplog.text


def test_a_log_that_cannot_be_made_concerns_one_partition(bench, monkeypatch):
    bench.begin("orders", 7)
    bench.begin("shared", 8)

    def fails(place):
        raise MemoryError("as if memory were short")

    make_log = bench.logs._make_log
    bench.logs._make_log = fails
    bench.put("shared", 8)
    bench.put("orders", 7)
    bench.turn.run()
    assert bench.told == [(8, ErrorCode.UNKNOWN_SERVER_ERROR), (7, NONE)]
    bench.logs.look_at_all()
    bench.logs._make_log = make_log
    bench.put("shared", 8)
    bench.turn.run()
    bench.replicate("shared", slot_facts.describe(bench.slots["shared"]).log_end_offset)
    assert bench.told[2:] == [(8, NONE)], "nothing is left of the first attempt"


def test_a_callback_that_raises_does_not_prevent_the_others(bench, caplog):
    bench.begin("orders", *PRODUCERS)

    def broken(code: ErrorCode) -> None:
        raise RuntimeError("a broken callback")

    bench.logs.put("orders", 0, EndMarker(7, 0, 1, True, 0), broken)
    bench.put("orders", 8)
    bench.turn.run()
    assert bench.told == [(8, NONE)]
    assert "a broken callback" in caplog.text


def test_the_markers_that_wait_fail_at_the_close(bench):
    bench.begin("shared", 7)
    bench.put("shared", 7)
    bench.turn.run()
    bench.put("orders", 8)
    bench.logs.close()
    assert sorted(bench.told) == [(7, NOT_LEADER), (8, NOT_LEADER)]
    bench.turn.run()
    assert len(bench.told) == 2
