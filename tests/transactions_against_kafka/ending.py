"""Conversations about EndTxn: each state, each result, each epoch; both protocols and both in one transaction."""

from __future__ import annotations

from tests.transactions_against_kafka.adding import STATES, wrong_ones
from tests.transactions_against_kafka.sides import Rows, Stage, rows, word_of
from tests.transactions_against_kafka.transaction_talk import data_batch

RESULTS = (True, False)


def wrong_ends(stage: Stage, state: str, version: int) -> None:
    """Of producers that are not the current one."""
    producer = stage.brought(state, ends=4 if version < 5 else 5)
    for commits in RESULTS:
        for wrong in wrong_ones(producer, state):
            if version >= 5 and wrong == producer.earlier:
                continue  # it may be a retry: `ends_of_protocol_2`
            stage.talk.end(wrong, commits, version, patient=False, completes=False)
    stage.talk.describe_transactions(producer.transactional_id)


def ends_of_protocol_1(stage: Stage, state: str, version: int) -> None:
    """EndTxn 0 to 4: each result twice, the second time as a retry. While it is in Prepare, and afterwards."""
    for commits in RESULTS:
        word = word_of(commits)
        producer = stage.brought(state, word, ends=4)
        for _ in range(2):
            stage.talk.end(producer, commits, version, patient=False, completes=not state.startswith("Prepare"))
            stage.talk.describe_transactions(producer.transactional_id)
        if state.startswith("Prepare"):
            stage.complete(producer)
            stage.talk.end(producer, commits, version)
        stage.talk.end(producer, not commits, version)


def ends_of_protocol_2(stage: Stage, state: str, commits: bool, epoch: str) -> None:
    """EndTxn 5 with the current epoch, or, as a retry, that of the transaction that ended; then the same again."""
    talk = stage.talk
    held = state.startswith("Prepare")
    producer = stage.brought(state)
    asked = producer.earlier if epoch == "ended" else producer
    talk.describe_transactions(producer.transactional_id)
    talk.end(asked, commits, patient=False, completes=not held)
    talk.describe_transactions(producer.transactional_id)
    if held:
        stage.complete(producer)
        talk.describe_transactions(producer.transactional_id)
    talk.end(asked, commits)
    talk.end(asked, not commits)
    talk.describe_transactions(producer.transactional_id)


def a_transaction_that_began_with_the_other_protocol(stage: Stage, version: int, commits: bool) -> None:
    """AddPartitionsToTxn 3 and Produce 11 with EndTxn 5, or Produce 12 with EndTxn 4; and back."""
    talk = stage.talk
    topic = stage.topic()
    producer = stage.started()
    sequence = 0
    for version_of_end in (version, version, 4, 5, 4):
        if version >= 5:
            talk.add(producer, (topic, 0))
        talk.send_batch(producer, (topic, 0), sequence, version=11 if version >= 5 else 12)
        talk.describe_transactions(producer.transactional_id)
        producer = talk.end(producer, commits, version_of_end)
        talk.describe_transactions(producer.transactional_id)
        sequence = 0 if version_of_end >= 5 else sequence + 1
    talk.fetch_at((topic, 0))


def both_protocols_after_an_end(stage: Stage, first: int, second: int, commits: bool) -> None:
    """An EndTxn of one protocol that is repeated with the other."""
    talk = stage.talk
    producer = stage.brought("Ongoing", ends=first)
    ended = talk.end(producer, commits, first)
    for asked in (producer, ended):
        for result in (commits, not commits):
            talk.end(asked, result, second)
    talk.describe_transactions(producer.transactional_id)


def aborts_without_partitions(stage: Stage) -> None:
    """Each takes an epoch."""
    producer = stage.started()
    for _ in range(3):
        producer = stage.talk.end(producer, False)
        stage.talk.describe_transactions(producer.transactional_id)
    stage.talk.init(producer)


def an_end_after_a_time_out(stage: Stage, version: int, commits: bool) -> None:
    """Of a client that does not know of it. EndTxn 5 with commit: KAFKA-20785."""
    talk = stage.talk
    topic = stage.topic()
    producer = stage.started(timeout_ms=1)
    talk.add(producer, (topic, 0))
    talk.until_state(producer.transactional_id, "CompleteAbort")
    talk.end(producer, commits, version)
    talk.end(producer.later, commits, version)
    talk.describe_transactions(producer.transactional_id)


def a_deleted_topic_does_not_hold_the_end(stage: Stage, commits: bool) -> None:
    talk = stage.talk
    kept, gone = stage.topic("kept"), stage.topic("gone")
    producer = stage.started()
    talk.send_batches({(topic, 0): data_batch(producer, 0) for topic in (kept, gone)}, producer)
    talk.delete(gone)
    producer = talk.end(producer, commits)
    talk.describe_transactions(producer.transactional_id)
    talk.fetch_at((kept, 0))


ROWS: Rows = [
    *rows(wrong_ends, *((state, version) for state in STATES for version in (0, 1, 2, 3, 4, 5))),
    *rows(ends_of_protocol_1, *((state, version) for state in STATES for version in (0, 1, 2, 3, 4))),
    *rows(
        ends_of_protocol_2,
        *((state, commits, epoch) for state in STATES for commits in RESULTS for epoch in ("current", "ended")),
    ),
    *rows(
        a_transaction_that_began_with_the_other_protocol,
        *((version, commits) for version in (4, 5) for commits in RESULTS),
    ),
    *rows(
        both_protocols_after_an_end,
        *((*versions, commits) for versions in ((4, 5), (5, 4), (5, 5), (4, 4)) for commits in RESULTS),
    ),
    *rows(aborts_without_partitions),
    *rows(an_end_after_a_time_out, *((version, commits) for version in (1, 2, 4, 5) for commits in RESULTS)),
    *rows(a_deleted_topic_does_not_hold_the_end, True, False),
    *rows(ends_of_protocol_1, ("Ongoing", 3), ("CompleteCommit", 4), levels=(1, 0)),
    *rows(ends_of_protocol_2, ("Ongoing", True, "current"), ("CompleteAbort", False, "current"), levels=(1,)),
    *rows(an_end_after_a_time_out, (4, True), levels=(1, 0)),
    *rows(an_end_after_a_time_out, (5, True), (5, False), levels=(1,)),
]
