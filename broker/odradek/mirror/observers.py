"""Passes what a lane reports on to several observers, and writes it to the log. Called in the threads of lanes."""

import logging
from collections.abc import Sequence

from odradek.mirror.routes import Moved, Observer, Route
from odradek.topic_partition import TopicPartition

log = logging.getLogger("odradek.mirror")


class Observers:
    """An `Observer` that calls others in order."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)

    def moved(self, batch: Moved) -> None:
        """See `Observer`."""
        for observer in self._observers:
            observer.moved(batch)

    def progress(self, route: Route, position: int, high_watermark: int, log_start: int) -> None:
        """See `Observer`."""
        for observer in self._observers:
            observer.progress(route, position, high_watermark, log_start)

    def stopped(self, route: Route, reason: str) -> None:
        """See `Observer`."""
        for observer in self._observers:
            observer.stopped(route, reason)

    def resumed(self, route: Route) -> None:
        """See `Observer`."""
        for observer in self._observers:
            observer.resumed(route)

    def failed(self, lane: int, reason: str, retry_s: float) -> None:
        """See `Observer`."""
        for observer in self._observers:
            observer.failed(lane, reason, retry_s)


class LogObserver:
    """Logs failures and stopped partitions of one flow. :param flow: its name.

    A stopped partition that is tried again and stops for the same reason is not logged again.
    """

    def __init__(self, flow: str) -> None:
        self._flow = flow
        self._stopped: dict[TopicPartition, str] = {}  # the reasons; of each partition used by one thread

    def moved(self, batch: Moved) -> None:
        """Batches are counted, not logged."""

    def progress(self, route: Route, position: int, high_watermark: int, log_start: int) -> None:
        """Positions are counted, not logged."""

    def stopped(self, route: Route, reason: str) -> None:
        """Somebody must act: the partition is not mirrored."""
        if self._stopped.get(route.target) == reason:
            return
        self._stopped[route.target] = reason
        log.error(
            "%s: partition %s-%d of the source is not mirrored to %s-%d any more: %s",
            self._flow, *route.source, *route.target, reason,
        )  # fmt: skip

    def resumed(self, route: Route) -> None:
        """Nobody needs to act any more."""
        self._stopped.pop(route.target, None)
        log.info(
            "%s: partition %s-%d of the source is mirrored to %s-%d again", self._flow, *route.source, *route.target
        )

    def failed(self, lane: int, reason: str, retry_s: float) -> None:
        """The lane continues by itself."""
        if not retry_s:
            log.warning("%s: lane %d: %s", self._flow, lane, reason)
            return
        log.warning(
            "%s: lane %d failed: %s; continuing at the committed positions in %.1f s", self._flow, lane, reason, retry_s
        )
