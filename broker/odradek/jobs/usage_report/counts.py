"""The table of the counted columns of `traffic_hourly`: the only place that lists them.

The reader of the spool, the metrics of Prometheus, the schemas of the tables, the sums and the summary derive from `TABLE`. A
new column is a row here, after the broker writes its field into the spool (`metrics/spool_rows.py`) and has its metric
(`metrics/names/`). The report imports nothing of the broker; a test compares the rows with both.
"""

from enum import Enum
from typing import NamedTuple


class Topics(Enum):
    """How a count relates to topics (docs/decisions/0016-metering.md)."""

    EACH = "counted with the topic"
    TWICE = "counted without a topic and, once more, with each topic"
    NONE = "counted without a topic only"


class Count(NamedTuple):
    """A counted column.

    :ivar column: its name in the tables, a 64-bit integer
    :ivar spool: its field in the usage rows of the spool
    :ivar metric: its counter in Prometheus: ``odradek_usage_{metric}_total``
    :ivar topics: how it relates to topics
    :ivar scale: factor from the unit of the metric to that of the column
    :ivar shard: the label by which queries of the metric are divided if their answer is too large
    :ivar in_summary: whether the JSON summary contains its sum, under its name
    """

    column: str
    spool: str
    metric: str
    topics: Topics
    scale: int = 1
    shard: str = "topic"
    in_summary: bool = True


TABLE = (
    Count("bytes_in", "in", "bytes_in", Topics.EACH),
    Count("bytes_out", "out", "bytes_out", Topics.EACH),
    Count("records_in", "rin", "records_in", Topics.EACH),
    Count("records_out", "rout", "records_out", Topics.EACH),
    Count("requests", "req", "requests", Topics.TWICE),
    Count("errors", "err", "errors", Topics.TWICE),
    Count("throttle_ms", "thr", "throttle_seconds", Topics.NONE, scale=1000),
    Count("connection_ms", "conn", "connection_seconds", Topics.NONE, scale=1000, shard="client_id", in_summary=False),
)
#: The names of the columns, in the order of the tables.
COUNTS = tuple(count.column for count in TABLE)
