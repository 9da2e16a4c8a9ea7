"""Conversations with producers whose epochs run out.

`__transaction_state` gets the epoch before the last one a client may have, 32766, while the broker is stopped: 32,765 epochs
one by one would take minutes.
"""

from __future__ import annotations

from pathlib import Path

from tests.transactions_against_kafka import state_log
from tests.transactions_against_kafka.sides import Row, Rows, Side, Stage, rows
from tests.transactions_against_kafka.transaction_talk import Producer

LAST = 32766
"""The last epoch that a client may have."""
BEFORE = LAST - 1


def ids_of(row: Row) -> str:
    """The transactional id of a row."""
    return f"{row.name}-id"


def prepare(side: Side, rows_: Rows) -> list[str]:
    """Give each row its transactional id; the names, whose epochs are to be changed."""
    return prepare_ids(side, [ids_of(row) for row in rows_])


def prepare_ids(side: Side, names: list[str]) -> list[str]:
    """Begin with transactional ids, whose epochs are to be changed; the names."""
    return [side.talk.init(name).transactional_id for name in names]


def exhaust(data: Path, names: list[str]) -> None:
    """Change the epochs in the directory of the stopped broker."""
    for name in names:
        state_log.change(data, name, producer_epoch=BEFORE)


def exhausted(stage: Stage, epoch: int = LAST) -> Producer:
    """The row's id, at BEFORE or LAST."""
    stage.transcript.coordinator_epochs = False  # the broker was started twice
    name = stage.word("id")
    found = stage.talk.state_of(name)
    assert found.producer_epoch == BEFORE, found
    producer = Producer(name, found.producer_id, BEFORE)
    if epoch == LAST:
        with stage.talk.quietly():
            producer = stage.talk.init(producer)
    assert producer.epoch == epoch
    stage.talk.describe_transactions(name)
    return producer


def inits_without_an_epoch(stage: Stage) -> None:
    name = exhausted(stage, BEFORE).transactional_id
    for _ in range(3):
        stage.talk.init(name)
    stage.talk.describe_transactions(name)


def inits_with_an_epoch(stage: Stage) -> None:
    """And retries of each: of the epoch before, and of the last one, whose producer id is the previous one then."""
    talk = stage.talk
    before = exhausted(stage, BEFORE)
    last = talk.init(before)
    talk.init(before)
    fresh = talk.init(last)
    talk.init(last)
    talk.init(before)
    talk.init(last.at(32767))
    second = talk.init(fresh)
    talk.init(last)
    talk.init(second)
    talk.describe_transactions(before.transactional_id)


def an_end(stage: Stage, commits: bool, version: int) -> None:
    """Of the last epoch's transaction; retries of it; and the next transaction."""
    talk = stage.talk
    topic = stage.topic()
    last = exhausted(stage)
    if version < 5:
        talk.add(last, (topic, 0))
    talk.send_batch(last, (topic, 0), 0, version=11 if version < 5 else 12)
    fresh = talk.end(last, commits, version)
    talk.describe_transactions(last.transactional_id)
    for result in (commits, not commits):
        for asked in (last, last.earlier, last.later, fresh.later):
            talk.end(asked, result, version)
    talk.producers_of((topic, 0))
    talk.send_batch(last, (topic, 0), 1, version=11 if version < 5 else 12)
    if version < 5:
        fresh = talk.init(last)
        talk.add(fresh, (topic, 0))
    talk.send_batch(fresh, (topic, 0), 0, version=11 if version < 5 else 12)
    talk.end(fresh, commits, version)
    talk.describe_transactions(last.transactional_id)
    talk.fetch_at((topic, 0))


def an_end_while_markers_are_held(stage: Stage, commits: bool) -> None:
    """The client has the new producer id before the transaction is complete."""
    talk = stage.talk
    with talk.quietly():
        topic = stage.side.held_topic(stage.word("topic"))
    last = exhausted(stage)
    talk.add_as_broker((last, [(topic, 0)]), verify=False)
    with talk.quietly():
        stage.side.hold()
    fresh = talk.end(last, commits, completes=False)
    talk.describe_transactions(last.transactional_id)
    for asked in (last, fresh):
        talk.end(asked, commits, patient=False)
        talk.add_as_broker((asked, [(topic, 0)]), verify=False, patient=False)
        talk.add_as_broker((asked, [(topic, 0)]), verify=True, patient=False)
        talk.add(asked, (topic, 0), patient=False)
        talk.init(asked, patient=False)
    stage.complete(fresh)
    talk.describe_transactions(last.transactional_id)
    talk.end(last, commits)


def an_abort_without_partitions(stage: Stage) -> None:
    talk = stage.talk
    last = exhausted(stage)
    fresh = talk.end(last, False)
    talk.describe_transactions(last.transactional_id)
    talk.end(last, False)
    talk.end(last, True)
    talk.end(fresh, False)
    talk.describe_transactions(last.transactional_id)


def a_fence(stage: Stage) -> None:
    """Another instance begins during the last epoch's transaction."""
    talk = stage.talk
    topic = stage.topic()
    last = exhausted(stage)
    talk.add(last, (topic, 0))
    talk.send_batch(last, (topic, 0), 0, version=11)
    talk.init(last.transactional_id, patient=False)
    talk.until_complete(last.transactional_id)
    talk.describe_transactions(last.transactional_id)
    talk.producers_of((topic, 0))
    for commits in (True, False):
        talk.end(last, commits, 4)
        talk.end(last, commits, 5)
    talk.init(last)
    talk.init(last.transactional_id)
    talk.describe_transactions(last.transactional_id)
    talk.fetch_at((topic, 0))


def a_time_out(stage: Stage) -> None:
    talk = stage.talk
    topic = stage.topic()
    before = exhausted(stage, BEFORE)
    last = talk.init(before, timeout_ms=1)
    talk.add(last, (topic, 0))
    talk.until_state(last.transactional_id, "CompleteAbort")
    talk.describe_transactions(last.transactional_id)
    talk.producers_of((topic, 0))
    for commits in (True, False):
        talk.end(last, commits, 4)
    talk.init(last)
    talk.init(last.transactional_id)
    talk.describe_transactions(last.transactional_id)


def an_abort_of_the_highest_epoch(stage: Stage) -> None:
    """Epoch 32767, which a fence of protocol 1 leaves behind, at level 2 (KAFKA-20090)."""
    talk = stage.talk
    topic = stage.topic()
    last = exhausted(stage)
    with talk.quietly():
        talk.at_level(1)
        talk.add(last, (topic, 0))
        talk.init(last.transactional_id, patient=False)
        talk.until_complete(last.transactional_id)
        talk.at_level(2)
    highest = last.at(32767)
    talk.describe_transactions(last.transactional_id)
    talk.end(highest, True)
    fresh = talk.end(highest, False)
    talk.describe_transactions(last.transactional_id)
    talk.end(highest, False)
    talk.end(last, False)
    talk.end(fresh, False)
    talk.describe_transactions(last.transactional_id)


def a_transaction_of_the_highest_epoch(stage: Stage, commits: bool) -> None:
    """It is opened with epoch 32767, which no client should have."""
    talk = stage.talk
    topic = stage.topic()
    last = exhausted(stage)
    with talk.quietly():
        talk.at_level(1)
        talk.add(last, (topic, 0))
        talk.init(last.transactional_id, patient=False)
        talk.until_complete(last.transactional_id)
        talk.at_level(2)
    highest = last.at(32767)
    talk.send_batch(highest, (topic, 0), 0)
    talk.describe_transactions(last.transactional_id)
    if not commits:
        talk.end(highest, False)
        talk.describe_transactions(last.transactional_id)
        talk.fetch_at((topic, 0))
    talk.init(last.transactional_id)
    talk.describe_transactions(last.transactional_id)
    talk.fetch_at((topic, 0))


ROWS: Rows = [
    *rows(inits_without_an_epoch),
    *rows(inits_with_an_epoch),
    *rows(an_end, (True, 5), (False, 5), (True, 4), (False, 4)),
    *rows(an_end_while_markers_are_held, True, False, holds=True),
    *rows(an_abort_without_partitions),
    *rows(a_fence),
    *rows(a_time_out),
    *rows(an_abort_of_the_highest_epoch),
    *rows(a_transaction_of_the_highest_epoch, False),
    *rows(a_fence, levels=(1,)),
    *rows(a_time_out, levels=(1,)),
]
