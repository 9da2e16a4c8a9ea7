"""Conversations about WriteTxnMarkers, as coordinators and `kafka-transactions.sh abort` send it."""

from __future__ import annotations

from tests.transactions_against_kafka.sides import Rows, Stage, rows
from tests.transactions_against_kafka.transaction_talk import Producer, marker_of

EPOCH = 5
STRANGER = 777_000_000
"""A producer id that no coordinator has given out."""


def prepared(stage: Stage, opens: bool) -> tuple[str, Producer]:
    """A partition that knows a producer with epoch EPOCH, whose transaction is open or ended; unheard."""
    topic = stage.topic()
    talk = stage.talk
    with talk.quietly():
        for _ in range(EPOCH):
            stage.started()
        producer = stage.started()
        talk.add(producer, (topic, 0))
        talk.send_batch(producer, (topic, 0), 0, version=11)
        if not opens:
            talk.end(producer, True, 4)
    assert producer.epoch == EPOCH
    return topic, producer


def a_marker(stage: Stage, transaction_version: int, epoch: str, opens: str) -> None:
    """Of the current epoch, an older and a newer one, while a transaction is open and when none is; then again."""
    topic, producer = prepared(stage, opens == "open")
    talk = stage.talk
    asked = {"older": producer.earlier, "current": producer, "newer": producer.later, "newest": producer.at(32767)}[
        epoch
    ]
    for _ in range(2):
        for commits in (False, True):
            talk.mark(asked, commits, (topic, 0), transaction_version=transaction_version)
    talk.producers_of((topic, 0))
    talk.fetch_at((topic, 0))
    talk.send_batch(producer, (topic, 0), 1, version=11)
    talk.send_batch(asked, (topic, 0), 0, version=11)


def coordinator_epochs(stage: Stage, transaction_version: int) -> None:
    """Of the last marker's coordinator, a newer one, and an older one."""
    topic, producer = prepared(stage, opens=True)
    talk = stage.talk
    for epoch, coordinator_epoch in enumerate((3, 3, 4, 3, 2, 4), start=producer.epoch + 1):
        talk.mark(
            producer.at(epoch),
            False,
            (topic, 0),
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )
    talk.producers_of((topic, 0))


def markers_of_strangers(stage: Stage, transaction_version: int) -> None:
    """Of a producer that the partition does not know."""
    topic = stage.topic()
    talk = stage.talk
    stranger = Producer("", STRANGER, 3)
    for _ in range(2):
        talk.mark(stranger, True, (topic, 0), transaction_version=transaction_version)
    talk.mark(stranger.earlier, False, (topic, 0), transaction_version=transaction_version)
    talk.mark(Producer("", STRANGER + 1, 0), False, (topic, 0), transaction_version=transaction_version)
    talk.mark(Producer("", STRANGER + 2, -1), False, (topic, 0), transaction_version=transaction_version)
    talk.producers_of((topic, 0))
    talk.fetch_at((topic, 0), isolation_level=0)


def requests_of_several_markers(stage: Stage, version: int) -> None:
    """Partitions that are not there, a producer twice, none at all."""
    topic = stage.topic(partitions=2)
    talk = stage.talk
    one, two = Producer("", STRANGER, 0), Producer("", STRANGER + 1, 0)
    there, gone = [(topic, 0), (topic, 1)], [("no-such-topic", 0), (topic, 7)]
    talk.mark_all(marker_of(one, True, *there, *gone, tv=0), version=version)
    talk.mark_all(marker_of(one, True, *gone, tv=0), version=version)
    talk.mark_all(marker_of(one, True, *there, tv=0), marker_of(two, False, *there, tv=0), version=version)
    talk.mark_all(marker_of(two, False, *gone, tv=0), marker_of(one, True, there[0], tv=0), version=version)
    talk.mark_all(marker_of(one, True, there[0], tv=0), marker_of(one, True, there[1], tv=0), version=version)
    talk.mark_all(version=version)
    talk.mark_all(marker_of(one, True, tv=0), marker_of(two, True, there[0], tv=0), version=version)
    for place in there:
        talk.fetch_at(place, isolation_level=0)


def an_operator_ends_a_transaction(stage: Stage, version: int) -> None:
    """With the producer's own epoch and no transaction version; the producer goes on and ends it, too."""
    topic, producer = prepared(stage, opens=True)
    talk = stage.talk
    talk.mark(producer, False, (topic, 0), version=version, coordinator_epoch=-1, transaction_version=0)
    talk.mark(producer, False, (topic, 0), version=version, coordinator_epoch=0, transaction_version=0)
    talk.fetch_at((topic, 0))
    talk.send_batch(producer, (topic, 0), 1, b"late", version=11)
    talk.fetch_at((topic, 0))
    talk.end(producer, True, 4)
    talk.fetch_at((topic, 0))


def a_marker_for_offsets(stage: Stage, transaction_version: int) -> None:
    """Markers of __consumer_offsets go through the group coordinator."""
    talk = stage.talk
    topic = stage.topic()
    group = stage.word("group")
    for _ in range(2):
        producer = stage.started()
    talk.add_offsets(producer, group)
    talk.commit_in_transaction(producer, group, {(topic, 0): 5}, 3)
    places = [("__consumer_offsets", 0), ("__consumer_offsets", 1), ("__consumer_offsets", 9)]
    talk.mark(producer.earlier, True, *places, transaction_version=transaction_version)
    talk.mark(producer, True, *places, transaction_version=transaction_version)
    talk.offsets_of(group, None, stable=True)
    talk.mark(producer.later, True, *places, transaction_version=transaction_version)
    talk.offsets_of(group, None, stable=True)


ROWS: Rows = [
    *rows(
        a_marker,
        *(
            (version, epoch, opens)
            for version in (0, 1, 2)
            for epoch in ("older", "current", "newer", "newest")
            for opens in ("open", "ended")
        ),
    ),
    *rows(coordinator_epochs, 0, 2),
    *rows(markers_of_strangers, 0, 2),
    *rows(requests_of_several_markers, 1, 2),
    *rows(an_operator_ends_a_transaction, 1, 2),
    *rows(a_marker_for_offsets, 0, 2),
]
