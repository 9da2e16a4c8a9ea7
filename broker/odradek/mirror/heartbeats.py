"""The topic `heartbeats`: one record for each pair of clusters, renewed at an interval.

MirrorMaker 2's clients find out from it which clusters are upstream: they look for copies of the topic, such as `a.heartbeats`.
So a flow from a to b renews its record in b, and, as MirrorMaker 2 does by default, one for the pair (b, a) in a, which the
flow copies to b. Used in the thread of the flow.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.mirror.internal_topic import InternalTopic
from odradek.mirror.records import Heartbeat

TOPIC = "heartbeats"


class Heartbeats:
    """Writes the heartbeats of one pair of clusters into the second one.

    :param topic: in the cluster `target`. :param now_ms: returns the time in ms since 1970.
    """

    def __init__(self, topic: InternalTopic, source: str, target: str, now_ms: Callable[[], int]) -> None:
        self._topic = topic
        self._source = source
        self._target = target
        self._now_ms = now_ms

    def write(self) -> int:
        """Write a heartbeat; return the number of records, 1. Raises ClientError."""
        return self._topic.write([Heartbeat(self._source, self._target, self._now_ms()).encoded()])
