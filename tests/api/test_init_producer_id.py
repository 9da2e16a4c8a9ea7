"""InitProducerId: assigned ids are never repeated, even by later coordinators."""

import json

import pytest

from odradek.controller.producer_ids import MAX_PRODUCER_ID
from odradek.metadata import znodes
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import init_producer_id
from tests.api.coordinator_harness import Harness, versions
from tests.controller.mortal_cluster import single_broker

KEY = init_producer_id.API_KEY


@pytest.fixture
def cluster(tmp_path):
    with single_broker(tmp_path) as make_cluster:
        yield make_cluster()


@pytest.fixture
def harness(cluster):
    return Harness(cluster)


def request(transactional_id=None, producer_id=-1, epoch=-1):
    return init_producer_id.Request(
        transactional_id=transactional_id,
        transaction_timeout_ms=60000,
        producer_id=producer_id,
        producer_epoch=epoch,
    )


@pytest.mark.parametrize("version", versions(KEY))
def test_every_producer_gets_a_different_id(harness, version):
    answers = [harness.ask(request(), KEY, version) for _ in range(3)]
    assert [(one.error_code, one.producer_id, one.producer_epoch) for one in answers] == [(0, n, 0) for n in range(3)]


def test_a_block_is_durable_before_its_first_id_and_never_used_again(harness, cluster):
    ids = [harness.ask(request(), KEY).producer_id for _ in range(1001)]
    assert ids == list(range(1001))
    assert json.loads(cluster.store.get("/latest_producer_id_block")[0]) == {
        "version": 1, "broker": 1, "block_start": "1000", "block_end": "1999",
    }  # fmt: skip
    cluster.succeed()
    assert Harness(cluster).ask(request(), KEY).producer_id == 2000


def test_a_former_id_without_transactions_is_replaced_by_a_new_one(harness):
    answer = harness.ask(request(producer_id=77, epoch=3), KEY)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.NONE, 0, 0)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (request("tx"), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (request(""), ErrorCode.INVALID_REQUEST),
        (request(producer_id=5), ErrorCode.INVALID_REQUEST),
        (request(epoch=5), ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_requests_for_a_producer_id_are_refused(harness, asked, code):
    answer = harness.ask(asked, KEY)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)


def test_a_store_that_fails_is_a_retriable_error(harness, cluster):
    cluster.store._db.execute("PRAGMA query_only=1")
    assert harness.ask(request(), KEY).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    cluster.store._db.execute("PRAGMA query_only=0")
    assert harness.ask(request(), KEY).producer_id == 0


def test_ids_end_before_they_would_repeat(harness, cluster):
    last = znodes.ProducerIdBlock(1, MAX_PRODUCER_ID - 1500, MAX_PRODUCER_ID - 501)
    cluster.store.set(znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_id_block(last))
    assert harness.ask(request(), KEY).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
