"""One flow in a worker: its thread looks for topics and partitions, and compares settings and ACLs, at intervals.

It owns a `Following`, a `LaneSet`, and, each in a separate thread, a `Membership` and a `Bookkeeping`. A failure of a
cluster is logged and retried, also if it now refuses what the flow needs (`FlowError`): the other flows must not stop
for it. A group that refuses the worker for good ends the process (`MembershipError`).
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence

from odradek.backoff import Backoff
from odradek.clients.errors import ClientError
from odradek.mirror.assignment import Lanes
from odradek.mirror.bookkeeping import Bookkeeping, options_of
from odradek.mirror.copies import SEARCHES, Copies
from odradek.mirror.following import FlowError, Following, Memory, Plan
from odradek.mirror.lane_set import LaneSet, RunsLane
from odradek.mirror.membership import Membership, MembershipError
from odradek.mirror.metrics import FlowMetrics
from odradek.mirror.names import Edge
from odradek.mirror.observers import LogObserver, Observers
from odradek.mirror.offset_syncs import OffsetSyncs
from odradek.mirror.routes import Observer
from odradek.mirror.settings import FlowSettings

log = logging.getLogger("odradek.mirror")

RETRIES_S = Backoff(first=1.0, longest=30.0)
REVIVE_S = 1.0
HANDOVER_S, STOP_S = 3.0, 10.0
"""How long to wait for lanes that stop: less than a session before a rebalance, longer at the end of the process."""

MakeLane = Callable[[FlowSettings, int, Observer], RunsLane]


class FlowWorker:
    """A flow of this worker.

    :param edges: all flows of the file. :param make_lane: makes a lane that reports to an observer. :param fenced:
        the exception of a lane that another worker has. :param on_fatal: called with a sentence when a retry does not
        help.
    """

    def __init__(
        self,
        flow: FlowSettings,
        edges: Sequence[Edge],
        worker: str,
        metrics: FlowMetrics,
        make_lane: MakeLane,
        fenced: type[Exception],
        on_fatal: Callable[[str], None],
        observers: Sequence[Observer] = (),
    ) -> None:
        self.flow = flow
        self._edges = edges
        self._metrics = metrics
        self._on_fatal = on_fatal
        self._wake = threading.Event()
        self._stopping = False
        self._refused: dict[str, str] = {}
        self._memory = Memory(copies=Copies(flow.target.alias, SEARCHES * (flow.every_s("refresh.topics") or 0.0)))
        self._next = {"sync.topic.configs": 0.0, "sync.topic.acls": 0.0}
        self.started = threading.Event()
        self._syncs = OffsetSyncs()
        observer = Observers([metrics, LogObserver(flow.name), self._syncs, *observers])
        self.lanes = LaneSet(
            flow.name,
            flow.lanes,
            lambda lane: make_lane(flow, lane, observer),
            fenced,
            self._rejoin,
            self._wake.set,
        )
        metrics.commits = lambda: self.lanes.commits
        self.membership = Membership(
            flow.group_id,
            flow.lanes,
            worker,
            flow.target.connect,
            flow.integer("odradek.mirror.session.timeout.ms"),
            self._own,
            stops_first=not flow.exactly_once,
        )
        self._bookkeeping = Bookkeeping(
            flow.source.alias,
            flow.target.alias,
            self._syncs,
            flow.source.connect,
            flow.target.connect,
            options_of(flow),
        )
        metrics.bookkeeping = lambda: self._bookkeeping.counts
        self._threads = [
            threading.Thread(target=self._guarded, args=(self._follow,), name=f"{flow.name} topics", daemon=True),
            threading.Thread(target=self._guarded, args=(self.membership.run,), name=f"{flow.name} group", daemon=True),
            threading.Thread(
                target=self._guarded, args=(self._bookkeeping.run,), name=f"{flow.name} bookkeeping", daemon=True
            ),
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ask the flow to end: the lanes commit what is acknowledged, and the worker leaves the group."""
        self._stopping = True
        self._wake.set()
        self.membership.stop()

    def join(self, timeout_s: float) -> bool:
        """Wait until all threads have ended, at most this time. Whether they have."""
        ends = time.monotonic() + timeout_s
        for thread in self._threads:
            if thread is self._threads[-1]:
                self._bookkeeping.stop()  # after the lanes, whose last offsets it writes
            thread.join(max(0.0, ends - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    @property
    def not_ready(self) -> str | None:
        """Why the flow is not served by this worker; None if it is."""
        if not self.started.is_set():
            return f"{self.flow.name}: the topics of the source and the target were not read yet"
        if not self.membership.joined.is_set():
            return f"{self.flow.name}: the worker has not joined group {self.flow.group_id}"
        return None

    # -- threads --------------------------------------------------------------------------------------------------

    def _guarded(self, main: Callable[[], None]) -> None:
        try:
            main()
        except MembershipError as error:
            self._on_fatal(f"{self.flow.name}: {error}")
        except Exception as error:  # the border of a thread: without it the flow would stop silently
            log.exception("%s: internal error; the worker stops", self.flow.name)
            self._on_fatal(f"{self.flow.name}: internal error: {error!r}")

    def _own(self, lanes: Lanes) -> None:
        """Called by the membership with a new assignment."""
        # A new owner fences the lanes that left; without transactions they must have ended before others start.
        leaving_s = STOP_S if self._stopping else 0.0
        self.lanes.own(lanes, leaving_s if self.flow.exactly_once else max(leaving_s, HANDOVER_S))
        self._metrics.lanes = len(lanes)
        self._metrics.rebalances = self.membership.rebalances
        self._metrics.keep(self.lanes.places())
        if not self._stopping:
            self._syncs.assign(self.lanes.owned_routes())

    def _rejoin(self) -> None:
        self.membership.rejoin()

    def _follow(self) -> None:
        """Look for topics until the flow stops."""
        failures = 0
        due = time.monotonic()
        while not self._stopping:
            if time.monotonic() >= due:
                try:
                    self._refresh()
                    failures = 0
                    every_s = self.flow.every_s("refresh.topics")
                    due = float("inf") if every_s is None else time.monotonic() + every_s
                except (ClientError, FlowError) as error:
                    self._metrics.refresh_failures += 1
                    failures += 1
                    retry_s = RETRIES_S.after(failures)
                    log.error(
                        "%s: cannot read or change topics: %s; retrying in %.0f s", self.flow.name, error, retry_s
                    )
                    due = time.monotonic() + retry_s
            left_s = max(0.0, due - time.monotonic())
            woken = self._wake.wait(None if left_s == float("inf") else left_s)
            self._wake.clear()
            if woken and not self._stopping:
                self._wake.wait(REVIVE_S)  # not at once: the cause of the lane's end may persist
                self.lanes.revive()

    def _refresh(self) -> None:
        """One search for topics, with what is due beside it. Raises FlowError, ClientError."""
        with self.flow.source.connect() as source, self.flow.target.connect() as target:
            following = Following(self.flow, self._edges, source, target, self._memory)
            settings_due = self._due("sync.topic.configs")
            plan = following.plan(with_settings=settings_due)
            following.check_reverse(plan)
            routes = following.follow(plan)
            self._report(plan)
            self.lanes.route(routes)
            self._metrics.keep(self.lanes.places())
            self._syncs.assign(self.lanes.owned_routes())
            self._metrics.topics = len({route.source[0] for route in routes})
            self._metrics.last_refresh = time.time()
            if not self.started.is_set():
                log.info(
                    "%s: mirroring %s of %s",
                    self.flow.name, _count(len(routes), "partition"), _count(self._metrics.topics, "topic"),
                )  # fmt: skip
                self.started.set()
            if settings_due:
                if self.membership.leads:
                    following.sync_settings(plan)
                if self.membership.joined.is_set():  # before, nobody knows who leads
                    self._done("sync.topic.configs")
            if self.membership.leads and self._due("sync.topic.acls"):
                following.sync_acls(plan)
                self._done("sync.topic.acls")

    def _due(self, what: str) -> bool:
        """Whether a periodic task is due."""
        return self.flow.flag(f"{what}.enabled") and time.monotonic() >= self._next[what]

    def _done(self, what: str) -> None:
        """A periodic task was done; it is due again after its interval."""
        self._next[what] = time.monotonic() + self.flow.integer(f"{what}.interval.seconds")

    def _report(self, plan: Plan) -> None:
        """Log new refusals and warnings, once each."""
        for topic, reason in plan.refused.items():
            if self._refused.get(topic) != reason:
                log.error("%s: topic '%s' is not mirrored: %s", self.flow.name, topic, reason)
        self._refused = dict(plan.refused)
        self._metrics.refused_topics = len(plan.refused)
        for line in plan.warnings:
            self._memory.say_once(f"{self.flow.name}: {line}")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
