"""The coordinator: the broker's membership in the cluster, the controller if elected, the group coordinator, and the admin
APIs.

What it does: opens the metadata store, begins or resumes the broker's session, registers the broker, becomes controller,
makes the slots agree with the store, and then executes the requests that workers forward. The store thread (`store_service`)
executes them; only this thread uses the store and writes the partition table. The event loop moves frames and serves groups,
and never waits for a disk.

What it must not do: serve clients directly, or take part in Produce and Fetch.

How it ends: on SIGTERM, after the requests under way are answered.

What its death causes: Produce and Fetch are not disturbed. Forwarded requests that were not sent yet wait for its successor;
requests that were already sent get a retriable error. The successor takes its whole state from the store and the slots.
"""

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import uvloop

import odradek._ext.partition.slot_upkeep as slot_upkeep
from odradek._ext.net.arrivals import Arrival
from odradek._ext.partition.append_files import sweep_append_files
from odradek._ext.partition.flusher import Flusher
from odradek._ext.protocol.arrays import free_waiting
from odradek._ext.shm import client_quotas
from odradek._ext.shm.layout import ProcessState
from odradek._ext.shm.locks import Lane, enter_lane
from odradek._ext.shm.metering import count_loop_delay
from odradek._ext.shm.process import release_start_pages
from odradek._ext.shm.topics import TopicDirectory
from odradek.api.groups.group_call import OffsetTree
from odradek.api.topics.topic_changes import TopicChange
from odradek.controller.store_errors import NotController
from odradek.metadata.cluster import BrokerIdTaken, WrongCluster
from odradek.metadata.store import StoreError
from odradek.metrics.coordinator_report import Parts, encode_parts
from odradek.metrics.transactions import encode_transactions
from odradek.net.forward_frames import ForwardReply, Kind, Status
from odradek.net.forward_server import ForwardServer
from odradek.processes import logs, own_tasks
from odradek.processes.authorization import authorization_of, permits_by
from odradek.processes.context import ProcessContext
from odradek.processes.coordinator.cut_socket import CutSocket
from odradek.processes.coordinator.delayed_deletions import DelayedDeletions
from odradek.processes.coordinator.embedded_membership import EmbeddedMembership
from odradek.processes.coordinator.groups.service import GroupService
from odradek.processes.coordinator.internal_topics.coordinator_log import AppendTurn
from odradek.processes.coordinator.producer_id_stock import ProducerIdStock
from odradek.processes.coordinator.security.token_credentials import Derivation, TokenCredentials
from odradek.processes.coordinator.store_service import SWEEP_RETRY_S, StoreService, Unfinished
from odradek.processes.coordinator.store_thread import StoreThread, Work
from odradek.processes.coordinator.topic_waits import TopicWaits
from odradek.processes.coordinator.transactions.service import TransactionService
from odradek.processes.coordinator.turns import Turns
from odradek.processes.metering import BusyTime, UncountedErrors, count_errors
from odradek.processes.peer_security import peer_security_of
from odradek.security.owners import owner_of
from odradek.security.sasl.scram_credential import BY_NAME
from odradek.security.sasl.settings import key_sources
from odradek.shm.published_tasks import Area
from odradek.shm.removed_files import RemovedFiles
from odradek.stepwise import Steps, Stepwise
from odradek.topic_partition import TopicPartition

log = logging.getLogger("odradek.controller")

if TYPE_CHECKING:
    from concurrent.futures import Future

    from odradek.processes.coordinator.cluster.service import ClusterService
    from odradek.processes.coordinator.security.jwks_reader import JwksReader
    from odradek.processes.coordinator.security.tls_reload import TlsReload
    from odradek.security.peers import PeerSecurity

TICK_S = 0.5
UPKEEP, SWEEP, KEY_STORES = "upkeep of the coordinator", "sweep of the metadata tree", "look at the key stores"
OFFSETS_IN_TREE = "offsets in the tree"
"""The owner of the steps of group requests in the store thread."""
QUOTAS_EVERY_S = 60.0
QUOTAS_KEPT_MS = 3_600_000
STOP_LIMIT_S = 10.0


class Coordinator:
    """The coordinator process. Only the loop's thread uses it, except for `_store_service`, which the store thread uses."""

    def __init__(self, context: ProcessContext) -> None:
        self._shm = context.shm
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._thread = StoreThread(enter_lane, Lane.LANE_SECOND)
        self._tls = _tls_reload(context)
        self._jwks = _jwks_reader(context, self._loop)
        self._looking: asyncio.Future[None] | None = None
        self._security = peer_security_of(context)
        self._cluster = _cluster_service(context, self._tls, self._thread, self._security)
        membership = EmbeddedMembership(context, self._tls) if self._cluster is None else self._cluster.membership
        self._store_service = StoreService(
            context, membership, permits_by(authorization_of(context.config, context.acls))
        )
        self._authorization = authorization_of(context.config, context.acls)  # of the loop
        # In a cluster, the slots are complete only after the controller's first request, so no topic counts as deleted.
        stored = self._store_service.topic_names if self._cluster is None else lambda: None
        self._turn = AppendTurn(self._loop)
        self._flusher = Flusher()
        self._groups = GroupService(
            context.config,
            context.log_dirs,
            self._offset_tree(),
            stored,
            self._turn,
            self._flusher,
            permits_by(self._authorization),
        )
        self._producer_ids = ProducerIdStock(self._loop, self._fetch_producer_ids)
        self._transactions = TransactionService(
            context.config,
            context.log_dirs,
            self._groups,
            self._producer_ids,
            self._turn,
            self._flusher,
            permits_by(self._authorization),
            self._security,
        )
        self._groups.transactions = self._transactions
        self._server = ForwardServer(self._serve, self._at_once, self._end_of_read)
        self._cuts = CutSocket(context, self._loop)
        self._deletions = DelayedDeletions()
        self._topic_waits = TopicWaits(self._known_topics)
        self._token_credentials = TokenCredentials(
            self._loop, len(BY_NAME) * context.config.integer("odradek.delegation.tokens.max")
        )
        self._removed_files = RemovedFiles(sweep_append_files)
        self._stepping: set[asyncio.Task[Any]] = set()  # of requests whose steps the store thread executes
        self._stopped = asyncio.Event()
        self._ending = False  # the supervisor stops the broker
        self._busy = BusyTime()
        self._tick_due = self._quotas_due = 0.0
        self._ticker: asyncio.TimerHandle | None = None
        self._opening: asyncio.Future[None] | None = None
        self._sweeping: asyncio.Future[dict[str, str]] | None = None
        self._reloading: asyncio.Future[None] | None = None
        self._followed_version = -1  # the metadata version that the groups have followed
        self._joining: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Serve until SIGTERM. Raises the exceptions of `StoreService.open`."""
        self._loop.add_signal_handler(signal.SIGTERM, self._stop)
        self._loop.add_reader(self._shm.event_fd(), self._on_wake)
        assert self._context.forward_listener is not None
        own_tasks.report_to(self._context.tasks, Area.COORDINATOR)
        for task in (UPKEEP, SWEEP, own_tasks.OPENING, *(() if self._tls is None else (KEY_STORES,))):
            own_tasks.expect(task, round(TICK_S * 1000))
        if self._jwks is not None:
            self._jwks.start()
        if self._cluster is None:
            await self._in_store_thread(self._store_service.open)
        else:
            await self._cluster.start()
        self._groups.start()  # before the first request, so that it sees the topics before a request creates one
        self._transactions.start()
        await self._server.start(self._context.forward_listener)
        self._tick()
        if self._cluster is not None:
            await self._join(self._cluster)
        self._shm.set_state(ProcessState.SERVING)
        self._shm.wake(0)
        release_start_pages(self._loop)
        self._cuts.start()
        await self._stopped.wait()
        if self._joining is not None and not self._joining.cancel():
            self._joining.result()
        self._shm.set_state(ProcessState.STOPPING)
        self._cuts.close()
        if self._jwks is not None:
            self._jwks.close()
        self._turn.run()
        self._flusher.close()
        self._transactions.close()
        self._groups.close()
        if self._ticker is not None:
            self._ticker.cancel()
        await self._server.stop(STOP_LIMIT_S)
        await self._close_store()
        if self._cluster is not None:
            await self._cluster.close()
        self._thread.shutdown()
        self._token_credentials.close()

    def _stop(self) -> None:
        self._stopped.set()
        if self._cluster is not None:
            self._cluster.hurry()

    async def _join(self, cluster: "ClusterService") -> None:
        """Join the cluster. The broker serves only after its first registration. The successor of a coordinator that died
        serves at once, even if ZooKeeper does not answer, because fetch requests and produce requests with acks=all do not need
        it. Those with acks=0 and acks=1 are refused from half the session timeout after the end of its predecessor on, until it
        has reached ZooKeeper (decision 30)."""

        def ended(joining: "asyncio.Task[None]") -> None:
            if not joining.cancelled() and joining.exception() is not None:
                self._stopped.set()  # `run` raises the exception

        self._joining = self._loop.create_task(cluster.join(self._store_service.open))
        self._joining.add_done_callback(ended)
        if not cluster.is_registered:
            stopped = self._loop.create_task(self._stopped.wait())
            await asyncio.wait((self._joining, stopped), return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            if self._joining.done():
                self._joining.result()  # a broker that cannot join must not count as started

    async def _in_store_thread(self, work: Callable[[], None]) -> None:
        await self._loop.run_in_executor(self._thread, work)

    async def _close_store(self) -> None:
        """Close the store after all steps of requests that are queued, or that must be executed because their change must not
        stay half done. Requests that were not answered by now have been cancelled: their workers answer them with a retriable
        error."""
        if self._stepping:  # the cancelled ones queue their last steps
            await asyncio.wait(self._stepping, timeout=STOP_LIMIT_S)
        await asyncio.wrap_future(self._thread.submit_last(self._store_service.close, STOP_LIMIT_S))

    async def _in_steps(self, steps: Steps, request: Arrival | None = None) -> Any:
        """Execute the steps of a generator in the store thread, and other work between them. Returns what the generator
        returns. If the client disconnects, the generator is closed as soon as it may be (`_abandon`).

        :param request: its client owns the steps, and it receives their time; None: a request of a group.
        """
        job = Stepwise(steps)
        owner, kind = OFFSETS_IN_TREE, Work.REQUESTS
        if request is not None:
            owner = owner_of(request.context.principal, request.context.peer)
            kind = Work.CREDENTIALS if request.kind == Kind.CREDENTIAL else Work.REQUESTS

        def step() -> bool:
            began = time.perf_counter_ns()
            try:
                return job.step()
            finally:
                if request is not None:
                    request.work_us += (time.perf_counter_ns() - began) // 1000

        task = asyncio.current_task()
        assert task is not None
        self._stepping.add(task)
        try:
            while await asyncio.wrap_future(self._thread.submit_for(owner, kind, step)):
                pass
        except asyncio.CancelledError:
            self._abandon(job, owner, kind)
            raise
        finally:
            self._stepping.discard(task)
        return job.result

    def _abandon(self, job: Stepwise, owner: str, kind: Work) -> None:
        """Close the generator of a request whose client has disconnected, after the steps that it must still execute. They are
        behind the step that the thread may be executing now."""

        def abandoned(future: "Future[bool]") -> None:
            if future.cancelled():
                return
            error = future.exception()
            if error is not None:
                log.error("a request whose client has disconnected failed: %r", error)
            elif future.result():
                with contextlib.suppress(RuntimeError):  # the broker stops: the next start completes the change
                    self._thread.submit_for(owner, kind, job.abandon).add_done_callback(abandoned)

        with contextlib.suppress(RuntimeError):
            self._thread.submit_for(owner, kind, job.abandon).add_done_callback(abandoned)

    def _offset_tree(self) -> OffsetTree:
        """The offsets in the metadata tree, for the loop. Commits to a group and its deletion take turns: a commit whose client
        has disconnected, but which is not cancelled yet, must not write after the commit that the client sends on its next
        connection.
        """
        turns = Turns()

        async def read(group_id: str, places: list[TopicPartition]) -> dict[TopicPartition, int]:
            offsets: dict[TopicPartition, int] = await self._in_steps(
                self._store_service.read_offsets(group_id, places)
            )
            return offsets

        async def write(group_id: str, offsets: dict[TopicPartition, int]) -> set[str]:
            async with turns.of(group_id):
                missing: set[str] = await self._in_steps(self._store_service.write_offsets(group_id, offsets))
            return missing

        def has_members(group_id: str) -> asyncio.Future[bool]:
            return self._loop.run_in_executor(self._thread, self._store_service.has_members, group_id)

        async def delete(group_id: str) -> bool:
            async with turns.of(group_id):
                existed: bool = await self._in_steps(self._store_service.delete_group(group_id))
            return existed

        return OffsetTree(read, write, has_members, delete)

    async def _serve(self, request: Arrival) -> ForwardReply:
        if request.kind == Kind.METRICS:
            return await self._report()
        if request.kind == Kind.KEYS:
            return ForwardReply(Status.FAILED, 0) if self._jwks is None else await self._jwks.answer(request.payload)
        if self._transactions.serves(request):
            return await self._transactions.execute(request)
        if request.kind == Kind.KAFKA and self._groups.serves(request):
            return await self._groups.execute(request)
        if self._cluster is not None and self._cluster.replicas.serves(request):
            return await self._cluster.execute(request)
        errors: list[UncountedErrors | None] = []
        executed: ForwardReply | Unfinished | Derivation = await self._in_steps(
            self._store_service.execute(request, errors.append), request
        )
        if isinstance(executed, Unfinished):
            if isinstance(executed.waits, TopicChange):
                await self._topic_waits.wait(executed.waits, request.deadline)
            else:
                await self._deletions.wait(executed.waits, request.deadline)
            reply: ForwardReply = await self._in_steps(executed.finish(), request)
            # The worker answers after its directory of the topics has what the response waited for.
            reply = reply._replace(metadata_version=max(reply.metadata_version, self._shm.metadata_version))
        elif isinstance(executed, Derivation):
            reply = await self._token_credentials.answer(executed)
        else:
            reply = executed
        for uncounted in errors:
            count_errors(uncounted, request.context)
        return reply

    def _at_once(self, request: Arrival) -> bool:
        """Serve a request without a task, if its API supports that; returns whether it was served. The appends of all
        requests of one read are written at the end of the read."""
        if not self._turn.held:  # the first request of this read
            self._groups.refresh()
            self._turn.held = True
        return self._transactions.at_once(request) or self._groups.at_once(request)

    def _end_of_read(self) -> None:
        """All requests of one read were handed over: write their appends."""
        if self._turn.held:
            self._turn.run()

    def _known_topics(self) -> TopicDirectory:
        self._groups.refresh()
        return self._groups.topics

    def _follow(self) -> None:
        self._groups.follow()
        self._transactions.follow()

    async def _fetch_producer_ids(self, number: int) -> list[int]:
        return await self._loop.run_in_executor(self._thread, self._store_service.producer_ids, number)

    async def _report(self) -> ForwardReply:
        """The data that the reporter cannot read from the shared memory: the groups, and a report of the transactions."""
        transactions = self._transactions.report()
        encoded = None if transactions is None else encode_transactions(transactions)
        return ForwardReply(Status.OK, 0, encode_parts(Parts(await self._groups.report(), encoded)))

    def _on_wake(self) -> None:
        """The metadata changed, a partition of `__consumer_offsets` changed, or a process died."""
        self._shm.drain_event()
        if self._shm.stopping and not self._ending:
            self._ending = True
            self._groups.end()  # the workers wait for the responses before they end
        self._removed_files.look()
        process_died = self._shm.take_full_look()
        if process_died:
            slot_upkeep.recover_dead()
        version, changed_slots = self._shm.metadata_version, self._shm.take_ready()
        if self._cluster is not None:
            self._cluster.look(changed_slots, process_died)
            self._deletions.look(frozenset(changed_slots))
        # Not before `open`: groups that are loaded earlier would keep the offsets of deleted topics.
        if self._cluster is not None or self._store_service.is_open:
            if process_died or version != self._followed_version:
                self._followed_version = version
                self._follow()
                self._topic_waits.look()
            else:
                moved = frozenset(changed_slots)
                self._groups.look(moved)
                self._transactions.look(moved)
        self._shm.confirm_version(version)

    def _tick(self) -> None:
        """Twice a second. A part that fails does not stop the ticks: without them the supervisor would kill the coordinator."""
        self._shm.beat()
        self._server.tick()
        try:
            self._upkeep()
            own_tasks.ran(UPKEEP)
        except Exception as error:
            log.exception("the coordinator's periodic work failed; retrying in %g s", TICK_S)
            own_tasks.ended(UPKEEP, error)
        finally:
            self._tick_due = self._loop.time() + TICK_S
            self._ticker = self._loop.call_at(self._tick_due, self._tick)

    def _upkeep(self) -> None:
        self._removed_files.look()
        free_waiting()
        self._free_quotas()
        if self._authorization is not None:
            self._authorization.tick()
        self._follow()
        self._transactions.count()
        logs.report_failures()
        if self._tick_due:
            count_loop_delay(max(0, int((self._loop.time() - self._tick_due) * 1e6)))
        self._busy.tick()
        self._look_at_key_stores()
        self._reload_file()
        if self._security is not None:
            self._security.refresh()
        if self._cluster is not None:
            self._deletions.look_at_all()
            self._cluster.upkeep()
            self._begin_sweeping()
            return
        if self._opening is None or self._opening.done():
            self._opening = self._loop.run_in_executor(self._thread, self._store_service.open_waiting_logs)
            self._opening.add_done_callback(_report_opening)
        self._begin_sweeping()

    def _free_quotas(self) -> None:
        """Free the buckets of clients that have sent nothing for `QUOTAS_KEPT_MS`, as Kafka does."""
        now = self._loop.time()
        if now >= self._quotas_due:
            self._quotas_due = now + QUOTAS_EVERY_S
            client_quotas.free_unused(QUOTAS_KEPT_MS)

    def _look_at_key_stores(self) -> None:
        if self._tls is not None and (self._looking is None or self._looking.done()):
            self._looking = self._loop.run_in_executor(self._thread, self._tls.look)
            self._looking.add_done_callback(_report_look)

    def _reload_file(self) -> None:
        """Begin to read the configuration file again, if the supervisor has received SIGHUP."""
        running = self._context.running
        due = running.reload_is_due and self._store_service.is_open
        if due and (self._reloading is None or self._reloading.done()):
            self._reloading = self._loop.run_in_executor(self._thread, self._store_service.reload_file)
            self._reloading.add_done_callback(_report_reload)

    def _begin_sweeping(self) -> None:
        if self._sweeping is None or self._sweeping.done():
            self._sweeping = self._loop.run_in_executor(self._thread, self._store_service.sweep_tree)
            self._sweeping.add_done_callback(_report_sweep)


def _report_opening(opening: "asyncio.Future[None]") -> None:
    """Log a failure of `StoreService.open_waiting_logs`."""
    if opening.cancelled():
        return
    if (error := opening.exception()) is not None:
        log.error("cannot open the logs that wait for disk space: %r; retrying in %g s", error, TICK_S)
    own_tasks.ended(own_tasks.OPENING, error)


def _cluster_service(
    context: ProcessContext, tls: "TlsReload | None", thread: StoreThread, security: "PeerSecurity | None"
) -> "ClusterService | None":
    """Membership in the cluster; None for a single broker, which does without its modules and the client of ZooKeeper."""
    if not context.config.clustered:
        return None
    from odradek.processes.coordinator.cluster.service import ClusterService

    return ClusterService(context, tls, thread, security)


def _tls_reload(context: ProcessContext) -> "TlsReload | None":
    if context.tls is None:
        return None
    # With the TLS library, which the supervisor has loaded already.
    from odradek.processes.coordinator.security.tls_reload import TlsReload

    return TlsReload(context.tls.published, context.config, context.shm.wake_all, faults=context.faults)


def _jwks_reader(context: ProcessContext, loop: asyncio.AbstractEventLoop) -> "JwksReader | None":
    """What reads the keys of identity providers; None if no listener has a URL of keys."""
    sources = key_sources(context.config)
    if not sources:
        return None
    from odradek.processes.coordinator.security.jwks_reader import JwksReader  # with HTTP, which few brokers need

    return JwksReader(loop, sources, context.jwks, context.shm.wake_all)


def _report_reload(reload: "asyncio.Future[None]") -> None:
    """Log a failure of `StoreService.reload_file` that is none of the file."""
    if not reload.cancelled() and (error := reload.exception()) is not None:
        log.error(
            "cannot use the changed configuration file: %r; some of its settings may be in use already; the next reload "
            "(SIGHUP) uses all of it",
            error,
        )


def _report_look(look: "asyncio.Future[None]") -> None:
    """Log a failure of `TlsReload.look` that is none of the settings or files."""
    if look.cancelled():
        return
    if (error := look.exception()) is not None:
        log.error("cannot look at the key stores of listeners: %r; retrying in %g s", error, TICK_S)
    own_tasks.ended(KEY_STORES, error)


def _report_sweep(sweep: "asyncio.Future[dict[str, str]]") -> None:
    """Log a failure of `StoreService.sweep_tree`."""
    if sweep.cancelled():
        return
    if (error := sweep.exception()) is not None:
        log.error(
            "cannot delete the offsets of deleted topics from the metadata tree: %r; retrying in %g s",
            error,
            SWEEP_RETRY_S,
        )
    own_tasks.ran(SWEEP, sweep.result() if error is None else {"": repr(error)})


async def _run(context: ProcessContext) -> None:
    await Coordinator(context).run()


def main(context: ProcessContext) -> int:
    """Coordinate until SIGTERM. Returns the exit code."""
    try:
        uvloop.run(_run(context))
    except (StoreError, WrongCluster, BrokerIdTaken, NotController) as error:
        log.error("the coordinator cannot start: %s", error)
        return os.EX_CONFIG if isinstance(error, WrongCluster | BrokerIdTaken) else 1
    return 0
