"""Connects the transaction coordinator to the coordinator process: to the loop's clock, the partitions of
`__transaction_state`, the markers, and the requests.

Used only in the coordinator's event loop. A single broker ends a transaction within one turn of the loop, unless an append
must wait for a sync or for a slot's lock: the outcome is appended and acknowledged; the markers of all partitions are
appended in the next round of the same turn (`AppendTurn`), then the completion; then the response is sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import odradek._ext.partition.slots as slots
import odradek._ext.shm.owners as owners
import odradek._ext.shm.views as views
from odradek._ext.api.offset_commits import partition_for
from odradek._ext.net.arrivals import Arrival
from odradek._ext.net.forward_frames import MalformedFrame
from odradek._ext.net.transaction_questions import decode_questions, encode_codes
from odradek._ext.partition.flusher import Flusher
from odradek._ext.shm.locks import enter_lane
from odradek.api.api import Place
from odradek.api.permits import Permits, PermitsOf, unrestricted
from odradek.api.pipeline import NotServed, Outcome, Pipeline
from odradek.api.row import ApiRow
from odradek.api.transactions.add_partitions_to_txn import MOST_ADDED
from odradek.api.transactions.transaction_call import NewestConnections, NewestMarkers, TransactionCall, TransactionView
from odradek.config import features
from odradek.config.broker_config import BrokerConfig
from odradek.controller.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.coordination.environment import LogBatch
from odradek.coordination.gathering import gather
from odradek.metrics.transactions import TransactionReport
from odradek.net.forward_frames import ForwardReply, Kind, Status
from odradek.processes import own_tasks
from odradek.processes.coordinator.forwarded import AwaitedRequest, ForwardedHost, ServedRequest, refused
from odradek.processes.coordinator.groups.service import GroupService
from odradek.processes.coordinator.internal_topics.coordinated_topic import TRANSACTION_LOAD_LANE, CoordinatedTopic
from odradek.processes.coordinator.internal_topics.coordinator_log import AppendTurn, CoordinatorLog
from odradek.processes.coordinator.loop_timers import LoopTimers
from odradek.processes.coordinator.producer_id_stock import ProducerIdStock
from odradek.processes.coordinator.request_steps import RequestSteps
from odradek.processes.coordinator.transactions.marker_delivery import LocalMarkers, MarkerDelivery
from odradek.processes.coordinator.transactions.marker_logs import MarkerLogs
from odradek.processes.coordinator.transactions.metering import LoadTimes, TransactionMeter, report_of
from odradek.processes.coordinator.transactions.orphaned_transactions import OrphanedTransactions
from odradek.processes.coordinator.transactions.partition_verification import (
    PartitionVerification,
    Question,
    RemoteCoordinator,
)
from odradek.processes.coordinator.transactions.slot_marks import SlotMarks
from odradek.processes.metering import count_errors, uncounted_errors
from odradek.processes.supervised_tasks import supervised
from odradek.protocol.errors import ErrorCode
from odradek.quotas.new_names import TRANSACTIONAL_IDS, configured
from odradek.stepwise import Steps, Stepwise
from odradek.topic_partition import TopicPartition
from odradek.transactions.coordinator import TransactionCoordinator
from odradek.transactions.environment import Environment, Marker, Owner, Settings

if TYPE_CHECKING:
    from odradek.processes.coordinator.transactions.other_brokers import (
        BrokerPeers,
        RemoteMarkers,
        RemoteTransactions,
    )
    from odradek.security.peers import PeerSecurity

log = logging.getLogger("odradek.transactions")

TIMEOUTS_OF_TRANSACTIONS, EXPIRY_OF_IDS = "timeouts of transactions", "expiry of transactional ids"
NONE = ErrorCode.NONE
APPEND_TIMEOUT_MS = 30_000
"""The time in ms after which a client that waits for an append receives an error. The append itself is not cancelled."""
LARGEST_BATCH = 2**31 - 1
OWNERS_KEPT = 4096
"""The number of client addresses for which the result of `owners.number_of` is kept; to compute it takes some microseconds."""


VERIFICATION_KEY = "transaction.partition.verification.enable"


def settings_of(config: BrokerConfig) -> Settings:
    """The settings of the transaction coordinator, from the configuration."""
    return Settings(
        names=configured(TRANSACTIONAL_IDS, config),
        max_timeout_ms=config.integer("transaction.max.timeout.ms"),
        id_expiration_ms=config.integer("transactional.id.expiration.ms"),
        two_phase_commit=bool(config["transaction.two.phase.commit.enable"]),
        transaction_version=features.transaction_version(config),
        max_batch_bytes=config.integer("message.max.bytes"),
        may_be_deposed=config.clustered,
    )


class LoadedTransactions:
    """What a load of a partition of `__transaction_state` calls: it passes the records to the transaction coordinator."""

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator

    def begin(self, partition: int, log: CoordinatorLog) -> None:
        """See `Shards`."""
        self._coordinator.begin(partition, log, log.place[2])

    def replay(self, partition: int, batches: list[LogBatch]) -> Iterator[None]:
        """See `Shards`."""
        return self._coordinator.replay_batches(partition, batches)

    def loaded(self, partition: int) -> Iterator[None]:
        """See `Shards`."""
        return self._coordinator.loaded(partition)

    def lead_on(self, partition: int, leader_epoch: int) -> None:
        """See `Shards`."""
        self._coordinator.lead_on(partition, leader_epoch)

    def resign(self, partition: int) -> None:
        """See `Shards`."""
        self._coordinator.resign(partition)


class FlushAtEnd:
    """Sends the queued requests to other brokers at the end of a round of the turn. A new object is made for each call.

    :param queue: what is flushed.
    """

    name = "the queue of requests to other brokers"

    def __init__(self, queue: RemoteMarkers | RemoteTransactions | None) -> None:
        self._queue = queue

    def write(self) -> None:
        """Send the requests."""
        if self._queue is not None:
            self._queue.flush()


class KnownPartitions:
    """The existing partitions; see `Topics`. :param groups: has the directory of the topics."""

    def __init__(self, groups: GroupService) -> None:
        self._groups = groups

    def exists(self, topic: str, partition: int) -> bool:
        """See `Topics`."""
        self._groups.refresh()  # a new leader may look before its directory has all topics that existed before its leadership
        known = self._groups.topics.get(topic)
        return known is not None and bool(known.exists(partition))


class _TransactionsHost(ForwardedHost):
    """See `Host`. :param service: whose view it uses."""

    short_responses = True

    def __init__(self, service: TransactionService, config: BrokerConfig, permits_of: PermitsOf) -> None:
        super().__init__(config, permits_of, Place.TRANSACTIONS)
        self._service = service
        self._owner_of = lru_cache(OWNERS_KEPT)(owners.number_of)

    def call(self, request: ServedRequest, row: ApiRow, version: int, permits: Permits) -> TransactionCall:
        """See `Host`."""
        context = request.context

        def close(reason: str) -> None:
            log.warning("closing the connection of %s: %s", context.client, reason, extra=context.log_fields)
            request.answer(b"", 0, int(Status.FAILED))

        return TransactionCall(
            version,
            context.client,
            context.connection_id,
            context.principal,
            self._service.view,
            close,
            self._owner_of(context.peer),
            context.client_id,
            permits,
        )


class TransactionService:
    """The transactional ids of a coordinator process.

    :param groups: the groups of the same process: the service uses their directory of the topics and their pending offsets.
    :param permits_of: see `PermitsOf`. :param security: of the connections to other brokers.
    """

    def __init__(
        self,
        config: BrokerConfig,
        log_dirs: Sequence[Path],
        groups: GroupService,
        producer_ids: ProducerIdStock,
        turn: AppendTurn,
        flusher: Flusher,
        permits_of: PermitsOf = unrestricted,
        security: PeerSecurity | None = None,
    ) -> None:
        self._config = config
        self._groups = groups
        self._topics = groups.topics
        self._loop = asyncio.get_running_loop()
        self._turn = turn
        self._flusher = flusher
        self._producer_ids = producer_ids
        self._timers = LoopTimers(self._loop)
        self._host = _TransactionsHost(self, config, permits_of)
        self._pipeline = Pipeline(self._host)
        self._steps = RequestSteps(self._loop)
        self._reader = ThreadPoolExecutor(1, "transaction-load", enter_lane, (TRANSACTION_LOAD_LANE,))
        self._state = CoordinatedTopic(
            TRANSACTION_STATE,
            log,
            "transactions",
            log_dirs,
            self._reader,
            self._make_log,
            True,
            lambda took_ms: self._load_times.add(self._timers.now_ms(), took_ms),
        )
        self._marker_logs = MarkerLogs(self._topics, turn, self._make_log)
        self._marks = SlotMarks(self._marker_logs, config.clustered)
        self._peers: list[BrokerPeers] = []
        self._remote_markers: RemoteMarkers | None = None
        self._remote_transactions: RemoteTransactions | None = None
        if config.clustered:
            from odradek.processes.coordinator.transactions.other_brokers import (  # a single broker does not need it
                BrokerPeers,
                RemoteMarkers,
                RemoteTransactions,
            )

            # Connections of their own: a question need not wait for the response to markers, which waits for replicas.
            self._peers = [BrokerPeers(self._loop, config, security) for _ in range(2)]
            self._remote_markers = RemoteMarkers(
                self._peers[0], lambda: self._turn.add(FlushAtEnd(self._remote_markers))
            )
            self._remote_transactions = RemoteTransactions(
                self._peers[1], lambda: self._turn.add(FlushAtEnd(self._remote_transactions))
            )
        self.verification = PartitionVerification(
            self._timers,
            lambda: self.coordinator,
            self._marks,
            self._coordinator_of,
            self._remote_transactions,
            lambda: config.integer("add.partitions.to.txn.retry.backoff.ms"),
            lambda: config.integer("add.partitions.to.txn.retry.backoff.max.ms"),
        )
        self._markers = LocalMarkers(groups, self._marker_logs, self.verification.note_marker)
        self._settings = settings_of(config)
        self._owner_of = lru_cache(OWNERS_KEPT)(owners.number_of)
        if not config[VERIFICATION_KEY]:
            log.warning(
                "%s is false: a late batch of a client of transaction version 1 can open a hanging transaction",
                VERIFICATION_KEY,
            )
        self._newest = NewestConnections()
        self._newest_markers = NewestMarkers()
        self._orphans: asyncio.Task[None] | None = None
        self._searches: set[asyncio.Task[None]] = set()
        self._load_times = LoadTimes()
        self._timer_handles: list[asyncio.TimerHandle] = []
        self.coordinator = self._make(1)
        self._meter = TransactionMeter(self.coordinator.counts)
        self.view = self._make_view()

    def _make(self, partitions: int) -> TransactionCoordinator:
        environment = Environment(
            MarkerDelivery(
                self._config.node_id, self._leader_of, self._markers, self._remote_markers, self._epoch_of_open
            ),
            self._producer_ids,
            self._marks,
            KnownPartitions(self._groups),
            self._state.diverged,
        )
        return TransactionCoordinator(self._timers, self._settings, partitions, environment)

    def _make_view(self) -> TransactionView:
        return TransactionView(
            self._config,
            self.coordinator,
            self._topics,
            self._producer_ids,
            self._markers,
            self._offsets_partitions,
            self._newest,
            self._newest_markers,
        )

    def _offsets_partitions(self) -> int:
        topic = self._topics.get(CONSUMER_OFFSETS)
        if topic is None:  # the producer's FindCoordinator request for the group creates the topic later
            return self._config.integer("offsets.topic.num.partitions")
        return topic.published_count()

    def _make_log(self, place: tuple[int, int, int]) -> CoordinatorLog:
        return CoordinatorLog(
            self._loop,
            self._turn,
            place,
            0,
            LARGEST_BATCH,  # the coordinator limits its records, see `Settings.max_batch_bytes`; markers are small
            APPEND_TIMEOUT_MS,
            self._flusher,
            not_written=ErrorCode.NOT_ENOUGH_REPLICAS,  # with this error the coordinator need not load the partition again
        )

    def _leader_of(self, topic: str, partition: int) -> int | None:
        """The broker that leads a partition; this broker, if the partition does not exist."""
        slot = self._marker_logs.slot_of(topic, partition)
        if slot < 0 or slots.leadership(slot) is not None:
            return self._config.node_id
        leader_id = views.view_of(slot).leader_id
        return None if leader_id < 0 or leader_id == self._config.node_id else int(leader_id)

    def _coordinator_of(self, transactional_id: str) -> RemoteCoordinator | None:
        """The broker that coordinates a transactional id, as this broker knows; None if it is not known."""
        topic = self._topics.get(TRANSACTION_STATE)
        count = 0 if topic is None else topic.published_count()
        if topic is None or not count:
            return None
        slot = topic.slot(partition_for(transactional_id, count))
        if slots.leadership(slot) is not None:
            return RemoteCoordinator(self._config.node_id, slots.present_epoch(slot))
        view = views.view_of(slot)
        unknown = view.leader_id < 0 or view.leader_id == self._config.node_id
        return None if unknown else RemoteCoordinator(view.leader_id, view.leader_epoch)

    def _coordinator_id(self, transactional_id: str) -> int | None:
        coordinator = self._coordinator_of(transactional_id)
        return None if coordinator is None else coordinator.broker_id

    # -- the process ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start with the partitions that this broker leads now."""
        self.follow()
        self._every(
            TIMEOUTS_OF_TRANSACTIONS,
            "transaction.abort.timed.out.transaction.cleanup.interval.ms",
            self._abort_timed_out,
        )
        self._every(EXPIRY_OF_IDS, "transaction.remove.expired.transaction.cleanup.interval.ms", self._expire)

    def _every(self, task: str, key: str, work: Callable[[], dict[str, str] | None]) -> None:
        interval_s = self._config.integer(key) / 1000
        own_tasks.expect(task, self._config.integer(key))
        number = len(self._timer_handles)

        def due() -> None:
            try:
                own_tasks.ran(task, work())
            except Exception as error:
                log.exception("the transaction coordinator's task '%s' failed; retrying in %g s", task, interval_s)
                own_tasks.ended(task, error)
            self._timer_handles[number] = self._loop.call_later(interval_s, due)

        self._timer_handles.append(self._loop.call_later(interval_s, due))

    def _abort_timed_out(self) -> None:
        count = self.coordinator.abort_timed_out()
        if count:
            log.info("aborting %d transactions that exceeded their timeout", count)

    def _expire(self) -> dict[str, str]:
        """Remove expired ids. Returns the failures of the last time, whose appends have ended by now."""
        failures = self.coordinator.not_expired
        count = self.coordinator.expire()
        if count:
            log.info("removing %d expired transactional ids", count)
        return failures

    def close(self) -> None:
        """Stop serving. The caller has written the queued appends, and with flush.messages also synced them; not those behind
        a long batch that is still built."""
        for handle in self._timer_handles:
            handle.cancel()
        if self._orphans is not None:
            self._orphans.cancel()
        for search in self._searches:
            search.cancel()
        self._producer_ids.close()
        self._state.close()
        self._marker_logs.close()
        for peers in self._peers:
            peers.close()
        self._reader.shutdown(wait=False, cancel_futures=True)

    def follow(self) -> None:
        """Compare with the topics and the slots of `__transaction_state`: begin and resign partitions. The groups must have
        updated the directory of the topics before."""
        topic = self._topics.get(TRANSACTION_STATE)
        if not self._state.started and topic is not None and self._state.led(self._topics):
            count = topic.published_count()
            if count:  # its number of partitions must not change, because it determines the partition of each id
                self.coordinator = self._make(count)
                self._meter = TransactionMeter(self.coordinator.counts)
                self.view = self._make_view()
                self._state.serve(LoadedTransactions(self.coordinator))
        self._settings.transaction_version = features.transaction_version(self._config)
        self._settings.max_batch_bytes = self._config.integer("message.max.bytes")
        self._state.follow(self._topics)
        self._marker_logs.look_at_all()
        if self._remote_markers is not None and self._remote_transactions is not None:
            self._remote_markers.follow(self._leader_of)
            self._remote_transactions.follow(self._coordinator_id)
        self._end_orphans_once()

    def look(self, moved: Collection[int]) -> None:
        """Acknowledge appends and markers in those partitions whose slots are in `moved`."""
        self._state.look(moved)
        self._marker_logs.look(moved)

    def _end_orphans_once(self) -> None:
        """Once all transactional ids and all groups are loaded, abort the orphaned transactions; see `OrphanedTransactions`."""
        if (
            self._orphans is not None
            or self._config.clustered
            or not self._config["odradek.transactions.after.unclean.start"]
        ):
            return
        if self._owners() is not None:
            self._orphans = supervised(
                self._loop,
                "the abort of orphaned transactions",
                lambda: OrphanedTransactions(self._owners, self._markers, self._reader).end_all(),
            )

    def _owners(self) -> dict[int, Owner] | None:
        """The open transactions of this broker's transactional ids; None until all ids and all groups are loaded."""
        topic = self._topics.get(TRANSACTION_STATE)
        all_led = topic is None or len(self._state.led(self._topics)) == topic.count
        if not all_led or self.coordinator.loading or self._groups.loading:
            return None
        return self.coordinator.open_transactions()

    def _epoch_of_open(self, marker: Marker, then: Callable[[int | None], None]) -> None:
        """Find, in a thread, the coordinator epoch that a partition has for the open transaction of a producer; None: it has no
        open transaction."""
        slot = self._marker_logs.slot_of(marker.topic, marker.partition)

        def find() -> int | None:
            found = slots.transactions_of(slot) if slot >= 0 else []
            return next((one["coordinator_epoch"] for one in found if one["producer_id"] == marker.producer_id), None)

        async def find_and_tell() -> None:
            try:
                epoch = await self._loop.run_in_executor(self._reader, find)
            except (slots.SlotChanged, slots.SlotBusy):  # the next attempt to write the marker looks again
                epoch = marker.coordinator_epoch
            except Exception:
                log.exception("cannot search %s-%d for an open transaction", marker.topic, marker.partition)
                epoch = marker.coordinator_epoch
            then(epoch)

        task = self._loop.create_task(find_and_tell())
        self._searches.add(task)
        task.add_done_callback(self._searches.discard)

    def count(self) -> None:
        """Add the events since the last call to the counters of this process. Called twice a second."""
        self._meter.tick()

    def report(self) -> TransactionReport | None:
        """The state of the transactions, for the reporter; None if `__transaction_state` does not exist."""
        if not self._state.started:
            return None
        return report_of(self.coordinator, self._state.loading, self._load_times.recent(self._timers.now_ms()))

    # -- requests -------------------------------------------------------------------------------------------------

    def serves(self, request: Arrival) -> bool:
        """Whether this service executes a forwarded request."""
        if request.kind == Kind.KAFKA:
            return request.api_key in self._host.rows
        return request.kind == Kind.ADD_PARTITIONS

    async def execute(self, request: Arrival) -> ForwardReply:
        """Execute a request that a task serves, because an earlier request of its connection has an unfinished task."""
        self._groups.refresh()
        awaited = AwaitedRequest(request)
        self.at_once(awaited)
        return await awaited.reply

    def at_once(self, request: ServedRequest) -> bool:
        """Serve a request without a task; returns whether this service executes its API."""
        if request.kind == Kind.ADD_PARTITIONS:
            self._answer_questions(request)
            return True
        if request.kind != Kind.KAFKA or request.api_key not in self._host.rows:
            return False
        self._begin(request, Stepwise(self._pipeline.steps(request), lambda: request.answered))
        return True

    def _begin(self, request: ServedRequest, job: Stepwise) -> None:
        """Execute a step of a request now, and the others in later turns of the loop, or when it has what it waits for."""
        if not job.step():
            self._answer(request, job.result)
        elif job.waits is not None:
            job.waits.then(lambda: self._go_on(request, job))
        else:
            self._steps.begin(request, self._in_turns(request, job))

    def _go_on(self, request: ServedRequest, job: Stepwise) -> None:
        """Continue a request that has what it waited for. Its errors are not those of the code that has set this."""
        try:
            self._begin(request, job)
        except Exception:
            context = request.context
            log.exception("a request of %s failed; its connection is closed", context.client, extra=context.log_fields)
            request.answer(b"", 0, int(Status.FAILED))

    def _in_turns(self, request: ServedRequest, job: Stepwise) -> Steps:
        """The steps of a request until it waits for something."""
        yield
        while job.step():
            if job.waits is not None:
                job.waits.then(lambda: self._go_on(request, job))
                return
            yield
        self._answer(request, job.result)

    def _answer(self, request: ServedRequest, executed: Outcome | NotServed | None) -> None:
        if isinstance(executed, NotServed):
            reply = refused(executed, request, log)
            request.answer(b"", 0, int(reply.status))
        elif executed is not None:
            count_errors(uncounted_errors(executed), request.context)
            request.answer(executed.data)

    def _answer_questions(self, request: ServedRequest) -> None:
        """Answer the questions of a worker, whose appends wait for them."""
        try:
            questions = decode_questions(request.payload)
        except MalformedFrame as error:
            log.error(
                "cannot decode the questions of a worker about transactions: %s; the worker refuses the batches", error
            )
            request.answer(b"", 0, int(Status.MALFORMED))
            return
        owner = self._owner_of(request.context.peer)
        asked = [
            Question(
                transactional_id, producer_id, producer_epoch, verify_only, places[first : first + MOST_ADDED], owner
            )
            for transactional_id, producer_id, producer_epoch, verify_only, places in questions
            for first in range(0, len(places), MOST_ADDED)
        ]

        def answered(answers: list[Mapping[TopicPartition, ErrorCode]]) -> None:
            answered = [(codes, question.places) for question, codes in zip(asked, answers, strict=True)]
            request.answer(encode_codes([codes[place] for codes, places in answered for place in places]))

        if sum(len(question.places) for question in asked) > MOST_ADDED:
            self._ask_in_turns(request, asked, answered)
        else:
            gather(asked, self.verification.ask, answered)

    def _ask_in_turns(
        self,
        request: ServedRequest,
        asked: Sequence[Question],
        then: Callable[[list[Mapping[TopicPartition, ErrorCode]]], None],
    ) -> None:
        """As `gather`, but each question is asked in a later turn of the loop, when the one before it is answered."""
        answers: list[Mapping[TopicPartition, ErrorCode]] = []

        def ask() -> Steps:
            yield
            self.verification.ask(asked[len(answers)], answered)

        def answered(codes: Mapping[TopicPartition, ErrorCode]) -> None:
            answers.append(codes)
            if len(answers) < len(asked):
                self._steps.begin(request, ask())
            else:
                then(answers)

        self._steps.begin(request, ask())

    # -- groups ---------------------------------------------------------------------------------------------------

    def add_or_verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        group_partition: int,
        verify_only: bool,
        then: Callable[[ErrorCode], None],
    ) -> None:
        """See `TransactionsOfGroups`."""
        place = CONSUMER_OFFSETS, group_partition
        question = Question(transactional_id, producer_id, producer_epoch, verify_only, (place,))
        self.verification.ask(question, lambda codes: then(codes[place]))
