"""Connects the group coordinator to the process: the loop's clock, the partitions of `__consumer_offsets`, and requests.

Used only in the coordinator's event loop, except for reading logs when they are loaded: a separate thread does this and hands
over the records in pieces. The slots contain which partitions this broker leads, and in which epoch. A change is noticed with
the metadata version or a wake-up, at the latest when an append is refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import odradek._ext.partition.slots as slots
from odradek._ext.net.arrivals import Arrival
from odradek._ext.partition.flusher import Flusher
from odradek._ext.shm.locks import enter_lane
from odradek._ext.shm.topics import TopicDirectory
from odradek.api.api import Place
from odradek.api.groups.group_call import (
    GroupCall,
    GroupView,
    NoTransactions,
    OffsetTree,
    TransactionsOfGroups,
    host_of,
    result_of,
)
from odradek.api.permits import Permits, PermitsOf, unrestricted
from odradek.api.pipeline import NotServed, Outcome, Pipeline, executed
from odradek.api.row import ApiRow
from odradek.api.table import BY_KEY, Handlers
from odradek.config.broker_config import BrokerConfig
from odradek.controller.topic_names import CONSUMER_OFFSETS
from odradek.coordination.environment import EndMarker, LogBatch
from odradek.net.forward_frames import ForwardReply, Kind, Status
from odradek.processes import own_tasks
from odradek.processes.coordinator.forwarded import AwaitedRequest, ForwardedHost, refused
from odradek.processes.coordinator.groups.report import encode_report
from odradek.processes.coordinator.internal_topics.coordinated_topic import (
    GROUP_LOAD_LANE,
    CoordinatedTopic,
    LedPartition,
)
from odradek.processes.coordinator.internal_topics.coordinator_log import AppendTurn, CoordinatorLog
from odradek.processes.coordinator.loop_timers import LoopTimers
from odradek.processes.metering import count_errors, uncounted_errors
from odradek.processes.slices import LoopSlices
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import txn_offset_commit
from odradek.stepwise import Later, Steps, Stepwise, waited

if TYPE_CHECKING:
    from odradek.groups.coordinator import GroupCoordinator
    from odradek.processes.coordinator.groups.creation import StoredTopics

log = logging.getLogger("odradek.groups")

EXPIRY_OF_OFFSETS = "expiry of committed offsets"
KAFKA = int(Kind.KAFKA)
NO_TOPIC_ID = bytes(16)
OF_LOG = ("offsets.topic.compression.codec", "message.max.bytes", "offsets.commit.timeout.ms")
REQUIRED_ACKS = "offsets.commit.required.acks"


class LoadedGroups:
    """The groups as the state of `__consumer_offsets`."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def begin(self, partition: int, log: CoordinatorLog) -> None:
        """See `Shards`. A repeated load takes over from the replaced shard the deleted topics whose offsets it has still to
        delete."""
        self._groups.shards.begin(partition, log)

    def replay(self, partition: int, batches: list[LogBatch]) -> Iterator[None]:
        """See `Shards`."""
        return self._groups.shards.replay_batches(partition, batches)

    def loaded(self, partition: int) -> Iterator[None]:
        """See `Shards`."""
        self._groups.loaded(partition)
        yield

    def lead_on(self, partition: int, leader_epoch: int) -> None:
        """See `Shards`: groups do not depend on the leader epoch."""

    def resign(self, partition: int) -> None:
        """See `Shards`."""
        self._groups.shards.resign(partition)


MOST_LEADERSHIPS = 3
"""The number of leaderships that are confirmed for one request, one after the other."""


class _GroupsHost(ForwardedHost):
    """See `Host`. :param service: whose view it uses."""

    def __init__(self, service: GroupService, config: BrokerConfig, permits_of: PermitsOf) -> None:
        super().__init__(config, permits_of, Place.GROUPS)
        self._service = service

    def call(self, request: Arrival, row: ApiRow, version: int, permits: Permits) -> GroupCall:
        """See `Host`."""
        context = request.context
        return GroupCall(
            version=version,
            client_id=context.client_id,
            host=host_of(context.peer),
            principal=context.principal,
            view=self._service.view,
            park=request.park,
            permits=permits,
        )

    def topic_name(self, topic_id: bytes) -> str | None:
        """See `Host`."""
        topic = self._service.topics.by_id.get(topic_id)
        return None if topic is None else str(topic.name)

    def topic_exists(self, name: str) -> bool:
        """See `Host`."""
        topic = self._service.topics.get(name)
        return topic is not None and bool(topic.is_published())

    def handled(self, row: ApiRow, holder: list[Any], call: Any) -> Steps:
        """See `Host`. A handler that waits for other members releases the request."""
        response = self.handlers[row.key](holder.pop(), call)
        return (yield from executed(response)) if isinstance(response, Generator) else response


async def driven(steps: Steps) -> Any:
    """Execute the steps of a request in the loop, which does its other work between them.

    If the task is cancelled, because the client has disconnected, a change that must not stay half done (`MUST_GO_ON`) is
    completed, and the generator is closed.
    """
    job = Stepwise(steps)
    try:
        while job.step():
            assert not job.off_loop, "no thread executes steps of groups"
            if job.waits is None:
                await asyncio.sleep(0)
            elif not job.waits.done:
                await _value_of(job.waits)
        return job.result
    finally:
        while job.abandon():
            pass


def _value_of(later: Later) -> asyncio.Future[None]:
    """Done when `later` has its value."""
    future = asyncio.get_running_loop().create_future()
    later.then(lambda: None if future.done() else future.set_result(None))
    return future


class GroupService:
    """The groups of a coordinator process.

    :param tree: the offsets in the metadata tree, which requests of version 0 use.
    :param stored: returns the names of the topics in the metadata store; None while they are not known. The topic directory
        is not complete: it lacks topics that have no free slot, no log directory, or only replicas on other brokers.
    :param turn, flusher: those of all logs of the coordinator process.
    :param permits_of: see `PermitsOf`.
    :ivar transactions: the transactions in which clients commit offsets; set before `start`.
    """

    def __init__(
        self,
        config: BrokerConfig,
        log_dirs: Sequence[Path],
        tree: OffsetTree,
        stored: StoredTopics,
        turn: AppendTurn,
        flusher: Flusher,
        permits_of: PermitsOf = unrestricted,
    ) -> None:
        self._permits_of = permits_of
        self._config = config
        self._loop = asyncio.get_running_loop()
        self.topics = TopicDirectory()
        self._timers = LoopTimers(self._loop)
        self._reader = ThreadPoolExecutor(1, "group-load", enter_lane, (GROUP_LOAD_LANE,))
        self._flusher = flusher
        self._known: dict[str, bytes] = {}
        self._expiry: asyncio.TimerHandle | None = None
        self.groups: GroupCoordinator | None = None
        self._view: GroupView | None = None
        self.transactions: TransactionsOfGroups = NoTransactions()
        self._tree = tree
        self._stored = stored
        self._turn = turn
        self._offsets = CoordinatedTopic(
            CONSUMER_OFFSETS,
            log,
            "groups",
            log_dirs,
            self._reader,
            self._make_log,
            not config.clustered,
            refresh=self.refresh,  # otherwise the load would keep the offsets of a topic that was deleted before it
        )
        self._host = _GroupsHost(self, config, permits_of)
        self._pipeline = Pipeline(self._host)
        self._at_once = Handlers((row.key, row.at_once) for row in BY_KEY.values() if row.at_once)

    def start(self) -> None:
        """Start with the partitions that this broker leads now."""
        self.follow()
        self._expire_later()

    def end(self) -> None:
        """The broker stops, and this process serves until the workers have ended: no request waits for other members now."""
        if self.groups is not None:
            self.groups.shards.end()

    def close(self) -> None:
        """Stop serving. The caller has written the queued appends, and with flush.messages also synced them; not those behind
        a long batch that is still built."""
        if self._expiry is not None:
            self._expiry.cancel()
        self._offsets.close()
        self._reader.shutdown(wait=False, cancel_futures=True)

    # -- which partitions -----------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Compare with the topics and the slots of `__consumer_offsets`: begin and resign partitions, handle deleted topics."""
        self.refresh()
        topic = self.topics.get(CONSUMER_OFFSETS)
        if self.groups is None and topic is not None and self._offsets.led(self.topics):
            self._create_groups(topic.published_count())
        self._offsets.follow(self.topics)

    @property
    def loading(self) -> bool:
        """Whether any partition of `__consumer_offsets` is still being read."""
        return self.groups is not None and self.groups.shards.loading

    def look(self, moved: Collection[int]) -> None:
        """Acknowledge appends to those partitions of `__consumer_offsets` whose slots are in `moved`."""
        self._offsets.look(moved)

    def _create_groups(self, partitions: int) -> None:
        """Create the group coordinator once the topic exists and all its partitions are known. Their number must not change,
        because it determines the partition of each group.

        :param partitions: the number of partitions; 0: not known yet.
        """
        if self.groups is None and partitions:
            self.groups = self._make(partitions)
            self._view = GroupView(
                self._config, self.groups, self.topics, self._tree, self._host.limits, self.transactions
            )
            self._view.permits_of = self._permits_of
            if self._config.clustered:
                self._view.confirm = self._confirm
            self._offsets.serve(LoadedGroups(self.groups))

    def _confirm(self, group_id: str) -> Steps:
        """See `GroupView`. Offsets are also served while too few replicas are in sync to confirm it.

        A leadership that was interrupted, and that this broker has again, also fails the confirmation. Then the new leadership
        is confirmed: librdkafka does not send an OffsetFetch request again after NOT_COORDINATOR, and its consumer would wait
        for ever.
        """
        code = ErrorCode.NOT_COORDINATOR
        for _ in range(MOST_LEADERSHIPS):
            code = yield from self._confirm_once(group_id)
            if code is not ErrorCode.NOT_COORDINATOR or not (yield from self._leads_on(group_id)):
                break
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if code is ErrorCode.REQUEST_TIMED_OUT else code

    def _confirm_once(self, group_id: str) -> Steps:
        assert self.groups is not None
        shards = self.groups.shards
        partition_log = self._offsets.log_of(shards.partition_of(group_id))
        if shards.shard_of(group_id)[0] is not ErrorCode.NONE:
            return ErrorCode.NONE  # the request is refused anyway
        if partition_log is None or not slots.has_min_in_sync(partition_log.place[0]):
            return ErrorCode.NONE
        from odradek.processes.coordinator.groups.creation import NOBODY

        return (yield from waited(lambda then: partition_log.confirm(NOBODY, then)))

    def _leads_on(self, group_id: str) -> Steps:
        """Whether this broker leads the group's partition, after a confirmation has failed; waits until it is loaded again, but
        at most the timeout of commits."""
        assert self.groups is not None
        yield  # a failed append loads the partition again in the next turn
        self.follow()
        load = self._offsets.load_of(self.groups.shards.partition_of(group_id))
        if load is None:
            return False
        yield from result_of(asyncio.wait({load}, timeout=self._config.integer("offsets.commit.timeout.ms") / 1000))
        return True

    def refresh(self) -> None:
        """Take over changes of topics: the offsets of a deleted topic must not be used for a new topic of that name."""
        if not self.topics.refresh():
            return
        # A log that a former topic of a name left here is no topic: its end must not delete the offsets of the present topic.
        known = {topic.name: bytes(topic.topic_id) for topic in self.topics.by_name.values() if topic.is_published()}
        deleted = [
            name for name, topic_id in self._known.items() if known.get(name) != topic_id and topic_id != NO_TOPIC_ID
        ]
        self._known = known
        if deleted and self.groups is not None:
            self.groups.topics_deleted(deleted)

    def _make_log(self, place: LedPartition) -> CoordinatorLog:
        codec, max_bytes, timeout_ms = (self._config.integer(key) for key in OF_LOG)
        acks = self._config.integer(REQUIRED_ACKS)
        return CoordinatorLog(self._loop, self._turn, place, codec, max_bytes, timeout_ms, self._flusher, acks)

    def end_transaction(self, partition: int, marker: EndMarker, then: Callable[[ErrorCode], None]) -> None:
        """Write the end marker of a transaction to a partition of `__consumer_offsets`; see `GroupCoordinator`."""
        if self.groups is None:
            then(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            self.groups.end_transaction(partition, marker, then)

    # -- requests -------------------------------------------------------------------------------------------------

    def serves(self, request: Arrival) -> bool:
        """Whether this service executes a forwarded Kafka request."""
        return request.api_key in self._host.rows

    def at_once(self, request: Arrival | AwaitedRequest) -> bool:
        """Serve a request without a task, if its API supports that; returns whether it was served. Its appends wait for the end
        of the turn."""
        serve = self._at_once.get(request.api_key)
        if serve is None or self._view is None or request.kind != KAFKA:
            return False
        done: bool = serve(request, self._view)
        return done

    async def execute(self, request: Arrival) -> ForwardReply:
        """Execute one request and return the encoded response. Raises what the handler raises."""
        if request.api_key == txn_offset_commit.API_KEY:
            # Its handler is only for requests that native code cannot read.
            awaited = AwaitedRequest(request)
            self.refresh()
            if self.at_once(awaited):
                return await awaited.reply
        self.refresh()
        outcome: Outcome | NotServed = await driven(self._pipeline.steps(request))
        if isinstance(outcome, NotServed):
            return refused(outcome, request, log)
        count_errors(uncounted_errors(outcome), request.context)
        return ForwardReply(Status.OK, 0, outcome.data)

    async def report(self) -> bytes | None:
        """All groups, encoded for the reporter; None while some are still being loaded, because the reporter would take a part
        of the groups for all of them."""
        if self.groups is None:
            return b""
        return None if self.groups.shards.loading else await encode_report(self.groups)

    @property
    def view(self) -> GroupView:
        """The view of requests."""
        return self._view or self._view_without_topic()

    def _view_without_topic(self) -> GroupView:
        """The view while `__consumer_offsets` does not exist: every group gets NOT_COORDINATOR; offsets in the tree are
        served."""
        view = GroupView(self._config, self._make(1), self.topics, self._tree, self._host.limits, self.transactions)
        view.permits_of = self._permits_of
        return view

    def _make(self, partitions: int) -> GroupCoordinator:
        from odradek.processes.coordinator.groups.creation import make_groups  # here: it imports many modules

        slices = LoopSlices(self._loop)
        return make_groups(
            self._config, self._timers, partitions, self.topics, self._stored, self._offsets.diverged, slices
        )

    # -- expiry ---------------------------------------------------------------------------------------------------

    def _expire_later(self) -> None:
        interval_ms = self._config.integer("offsets.retention.check.interval.ms")
        own_tasks.expect(EXPIRY_OF_OFFSETS, interval_ms)
        self._expiry = self._loop.call_later(interval_ms / 1000, self._expire)

    def _expire(self) -> None:
        try:
            failures = None
            if self.groups is not None:
                failures = self.groups.not_expired()  # of the last run, whose appends have ended by now
                count = self.groups.expire()
                if count:
                    log.info("deleting %d expired committed offsets", count)
            own_tasks.ran(EXPIRY_OF_OFFSETS, failures)
        except Exception as error:
            log.exception("cannot delete expired committed offsets; retrying at the next check")
            own_tasks.ended(EXPIRY_OF_OFFSETS, error)
        finally:
            self._expire_later()
