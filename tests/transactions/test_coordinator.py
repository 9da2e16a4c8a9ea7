"""The requests of producers to the coordinator, and appends in progress: which response each request gets, and when."""

import logging

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.transactions.environment import NOT_WRITTEN, Marker
from odradek.transactions.records import key_of
from tests.transactions.by_hand import BILLS, ID, NONE, ORDERS, Process

CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
AWAY = ErrorCode.COORDINATOR_NOT_AVAILABLE
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING


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
