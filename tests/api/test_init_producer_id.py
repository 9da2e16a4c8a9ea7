"""InitProducerId: assigned ids are never repeated, even by later coordinators; requests of transactional producers."""

import json
from typing import Any

import pytest

from odradek.api.transactions.init_producer_id import handle
from odradek.api.transactions.transaction_call import NewestConnections, TransactionCall, TransactionView
from odradek.controller.producer_ids import LEFT_OUT, MAX_PRODUCER_ID, ProducerIds, ProducerIdsExhausted
from odradek.metadata import znodes
from odradek.metadata.store import StoreError, StoreUnavailable
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import init_producer_id
from odradek.stepwise import Stepwise
from tests.api.coordinator_harness import versions
from tests.controller.mortal_cluster import single_broker

KEY = init_producer_id.API_KEY


@pytest.fixture
def cluster(tmp_path):
    with single_broker(tmp_path) as make_cluster:
        yield make_cluster()


class Source:
    """A stock of producer ids from a store; empty if the store returns an error."""

    def __init__(self, ids: ProducerIds | None = None, error: Exception | None = None) -> None:
        self._ids = ids
        self.error = error

    def next(self) -> int | None:
        return None if self._ids is None else self._ids.next()

    def when_ready(self, then: Any) -> None:
        then(self.error)


class Coordinator:
    """Records what is asked of the transaction coordinator."""

    def __init__(self, outcome: tuple[ErrorCode, int, int] = (ErrorCode.NONE, 7, 3)) -> None:
        self.outcome = outcome
        self.asked: list[tuple[Any, ...]] = []

    def init_producer_id(self, *arguments: Any) -> None:
        *asked, then, client, _ = arguments
        assert client == "client"
        self.asked.append(tuple(asked))
        then(*self.outcome)


def ask(request: Any, source: Any, coordinator: Any = None, version: int = 5) -> Any:
    view = TransactionView(None, coordinator, None, source, None, lambda: 0, NewestConnections())
    call = TransactionCall(version, "client", 1, "User:ANONYMOUS", view, pytest.fail)
    return Stepwise(handle(request, call)).finish()


def request(transactional_id=None, producer_id=-1, epoch=-1):
    return init_producer_id.Request(
        transactional_id=transactional_id,
        transaction_timeout_ms=60000,
        producer_id=producer_id,
        producer_epoch=epoch,
    )


def test_every_producer_gets_a_different_id(cluster):
    source = Source(ProducerIds(cluster.store, 1))
    answers = [ask(request(), source, version=version) for version in versions(KEY)]
    assert [(one.error_code, one.producer_id, one.producer_epoch) for one in answers] == [
        (0, n, 0) for n in range(len(answers))
    ]


def test_a_block_is_durable_before_its_first_id_and_never_used_again(cluster):
    ids = ProducerIds(cluster.store, 1)
    assert [ids.next() for _ in range(1001)] == list(range(1001))
    assert json.loads(cluster.store.get("/latest_producer_id_block")[0]) == {
        "version": 1, "broker": 1, "block_start": "1000", "block_end": "1999",
    }  # fmt: skip
    cluster.succeed()
    assert ProducerIds(cluster.store, 1).next() == 2000


BLOCK = "/latest_producer_id_block"


def test_ids_that_a_restored_store_has_forgotten_are_not_allocated_again(cluster):
    """By the broker that has allocated them, by one that knows of them, and, once one of these has looked, by all others."""
    ids, other, changes = ProducerIds(cluster.store, 1), ProducerIds(cluster.store, 2), []
    assert [ids.next() for _ in range(2500)] == list(range(2500))
    backup = cluster.store.get(BLOCK)[0]
    other.look(changes.append)
    assert [ids.next() for _ in range(1000)][-1] == 3499
    assert len(changes) == 1
    other.look()
    cluster.store.set(BLOCK, backup)
    assert other.next() == 4000 + LEFT_OUT
    cluster.store.set(BLOCK, backup)
    ids.look()
    assert ids.next() == 3500, "the rest of a block that was allocated to it belongs to it"
    assert ProducerIds(cluster.store, 3).next() == 5000 + LEFT_OUT
    ids.look()
    assert cluster.store.get(BLOCK)[0] == b'{"version":1,"broker":3,"block_start":"1053576","block_end":"1054575"}'


def test_a_look_at_a_store_that_forgot_nothing_allocates_nothing(cluster):
    ids = ProducerIds(cluster.store, 1)
    ids.look()
    assert cluster.store.get(BLOCK)[0] == b""
    ids.next()
    before = cluster.store.get(BLOCK)
    ids.look()
    assert cluster.store.get(BLOCK) == before


def test_a_former_id_without_transactions_is_replaced_by_a_new_one(cluster):
    answer = ask(request(producer_id=77, epoch=3), Source(ProducerIds(cluster.store, 1)))
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.NONE, 0, 0)


@pytest.mark.parametrize("asked", [request(""), request(producer_id=5), request(epoch=5)])
def test_invalid_requests_for_a_producer_id_are_refused(asked):
    answer = ask(asked, Source())
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.INVALID_REQUEST, -1, -1)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StoreUnavailable("the disk is away"), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ProducerIdsExhausted("none is left"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_store_that_fails_is_a_retriable_error_and_exhausted_ids_are_not(error, code):
    assert ask(request(), Source(error=error)).error_code == code


def test_a_store_that_fails_allocates_nothing(cluster):
    ids = ProducerIds(cluster.store, 1)
    cluster.store._db.execute("PRAGMA query_only=1")
    with pytest.raises(StoreError):
        ids.next()
    cluster.store._db.execute("PRAGMA query_only=0")
    assert ids.next() == 0


def test_ids_end_before_they_would_repeat(cluster):
    last = znodes.ProducerIdBlock(1, MAX_PRODUCER_ID - 1500, MAX_PRODUCER_ID - 501)
    ids = ProducerIds(cluster.store, 1)
    cluster.store.set(znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_id_block(last))
    with pytest.raises(ProducerIdsExhausted):
        ids.next()


def test_a_transactional_producer_is_served_by_the_transaction_coordinator():
    coordinator = Coordinator()
    answer = ask(request("payments", 7, 2), Source(), coordinator)
    assert coordinator.asked == [("payments", 60000, 7, 2, False, False)]
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.NONE, 7, 3)


@pytest.mark.parametrize("version", versions(KEY))
def test_a_fenced_producer_receives_the_code_that_its_version_knows(version):
    coordinator = Coordinator((ErrorCode.PRODUCER_FENCED, -1, -1))
    answer = ask(request("payments", 7, 2), Source(), coordinator, version)
    expected = ErrorCode.PRODUCER_FENCED if version >= 4 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (expected, -1, -1)


def test_a_store_that_fails_does_not_disturb_transactional_producers_that_have_an_id():
    answer = ask(request("payments", 7, 2), Source(error=StoreUnavailable("away")), Coordinator())
    assert (answer.error_code, answer.producer_id) == (ErrorCode.NONE, 7)
