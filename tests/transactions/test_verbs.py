"""Every row of Kafka's state machine: which request, in which state, has which result."""

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas.transaction_records import STATES
from odradek.transactions import transaction as verbs
from odradek.transactions.states import COMPLETE_OF, END_1, END_2, IDLE, PREVIOUS, State
from odradek.transactions.transaction import Answer, Facts, Write

NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
INVALID = ErrorCode.INVALID_TXN_STATE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE

ID, OLD_ID, NEW_ID, STRANGER = 1000, 900, 2000, 77
EPOCH, START, UPDATED, NOW, TIMEOUT = 5, 100, 200, 300, 60_000
ORDERS, BILLS = ("orders", 0), ("bills", 3)
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, DEAD, FENCE = State
KEPT = [EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT]
PREPARED = [PREPARE_COMMIT, PREPARE_ABORT]
SETTLED = [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT]
BUMP = object()


def facts(state, epoch=EPOCH, last_epoch=-1, previous=ID, producer_id=ID, version=0):
    places = (ORDERS,) if state in (ONGOING, *PREPARED) else ()
    start = -1 if state is EMPTY else START
    return Facts(producer_id, previous, -1, epoch, last_epoch, TIMEOUT, state, places, start, UPDATED, version)


def new_id():
    return NEW_ID


def no_new_id():
    return None


def answer(outcome):
    return outcome.answer if isinstance(outcome, Write) else outcome


def test_states_have_the_numbers_and_the_names_of_the_log():
    names = ["".join(part.capitalize() for part in state.name.split("_")) for state in State]
    assert names == list(STATES)


def test_every_record_has_a_legal_previous_state():
    assert PREVIOUS[COMPLETE_COMMIT] == {PREPARE_COMMIT}
    assert PREVIOUS[PREPARE_COMMIT] == {ONGOING}
    assert set(KEPT) == IDLE | {ONGOING} | set(COMPLETE_OF)
    with pytest.raises(ValueError, match="PREPARE_COMMIT cannot follow EMPTY"):
        verbs._prepare(facts(EMPTY), PREPARE_COMMIT, 2, NOW, new_id, verbs.DONE)


# -- InitProducerId


def init(before, producer_id=-1, epoch=-1, pending=None, version=2, ids=new_id):
    return verbs.init(before, pending, producer_id, epoch, 9000, NOW, version, ids)


@pytest.mark.parametrize("state", KEPT)
@pytest.mark.parametrize("pending", [*KEPT, DEAD])
@pytest.mark.parametrize("given", [(-1, -1), (ID, EPOCH), (STRANGER, 1)])
def test_init_waits_for_a_pending_state_before_it_checks_the_id(state, pending, given):
    assert init(facts(state), *given, pending=pending) == Answer(CONCURRENT)


@pytest.mark.parametrize("state", KEPT)
def test_init_fences_another_producer_id(state):
    assert init(facts(state), STRANGER, EPOCH) == Answer(FENCED)


@pytest.mark.parametrize("state", KEPT)
def test_init_fences_the_previous_id_with_an_epoch_that_was_not_exhausted(state):
    assert init(facts(state, epoch=0, previous=OLD_ID), OLD_ID, 32765) == Answer(FENCED)


@pytest.mark.parametrize("state", PREPARED)
@pytest.mark.parametrize("given", [(-1, -1), (ID, EPOCH)])
def test_init_waits_for_the_completion(state, given):
    assert init(facts(state), *given) == Answer(CONCURRENT)


@pytest.mark.parametrize("state", SETTLED)
@pytest.mark.parametrize(
    ("before", "given", "after"),
    [
        # stored epoch and last epoch; given; producer id, epoch and last epoch afterwards
        ((EPOCH, -1), (-1, -1), (ID, EPOCH + 1, -1)),
        ((EPOCH, 3), (-1, -1), (ID, EPOCH + 1, -1)),
        ((EPOCH, -1), (ID, EPOCH), (ID, EPOCH + 1, EPOCH)),
        ((EPOCH, EPOCH - 1), (ID, EPOCH - 1), (ID, EPOCH, EPOCH - 1)),
        ((-1, -1), (-1, -1), (ID, 0, -1)),
        ((-1, -1), (STRANGER, 8), (ID, 0, -1)),
        ((32765, -1), (-1, -1), (ID, 32766, -1)),
        ((32766, -1), (-1, -1), (NEW_ID, 0, -1)),
        ((32766, -1), (ID, 32766), (NEW_ID, 0, 32766)),
        ((32766, 32765), (ID, 32765), (ID, 32766, 32765)),
        ((32767, -1), (-1, -1), (NEW_ID, 0, -1)),
        ((32767, -1), (ID, 32767), (NEW_ID, 0, 32767)),
    ],
)
def test_init_gives_a_new_epoch(state, before, given, after):
    epoch, last_epoch = before
    producer_id, new_epoch, new_last = after
    written = Facts(producer_id, ID, -1, new_epoch, new_last, 9000, EMPTY, (), -1, NOW, 0)
    outcome = init(facts(state, epoch, last_epoch), *given)
    assert outcome == Write(written, Answer(NONE, producer_id, new_epoch))


@pytest.mark.parametrize("state", SETTLED)
@pytest.mark.parametrize("given", [EPOCH - 1, EPOCH - 2, EPOCH + 1, 0])
def test_init_fences_an_epoch_that_is_neither_the_current_nor_the_last(state, given):
    assert init(facts(state, last_epoch=-1), ID, given) == Answer(FENCED)


@pytest.mark.parametrize("state", SETTLED)
def test_init_fences_an_old_epoch_while_the_current_one_is_exhausted(state):
    assert init(facts(state, epoch=32766), ID, 3) == Answer(FENCED)


@pytest.mark.parametrize("state", SETTLED)
def test_init_repeated_after_a_rotation_returns_the_rotated_id(state):
    before = facts(state, epoch=0, last_epoch=32766, previous=OLD_ID)
    assert answer(init(before, OLD_ID, 32766)) == Answer(NONE, ID, 0)


@pytest.mark.parametrize("state", SETTLED)
def test_init_without_a_new_id_in_hand_is_repeated_by_the_client(state):
    assert init(facts(state, epoch=32766), ids=no_new_id) == Answer(LOADING)


@pytest.mark.parametrize("given", [(-1, -1), (ID, EPOCH), (ID, 2)])
@pytest.mark.parametrize(
    ("version", "epoch", "after"),
    [
        # The server's transaction.version; the epoch; epoch, last epoch, next id and version in the record
        (0, EPOCH, (EPOCH + 1, -1, -1, 0)),
        (1, EPOCH, (EPOCH + 1, -1, -1, 0)),
        (1, 32766, (32767, -1, -1, 0)),
        (1, 32767, (32767, -1, -1, 0)),
        (2, EPOCH, (EPOCH + 1, EPOCH, -1, 2)),  # one bump, not two: KAFKA-19367
        (2, 32766, (32767, 32766, NEW_ID, 2)),
        (2, 32767, (32767, 32767, NEW_ID, 2)),  # KAFKA-20090
    ],
)
def test_init_aborts_an_ongoing_transaction(version, epoch, after, given):
    new_epoch, last, next_id, recorded = after
    outcome = init(facts(ONGOING, epoch, last_epoch=2), *given, version=version)
    written = Facts(ID, ID, next_id, new_epoch, last, TIMEOUT, PREPARE_ABORT, (ORDERS,), START, NOW, recorded)
    assert outcome == Write(written, Answer(CONCURRENT))


def test_an_abort_with_an_exhausted_epoch_needs_a_new_id():
    assert init(facts(ONGOING, 32766), version=2, ids=no_new_id) == Answer(LOADING)


# -- AddPartitionsToTxn


def add(before, producer_id=ID, epoch=EPOCH, places=(ORDERS,), pending=None, version=2):
    return verbs.add(before, pending, producer_id, epoch, places, version, NOW)


@pytest.mark.parametrize("state", KEPT)
@pytest.mark.parametrize("pending", [*KEPT, DEAD])
@pytest.mark.parametrize("producer", [(ID, EPOCH), (ID, 1), (STRANGER, 0)])
def test_add_waits_for_a_pending_state_before_it_checks_the_id(state, pending, producer):
    """KAFKA-18660, KAFKA-18464: the client may have the id that a pending rotation gives."""
    assert add(facts(state), *producer, pending=pending) == Answer(CONCURRENT)


@pytest.mark.parametrize("state", KEPT)
def test_add_refuses_another_id(state):
    assert add(facts(state), STRANGER) == Answer(MAPPING)
    assert add(facts(state), STRANGER, 1) == Answer(MAPPING)


@pytest.mark.parametrize("state", KEPT)
@pytest.mark.parametrize("epoch", [EPOCH - 1, EPOCH + 1])
def test_add_fences_another_epoch(state, epoch):
    assert add(facts(state), epoch=epoch) == Answer(FENCED)


@pytest.mark.parametrize("state", PREPARED)
def test_add_waits_for_the_completion(state):
    assert add(facts(state)) == Answer(CONCURRENT)


@pytest.mark.parametrize("places", [(ORDERS,), (), (ORDERS, ORDERS)])
def test_add_of_present_partitions_writes_nothing(places):
    assert add(facts(ONGOING), places=places) == Answer(NONE)


@pytest.mark.parametrize("version", [0, 2])
def test_add_to_an_ongoing_transaction_writes_the_union(version):
    outcome = add(facts(ONGOING), places=(BILLS, ORDERS, BILLS), version=version)
    written = Facts(ID, ID, -1, EPOCH, -1, TIMEOUT, ONGOING, (ORDERS, BILLS), START, NOW, version)
    assert outcome == Write(written, Answer(NONE))


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("state", SETTLED)
def test_add_begins_a_transaction(state, version):
    outcome = add(facts(state, last_epoch=4, previous=OLD_ID), places=(BILLS, BILLS, ORDERS), version=version)
    written = Facts(ID, ID, -1, EPOCH, 4, TIMEOUT, ONGOING, (BILLS, ORDERS), NOW, NOW, version)
    assert outcome == Write(written, Answer(NONE))


def test_add_to_a_transaction_of_many_partitions():
    many = tuple(("many", partition) for partition in range(40))
    before = facts(ONGOING)._replace(places=many)
    assert add(before, places=many[::-1]) == Answer(NONE)
    assert add(before, places=(many[3], ORDERS)).facts.places == (*many, ORDERS)


# -- verification


@pytest.mark.parametrize("state", KEPT)
@pytest.mark.parametrize("pending", [None, EMPTY, ONGOING])
def test_verification_does_not_wait_for_a_pending_state(state, pending):
    assert verbs.verify(facts(state), pending, STRANGER, EPOCH) == Answer(MAPPING)
    assert verbs.verify(facts(state), pending, ID, EPOCH - 1) == Answer(FENCED)
    assert verbs.verify(facts(state), pending, ID, EPOCH + 1) == Answer(FENCED)
    expected = CONCURRENT if state in PREPARED else NONE
    assert verbs.verify(facts(state), pending, ID, EPOCH).code == expected


@pytest.mark.parametrize("pending", PREPARED)
def test_verification_waits_for_the_end_of_the_transaction(pending):
    """Unlike Kafka: records that come after the decision must not get into the transaction."""
    assert verbs.verify(facts(ONGOING), pending, ID, EPOCH) == Answer(CONCURRENT)


# -- EndTxn


def end(before, commits, producer_id=ID, epoch=EPOCH, version=2, pending=None, ids=new_id):
    return verbs.end(before, pending, producer_id, epoch, commits, version, NOW, ids)


ABORT, COMMIT = False, True
ROWS_1 = [
    (EMPTY, ABORT, INVALID),
    (EMPTY, COMMIT, INVALID),
    (ONGOING, ABORT, PREPARE_ABORT),
    (ONGOING, COMMIT, PREPARE_COMMIT),
    (PREPARE_COMMIT, COMMIT, CONCURRENT),
    (PREPARE_COMMIT, ABORT, INVALID),
    (PREPARE_ABORT, ABORT, CONCURRENT),
    (PREPARE_ABORT, COMMIT, INVALID),
    (COMPLETE_COMMIT, COMMIT, NONE),
    (COMPLETE_COMMIT, ABORT, INVALID),
    (COMPLETE_ABORT, ABORT, NONE),
    (COMPLETE_ABORT, COMMIT, INVALID),
]


@pytest.mark.parametrize(("state", "commits", "expected"), ROWS_1)
def test_end_before_version_5(state, commits, expected):
    outcome = end(facts(state, last_epoch=4), commits, version=0)
    if isinstance(expected, State):
        written = Facts(ID, ID, -1, EPOCH, 4, TIMEOUT, expected, (ORDERS,), START, NOW, 0)
        assert outcome == Write(written, Answer(NONE))
    else:
        assert outcome == Answer(expected)


def test_the_rows_of_both_tables_are_tested():
    assert {(state, commits) for state, commits, _ in ROWS_1} == set(END_1)
    rows = {(state, commits, retry) for state, *row in ROWS_2 for commits, retry in zip(COMMITS, RETRIES, strict=True)}
    assert rows == set(END_2)
    assert all(len(row) == 5 for row in ROWS_2)


@pytest.mark.parametrize("state", KEPT)
@pytest.mark.parametrize("commits", [ABORT, COMMIT])
@pytest.mark.parametrize("epoch", [EPOCH - 1, EPOCH + 1])
def test_end_before_version_5_checks_id_then_epoch_then_the_pending_state(state, commits, epoch):
    for pending in (None, PREPARE_COMMIT, COMPLETE_ABORT, ONGOING):
        assert end(facts(state), commits, STRANGER, version=0, pending=pending) == Answer(MAPPING)
        assert end(facts(state), commits, epoch=epoch, version=0, pending=pending) == Answer(FENCED)
        if pending is not None:
            assert end(facts(state), commits, version=0, pending=pending) == Answer(CONCURRENT)


def test_end_before_version_5_keeps_an_exhausted_epoch():
    written = end(facts(ONGOING, 32766), COMMIT, epoch=32766, version=0, ids=no_new_id).facts
    assert (written.epoch, written.next_producer_id) == (32766, -1)


RETRIES = [True, False, True, False]
COMMITS = [ABORT, ABORT, COMMIT, COMMIT]
ROWS_2 = [
    # state, abort of a retry, abort with the current epoch, commit of a retry, commit with the current epoch
    (EMPTY, FENCED, BUMP, FENCED, INVALID),
    (ONGOING, FENCED, BUMP, FENCED, BUMP),
    (COMPLETE_ABORT, NONE, BUMP, FENCED, INVALID),  # the third: KAFKA-20785
    (COMPLETE_COMMIT, INVALID, BUMP, NONE, INVALID),
    (PREPARE_COMMIT, INVALID, FENCED, CONCURRENT, FENCED),
    (PREPARE_ABORT, CONCURRENT, FENCED, INVALID, FENCED),
]


@pytest.mark.parametrize("row", ROWS_2, ids=lambda row: row[0].name)
@pytest.mark.parametrize("column", range(4), ids=["abort retry", "abort", "commit retry", "commit"])
def test_end_version_5(row, column):
    state, expected = row[0], row[1 + column]
    commits = COMMITS[column]
    before = facts(state, last_epoch=EPOCH - 1, version=2)
    outcome = end(before, commits, epoch=EPOCH - 1 if RETRIES[column] else EPOCH)
    if expected is BUMP:
        start = START if state is ONGOING else NOW
        prepare = PREPARE_COMMIT if commits else PREPARE_ABORT
        written = Facts(ID, ID, -1, EPOCH + 1, EPOCH, TIMEOUT, prepare, before.places, start, NOW, 2)
        assert outcome == Write(written, Answer(NONE, ID, EPOCH + 1))
    elif expected is NONE:
        assert outcome == Answer(NONE, ID, EPOCH)
    else:
        assert outcome == Answer(expected)


ROTATED = {EMPTY: FENCED, ONGOING: FENCED, COMPLETE_ABORT: (NONE, FENCED), COMPLETE_COMMIT: (INVALID, NONE)}


@pytest.mark.parametrize("state", ROTATED)
@pytest.mark.parametrize("commits", [ABORT, COMMIT])
def test_end_version_5_repeated_after_a_rotation(state, commits):
    before = facts(state, epoch=0, last_epoch=32766, previous=OLD_ID, version=2)
    expected = ROTATED[state]
    if isinstance(expected, tuple):
        expected = expected[commits]
    outcome = end(before, commits, OLD_ID, 32766)
    assert outcome == (Answer(NONE, ID, 0) if expected is NONE else Answer(expected))
    assert end(before, commits, OLD_ID, 32765) == Answer(MAPPING)


@pytest.mark.parametrize("state", KEPT)
@pytest.mark.parametrize("commits", [ABORT, COMMIT])
def test_end_version_5_checks_the_pending_state_then_id_then_epoch(state, commits):
    for pending in (EMPTY, ONGOING, PREPARE_ABORT, COMPLETE_COMMIT, DEAD):
        assert end(facts(state), commits, STRANGER, pending=pending) == Answer(CONCURRENT)
        assert end(facts(state), commits, epoch=1, pending=pending) == Answer(CONCURRENT)
        assert end(facts(state), commits, pending=pending) == Answer(CONCURRENT)
    assert end(facts(state), commits, STRANGER) == Answer(MAPPING)
    for epoch in (EPOCH - 2, EPOCH + 1):
        assert end(facts(state), commits, epoch=epoch) == Answer(FENCED)


@pytest.mark.parametrize("commits", [ABORT, COMMIT])
def test_the_end_rotates_the_id_after_the_last_epoch(commits):
    outcome = end(facts(ONGOING, 32766), commits, epoch=32766)
    prepare = PREPARE_COMMIT if commits else PREPARE_ABORT
    written = Facts(ID, ID, NEW_ID, 32767, 32766, TIMEOUT, prepare, (ORDERS,), START, NOW, 2)
    assert outcome == Write(written, Answer(NONE, NEW_ID, 0))
    assert verbs.complete(written, NOW + 1) == Facts(
        NEW_ID, ID, -1, 0, 32766, TIMEOUT, COMPLETE_OF[prepare], (), START, NOW + 1, 2
    )
    assert end(facts(ONGOING, 32766), commits, epoch=32766, ids=no_new_id) == Answer(LOADING)


def test_the_largest_epoch_can_be_aborted_and_does_not_overflow():
    outcome = end(facts(ONGOING, 32767), ABORT, epoch=32767)
    assert outcome.answer == Answer(NONE, NEW_ID, 0)
    assert (outcome.facts.epoch, outcome.facts.last_epoch, outcome.facts.next_producer_id) == (32767, 32767, NEW_ID)


@pytest.mark.parametrize("prepare", PREPARED)
@pytest.mark.parametrize("version", [0, 1, 2])
def test_completion(prepare, version):
    before = facts(prepare, last_epoch=4, version=version)
    assert verbs.complete(before, NOW) == Facts(
        ID, ID, -1, EPOCH, 4, TIMEOUT, COMPLETE_OF[prepare], (), START, NOW, version
    )


# -- time


@pytest.mark.parametrize("state", KEPT)
@pytest.mark.parametrize(("age", "expected"), [(TIMEOUT - 1, False), (TIMEOUT, False), (TIMEOUT + 1, True)])
def test_only_ongoing_transactions_time_out(state, age, expected):
    before = facts(state)._replace(start_ms=START)
    assert verbs.timed_out(before, START + age) == (expected and state is ONGOING)


def test_two_phase_commit_does_not_time_out():
    assert not verbs.timed_out(facts(ONGOING)._replace(timeout_ms=2**31 - 1), 2**60)


@pytest.mark.parametrize("state", KEPT)
@pytest.mark.parametrize(("age", "expected"), [(999, False), (1000, True), (1001, True)])
def test_only_idle_ids_expire(state, age, expected):
    assert verbs.expired(facts(state), UPDATED + age, 1000) == (expected and state in SETTLED)
