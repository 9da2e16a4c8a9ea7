"""Writes the end markers of transactions to the partitions that this broker leads, except those of `__consumer_offsets`.

The markers of one turn of the loop for one partition are written together, and are acknowledged like records with acks=all.
Used only in the coordinator's event loop: for the transactions of this broker's coordinator, and for the markers that other
brokers send (WriteTxnMarkers).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import odradek._ext.partition.slots as slots
from odradek._ext.shm.topics import TopicDirectory
from odradek.coordination.environment import EndMarker
from odradek.processes.coordinator_log import CoordinatorLog
from odradek.protocol.errors import ErrorCode

ERROR_OF_APPEND = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
"""The error of a marker, by the error of the append. After each of these errors, the coordinator sends the marker again."""

Then = Callable[[ErrorCode], None]
MakeLog = Callable[[tuple[int, int, int]], CoordinatorLog]


class MarkerLogs:
    """See the module.

    :param make_log: makes the log of a partition, given its slot, incarnation and leader epoch.
    """

    def __init__(self, topics: TopicDirectory, make_log: MakeLog) -> None:
        self._topics = topics
        self._make_log = make_log
        self._logs: dict[int, CoordinatorLog] = {}
        self._waiting: dict[int, int] = {}  # by slot: the number of markers that are not acknowledged

    def slot_of(self, topic: str, partition: int) -> int:
        """The slot of a partition; -1 if it does not exist."""
        known = self._topics.get(topic)
        return -1 if known is None or not 0 <= partition < known.count else int(known.slot(partition))

    def put(self, topic: str, partition: int, marker: EndMarker, then: Then) -> None:
        """Write a marker in this turn. `then` is called once, possibly within this turn, with NONE or the error."""
        slot = self.slot_of(topic, partition)
        if slot < 0:
            then(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        leadership = slots.leadership(slot)
        if leadership is None:
            then(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        place = (slot, *leadership)
        partition_log = self._logs.get(slot)
        if partition_log is None or partition_log.place != place or partition_log.closed:
            if partition_log is not None:
                partition_log.close()
            partition_log = self._logs[slot] = self._make_log(place)
        self._waiting[slot] = self._waiting.get(slot, 0) + 1

        def appended(error: ErrorCode, offset: int) -> None:
            self._answered(slot)
            then(ERROR_OF_APPEND.get(error, error))

        partition_log.append_marker(marker, appended)

    def _answered(self, slot: int) -> None:
        self._waiting[slot] -= 1
        if not self._waiting[slot]:
            del self._waiting[slot]

    def look(self, moved: Collection[int]) -> None:
        """Acknowledge the markers in those slots of `moved` whose high watermark has passed them."""
        for slot in [slot for slot in self._waiting if slot in moved]:
            self._logs[slot].look()

    def look_at_all(self) -> None:
        """Acknowledge all markers that can be acknowledged, and forget the logs of partitions without markers under way."""
        for slot in list(self._waiting):
            self._logs[slot].look()
        for slot in [slot for slot in self._logs if slot not in self._waiting]:
            del self._logs[slot]

    def close(self) -> None:
        """Fail the markers that are not acknowledged."""
        for partition_log in list(self._logs.values()):
            partition_log.look()
            partition_log.close()
