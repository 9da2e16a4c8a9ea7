"""Conversations with a broker that has removed transactional ids.

The times of the last updates of some ids are set back in `__transaction_state` while the broker is stopped. So these ids have
expired when it starts, and no others expire, however slow the machine is.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from odradek.protocol.errors import ErrorCode
from tests.transactions_against_kafka import state_log
from tests.transactions_against_kafka.sides import Rows, Side, Stage, rows
from tests.transactions_against_kafka.storing import note_states
from tests.transactions_against_kafka.transaction_talk import WHEN, Producer
from tests.waiting import until

CONFIG: dict[str, str | int] = {"transaction.remove.expired.transaction.cleanup.interval.ms": 20}
STATES = ("Empty", "CompleteCommit", "CompleteAbort", "TimedOut")


def prepare(side: Side, rows_: Rows) -> dict[str, Producer]:
    """Bring the ids of the rows into states; the producers by id."""
    found = []
    with ExitStack() as connections:
        for row in rows_:
            stage = Stage(side, row, connections)
            if row.conversation is ids_are_removed:
                found += [stage.brought(state, state) for state in STATES]
            else:
                open_ = stage.started("open")
                stage.talk.add_as_broker((open_, [(stage.topic(), 0)]), verify=False)
                found += [open_, stage.brought("Empty", "removed")]
    return {producer.transactional_id: producer for producer in found}


def expire(data: Path, prepared: dict[str, Producer]) -> None:
    """Set the times of the ids back in the directory of the stopped broker."""
    for name in prepared:
        state_log.change(data, name, transaction_last_update_timestamp_ms=WHEN)


def until_gone(stage: Stage, word: str) -> None:
    """Wait until the coordinator does not know the id."""
    name = stage.word(word)
    until(lambda: stage.talk.state_of(name).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"{name} is gone")


def ids_are_removed(stage: Stage) -> None:
    """They leave tombstones; their producers are unknown; an id begins anew with another producer id."""
    talk = stage.talk
    topic = stage.topic("next")
    for state in STATES:
        until_gone(stage, state)
    for state in STATES:
        producer = stage.side.prepared[stage.word(state)]
        talk.describe_transactions(producer.transactional_id)
        talk.add(producer, (topic, 0))
        talk.end(producer, True, 4)
        talk.end(producer, False, 5)
        talk.send_batch(producer, (topic, 0), 0)
        talk.init(producer)
    for state in STATES:
        note_states(stage, state)


def an_open_transaction_is_not_removed(stage: Stage) -> None:
    """Its id stays while others go."""
    until_gone(stage, "removed")
    open_ = stage.side.prepared[stage.word("open")]
    stage.talk.describe_transactions(open_.transactional_id)
    stage.talk.end(open_, True)
    for word in ("open", "removed"):
        note_states(stage, word)


ROWS: Rows = [
    *rows(ids_are_removed),
    *rows(an_open_transaction_is_not_removed),
]
