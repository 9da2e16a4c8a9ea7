"""Produce after a pause of the whole broker, or of its coordinator alone, step by step: what a leader that may be deposed must
not acknowledge [R 12]."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import roles
from odradek._ext.shm import pauses
from odradek._ext.testing import replica_probe, slot_probe
from odradek.api.cluster_brokers import ClusterBrokers
from odradek.api.replicas import ReplicaView
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import produce
from tests.api.cluster_calls import CLIENTS
from tests.api.worker_harness import HandWorker, nothing_came
from tests.wire import Wire, batch, produce_request

LEADER, FOLLOWER, VERSION = 1, 2, 12
TIMEOUT_MS = 1_000_000
"""A session timeout in comparison with which a test takes no time."""


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[HandWorker]:
    hand_worker = HandWorker(tmp_path, replicas=ReplicaView(ClusterBrokers([CLIENTS]), LEADER, None))
    replica_probe.cluster([LEADER, FOLLOWER])
    pauses.begin(TIMEOUT_MS, pauses.clock_ms())
    yield hand_worker
    hand_worker.close()


@pytest.fixture
def slot(worker: HandWorker) -> int:
    """A partition of two replicas that this broker leads."""
    slot = worker.create("t", alone=False)
    worker.broker.lead(slot, 0, alone=False)
    return slot


class Pause:
    """Processes of the broker do not run for a long time; nobody has noticed it yet."""

    def __init__(self, coordinator_alone: bool) -> None:
        self._coordinator_alone = coordinator_alone

    def __call__(self) -> None:
        before_ms = pauses.clock_ms() - TIMEOUT_MS
        if self._coordinator_alone:
            replica_probe.keep_session(before_ms)
        else:
            pauses.begin(TIMEOUT_MS, before_ms)

    def note(self) -> int:
        """The supervisor and the coordinator run again, and note the pause. Returns its length in ms."""
        now_ms = pauses.clock_ms()
        return max(pauses.beat(now_ms), pauses.session_beat(now_ms))

    def confirm(self) -> None:
        """The pause is noted, and a round trip to ZooKeeper ends."""
        assert self.note() >= TIMEOUT_MS
        pauses.confirm(pauses.clock_ms())


@pytest.fixture(params=[False, True], ids=["the broker", "the coordinator alone"])
def pause(request: pytest.FixtureRequest) -> Pause:
    return Pause(request.param)


def send(worker: HandWorker, wire: Wire, *, acks: int = 1, topic: str = "t", **fields: Any) -> None:
    wire.send(produce_request([(topic, [(0, batch(b"x", **fields))])], acks=acks), produce.API_KEY, VERSION)
    worker.turn()


def answer(wire: Wire) -> tuple[int, int]:
    """(error code, base offset)."""
    (topic,) = wire.receive().responses
    (part,) = topic.partition_responses
    return part.error_code, part.base_offset


def log_end(slot: int) -> int:
    return int(slot_facts.describe(slot).log_end_offset)


@pytest.mark.parametrize("noticed", [False, True], ids=["by the worker first", "noted first"])
def test_nothing_is_appended_after_a_pause_until_it_is_confirmed(
    worker: HandWorker, slot: int, noticed: bool, pause: Pause
) -> None:
    wire = worker.connect()
    pause()
    if noticed:
        pause.note()
    send(worker, wire)
    assert answer(wire) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert log_end(slot) == 0
    pause.note()
    pauses.confirm(pauses.clock_ms())
    send(worker, wire)
    assert answer(wire) == (0, 0)


def test_acks_0_closes_the_connection_after_a_pause(worker: HandWorker, slot: int, pause: Pause) -> None:
    wire = worker.connect()
    pause()
    send(worker, wire, acks=0)
    assert wire.closed_by_broker()
    assert log_end(slot) == 0


def test_acks_all_is_decided_by_the_followers_as_ever(worker: HandWorker, slot: int, pause: Pause) -> None:
    wire = worker.connect()
    pause()
    send(worker, wire, acks=-1)
    assert log_end(slot) == 1 and nothing_came(wire)
    assert replica_probe.note_fetch(slot, FOLLOWER, 0) == 0
    assert replica_probe.note_fetch(slot, FOLLOWER, 1) == 0
    worker.turn()
    assert answer(wire) == (0, 0)


def test_a_partition_without_other_replicas_has_no_other_leader(worker: HandWorker, pause: Pause) -> None:
    slot = worker.create("alone")
    roles.become_leader(
        slot, slot_probe.incarnation_of(slot), leader_id=LEADER, leader_epoch=1, partition_epoch=1, controller_epoch=1,
        replicas=[LEADER], in_sync=[LEADER],
    )  # fmt: skip
    wire = worker.connect()
    pause()
    send(worker, wire, topic="alone")
    assert answer(wire) == (0, 0)


def test_a_broker_without_a_cluster_does_not_look_for_pauses(tmp_path: Path, pause: Pause) -> None:
    worker = HandWorker(tmp_path)
    try:
        worker.create("t", alone=False)
        pause()
        wire = worker.connect()
        send(worker, wire)
        assert answer(wire) == (0, 0)
    finally:
        worker.close()


def test_a_pause_between_the_check_and_the_append_is_found_after_it(
    worker: HandWorker, slot: int, pause: Pause
) -> None:
    wire = worker.connect()
    send(worker, wire, codec=1)  # for the append thread
    pause()
    worker.append()
    assert answer(wire) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert log_end(slot) == 1, "the check before the append did not find it"


def test_a_pause_that_is_confirmed_before_the_second_check_refuses_nothing(
    worker: HandWorker, slot: int, pause: Pause
) -> None:
    wire = worker.connect()
    send(worker, wire, codec=1)
    pause()
    pause.confirm()
    worker.append()
    assert answer(wire) == (0, 0)


@pytest.mark.parametrize("again", [False, True], ids=["", "and leads again"])
def test_an_append_as_a_deposed_leader_is_not_acknowledged_when_the_pause_is_confirmed(
    worker: HandWorker, slot: int, again: bool, pause: Pause
) -> None:
    wire = worker.connect()
    send(worker, wire, codec=1)
    pause()
    (pending,) = worker.offloaded
    while worker.step(pending):
        pass
    assert log_end(slot) == 1, "appended after the pause, in the former role"
    assert roles.give_up_leadership(slot)
    if again:
        worker.broker.lead(slot, 1, alone=False)
    pause.confirm()  # the registration was lost, and the broker is registered again
    worker.append()
    assert answer(wire) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
