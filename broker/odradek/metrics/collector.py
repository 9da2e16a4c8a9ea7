"""The collector: all metric families of `/metrics`, from the shared memory, the meter pages and the coordinator's groups.

One per reporter. The reporter's threads call its methods, including the threads that serve HTTP; the caller holds `lock`.
Nothing here waits for another process: the caller passes the report of the coordinator, or None if there is none.
"""

import logging
import marshal
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from odradek import __version__
from odradek._ext.shm import overview
from odradek._ext.shm.layout import ProcessKind
from odradek._ext.shm.overview import Partition
from odradek._ext.shm.shared_memory import SharedMemory
from odradek._ext.shm.topics import TopicDirectory
from odradek.clock import now_ms
from odradek.metrics import access as of_access
from odradek.metrics import groups as of_groups
from odradek.metrics import membership as of_membership
from odradek.metrics import pages
from odradek.metrics import partitions as of_partitions
from odradek.metrics import processes as of_processes
from odradek.metrics import quotas as of_quotas
from odradek.metrics import security as of_security
from odradek.metrics import tasks as of_tasks
from odradek.metrics import traffic as of_traffic
from odradek.metrics import transactions as of_transactions
from odradek.metrics.exposition import LEFT_OUT, Family, Labels, TextLimit, left_out
from odradek.metrics.group_rows import GroupRow
from odradek.metrics.lag import EndHistory
from odradek.metrics.ledger import Client, Ledger
from odradek.metrics.log_sizes import LogSizes
from odradek.metrics.named_series import NamedSeries
from odradek.metrics.names import METRICS
from odradek.metrics.partitions import Address, PartitionLabels, Rows
from odradek.metrics.processes import ProcessPlace, single
from odradek.metrics.security import CertificateTimes, SecurityFaults
from odradek.metrics.spool import Spool
from odradek.metrics.transactions import OpenTransactions, TransactionReport
from odradek.shm.published_jwks import Provider
from odradek.shm.published_pages import PublishedPages
from odradek.shm.published_tasks import TaskState
from odradek.storage.stray_logs import StrayLog, stray_logs

log = logging.getLogger("odradek.reporter")

IDLE_WINDOW_MS = 60_000
IDLE_SAMPLE_MS = 5_000
SIZES_AT_ONCE = 200
LOOK_EVERY_MS = 10_000
STRAYS_EVERY_MS = 60_000

Groups = Sequence[GroupRow] | None
"""None while the coordinator does not run or still loads groups."""


class Settings(NamedTuple):
    """The configuration of a collector.

    :param max_topics: `metrics.max.topics`; `max_clients`: `metrics.max.clients`; `idle_ms`: `metrics.usage.idle.ms`.
    :param listeners: names of the listeners, by index. :param max_transaction_ms: `transaction.max.timeout.ms`.
    :param max_bytes: `metrics.max.bytes`.
    """

    max_topics: int
    max_clients: int
    idle_ms: int
    listeners: Sequence[str]
    broker: Address
    max_transaction_ms: int = 900_000
    max_bytes: int = 134_217_728


class Collector:
    """Collects the families, and keeps what they need between scrapes.

    :param memory: the state that the previous reporter process published for its successor, which is ignored if it belongs to
        another shared memory; None: no state is kept.
    :param clock: monotonic ms; `wall`: ms since 1970.
    """

    def __init__(
        self,
        shm: SharedMemory,
        log_dirs: Sequence[Path],
        settings: Settings,
        memory: PublishedPages | None,
        clock: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
        wall: Callable[[], int] = now_ms,
    ) -> None:
        self.lock = threading.Lock()
        self.certificates: Callable[[], Mapping[str, CertificateTimes]] = dict  # by listener; the reporter sets it
        self.faults: Callable[[], SecurityFaults] = SecurityFaults  # the reporter sets it
        self.tasks: Callable[[], Sequence[TaskState]] = tuple  # background tasks of all processes; the reporter sets it
        self.providers: Callable[[], Sequence[Provider]] = tuple  # identity providers; the reporter sets it
        self.spool: Spool | None = None
        self.history = EndHistory()
        self.open_transactions = OpenTransactions()
        self.sizes = LogSizes(log_dirs)
        self.shm = shm
        self.log_dirs = log_dirs
        self._settings = settings
        self._memory = memory
        self._clock = clock
        self._wall = wall
        self._directory = TopicDirectory()
        self._labels = PartitionLabels()
        self._times = of_traffic.RequestTimes()
        self._next_look_ms = self._next_strays_ms = 0
        self._strays: dict[str, list[StrayLog]] = {}  # by log directory; only of those that can be read
        self._record_bytes = 0
        self._busy: list[tuple[int, dict[int, int]]] = []
        self._topics: NamedSeries[str] = NamedSeries(settings.max_topics)
        self._groups: NamedSeries[str] = NamedSeries(settings.max_clients)
        clients: NamedSeries[Client] = NamedSeries(settings.max_clients)
        state = self._restored()
        self._locks = state.get("locks", (0, 0, 0, 0))
        if state:
            self._topics.names = set(state["topics"])
            self._groups.names = set(state["groups"])
        self.ledger = Ledger(clients, self._topics, state.get("ledger"))

    def _restored(self) -> dict[str, Any]:
        published = self._memory.read() if self._memory is not None else None
        if published is None:
            return {}
        state: dict[str, Any] = marshal.loads(published[1])
        return state if state["boot_id"] == self.shm.boot_id else {}

    def _save(self) -> None:
        if self._memory is None:
            return
        state = {
            "boot_id": self.shm.boot_id,
            "ledger": self.ledger.state(),
            "topics": list(self._topics.names),
            "groups": list(self._groups.names),
            "locks": self._locks,
        }
        try:
            self._memory.publish(marshal.dumps(state))
        except OSError as error:
            log.warning(
                "cannot save the metrics' state, so usage counters may be too low after a restart of the reporter: %s",
                error.strerror,
            )

    # -- reading ------------------------------------------------------------------------------------------------------

    def partitions(self) -> dict[str, list[Partition]]:
        """Return all partitions, by topic."""
        return dict(self.each_topic())

    def partitions_of(self, topics: Iterable[str]) -> dict[str, list[Partition]]:
        """Return the partitions of these topics, by topic, without topics that do not exist."""
        self._directory.refresh()
        known = ((topic, self._directory.get(topic)) for topic in topics)
        return {topic: overview.partitions_of(entry) for topic, entry in known if entry is not None}

    def each_topic(self) -> Iterator[tuple[str, list[Partition]]]:
        """Yield all partitions topic by topic, because the rows of ten thousand partitions take 5 MB."""
        self._directory.refresh()
        for topic in self._directory.by_name.values():
            yield topic.name, overview.partitions_of(topic)

    def settings_of(self, topic: str) -> tuple[int, int, int] | None:
        """Return (retention in ms, retention in bytes, largest batch in bytes) of a topic; None if it has no log here."""
        entry = self._directory.get(topic)
        return None if entry is None else overview.settings_of(entry)

    def topic_id(self, topic: str) -> bytes | None:
        """Return the topic's id; None if the topic does not exist."""
        entry = self._directory.get(topic)
        return None if entry is None else entry.topic_id

    def tick(self) -> bool:
        """Do the periodic work, which does not depend on scrapes; return whether directories remain to be measured."""
        with self.lock:
            now = self._clock()
            self.history.sample(now)
            self.open_transactions.sample(now)
            self._sample_busy()
            self._look_for_strays(now)
            if now < self._next_look_ms:
                return False
            self._times.read(self.shm, self.workers(), now)
            left = self.sizes.refresh(self.each_topic(), SIZES_AT_ONCE)
            if not left:  # topics get their names by their size
                self._look_at_usage(self.each_topic())
                self._next_look_ms = now + LOOK_EVERY_MS
            return left

    def _look_for_strays(self, now: int) -> None:
        if now < self._next_strays_ms:
            return
        self._next_strays_ms = now + STRAYS_EVERY_MS
        self._strays = {}
        for number, path in enumerate(self.log_dirs):
            if not self.shm.log_dir_offline(number):
                try:
                    self._strays[str(path)] = stray_logs(path)
                except OSError as error:
                    log.warning("cannot look for logs that were set aside in %s: %s; retrying in %d s",
                                path, error, STRAYS_EVERY_MS // 1000)  # fmt: skip

    def workers(self) -> list[ProcessPlace]:
        """Return the places of the workers."""
        return [place for place in of_processes.places(self.shm) if place.kind == ProcessKind.WORKER]

    def _sample_busy(self) -> None:
        now = self._clock()
        if self._busy and now - self._busy[-1][0] < IDLE_SAMPLE_MS:
            return
        self._busy.append((now, self._busy_us()))
        while len(self._busy) > 1 and self._busy[1][0] <= now - IDLE_WINDOW_MS:
            del self._busy[0]

    def _busy_us(self) -> dict[int, int]:
        return {place.page: pages.counters(self.shm, place.page)["busy_us"] for place in self.workers()}

    def usage_rows(self) -> list[pages.UsageRow]:
        """Return the usage of all pages."""
        return [row for place in of_processes.places(self.shm) for row in pages.usage_rows(self.shm, place.page)]

    def _look_at_usage(self, topics: Iterable[tuple[str, list[Partition]]]) -> None:
        usage = self.usage_rows()
        self._record_bytes = sum(row.bytes_in for row in usage if row.topic is not None)
        sizes = {topic: of_partitions.stored_bytes(partitions, self.sizes) or 0 for topic, partitions in topics}
        for row in usage:
            if row.topic is not None and row.topic != of_partitions.OTHER:
                sizes.setdefault(row.topic, 0)
        added, removed = self._topics.update(sizes)
        changed = self.ledger.look(usage, self._wall() - self._settings.idle_ms, removed)
        if changed or added or removed:
            self._save()

    def readers(self, topics: Iterable[tuple[str, Sequence[Partition]]]) -> list[of_groups.Reader]:
        """Return the lag of all readers that have not ended (`of_groups.live_positions`). :param topics: all partitions."""
        positions = (position for place in self.workers() for position in pages.positions(self.shm, place.page))
        live = list(of_groups.live_positions(positions, self._wall(), self._settings.idle_ms))
        read = {position.slot for position in live}
        if not read:
            return []
        where = {row.slot: (topic, row) for topic, partitions in topics for row in partitions if row.slot in read}
        return list(of_groups.readers(live, where, self.history, self._clock()))

    def group_lags(self, group: GroupRow, rows: Rows) -> list[of_groups.Lag]:
        """Return the lag of a group."""
        return list(of_groups.group_lags(group, rows, self.history, self._clock()))

    @property
    def named_groups(self) -> Collection[str]:
        """The groups that have series."""
        return self._groups.names

    # -- families -----------------------------------------------------------------------------------------------------

    def families(self, groups: Groups, transactions: TransactionReport | None = None) -> Iterator[Family]:
        """Yield all families with their current values, whose text is within `metrics.max.bytes`. The caller holds `lock`
        until the iterator ends, and reads each family before the next one.

        :param groups: from before the call, so that no lag is negative. :param transactions: None if it is not known.
        """
        limit = TextLimit(self._settings.max_bytes)
        yield from map(limit.limited, self._all_families(groups, transactions, limit))
        yield Family(METRICS[LEFT_OUT], left_out(limit))

    def _all_families(
        self, groups: Groups, transactions: TransactionReport | None, limit: TextLimit
    ) -> Iterator[Family]:
        shm = self.shm
        self.history.sample(self._clock())
        rows = self.partitions()
        self.sizes.refresh(rows.items(), SIZES_AT_ONCE)
        self._look_at_usage(rows.items())
        places = of_processes.places(shm)
        workers = [place for place in places if place.kind == ProcessKind.WORKER]
        topics = self._topics.names
        yield from of_partitions.cluster_families(rows, self._settings.broker, self._settings.listeners[0])
        yield from of_partitions.partition_families(rows, topics, self.sizes, self._labels)
        settings = {topic: values for topic in topics if (values := self.settings_of(topic)) is not None}
        yield from of_partitions.settings_families(settings)
        if groups is not None:
            yield from self._group_families(groups, rows, limit)
        yield from of_groups.reader_families(
            reader
            for reader in self.readers(rows.items())
            if (reader.principal, reader.client_id) in self.ledger.clients.names and reader.lag.topic in topics
        )
        yield from self._traffic_families(places, workers)
        yield from of_partitions.broker_families(rows, shm, places)
        coordinators = [place for place in places if place.kind == ProcessKind.COORDINATOR]
        yield from of_membership.families([pages.counters(shm, place.page) for place in coordinators], self._clock())
        yield from of_access.families([pages.counters(shm, place.page) for place in places])
        yield from of_processes.families(shm, places)
        yield from of_processes.worker_families(shm, places)
        yield from of_processes.late_families(shm, places)
        yield from of_processes.replica_families(shm, places)
        yield from self._own_families()
        yield from of_tasks.families(self.tasks())
        yield from of_tasks.stray_families(self._strays)
        yield from of_partitions.log_dir_families(shm, self.log_dirs)
        yield from of_partitions.producer_families(shm)
        yield from self._transaction_families(rows, places, transactions)
        yield from of_quotas.families(self._settings.max_clients)

    def _transaction_families(
        self, rows: Rows, places: Sequence[ProcessPlace], report: TransactionReport | None
    ) -> Iterator[Family]:
        now = self._clock()
        self.open_transactions.sample(now)
        yield from of_transactions.slot_families(
            rows, self._topics.names, self._labels, self.open_transactions, now, self._settings.max_transaction_ms
        )
        yield from of_transactions.count_families([pages.counters(self.shm, place.page) for place in places])
        if report is not None:
            yield from of_transactions.report_families(report)

    def _group_families(self, groups: Sequence[GroupRow], rows: Rows, limit: TextLimit) -> Iterator[Family]:
        self._groups.update({group.group_id: of_groups.size_of(group) for group in groups})
        return of_groups.group_families(
            groups, rows, self._topics.names, self._groups.names, self.history, self._clock(), limit
        )

    def _traffic_families(self, places: Sequence[ProcessPlace], workers: Sequence[ProcessPlace]) -> Iterator[Family]:
        words = [pages.counters(self.shm, place.page) for place in places]
        yield from of_traffic.topic_families(self.ledger, words)
        yield from of_traffic.batch_families(self.shm, workers, self._record_bytes, self._topics.names)
        self._times.read(self.shm, workers, self._clock())
        yield from of_traffic.request_families(self.shm, places, self._times)
        yield from of_traffic.connection_families(self.shm, workers, self._settings.listeners)
        yield from of_traffic.login_families(self.shm, workers, self._settings.listeners)
        for name in ("tls_reloads", "tls_reload_failures"):
            yield single(f"odradek_{name}_total", sum(counters[name] for counters in words))
        yield single("odradek_failed_broker_logins_total", sum(counters["failed_peer_logins"] for counters in words))
        yield from of_security.certificate_families(self.certificates())
        yield from of_security.fault_families(self.faults(), self._wall())
        yield from of_traffic.provider_families(self.providers())
        for name in ("limit", "full", "refused"):
            value = sum(counters[f"connections_{name}"] for counters in words)
            yield single(f"odradek_connections_{name}" + ("" if name == "limit" else "_total"), value)
        then, before = self._busy[0] if self._busy else (self._clock(), {})
        idle = of_processes.idle_share(before, self._busy_us(), (self._clock() - then) * 1000)
        if idle is not None:
            yield single("kafka_network_socketserver_networkprocessoravgidle_percent", idle)
            yield single("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", idle)
        yield from of_traffic.usage_families(self.ledger)

    def _own_families(self) -> Iterator[Family]:
        yield Family(METRICS["odradek_build_info"], [("", Labels(version=__version__), 1)])
        yield Family(METRICS["odradek_broker_info"], [("", Labels(id=str(self._settings.broker.broker_id)), 1)])
        yield single("odradek_boot_time_seconds", self.began_ms() / 1000)
        busy, recoveries = self._lock_counts()
        yield single("odradek_lock_busy_total", busy)
        yield single("odradek_lock_recoveries_total", recoveries)
        if self.spool is not None:
            yield single("odradek_spool_intervals_total", self.spool.intervals)
            yield single("odradek_spool_bytes", self.spool.bytes)
            yield single("odradek_spool_failures_total", self.spool.failures)

    def began_ms(self) -> int:
        """Return the time at which all counters were zero, by the wall clock in ms."""
        return min(info.started_ms for info in self.shm.processes() if info.incarnation)

    def _lock_counts(self) -> tuple[int, int]:
        """Return the sums over all slots; counts that a slot loses when another partition gets it are kept."""
        seen = overview.lock_counts()
        base_busy, base_recoveries, busy, recoveries = self._locks
        if seen[0] < busy or seen[1] < recoveries:
            base_busy += max(0, busy - seen[0])
            base_recoveries += max(0, recoveries - seen[1])
            self._locks = (base_busy, base_recoveries, *seen)
            self._save()
        self._locks = (base_busy, base_recoveries, *seen)
        return base_busy + seen[0], base_recoveries + seen[1]
