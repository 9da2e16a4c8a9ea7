"""Reads ranges of offsets with confluent-kafka: a Spark data source in Python with the columns of Spark's own Kafka source.

For machines that cannot get Spark's connector. `partitions` runs in a Python process of the driver, `read` in Spark's
Python workers, each with a separate consumer for one range of one partition.
"""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

NAME = "odradek_topics"
_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int,"
    " headers array<struct<key: string, value: binary>>"
)
_ARROW = pa.schema([
    ("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()),
    ("timestamp", pa.timestamp("us", tz="UTC")), ("timestampType", pa.int32()),
    ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
])  # fmt: skip
#: librdkafka's timestamp types, as Kafka's numbers: none, CreateTime, LogAppendTime.
_TYPES = {0: -1, 1: 0, 2: 1}
#: The largest time in milliseconds that a column of microseconds can have, in the year 294247.
_LAST_MS = (1 << 63) // 1000
_BATCH = 1000
_SILENCE_S = 120.0
_POLL_S = 1.0


@dataclass
class OffsetRange(InputPartition):
    """What one task reads. :param until: exclusive."""

    topic: str
    partition: int
    start: int
    until: int


class TopicSource(DataSource):
    """The data source; its options are those of Spark's Kafka source: assign, startingOffsets, endingOffsets, minPartitions,
    kafka.*
    """

    @classmethod
    def name(cls) -> str:
        """The name under which it is registered."""
        return NAME

    def schema(self) -> str:
        """The columns."""
        return _SCHEMA

    def reader(self, schema: StructType) -> "TopicReader":
        """The reader of a frame."""
        return TopicReader(dict(self.options))


class TopicReader(DataSourceReader):
    """Reads the ranges that the options name."""

    def __init__(self, options: Mapping[str, str]) -> None:
        named = {key.lower(): value for key, value in options.items()}  # Spark does not keep the case of option names
        starting, ending = json.loads(named["startingoffsets"]), json.loads(named["endingoffsets"])
        self._ranges = [
            OffsetRange(topic, int(number), start, ending[topic][number])
            for topic, partitions in starting.items()
            for number, start in partitions.items()
        ]
        self._least = int(named.get("minpartitions", "0"))
        self._settings = {key.removeprefix("kafka."): value for key, value in named.items() if key.startswith("kafka.")}

    def partitions(self) -> list[OffsetRange]:
        """The ranges, cut into at least `minPartitions` tasks if there are that many offsets."""
        total = sum(part.until - part.start for part in self._ranges)
        tasks = []
        for part in self._ranges:
            size = part.until - part.start
            count = max(1, min(size, -(-size * self._least // max(1, total))))
            edges = [part.start + size * number // count for number in range(count + 1)]
            tasks += [OffsetRange(part.topic, part.partition, start, until) for start, until in pairwise(edges)]
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The committed records of an `OffsetRange`. Raises RuntimeError if some of it cannot be read."""
        from confluent_kafka import Consumer, TopicPartition

        assert isinstance(partition, OffsetRange)

        settings = {
            **self._settings,
            "group.id": "odradek-load",  # librdkafka requires one; no group is joined, and nothing is committed
            "enable.auto.commit": "false",
            "enable.partition.eof": "true",
            "auto.offset.reset": "error",
        }
        consumer = Consumer(settings)
        try:
            place = TopicPartition(partition.topic, partition.partition, partition.start)
            low, _ = consumer.get_watermark_offsets(place, timeout=_SILENCE_S)
            if low > partition.start:
                gone = f"offsets {partition.start} to {low - 1} were deleted during the load"
                raise RuntimeError(f"{partition.topic}-{partition.partition}: {gone}")
            consumer.assign([place])
            yield from _batches(consumer, partition)
        finally:
            consumer.close()


def _batches(consumer: "Consumer", wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    from confluent_kafka import KafkaError

    deadline = time.monotonic() + _SILENCE_S
    while True:
        messages = consumer.consume(_BATCH, _POLL_S)
        if messages:
            deadline = time.monotonic() + _SILENCE_S
        elif time.monotonic() > deadline:
            raise RuntimeError(f"{wanted.topic}-{wanted.partition}: no broker sent a record within {_SILENCE_S:.0f} s")
        records: list[Message] = []
        ended = False
        for message in messages:
            error = message.error()
            offset = message.offset()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise RuntimeError(f"{wanted.topic}-{wanted.partition}: {error.str()}")
            if offset is not None and offset >= wanted.until:
                ended = True
                break
            if error is None:
                records.append(message)
                ended = offset == wanted.until - 1
        if records:
            yield _batch(records)
        if ended:
            return


def _batch(messages: "list[Message]") -> pa.RecordBatch:
    times: list[tuple[int, int]] = [message.timestamp() for message in messages]
    columns: list[list[Any]] = [
        [message.key() for message in messages],
        [message.value() for message in messages],
        [message.topic() for message in messages],
        [message.partition() for message in messages],
        [message.offset() for message in messages],
        [max(-_LAST_MS, min(_LAST_MS, at_ms)) * 1000 for _, at_ms in times],
        [_TYPES[kind] for kind, _ in times],
        [_headers(message) for message in messages],
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def _headers(message: Any) -> list[dict[str, Any]] | None:
    try:
        headers: list[tuple[str, bytes | None]] | None = message.headers()
    except (SystemError, UnicodeDecodeError):
        raise RuntimeError(
            f"{message.topic()}-{message.partition()}: the name of a header of the record at offset {message.offset()} is not"
            " UTF-8, which confluent-kafka cannot read: use --reader kafka"
        ) from None
    return [{"key": key, "value": value} for key, value in headers] if headers else None
