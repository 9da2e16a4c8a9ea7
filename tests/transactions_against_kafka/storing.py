"""Conversations after which the logs are looked at: records of `__transaction_state`, markers, transaction indexes.

Bytes are compared with producer ids as numbers in the order of their appearance, and with times that say only what a time must
be: none, or now. What is left out of a text is proved equal to it: a value that is encoded anew gives its own bytes.
"""

from __future__ import annotations

import struct
from pathlib import Path

from odradek.protocol import encode
from odradek.protocol.schemas.transaction_records import STATES
from odradek.storage.batch import HEADER, RecordBatch, read_batches
from tests.transactions_against_kafka.reading import interleaved
from tests.transactions_against_kafka.sides import Rows, Stage, rows
from tests.transactions_against_kafka.state_log import Written, records_of
from tests.transactions_against_kafka.transaction_talk import Producer
from tests.wire import whole

NOW = 1
"""Stands for a time of the test's run."""
INDEX_ENTRY = struct.Struct(">hqqqq")
"""Of a transaction index: version, producer id, first offset, last offset, last stable offset."""


def number(stage: Stage, producer_id: int) -> int:
    """A producer id as a number in the order of appearance, -1 for none."""
    return -1 if producer_id < 0 else int(stage.transcript.producer(producer_id)[1:])


def note_states(stage: Stage, *words: str) -> None:
    """Note each record of some transactional ids of the conversation."""
    ids = {stage.word(word) for word in words or ("id",)}
    with stage.talk.quietly():
        found = records_of(stage.talk, ids)
    for record in found:
        stage.transcript.note(described(stage, record))


def described(stage: Stage, record: Written) -> str:
    """A record: its fields for people, and the bytes of key and value."""
    name = record.key.transactional_id
    if record.raw_value is None:
        return f"{name}: tombstone"
    value = record.value
    version = int.from_bytes(record.raw_value[:2], "big")
    assert record.raw_value[2:] == encode(value, version), "another encoding of the same fields"
    assert record.timestamp > NOW
    for field in ("transaction_start_timestamp_ms", "transaction_last_update_timestamp_ms"):
        setattr(value, field, min(NOW, getattr(value, field)))
    for field in ("producer_id", "previous_producer_id", "next_producer_id"):
        setattr(value, field, number(stage, getattr(value, field)))
    for topic in value.transaction_partitions or ():
        topic.partition_ids.sort()
    if value.transaction_partitions is not None:
        value.transaction_partitions.sort(key=lambda topic: topic.topic)
    places = value.transaction_partitions
    return (
        f"{name}: {STATES[value.transaction_status]} version {version} producer {value.producer_id} previous "
        f"{value.previous_producer_id} next {value.next_producer_id} epoch {value.producer_epoch} next epoch "
        f"{value.next_producer_epoch} protocol {value.client_transaction_version} partitions "
        f"{places and {place.topic: place.partition_ids for place in places}} bytes {encode(value, version).hex()}"
    )


def states_of_a_transaction(stage: Stage, version: int, commits: bool) -> None:
    """Two transactions and an initialisation between them."""
    talk = stage.talk
    topic, other = stage.topic(partitions=2), stage.topic("other")
    with talk.quietly():
        producer = stage.started()
        for _ in range(2):
            if version < 5:
                talk.add(producer, (topic, 0))
                talk.add(producer, (topic, 1), (other, 0))
                talk.add(producer, (other, 0))
            else:
                talk.send_batch(producer, (topic, 0), 0)
                talk.add_as_broker((producer, [(topic, 1), (other, 0)]), verify=False)
            producer = talk.end(producer, commits, version)
            producer = talk.init(producer, timeout_ms=5_000)
    note_states(stage)


def states_of_other_ends(stage: Stage, version: int) -> None:
    """A fence, a time-out, an abort without partitions, offsets, both protocols in one transaction."""
    talk = stage.talk
    topic = stage.topic()
    with talk.quietly():
        fenced = stage.started("fenced")
        late = stage.started("late", timeout_ms=1)
        for producer in (fenced, late):
            if version < 5:
                talk.add(producer, (topic, 0))
            else:
                talk.add_as_broker((producer, [(topic, 0)]), verify=False)
        talk.init(fenced.transactional_id)
        talk.until_state(late.transactional_id, "CompleteAbort")
        offsets = stage.started("offsets")
        if version < 5:
            talk.add_offsets(offsets, stage.name)
        else:
            talk.commit_in_transaction(offsets, stage.name, {(topic, 0): 5})
        talk.end(offsets, True, version)
        if version >= 5:
            talk.end(stage.started("empty"), False)
            mixed = stage.started("mixed")
            talk.add(mixed, (topic, 0))
            mixed = talk.end(mixed, True, 5)
            talk.add_as_broker((mixed, [(topic, 0)]), verify=False)
            talk.end(mixed, False, 4)
    note_states(stage, "fenced", "late", "offsets", "empty", "mixed")


def markers(stage: Stage, version: int) -> None:
    """The bytes of control batches."""
    talk = stage.talk
    topic = stage.topic()
    with talk.quietly():
        producer = stage.started()
        for commits in (True, False):
            if version < 5:
                talk.add(producer, (topic, 0))
            talk.send_batch(producer, (topic, 0), 0, version=11 if version < 5 else 12)
            producer = talk.end(producer, commits, version)
            if version < 5:
                producer = talk.init(producer)
        talk.mark(Producer("", producer.producer_id, 99), True, (topic, 0), coordinator_epoch=7)
    note_markers(stage, topic)


def note_markers(stage: Stage, topic: str) -> None:
    """Note the bytes of each control batch, without its checksum, with numbers for producer and times."""
    with stage.talk.quietly():
        records = whole(stage.talk.fetch_at((topic, 0), isolation_level=0).records)
    at = 0
    for batch in read_batches(records):
        size = HEADER.size + len(batch.payload)
        if batch.is_control:
            stage.transcript.note(f"marker {normal(stage, batch, records[at : at + size])}")
        at += size


def normal(stage: Stage, batch: RecordBatch, data: bytes) -> str:
    """A batch in hexadecimal."""
    fields = list(HEADER.unpack_from(data))
    assert min(batch.base_timestamp, batch.max_timestamp) > NOW
    fields[4] = 0  # the checksum
    fields[7] = fields[8] = NOW
    fields[9] = number(stage, batch.producer_id)
    return (HEADER.pack(*fields) + batch.payload).hex()


def batches_of_offsets(stage: Stage, version: int) -> None:
    """How offsets of transactions are in __consumer_offsets: the batches of one producer."""
    talk = stage.talk
    topic = stage.topic()
    with talk.quietly():
        producer = stage.started()
        for commits in (True, False):
            if version < 5:
                talk.add_offsets(producer, stage.name)
            for offset in (5, 6):
                talk.commit_in_transaction(producer, stage.name, {(topic, 0): offset}, min(version, 5))
            producer = talk.end(producer, commits, version)
        for partition in range(2):
            offset, end = 0, talk.latest("__consumer_offsets", partition)
            while offset < end:
                answer = talk.fetch_at(("__consumer_offsets", partition), offset, isolation_level=0)
                for batch in read_batches(whole(answer.records)):
                    offset = batch.last_offset + 1
                    if batch.producer_id == producer.producer_id:
                        kind = "marker" if batch.is_control else f"{batch.record_count} records"
                        stage.transcript.note(
                            f"{kind} attributes {batch.attributes:#x} epoch {batch.producer_epoch} sequence "
                            f"{batch.base_sequence}"
                        )


def note_indexes(stage: Stage, topic: str) -> None:
    """Note the bytes of each transaction index of partition 0 that has any, and what they say."""
    directory = Path(stage.side.process.data_dir) / f"{topic}-0"
    for path in sorted(directory.glob("*.txnindex")):
        for entry in INDEX_ENTRY.iter_unpack(path.read_bytes()):
            shown = (entry[0], number(stage, entry[1]), *entry[2:])
            stage.transcript.note(f"{path.name}: {shown} {INDEX_ENTRY.pack(*shown).hex()}")


def transaction_indexes(stage: Stage, protocol: int) -> None:
    """Of interleaved transactions; the last one is aborted, too."""
    topic = stage.topic()
    interleaved(stage, topic, protocol)
    note_indexes(stage, topic)
    with stage.talk.quietly():
        stage.talk.init(stage.word("c"))
    note_indexes(stage, topic)


def transaction_indexes_of_segments(stage: Stage) -> None:
    """The entry is in the segment of the marker."""
    talk = stage.talk
    topic = stage.topic(segment_bytes=1 << 20)
    with talk.quietly():
        long, short = stage.started("long"), stage.started("short")
        talk.send_batch(long, (topic, 0), 0, b"long")
        for _ in range(3):
            for sequence in range(3):
                talk.send_batch(short, (topic, 0), sequence, bytes(400_000))
            short = talk.end(short, False)
        talk.end(long, False)
    note_indexes(stage, topic)


ROWS: Rows = [
    *rows(states_of_a_transaction, (4, True), (4, False), (5, True), (5, False)),
    *rows(states_of_other_ends, 4, 5),
    *rows(markers, 4, 5),
    *rows(batches_of_offsets, 4, 5),
    *rows(transaction_indexes, 11, 12),
    *rows(transaction_indexes_of_segments),
    *rows(states_of_a_transaction, (4, True), (5, False), levels=(1,)),
    *rows(states_of_a_transaction, (4, True), (4, False), levels=(0,)),
    *rows(states_of_other_ends, 4, levels=(1, 0)),
]
