"""The coordinator sends markers to the leaders of partitions, and questions to the coordinators of transactions.

Other brokers are simulated; see `tests/transactions` for the coordinator itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from odradek.coordination.environment import EndMarker
from odradek.net.peers import PeerError
from odradek.processes.coordinator.transactions.orphaned_transactions import Orphan, orphans
from odradek.processes.coordinator.transactions.other_brokers import (
    Asked,
    RemoteMarkers,
    RemoteTransactions,
)
from odradek.processes.coordinator.transactions.partition_verification import (
    PartitionVerification,
    Question,
    RemoteCoordinator,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import add_partitions_to_txn, write_txn_markers
from odradek.transactions.environment import Mark, Marker, Owner

NONE = ErrorCode.NONE
ORDERS = ("orders", 0)
OWNER = 77
"""Of the client whose batch waits for the answer."""


class Brokers:
    """Simulated other brokers; the test decides when they answer."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Any, Callable[[Any], None]]] = []

    def send(self, broker_id: int, api: Any, message: Callable[[int], Any], then: Callable[[Any], None]) -> None:
        self.sent.append((broker_id, message(api.max_version), then))

    def answer(self, outcome: Any) -> None:
        _, _, then = self.sent.pop(0)
        then(outcome)

    def give_up(self, broker_id: int, reason: str) -> None:
        (number,) = (number for number, sent in enumerate(self.sent) if sent[0] == broker_id)
        _, _, then = self.sent.pop(number)
        then(PeerError(reason))


class Clock:
    """A clock that the test moves, with the scheduled calls."""

    def __init__(self) -> None:
        self.now = 0
        self.later: list[tuple[int, Callable[[], None]]] = []

    def now_ms(self) -> int:
        return self.now

    def wall_ms(self) -> int:
        return self.now

    def call_at(self, when_ms: int, action: Callable[[], None]) -> Any:
        self.later.append((when_ms, action))

    def advance(self, ms: int) -> None:
        self.now += ms
        due = [action for when, action in self.later if when <= self.now]
        self.later = [(when, action) for when, action in self.later if when > self.now]
        for action in due:
            action()


class Marks:
    """Records which producers were allowed."""

    def __init__(self) -> None:
        self.allowed: list[tuple[Any, ...]] = []
        self.led: tuple[int, int] | None = (1, 5)
        self.busy = False

    def leadership(self, topic: str, partition: int) -> tuple[int, int] | None:
        return self.led

    def allow(self, places: Any, mark: Mark) -> list[ErrorCode | None]:
        if self.busy:
            return [None] * len(places)
        self.allowed += [(place, mark) for place in places]
        return [NONE] * len(places)


class NotHere:
    """A coordinator that has none of the transactional ids."""

    def error_of(self, transactional_id: str) -> ErrorCode:
        return ErrorCode.NOT_COORDINATOR


def marker(producer_id: int, partition: int, *, commits: bool = True) -> Marker:
    return Marker(f"id-{producer_id}", producer_id, 3, 7, commits, 2, "orders", partition)


def written(request: Any, code: ErrorCode = NONE) -> Any:
    """The response of a broker that gives each marker the same code."""
    make = write_txn_markers.Response
    return make(
        markers=[
            make.WritableTxnMarkerResult(
                producer_id=row.producer_id,
                topics=[
                    make.WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            make.WritableTxnMarkerPartitionResult(partition_index=partition, error_code=code)
                            for partition in topic.partition_indexes
                        ],
                    )
                    for topic in row.topics
                ],
            )
            for row in request.markers
        ]
    )


def test_the_markers_of_one_turn_for_one_broker_are_one_request():
    brokers, codes = Brokers(), {}
    markers = RemoteMarkers(brokers, lambda: None)
    for producer_id, partition in ((1, 0), (1, 1), (2, 0)):
        place = (producer_id, partition)
        markers.put(5, marker(producer_id, partition), lambda code, place=place: codes.update({place: code}))
    markers.put(6, marker(3, 2), lambda code: codes.update({(3, 2): code}))
    markers.flush()
    assert [broker_id for broker_id, _, _ in brokers.sent] == [5, 6]
    request = brokers.sent[0][1]
    assert [(row.producer_id, row.producer_epoch, row.coordinator_epoch) for row in request.markers] == [
        (1, 3, 7),
        (2, 3, 7),
    ]
    assert [topic.partition_indexes for row in request.markers for topic in row.topics] == [[0, 1], [0]]
    brokers.answer(written(request))
    brokers.answer(written(brokers.sent[0][1], ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert codes == {(1, 0): NONE, (1, 1): NONE, (2, 0): NONE, (3, 2): ErrorCode.NOT_LEADER_OR_FOLLOWER}


def test_markers_that_come_during_a_request_go_into_the_next_one():
    brokers, codes = Brokers(), []
    markers = RemoteMarkers(brokers, lambda: None)
    markers.put(5, marker(1, 0), codes.append)
    markers.flush()
    for producer_id in (2, 3):
        markers.put(5, marker(producer_id, 0), codes.append)
        markers.flush()
    assert len(brokers.sent) == 1
    brokers.answer(written(brokers.sent[0][1]))
    assert [row.producer_id for row in brokers.sent[0][1].markers] == [2, 3]


def test_a_broker_that_does_not_answer_is_a_timeout_for_each_marker():
    brokers, codes = Brokers(), []
    markers = RemoteMarkers(brokers, lambda: None)
    markers.put(5, marker(1, 0), codes.append)
    markers.put(5, marker(1, 1), codes.append)
    markers.flush()
    brokers.answer(PeerError("the connection was lost"))
    assert codes == [ErrorCode.REQUEST_TIMED_OUT] * 2
    markers.put(5, marker(1, 0), codes.append)
    markers.flush()
    assert len(brokers.sent) == 1, "a broker that failed is asked again"


def test_markers_follow_the_leader_of_their_partition():
    """A former leader cannot acknowledge them, and may not answer at all."""
    brokers, codes = Brokers(), {}
    markers = RemoteMarkers(brokers, lambda: None)
    leaders = {("orders", 0): 5, ("orders", 1): 5, ("orders", 2): 5, ("orders", 3): 5}

    def put(partition: int) -> None:
        markers.put(5, marker(1, partition), lambda code: codes.update({partition: code}))

    put(0)
    put(1)
    markers.flush()
    put(2)
    put(3)
    markers.follow(lambda *place: leaders[place])
    assert not codes and len(brokers.sent) == 1, "no leader has changed"
    leaders["orders", 2] = 6
    markers.follow(lambda *place: leaders[place])
    assert codes == {2: ErrorCode.NOT_LEADER_OR_FOLLOWER} and len(brokers.sent) == 1
    leaders["orders", 0] = 6
    markers.follow(lambda *place: leaders[place])
    timed_out = ErrorCode.REQUEST_TIMED_OUT
    assert codes == {2: ErrorCode.NOT_LEADER_OR_FOLLOWER, 0: timed_out, 1: timed_out}
    ((_, request, _),) = brokers.sent
    assert [topic.partition_indexes for row in request.markers for topic in row.topics] == [[3]], "the next request"
    brokers.answer(written(request))
    assert codes[3] is NONE


def test_questions_follow_the_coordinator_of_their_transaction():
    brokers, answers = Brokers(), []
    others = RemoteTransactions(brokers, lambda: None)
    for name in ("payments", "refunds"):
        others.put(5, Asked(name, 4, 0, True, (ORDERS,), answers.append))
        others.flush()
    others.follow(lambda name: 6 if name == "refunds" else 5)
    assert answers == [{ORDERS: ErrorCode.NOT_COORDINATOR}]
    others.follow(lambda name: 6)
    assert answers[1:] == [{ORDERS: ErrorCode.COORDINATOR_NOT_AVAILABLE}] and not brokers.sent


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_a_coordinator_that_does_not_know_a_partition_yet_is_asked_again(code):
    """Its metadata are behind those of the partition's leader. Other errors would end the producer."""
    brokers, answers = Brokers(), []
    others = RemoteTransactions(brokers, lambda: None)
    others.put(5, Asked("payments", 4, 0, True, (ORDERS,), answers.append))
    others.flush()
    brokers.answer(verified(brokers.sent[0][1], code))
    assert answers == [{ORDERS: ErrorCode.COORDINATOR_NOT_AVAILABLE}]


def test_one_request_names_a_transactional_id_once():
    brokers, answers = Brokers(), []
    others = RemoteTransactions(brokers, lambda: None)
    for partition in (0, 1):
        others.put(5, Asked("payments", 4, 0, True, (("orders", partition),), answers.append))
    others.flush()
    assert [len(request.transactions) for _, request, _ in brokers.sent] == [1]
    brokers.answer(verified(brokers.sent[0][1], NONE))
    assert [len(request.transactions) for _, request, _ in brokers.sent] == [1]
    brokers.answer(verified(brokers.sent[0][1], ErrorCode.TRANSACTION_ABORTABLE))
    assert answers == [{("orders", 0): NONE}, {("orders", 1): ErrorCode.TRANSACTION_ABORTABLE}]


def verified(request: Any, code: ErrorCode) -> Any:
    """The response of a coordinator that gives each partition the same code."""
    make = add_partitions_to_txn.Response
    return make(
        results_by_transaction=[
            make.AddPartitionsToTxnResult(
                transactional_id=row.transactional_id,
                topic_results=[
                    make.AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            make.AddPartitionsToTxnPartitionResult(partition_index=partition, partition_error_code=code)
                            for partition in topic.partitions
                        ],
                    )
                    for topic in row.topics
                ],
            )
            for row in request.transactions
        ]
    )


class Remote:
    """A verification that asks broker 5 for every transactional id."""

    def __init__(self) -> None:
        self.clock, self.marks, self.brokers = Clock(), Marks(), Brokers()
        self.others = RemoteTransactions(self.brokers, lambda: None)
        coordinator: Any = NotHere()
        self.verification = PartitionVerification(
            self.clock,
            lambda: coordinator,
            self.marks,
            lambda transactional_id: RemoteCoordinator(5, 11),
            self.others,
            lambda: 20,
            lambda: 100,
        )
        self.answers: list[Any] = []

    def ask(self, *, verify_only: bool, epoch: int = 3) -> None:
        question = Question("payments", 4, epoch, verify_only, (ORDERS,), OWNER)
        self.verification.ask(question, self.answers.append)
        self.others.flush()

    def answer(self, code: ErrorCode) -> None:
        self.brokers.answer(verified(self.brokers.sent[0][1], code))
        self.others.flush()


def test_a_positive_answer_of_another_coordinator_sets_the_mark():
    remote = Remote()
    remote.ask(verify_only=False)
    assert not remote.marks.allowed
    remote.answer(NONE)
    assert remote.answers == [{ORDERS: NONE}]
    assert remote.marks.allowed == [(ORDERS, Mark("payments", 4, 3, 11, 2, OWNER))], (
        "with the epoch of the coordinator that was asked"
    )


def test_another_coordinator_is_asked_again_while_the_slot_is_in_use():
    remote = Remote()
    remote.marks.busy = True
    remote.ask(verify_only=False)
    remote.answer(NONE)
    assert not remote.answers
    remote.marks.busy = False
    remote.clock.advance(1)
    remote.others.flush()
    remote.answer(NONE)
    assert remote.answers == [{ORDERS: NONE}]
    assert remote.marks.allowed == [(ORDERS, Mark("payments", 4, 3, 11, 2, OWNER))]


class Here:
    """A coordinator that has every transactional id, and that says of each question whether its transaction is ongoing."""

    def __init__(self, marks: Marks) -> None:
        self.marks = marks
        self.ongoing = True
        self.asked = 0

    def error_of(self, transactional_id: str) -> ErrorCode:
        return NONE

    def verify(self, transactional_id: str, producer_id: int, epoch: int, places: Any, then: Any, owner: int) -> None:
        self.asked += 1
        then({place: self._code(place, producer_id, epoch, 0) for place in places})

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        places: Any,
        version: int,
        then: Any,
        patience_ms: int,
        owner: int,
    ) -> None:
        self.asked += 1
        then(NONE, [self._code(place, producer_id, epoch, version) for place in places])

    def _code(self, place: Any, producer_id: int, epoch: int, version: int) -> ErrorCode | None:
        return (
            self.marks.allow([place], Mark("payments", producer_id, epoch, 0, version))[0]
            if self.ongoing
            else ErrorCode.TRANSACTION_ABORTABLE
        )


class Local:
    """A verification on the broker that coordinates the transactional ids."""

    def __init__(self) -> None:
        self.clock, self.marks = Clock(), Marks()
        self.coordinator: Any = Here(self.marks)
        self.verification = PartitionVerification(
            self.clock, lambda: self.coordinator, self.marks, lambda transactional_id: 0, None, lambda: 20, lambda: 100
        )
        self.answers: list[Any] = []

    def ask(self, *, verify_only: bool) -> None:
        self.verification.ask(Question("payments", 4, 3, verify_only, (ORDERS,), OWNER), self.answers.append)


@pytest.mark.parametrize("verify_only", [False, True])
def test_a_question_waits_while_the_slot_is_in_use(verify_only):
    local = Local()
    local.marks.busy = True
    local.ask(verify_only=verify_only)
    assert not local.answers
    local.marks.busy = False
    local.clock.advance(1)
    assert local.answers == [{ORDERS: NONE}]
    assert local.marks.allowed == [(ORDERS, Mark("payments", 4, 3, 0, 0 if verify_only else 2))]


def test_a_transaction_that_ends_while_the_slot_is_in_use_gets_no_mark():
    local = Local()
    local.marks.busy = True
    local.ask(verify_only=True)
    local.marks.busy, local.coordinator.ongoing = False, False
    local.clock.advance(1)
    assert local.answers == [{ORDERS: ErrorCode.TRANSACTION_ABORTABLE}]
    assert not local.marks.allowed


def test_a_slot_that_stays_in_use_is_refused_after_the_patience():
    local = Local()
    local.marks.busy = True
    local.ask(verify_only=False)
    for _ in range(100):
        assert not local.answers
        local.clock.advance(1)
    assert local.answers == [{ORDERS: ErrorCode.NOT_ENOUGH_REPLICAS}]
    assert local.coordinator.asked == 101


def test_a_refusal_of_another_coordinator_sets_no_mark():
    remote = Remote()
    remote.ask(verify_only=True)
    remote.answer(ErrorCode.TRANSACTION_ABORTABLE)
    assert remote.answers == [{ORDERS: ErrorCode.TRANSACTION_ABORTABLE}]
    assert not remote.marks.allowed


def test_a_marker_that_is_written_meanwhile_invalidates_the_answer():
    remote = Remote()
    remote.ask(verify_only=True)
    remote.verification.note_marker("orders", 0, EndMarker(4, 3, 1, False, 0))
    remote.answer(NONE)
    assert remote.answers == [{ORDERS: ErrorCode.INVALID_TXN_STATE}]
    assert not remote.marks.allowed


@pytest.mark.parametrize("led", [None, (1, 7)])
def test_an_answer_to_a_question_of_an_earlier_leadership_sets_no_mark(led):
    """Another leader may have written the marker meanwhile, of which this broker was not asked."""
    remote = Remote()
    remote.ask(verify_only=True)
    remote.marks.led = led
    remote.answer(NONE)
    assert remote.answers == [{ORDERS: ErrorCode.NOT_LEADER_OR_FOLLOWER}]
    assert not remote.marks.allowed


def test_the_marker_of_the_transaction_before_does_not_invalidate_the_answer():
    remote = Remote()
    remote.ask(verify_only=False)
    remote.verification.note_marker("orders", 0, EndMarker(4, 3, 1, True, 2))  # with version 2 it has the next epoch
    remote.verification.note_marker("orders", 0, EndMarker(9, 3, 1, True, 0))
    remote.verification.note_marker("orders", 1, EndMarker(4, 3, 1, True, 0))
    remote.answer(NONE)
    assert remote.answers == [{ORDERS: NONE}]


def test_an_addition_is_repeated_while_the_transaction_before_is_not_completed():
    remote = Remote()
    remote.ask(verify_only=False)
    remote.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert not remote.answers and not remote.brokers.sent
    remote.clock.advance(20)
    remote.others.flush()
    remote.answer(NONE)
    assert remote.answers == [{ORDERS: NONE}]


def test_an_addition_is_not_repeated_for_ever():
    remote = Remote()
    remote.ask(verify_only=False)
    while not remote.answers:
        remote.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        remote.clock.advance(20)
        remote.others.flush()
    assert remote.answers == [{ORDERS: ErrorCode.CONCURRENT_TRANSACTIONS}]
    assert remote.clock.now <= 120


def test_transactions_that_an_id_has_open_are_no_orphans():
    def at(partition: int, producer_id: int) -> Orphan:
        return Orphan("orders", partition, producer_id, 0, 0, 10)

    owners = {
        1: Owner("open", 1, 0, "Ongoing", (("orders", 0),)),
        2: Owner("other partition", 2, 0, "Ongoing", (("orders", 9),)),
    }
    assert orphans([at(0, 1), at(0, 2), at(0, 3)], owners) == [at(0, 2), at(0, 3)]
