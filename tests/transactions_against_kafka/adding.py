"""Conversations about AddPartitionsToTxn and AddOffsetsToTxn, of clients and of leaders.

Not asked of Kafka: an AddPartitionsToTxn 4 of no transaction, which Kafka 4.3 never answers; and additions of protocol 2 at
level 0 of transaction.version, after which Kafka 4.3 answers CONCURRENT_TRANSACTIONS for that id until it is started again.
"""

from __future__ import annotations

from tests.transactions_against_kafka.sides import Rows, Stage, rows
from tests.transactions_against_kafka.transaction_talk import Producer

STATES = ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort", "TimedOut", "PrepareCommit", "PrepareAbort")


def wrong_ones(producer: Producer, state: str = "") -> list[Producer]:
    """Producers that are not the current one: other epochs, another id, an unknown and an empty transactional id.

    After a time-out the next epoch is the current one, and could begin a transaction that times out at once, too.
    """
    other = Producer(producer.transactional_id, producer.producer_id + 100_000, producer.epoch)
    unknown = Producer(f"{producer.transactional_id}-unknown", producer.producer_id, producer.epoch)
    epochs = [producer.earlier] if state == "TimedOut" else [producer.earlier, producer.later]
    return [*epochs, other, unknown, Producer("", producer.producer_id, producer.epoch)]


def adds_in_a_state(stage: Stage, state: str, version: int) -> None:
    """The wrong producers first, then the right one; twice, because the first may change the state."""
    talk = stage.talk
    topic = stage.topic(partitions=2)
    producer = stage.brought(state, ends=4)
    for wrong in wrong_ones(producer, state):
        talk.add(wrong, (topic, 0), version=version, patient=False)
    for partitions in ((0,), (0,), (0, 1), (1,)):
        talk.add(producer, *((topic, partition) for partition in partitions), version=version, patient=False)
    talk.describe_transactions(producer.transactional_id)


def adds_of_offsets_in_a_state(stage: Stage, state: str, version: int) -> None:
    talk = stage.talk
    producer = stage.brought(state, ends=4)
    for wrong in wrong_ones(producer, state):
        talk.add_offsets(wrong, stage.word("group"), version=version, patient=False)
    talk.add_offsets(producer, stage.word("group"), version=version, patient=False)
    talk.add_offsets(producer, stage.word("group"), version=version, patient=False)
    talk.add_offsets(producer, "", version=version, patient=False)
    talk.describe_transactions(producer.transactional_id)


def adds_of_what_is_not_there(stage: Stage, version: int) -> None:
    """One bad partition: nothing is added."""
    talk = stage.talk
    topic = stage.topic(partitions=2)
    producer = stage.started()
    for places in (
        ((topic, 0), ("no-such-topic", 0)),
        ((topic, 0), (topic, 7)),
        ((topic, 0), ("no-such-topic", 0), (topic, 7), (topic, -1)),
        (("bad name", 0),),
        (("", 0),),
        (("__consumer_offsets", 0),),
        (("__transaction_state", 0),),
        ((topic, 1), (topic, 1)),
        (),
    ):
        if version < 4:
            talk.add(producer, *places, version=version)
        elif ("__transaction_state", 0) not in places:  # a leader would get a marker there
            talk.add_as_broker((producer, places), verify=False, version=version)
            talk.add_as_broker((producer, places), verify=True, version=version)
        talk.describe_transactions(producer.transactional_id)


def no_partitions(stage: Stage, version: int) -> None:
    """A transaction of nothing."""
    talk = stage.talk
    producer = stage.started()
    if version < 4:
        talk.add(producer, version=version)
    else:
        talk.add_as_broker((producer, ()), verify=False, version=version)
    talk.describe_transactions(producer.transactional_id)
    talk.end(producer, True, 5 if version >= 4 else 4)
    talk.describe_transactions(producer.transactional_id)


def leaders_ask_in_a_state(stage: Stage, state: str, version: int) -> None:
    """Verification, then an addition, then verification again."""
    talk = stage.talk
    topic = stage.topic(partitions=2)
    producer = stage.brought(state)
    for verify in (True, False):
        for wrong in wrong_ones(producer, state):
            talk.add_as_broker((wrong, [(topic, 0)]), verify=verify, version=version, patient=False)
    for verify, partitions in (
        (True, (0,)),
        (False, (0,)),
        (True, (0,)),
        (True, (0, 1)),
        (False, (0, 1)),
        (True, (1,)),
    ):
        places = [(topic, partition) for partition in partitions]
        talk.add_as_broker((producer, places), verify=verify, version=version, patient=False)
    talk.describe_transactions(producer.transactional_id)


def leaders_ask_for_several(stage: Stage, version: int) -> None:
    """Several transactional ids in one request: each has its own result."""
    talk = stage.talk
    topic = stage.topic(partitions=2)
    one, two, three = (stage.started(word) for word in ("one", "two", "three"))
    places = [(topic, 0), (topic, 1)]
    talk.add(two, (topic, 0))
    for verify in (True, False):
        talk.add_as_broker((one, places), (two, places), (three.later, places), verify=verify, version=version)
    talk.add_as_broker((one, places), (two, [(topic, 9)]), verify=False, version=version)


ROWS: Rows = [
    *rows(adds_in_a_state, *((state, version) for state in STATES for version in (0, 1, 2, 3))),
    *rows(adds_of_offsets_in_a_state, *((state, version) for state in STATES for version in (0, 1, 2, 3, 4))),
    *rows(adds_of_what_is_not_there, 0, 1, 2, 3, 4, 5),
    *rows(no_partitions, 0, 3, 5),
    *rows(leaders_ask_in_a_state, *((state, version) for state in STATES for version in (4, 5))),
    *rows(leaders_ask_for_several, 4, 5),
    *rows(adds_in_a_state, ("Empty", 3), ("TimedOut", 3), levels=(1, 0)),
    *rows(leaders_ask_in_a_state, ("Empty", 5), ("TimedOut", 5), levels=(1,)),
]
