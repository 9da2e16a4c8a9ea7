"""The types that the parts of the mirror share: routes from a source partition to a target partition, options of a lane, and
the observer that a lane reports to.

Imported in all threads of `odradek mirror run`; all objects are immutable.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from odradek.topic_partition import TopicPartition

UNKNOWN_TOPIC_ID = bytes(16)
"""The id of a topic on brokers that report none (before Kafka 2.8)."""

EARLIEST, LATEST = "earliest", "latest"
"""Where the mirror begins to read a partition without a position."""


@dataclass(frozen=True)
class Route:
    """From one partition of the source to one of the target.

    :param source_topic_id: 16 bytes; zeros if the source reports none.
    :param convert_append_time: batches with LogAppendTime go into a topic with CreateTime: every record gets the batch's time.
    """

    source: TopicPartition
    target: TopicPartition
    source_topic_id: bytes = UNKNOWN_TOPIC_ID
    convert_append_time: bool = False


@dataclass(frozen=True)
class LaneOptions:
    """How a lane moves records.

    :param exactly_once: positions are committed in the transaction of the records; False: after the acknowledgements.
    :param commit_interval_ms: the longest time that a transaction stays open while more data waits.
    :param commit_bytes: a transaction is committed when it has this many bytes of batches.
    :param fetch_max_bytes: the most bytes that one Fetch response of a source broker should have.
    :param partition_fetch_bytes: the most bytes of one partition in it.
    :param fetch_memory_bytes: the most bytes of Fetch responses that the lane holds; a batch may have half of them.
    :param fetch_wait_ms: how long a source broker holds a Fetch that finds no data.
    :param transaction_timeout_ms: after this time the target aborts a transaction that the lane has not ended.
    :param request_timeout_s: how long a broker may take for a response.
    :param start: where the mirror begins to read a partition without a position: EARLIEST or LATEST.
    :param append: copies that have records but no position get all records of the source; False: they stop.
    :param continue_truncated: a partition whose source was truncated is copied on from the truncation; False: it stops.
    :param retry_stopped_s: after this time a stopped partition is tried again if the reason may have passed.
    """

    exactly_once: bool = True
    commit_interval_ms: int = 100
    commit_bytes: int = 16 << 20
    fetch_max_bytes: int = 4 << 20
    partition_fetch_bytes: int = 1 << 20
    fetch_memory_bytes: int = 256 << 20
    fetch_wait_ms: int = 500
    transaction_timeout_ms: int = 60_000
    request_timeout_s: float = 30.0
    start: str = EARLIEST
    append: bool = False
    continue_truncated: bool = False
    retry_stopped_s: float = 60.0


class Moved(NamedTuple):
    """A batch that the target acknowledged.

    :ivar source_offset: of the batch's first record that was moved. :ivar target_offset: of the same record.
    :ivar next_source_offset: the offset after the batch's last one. :ivar records: how many were moved.
    :ivar size_bytes: of the batch in the target. :ivar max_timestamp: the batch's largest timestamp, in ms.
    """

    route: Route
    source_offset: int
    target_offset: int
    next_source_offset: int
    records: int
    size_bytes: int
    max_timestamp: int


class Observer(Protocol):
    """What a lane reports. Called from the threads of the lanes; must be cheap and must not raise."""

    def moved(self, batch: Moved) -> None:
        """After the commit, once for each batch."""

    def progress(self, route: Route, position: int, high_watermark: int, log_start: int) -> None:
        """After each Fetch response. The lag in records is `high_watermark - position`."""

    def stopped(self, route: Route, reason: str) -> None:
        """A partition is not moved until the next start, or until it is tried again. :param reason: a sentence.

        Called after `moved` for all batches before the one at which it stopped.
        """

    def resumed(self, route: Route) -> None:
        """A partition that had stopped is moved again, or has nothing more to move."""

    def failed(self, lane: int, reason: str, retry_s: float) -> None:
        """A transaction was aborted; the lane continues at the committed positions after `retry_s` seconds.

        :param retry_s: 0: the lane does not wait: it cannot reach a broker of the source, or continues in another way.
        """
