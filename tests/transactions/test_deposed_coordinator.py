"""A coordinator in a cluster confirms final answers, because another broker may have taken over."""

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.transactions.records import key_of
from tests.transactions.by_hand import BILLS, ID, NONE, ORDERS, Process

CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
AWAY = ErrorCode.COORDINATOR_NOT_AVAILABLE
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING


def deposable():
    """An ongoing transaction at a coordinator that may have been deposed."""
    process = Process(may_be_deposed=True)
    assert process.init().answer == (NONE, ID, 0)
    assert process.add(ID, 0, version=0).answer == (NONE, [NONE])
    return process


REFUSALS = {
    "a repeated commit": (lambda process: process.end(ID, 0, version=0), (NONE, -1, -1)),
    "an abort after the commit": (
        lambda process: process.end(ID, 0, commits=False, version=0), (ErrorCode.INVALID_TXN_STATE, -1, -1),
    ),
    "an end of a fenced producer": (lambda process: process.end(ID, 7, version=0), (FENCED, -1, -1)),
    "an end of an unknown id": (lambda process: process.end(ID, 0, name="x", version=0), (MAPPING, -1, -1)),
    "an addition of a fenced producer": (lambda process: process.add(ID, 7, version=0), (FENCED, ())),
    "an addition of an unknown id": (lambda process: process.add(ID, 0, name="x"), (MAPPING, ())),
    "a producer with another id": (lambda process: process.init(producer_id=5, epoch=0), (FENCED, -1, -1)),
}  # fmt: skip


@pytest.mark.parametrize("error", [NONE, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS])
@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_final_answer_from_memory_waits_until_the_log_confirms_the_coordinator(refusal, error):
    """A successor may know of transactions of which this coordinator does not."""
    request, expected = REFUSALS[refusal]
    process = deposable()
    assert process.end(ID, 0, version=0).code is NONE
    process.log.held = True
    reply = request(process)
    assert reply.waits
    process.log.failing = error or None
    process.log.acknowledge()
    codes = {NONE: expected[0], ErrorCode.NOT_ENOUGH_REPLICAS: AWAY}
    assert reply.code is codes.get(error, error)
    if error is NONE:
        assert reply.answer == expected
        assert process.log.records[-1] == (key_of(""), None), "what is appended belongs to nobody"
        process.load()
        assert process.state() == "CompleteCommit"


def test_an_answer_that_makes_the_client_repeat_its_request_is_not_confirmed():
    process = deposable()
    process.held = True
    assert process.end(ID, 0, version=0).waits
    process.log.held = True
    assert process.add(ID, 0, BILLS, version=0).code is CONCURRENT
    assert process.end(ID, 0, version=0).code is CONCURRENT


def test_a_partition_that_is_missing_is_refused_only_if_the_log_confirms_the_coordinator():
    process = deposable()
    process.log.held = True
    answers = []
    process.coordinator.verify("t", ID, 0, (ORDERS, BILLS), answers.append)
    assert not answers
    process.log.failing = ErrorCode.NOT_COORDINATOR
    process.log.acknowledge()
    assert answers == [{ORDERS: NONE, BILLS: ErrorCode.NOT_COORDINATOR}]
    process.coordinator.verify("t", ID, 0, (ORDERS,), answers.append)
    assert answers[1:] == [{ORDERS: NONE}], "a mark needs no confirmation: the partition knows newer coordinators"


def test_a_single_broker_completes_a_transaction_of_which_a_partition_has_a_newer_epoch(ongoing, caplog):
    ongoing.failing[BILLS] = ErrorCode.INVALID_PRODUCER_EPOCH
    reply = ongoing.end(ID, 0)
    assert reply.answer == (NONE, ID, 1)
    assert ongoing.state() == "CompleteCommit"
    assert f"{BILLS[0]}-{BILLS[1]} has a newer producer epoch" in caplog.text


def test_a_partition_that_is_not_known_is_not_taken_for_deleted_at_once():
    """The metadata may come later; a deleted topic must not keep the id for ever."""
    process = deposable()
    process.deleted.add(ORDERS)
    process.failing[ORDERS] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    reply = process.end(ID, 0, version=0)
    process.timers.advance(1500)
    assert reply.code is NONE and process.state() == "PrepareCommit"
    process.failing.clear()
    process.timers.advance(1000)
    assert process.state() == "CompleteCommit" and len(process.sent) > 3
    assert process.add(ID, 0, version=0).code is NONE
    process.failing[ORDERS] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    reply = process.end(ID, 0, version=0)
    process.timers.advance(10_000)
    assert reply.code is NONE and process.state() == "CompleteCommit"
