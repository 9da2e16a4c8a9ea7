"""The document of /usage and the intervals of the usage spool, from the shared memory and the groups.

One per reporter; called in the reporter's threads. It holds the collector's lock while it reads the shared memory.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import odradek._ext.shm.brokers as brokers
from odradek import __version__
from odradek._ext.shm.layout import ProcessKind
from odradek._ext.shm.shared_memory import SharedMemory
from odradek.clock import now_ms
from odradek.metrics import pages, processes, spool_rows
from odradek.metrics.collector import SIZES_AT_ONCE, Collector, Groups
from odradek.metrics.groups import Lag, Reader, size_of
from odradek.metrics.partitions import serves
from odradek.metrics.spool import Spool, steady_ms
from odradek.metrics.spool_rows import Row
from odradek.metrics.usage import document

Query = Mapping[str, Sequence[str]]

DAY_MS = 86_400_000
LEAST_GROUP_BYTES = 20_000  # of the rows of groups in an interval, however small the spool is


class UsageReports:
    """Makes the documents and writes the intervals.

    :param names: {API key: name}. :param spool_dir: directory of the spool; None (or `max_bytes` 0): there is no spool.
    :param max_bytes: maximum size of all files of the spool together. :param interval_ms: `usage.spool.interval.ms`.
    """

    def __init__(
        self,
        shm: SharedMemory,
        collector: Collector,
        log_dirs: Sequence[Path],
        names: Mapping[int, str],
        broker_id: int,
        spool_dir: Path | None,
        max_bytes: int,
        interval_ms: int = 60_000,
    ) -> None:
        self._most_group_bytes = max(LEAST_GROUP_BYTES, max_bytes * interval_ms // DAY_MS)
        self._shm = shm
        self._collector = collector
        self._log_dirs = log_dirs
        self._names = names
        self._broker_id = broker_id
        self._boot = f"{shm.boot_id:016x}"
        self._began_ms = min(
            (process.started_ms for process in shm.processes() if process.incarnation), default=now_ms()
        )
        self._writing = threading.Lock()
        self._spool: Spool | None = None
        if spool_dir is not None and max_bytes > 0:
            self._spool = collector.spool = Spool(
                spool_dir, self._boot, broker_id, began_ms=self._began_ms, max_bytes=max_bytes
            )

    @property
    def spool(self) -> Spool | None:
        """The spool; None if there is none."""
        return self._spool

    @property
    def keeps_history(self) -> bool:
        """Whether there is a spool."""
        return self._spool is not None

    def document(
        self, query: Query, groups: Groups, look_for_client: Callable[[], None] = lambda: None
    ) -> dict[str, Any]:
        """Return the document for a query of /usage. Raises BadQuery, and what `look_for_client` raises.

        :param groups: needed for a query with `name`, else None. :param look_for_client: see `usage.document`.
        """
        spool = self._spool
        about = {
            "odradek": __version__,
            "broker": self._broker_id,
            "boot": self._boot,
            "began": self._began_ms,
            "at": now_ms(),
            "clock": steady_ms(),
            "spool": None
            if spool is None
            else {
                "directory": str(spool.directory.absolute()),
                "intervals": spool.intervals,
                "failures": spool.failures,
            },
        }
        with self._collector.lock:
            usage = [row for place in processes.places(self._shm) for row in pages.usage_rows(self._shm, place.page)]
            state: list[Row] = []
            if query.get("name"):
                state = [*self._topics(), *self._groups(groups or ()), *self._readers()]
        return document(query, usage, self._names, state, about, look_for_client)

    def write_interval(self, groups: Groups) -> bool:
        """Write an interval of the spool; return whether it is on disk. A failure is logged; the next interval contains its
        counts."""
        assert self._spool is not None
        with self._writing:
            with self._collector.lock:
                rows = list(self._all_rows(groups))
            return self._spool.write(rows)

    def _all_rows(self, groups: Groups) -> Iterator[Row]:
        places = processes.places(self._shm)
        for place in places:
            for used in pages.usage_rows(self._shm, place.page):
                yield spool_rows.usage(used, self._names)
        if brokers.clustered():
            yield spool_rows.cluster(broker.id for broker in brokers.brokers())
        yield from self._topics()
        yield from self._disks()
        yield from self._bounded(self._groups(groups or ()))
        yield from self._readers()
        for place in places:
            if place.kind == ProcessKind.WORKER:
                words = pages.counters(self._shm, place.page)
                yield spool_rows.worker(
                    place.ordinal,
                    connections=place.connections,
                    busy_us=words["busy_us"],
                    bytes_in=words["socket_bytes_in"],
                    bytes_out=words["socket_bytes_out"],
                )

    def _topics(self) -> Iterator[Row]:
        """Yield the rows of topics whose logs are all measured; measuring takes some seconds after a start."""
        self._collector.sizes.refresh(self._collector.each_topic(), SIZES_AT_ONCE)
        for name, partitions in self._collector.each_topic():
            retention, topic_id = self._collector.settings_of(name), self._collector.topic_id(name)
            if retention is None or topic_id is None:
                continue  # deleted just now, or without a log here: the brokers with its replicas write its row
            served = [row for row in partitions if serves(row)]
            led = [row for row in served if row.leads]
            log_sizes = [self._collector.sizes.of(row) for row in served]
            sizes = [size.size_bytes for size in log_sizes if size is not None]
            if len(sizes) < len(log_sizes):
                continue
            yield spool_rows.topic(
                name,
                topic_id.hex(),
                partitions=len(partitions),
                replicas=len(served),
                stored_bytes=sum(sizes),
                largest_bytes=max(sizes, default=0),
                end_offsets=sum(row.log_end_offset for row in served),
                start_offsets=sum(row.log_start_offset for row in served),
                led=len(led),
                led_end_offsets=sum(row.log_end_offset for row in led),
                led_start_offsets=sum(row.log_start_offset for row in led),
                retention_ms=retention[0],
                retention_bytes=retention[1],
            )
            if len(self._log_dirs) > 1:
                by_dir: dict[int, int] = {}
                for row, size in zip(served, sizes, strict=True):
                    by_dir[row.log_dir] = by_dir.get(row.log_dir, 0) + size
                for number, size in sorted(by_dir.items()):
                    yield spool_rows.stored(name, str(self._log_dirs[number]), stored_bytes=size)

    def _disks(self) -> Iterator[Row]:
        """Yield the rows of the log directories whose disks the cleaner has measured."""
        for number, path in enumerate(self._log_dirs):
            _, free, total, _ = self._shm.disk(number)
            if total >= 0:
                online = not self._shm.log_dir_offline(number)
                yield spool_rows.log_dir(str(path), free_bytes=free, total_bytes=total, online=online)

    def _bounded(self, rows: Iterator[Row]) -> Iterator[Row]:
        """Yield the first rows, as many as a spool has room for that keeps them for a day: clients choose how many groups there
        are, and must not push the usage of months out of it."""
        left = self._most_group_bytes
        for row in rows:
            left -= len(json.dumps(row)) + 1
            if left < 0:
                return
            yield row

    def _groups(self, groups: Sequence[Any]) -> Iterator[Row]:
        """Yield the rows of groups, those with series first, so that it is always the same ones that do not fit."""
        named = self._collector.named_groups
        rows = self._collector.partitions_of({topic for group in groups for topic in group.offsets})
        for group in sorted(groups, key=lambda group: (group.group_id not in named, size_of(group), group.group_id)):
            for topic, lags in _by_topic(self._collector.group_lags(group, rows)).items():
                lag, seconds = _sum(lags)
                yield spool_rows.group(group.group_id, topic, lag=lag, lag_seconds=seconds, members=group.members)

    def _readers(self) -> Iterator[Row]:
        by_topic: dict[tuple[str, str, str], list[Reader]] = {}
        for reader in self._collector.readers(self._collector.each_topic()):
            by_topic.setdefault((reader.principal, reader.client_id, reader.lag.topic), []).append(reader)
        for (principal, client_id, topic), partitions in by_topic.items():
            lag, seconds = _sum([reader.lag for reader in partitions])
            back_ms = max(reader.back_ms for reader in partitions) or None
            yield spool_rows.reader(principal, client_id, topic, lag=lag, lag_seconds=seconds, back_ms=back_ms)


def _by_topic(lags: Sequence[Lag]) -> dict[str, list[Lag]]:
    by_topic: dict[str, list[Lag]] = {}
    for lag in lags:
        by_topic.setdefault(lag.topic, []).append(lag)
    return by_topic


def _sum(lags: Sequence[Lag]) -> tuple[int, float]:
    """Return the lag in records summed over partitions, and the largest lag in seconds."""
    return sum(lag.lag for lag in lags), max(lag.seconds for lag in lags)
