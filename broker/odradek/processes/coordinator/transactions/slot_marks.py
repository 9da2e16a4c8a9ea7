"""Sets the marks of transactions in the slots of partitions that this broker leads; see `Marks`.

Used only in the coordinator's event loop.
"""

from __future__ import annotations

from collections.abc import Sequence

import odradek._ext.partition.slots as slots
from odradek.controller.topic_names import CONSUMER_OFFSETS
from odradek.processes.coordinator.transactions.marker_logs import MarkerLogs
from odradek.protocol.errors import ErrorCode
from odradek.topic_partition import TopicPartition
from odradek.transactions.environment import Mark

NONE = ErrorCode.NONE
ERROR_OF_MARK: dict[int | None, ErrorCode | None] = {
    None: None,
    int(NONE): NONE,
    int(ErrorCode.INVALID_PRODUCER_EPOCH): ErrorCode.INVALID_PRODUCER_EPOCH,
    int(ErrorCode.NOT_ENOUGH_REPLICAS): ErrorCode.NOT_ENOUGH_REPLICAS,
    int(ErrorCode.TRANSACTION_COORDINATOR_FENCED): ErrorCode.NOT_COORDINATOR,
}
"""The error of a mark, by the result of `slots.allow_transactions`; None: another process holds the lock of the slot."""


class SlotMarks:
    """Sets marks in the slots of partitions that this broker leads; see `Marks`. :param clustered: whether a coordinator may be
    deposed."""

    def __init__(self, logs: MarkerLogs, clustered: bool) -> None:
        self._logs = logs
        self._clustered = clustered

    def leadership(self, topic: str, partition: int) -> tuple[int, int] | None:
        """See `Marks`."""
        slot = self._logs.slot_of(topic, partition)
        return None if slot < 0 else slots.leadership(slot)

    def allow(self, places: Sequence[TopicPartition], mark: Mark) -> Sequence[ErrorCode | None]:
        """See `Marks`."""
        codes = slots.allow_transactions(
            [self._slot_of(*place) for place in places],
            mark.transactional_id,
            mark.producer_id,
            mark.epoch,
            mark.transaction_version,
            mark.owner,
            mark.coordinator_epoch,
        )
        return [ERROR_OF_MARK[code] for code in codes]

    def _slot_of(self, topic: str, partition: int) -> int:
        """The slot of a partition that needs a mark, or -1. On a single broker, `__consumer_offsets` needs none, because only
        this process appends to it. In a cluster it needs one, because the epochs are compared when a mark is set."""
        if topic == CONSUMER_OFFSETS and not self._clustered:
            return -1
        return self._logs.slot_of(topic, partition)
