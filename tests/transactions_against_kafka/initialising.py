"""Conversations about InitProducerId and FindCoordinator."""

from __future__ import annotations

from tests.transactions_against_kafka.sides import Rows, Stage, rows
from tests.transactions_against_kafka.transaction_talk import Producer

INIT_VERSIONS = (0, 1, 2, 3, 4, 5)


def coordinators_are_found(stage: Stage, version: int) -> None:
    stage.talk.find_coordinator(stage.word("id"), version=version)
    if version >= 4:
        stage.talk.find_coordinator(stage.word("id"), stage.word("other"), "", version=version)


def a_new_id_and_its_next_instances(stage: Stage, version: int) -> None:
    for _ in range(3):
        stage.talk.init(stage.word("id"), version)
    stage.talk.describe_transactions(stage.word("id"))
    stage.talk.init(stage.word("id"), version, timeout_ms=5_000)
    stage.talk.describe_transactions(stage.word("id"))


def inits_that_are_refused(stage: Stage, version: int) -> None:
    talk = stage.talk
    talk.init("", version)
    for timeout_ms in (900_000, 900_001, 1, 0, -1):
        talk.init(stage.word("id"), version, timeout_ms=timeout_ms)
    talk.init(stage.word("refused"), version, timeout_ms=900_001)
    talk.describe_transactions(stage.word("refused"))
    talk.init(None, version, timeout_ms=0)
    if version >= 3:
        for wrong in ({"producer_id": 5, "producer_epoch": -1}, {"producer_id": -1, "producer_epoch": 5}):
            talk.init(stage.word("id"), version, **wrong)
            talk.init("", version, **wrong)
            talk.init(None, version, **wrong)
            talk.init(stage.word("id"), version, timeout_ms=0, **wrong)
        talk.init(Producer("", 5, 5), version)
        talk.init(None, version, producer_id=5, producer_epoch=5)


def a_producer_names_its_epoch(stage: Stage, version: int) -> None:
    """KIP-360: an epoch that is current, the last one, older, newer; another producer id."""
    talk = stage.talk
    first = talk.init(stage.word("id"), version)
    second = talk.init(first, version)
    talk.init(first, version)  # a retry
    third = talk.init(second, version)
    talk.init(first, version)
    talk.init(third.later, version)
    talk.init(Producer(third.transactional_id, third.producer_id + 100_000, third.epoch), version)
    fresh = talk.init(stage.word("id"), version)  # of another instance
    talk.init(third, version)
    talk.init(fresh, version)
    talk.init(stage.word("id"), version, producer_id=third.producer_id, producer_epoch=32767)
    # an id that the coordinator does not know
    talk.init(Producer(stage.word("unknown"), 123_456, 7), version)
    talk.init(Producer(stage.word("unknown"), 123_456, 7), version)


def an_init_during_a_transaction(stage: Stage, version: int, asks: str) -> None:
    """It fences and aborts the transaction, and says CONCURRENT_TRANSACTIONS first."""
    talk = stage.talk
    topic = stage.topic()
    old = stage.started()
    talk.add(old, (topic, 0))
    talk.send_batch(old, (topic, 0), 0, b"old", version=11)
    asked = old if asks == "named" else stage.word("id")
    talk.init(asked, version, patient=False)
    talk.until_complete(stage.word("id"))
    talk.describe_transactions(stage.word("id"))
    new = talk.init(asked, version)
    talk.describe_transactions(stage.word("id"))
    talk.add(old, (topic, 0))
    talk.add_offsets(old, stage.word("group"))
    for ends in (True, False):
        for end_version in (1, 2, 4, 5):
            talk.end(old, ends, end_version)
    talk.send_batch(old, (topic, 0), 1, b"late", version=11)
    talk.send_batch(old, (topic, 0), 1, b"late", version=12)
    if new.producer_id < 0:  # it named an epoch that the coordinator has fenced
        new = talk.init(stage.word("id"), version)
    talk.add(new, (topic, 0))
    talk.send_batch(new, (topic, 0), 0, b"new", version=11)
    talk.end(new, True, 4)
    talk.fetch_at((topic, 0))


def an_init_while_a_transaction_ends(stage: Stage, commits: bool) -> None:
    """Prepare: the markers are held."""
    talk = stage.talk
    producer = stage.brought("PrepareCommit" if commits else "PrepareAbort", ends=4)
    talk.describe_transactions(stage.word("id"))
    talk.init(stage.word("id"), patient=False)
    talk.init(producer, patient=False)
    talk.init(Producer(stage.word("id"), producer.producer_id + 100_000, 0), patient=False)
    stage.complete(producer)
    talk.init(producer)


def a_time_out(stage: Stage) -> None:
    """The coordinator aborts the transaction by itself."""
    talk = stage.talk
    topic = stage.topic()
    producer = stage.started(timeout_ms=1)
    talk.add(producer, (topic, 0))
    talk.until_state(stage.word("id"), "CompleteAbort")
    talk.describe_transactions(stage.word("id"))
    for version in (3, 4):
        talk.add(producer, (topic, 0), version=min(version, 3))
        talk.end(producer, True, version)
        talk.end(producer, False, version)
    talk.send_batch(producer, (topic, 0), 0, b"late", version=11)
    talk.init(producer)
    talk.init(stage.word("id"))


ROWS: Rows = [
    *rows(coordinators_are_found, 1, 2, 3, 4, 5, 6),
    *rows(a_new_id_and_its_next_instances, *INIT_VERSIONS),
    *rows(inits_that_are_refused, *INIT_VERSIONS),
    *rows(a_producer_names_its_epoch, 3, 4, 5),
    *rows(an_init_during_a_transaction, (1, "new"), (3, "new"), (3, "named"), (5, "new"), (5, "named")),
    *rows(an_init_during_a_transaction, (3, "new"), (4, "named"), levels=(1, 0)),
    *rows(an_init_while_a_transaction_ends, True, False, holds=True),
    *rows(a_time_out, levels=(2, 1, 0)),
]
