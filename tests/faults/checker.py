"""Checks the partitions after faults against the acknowledgements: no record is lost, duplicated or skipped.

Pure but for `read_partitions`, which reads a topic with a consumer by assignment.
"""

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.waiting import until

RecordId = tuple[str, int]
"""The producer of a record, and the number of the record."""


def encode_id(record: RecordId) -> bytes:
    """The record's key."""
    return f"{record[0]}:{record[1]}".encode()


def decode_id(key: bytes) -> RecordId:
    name, _, number = key.decode().rpartition(":")
    return name, int(number)


def faults(
    partitions: Mapping[int, tuple[int, Sequence[tuple[int, RecordId]]]],
    acknowledged: Mapping[RecordId, tuple[int, int]],
    idempotent: Collection[str],
) -> list[str]:
    """The errors, one line each; empty if there are none.

    :param partitions: the log end offset of each, and (offset, record) in the order read.
    :param acknowledged: (partition, offset) that the producer was told, by record; offset -1 if it was told none.
    :param idempotent: the producers whose records must be there at most once, in order.
    """
    found: list[str] = []
    where: dict[RecordId, list[tuple[int, int]]] = {}
    for partition, (end, records) in partitions.items():
        found += _gaps(partition, end, [offset for offset, _ in records])
        newest: dict[str, int] = {}
        for offset, record in records:
            where.setdefault(record, []).append((partition, offset))
            name, number = record
            if name in idempotent:
                if number <= newest.get(name, -1):
                    found.append(
                        f"partition {partition} offset {offset}: {record} after {newest[name]} of its producer"
                    )
                newest[name] = max(number, newest.get(name, -1))
    lost = [record for record in acknowledged if record not in where]
    found += _told(lost, "acknowledged, and not there")
    twice = [record for record, places in where.items() if len(places) > 1 and record[0] in idempotent]
    found += _told(twice, "of an idempotent producer, and there more than once")
    elsewhere = [
        record
        for record, (partition, offset) in acknowledged.items()
        if record in where and offset >= 0 and (partition, offset) not in where[record]
    ]
    found += _told(elsewhere, "not at the offset that its producer was told")
    return found


def _gaps(partition: int, end: int, offsets: Sequence[int]) -> Iterable[str]:
    for expected, offset in enumerate(offsets):
        if expected != offset:
            return [f"partition {partition}: offset {offset} where {expected} was due"]
    return [] if len(offsets) == end else [f"partition {partition}: {len(offsets)} records, log end offset {end}"]


def _told(records: Sequence[RecordId], text: str) -> list[str]:
    if not records:
        return []
    counts = dict(Counter(name for name, _ in records))
    return [f"{len(records)} records {text}: {counts}, first {min(records)}, last {max(records)}"]


def _watermarks(consumer: Consumer, place: TopicPartition, timeout_s: float) -> tuple[int, int]:
    """The log start offset and the high watermark of a partition; waits until it has a leader."""

    def known() -> tuple[int, int] | None:
        try:
            low, high = consumer.get_watermark_offsets(place, timeout=timeout_s)
        except KafkaException as error:
            if error.args[0].code() in (KafkaError._UNKNOWN_PARTITION, KafkaError.LEADER_NOT_AVAILABLE):
                return None  # the library says both of a partition without a leader
            raise
        return low, high

    return until(known, f"{place.topic}-{place.partition} has a leader", timeout_s)


def read_partitions(
    bootstrap_servers: str, topic: str, partitions: int, timeout_s: float = 120.0
) -> dict[int, tuple[int, list[tuple[int, RecordId]]]]:
    """Every record of the topic, read by assignment from offset 0 to the log end offset, with CRCs checked."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "unused",  # the library wants one; nothing is committed and no group joined
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.wait.max.ms": 20,
        }
    )
    found: dict[int, list[tuple[int, RecordId]]] = {number: [] for number in range(partitions)}
    try:
        ends = {}
        for number in found:
            low, ends[number] = _watermarks(consumer, TopicPartition(topic, number), timeout_s)
            if low != 0:
                raise AssertionError(f"partition {number} begins at offset {low}")
        consumer.assign([TopicPartition(topic, number, 0) for number in found])
        left = set(found)
        deadline = time.monotonic() + timeout_s
        while left:
            if time.monotonic() > deadline:
                raise TimeoutError(f"partitions {sorted(left)} were not read to their ends")
            for message in consumer.consume(10_000, 0.1):
                error = message.error()
                if error is None:
                    found[message.partition()].append((message.offset(), decode_id(message.key())))
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return {number: (ends[number], records) for number, records in found.items()}
