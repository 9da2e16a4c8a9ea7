"""The verbs of the coordinator with a log, markers and timers: what is answered when, and what a load finds."""

import logging

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.transactions.environment import NOT_WRITTEN, ListFilter, Marker, Owner
from odradek.transactions.records import key_of
from odradek.transactions.states import State
from tests.transactions.by_hand import BILLS, ORDERS, Process, Reply

NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
AWAY = ErrorCode.COORDINATOR_NOT_AVAILABLE
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
ID = 1000


@pytest.fixture
def process():
    return Process()


@pytest.fixture
def ongoing(process):
    """A process in which the id `t` has an ongoing transaction of two partitions."""
    assert process.init().answer == (NONE, ID, 0)
    assert process.add(ID, 0, ORDERS, BILLS).answer == (NONE, [NONE, NONE])
    return process


# -- requests


def test_the_abort_of_a_transaction_whose_producer_is_fenced_is_logged_once(process, caplog):
    caplog.set_level(logging.INFO, "odradek.transactions")
    assert process.init().answer == (NONE, ID, 0)
    assert process.init().answer == (NONE, ID, 1)
    assert caplog.records == [], "no transaction was open"
    assert process.add(ID, 1, ORDERS).answer == (NONE, [NONE])
    assert process.init().answer == (CONCURRENT, -1, -1)
    process.init()
    (record,) = caplog.records
    assert "aborting the transaction of 't' (producer id 1000, epoch 1)" in record.getMessage()
    assert "because a client sent InitProducerId" in record.getMessage()


@pytest.mark.parametrize(
    ("arguments", "settings", "expected"),
    [
        ({"name": ""}, {}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": 5}, {}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 5}, {}, ErrorCode.INVALID_REQUEST),
        ({"timeout_ms": 0}, {}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": -1}, {}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": 900_001}, {}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": 900_000}, {}, NONE),
        ({"timeout_ms": 2}, {"max_timeout_ms": 1}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"enable_2pc": True}, {}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ({"enable_2pc": True, "timeout_ms": -5}, {"two_phase_commit": True}, NONE),
        ({"keep_prepared": True}, {}, ErrorCode.UNSUPPORTED_VERSION),
        ({"keep_prepared": True, "enable_2pc": True}, {}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ({"keep_prepared": True, "enable_2pc": True}, {"two_phase_commit": True}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_arguments_of_init(arguments, settings, expected):
    assert Process(**settings).init(**arguments).code == expected


def test_init_without_an_id_in_hand_creates_nothing(process):
    process.ids.clear()
    assert process.init().answer == (LOADING, -1, -1)
    assert process.state() == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    process.ids.append(1)
    assert process.init().answer == (NONE, 1, 0)


def test_unknown_and_empty_ids(process):
    assert process.add(ID, 0).answer == (MAPPING, ())
    assert process.verify(ID, 0) == {ORDERS: MAPPING}
    assert process.end(ID, 0).answer == (MAPPING, -1, -1)
    assert process.add(ID, 0, name="").code == ErrorCode.INVALID_REQUEST
    assert process.verify(ID, 0, name="") == {ORDERS: ErrorCode.INVALID_REQUEST}
    assert process.end(ID, 0, name="").code == ErrorCode.INVALID_REQUEST
    assert process.state("") == ErrorCode.INVALID_REQUEST


def test_a_transaction_with_version_2(ongoing):
    assert ongoing.allowed == [(*ORDERS, "t", ID, 0, 2), (*BILLS, "t", ID, 0, 2)]
    assert ongoing.end(ID, 0).answer == (NONE, ID, 1)
    assert ongoing.sent == [
        [Marker("t", ID, 1, 7, True, 2, *ORDERS), Marker("t", ID, 1, 7, True, 2, *BILLS)],
    ]
    assert ongoing.states_written() == ["EMPTY", "ONGOING", "PREPARE_COMMIT", "COMPLETE_COMMIT"]
    assert ongoing.end(ID, 0).answer == (NONE, ID, 1), "a retry"
    assert ongoing.coordinator.counts.committed == 1


@pytest.mark.parametrize("server_version", [0, 1, 2])
def test_transactions_of_old_clients_keep_their_epoch(process, server_version):
    process.settings.transaction_version = server_version
    process.init()
    for commits in (True, False):
        assert process.add(ID, 0, version=0).code == NONE
        assert process.end(ID, 0, commits, version=0).answer == (NONE, -1, -1)
        assert process.end(ID, 0, commits, version=0).answer == (NONE, -1, -1), "a retry"
        assert process.sent.pop() == [Marker("t", ID, 0, 7, commits, 0, *ORDERS)]
    assert {value[1] for _, value in process.log.records} == {min(server_version, 1)}


def test_an_abort_without_partitions_writes_no_marker(process):
    process.init()
    assert process.end(ID, 0, commits=False).answer == (NONE, ID, 1)
    assert process.sent == []
    assert process.states_written() == ["EMPTY", "PREPARE_ABORT", "COMPLETE_ABORT"]


def test_ids_rotate_after_the_last_epoch(process):
    process.log.records.append(
        (key_of("t"), bytes.fromhex("0001" + f"{ID:016x}" + "7ffe") + bytes(4) + b"\x00\x00" + bytes(17))
    )
    process.load()
    process.ids = [5, 6]
    assert process.add(ID, 32766).code == NONE
    assert process.end(ID, 32766).answer == (NONE, 5, 0)
    assert [(marker.producer_id, marker.producer_epoch) for marker in process.sent[0]] == [(ID, 32767)]
    assert process.written()[2].next_producer_id == 5
    assert process.written()[3].previous_producer_id == ID
    assert process.end(ID, 32766).answer == (NONE, 5, 0), "a retry"
    assert process.add(5, 0).code == NONE


def test_verification_sets_marks_of_the_partitions_of_the_transaction(ongoing):
    ongoing.allowed.clear()
    ongoing.refused_marks[BILLS] = ErrorCode.NOT_ENOUGH_REPLICAS
    assert ongoing.verify(ID, 0, ("other", 1), BILLS, ORDERS) == {
        ORDERS: NONE,
        BILLS: ErrorCode.NOT_ENOUGH_REPLICAS,
        ("other", 1): ErrorCode.TRANSACTION_ABORTABLE,
    }
    assert ongoing.allowed == [(*BILLS, "t", ID, 0, 0), (*ORDERS, "t", ID, 0, 0)]


def test_marks_are_set_once_the_partition_is_in_the_log(ongoing):
    ongoing.allowed.clear()
    ongoing.log.held = True
    reply = ongoing.add(ID, 0, ("new", 1))
    assert ongoing.allowed == []
    ongoing.log.acknowledge()
    assert reply.answer == (NONE, [NONE])
    assert ongoing.allowed == [("new", 1, "t", ID, 0, 2)]


def test_marks_of_partitions_that_were_added_before_are_set_again(ongoing):
    ongoing.refused_marks[ORDERS] = ErrorCode.INVALID_PRODUCER_EPOCH
    assert ongoing.add(ID, 0, ORDERS, BILLS).answer == (NONE, [ErrorCode.INVALID_PRODUCER_EPOCH, NONE])
    assert len(ongoing.written()) == 2


# -- appends in progress


def test_one_change_at_a_time(process):
    process.init()
    process.log.held = True
    add = process.add(ID, 0)
    assert process.state() == "Empty", "memory follows the log"
    assert process.add(ID, 0).code == CONCURRENT
    assert process.end(ID, 0).code == CONCURRENT
    assert process.init().code == CONCURRENT
    assert process.verify(ID, 0) == {ORDERS: ErrorCode.TRANSACTION_ABORTABLE}
    assert add.waits
    process.log.acknowledge()
    assert add.code == NONE
    assert process.state() == "Ongoing"


def test_a_new_id_exists_when_it_is_in_the_log(process):
    process.log.held = True
    first = process.init()
    assert process.init().code == CONCURRENT
    process.log.acknowledge()
    assert first.answer == (NONE, ID, 0)


@pytest.mark.parametrize("error", sorted(NOT_WRITTEN))
def test_an_append_that_is_certainly_not_written_changes_nothing(process, error):
    expected = AWAY if error is ErrorCode.NOT_ENOUGH_REPLICAS else ErrorCode.UNKNOWN_SERVER_ERROR
    process.log.failing = error
    assert process.init().answer == (expected, -1, -1)
    assert process.state() == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    process.log.failing = None
    assert process.init().answer == (NONE, ID + 1, 0)
    process.log.failing = error
    assert process.add(ID + 1, 0).answer == (expected, ())
    assert process.state() == "Empty"
    process.log.failing = None
    assert process.add(ID + 1, 0).code == NONE
    process.log.failing = error
    assert process.end(ID + 1, 0).code == expected
    assert process.state() == "Ongoing"
    assert process.diverged == []


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (AWAY, AWAY),
        (ErrorCode.REQUEST_TIMED_OUT, AWAY),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, AWAY),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
@pytest.mark.parametrize("landed", [True, False])
def test_after_an_append_of_unknown_outcome_the_log_tells(ongoing, error, told, landed):
    ongoing.log.held = True
    first = ongoing.end(ID, 0)
    other = ongoing.init("u")
    [(records, then), (_, then_other)] = ongoing.log.waiting
    if landed:
        ongoing.log.records += records
    ongoing.log.waiting.clear()
    then(error)
    then_other(ErrorCode.NOT_COORDINATOR)
    assert first.answer == (told, -1, -1)
    assert other.code == ErrorCode.NOT_COORDINATOR
    assert ongoing.diverged == [0], "once"
    assert ongoing.state() == ongoing.add(ID, 0).code == ongoing.end(ID, 0).code == ongoing.init().code == LOADING
    assert ongoing.coordinator.list()[0] == LOADING
    ongoing.log.held = False
    ongoing.load()
    assert ongoing.state() == ("CompleteCommit" if landed else "Ongoing")
    assert ongoing.end(ID, 0).answer == (NONE, ID, 1)


def test_acknowledgements_after_a_resignation_change_nothing(ongoing):
    ongoing.log.held = True
    reply = ongoing.end(ID, 0)
    ongoing.coordinator.resign(0)
    ongoing.log.acknowledge()
    assert reply.code == ErrorCode.NOT_COORDINATOR
    assert ongoing.sent == []
    assert ongoing.end(ID, 0).code == ErrorCode.NOT_COORDINATOR


def test_a_resignation_of_an_older_epoch_is_ignored(ongoing):
    ongoing.coordinator.resign(0, 6)
    assert ongoing.state() == "Ongoing"
    ongoing.coordinator.resign(0, 7)
    assert ongoing.state() == ErrorCode.NOT_COORDINATOR


def test_a_late_append_is_answered_and_memory_follows_its_outcome(ongoing):
    ongoing.log.held = True
    reply = ongoing.end(ID, 0)
    ongoing.log.dawdle()
    assert reply.code == AWAY
    assert ongoing.end(ID, 0).code == CONCURRENT
    ongoing.log.held = False
    ongoing.log.acknowledge()
    assert ongoing.state() == "CompleteCommit"
    assert ongoing.end(ID, 0).answer == (NONE, ID, 1)


def test_a_patient_request_waits_for_a_pending_change(ongoing):
    ongoing.held = True
    ongoing.settings.end_wait_ms = 0
    assert ongoing.end(ID, 0).code == NONE
    patient = ongoing.add(ID, 1, patience_ms=100)
    impatient = ongoing.add(ID, 1, patience_ms=10)
    ongoing.timers.advance(10)
    assert impatient.code == CONCURRENT
    assert patient.waits
    ongoing.write_markers()
    assert patient.answer == (NONE, [NONE])
    ongoing.timers.advance(1000)


def test_two_patient_requests_are_executed_one_after_the_other(process):
    process.init()
    process.log.held = True
    first = process.add(ID, 0, ORDERS)
    second, third = process.add(ID, 0, BILLS, patience_ms=100), process.add(ID, 0, ("x", 1), patience_ms=100)
    process.log.held = False
    process.log.acknowledge()
    assert first.code == second.code == third.code == NONE
    assert process.written()[-1].places == (ORDERS, BILLS, ("x", 1))


@pytest.mark.parametrize("how", ["resign", "diverge"])
def test_patient_requests_of_a_lost_partition_are_answered(ongoing, how):
    ongoing.log.held = True
    ongoing.end(ID, 0)
    patient = ongoing.add(ID, 1, patience_ms=100)
    if how == "resign":
        ongoing.coordinator.resign(0)
        assert patient.code == ErrorCode.NOT_COORDINATOR
    else:
        ongoing.log.failing = AWAY
        ongoing.log.acknowledge()
        assert patient.code == LOADING


# -- markers


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


# -- loads


def test_a_load_completes_what_is_decided(ongoing):
    ongoing.held = True
    ongoing.end(ID, 0, commits=False)
    ongoing.held = False
    other = Process()
    other.log.records = ongoing.log.records
    other.load(9)
    assert other.sent == [[Marker("t", ID, 1, 9, False, 2, *ORDERS), Marker("t", ID, 1, 9, False, 2, *BILLS)]]
    assert other.state() == "CompleteAbort"


def test_ids_answer_after_the_load(process):
    process.coordinator.begin(0, process.log, 8)
    assert process.init().code == process.add(ID, 0).code == process.end(ID, 0).code == process.state() == LOADING
    assert process.verify(ID, 0) == {ORDERS: LOADING}
    assert process.coordinator.loading
    assert process.coordinator.error_of("t") == LOADING
    for _ in process.coordinator.loaded(0):
        pass
    assert process.coordinator.error_of("t") == NONE
    assert process.init().code == NONE


def test_the_last_epoch_is_not_in_the_log(process):
    process.init()
    assert process.init(producer_id=ID, epoch=0).answer == (NONE, ID, 1)
    assert process.init(producer_id=ID, epoch=0).answer == (NONE, ID, 1), "a retry"
    process.load()
    assert process.init(producer_id=ID, epoch=0).code == FENCED, "as in Kafka"


def test_records_that_cannot_be_read_are_skipped(process):
    process.init()
    [(key, value)] = process.log.records
    bad = [(b"\x00\x09\x00\x01t", value), (key, b"\x00\x07" + value[2:]), (b"", value), (key, b"\x00")]
    process.coordinator.begin(0, process.log, 8)
    assert process.coordinator.replay(0, [(key, value), *bad]) == 4
    for _ in process.coordinator.loaded(0):
        pass
    assert process.state() == "Empty"


def test_ids_belong_to_partitions_by_javas_hash():
    process = Process(partitions=50)
    names = [f"id-{number}" for number in range(200)]
    served = [name for name in names if process.init(name).code == NONE]
    assert 0 < len(served) < 20
    assert process.init(next(name for name in names if name not in served)).code == ErrorCode.NOT_COORDINATOR


# -- time


@pytest.mark.parametrize(("version", "epoch"), [(0, 1), (1, 1), (2, 1)])
def test_transactions_that_exceed_their_timeout_are_aborted(ongoing, version, epoch):
    ongoing.settings.transaction_version = version
    ongoing.timers.advance(60_000)
    assert ongoing.coordinator.abort_timed_out() == 0
    ongoing.timers.advance(1)
    assert ongoing.coordinator.abort_timed_out() == 1
    assert ongoing.coordinator.abort_timed_out() == 0
    assert ongoing.state() == "CompleteAbort"
    assert {(m.producer_epoch, m.commits, m.transaction_version) for m in ongoing.sent[0]} == {
        (epoch, False, 2 if version == 2 else 0)
    }
    assert ongoing.end(ID, 0).code == FENCED
    assert ongoing.end(ID, 0, version=0).code == FENCED
    assert ongoing.coordinator.counts.timed_out == 1


def test_a_pending_transaction_does_not_time_out(ongoing):
    ongoing.log.held = True
    ongoing.end(ID, 0)
    ongoing.timers.advance(60_001)
    assert ongoing.coordinator.abort_timed_out() == 0


def test_a_timeout_whose_append_fails_is_repeated(ongoing):
    ongoing.timers.advance(60_001)
    ongoing.log.failing = ErrorCode.NOT_ENOUGH_REPLICAS
    assert ongoing.coordinator.abort_timed_out() == 1
    assert ongoing.state() == "Ongoing"
    ongoing.log.failing = None
    assert ongoing.coordinator.abort_timed_out() == 1
    assert ongoing.written()[-1].epoch == 1, "the epoch does not grow twice"


def test_without_a_new_id_a_timeout_waits(ongoing):
    ongoing.settings.transaction_version = 2
    ongoing.coordinator.shards.by_partition[0].active["t"].facts = ongoing.written()[-1]._replace(epoch=32766)
    ongoing.ids.clear()
    ongoing.timers.advance(60_001)
    assert ongoing.coordinator.abort_timed_out() == 0
    ongoing.ids.append(5)
    assert ongoing.coordinator.abort_timed_out() == 1
    assert ongoing.written()[-1].producer_id == 5


def test_two_phase_commit_has_no_timeout():
    process = Process(two_phase_commit=True)
    process.init(enable_2pc=True)
    process.add(ID, 0)
    process.timers.advance(10**9)
    assert process.coordinator.abort_timed_out() == 0
    assert process.coordinator.describe("t")[1].timeout_ms == 2**31 - 1


def test_a_new_producer_ends_the_transaction_of_its_predecessor(ongoing):
    assert ongoing.init().code == CONCURRENT
    assert ongoing.state() == "CompleteAbort"
    assert ongoing.init().answer == (NONE, ID, 2)
    assert ongoing.end(ID, 0).code == FENCED
    assert ongoing.coordinator.counts.fenced == 1


def test_idle_ids_are_packed_and_used_again(process):
    process.init()
    process.init(producer_id=ID, epoch=0)
    shard = process.coordinator.shards.by_partition[0]
    process.coordinator.abort_timed_out()
    assert set(shard.active) == {"t"}, "used since the last time"
    process.coordinator.abort_timed_out()
    assert not shard.active
    assert process.state() == "Empty"
    assert not shard.active, "a description unpacks nothing"
    assert process.init(producer_id=ID, epoch=0).answer == (NONE, ID, 1), "a retry: the last epoch is packed too"
    assert not shard.idle


WEEK = 604_800_000


def test_unused_ids_expire(process):
    for name in ("a", "b", "c"):
        process.init(name)
    process.add(ID + 2, 0, name="c")
    process.coordinator.abort_timed_out()
    process.coordinator.abort_timed_out()
    process.timers.advance(WEEK - 1)
    assert process.coordinator.expire() == 0
    process.init("b")
    process.timers.advance(1)
    assert process.coordinator.expire() == 1
    assert process.state("a") == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert process.written("a")[-1] is None
    assert process.state("b") == "Empty"
    assert process.state("c") == "Ongoing"
    assert process.coordinator.counts.expired == 1


@pytest.mark.parametrize("packed", [True, False])
def test_an_expiring_id_waits_for_its_tombstone(process, packed):
    process.init()
    for _ in range(2 if packed else 0):
        process.coordinator.abort_timed_out()
    process.timers.advance(WEEK)
    process.log.held = True
    assert process.coordinator.expire() == 1
    assert process.coordinator.expire() == 0
    assert process.add(ID, 0).code == process.init().code == CONCURRENT
    patient = process.add(ID, 0, patience_ms=100)
    process.log.held = False
    process.log.acknowledge()
    assert patient.code == MAPPING
    assert process.init().answer == (NONE, ID + 1, 0)


@pytest.mark.parametrize("packed", [True, False])
def test_an_id_whose_tombstone_is_not_written_stays(process, packed):
    process.init()
    for _ in range(2 if packed else 0):
        process.coordinator.abort_timed_out()
    process.timers.advance(WEEK)
    process.log.held = True
    process.coordinator.expire()
    patient = process.add(ID, 0, patience_ms=100)
    [(_, then)] = process.log.waiting
    process.log.waiting.clear()
    process.log.held = False
    then(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert patient.code == NONE


def test_a_tombstone_of_unknown_outcome_loads_the_partition_again(process):
    process.init()
    process.timers.advance(WEEK)
    process.log.failing = AWAY
    process.coordinator.expire()
    assert process.diverged == [0]


def test_tombstones_are_written_in_batches_and_ids_in_use_meanwhile_stay():
    process = Process(tombstones_at_once=2)
    names = ["a", "b", "c", "d", "e"]
    for name in names:
        process.init(name)
    process.timers.advance(WEEK)
    process.log.held = True
    assert process.coordinator.expire() == 5
    assert [len(records) for records, _ in process.log.waiting] == [2]
    use = process.init("c")
    process.log.held = False
    process.log.acknowledge()
    assert use.code == NONE
    assert [name for name in names if process.state(name) == "Empty"] == ["c"]


def test_tombstones_have_a_largest_size():
    process = Process(tombstone_bytes=1)
    for name in ("a", "b"):
        process.init(name)
    process.timers.advance(WEEK)
    process.log.held = True
    process.coordinator.expire()
    assert [len(records) for records, _ in process.log.waiting] == [1]


# -- descriptions


@pytest.fixture
def several(process):
    """Ids in several states; `idle` is packed."""
    process.init("idle")
    process.coordinator.abort_timed_out()
    process.coordinator.abort_timed_out()
    process.init("ongoing")
    process.add(ID + 1, 0, name="ongoing")
    process.timers.advance(1000)
    process.init("done")
    process.add(ID + 2, 0, name="done")
    process.end(ID + 2, 0, name="done")
    return process


def listed(process, **filters):
    code, unknown, found = process.coordinator.list(ListFilter(**filters))
    assert code == NONE
    return unknown, sorted(row.transactional_id for row in found if row is not None)


@pytest.mark.parametrize(
    ("filters", "unknown", "expected"),
    [
        ({}, [], ["done", "idle", "ongoing"]),
        ({"states": ["Empty"]}, [], ["idle"]),
        ({"states": ["Empty", "CompleteCommit"]}, [], ["done", "idle"]),
        ({"states": ["Dead", "PrepareEpochFence"]}, [], []),
        ({"states": ["Nothing", "Ongoing", "empty"]}, ["Nothing", "empty"], ["ongoing"]),
        ({"states": ["Nothing"]}, ["Nothing"], []),
        ({"producer_ids": [ID, ID + 2, 5]}, [], ["done", "idle"]),
        ({"longer_than_ms": 0}, [], ["idle", "ongoing"]),
        ({"longer_than_ms": 999}, [], ["idle", "ongoing"]),
        ({"longer_than_ms": 1000}, [], ["idle"]),
        ({"matches": lambda name: "o" in name}, [], ["done", "ongoing"]),
        ({"states": ["Ongoing"], "producer_ids": [ID]}, [], []),
    ],
)
def test_filters_of_lists(several, filters, unknown, expected):
    assert listed(several, **filters) == (unknown, expected)


def test_descriptions(several):
    now = several.timers.now_ms()
    assert several.coordinator.describe("idle")[1] == ("Empty", 60_000, -1, ID, 0, ())
    assert several.coordinator.describe("ongoing")[1] == ("Ongoing", 60_000, now - 1000, ID + 1, 0, (ORDERS,))
    assert several.coordinator.describe("done")[1] == ("CompleteCommit", 60_000, now, ID + 2, 1, ())
    assert several.coordinator.describe("no")[0] == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_owners_of_producer_ids(several):
    several.held = True
    several.init("ending")
    several.add(ID + 3, 0, name="ending")
    several.end(ID + 3, 0, name="ending")
    ongoing = Owner("ongoing", ID + 1, 0, "Ongoing", (ORDERS,))
    ending = Owner("ending", ID + 3, 1, "PrepareCommit", (ORDERS,))
    assert several.coordinator.open_transactions() == {ID + 1: ongoing, ID + 3: ending}
    assert several.coordinator.owner_of(ID + 1) == ongoing
    assert several.coordinator.owner_of(ID) == Owner("idle", ID, 0, "Empty", ())
    assert several.coordinator.owner_of(5) is None
    assert several.coordinator.known(ID, 0)
    assert not several.coordinator.known(ID, 1)
    assert several.coordinator.completing == 1
    several.write_markers()
    assert several.coordinator.completing == 0


def test_states_are_members_of_the_enumeration(ongoing):
    """A comparison by identity must also hold for states that were read."""
    ongoing.load()
    facts = ongoing.coordinator.shards.by_partition[0].active["t"].facts
    assert facts.state is State.ONGOING


def test_replies_are_given_once():
    reply = Reply()
    reply(1)
    with pytest.raises(AssertionError):
        reply(2)


def test_only_some_ids_are_packed_at_once(process, monkeypatch):
    monkeypatch.setattr("odradek.transactions.coordinator.MOST_PACKED", 2)
    for name in ("a", "b", "c"):
        process.init(name)
    shard = process.coordinator.shards.by_partition[0]
    sizes = []
    for _ in range(3):
        process.coordinator.abort_timed_out()
        sizes.append((len(shard.active), len(shard.idle)))
    assert sizes == [(3, 0), (1, 2), (0, 3)]


# -- in a cluster: another broker may have taken over


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
