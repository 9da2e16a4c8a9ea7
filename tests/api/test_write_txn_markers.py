"""WriteTxnMarkers: a marker that its coordinator has given up does not end the next transaction."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api.transactions.transaction_call import NewestConnections, NewestMarkers, TransactionCall, TransactionView
from odradek.api.transactions.write_txn_markers import handle
from odradek.coordination.environment import EndMarker
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import write_txn_markers
from odradek.stepwise import Stepwise

OLD, NEW = 5, 8
"""Connections."""


class Topic:
    def exists(self, partition: int) -> bool:
        return partition == 0


class Markers:
    """Writes everything at once."""

    def __init__(self) -> None:
        self.written: list[EndMarker] = []

    def put(self, topic: str, partition: int, marker: EndMarker, then: Any) -> None:
        self.written.append(marker)
        then(ErrorCode.NONE)


class Broker:
    """What a broker does with markers."""

    def __init__(self, clustered: bool = False) -> None:
        self.markers = Markers()
        self.answers: list[Any] = []
        self.closed: list[str] = []
        topics: Any = {"orders": Topic()}
        nothing: Any = None
        self.view = TransactionView(
            SimpleNamespace(clustered=clustered),
            nothing,
            topics,
            nothing,
            self.markers,
            lambda: 0,
            NewestConnections(),
            NewestMarkers(),
        )

    def send(
        self,
        connection: int,
        *,
        coordinator_epoch: int = 3,
        producer_id: int = 7,
        transaction_version: int = 0,
        client_id: str = "admin",
    ) -> bool:
        """Whether a marker is executed; otherwise its connection is closed without an answer."""
        make = write_txn_markers.Request
        topic = make.WritableTxnMarkerTopic(name="orders", partition_indexes=[0])
        marker = make.WritableTxnMarker(
            producer_id=producer_id, producer_epoch=0, transaction_result=True, topics=[topic],
            coordinator_epoch=coordinator_epoch, transaction_version=transaction_version,
        )  # fmt: skip
        before = len(self.answers), len(self.closed), len(self.markers.written)
        call = TransactionCall(
            2, "client", connection, "User:ANONYMOUS", self.view, self.closed.append, client_id=client_id
        )
        response = Stepwise(handle(make(markers=[marker]), call)).finish()
        if response is not None:
            self.answers.append(response)
        after = len(self.answers), len(self.closed), len(self.markers.written)
        change = tuple(new - old for new, old in zip(after, before, strict=True))
        assert change in ((1, 0, 1), (0, 1, 0))
        return change[0] == 1


@pytest.fixture
def broker() -> Broker:
    return Broker()


def test_a_marker_that_was_sent_again_on_a_newer_connection_is_not_executed_when_it_arrives_late(broker):
    assert broker.send(OLD) and broker.send(NEW)
    assert not broker.send(OLD)
    assert "arrived late, after its coordinator" in broker.closed[0]
    assert broker.send(NEW), "the next transaction ends"


def test_markers_of_other_producers_and_coordinators_are_not_late(broker):
    assert broker.send(NEW)
    assert broker.send(OLD, producer_id=8)
    assert broker.send(OLD, coordinator_epoch=4), "a newer coordinator: another broker with an older connection"
    assert broker.send(NEW, coordinator_epoch=3), "of the former coordinator: the partition's epochs refuse it"
    assert broker.send(OLD, coordinator_epoch=4), "the former coordinator did not change what is known of the newer one"


def test_a_marker_of_version_2_is_judged_by_its_epoch_alone(broker):
    assert broker.send(NEW, transaction_version=2)
    assert broker.send(OLD, transaction_version=2)


def test_the_oldest_producers_are_forgotten():
    newest = NewestMarkers(most=2)
    for producer_id in (1, 2, 3):
        assert not newest.is_older(producer_id, 0, NEW)
    assert not newest.is_older(1, 0, OLD), "forgotten"
    assert newest.is_older(3, 0, OLD)


MARKER = (
    "wrote a commit marker of producer id 7 (epoch 0, coordinator epoch 3) into orders-0, because client requested it"
)


@pytest.mark.parametrize(
    ("clustered", "client_id", "lines"),
    [
        (False, "admin", [MARKER]),
        (False, "1", [MARKER]),
        (True, "admin", [MARKER]),
        (True, "1", []),
        (True, "broker-2-txn-marker-sender", []),
    ],
)
def test_the_markers_of_clients_are_logged_and_those_of_brokers_are_not(caplog, clustered, client_id, lines):
    caplog.set_level(logging.INFO, "odradek.transactions")
    assert Broker(clustered).send(NEW, client_id=client_id)
    assert [record.getMessage() for record in caplog.records] == lines
