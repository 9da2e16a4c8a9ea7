"""Which brokers lead the partitions that a client fetches, and when to look them up again.

Shared by the readers of partitions: `odradek.clients.fetching` and the lanes of the mirror. Each object is used in one thread.
"""

import time
from collections.abc import Callable

from odradek.clients.cluster import Cluster
from odradek.clients.errors import UnreachableError
from odradek.protocol.errors import ErrorCode
from odradek.topic_partition import TopicPartition

PAUSE_S = 0.1
MISSING_S = 5.0
"""A topic that is missing from Metadata for this long counts as deleted; a broker that is starting may not know it yet."""
STALE_LEADER = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""Errors after which a reader looks up the partition's leader and retries."""


class PartitionLeaders:
    """The partitions by their leaders.

    :param warn: receives a sentence when a broker becomes unreachable, once until one answers.
    :ivar led: the partitions by the id of their leader; a request has them in this order.
    :ivar look_at: monotonic time of the next look-up; None: none is due.
    """

    def __init__(self, cluster: Cluster, warn: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._warn = warn
        self._warned = False
        self.led: dict[int, list[TopicPartition]] = {}
        self.look_at: float | None = None

    @property
    def due(self) -> bool:
        """Whether the leaders must be looked up now."""
        return self.look_at is not None and time.monotonic() >= self.look_at

    def schedule(self) -> None:
        """Look up the leaders after a pause."""
        if self.look_at is None:
            self.look_at = time.monotonic() + PAUSE_S

    def unreachable(self, error: UnreachableError) -> None:
        """Note that a broker cannot be reached; look up the leaders after a pause."""
        self.look_at = time.monotonic() + PAUSE_S
        if not self._warned:
            self._warn(f"{error}; retrying")
        self._warned = True

    def answered(self) -> None:
        """A broker has answered: the next one that becomes unreachable is worth a warning."""
        self._warned = False

    def lose(self, node_id: int, error: UnreachableError) -> list[TopicPartition]:
        """Close the connection to a leader, and look up the leaders of its partitions, which are returned, after a pause."""
        self._cluster.forget(node_id)
        self.unreachable(error)
        return self.led.pop(node_id, [])

    def pause(self, node_id: int, place: TopicPartition) -> None:
        """Do not ask this leader for a partition until the leaders were looked up."""
        if place in self.led.get(node_id, ()):
            self.led[node_id].remove(place)
        self.schedule()

    def drop(self, place: TopicPartition) -> None:
        """Stop reading a partition."""
        for places in self.led.values():
            if place in places:
                places.remove(place)

    def move_to_end(self, node_id: int, place: TopicPartition) -> None:
        """Request a partition last from now on: brokers fill a response in the order of the request.

        Partitions that returned no whole batch thus come first in the next request. A broker returns a batch that is larger
        than the request allows only for the first partition.
        """
        places = self.led.get(node_id, [])
        if place in places:
            places.remove(place)
            places.append(place)


class MissingTopic:
    """How long a topic has been missing from Metadata."""

    def __init__(self) -> None:
        self._since: float | None = None

    def deleted(self, missing: bool) -> bool:
        """Note whether the topic is missing now; return whether it has been for MISSING_S."""
        if not missing:
            self._since = None
            return False
        now = time.monotonic()
        if self._since is None:
            self._since = now
        return now - self._since >= MISSING_S
