"""The thread of a flow that writes MirrorMaker 2's internal topics: offset syncs, checkpoints, heartbeats.

Runs in the process of `odradek mirror run`, one thread for each flow. It uses its own connections. A job that fails is
retried with new connections after its interval, which becomes longer with each failure, up to LONGEST_RETRY_S. It does not
disturb the lanes. The first failure and each different one are logged.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from odradek.backoff import Backoff
from odradek.clients import groups
from odradek.clients.cluster import Cluster
from odradek.clients.errors import ClientError, RefusedError
from odradek.mirror import checkpoints, heartbeats
from odradek.mirror.checkpoints import Checkpoints
from odradek.mirror.heartbeats import Heartbeats
from odradek.mirror.internal_topic import InternalTopic
from odradek.mirror.offset_syncs import OffsetSyncs
from odradek.mirror.records import Checkpoint, MirrorRecordError, read_offset_sync
from odradek.mirror.settings import FlowSettings

SOURCE, TARGET = "source", "target"
LONGEST_RETRY_S = 60.0
log = logging.getLogger("odradek.mirror")


def _every_group(_: str) -> bool:
    return True


@dataclass(frozen=True)
class BookkeepingOptions:
    """What is written, and how often. An interval is in seconds.

    :param offset_syncs_location: SOURCE or TARGET, `offset-syncs.topic.location`.
    :param offset_syncs_replication_factor: and those of the other topics: -1 means the cluster's default.
    :param internal_separator: between the parts of the names of internal topics; "." unless the replication policy has another
        one and `replication.policy.internal.topic.separator.enabled` is set.
    :param wants_group: whether a group of the source is followed, by its id.
    """

    offset_syncs_enabled: bool = True
    offset_syncs_interval_s: float = 2.0
    offset_syncs_location: str = SOURCE
    offset_syncs_replication_factor: int = -1
    checkpoints_enabled: bool = True
    checkpoints_interval_s: float = 60.0
    checkpoints_replication_factor: int = -1
    refresh_groups_interval_s: float = 600.0
    sync_group_offsets: bool = False
    sync_group_offsets_interval_s: float = 60.0
    heartbeats_enabled: bool = True
    heartbeats_interval_s: float = 1.0
    heartbeats_replication_factor: int = -1
    internal_separator: str = "."
    wants_group: Callable[[str], bool] = _every_group


class BookkeepingCounts(NamedTuple):
    """Records written and offsets committed since the start. :param failures: of jobs. :param failing: the number of jobs whose
    last attempt failed."""

    offset_syncs: int = 0
    checkpoints: int = 0
    group_offsets: int = 0
    heartbeats: int = 0
    failures: int = 0
    failing: int = 0


def options_of(flow: FlowSettings) -> BookkeepingOptions:
    """The options that a mirror's file sets for a flow."""
    return BookkeepingOptions(
        offset_syncs_enabled=flow.flag("emit.offset-syncs.enabled"),
        offset_syncs_location=flow.text("offset-syncs.topic.location"),
        offset_syncs_replication_factor=flow.integer("offset-syncs.topic.replication.factor"),
        checkpoints_enabled=flow.flag("emit.checkpoints.enabled"),
        checkpoints_interval_s=float(flow.integer("emit.checkpoints.interval.seconds")),
        checkpoints_replication_factor=flow.integer("checkpoints.topic.replication.factor"),
        refresh_groups_interval_s=flow.every_s("refresh.groups") or math.inf,
        sync_group_offsets=flow.flag("sync.group.offsets.enabled"),
        sync_group_offsets_interval_s=float(flow.integer("sync.group.offsets.interval.seconds")),
        heartbeats_enabled=flow.flag("emit.heartbeats.enabled"),
        heartbeats_interval_s=float(flow.integer("emit.heartbeats.interval.seconds")),
        heartbeats_replication_factor=flow.integer("heartbeats.topic.replication.factor"),
        internal_separator=flow.policy.internal_separator,
        wants_group=flow.groups.selects,
    )


def offset_syncs_topic(other: str, separator: str = ".") -> str:
    """The topic of offset syncs. :param other: alias of the target if the topic is in the source, else of the source."""
    return f"mm2-offset-syncs{separator}{other}{separator}internal"


def checkpoints_topic(source: str, separator: str = ".") -> str:
    """The topic of checkpoints in the target. :param source: alias of the source."""
    return f"{source}{separator}checkpoints{separator}internal"


class _Job:
    """Something that is done at an interval, with its own connections.

    :ivar due: monotonic time of the next attempt. :ivar failures: of the last attempts, one after the other.
    """

    def __init__(self, name: str, interval_s: float, work: Callable[[_Job], None], bookkeeping: Bookkeeping) -> None:
        self.name = name
        self.interval_s = interval_s
        self._work = work
        self._owner = bookkeeping
        self._clusters: dict[str, Cluster] = {}
        self._topics: dict[tuple[str, str], InternalTopic] = {}
        self._failure = ""
        self.due = 0.0
        self.failures = 0

    @property
    def wait_s(self) -> float:
        """The time between the last attempt and the next one."""
        if not self.failures:
            return self.interval_s
        return Backoff(2 * self.interval_s, LONGEST_RETRY_S, shortest=self.interval_s).after(self.failures)

    def cluster(self, side: str) -> Cluster:
        """A connection of this job. :param side: SOURCE or TARGET. Raises ClientError."""
        if side not in self._clusters:
            self._clusters[side] = self._owner.connect(side)
        return self._clusters[side]

    def topic(self, side: str, name: str, replication_factor: int) -> InternalTopic:
        """An internal topic, which is kept until a failure."""
        if (side, name) not in self._topics:
            self._topics[side, name] = InternalTopic(self.cluster(side), name, replication_factor)
        return self._topics[side, name]

    def attempt(self) -> bool:
        """Do the work; after a failure close the connections, and log the error unless the last attempt failed with it too."""
        try:
            self._work(self)
        except (ClientError, MirrorRecordError) as error:
            self.close()
            self.failures += 1
            if str(error) != self._failure:
                log.warning(
                    "%s: cannot write %s: %s; retrying in %g s", self._owner.flow, self.name, error, self.wait_s
                )
            self._failure = str(error)
            return False
        if self._failure:
            log.info("%s: %s are written again", self._owner.flow, self.name)
        self._failure = ""
        self.failures = 0
        return True

    def close(self) -> None:
        """Close the connections."""
        for cluster in self._clusters.values():
            cluster.close()
        self._clusters.clear()
        self._topics.clear()


class Bookkeeping:
    """Writes the internal topics of the flow from `source` to `target` (aliases); see the module.

    :param syncs: the observer of the flow's lanes. :param connect_source: and `connect_target`: return new clusters.
    :ivar flow: the name of the flow, for the log.
    """

    def __init__(
        self,
        source: str,
        target: str,
        syncs: OffsetSyncs,
        connect_source: Callable[[], Cluster],
        connect_target: Callable[[], Cluster],
        options: BookkeepingOptions,
    ) -> None:
        self.flow = f"{source}->{target}"
        self._source = source
        self._target = target
        self._syncs = syncs
        self._connect = {SOURCE: connect_source, TARGET: connect_target}
        self._options = options
        self._stopping = threading.Event()
        self._checkpoints = Checkpoints(syncs, options.wants_group)
        self._group_ids: list[str] = []
        self._groups_read_at = -1.0
        self.counts = BookkeepingCounts()
        self._jobs = self._chosen_jobs()

    def _chosen_jobs(self) -> list[_Job]:
        options, jobs = self._options, []
        if options.offset_syncs_enabled:
            jobs.append(_Job("offset syncs", options.offset_syncs_interval_s, self._write_syncs, self))
        if options.checkpoints_enabled:
            jobs.append(_Job("checkpoints", options.checkpoints_interval_s, self._write_checkpoints, self))
        if options.sync_group_offsets:
            jobs.append(_Job("offsets of groups", options.sync_group_offsets_interval_s, self._commit_offsets, self))
        if options.heartbeats_enabled:
            for side in (TARGET, SOURCE):
                work = self._heartbeat(side)
                jobs.append(_Job(f"heartbeats in the {side}", options.heartbeats_interval_s, work, self))
        return jobs

    def connect(self, side: str) -> Cluster:
        """A new cluster. :param side: SOURCE or TARGET. Raises ClientError."""
        return self._connect[side]()

    def run(self) -> None:
        """Write until `stop`, then write once more what has changed; the thread's main."""
        try:
            while not self._stopping.is_set():
                self.work(time.monotonic())
                wait_s = min((job.due for job in self._jobs), default=time.monotonic() + 3600) - time.monotonic()
                self._stopping.wait(max(0.0, wait_s))
            for job in self._jobs:
                if not job.failures:  # a cluster that is away must not delay the end
                    self._attempt(job)
        finally:
            for job in self._jobs:
                job.close()

    def stop(self) -> None:
        """Make `run` end soon; thread-safe."""
        self._stopping.set()

    def work(self, now: float) -> None:
        """Attempt the jobs that are due at the monotonic time `now`."""
        for job in self._jobs:
            if job.due <= now and not self._stopping.is_set():
                self._attempt(job)
                job.due = now + job.wait_s

    def _attempt(self, job: _Job) -> None:
        if not job.attempt():
            self._count(failures=1)
        self.counts = self.counts._replace(failing=sum(1 for other in self._jobs if other.failures))

    def _count(self, **more: int) -> None:
        self.counts = self.counts._replace(
            **{name: getattr(self.counts, name) + number for name, number in more.items()}
        )

    # -- jobs -------------------------------------------------------------------------------------------------------

    def _write_syncs(self, job: _Job) -> None:
        in_source = self._options.offset_syncs_location == SOURCE
        name = offset_syncs_topic(self._target if in_source else self._source, self._options.internal_separator)
        side = SOURCE if in_source else TARGET
        topic = job.topic(side, name, self._options.offset_syncs_replication_factor)
        unloaded = self._syncs.unloaded()
        if unloaded:
            self._syncs.load(unloaded, topic.read(read_offset_sync))
        pending = self._syncs.pending()
        if pending.records:
            self._count(offset_syncs=topic.write(sync.encoded() for sync in pending.records))
            self._syncs.written(pending.up_to)

    def _write_checkpoints(self, job: _Job) -> None:
        name = checkpoints_topic(self._source, self._options.internal_separator)
        topic = job.topic(TARGET, name, self._options.checkpoints_replication_factor)

        changed: list[Checkpoint] = []

        def collect(group_id: str) -> None:
            offsets = groups.fetch_offsets(job.cluster(SOURCE), group_id)
            changed.extend(self._checkpoints.changed(self._checkpoints.translated(group_id, offsets)))

        refusal = self._for_each_group(job, collect)
        if changed:
            self._count(checkpoints=topic.write(checkpoint.encoded() for checkpoint in changed))
            self._checkpoints.written(changed)
        if refusal is not None:
            raise refusal

    def _commit_offsets(self, job: _Job) -> None:
        def commit(group_id: str) -> None:
            offsets = groups.fetch_offsets(job.cluster(SOURCE), group_id)
            translated = self._checkpoints.translated(group_id, offsets)
            if translated:
                self._count(group_offsets=checkpoints.commit(job.cluster(TARGET), group_id, translated))

        refusal = self._for_each_group(job, commit)
        if refusal is not None:
            raise refusal

    def _for_each_group(self, job: _Job, work: Callable[[str], None]) -> RefusedError | None:
        """Do something for each followed group. Return the first refusal: it does not keep the groups behind it waiting."""
        refusal = None
        for group_id in self._followed(job):
            try:
                work(group_id)
            except RefusedError as error:
                refusal = refusal or error
        return refusal

    def _followed(self, job: _Job) -> list[str]:
        """The followed groups, read again after `refresh_groups_interval_s`."""
        now = time.monotonic()
        if self._groups_read_at < 0 or now - self._groups_read_at >= self._options.refresh_groups_interval_s:
            self._group_ids = self._checkpoints.groups(job.cluster(SOURCE))
            self._groups_read_at = now
        return self._group_ids

    def _heartbeat(self, side: str) -> Callable[[_Job], None]:
        aliases = (self._source, self._target) if side == TARGET else (self._target, self._source)

        def write(job: _Job) -> None:
            topic = job.topic(side, heartbeats.TOPIC, self._options.heartbeats_replication_factor)
            self._count(heartbeats=Heartbeats(topic, *aliases, lambda: int(time.time() * 1000)).write())

        return write
