"""Requests about many transactions are executed in short steps; their responses do not depend on the steps."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api.transactions import add_partitions_to_txn, describe_transactions, list_transactions, write_txn_markers
from odradek.api.transactions.transaction_call import (
    A_STEP,
    NewestConnections,
    TransactionCall,
    TransactionView,
)
from odradek.coordination.environment import EndMarker
from odradek.protocol import schemas
from odradek.protocol.errors import ErrorCode
from odradek.stepwise import Steps, Stepwise
from tests.transactions.by_hand import ORDERS, Process

MANY = 5 * A_STEP
NAMES = [f"t{number}" for number in range(MANY)]
LONGEST_STEP = 3 * A_STEP


class Work:
    """Counts what the coordinator does, and executes steps as the service does. :ivar steps: the count of each step."""

    def __init__(self) -> None:
        self.count = 0
        self.steps: list[int] = []
        self.between: Any = lambda: None

    def finish(self, steps: Steps) -> Any:
        """Execute the steps of a request, and return its response."""
        job, more = Stepwise(steps), True
        while more:
            before = self.count
            more = job.step()
            self.steps.append(self.count - before)
            self.between()
        return job.result


class Counted:
    """A coordinator whose calls count as work."""

    def __init__(self, process: Process, work: Work) -> None:
        self._coordinator = process.coordinator
        self._work = work

    def describe(self, name: str) -> Any:
        self._work.count += 1
        return self._coordinator.describe(name)

    def verify(self, *arguments: Any) -> None:
        self._work.count += 1
        self._coordinator.verify(*arguments)

    def list(self, which: Any) -> Any:
        code, unknown, entries = self._coordinator.list(which)
        return code, unknown, self._counted(entries)

    def _counted(self, entries: Iterator[Any]) -> Iterator[Any]:
        for entry in entries:
            self._work.count += 1
            yield entry


class Broker:
    """Many transactional ids; those with an even number have an open transaction."""

    def __init__(self) -> None:
        self.process = Process()
        self.process.ids = list(range(1000, 1000 + MANY))
        self.work = Work()
        self.markers: list[EndMarker] = []
        self.producers = {}
        for name in NAMES:
            reply = self.process.init(name=name)
            self.producers[name] = reply.answer[1:]
        for name in NAMES[::2]:
            self.process.add(*self.producers[name], name=name)
        coordinator: Any = Counted(self.process, self.work)
        config: Any = SimpleNamespace(clustered=False)
        topics: Any = {ORDERS[0]: SimpleNamespace(exists=range(MANY).__contains__)}
        nothing: Any = None
        self.view = TransactionView(config, coordinator, topics, nothing, self, lambda: 1, NewestConnections())

    def put(self, topic: str, partition: int, marker: EndMarker, then: Any) -> None:
        self.work.count += 1
        self.markers.append(marker)
        then(ErrorCode.NONE if partition % 3 else ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def send(self, api: Any, request: Any, version: int) -> Any:
        """The response; it must have been made in steps."""
        call = TransactionCall(version, "client", 1, "User:ANONYMOUS", self.view, pytest.fail)
        answer = self.work.finish(api.handle(request, call))
        worked = [count for count in self.work.steps if count]
        assert len(worked) > 1 and max(worked) <= LONGEST_STEP
        assert Stepwise(api.handle(request, call)).finish() == answer
        return answer


@pytest.fixture(scope="module")
def ids() -> Broker:
    return Broker()


@pytest.fixture
def broker(ids) -> Broker:
    ids.work.steps.clear()
    ids.work.between = lambda: None
    return ids


def test_descriptions(broker):
    response = broker.send(describe_transactions, schemas.describe_transactions.Request(transactional_ids=NAMES), 0)
    assert [state.transactional_id for state in response.transaction_states] == NAMES
    assert {state.transaction_state for state in response.transaction_states} == {"Ongoing", "Empty"}


def test_an_id_that_is_in_a_request_several_times_is_described_once(broker):
    request = schemas.describe_transactions.Request(transactional_ids=[*NAMES, *NAMES])
    response = broker.send(describe_transactions, request, 0)
    assert len(response.transaction_states) == MANY


def test_a_list(broker):
    request = schemas.list_transactions.Request(state_filters=["Ongoing"], producer_id_filters=[], duration_filter=-1)
    response = broker.send(list_transactions, request, 2)
    assert sorted(state.transactional_id for state in response.transaction_states) == sorted(NAMES[::2])


def test_a_list_that_finds_nothing(broker):
    """Ids that the filters exclude count as work, too."""
    request = schemas.list_transactions.Request(
        state_filters=[], producer_id_filters=[], duration_filter=-1, transactional_id_pattern="nothing.*"
    )
    assert broker.send(list_transactions, request, 2).transaction_states == []


def test_ids_that_change_between_the_steps_of_a_list_are_listed_once():
    broker = Broker()
    for _ in range(2):
        broker.process.coordinator.abort_timed_out()  # packs the ids without a transaction
    unused = iter(NAMES[1::2])

    def change() -> None:
        name = next(unused, None)
        if name is not None:
            broker.process.add(*broker.producers[name], name=name)

    broker.work.between = change
    call = TransactionCall(2, "client", 1, "User:ANONYMOUS", broker.view, pytest.fail)
    request = schemas.list_transactions.Request(state_filters=[], producer_id_filters=[], duration_filter=-1)
    response = broker.work.finish(list_transactions.handle(request, call))
    assert len(broker.work.steps) > 1
    assert sorted(state.transactional_id for state in response.transaction_states) == sorted(NAMES)


def test_verifications(broker):
    make = schemas.add_partitions_to_txn.Request
    topic = make.AddPartitionsToTxnTopic(name=ORDERS[0], partitions=[ORDERS[1]])
    transactions = [
        make.AddPartitionsToTxnTransaction(
            transactional_id=name, producer_id=broker.producers[name][0], producer_epoch=broker.producers[name][1],
            verify_only=True, topics=[topic],
        )
        for name in NAMES
    ]  # fmt: skip
    response = broker.send(add_partitions_to_txn, make(transactions=transactions), 4)
    codes = [
        result.topic_results[0].results_by_partition[0].partition_error_code
        for result in response.results_by_transaction
    ]
    assert codes[::2] == [ErrorCode.NONE] * (MANY // 2)
    assert codes[1::2] == [ErrorCode.TRANSACTION_ABORTABLE] * (MANY // 2)


def test_verifications_of_many_partitions_each(broker):
    """What is asked counts by its partitions, not by its transactions."""
    make = schemas.add_partitions_to_txn.Request
    topic = make.AddPartitionsToTxnTopic(name=ORDERS[0], partitions=list(range(A_STEP // 2)))
    transactions = [
        make.AddPartitionsToTxnTransaction(
            transactional_id=name, producer_id=1, producer_epoch=0, verify_only=True, topics=[topic]
        )
        for name in NAMES[:100]
    ]
    asked: list[int] = []
    verify = broker.view.coordinator.verify

    def counted(*arguments: Any) -> None:
        asked.append(len(broker.work.steps))
        verify(*arguments)

    broker.view.coordinator.verify = counted
    try:
        call = TransactionCall(5, "client", 1, "User:ANONYMOUS", broker.view, pytest.fail)
        broker.work.finish(add_partitions_to_txn.handle(make(transactions=transactions), call))
    finally:
        broker.view.coordinator.verify = verify
    assert len(asked) == 100 and max(asked.count(step) for step in asked) <= 2


def test_a_marker_that_was_sent_again_between_the_steps_is_not_written_twice(broker):
    """Its transaction has ended, and it would end the next one."""
    broker.markers.clear()
    make = schemas.write_txn_markers.Request
    topic = make.WritableTxnMarkerTopic(name=ORDERS[0], partition_indexes=[1])
    markers = [
        make.WritableTxnMarker(
            producer_id=producer_id, producer_epoch=0, transaction_result=True, topics=[topic], coordinator_epoch=3,
            transaction_version=0,
        )
        for producer_id in range(MANY, 2 * MANY)
    ]  # fmt: skip
    last = markers[-1].producer_id

    def write(markers: list[Any], connection_id: int) -> Steps:
        call = TransactionCall(2, "client", connection_id, "User:ANONYMOUS", broker.view, pytest.fail)
        return write_txn_markers.handle(make(markers=markers), call)

    def send_again() -> None:
        if not broker.markers:
            return  # the markers of the first request are not all read yet
        broker.work.between = lambda: None
        again = [marker for marker in markers if marker.producer_id == last]
        Stepwise(write(again, 9)).finish()

    broker.work.between = send_again
    response = broker.work.finish(write(markers, 5))
    assert [marker.producer_id for marker in broker.markers].count(last) == 1
    codes = {result.producer_id: result.topics[0].partitions[0].error_code for result in response.markers}
    assert codes.pop(last) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert set(codes.values()) == {ErrorCode.NONE}


def test_markers(broker):
    make = schemas.write_txn_markers.Request
    topic = make.WritableTxnMarkerTopic(name=ORDERS[0], partition_indexes=list(range(MANY)))
    marker = make.WritableTxnMarker(
        producer_id=7, producer_epoch=0, transaction_result=True, topics=[topic], coordinator_epoch=3,
        transaction_version=0,
    )  # fmt: skip
    response = broker.send(write_txn_markers, make(markers=[marker]), 2)
    results = response.markers[0].topics[0].partitions
    assert [result.partition_index for result in results] == list(range(MANY))
    assert {result.error_code for result in results[::3]} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert {result.error_code for result in [*results[1::3], *results[2::3]]} == {ErrorCode.NONE}


def test_the_partitions_of_a_producer_are_added_in_parts(broker, monkeypatch):
    """Each part is a record with all partitions so far, and marks for the new ones."""
    monkeypatch.setattr(add_partitions_to_txn, "MOST_ADDED", 2 * A_STEP)
    added: list[int] = []
    begin = broker.process.coordinator.add_partitions

    def add(*arguments: Any, owner: int) -> None:
        added.append(len(arguments[3]))
        broker.work.count += len(arguments[3])
        begin(*arguments, owner=owner)

    monkeypatch.setattr(broker.view.coordinator, "add_partitions", add, raising=False)
    name = NAMES[1]
    make = schemas.add_partitions_to_txn.Request
    request = make(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=broker.producers[name][0],
        v3_and_below_producer_epoch=broker.producers[name][1],
        v3_and_below_topics=[make.AddPartitionsToTxnTopic(name=ORDERS[0], partitions=list(range(MANY)))],
    )
    response = broker.send(add_partitions_to_txn, request, 3)
    assert added[: len(added) // 2] == [2 * A_STEP, 2 * A_STEP, A_STEP]
    assert {
        result.partition_error_code for result in response.results_by_topic_v3_and_below[0].results_by_partition
    } == {0}
    assert len(broker.process.coordinator.describe(name)[1].places) == MANY
