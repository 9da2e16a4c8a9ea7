"""Conversations about what a partition's leader accepts from transactional producers."""

from __future__ import annotations

from odradek.protocol.schemas import produce
from tests.transactions_against_kafka.adding import STATES, wrong_ones
from tests.transactions_against_kafka.sides import Rows, Stage, rows
from tests.transactions_against_kafka.transaction_talk import Producer, TransactionTalk, data_batch
from tests.wire import produce_request

PRODUCE_VERSIONS = tuple(range(3, 14))
ONE_EACH = (3, 10, 11, 12, 13)
"""A version of each behaviour: verification with old errors, with new errors, additions, topic ids."""


def named(stage: Stage, topic: str, version: int) -> str | bytes:
    """A topic as this version of Produce names it."""
    return stage.side.ids[topic] if version >= 13 else topic


def a_transaction(stage: Stage, version: int, commits: bool) -> None:
    """From the first batch to the end; what a reader and DescribeProducers see on the way."""
    talk = stage.talk
    topic = stage.topic(partitions=2)
    producer = stage.started()
    place = (named(stage, topic, version), 0)
    talk.send_batch(None, place, 0, version=version)
    for sequence in range(2):
        if version < 12:
            talk.add(producer, (topic, sequence))
        talk.send_batch(producer, place, sequence, b"%d" % sequence, version=version)
        talk.send_batch(producer, (place[0], 1), sequence, b"%d" % sequence, version=version)
        talk.fetch_at((topic, 0))
    talk.producers_of((topic, 0), (topic, 1))
    producer = talk.end(producer, commits, 5 if version >= 12 else 4)
    talk.fetch_at((topic, 0))
    talk.producers_of((topic, 0), (topic, 1))
    sequence = 0 if version >= 12 else 2
    if version < 12:
        talk.add(producer, (topic, 0))
    talk.send_batch(producer, place, sequence, b"next", version=version)
    talk.end(producer, not commits, 5 if version >= 12 else 4)
    talk.fetch_at((topic, 0))


def batches_in_a_state(stage: Stage, state: str, version: int) -> None:
    """To a partition that is not in the transaction, by wrong producers and the right one; DescribeTransactions last."""
    talk = stage.talk
    topic = stage.topic(partitions=2)
    producer = stage.brought(state, ends=4 if version < 12 else 5)
    place = (named(stage, topic, version), 0)
    for wrong in wrong_ones(producer, state):
        talk.send_batch(wrong, place, 0, version=version, patient=False)
    talk.send_batch(producer, place, 0, version=version, patient=False)
    talk.send_batch(producer, place, 1, version=version, patient=False)
    talk.describe_transactions(producer.transactional_id)
    talk.producers_of((topic, 0))


def requests_without_the_right_id(stage: Stage, version: int) -> None:
    """The transactional id is in the request, not in the batch."""
    talk = stage.talk
    topic = stage.topic(partitions=2)
    producer = stage.started()
    other = stage.started("other")
    place = (named(stage, topic, version), 0)
    if version < 12:
        talk.add(producer, (topic, 0))
    for transactional_id in (None, "", stage.word("unknown"), other.transactional_id, producer.transactional_id):
        request = produce_request([(place[0], [(0, data_batch(producer, 0))])])
        request.transactional_id = transactional_id
        talk.asked_until(request, produce.API_KEY, version)
    # the transaction is open now
    for transactional_id in (other.transactional_id, producer.transactional_id):
        request = produce_request([(place[0], [(0, data_batch(producer, 1))])])
        request.transactional_id = transactional_id
        talk.asked_until(request, produce.API_KEY, version)
    # a batch that is not transactional needs none, and may have one
    for transactional_id in (None, stage.word("unknown")):
        request = produce_request([(place[0], [(1, data_batch(None, 0))])])
        request.transactional_id = transactional_id
        talk.asked_until(request, produce.API_KEY, version)


def two_producers_in_a_request(stage: Stage, version: int) -> None:
    talk = stage.talk
    topic = stage.topic(partitions=3)
    one, two = stage.started("one"), stage.started("two")
    place = named(stage, topic, version)
    if version < 12:
        for producer in (one, two):
            talk.add(producer, (topic, 0), (topic, 1))
    first, second = data_batch(one, 0), data_batch(two, 0)
    talk.send_batches({(place, 0): first, (place, 1): second}, one, version)
    talk.send_batches({(place, 0): first, (place, 1): data_batch(one.later, 0)}, one, version)
    # one of them is not transactional
    talk.send_batches({(place, 0): first, (place, 1): data_batch(two, 0, attributes=0)}, one, version)
    talk.send_batches({(place, 0): data_batch(one, 1), (place, 2): data_batch(None, 0)}, one, version)
    for partition in range(3):
        talk.fetch_at((topic, partition), isolation_level=0)


def one_partition_of_two_is_added(stage: Stage, version: int) -> None:
    """The other one, and one that is not there."""
    talk = stage.talk
    topic = stage.topic(partitions=2)
    producer = stage.started()
    place = named(stage, topic, version)
    talk.add(producer, (topic, 0))
    batches: dict[tuple[str | bytes, int], bytes] = {(place, number): data_batch(producer, 0) for number in (0, 1, 7)}
    talk.send_batches(batches, producer, version)
    talk.describe_transactions(producer.transactional_id)
    talk.producers_of((topic, 0), (topic, 1))


def batches_that_are_not_transactional(stage: Stage, version: int) -> None:
    """Of a producer whose transaction is open here, and elsewhere, and ended."""
    talk = stage.talk
    topic = stage.topic(partitions=2)
    producer = stage.started()
    talk.add(producer, (topic, 0), (topic, 1))
    talk.send_batch(producer, (topic, 0), 0, version=11)
    for partition in (0, 1):
        for sequence in (0, 1):
            talk.send_batch(producer, (topic, partition), sequence, version=version, attributes=0)
            talk.send_batch(
                producer, (topic, partition), sequence, version=version, attributes=0, transactional_id=None
            )
    talk.fetch_at((topic, 0))
    producer = talk.end(producer, True, 4)
    talk.send_batch(producer, (topic, 0), 1, version=version, attributes=0)
    talk.producers_of((topic, 0), (topic, 1))
    talk.fetch_at((topic, 0))
    talk.fetch_at((topic, 1))


def sequences_of_protocol_1(stage: Stage, version: int) -> None:
    """A producer without state may begin anywhere; with state it may not skip."""
    talk = stage.talk
    topic = stage.topic(partitions=2)
    producer = stage.started()
    talk.add(producer, (topic, 0), (topic, 1))
    for sequence in (5, 7, 6, 5, 6, 8):
        talk.send_batch(producer, (topic, 0), sequence, version=version)
    talk.send_batch(producer.later, (topic, 0), 3, version=version)
    producer = talk.end(producer, True, 4)
    talk.add(producer, (topic, 0))
    for sequence in (9, 0, 7, 8):
        talk.send_batch(producer, (topic, 0), sequence, version=version)
    talk.end(producer, False, 4)
    producer = talk.init(producer)
    talk.add(producer, (topic, 0))
    for sequence in (9, 1, 0, 1):
        talk.send_batch(producer, (topic, 0), sequence, version=version)
    talk.fetch_at((topic, 0), isolation_level=0)


def sequences_of_protocol_2(stage: Stage, version: int) -> None:
    """Each transaction has its own epoch, and begins with 0."""
    talk = stage.talk
    topic = stage.topic()
    place = (named(stage, topic, version), 0)
    producer = stage.started()
    for sequence in (5, 1, 0, 2, 1, 1, 3):
        talk.send_batch(producer, place, sequence, version=version)
    producer = talk.end(producer, True)
    for sequence in (2, 1, 0, 0, 1):
        talk.send_batch(producer, place, sequence, version=version)
    producer = talk.end(producer, False)
    producer = talk.init(producer)
    for sequence in (1, 0):
        talk.send_batch(producer, place, sequence, version=version)
    talk.fetch_at((topic, 0), isolation_level=0)


def a_batch_whose_verification_failed_is_not_overtaken(stage: Stage, version: int) -> None:
    """A later batch of the same producer waits for it, although its partition has been added by then."""
    talk = stage.talk
    topic = stage.topic()
    producer = stage.started()
    talk.send_batch(producer, (topic, 0), 0, b"first", version=version)
    talk.add(producer, (topic, 0))
    for sequence in (1, 2, 0, 1):
        talk.send_batch(producer, (topic, 0), sequence, b"%d" % sequence, version=version)
    talk.fetch_at((topic, 0), isolation_level=0)


def repeated_batches(stage: Stage, version: int, commits: bool) -> None:
    """A batch that comes again: in the transaction, after its end, and after the begin of the next one."""
    talk = stage.talk
    topic = stage.topic()
    first = stage.started()
    place = (named(stage, topic, version), 0)
    ends = 5 if version >= 12 else 4
    if version < 12:
        talk.add(first, (topic, 0))
    for _ in range(2):
        talk.send_batch(first, place, 0, b"first", version=version)
    second = talk.end(first, commits, ends)
    talk.send_batch(first, place, 0, b"first", version=version)
    talk.send_batch(first, place, 1, b"late", version=version)
    if version < 12:
        talk.add(second, (topic, 0))
    talk.send_batch(second, place, 0 if version >= 12 else 1, b"second", version=version)
    talk.send_batch(first, place, 0, b"first", version=version)
    talk.end(second, commits, ends)
    talk.fetch_at((topic, 0), isolation_level=0)


def epochs(stage: Stage, version: int) -> None:
    """Batches of an older epoch once the partition knows a newer one; of a newer one, which is nobody's yet."""
    talk = stage.talk
    topic = stage.topic(partitions=2)
    place = (named(stage, topic, version), 0)
    old = stage.started()
    if version < 12:
        talk.add(old, (topic, 0))
    talk.send_batch(old, place, 0, b"old", version=version)
    talk.send_batch(old.later, place, 0, b"newer", version=version)
    talk.send_batch(old.later, (place[0], 1), 0, b"newer", version=version)
    talk.end(old, False, 4)
    new = talk.init(old.transactional_id)
    if version < 12:
        talk.add(new, (topic, 0))
    talk.send_batch(old, place, 1, b"old", version=version)
    talk.send_batch(new, place, 0, b"new", version=version)
    for sequence in (0, 1):
        talk.send_batch(old, place, sequence, b"old", version=version)
        talk.send_batch(old, (place[0], 1), sequence, b"old", version=version)
    talk.producers_of((topic, 0), (topic, 1))
    talk.fetch_at((topic, 0), isolation_level=0)


def acknowledgements(stage: Stage, version: int) -> None:
    """acks=1 and 0; a response to acks=0 is none."""
    talk = stage.talk
    topic = stage.topic()
    producer = stage.started()
    if version < 12:
        talk.add(producer, (topic, 0))
    talk.send_batch(producer, (topic, 0), 0, acks=1, version=version)
    other = stage.connect()
    silent(other, producer, topic, 1, version)
    talk.send_batch(producer, (topic, 0), 2, acks=-1, version=version)
    talk.fetch_at((topic, 0), isolation_level=0)


def silent(talk: TransactionTalk, producer: Producer, topic: str, sequence: int, version: int) -> None:
    """A Produce with acks=0, which has been handled when this returns."""
    request = produce_request([(topic, [(0, data_batch(producer, sequence))])], acks=0)
    request.transactional_id = producer.transactional_id
    talk.send(request, produce.API_KEY, version)
    talk.forget_answer()
    with talk.quietly():
        talk.api_versions()


ROWS: Rows = [
    *rows(a_transaction, *((version, commits) for version in PRODUCE_VERSIONS for commits in (True, False))),
    *rows(batches_in_a_state, *((state, version) for state in STATES for version in ONE_EACH)),
    *rows(batches_in_a_state, *((state, version) for state in ("Empty", "TimedOut") for version in range(4, 10))),
    *rows(requests_without_the_right_id, *PRODUCE_VERSIONS),
    *rows(two_producers_in_a_request, *ONE_EACH),
    *rows(one_partition_of_two_is_added, *ONE_EACH),
    *rows(batches_that_are_not_transactional, 3, 11, 12),
    *rows(sequences_of_protocol_1, 3, 11),
    *rows(sequences_of_protocol_2, 12, 13),
    *rows(a_batch_whose_verification_failed_is_not_overtaken, 3, 10, 11),
    *rows(repeated_batches, *((version, commits) for version in (3, 11, 12, 13) for commits in (True, False))),
    *rows(epochs, *ONE_EACH),
    *rows(acknowledgements, 3, 11, 12),
    *rows(a_transaction, *((version, commits) for version in (11, 12) for commits in (True, False)), levels=(1,)),
    *rows(a_transaction, (11, True), (11, False), levels=(0,)),
]
