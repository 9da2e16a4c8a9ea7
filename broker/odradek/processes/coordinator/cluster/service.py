"""The coordinator's part in a cluster: it joins the cluster, hands the controller's requests to the replicas thread, keeps the
in-sync replicas of the partitions that this broker leads, and moves the leaderships to other brokers before the broker stops.

Used only in the coordinator's event loop. The store thread owns the membership, and the replicas thread the partition table.
Neither waits for the other, except that the replicas thread waits for the settings of topics that it creates.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import odradek._ext.shm.brokers as brokers
from odradek._ext.net.arrivals import Arrival
from odradek._ext.shm import pauses
from odradek._ext.shm.layout import LeaveState
from odradek._ext.shm.locks import Lane, enter_lane
from odradek._ext.shm.metering import gauge
from odradek.controller.broker_settings import TlsChanges
from odradek.metadata.cluster import BrokerIdTaken, WrongCluster
from odradek.metadata.session import CODES, WRONG_TREE_CODE, Action, SessionEvent, SessionState
from odradek.metadata.store import Store, StoreError, StoreUnavailable, WrongTree
from odradek.net.forward_frames import ForwardReply
from odradek.processes import own_tasks
from odradek.processes.authorization import authorization_of, permits_by
from odradek.processes.context import ProcessContext
from odradek.processes.coordinator.cluster.controller_channel import ControllerChannel
from odradek.processes.coordinator.cluster.controller_service import ControllerService
from odradek.processes.coordinator.cluster.in_sync_service import InSyncService
from odradek.processes.coordinator.cluster.membership import ClusterMembership
from odradek.processes.coordinator.cluster.replica_service import ReplicaService
from odradek.processes.coordinator.cluster.session_keeper import SessionKeeper
from odradek.processes.coordinator.cluster.settings_follower import SettingsFollower
from odradek.processes.metering import UncountedErrors, count_errors
from odradek.processes.supervised_tasks import supervised
from odradek.replication import controlled_shutdown

log = logging.getLogger("odradek.controller")

STOP_WITHIN_S = 8.0
"""The time in seconds that a broker that stops waits for requests to ZooKeeper under way."""
RETRY_S = 1.0
"""The time in seconds between two attempts to join the cluster."""
TAKEN_FOR_TIMEOUTS = 2.0
"""For how many session timeouts a broker that starts waits for the end of another registration with its id or address."""
REPORT_AFTER_S = 2.0
"""The time in seconds after which a successor that has not reached ZooKeeper says what the broker refuses meanwhile."""
READ_WITHIN_S = 20.0
"""The time in seconds within which a request of the controller must get what it needs from ZooKeeper. The controller waits
30 s for the response."""

if TYPE_CHECKING:
    from odradek.security.peers import PeerSecurity

Result = TypeVar("Result")


class ClusterService:
    """See the module.

    :param tls: replaces certificates at run time; None without TLS. :param store_thread: executes everything that uses the
        metadata store. :param security: of the connections to other brokers.
    """

    def __init__(
        self,
        context: ProcessContext,
        tls: TlsChanges | None,
        store_thread: Executor,
        security: "PeerSecurity | None" = None,
    ) -> None:
        self._context = context
        self._security = security
        self._loop = asyncio.get_running_loop()
        self._store_thread = store_thread
        self._replicas_thread = ThreadPoolExecutor(1, "replicas", enter_lane, (Lane.LANE_LOOK_UPS,))
        self._settings = SettingsFollower(lambda: self._in_store(self.membership.apply_settings))
        self.membership = ClusterMembership(
            context,
            tls,
            self._apply,
            self._apply_all,
            self._make_controller,
            self._on_session,
            self._settings.wake,
            self._on_tree,
        )
        self.replicas = ReplicaService(
            context,
            self._read_settings,
            self._has_partitions,
            self._read_topic_ids,
            permits_by(authorization_of(context.config, context.acls)),
        )
        self._channel = ControllerChannel(self._loop, context.config, security)
        self._in_sync = InSyncService(self._loop, context.config, self._channel, self._submit)
        self._noted: SessionState | None = None
        self._keeper = SessionKeeper(
            lambda: self.membership.session_timeout_s, self._take, self._revive, self._replace, self._note_session
        )
        self._stop_waiting: asyncio.TimerHandle | None = None
        self._offline_dirs = self._count_offline_dirs()
        self._opening: asyncio.Future[bool] | None = None
        self._reporting: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._confirming: asyncio.Task[None] | None = None
        self._configuring: asyncio.Task[None] | None = None
        self._configure_again = False
        self._open_store: Callable[[], None] | None = None
        self.joined = False

    # -- joining --------------------------------------------------------------------------------------------------

    @property
    def is_registered(self) -> bool:
        """Whether a predecessor of this process registered the broker in this start: then the broker already serves."""
        return bool(brokers.was_registered())

    async def start(self) -> None:
        """Begin to execute the controller's requests."""
        await self._in_replicas(self.replicas.open)
        self._in_sync.start()

    async def join(self, open_store: Callable[[], None]) -> None:
        """Join the cluster; repeated until ZooKeeper answers. Raises WrongCluster, BrokerIdTaken.

        A broker that serves already waits for the tree of its cluster instead of ending with WrongCluster. Another registration
        with its id or address may be its own, from a start on another machine or device, which ZooKeeper keeps for the session
        timeout; only if it stays, it is that of another broker.
        The settings of all topics with a log here are in the slots before the broker is registered.
        """
        self._open_store = open_store
        late = self._loop.call_later(REPORT_AFTER_S, self._report_refusals) if self.is_registered else None
        try:
            await self._join()
        finally:
            if late is not None:
                late.cancel()
        self._keeper.begin()
        self._settings.begin()
        self.joined = True
        self._elect()

    def _report_refusals(self) -> None:
        log.warning(
            "the new coordinator process has not reached ZooKeeper at %s: until it answers, this broker refuses produce"
            " requests with acks=0 and acks=1 to partitions with other replicas, from half the session timeout after the end of"
            " the former process on, because another broker may lead them",
            self._context.config["zookeeper.connect"],
        )

    async def _join(self) -> None:
        taken_until = None
        while True:
            losses = self._keeper.losses
            try:
                await self._read_all()
                await self._register()
            except (StoreError, WrongCluster) as error:
                if isinstance(error, WrongCluster) and not self.is_registered:
                    raise
                servers = self._context.config["zookeeper.connect"]
                log.warning("waiting for ZooKeeper at %s: %s; retrying in %g s", servers, error, RETRY_S)
                await asyncio.sleep(RETRY_S)
            except BrokerIdTaken as error:
                if taken_until is None:
                    wait_s = TAKEN_FOR_TIMEOUTS * self.membership.session_timeout_s
                    taken_until = self._loop.time() + wait_s
                    log.warning(
                        "%s, unless that is the session of a former start of this broker: waiting up to %g s for its end",
                        error,
                        wait_s,
                    )
                elif self._loop.time() >= taken_until:
                    raise
                await asyncio.sleep(RETRY_S)
            else:
                if losses == self._keeper.losses:
                    return

    async def _read_all(self) -> None:
        """Open the store, and read the settings of brokers and of topics with a log here. Raises StoreError, WrongCluster."""
        assert self._open_store is not None
        await self._in_store(self._open_store)
        hosted = await self._in_replicas(self.replicas.hosted_topics)
        settings = await self._in_store(self.membership.topic_settings, hosted)
        await self._in_replicas(self.replicas.configure, settings)
        await self._in_store(self.membership.report_strays, hosted)

    async def _register(self) -> None:
        """Register the broker. It leads nothing then if it was registered in another session, because other brokers may have
        taken over [R 12.3]. Raises StoreError, BrokerIdTaken."""
        began = pauses.clock_ms()
        self._note_session_timeout()
        if not await self._in_store(self.membership.owns_registration):
            await self._in_replicas(self.replicas.give_up_leaderships)
        await self._in_store(self.membership.register)
        pauses.confirm(began)

    def _elect(self) -> None:
        if self.membership.controller is not None and self._context.config["odradek.controller.eligible"]:
            self.membership.controller.start()

    # -- the session ----------------------------------------------------------------------------------------------

    def _on_session(self, event: SessionEvent) -> None:
        """Called in a thread of the store."""
        self._keeper.on_event(event)

    def _on_tree(self) -> None:
        """Called in a thread of the store: the cluster id may have changed."""
        try:
            self._loop.call_soon_threadsafe(self._check_tree)
        except RuntimeError:  # the loop is closed
            log.debug("the coordinator has ended; the tree in ZooKeeper is not checked any more")

    def _check_tree(self) -> None:
        if self.joined and (self._checking is None or self._checking.done()):
            self._checking = supervised(self._loop, "the check of the cluster id", self._look_at_tree)

    async def _look_at_tree(self) -> None:
        """Find out whether the tree is still that of the cluster; if not, leave it alone until it is."""
        while True:
            try:
                return await self._in_store(self.membership.check_tree)
            except WrongTree:  # the keeper reports it
                return self._keeper.on_event(SessionEvent.WRONG_TREE)
            except StoreError as error:
                log.debug("cannot check the cluster id: %s; retrying in %g s", error, RETRY_S)
                await asyncio.sleep(RETRY_S)

    async def _take(self, action: Action) -> None:
        """See `SessionKeeper`."""
        controller = self.membership.controller
        if action is Action.RESIGN and controller is not None:
            controller.resign()
        elif action is Action.REREAD:
            await self._read_all()
        elif action is Action.REGISTER:
            await self._register()
        elif action is Action.ELECT:
            self._elect()
        elif action is Action.RESUME:
            await self._in_store(self.membership.resume)
            if controller is not None and self._context.config["odradek.controller.eligible"]:
                controller.reconnected()

    def _note_session(self, state: SessionState) -> None:
        """Publish the state of the session for metrics and the status, and since when it is connected or not."""
        connected = SessionState.CONNECTED
        if (state is connected) != (self._noted is connected) or self._noted is None:
            gauge("session_since_ms", time.monotonic_ns() // 1_000_000)
        self._noted = state
        wrong = state is connected and self._keeper.wrong_tree
        gauge("session_state", WRONG_TREE_CODE if wrong else CODES[state])

    def _note_session_timeout(self) -> None:
        """ZooKeeper may grant another session timeout than the configured one, and change it at each connection."""
        granted_ms = round(1000 * self.membership.session_timeout_s)
        if granted_ms:  # 0: the store is not open yet
            pauses.set_session_timeout(granted_ms)

    def _look_at_pauses(self) -> None:
        """After a pause of the broker or of this process, find out whether the broker is still registered. `_register` does
        so, too."""
        if self.joined and pauses.unconfirmed() and (self._confirming is None or self._confirming.done()):
            self._confirming = supervised(self._loop, "the look at the registration", self._confirm)

    async def _confirm(self) -> None:
        """Make a round trip to ZooKeeper after a pause. If the registration is lost, `_register` follows the new session."""
        began = pauses.clock_ms()
        try:
            registered = await self._in_store(self.membership.is_registered)
        except StoreError as error:
            log.warning("cannot find out whether this broker is still registered after a pause: %s; retrying", error)
            return
        if registered:
            pauses.confirm(began)
            log.info("this broker is still registered after a pause, and serves all produce requests again")

    async def _revive(self) -> None:
        """See `SessionKeeper`."""
        await self._in_store(self.membership.revive)

    async def _replace(self) -> None:
        """See `SessionKeeper`."""
        if await self._loop.run_in_executor(None, self.membership.accepts_others):
            await self._in_store(self.membership.replace_session)

    def hurry(self) -> None:
        """The broker stops: do not wait for ZooKeeper, or only for a short time if it is connected."""
        self._keeper.close()
        self._settings.close()
        if self._stop_waiting is not None:
            return
        if not self.membership.connected:
            self.membership.stop_waiting()
        else:
            self._stop_waiting = self._loop.call_later(STOP_WITHIN_S, self.membership.stop_waiting)

    def _make_controller(self, store: Store) -> ControllerService:
        """Called in the store thread."""
        return ControllerService(self._loop, self._context.config, store, self._store_thread, self._security)

    # -- requests -------------------------------------------------------------------------------------------------

    async def execute(self, request: Arrival) -> ForwardReply:
        """Execute a request of the controller, after all requests that arrived before it."""
        errors: list[UncountedErrors | None] = []
        reply = await self._in_replicas(self._execute, request, errors.append)
        for uncounted in errors:
            count_errors(uncounted, request.context)
        return reply

    def _execute(self, request: Arrival, report_errors: Callable[[UncountedErrors | None], None]) -> ForwardReply:
        """Called in the replicas thread."""
        reply = self.replicas.execute(request, report_errors)
        self._in_sync.request_executed()
        return reply

    def _read_settings(self, topics: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        """Called in the replicas thread."""
        return self._read(self.membership.topic_settings, topics)

    def _has_partitions(self) -> bool:
        """Called in the replicas thread."""
        return self._read(self.membership.has_partitions)

    def _read_topic_ids(self, topics: Collection[str]) -> Mapping[str, bytes]:
        """Called in the replicas thread."""
        return self._read(self.membership.topic_ids, topics)

    def _read(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """The result of a function that reads in the store thread. Called in the replicas thread. Raises StoreError."""
        reading = self._store_thread.submit(work, *arguments)
        try:
            return reading.result(READ_WITHIN_S)
        except TimeoutError:
            reading.cancel()
            raise StoreUnavailable(f"ZooKeeper did not answer within {READ_WITHIN_S:g} s") from None

    # -- settings -------------------------------------------------------------------------------------------------

    def _apply(self, topics: Mapping[str, Mapping[str, str]]) -> None:
        """Called in the store thread."""
        applying = self._replicas_thread.submit(self.replicas.configure, topics)
        applying.add_done_callback(_report_applying)

    def _apply_all(self) -> None:
        """Called in the store thread."""
        self._loop.call_soon_threadsafe(self._configure_hosted)

    def _configure_hosted(self) -> None:
        """Begin to read the settings of all topics with a log here, and to apply them; once more if it is under way."""
        self._configure_again = True
        if self._configuring is None or self._configuring.done():
            self._configuring = supervised(
                self._loop, "the application of the settings of topics", self._configure_until_done
            )

    async def _configure_until_done(self) -> None:
        while self._configure_again:
            self._configure_again = False
            try:
                hosted = await self._in_replicas(self.replicas.hosted_topics)
                settings = await self._in_store(self.membership.topic_settings, hosted)
                await self._in_replicas(self.replicas.configure, settings)
            except StoreError as error:
                log.warning("cannot read the settings of the topics after a change of the brokers' settings: %s; retrying in"
                            " %g s", error, RETRY_S)  # fmt: skip
                self._configure_again = True
                await asyncio.sleep(RETRY_S)
            except Exception:
                self._configure_again = True
                raise

    # -- upkeep ---------------------------------------------------------------------------------------------------

    def upkeep(self) -> None:
        """Twice a second: open logs that waited for disk space, and report log directories that failed."""
        self.membership.note_progress()
        self._note_session_timeout()
        if self.joined and self._keeper.state is not SessionState.CONNECTED:
            self.membership.beat()  # kazoo's thread may wait for a name server, or may have given up
        self._look_at_pauses()
        if self._opening is None or self._opening.done():
            self._opening = self._loop.run_in_executor(self._replicas_thread, self.replicas.open_waiting)
            self._opening.add_done_callback(self._opened)
        self._report_failed_dirs(False)

    def _opened(self, opening: "asyncio.Future[bool]") -> None:
        if opening.cancelled():
            return
        error = opening.exception()
        own_tasks.ended(own_tasks.OPENING, error)
        if error is not None:
            log.error("cannot open the logs that wait for disk space: %r; retrying", error)
        elif opening.result():
            self._report_failed_dirs(True)

    def _count_offline_dirs(self) -> int:
        return sum(map(self._context.shm.log_dir_offline, range(len(self._context.log_dirs))))

    def _report_failed_dirs(self, opened: bool) -> None:
        """Notify the controller if logs became unusable, or usable (`opened`)."""
        offline = self._count_offline_dirs()
        if (offline == self._offline_dirs and not opened) or not self.joined:
            return
        if self._reporting is None or self._reporting.done():
            self._offline_dirs = offline
            self._reporting = supervised(self._loop, "the report of log directories", self._report_log_dirs)

    async def _report_log_dirs(self) -> None:
        while True:
            try:
                await self._in_store(self.membership.report_log_dirs)
                return
            except StoreError as error:
                log.error("cannot report the state of the log directories to the controller: %s; retrying", error)
                await asyncio.sleep(RETRY_S)

    def look(self, changed_slots: Collection[int], process_died: bool) -> None:
        """Something changed: look at the slots whose followers may join the in-sync replicas, at pauses, and at a request to
        leave.

        :param changed_slots: see `SharedMemory.take_ready`.
        """
        if process_died:
            self._in_sync.look_at_all()
        else:
            self._in_sync.wake(changed_slots)
        self._look_at_pauses()
        if self._context.shm.leave_state == LeaveState.LEAVE_REQUESTED and self._leaving is None:
            self._leaving = self._loop.create_task(self._leave())

    async def _leave(self) -> None:
        """Let the controller move the leaderships of this broker to other brokers, then let the supervisor stop it."""
        config = self._context.config
        try:
            await controlled_shutdown.shut_down(
                self._channel.shut_down,
                config.node_id,
                brokers.broker_epoch,
                config.integer("controlled.shutdown.max.retries"),
                config.integer("controlled.shutdown.retry.backoff.ms") / 1000,
            )
        finally:
            self._context.shm.leave_state = LeaveState.LEAVE_DONE
            self._context.shm.wake(0)

    async def close(self) -> None:
        """Wait for the request under way; those that wait are not executed."""
        for task in (
            self._opening,
            self._reporting,
            self._checking,
            self._leaving,
            self._confirming,
            self._configuring,
        ):
            if task is not None:
                task.cancel()
        if self._stop_waiting is not None:
            self._stop_waiting.cancel()
        if self.membership.controller is not None:
            self.membership.controller.close()
        self._in_sync.close()
        self._channel.close()
        await self._loop.run_in_executor(None, lambda: self._replicas_thread.shutdown(cancel_futures=True))

    # -- threads --------------------------------------------------------------------------------------------------

    async def _in_store(self, work: Callable[..., Result], *arguments: Any) -> Result:
        return await self._loop.run_in_executor(self._store_thread, work, *arguments)

    def _submit(self, work: Callable[..., Any], *arguments: Any) -> None:
        """Call a function in the replicas thread. May be called in any thread; after `close` it does nothing."""
        try:
            self._replicas_thread.submit(work, *arguments).add_done_callback(_report_in_sync)
        except RuntimeError:  # the thread is shut down
            log.debug("the broker stops: %s is not executed", work)

    async def _in_replicas(self, work: Callable[..., Result], *arguments: Any) -> Result:
        return await self._loop.run_in_executor(self._replicas_thread, work, *arguments)


def _report_applying(applying: "Future[Any]") -> None:
    """Log a failure to apply settings of topics."""
    if not applying.cancelled() and (error := applying.exception()) is not None:
        log.error("cannot apply changed settings of topics: %r; they apply after the next change", error)


def _report_in_sync(work: "Future[Any]") -> None:
    """Log a failure of the work for in-sync replicas; the next look at the slots repeats it."""
    if not work.cancelled() and (error := work.exception()) is not None:
        log.error("the work for in-sync replicas failed; it is repeated", exc_info=error)
