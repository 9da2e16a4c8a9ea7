"""The settings of a topic as its slots contain them.

A value that any process may create; the coordinator and the loaders pass it to the partition table.
"""

from collections.abc import Mapping

from odradek._ext.shm.slot import ThrottledSide

ALL_REPLICAS = "*"


class SlotSettings(dict[str, int]):
    """The fields of a slot's TopicSettings that all partitions of a topic share, and which of its partitions are throttled.

    :param throttled: by side, the partitions whose replication this broker throttles in that role; None: all.
    """

    def __init__(self, settings: Mapping[str, int], throttled: Mapping[ThrottledSide, frozenset[int] | None]) -> None:
        super().__init__(settings)
        self._throttled = throttled

    def of_partition(self, partition: int) -> dict[str, int]:
        """All fields of a partition's TopicSettings."""
        sides = (side for side, partitions in self._throttled.items() if partitions is None or partition in partitions)
        return {**self, "throttled": sum(sides)}


def of_partition(settings: Mapping[str, int], partition: int) -> Mapping[str, int]:
    """The fields of a partition's TopicSettings; fields that are not in `settings` keep their values."""
    return settings.of_partition(partition) if isinstance(settings, SlotSettings) else settings


def throttled_partitions(replicas: tuple[str, ...], broker_id: int) -> frozenset[int] | None:
    """The partitions that a broker throttles; None: all.

    :param replicas: the value of `leader.replication.throttled.replicas` or `follower.replication.throttled.replicas`.
    """
    if replicas == (ALL_REPLICAS,):
        return None
    pairs = (replica.split(":") for replica in replicas if replica)
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == broker_id)
