"""Conversations about what readers see: Fetch and ListOffsets at both isolation levels."""

from __future__ import annotations

from odradek.protocol.schemas import delete_records
from tests.transactions_against_kafka.producing import named
from tests.transactions_against_kafka.sides import Rows, Stage, rows
from tests.transactions_against_kafka.transaction_talk import WHEN, Producer

FETCH_VERSIONS = tuple(range(4, 19))
LATEST, EARLIEST, LARGEST = -1, -2, -3


def interleaved(stage: Stage, topic: str, version: int) -> None:
    """Three producers, two of which commit or abort, and one without transactions; unheard.

    Offsets: a 0-1, b 2-3, plain 4, a 5, c 6, abort of a 7, b 8, commit of b 9, a again 10-11, c 12, commit of a 13.
    c stays open.
    """
    talk = stage.talk
    with talk.quietly():
        a, b, c = (stage.started(word) for word in "abc")
        stage.transcript.know(a.producer_id, b.producer_id, c.producer_id)
        sequences = dict.fromkeys("abc", 0)

        def send(producer: Producer, word: str, count: int = 1) -> None:
            if version < 12:
                talk.add(producer, (topic, 0))
            values = [f"{word}{sequences[word] + number}".encode() for number in range(count)]
            talk.send_batch(
                producer, (topic, 0), sequences[word], *values, version=version, when=WHEN + sum(sequences.values())
            )
            sequences[word] += count

        def end(producer: Producer, word: str, commits: bool) -> Producer:
            ended = talk.end(producer, commits, 5 if version >= 12 else 4)
            if version >= 12:
                sequences[word] = 0
            return ended

        send(a, "a", 2)
        send(b, "b", 2)
        talk.send_batch(None, (topic, 0), 0, b"plain")
        send(a, "a")
        send(c, "c")
        a = end(a, "a", False)
        send(b, "b")
        end(b, "b", True)
        send(a, "a", 2)
        send(c, "c")
        end(a, "a", True)


def fetches(stage: Stage, version: int) -> None:
    """From each offset, at both levels; then the open transaction is aborted."""
    topic = stage.topic()
    interleaved(stage, topic, 12)
    place = (named(stage, topic, version), 0)
    for isolation_level in (1, 0):
        for offset in (0, 1, 2, 5, 6, 7, 8, 13, 14, 15):
            stage.talk.fetch_at(place, offset, version, isolation_level=isolation_level)
    with stage.talk.quietly():
        stage.talk.init(stage.word("c"))
    for offset in range(15):
        stage.talk.fetch_at(place, offset, version)


def fetches_with_limits(stage: Stage, protocol: int) -> None:
    """Aborted transactions are listed up to the end of what is returned, or the segment's, as far as Kafka knows it."""
    topic = stage.topic(index_interval_bytes=1)
    interleaved(stage, topic, protocol)
    with stage.talk.quietly():
        stage.talk.init(stage.word("c"))
    for limit in (1, 150, 400, 10_000):
        for offset in (0, 2, 6, 8):
            stage.talk.fetch_at((topic, 0), offset, partition_max_bytes=limit)


def fetches_of_many_segments(stage: Stage) -> None:
    """Aborted transactions that begin in one segment and end in another; a log whose begin is deleted."""
    talk = stage.talk
    topic = stage.topic(segment_bytes=1 << 20)
    large = bytes(400_000)
    with talk.quietly():
        long, short = stage.started("long"), stage.started("short")
        stage.transcript.know(long.producer_id, short.producer_id)
        talk.send_batch(long, (topic, 0), 0, b"long", version=12)
        for number in range(4):
            for sequence in range(3):
                talk.send_batch(short, (topic, 0), sequence, large, version=12)
            short = talk.end(short, number % 2 == 1)
        talk.end(long, False)
    for offset in range(18):
        answer = talk.fetch_at((topic, 0), offset, partition_max_bytes=1)
        assert answer.records is not None
    for offset in (0, 5, 9, 16):
        talk.fetch_at((topic, 0), offset)


def offsets(stage: Stage, version: int) -> None:
    """ListOffsets while a transaction is open, and afterwards."""
    talk = stage.talk
    topic = stage.topic()
    interleaved(stage, topic, 12)
    for ended in (False, True):
        if ended:
            with talk.quietly():
                talk.init(stage.word("c"))
        for isolation_level in (0, 1) if version >= 2 else (0,):
            fields = {"isolation_level": isolation_level} if version >= 2 else {}
            for timestamp in (LATEST, EARLIEST, WHEN, WHEN + 3, WHEN + 4, WHEN + 5, WHEN + 6, WHEN + 7, 1 << 42):
                talk.offset_at(topic, timestamp, version=version, **fields)
            if version >= 7:
                talk.offset_at(topic, LARGEST, version=version, **fields)


def a_transaction_without_data(stage: Stage, version: int, commits: bool) -> None:
    """A marker alone: the log has it, the index of aborted transactions does not."""
    talk = stage.talk
    topic = stage.topic()
    producer = stage.started()
    if version < 12:
        talk.add(producer, (topic, 0))
    else:
        talk.add_as_broker((producer, [(topic, 0)]), verify=False)
    talk.end(producer, commits, 5 if version >= 12 else 4)
    talk.fetch_at((topic, 0))
    talk.producers_of((topic, 0))
    talk.offset_at(topic, LATEST, isolation_level=1)


def a_reader_behind_deleted_records(stage: Stage) -> None:
    """An aborted transaction that began before the log's start."""
    talk = stage.talk
    topic = stage.topic()
    interleaved(stage, topic, 12)
    make = delete_records.Request
    wish = make.DeleteRecordsTopic(name=topic, partitions=[make.DeleteRecordsPartition(partition_index=0, offset=2)])
    talk.ask(make(topics=[wish], timeout_ms=10_000), delete_records.API_KEY, 2)
    for offset in (0, 2, 5, 6):
        talk.fetch_at((topic, 0), offset)
    talk.producers_of((topic, 0))


ROWS: Rows = [
    *rows(fetches, *FETCH_VERSIONS),
    *rows(fetches_with_limits, 11, 12),
    *rows(fetches_of_many_segments, takes_long=True),
    *rows(offsets, *range(1, 12)),
    *rows(a_transaction_without_data, *((version, commits) for version in (11, 12) for commits in (True, False))),
    *rows(a_reader_behind_deleted_records),
]
