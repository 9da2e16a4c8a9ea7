"""One transactional id: its facts, and the verbs as pure functions of them.

A *verb* is what a request of a producer does to the id. It returns an `Answer` if nothing must be written. Otherwise it
returns a `Write`: the facts to append, and the answer to give when the append is acknowledged; then these become the facts
of the id. The source is the state machine of Kafka 4.3 (KIP-98, KIP-360, KIP-890).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from odradek.protocol.errors import ErrorCode
from odradek.topic_partition import TopicPartition
from odradek.transactions.states import (
    COMPLETE_OF,
    EMPTY,
    END_1,
    END_2,
    IDLE,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREVIOUS,
    State,
)

NO_ID = -1
NO_EPOCH = -1
NO_TIME = -1
NO_TIME_LIMIT = 2**63
MAX_EPOCH = 2**15 - 1
LAST_EPOCH = MAX_EPOCH - 1
"""The largest epoch that a producer may have. The next one, MAX_EPOCH, is only used in markers and for fencing."""
NO_TIMEOUT_MS = 2**31 - 1
"""The timeout of transactions with two-phase commit: they do not time out."""
EPOCH_PER_TRANSACTION = 2
"""The lowest transaction.version with which the end of each transaction raises the producer epoch."""
MANY = 16
"""With at least this number of partitions, a set is faster than a search in a tuple."""

NewId = Callable[[], int | None]


class Facts(NamedTuple):
    """The fields of a transactional id in the log, and `last_epoch`, which is only in memory.

    :param previous_producer_id: the producer id before the last transition. It differs from `producer_id` after a
        *rotation*: the transactional id got a new producer id with epoch 0, because its epochs were used up.
    :param next_producer_id: in PREPARE_*: the producer id after the completion; NO_ID if it does not change.
    :param last_epoch: the epoch that a retry of InitProducerId may name; in PREPARE_* and after it the epoch of the
        ended transaction.
    :param places: the partitions of the transaction; none in IDLE states.
    :param start_ms, updated_ms: wall clock.
    :param client_version: the transaction.version of the client, or of the server if it ended the transaction.
    """

    producer_id: int
    previous_producer_id: int
    next_producer_id: int
    epoch: int
    last_epoch: int
    timeout_ms: int
    state: State
    places: tuple[TopicPartition, ...]
    start_ms: int
    updated_ms: int
    client_version: int


class Answer(NamedTuple):
    """The answer for a client, or an error."""

    code: ErrorCode
    producer_id: int = NO_ID
    epoch: int = NO_EPOCH


class Write(NamedTuple):
    """Facts to be appended, and the answer once they are durable."""

    facts: Facts
    answer: Answer


Outcome = Answer | Write

DONE = Answer(ErrorCode.NONE)
CONCURRENT = Answer(ErrorCode.CONCURRENT_TRANSACTIONS)
FENCED = Answer(ErrorCode.PRODUCER_FENCED)
OTHER_ID = Answer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
NO_NEW_ID = Answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
ANSWER_OF = {code: Answer(code) for code in ErrorCode}


def fresh(producer_id: int, timeout_ms: int, now_ms: int) -> Facts:
    """The facts of an id that is not in the log yet. The next verb must be `init`."""
    return Facts(producer_id, NO_ID, NO_ID, NO_EPOCH, NO_EPOCH, timeout_ms, EMPTY, (), NO_TIME, now_ms, 0)


def init(
    facts: Facts,
    pending: State | None,
    producer_id: int,
    epoch: int,
    timeout_ms: int,
    now_ms: int,
    server_version: int,
    new_id: NewId,
) -> Outcome:
    """InitProducerId: give the producer a new epoch. If a transaction is ongoing, abort it instead; the client then retries.

    :param producer_id, epoch: the id and epoch that the client names as its own (KIP-360), or NO_ID and NO_EPOCH.
    """
    if pending is not None:
        return CONCURRENT
    given = producer_id != NO_ID
    if given and facts.epoch != NO_EPOCH and producer_id != facts.producer_id:
        # If the response after a rotation was lost, the client retries with the previous id and its last epoch.
        retry = producer_id == facts.previous_producer_id and epoch >= LAST_EPOCH
        if not retry:
            return FENCED
    if facts.state in COMPLETE_OF:
        return CONCURRENT
    if facts.state is ONGOING:
        return fence(facts, server_version, now_ms, new_id)
    new_producer_id = facts.producer_id
    if facts.epoch >= LAST_EPOCH and (not given or epoch == facts.epoch):
        rotated = new_id()
        if rotated is None:
            return NO_NEW_ID
        new_producer_id, new_epoch, last_epoch = rotated, 0, facts.epoch if given else NO_EPOCH
    elif not given:
        new_epoch, last_epoch = facts.epoch + 1, NO_EPOCH
    elif facts.epoch == NO_EPOCH or epoch == facts.epoch:
        new_epoch, last_epoch = facts.epoch + 1, facts.epoch
    elif epoch == facts.last_epoch:
        new_epoch, last_epoch = facts.epoch, facts.last_epoch
    else:
        return FENCED
    written = Facts(
        new_producer_id,
        facts.producer_id,
        facts.next_producer_id,
        new_epoch,
        last_epoch,
        timeout_ms,
        EMPTY,
        (),
        NO_TIME,
        now_ms,
        facts.client_version,
    )
    return _write(facts, written, Answer(ErrorCode.NONE, new_producer_id, new_epoch))


def fence(facts: Facts, server_version: int, now_ms: int, new_id: NewId) -> Outcome:
    """Abort an ongoing transaction without a request of its producer, and fence the producer with a higher epoch."""
    if server_version >= EPOCH_PER_TRANSACTION:
        return _prepare(facts, PREPARE_ABORT, server_version, now_ms, new_id, CONCURRENT)
    epoch = facts.epoch + 1 if facts.epoch < MAX_EPOCH else facts.epoch
    fenced = facts._replace(epoch=epoch, last_epoch=NO_EPOCH)
    return _prepare(fenced, PREPARE_ABORT, 0, now_ms, new_id, CONCURRENT)


def add(
    facts: Facts,
    pending: State | None,
    producer_id: int,
    epoch: int,
    places: Sequence[TopicPartition],
    client_version: int,
    now_ms: int,
) -> Outcome:
    """AddPartitionsToTxn and AddOffsetsToTxn."""
    # Before the check of the producer id: while a rotation is pending, the client may already use the new id.
    if pending is not None:
        return CONCURRENT
    code = _producer_error(facts, producer_id, epoch)
    if code is not None:
        return code
    start_ms = facts.start_ms
    if facts.state is ONGOING:
        new = missing(facts.places, places)
        if not new:
            return DONE
    else:
        start_ms, new = now_ms, tuple(dict.fromkeys(places))
    written = Facts(
        producer_id,
        producer_id,
        facts.next_producer_id,
        epoch,
        facts.last_epoch,
        facts.timeout_ms,
        ONGOING,
        facts.places + new,
        start_ms,
        now_ms,
        client_version,
    )
    return _write(facts, written, DONE)


def verify(facts: Facts, pending: State | None, producer_id: int, epoch: int) -> Answer:
    """Check the producer of a verification (KIP-890 part 1). The caller then looks up each partition in `Facts.places`.

    The check also works while an append is in progress, unless this append ends the transaction.
    """
    if pending in COMPLETE_OF:  # a mark that is set now would allow a late batch after the end of the transaction
        return CONCURRENT
    return _producer_error(facts, producer_id, epoch) or DONE


def end(
    facts: Facts,
    pending: State | None,
    producer_id: int,
    epoch: int,
    commits: bool,
    client_version: int,
    now_ms: int,
    new_id: NewId,
) -> Outcome:
    """EndTxn. :param client_version: 2 for EndTxn 5, 0 for older versions."""
    state = PREPARE_COMMIT if commits else PREPARE_ABORT
    if client_version < EPOCH_PER_TRANSACTION:
        if producer_id != facts.producer_id:
            return OTHER_ID
        if epoch != facts.epoch:
            return FENCED
        if pending is not None:
            return CONCURRENT
        code = END_1[facts.state, commits]
        return _prepare(facts, state, 0, now_ms, new_id, DONE) if code is None else ANSWER_OF[code]
    if pending is not None:
        return CONCURRENT
    rotated = producer_id == facts.previous_producer_id and epoch == LAST_EPOCH and facts.epoch == 0
    if producer_id != facts.producer_id and not rotated:
        return OTHER_ID
    retry = rotated or epoch + 1 == facts.epoch
    if not retry and epoch != facts.epoch:
        return FENCED
    code = END_2[facts.state, commits, retry]
    if code is None:
        return _prepare(facts, state, client_version, now_ms, new_id, DONE)
    return Answer(code, facts.producer_id, facts.epoch) if code is ErrorCode.NONE else ANSWER_OF[code]


def complete(facts: Facts, now_ms: int) -> Facts:
    """The facts after all markers are written."""
    producer_id, epoch = _completed_producer(facts)
    return Facts(
        producer_id,
        facts.producer_id,
        NO_ID,
        epoch,
        facts.last_epoch,
        facts.timeout_ms,
        COMPLETE_OF[facts.state],
        (),
        facts.start_ms,
        now_ms,
        facts.client_version,
    )


def timed_out(facts: Facts, now_ms: int) -> bool:
    """Whether the ongoing transaction has exceeded its timeout."""
    return facts.state is ONGOING and facts.timeout_ms != NO_TIMEOUT_MS and facts.start_ms + facts.timeout_ms < now_ms


def expired(facts: Facts, now_ms: int, expiration_ms: int) -> bool:
    """Whether the id had no transaction for `expiration_ms`, so that it may be removed."""
    return facts.state in IDLE and facts.updated_ms <= now_ms - expiration_ms


def missing(present: tuple[TopicPartition, ...], places: Sequence[TopicPartition]) -> tuple[TopicPartition, ...]:
    """The places that are not present, each once."""
    known = present if len(present) < MANY else frozenset(places).intersection(present)
    new = [place for place in places if place not in known]
    return tuple(dict.fromkeys(new)) if len(new) > 1 else tuple(new)


def _producer_error(facts: Facts, producer_id: int, epoch: int) -> Answer | None:
    if producer_id != facts.producer_id:
        return OTHER_ID
    if epoch != facts.epoch:
        return FENCED
    if facts.state in COMPLETE_OF:
        return CONCURRENT
    return None


def _prepare(facts: Facts, state: State, version: int, now_ms: int, new_id: NewId, answer: Answer) -> Outcome:
    """Decide the outcome of the transaction.

    With transaction.version 2 the epoch is raised: the records have the epoch in `facts`, and the markers have the new one.
    If the epoch is LAST_EPOCH, the producer gets a new id (a rotation). MAX_EPOCH, which no client has, is not changed
    (KAFKA-20090).

    :param version: the transaction.version of the client, or of the server if it aborts the transaction itself.
    """
    epoch, last_epoch, next_id = facts.epoch, facts.last_epoch, NO_ID
    if version >= EPOCH_PER_TRANSACTION:
        if epoch >= LAST_EPOCH:
            rotated = new_id()
            if rotated is None:
                return NO_NEW_ID
            next_id = rotated
        last_epoch = epoch
        if epoch < MAX_EPOCH:
            epoch += 1
    written = Facts(
        facts.producer_id,
        facts.producer_id,
        next_id,
        epoch,
        last_epoch,
        facts.timeout_ms,
        state,
        facts.places,
        facts.start_ms if facts.state is ONGOING else now_ms,
        now_ms,
        version,
    )
    if answer is DONE and version >= EPOCH_PER_TRANSACTION:
        answer = Answer(ErrorCode.NONE, *_completed_producer(written))
    return _write(facts, written, answer)


def _completed_producer(facts: Facts) -> tuple[int, int]:
    """The producer id and epoch that follow the completion of a transaction whose outcome is decided."""
    if facts.next_producer_id != NO_ID and facts.client_version >= EPOCH_PER_TRANSACTION:
        return facts.next_producer_id, 0
    return facts.producer_id, facts.epoch


def _write(before: Facts, after: Facts, answer: Answer) -> Write:
    if before.state not in PREVIOUS[after.state]:
        raise ValueError(f"the state {after.state.name} cannot follow {before.state.name}")
    return Write(after, answer)
