"""Changes of in-sync replicas: what is proposed, and what each decision of the controller, a lost response, a successor of the
coordinator, and a newer state of the controller lead to."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.protocol import decode, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import alter_partition
from odradek.replication import in_sync
from odradek.replication.in_sync import InSyncKeeper, Proposal, View

TOPIC = bytes(15) + b"M"
SELF = 1
LAG_MS = 30_000


class SlotChanged(Exception):
    """The slot of the test has another role."""


class SlotBusy(Exception):
    """The lock of the slot is held for long."""


@dataclass
class Slot:
    """The state of a led partition. ``caught_up`` and ``lagging``: what the followers do."""

    partition: int
    leader_epoch: int = 5
    partition_epoch: int = 0
    in_sync: list[int] = field(default_factory=lambda: [1, 2, 3])
    replicas: list[int] = field(default_factory=lambda: [1, 2, 3])
    lagging: set[int] = field(default_factory=set)
    proposed: list[int] | None = None
    serial: int = 0
    view: View = field(default_factory=lambda: View(SELF, 5, 0, [1, 2, 3]))
    led: bool = True

    @property
    def maximal(self) -> list[int]:
        return sorted({*self.in_sync, *(self.proposed or [])})


class Verbs:
    """The operations on slots, on `Slot` objects. ``busy``: how often the lock of a slot is held, by its number; by None: that
    of any slot."""

    def __init__(self, slots: dict[int, Slot]) -> None:
        self.slots = slots
        self.busy: dict[int | None, int] = {}

    def _lock(self, number: int) -> Slot:
        for key in (number, None):
            if self.busy.get(key, 0) > 0:
                self.busy[key] -= 1
                raise SlotBusy(f"the lock of slot {number} is held")
        return self.slots[number]

    def _proposal(self, slot: Slot, wanted: list[int]) -> Proposal | None:
        if not slot.led or slot.proposed is not None or wanted == slot.in_sync:
            return None
        return proposal(slot, wanted)

    def expansion_of(self, number: int) -> Proposal | None:
        slot = self._lock(number)
        joining = [broker for broker in slot.replicas if broker not in slot.in_sync and broker not in slot.lagging]
        return self._proposal(slot, slot.in_sync + joining)

    def lagging_of(self, number: int, lag_ms: int) -> Proposal | None:
        slot = self._lock(number)
        return self._proposal(slot, [broker for broker in slot.in_sync if broker not in slot.lagging])

    def lagging_slots(self, lag_ms: int) -> list[int]:
        return [number for number, slot in self.slots.items() if slot.led and slot.lagging & set(slot.in_sync)]

    def pending(self) -> list[int]:
        return [number for number, slot in self.slots.items() if slot.proposed is not None]

    def under_way(self, number: int) -> tuple[int, Proposal] | None:
        slot = self._lock(number)
        return None if slot.proposed is None or not slot.led else (slot.serial, proposal(slot, slot.proposed))

    def propose(self, number: int, proposal: Proposal) -> int:
        slot = self._lock(number)
        if not slot.led or proposal.leader_epoch != slot.leader_epoch:
            raise SlotChanged
        slot.proposed = proposal.in_sync
        slot.serial += 1
        return slot.serial

    def commit(self, number: int, serial: int, proposal: Proposal, members: Any, partition_epoch: int) -> bool:
        slot = self._lock(number)
        if serial != slot.serial or proposal.leader_epoch != slot.leader_epoch or not slot.led:
            return False
        slot.in_sync, slot.partition_epoch, slot.proposed = list(members), partition_epoch, None
        return True

    def revert(self, number: int, serial: int, proposal: Proposal) -> bool:
        slot = self._lock(number)
        if serial != slot.serial:
            return False
        slot.proposed = None
        return True

    def name_of(self, number: int) -> tuple[str, bytes, int]:
        return "orders", TOPIC, self.slots[number].partition

    def view_of(self, number: int) -> View:
        return self.slots[number].view


def proposal(slot: Slot, members: list[int]) -> Proposal:
    """A change to `members`; those that join fetched in broker epoch 40 + broker id."""
    epochs = [-1 if broker in slot.in_sync else 40 + broker for broker in members]
    return Proposal(1, slot.leader_epoch, slot.partition_epoch, slot.in_sync, members, epochs)


class Wire:
    """The way to the controller: holds the request under way until the test answers it."""

    def __init__(self, version: int = 3) -> None:
        self.version = version
        self.request: Any = None
        self.then: Callable[[Any], None] | None = None
        self.timers: list[Callable[[], None]] = []

    def send(self, make: Callable[[int], Any], then: Callable[[Any], None]) -> None:
        assert self.then is None, "two requests are under way"
        message = make(self.version)
        self.request, _ = decode(alter_partition.Request, self.version, encode(message, self.version), 0)
        self.then = then

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        self.timers.append(action)

    def fire(self) -> None:
        timers, self.timers = self.timers, []
        for action in timers:
            action()

    def answer(self, outcome: Any) -> None:
        if not isinstance(outcome, Exception):
            outcome, _ = decode(alter_partition.Response, self.version, encode(outcome, self.version), 0)
        then, self.then, self.request = self.then, None, None
        assert then is not None
        then(outcome)


def proposed_of(request: Any) -> dict[int, list[int]]:
    """The proposed in-sync replicas by partition."""
    return {
        partition.partition_index: [state.broker_id for state in partition.new_isr_with_epochs] or partition.new_isr
        for topic in request.topics
        for partition in topic.partitions
    }


def response(version: int, *rows: tuple[int, int, int, int, list[int], int]) -> Any:
    """A response. :param rows: (partition, error, leader, leader epoch, in-sync replicas, partition epoch)."""
    topic = alter_partition.Response
    partitions = [
        topic.PartitionData(
            partition_index=partition, error_code=error, leader_id=leader, leader_epoch=epoch, isr=members,
            partition_epoch=partition_epoch,
        )
        for partition, error, leader, epoch, members, partition_epoch in rows
    ]  # fmt: skip
    named = topic.TopicData(topic_id=TOPIC) if version >= 2 else topic.TopicData(topic_name="orders")
    named.partitions = partitions
    return alter_partition.Response(topics=[named])


class Clock:
    """The monotonic clock."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def keeper_of(
    slots: dict[int, Slot], wire: Wire, verbs: Verbs | None = None, clock: Callable[[], float] | None = None
) -> InSyncKeeper:
    return InSyncKeeper(
        verbs or Verbs(slots), wire.send, wire.later, SELF, lambda: 4, SlotChanged, SlotBusy, clock or Clock()
    )


def refused(*partitions: int) -> Any:
    return response(3, *((number, ErrorCode.INELIGIBLE_REPLICA, -1, -1, [], -1) for number in partitions))


def test_a_refused_follower_is_proposed_again_after_a_while(caplog: pytest.LogCaptureFixture) -> None:
    slots, wire, clock = {0: Slot(0, in_sync=[1, 2])}, Wire(), Clock()
    keeper = keeper_of(slots, wire, clock=clock)
    caplog.set_level(logging.INFO)
    proposals = 0
    for fetch in range(460):  # ten seconds of a follower that fetches 46 times a second
        clock.now = 100 + fetch / 46
        keeper.look([0])
        if wire.then is not None:
            assert proposed_of(wire.request) == {0: [1, 2, 3]}
            proposals += 1
            wire.answer(refused(0))
    assert proposals == 4
    assert len(caplog.records) == 2, "one line for the proposal, one for the refusal"
    clock.now += 3
    keeper.look([0])
    wire.answer(response(3, (0, 0, SELF, 5, [1, 2, 3], 1)))
    assert slots[0].in_sync == [1, 2, 3]
    assert "the in-sync replicas are [1, 2, 3]" in caplog.records[-1].getMessage()


def test_a_request_of_the_controller_lets_a_refused_follower_be_proposed_at_once() -> None:
    slots, wire = {0: Slot(0, in_sync=[1, 2])}, Wire()
    keeper = keeper_of(slots, wire)
    keeper.look([0])
    wire.answer(refused(0))
    keeper.look([0])
    assert wire.then is None
    keeper.request_executed()
    keeper.look([0])
    assert proposed_of(wire.request) == {0: [1, 2, 3]}


def test_a_follower_that_is_refused_does_not_keep_another_from_joining() -> None:
    slots, wire = {0: Slot(0, in_sync=[1], replicas=[1, 2, 3])}, Wire()
    keeper = keeper_of(slots, wire)
    keeper.look([0])
    assert proposed_of(wire.request) == {0: [1, 2, 3]}
    wire.answer(refused(0))
    keeper.look([0])
    assert proposed_of(wire.request) == {0: [1, 2]}
    wire.answer(refused(0))  # 2 shuts down
    keeper.look([0])
    states = wire.request.topics[0].partitions[0].new_isr_with_epochs
    assert [(state.broker_id, state.broker_epoch) for state in states] == [(1, -1), (3, 43)]
    wire.answer(response(3, (0, 0, SELF, 5, [1, 3], 1)))
    assert slots[0].in_sync == [1, 3]


def test_a_refused_follower_does_not_keep_a_lagging_one_from_leaving() -> None:
    slots, wire = {0: Slot(0, in_sync=[1, 2])}, Wire()
    keeper = keeper_of(slots, wire)
    keeper.look([0])
    wire.answer(refused(0))
    slots[0].lagging = {2}
    keeper.tick(LAG_MS)
    assert proposed_of(wire.request) == {0: [1]}


def test_a_proposal_says_in_which_broker_epoch_a_replica_fetched_that_joins():
    slots, wire = {0: Slot(0, in_sync=[1, 2])}, Wire(3)
    keeper_of(slots, wire).look([0])
    states = wire.request.topics[0].partitions[0].new_isr_with_epochs
    assert [(state.broker_id, state.broker_epoch) for state in states] == [(1, -1), (2, -1), (3, 43)]


def test_a_slot_whose_lock_is_held_delays_no_other():
    slots, wire = {number: Slot(number, in_sync=[1, 2]) for number in range(3)}, Wire()
    verbs = Verbs(slots)
    keeper = keeper_of(slots, wire, verbs)
    verbs.busy = {1: 1}
    keeper.look([0, 1, 2])
    assert wire.then is None and keeper.waiting == [0, 2], "the request waits for the retry of the second slot"
    wire.fire()
    assert proposed_of(wire.request) == {0: [1, 2, 3], 1: [1, 2, 3], 2: [1, 2, 3]}
    verbs.busy = {0: 1, 1: 1}
    refused = (1, ErrorCode.INELIGIBLE_REPLICA, -1, -1, [], -1)
    committed = [(number, 0, SELF, 5, [1, 2, 3], 1) for number in (0, 2)]
    wire.answer(response(3, committed[0], refused, committed[1]))
    assert (slots[2].in_sync, keeper.waiting) == ([1, 2, 3], [0, 1])
    wire.fire()
    assert proposed_of(wire.request) == {0: [1, 2, 3], 1: [1, 2, 3]}
    wire.answer(response(3, committed[0], refused))
    assert (slots[0].in_sync, slots[1].proposed, keeper.waiting) == ([1, 2, 3], None, [])


def test_a_successor_continues_with_a_proposal_whose_slot_was_held():
    slots, wire = {number: Slot(number, lagging={3}) for number in range(2)}, Wire()
    keeper_of(slots, wire).tick(LAG_MS)
    second, verbs = Wire(), Verbs(slots)
    successor = keeper_of(slots, second, verbs)
    verbs.busy = {0: 1}
    successor.resume()
    second.fire()
    assert proposed_of(second.request) == {0: [1, 2], 1: [1, 2]}


def test_a_response_that_cannot_be_applied_is_asked_for_again():
    slots, wire = {0: Slot(0, in_sync=[1, 2]), 1: Slot(1, in_sync=[1, 2])}, Wire()
    verbs = Verbs(slots)
    keeper = keeper_of(slots, wire, verbs)
    keeper.look([0, 1])
    commit = verbs.commit

    def refuse_empty(*arguments: Any) -> bool:
        if not arguments[3]:
            raise ValueError("an in-sync set has 1 to 16 members, not 0")
        return commit(*arguments)

    verbs.commit = refuse_empty  # type: ignore[method-assign]
    wire.answer(response(3, (0, 0, SELF, 5, [], 1), (1, 0, SELF, 5, [1, 2, 3], 1)))
    assert (slots[1].in_sync, keeper.waiting) == ([1, 2, 3], [0])
    wire.fire()
    assert proposed_of(wire.request) == {0: [1, 2, 3]}


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_lagging_follower_leaves_and_returns(version: int):
    slots, wire = {0: Slot(0, lagging={3})}, Wire(version)
    keeper = keeper_of(slots, wire)
    keeper.tick(LAG_MS)
    request = wire.request
    assert (request.broker_id, request.broker_epoch) == (SELF, 4)
    assert proposed_of(request) == {0: [1, 2]}
    assert slots[0].maximal == [1, 2, 3]
    wire.answer(response(version, (0, 0, SELF, 5, [1, 2], 1)))
    assert (slots[0].in_sync, slots[0].partition_epoch, slots[0].proposed) == ([1, 2], 1, None)
    slots[0].lagging = set()
    keeper.look([0])
    assert proposed_of(wire.request) == {0: [1, 2, 3]}
    wire.answer(response(version, (0, 0, SELF, 5, [1, 2, 3], 2)))
    assert (slots[0].in_sync, slots[0].partition_epoch) == ([1, 2, 3], 2)
    assert (keeper.proposed, keeper.shrinks, keeper.expansions, keeper.waiting) == (2, 1, 1, [])


def test_proposals_made_while_a_request_is_under_way_are_sent_together_after_it():
    slots, wire = {number: Slot(number) for number in range(3)}, Wire()
    keeper = keeper_of(slots, wire)
    slots[0].lagging = {3}
    keeper.tick(LAG_MS)
    slots[1].lagging, slots[2].lagging = {2}, {2, 3}
    keeper.tick(LAG_MS)
    assert proposed_of(wire.request) == {0: [1, 2]}
    wire.answer(response(3, (0, 0, SELF, 5, [1, 2], 1)))
    assert proposed_of(wire.request) == {1: [1, 3], 2: [1]}


@pytest.mark.parametrize("code", sorted(in_sync.BACK_TO_COMMITTED))
def test_a_proposal_that_is_refused_for_now_can_be_made_again(code: ErrorCode):
    slots, wire = {0: Slot(0, in_sync=[1, 2])}, Wire()
    keeper = keeper_of(slots, wire)
    keeper.look([0])
    wire.answer(response(3, (0, code, -1, -1, [], -1)))
    assert (slots[0].proposed, keeper.waiting, wire.then) == (None, [], None)
    keeper.request_executed()
    keeper.look([0])
    assert proposed_of(wire.request) == {0: [1, 2, 3]}
    wire.answer(ConnectionError("closed"))
    assert keeper.failed == 2
    wire.fire()
    wire.answer(response(3, (0, 0, 1, 5, [1, 2, 3], 6)))
    assert keeper.failed == 2


@pytest.mark.parametrize("code", sorted(in_sync.WAIT_FOR_CONTROLLER))
def test_a_newer_state_of_the_controller_is_awaited(code: ErrorCode):
    slots, wire = {0: Slot(0, in_sync=[1, 2])}, Wire()
    keeper = keeper_of(slots, wire)
    keeper.look([0])
    wire.answer(response(3, (0, code, -1, -1, [], -1)))
    keeper.look([0])
    keeper.tick(LAG_MS)
    assert (slots[0].maximal, keeper.waiting, wire.then, wire.timers) == ([1, 2, 3], [0], None, [])
    slots[0].leader_epoch, slots[0].proposed = 6, None  # LeaderAndIsr
    keeper.request_executed()
    keeper.look([0])
    assert proposed_of(wire.request) == {0: [1, 2, 3]}


def test_a_state_that_the_controller_published_ends_the_wait():
    slots, wire = {0: Slot(0, in_sync=[1, 2])}, Wire()
    keeper = keeper_of(slots, wire)
    keeper.look([0])
    wire.answer(response(3, (0, ErrorCode.INVALID_UPDATE_VERSION, -1, -1, [], -1)))
    slots[0].view = View(SELF, 6, 9, [1])
    keeper.request_executed()
    assert keeper.waiting == [0], "another leader epoch says nothing about this one"
    slots[0].view = View(SELF, 5, 9, [1])
    keeper.request_executed()
    assert (slots[0].in_sync, slots[0].partition_epoch, slots[0].proposed, keeper.waiting) == ([1], 9, None, [])


def test_a_state_that_was_published_before_the_answer_is_adopted_at_once():
    slots, wire = {0: Slot(0, in_sync=[1, 2])}, Wire()
    keeper = keeper_of(slots, wire)
    keeper.look([0])
    slots[0].view = View(SELF, 5, 3, [1, 2, 3])
    keeper.request_executed()
    assert slots[0].proposed == [1, 2, 3], "the response is under way"
    wire.answer(response(3, (0, ErrorCode.INVALID_UPDATE_VERSION, -1, -1, [], -1)))
    assert (slots[0].in_sync, slots[0].partition_epoch, keeper.waiting) == ([1, 2, 3], 3, [])


@pytest.mark.parametrize(
    "failure",
    [ConnectionError("lost"), alter_partition.Response(error_code=ErrorCode.NOT_CONTROLLER),
     alter_partition.Response(error_code=ErrorCode.STALE_BROKER_EPOCH), alter_partition.Response(),
     response(3, (0, ErrorCode.UNKNOWN_SERVER_ERROR, -1, -1, [], -1))],
    ids=["connection", "NOT_CONTROLLER", "STALE_BROKER_EPOCH", "not in the response", "unknown error"],
)  # fmt: skip
def test_the_same_proposal_is_sent_again(failure: Any):
    slots, wire = {0: Slot(0, lagging={3})}, Wire()
    keeper = keeper_of(slots, wire)
    keeper.tick(LAG_MS)
    wire.answer(failure)
    slots[0].lagging = {2, 3}
    keeper.tick(LAG_MS)
    assert (wire.then, len(wire.timers)) == (None, 1)
    wire.fire()
    assert proposed_of(wire.request) == {0: [1, 2]}


def test_the_response_of_an_ended_role_changes_nothing():
    slots, wire = {0: Slot(0, lagging={3})}, Wire()
    keeper = keeper_of(slots, wire)
    keeper.tick(LAG_MS)
    slots[0].leader_epoch, slots[0].in_sync, slots[0].partition_epoch, slots[0].proposed = 6, [1, 2, 3], 4, None
    keeper.request_executed()
    wire.answer(response(3, (0, 0, SELF, 5, [1, 2], 1)))
    assert (slots[0].in_sync, slots[0].partition_epoch) == ([1, 2, 3], 4)


def test_a_successor_continues_with_the_proposals_in_the_slots():
    slots, wire = {0: Slot(0, lagging={3}), 1: Slot(1)}, Wire()
    keeper_of(slots, wire).tick(LAG_MS)
    second = Wire()
    successor = keeper_of(slots, second)
    slots[0].lagging = {2, 3}
    successor.resume()
    assert proposed_of(second.request) == {0: [1, 2]}
    second.answer(response(3, (0, 0, SELF, 5, [1, 2], 1)))
    assert (slots[0].in_sync, slots[0].proposed) == ([1, 2], None)
    successor.tick(LAG_MS)
    assert proposed_of(second.request) == {0: [1]}


class Controller:
    """Judges proposals as Kafka's controller does."""

    def __init__(self) -> None:
        self.leader_epoch, self.partition_epoch, self.members = 5, 0, [1, 2, 3]

    def judge(self, request: Any) -> Any:
        partition = request.topics[0].partitions[0]
        members = [state.broker_id for state in partition.new_isr_with_epochs]
        code = ErrorCode.NONE
        if partition.leader_epoch < self.leader_epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH
        elif members == self.members:
            pass
        elif partition.partition_epoch < self.partition_epoch:
            code = ErrorCode.INVALID_UPDATE_VERSION
        else:
            self.members, self.partition_epoch = members, self.partition_epoch + 1
        if code:
            return response(3, (0, code, -1, -1, [], -1))
        return response(3, (0, 0, SELF, self.leader_epoch, self.members, self.partition_epoch))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(["answer", "lose request", "lose response", "lag 2", "lag 3", "catch up", "die", "publish",
                                 "elect", "tick", "look", "busy"]), max_size=40))  # fmt: skip
def test_any_order_of_events_leads_to_the_state_of_the_controller(events: list[str]):
    slot, wire, controller = Slot(0), Wire(), Controller()
    verbs = Verbs({0: slot})
    keeper = keeper_of({0: slot}, wire, verbs)

    def publish() -> None:
        slot.view = View(SELF, controller.leader_epoch, controller.partition_epoch, controller.members)
        keeper.request_executed()

    def elect() -> None:
        controller.leader_epoch += 1
        controller.partition_epoch += 1
        slot.leader_epoch, slot.partition_epoch = controller.leader_epoch, controller.partition_epoch
        slot.in_sync, slot.proposed = controller.members, None
        keeper.request_executed()

    def step(event: str) -> None:
        nonlocal wire, keeper
        if event == "answer" and wire.then:
            wire.answer(controller.judge(wire.request))
        elif event == "lose request" and wire.then:
            wire.answer(ConnectionError("lost"))
        elif event == "lose response" and wire.then:
            controller.judge(wire.request)
            wire.answer(ConnectionError("lost"))
        elif event.startswith("lag"):
            slot.lagging.add(int(event[-1]))
        elif event == "catch up":
            slot.lagging.clear()
        elif event == "die":
            wire = Wire()
            keeper = keeper_of({0: slot}, wire, verbs)
            keeper.resume()
        elif event == "busy":
            verbs.busy[None] = verbs.busy.get(None, 0) + 1
        elif event == "publish":
            publish()
        elif event == "elect":
            elect()
        elif event == "tick":
            keeper.tick(LAG_MS)
            wire.fire()
        elif event == "look":
            keeper.look([0])
            wire.fire()
        if slot.leader_epoch == controller.leader_epoch:
            assert set(controller.members) <= set(slot.maximal), (
                "the controller's in-sync set has a member not waited for"
            )

    for event in events:
        step(event)
    verbs.busy.clear()
    for _ in range(6):  # the network works again
        for event in ("publish", "tick", "look", "answer"):
            step(event)
    assert (slot.in_sync, slot.partition_epoch, slot.proposed) == (controller.members, controller.partition_epoch, None)
    assert set(slot.in_sync) == set(slot.replicas) - slot.lagging


def test_an_unexpected_error_while_an_answer_is_applied_leaves_no_slot_waiting() -> None:
    slots, wire = {number: Slot(number, in_sync=[1, 2]) for number in range(2)}, Wire()
    verbs = Verbs(slots)
    keeper = keeper_of(slots, wire, verbs)
    keeper.look([0, 1])
    commit, failures = verbs.commit, [RuntimeError("an error of the code")]

    def failing(*arguments: Any) -> bool:
        if failures:
            raise failures.pop()
        return commit(*arguments)

    verbs.commit = failing  # type: ignore[method-assign]
    answer = [(number, 0, SELF, 5, [1, 2, 3], 1) for number in range(2)]
    wire.answer(response(3, *answer))
    assert keeper.waiting == [0]
    wire.fire()
    wire.answer(response(3, answer[0]))
    assert (keeper.waiting, slots[0].in_sync) == ([], [1, 2, 3])
