"""A request of the older protocol on a connection that its producer has given up is not executed."""

from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api.transactions import add_offsets_to_txn, add_partitions_to_txn, end_txn
from odradek.api.transactions.transaction_call import NewestConnections, Producer, TransactionCall, TransactionView
from odradek.protocol import schemas
from odradek.protocol.errors import ErrorCode
from odradek.stepwise import Stepwise

FIRST, SECOND, THIRD = 1, 2, 3
"""Connections."""
OWNER = 77
"""Of the client's address."""
PRODUCER = Producer("payments", 7, 0)


class Coordinator:
    """Accepts everything. :ivar executed: the names of the verbs. :ivar owners: the owners of the marks."""

    def __init__(self) -> None:
        self.executed: list[str] = []
        self.owners: list[int] = []

    def end(self, *arguments: Any) -> None:
        self.executed.append("end")
        arguments[-1](ErrorCode.NONE, 7, 0)

    def add_partitions(self, *arguments: Any, owner: int = 0) -> None:
        self.executed.append("add")
        self.owners.append(owner)
        arguments[-1](ErrorCode.NONE, ())


class Broker:
    """Executes requests of one producer."""

    def __init__(self) -> None:
        self.coordinator = Coordinator()
        coordinator: Any = self.coordinator
        topics: Any = {"orders": SimpleNamespace(exists=(0).__eq__)}
        nothing: Any = None
        self.view = TransactionView(nothing, coordinator, topics, nothing, nothing, lambda: 1, NewestConnections())
        self.closed: list[str] = []

    def _send(self, api: Any, connection: int, request: Any, version: int) -> bool:
        before = len(self.coordinator.executed)
        call = TransactionCall(version, "c", connection, "User:ANONYMOUS", self.view, self.closed.append, OWNER)
        Stepwise(api.handle(request, call)).step()
        return len(self.coordinator.executed) > before

    def add(self, connection: int) -> bool:
        make = schemas.add_partitions_to_txn.Request
        topic = make.AddPartitionsToTxnTopic(name="orders", partitions=[0])
        request = make(
            v3_and_below_transactional_id="payments", v3_and_below_producer_id=7, v3_and_below_producer_epoch=0,
            v3_and_below_topics=[topic],
        )  # fmt: skip
        return self._send(add_partitions_to_txn, connection, request, 3)

    def add_offsets(self, connection: int) -> bool:
        make = schemas.add_offsets_to_txn.Request
        request = make(transactional_id="payments", producer_id=7, producer_epoch=0, group_id="g")
        return self._send(add_offsets_to_txn, connection, request, 3)

    def end(self, connection: int, epoch: int = 0, version: int = 4) -> bool:
        make = schemas.end_txn.Request
        request = make(transactional_id="payments", producer_id=7, producer_epoch=epoch, committed=True)
        return self._send(end_txn, connection, request, version)


@pytest.mark.parametrize("verb", [Broker.add, Broker.add_offsets, Broker.end])
def test_no_request_is_executed_on_an_older_connection(verb: Any) -> None:
    broker = Broker()
    assert broker.end(SECOND)
    assert not verb(broker, FIRST)
    assert "arrived late" in broker.closed[0]
    assert verb(broker, SECOND)
    assert verb(broker, THIRD)


@pytest.mark.parametrize("verb", [Broker.add, Broker.add_offsets])
def test_marks_count_for_the_address_of_the_client(verb: Any) -> None:
    broker = Broker()
    assert verb(broker, FIRST)
    assert broker.coordinator.owners == [OWNER]


def test_a_late_request_does_not_make_an_older_connection_the_newest_one() -> None:
    broker = Broker()
    assert broker.end(THIRD)
    assert not broker.add(FIRST)
    assert not broker.end(SECOND)


def test_an_answer_that_comes_late_does_not_make_an_older_connection_the_newest_one() -> None:
    newest = NewestConnections()
    newest.note(PRODUCER, THIRD)
    newest.note(PRODUCER, FIRST)
    assert newest.is_older(PRODUCER, SECOND)


def test_another_epoch_is_another_producer_whom_the_coordinator_refuses() -> None:
    broker = Broker()
    assert broker.end(SECOND, epoch=1)
    assert broker.end(FIRST, epoch=0)
    assert not broker.closed


def test_the_newer_protocol_needs_no_connection() -> None:
    broker = Broker()
    assert broker.end(SECOND, version=5)
    assert broker.end(FIRST, version=5)


def test_the_producers_whose_last_requests_are_the_oldest_are_forgotten() -> None:
    newest = NewestConnections(most=2)
    for name in ("a", "b", "a", "c"):
        newest.note(Producer(name, 1, 0), SECOND)
    assert [newest.is_older(Producer(name, 1, 0), FIRST) for name in "abc"] == [True, False, True]
