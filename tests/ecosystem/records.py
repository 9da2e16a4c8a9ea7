"""Reading topics whole, to compare the records. Runs in the tests' process."""

from __future__ import annotations

from types import TracebackType
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, Message, TopicPartition

from tests.waiting import until


class Record(NamedTuple):
    """What a record consists of beside its offset. ``timestamp``: in ms; None if it has none."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int | None


class Reader:
    """Reads the committed records of a topic as it grows. ``records``: by partition, each with its offset."""

    def __init__(self, servers: str, topic: str, partitions: int = 1) -> None:
        self.topic = topic
        self.records: list[list[tuple[int, Record]]] = [[] for _ in range(partitions)]
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "unused",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
                "error_cb": lambda error: None,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._consumer.close()

    def read(self) -> int:
        """Read on for a tenth of a second at most; the number of records so far."""
        for message in self._consumer.consume(1000, 0.1):
            failure = message.error()
            if failure is not None:
                assert failure.code() != KafkaError.OFFSET_OUT_OF_RANGE, failure
                continue
            self._add(message)
        return sum(map(len, self.records))

    def _add(self, message: Message) -> None:
        kind, timestamp = message.timestamp()
        partition, offset, headers = message.partition(), message.offset(), message.headers()
        assert partition is not None and offset is not None
        record = Record(
            _bytes(message.key()),
            _bytes(message.value()),
            tuple((str(name), _bytes(value)) for name, value in headers or []),
            None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
        )
        self.records[partition].append((offset, record))

    def until(self, count: int, patience_s: float = 120.0) -> None:
        """Read until there are so many records, at least."""
        until(lambda: self.read() >= count, lambda: f"{self.read()} of {count} records of {self.topic}", patience_s)

    def values(self) -> list[list[str]]:
        """The values, which are text, by partition."""
        return [[(record.value or b"").decode() for _, record in partition] for partition in self.records]

    def contents(self) -> list[list[Record]]:
        """The records without their offsets, by partition."""
        return [[record for _, record in partition] for partition in self.records]


def _bytes(value: str | bytes | None) -> bytes | None:
    assert not isinstance(value, str)
    return value


def assert_equal(copies: list[list[Record]], originals: list[list[Record]]) -> None:
    """Raise AssertionError with the first record of a partition that differs, or is missing or surplus."""
    assert len(copies) == len(originals)
    for number, (copied, written) in enumerate(zip(copies, originals, strict=True)):
        for index, (copy, original) in enumerate(zip(copied, written, strict=False)):
            assert copy == original, f"record {index} of partition {number} is {copy} and not {original}"
        assert len(copied) == len(written), f"partition {number} has {len(copied)} records and not {len(written)}"
