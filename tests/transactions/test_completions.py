"""The markers of decided transactions, and their completion, with partitions that refuse markers or were deleted."""

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.transactions.environment import Marker
from odradek.transactions.markers import DELETED_AFTER_LOOKS
from tests.transactions.by_hand import BILLS, ID, NONE, ORDERS

CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
AWAY = ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_end_is_answered_after_the_completion(ongoing):
    ongoing.held = True
    reply = ongoing.end(ID, 0)
    assert reply.waits
    assert ongoing.state() == "PrepareCommit"
    ongoing.write_markers()
    assert reply.answer == (NONE, ID, 1)
    assert ongoing.add(ID, 1).code == NONE
    ongoing.timers.advance(1000)


def test_end_waits_for_a_bounded_time(ongoing):
    ongoing.held = True
    reply = ongoing.end(ID, 0)
    ongoing.timers.advance(19)
    assert reply.waits
    ongoing.timers.advance(1)
    assert reply.answer == (NONE, ID, 1)
    assert ongoing.end(ID, 0).code == ongoing.add(ID, 1).code == ongoing.init().code == CONCURRENT
    ongoing.write_markers()
    assert ongoing.state() == "CompleteCommit"


def test_waiting_ends_are_answered_in_their_order(process):
    process.held = True
    replies = []
    for number, name in enumerate(("a", "b", "c")):
        process.init(name)
        process.add(ID + number, 0, name=name)
        replies.append(process.end(ID + number, 0, name=name))
        process.timers.advance(5)
    process.timers.advance(5)
    assert [reply.waits for reply in replies] == [False, True, True]
    _batch, then = process.waiting.pop(1)
    then([NONE])
    assert not replies[1].waits
    process.timers.advance(10)
    assert not replies[2].waits


def test_end_without_a_wait_is_answered_when_the_decision_is_durable(ongoing):
    ongoing.settings.end_wait_ms = 0
    ongoing.held = ongoing.log.held = True
    reply = ongoing.end(ID, 0)
    assert reply.waits
    ongoing.log.acknowledge()
    assert reply.answer == (NONE, ID, 1)
    assert ongoing.sent, "after the answer nobody else would send them"


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
    ],
)
def test_refused_markers_are_sent_again_with_longer_and_longer_waits(ongoing, error):
    ongoing.failing[BILLS] = error
    reply = ongoing.end(ID, 0)
    assert len(ongoing.sent) == 1
    places = ongoing.coordinator.describe("t")[1].places
    assert places == (BILLS,), "the others have their marker"
    for wait_ms in (20, 40, 80, 160, 320, 640, 1000, 1000):
        ongoing.timers.advance(wait_ms - 1)
        before = len(ongoing.sent)
        ongoing.timers.advance(1)
        assert len(ongoing.sent) == before + 1
        assert ongoing.sent[-1] == [Marker("t", ID, 1, 7, True, 2, *BILLS)]
    assert reply.answer == (NONE, ID, 1)
    ongoing.failing.clear()
    ongoing.timers.advance(1000)
    assert ongoing.state() == "CompleteCommit"


@pytest.mark.parametrize(
    ("error", "deleted"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        (ErrorCode.UNSUPPORTED_VERSION, False),
        (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, False),
    ],
)
def test_partitions_that_need_no_marker_are_dropped(ongoing, error, deleted):
    ongoing.failing[BILLS] = error
    if deleted:
        ongoing.deleted.add(BILLS)
    assert ongoing.end(ID, 0).answer == (NONE, ID, 1)
    assert ongoing.state() == "CompleteCommit"


@pytest.mark.parametrize("error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
def test_a_newer_coordinator_completes_the_transaction(ongoing, error):
    ongoing.settings.may_be_deposed = True
    ongoing.failing[ORDERS] = error
    ongoing.failing[BILLS] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    reply = ongoing.end(ID, 0)
    ongoing.timers.advance(29_999)
    assert len(ongoing.sent) == 1
    assert reply.code == NONE
    assert ongoing.state() == "PrepareCommit"
    ongoing.coordinator.resign(0)
    ongoing.timers.advance(100_000)
    assert len(ongoing.sent) == 1


def test_refused_markers_are_sent_seldom_if_no_newer_coordinator_takes_over(ongoing):
    ongoing.settings.may_be_deposed = True
    ongoing.failing[ORDERS] = ErrorCode.INVALID_PRODUCER_EPOCH
    ongoing.end(ID, 0)
    ongoing.failing.clear()
    ongoing.timers.advance(30_000)
    assert ongoing.state() == "CompleteCommit"


def test_answers_of_markers_after_a_load_change_nothing(ongoing):
    ongoing.held = True
    reply = ongoing.end(ID, 0)
    ongoing.load(8)
    [(_, old), (batch, new)] = ongoing.waiting
    assert {marker.coordinator_epoch for marker in batch} == {8}
    old([NONE, NONE])
    assert ongoing.state() == "PrepareCommit"
    assert reply.answer == (NONE, ID, 1), "the decision is durable"
    new([NONE, NONE])
    assert ongoing.state() == "CompleteCommit"


@pytest.mark.parametrize("error", [AWAY, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_the_completion_is_appended_until_it_is_durable(ongoing, error):
    ongoing.held = True
    reply = ongoing.end(ID, 0)
    ongoing.log.failing = error
    ongoing.write_markers()
    assert ongoing.state() == "PrepareCommit"
    ongoing.timers.advance(20)
    assert reply.answer == (NONE, ID, 1)
    ongoing.log.failing = None
    ongoing.timers.advance(100)
    assert ongoing.state() == "CompleteCommit"
    assert ongoing.diverged == []
    assert len(ongoing.sent) == 1, "no marker is sent again"


def test_a_deposed_coordinator_leaves_the_completion_to_its_successor(ongoing):
    ongoing.held = True
    reply = ongoing.end(ID, 0)
    ongoing.log.failing = ErrorCode.NOT_COORDINATOR
    ongoing.write_markers()
    assert reply.answer == (NONE, ID, 1)
    assert ongoing.diverged == [0]


def test_only_a_partition_that_is_missing_many_times_in_succession_counts_as_deleted(ongoing):
    ongoing.settings.may_be_deposed = True
    ongoing.failing[BILLS] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    ongoing.end(ID, 0)
    while len(ongoing.sent) <= 2 * DELETED_AFTER_LOOKS:  # for another reason
        ongoing.timers.advance(1000)
    ongoing.failing[BILLS] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ongoing.deleted.add(BILLS)
    ongoing.timers.advance(1000)
    assert ongoing.state() == "PrepareCommit", "one look without the partition is no deletion"
    ongoing.timers.advance(1000 * (DELETED_AFTER_LOOKS - 2))
    ongoing.deleted.discard(BILLS)  # its metadata arrived
    ongoing.timers.advance(1000)
    assert ongoing.state() == "PrepareCommit"
    ongoing.deleted.add(BILLS)
    ongoing.timers.advance(1000 * (DELETED_AFTER_LOOKS - 1))
    assert ongoing.state() == "PrepareCommit", "the looks are counted from the beginning"
    ongoing.timers.advance(1000)
    assert ongoing.state() == "CompleteCommit"
