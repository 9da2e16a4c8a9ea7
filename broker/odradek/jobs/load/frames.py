"""What Spark reads and writes for a load: records of ranges of offsets as a frame, and a frame as files in staging.

Runs in the driver. Each task reads a part of one partition, with one client; the ranges are fixed before it starts, so that an
attempt that is repeated reads the same.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.jobs.load.decoding import Decoding
from odradek.jobs.load.errors import LoadError
from odradek.jobs.load.offsets import Range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

KAFKA, PYTHON = "kafka", "python"
#: The hash of a record; the checksum of records is the sum of their hashes modulo 2 to the power of 64, in any order.
CHECKSUM = "xxhash64(offset, timestamp, timestamp_type, key is null, key, value is null, value, headers)"
_TIMESTAMP_TYPE = "case timestampType when 0 then 'CreateTime' when 1 then 'LogAppendTime' else 'NoTimestampType' end"
COLUMNS = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")
#: The columns of the files; directories have the topic.
RECORDS = (
    "partition int, offset bigint, timestamp timestamp, timestamp_type string, key binary, value binary,"
    " headers array<struct<key: string, value: binary>>"
)
#: Settings of clients that Spark's source sets itself, or refuses.
_NOT_OF_SPARK = frozenset(
    (
        "auto.offset.reset", "bootstrap.servers", "enable.auto.commit", "group.id", "interceptor.classes", "isolation.level",
        "key.deserializer", "key.serializer", "value.deserializer", "value.serializer",
    )
)  # fmt: skip


@dataclass(frozen=True)
class Reader:
    """How Spark reads the records. :param kind: KAFKA or PYTHON. :param settings: Kafka's client keys: TLS, logins.

    :param min_partitions: the least number of tasks; 0: one for each partition
    """

    servers: str
    kind: str = KAFKA
    settings: Mapping[str, str] | None = None
    min_partitions: int = 0


def read(spark: "SparkSession", reader: Reader, ranges: Sequence[Range]) -> "DataFrame":
    """The committed records of these offsets, with the columns of `COLUMNS`. Spark reads when the frame is used."""
    options = _options(reader, ranges)
    if reader.kind == PYTHON:
        from odradek.jobs.load.python_source import NAME, TopicSource

        spark.dataSource.register(TopicSource)
        records = spark.read.format(NAME).options(**options).load()
    else:
        records = spark.read.format("kafka").options(**options).load()
    return records.selectExpr(
        "topic", "partition", "offset", "timestamp", f"{_TIMESTAMP_TYPE} as timestamp_type", "key", "value", "headers"
    )


def _options(reader: Reader, ranges: Sequence[Range]) -> dict[str, str]:
    assigned: dict[str, list[int]] = {}
    starting: dict[str, dict[str, int]] = {}
    ending: dict[str, dict[str, int]] = {}
    for part in ranges:
        assigned.setdefault(part.topic, []).append(part.partition)
        starting.setdefault(part.topic, {})[str(part.partition)] = part.start
        ending.setdefault(part.topic, {})[str(part.partition)] = part.until
    options = {
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(starting),
        "endingOffsets": json.dumps(ending),
        "includeHeaders": "true",
        "failOnDataLoss": "true",
    }
    if reader.min_partitions:
        options["minPartitions"] = str(reader.min_partitions)
    settings = {key: value for key, value in (reader.settings or {}).items() if key not in _NOT_OF_SPARK}
    settings |= {"bootstrap.servers": reader.servers, "isolation.level": "read_committed"}
    return options | {f"kafka.{key}": value for key, value in settings.items()}


def with_hash(frame: "DataFrame") -> "DataFrame":
    """The frame with the hash of each record."""
    from odradek.jobs.load.files import HASH

    return frame.selectExpr("*", f"{CHECKSUM} as {HASH}")


def write(frame: "DataFrame", staging: Path, decoding: Decoding) -> "list[Row]":
    """Write the frame's records to files in `staging`. Returns a row of `files.WRITTEN` for each file. Raises LoadError."""
    from odradek.jobs.load.files import WRITTEN, write_batches

    decoded = decoding.applied(with_hash(frame))
    rows = decoded.mapInArrow(partial(write_batches, str(staging), decoder=decoding.in_tasks()), WRITTEN).collect()
    failed = next((row.error for row in rows if row.error is not None), None)
    if failed is not None:
        raise LoadError(f"a task cannot write its files: {failed}")
    return rows
