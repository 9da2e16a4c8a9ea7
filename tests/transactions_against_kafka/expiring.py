"""Conversations with brokers that remove transactional ids after a moment without a transaction."""

from __future__ import annotations

from odradek.protocol.errors import ErrorCode
from tests.transactions_against_kafka.sides import Rows, Stage, rows
from tests.transactions_against_kafka.storing import note_states
from tests.waiting import until

CONFIG: dict[str, str | int] = {
    "transactional.id.expiration.ms": 3000,  # longer than a busy machine keeps a conversation waiting
    "transaction.remove.expired.transaction.cleanup.interval.ms": 20,
}


def until_gone(stage: Stage, word: str) -> None:
    """Wait until the coordinator does not know the id."""
    name = stage.word(word)
    until(lambda: stage.talk.state_of(name).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"{name} is gone")


STATES = ("Empty", "CompleteCommit", "CompleteAbort", "TimedOut")


def ids_are_removed(stage: Stage) -> None:
    """They leave tombstones; their producers are unknown; an id begins anew with another producer id."""
    talk = stage.talk
    topic = stage.topic("next")
    old = {state: stage.brought(state, state) for state in STATES}
    for state in STATES:
        until_gone(stage, state)
    for producer in old.values():
        talk.describe_transactions(producer.transactional_id)
        talk.add(producer, (topic, 0))
        talk.end(producer, True, 4)
        talk.end(producer, False, 5)
        talk.send_batch(producer, (topic, 0), 0)
        talk.init(producer)
    for state in STATES:
        until_gone(stage, state)
    note_states(stage, *STATES)


def an_open_transaction_is_not_removed(stage: Stage) -> None:
    """Its id stays while others go."""
    kept = stage.brought("Ongoing", "kept")
    stage.brought("Empty", "removed")
    until_gone(stage, "removed")
    stage.talk.describe_transactions(kept.transactional_id)
    stage.talk.end(kept, True)
    until_gone(stage, "kept")
    note_states(stage, "kept", "removed")


ROWS: Rows = [
    *rows(ids_are_removed),
    *rows(an_open_transaction_is_not_removed),
]
