"""Offset syncs of a flow: which source offset is which target offset. Collects them from the lanes, and says what to write.

`OffsetSyncs` is an observer of lanes: their threads call `moved` and `progress`; the thread of the flow (`bookkeeping`) calls
the rest. A lock protects all of it and is held for microseconds. Memory: at most `translation.MOST_RUNS` * 32 bytes a
partition, and a pair of numbers for each group that has an offset in it.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from odradek.mirror.records import OffsetSync
from odradek.mirror.routes import Moved, Route
from odradek.mirror.translation import Run, Translation
from odradek.topic_partition import TopicPartition

MOST_AT_ONCE = 2
"""Runs of one partition whose starts are written at a time."""


class PendingSyncs(NamedTuple):
    """What is to be written. :param records: in the order of offsets. :param up_to: the newest source offset by partition."""

    records: list[OffsetSync]
    up_to: dict[TopicPartition, int]


class _Partition:
    """:ivar written: the newest source offset in the topic; -1: none. :ivar loaded: whether the topic's syncs were read.

    :ivar reported: the newest translation of each group: (source offset, target offset).
    :ivar log_end: the high watermark of the source that was seen last; None: none yet.
    """

    def __init__(self, route: Route) -> None:
        self.route = route
        self.translation = Translation()
        self.written = -1
        self.loaded = False
        self.reported: dict[str, tuple[int, int]] = {}
        self.log_end: int | None = None

    @property
    def end(self) -> int:
        """The end of the source's log; until it was seen, the end of what was moved."""
        return self.translation.end if self.log_end is None else self.log_end

    def add(self, run: Run) -> None:
        """Add what was moved last."""
        if self.translation.add(run):
            self.written = -1
            self.reported.clear()


class OffsetSyncs:
    """The known offsets of the partitions that this worker moves; see the module."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._changed: set[TopicPartition] = set()

    # -- called by lanes --------------------------------------------------------------------------------------------

    def moved(self, batch: Moved) -> None:
        """See `routes.Observer`."""
        route, place = batch.route, batch.route.source
        with self._lock:
            partition = self._partitions.get(place)
            if partition is None or partition.route is not route:
                partition = self._of(route)
            run = batch.source_offset, batch.target_offset, batch.next_source_offset, batch.records
            if not partition.translation.extend(*run):
                partition.add(Run(*run))
            self._changed.add(place)

    def progress(self, route: Route, position: int, high_watermark: int, log_start: int) -> None:
        """See `routes.Observer`."""
        partition = self._partitions.get(route.source)
        if partition is None:
            with self._lock:
                partition = self._of(route)
        partition.log_end = high_watermark

    def stopped(self, route: Route, reason: str) -> None:
        """See `routes.Observer`; has no effect."""

    def resumed(self, route: Route) -> None:
        """See `routes.Observer`; has no effect."""

    def failed(self, lane: int, reason: str, retry_s: float) -> None:
        """See `routes.Observer`; has no effect."""

    # -- called by the worker ---------------------------------------------------------------------------------------

    def assign(self, routes: Collection[Route]) -> None:
        """Keep only the partitions that this worker moves from now on. Call it when its lanes change."""
        wanted = {route.source: route for route in routes}
        with self._lock:
            for place in [place for place in self._partitions if place not in wanted]:
                del self._partitions[place]
                self._changed.discard(place)
            for route in wanted.values():
                self._of(route)

    # -- called by the thread of the flow ---------------------------------------------------------------------------

    def unloaded(self) -> set[TopicPartition]:
        """Partitions whose former syncs have not been read from the topic."""
        with self._lock:
            return {place for place, partition in self._partitions.items() if not partition.loaded}

    def load(self, places: Collection[TopicPartition], syncs: Iterable[OffsetSync]) -> None:
        """Take over former syncs, in the order of the topic. :param places: those that the topic was read for."""
        earlier = {place: Translation() for place in places}
        for sync in syncs:
            if sync.source in earlier:
                earlier[sync.source].add(Run(sync.upstream, sync.downstream, sync.upstream + 1, 1))
        with self._lock:
            for place, translation in earlier.items():
                partition = self._partitions.get(place)
                if partition is None:
                    continue
                if partition.translation.prepend(translation) and len(translation):
                    partition.written = translation.run(-1).upstream
                partition.loaded = True

    def pending(self) -> PendingSyncs:
        """What to append to the topic now; call `written` after it was acknowledged. Omits partitions that are not loaded."""
        with self._lock:
            pending = PendingSyncs([], {})
            for place in sorted(self._changed):
                partition = self._partitions[place]
                if not partition.loaded:
                    continue
                runs = partition.translation.since(partition.written + 1)
                syncs = _chosen(place, runs, partition.written)
                if syncs:
                    pending.records.extend(syncs)
                    pending.up_to[place] = syncs[-1].upstream
            return pending

    def written(self, up_to: Mapping[TopicPartition, int]) -> None:
        """The pending syncs up to these source offsets are in the topic."""
        with self._lock:
            for place, upstream in up_to.items():
                partition = self._partitions.get(place)
                if partition is None or not partition.translation.since(upstream):
                    continue  # what was known was forgotten meanwhile
                partition.written = upstream
                newest = partition.translation.since(upstream + 1)
                if not _chosen(place, newest, upstream):
                    self._changed.discard(place)

    def translate(self, place: TopicPartition, group_id: str, offset: int) -> tuple[TopicPartition, int] | None:
        """The target's partition and offset for a group at `offset` of a source partition; None if it is unknown.

        Never skips a record. Does not go back for a group that does not go back, even if what is known becomes coarser.
        An offset behind the end of the source's log is unknown: if the log was truncated, the group read other records up to
        it, and has not read those that were moved since.
        """
        with self._lock:
            partition = self._partitions.get(place)
            if partition is None or offset > partition.end:
                return None
            translated = partition.translation.translate(offset)
            before, best = partition.reported.get(group_id, (0, -1))
            if offset >= before and best >= 0:
                translated = max(best, -1 if translated is None else translated)
            if translated is None:
                return None
            partition.reported[group_id] = (offset, translated)
            return partition.route.target, translated

    def _of(self, route: Route) -> _Partition:
        partition = self._partitions.get(route.source)
        if partition is None or partition.route.target != route.target or _recreated(partition.route, route):
            partition = self._partitions[route.source] = _Partition(route)
        partition.route = route
        return partition


def _recreated(before: Route, now: Route) -> bool:
    ids = {before.source_topic_id, now.source_topic_id} - {bytes(16)}
    return len(ids) > 1


def _chosen(place: TopicPartition, runs: list[Run], written: int) -> list[OffsetSync]:
    """Syncs for runs: the first records of some of them, evenly chosen, and the last record of the newest one.

    With the last record, a group that has read everything is translated to the end of what was moved.
    """
    if not runs:
        return []
    step = max(1, -(-len(runs) // MOST_AT_ONCE))
    starts = [*reversed(runs[::-1][::step])]
    syncs = [OffsetSync(place, run.upstream, run.downstream) for run in starts if run.upstream > written]
    last = runs[-1]
    if last.dense and last.end - 1 > max(written, last.upstream):
        syncs.append(OffsetSync(place, last.end - 1, last.downstream + last.records - 1))
    return syncs
