"""A worker: serves the client connections that the acceptor hands to it, on one event loop.

What it does: reads frames, dispatches requests, and executes Produce, Fetch, ListOffsets, Metadata and the other APIs of
workers (`odradek/api/table.py`). It forwards all other requests to the coordinator. Any worker may append to any partition; a
connection belongs to one worker.

What it must not do: write the slots' control fields, create or delete topics, block its loop on a lock or a disk.

How it ends: on SIGTERM, after the requests in flight are answered.

What its death causes: its connections are closed, nothing else. If it held a slot's lock, the next process that takes this lock
finishes its append.
"""

import asyncio
import logging
import math
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvloop

from odradek._ext.api.fetch import FetchHandler
from odradek._ext.api.fetch_sessions import FetchSessions
from odradek._ext.api.produce import ProduceHandler
from odradek._ext.api.purgatory import Purgatory
from odradek._ext.api.requests import RequestHandler
from odradek._ext.net.charging import Charges
from odradek._ext.net.connection import set_throttle_positions
from odradek._ext.net.data_loop import DataLoop
from odradek._ext.shm.layout import ProcessState
from odradek._ext.shm.locks import Lane
from odradek._ext.shm.metering import set_idle_ms
from odradek._ext.shm.process import release_start_pages
from odradek._ext.shm.replication_quota import QuotaSide
from odradek._ext.shm.topics import TopicDirectory
from odradek._ext.storage.log_dirs import note_error
from odradek._ext.storage.page_cache import ColdReader
from odradek._ext.storage.segment_list import SegmentCache
from odradek.api.api import Place
from odradek.api.call import WorkerView
from odradek.api.cluster_brokers import ClusterBrokers
from odradek.api.connection_address import Address, ConnectionAddresses
from odradek.api.dispatch import Dispatcher
from odradek.api.replicas import ReplicaView
from odradek.api.routes import routes_of
from odradek.api.table import handlers_of, max_request_bytes, throttle_positions
from odradek.net.failure_log import FailureLog
from odradek.net.forward import DEFAULT_TIMEOUT_S, ForwardClient, ForwardError, context_of
from odradek.net.forward_frames import ForwardReply, Kind, Status, decode_auto_created, encode_names
from odradek.net.handover import AcceptedConnection, ChannelClosed, Receiver
from odradek.processes.authorization import authorization_of, permits_by
from odradek.processes.context import ProcessContext
from odradek.processes.slices import LoopSlices
from odradek.processes.worker.credential_cache import CredentialCache
from odradek.processes.worker.delayed_appends import DelayedAppends
from odradek.processes.worker.expiry_timer import ExpiryTimer
from odradek.processes.worker.job_thread import JobThread
from odradek.processes.worker.logins import Logins
from odradek.processes.worker.token_keys import TokenKeys
from odradek.processes.worker.transaction_questions import TransactionQuestions
from odradek.processes.worker.upkeep import WorkerUpkeep
from odradek.protocol.errors import ErrorCode
from odradek.security.acl import ANONYMOUS, ANYBODY
from odradek.shm.replication_quotas import limit_replication
from odradek.stepwise import Stepwise
from odradek.storage.down_conversion import conversion
from odradek.storage.incoming import prepare

log = logging.getLogger("odradek.requests")

FORWARDED_LIMIT_S = 1.0
"""The time in seconds that a stop waits for the coordinator. Groups end their requests at once (`Shards.end`); others may wait
for other brokers for long."""
UNREAD_LIMIT_S = 2.0
"""The time in seconds that a stop waits for clients that do not read their responses."""
STOP_LIMIT_S = 10.0
"""The time in seconds that a stop waits for everything: what waits longer than the other limits is a sync of the device."""
HANDSHAKE_NICENESS = 5
"""So that the requests of open connections precede handshakes of others. Not more: the thread also holds Python's lock, for
which the loop must not wait for long when other processes use all CPUs."""

handlers_of(
    Place.WORKER, Place.WORKER_THREAD
).import_all()  # when this module is imported, in the supervisor, so that workers share the pages


class Worker:
    """The worker process: connects the data loop, the request handler, the purgatory and the coordinator with the event loop.

    Only the loop's thread uses it; the threads that it owns receive jobs and return results through the loop.
    """

    def __init__(self, context: ProcessContext, loop: asyncio.AbstractEventLoop) -> None:
        config = context.config
        self.context = context
        self._config = config
        self._running = context.running
        self.shm = context.shm
        self.loop = loop
        self.authorization = authorization_of(config, context.acls)
        self.stopping = False
        self.done = loop.create_future()
        self._closed: list[int] = []
        self.receiver = Receiver(context.handover_fd)
        self.topics = TopicDirectory()
        self._confirmed = 0
        self._has_news = False  # `_take_over_news` has failed and must run again
        self.purgatory = Purgatory(ExpiryTimer(loop, self._expire).set)
        self.delayed_appends = DelayedAppends(loop, self.purgatory, self._settle, self._close_connection)
        self.look_ups = JobThread(loop, "look-ups", Lane.LANE_LOOK_UPS)
        self.conversions = JobThread(loop, "conversions")
        self.cold_reader = ColdReader(loop)
        self.slices = LoopSlices(loop, self._settle)
        self.forward = ForwardClient(loop, context.forward_path, self._settle, self._close_ended)
        self.forward.serve(self.topics, self._take_over_metadata)
        self.questions = TransactionQuestions(loop, self.forward, self._settle, self.delayed_appends.failed)
        self.logins = Logins(
            loop,
            config,
            context.listeners,
            CredentialCache(loop, self.forward, context.credentials, context.tokens, self._settle),
            TokenKeys(loop, self.forward, context.jwks, self._settle),
            self._settle,
        )
        self.brokers = ClusterBrokers([listener.name for listener in context.advertised]) if config.clustered else None
        self.replicas = self._replica_view()
        self.fetch_handler = self._make_fetch_handler()
        self.handler = self._make_handler()
        self.data_loop = DataLoop(
            self.handler,
            max_request_bytes=config.integer("socket.request.max.bytes"),
            idle_ms=config.integer("connections.max.idle.ms"),
            max_pending=max(1, config.integer("queued.max.requests") // context.count),
            cold_reader=self.cold_reader,
            on_closed=self._connection_closed,
        )
        self.data_loop.sender.on_file_error = self._file_failed
        self.data_loop.responses.on_throttle = ExpiryTimer(loop, self._release_throttled).set
        set_throttle_positions(throttle_positions())
        self.handshakes = JobThread(loop, "handshakes", niceness=HANDSHAKE_NICENESS)
        self.slow_handshakes = JobThread(loop, "slow-handshakes", niceness=HANDSHAKE_NICENESS)
        self._begin_tls()
        self.logins.data_loop = self.data_loop
        self.upkeep = WorkerUpkeep(
            loop,
            self.shm,
            self.data_loop,
            self.handler.produce_handler,
            self.fetch_handler,
            self.forward,
            config.integer("odradek.connections.kept.bytes") // context.count,
            self._take_over_shared,
            self._report_closed,
        )
        set_idle_ms(config.integer("metrics.usage.idle.ms"))

    def _begin_tls(self) -> None:
        loop, config, workers = self.data_loop, self._config, self.context.count
        loop.connections.failure_log = FailureLog().admit
        loop.connections.protocol_log = FailureLog().admit_reason
        loop.receiver.handshake_thread = self._compute_handshake
        loop.connections.authentication_timeout_ms = config.integer("odradek.authentication.timeout.ms")
        loop.connections.max_unauthenticated = -(-config.integer("odradek.unauthenticated.max.connections") // workers)
        loop.connections.max_unauthenticated_of_address = -(
            -config.integer("odradek.unauthenticated.max.connections.per.ip") // workers
        )
        self._take_over_tls(first=True)

    def _compute_handshake(
        self, step: Callable[[], bool], done: Callable[[BaseException | None], None], slow: bool
    ) -> None:
        """Compute a step of a TLS handshake on a thread. Handshakes with slow keys have a thread of their own."""

        def finished(error: BaseException | None) -> None:
            done(error)
            self._report_closed()

        (self.slow_handshakes if slow else self.handshakes)(step, finished)

    def _take_over_tls(self, first: bool = False) -> None:
        """Use the newest certificates for new connections."""
        tls = self.context.tls
        if tls is None or not (first or tls.changed):
            return
        if tls.changed:
            tls.take_over()
        self.data_loop.use_tls(tls.in_order(self.context.listeners))

    def _replica_view(self) -> ReplicaView | None:
        if self.brokers is None:
            return None
        selector = self._config["replica.selector.class"]
        return ReplicaView(self.brokers, self._config.node_id, None if selector is None else str(selector))

    def _make_fetch_handler(self) -> FetchHandler:
        config, workers = self._config, self.context.count
        sessions = FetchSessions(
            self.context.ordinal,
            workers,
            max_sessions=-(-config.integer("max.incremental.fetch.session.cache.slots") // workers),
            max_partitions=-(-config.integer("odradek.fetch.session.max.partitions") // workers),
        )
        return FetchHandler(
            self.topics,
            self.purgatory,
            self.context.log_dirs,
            sessions,
            self._down_convert,
            self.slices,
            max_bytes=config.integer("fetch.max.bytes"),
            max_wait_ms=config.integer("odradek.fetch.max.wait.ms"),
            max_partitions=config.integer("odradek.max.partitions"),
            replicas=self.replicas,
        )

    def _make_handler(self) -> RequestHandler:
        config = self._config
        produce_handler = ProduceHandler(
            self.topics,
            self.purgatory,
            self.delayed_appends.offload,
            self.delayed_appends.retry,
            self.questions.ask,
            prepare,
            max_opened_bytes=config.integer("odradek.produce.max.decompressed.bytes"),
            max_partitions=config.integer("odradek.max.partitions"),
            replicas=self.replicas,
        )
        produce_handler.verify_transactions = self._verify_transactions
        if self.authorization is not None:
            produce_handler.authorize(self.authorization.control)
            self.fetch_handler.control = self.authorization.control
        view = WorkerView(
            config=config,
            shm=self.shm,
            topics=self.topics,
            advertised=self.context.advertised,
            log_dirs=[str(path) for path in self.context.log_dirs],
            segments=SegmentCache(64),
            brokers=self.brokers,
            logins=self.logins,
            tasks=self.context.tasks,
            addresses=self._connection_addresses(),
        )
        dispatcher = Dispatcher(
            view, self._auto_create, self.look_ups, self.slices, self._settle, permits_by(self.authorization)
        )
        self.logins.dispatch = dispatcher
        return RequestHandler(
            produce_handler,
            self.fetch_handler,
            self.purgatory,
            dispatcher,
            self.forward,
            routes_of(config.clustered),
            max_bytes=max_request_bytes(config),
            brokers_listener=self._brokers_listener(),
        )

    def _connection_addresses(self) -> ConnectionAddresses | None:
        """None if all clients of a listener receive one address: with `advertised.listeners`, and in a cluster."""
        config = self._config
        if config.clustered or config.is_set("advertised.listeners"):
            return None
        published = None if config.published_address is None else Address(*config.published_address)
        return ConnectionAddresses(self.context.listeners, published)

    def _brokers_listener(self) -> int:
        """The index of the only listener for requests of brokers; -1 if they may come to any listener."""
        if not self._config.clustered or not self._config["odradek.inter.broker.listener.only"]:
            return -1
        return [listener.name for listener in self.context.advertised].index(self._config.inter_broker_listener.name)

    def start(self) -> None:
        """Start serving."""
        self._limit_replication()
        self._apply_quotas()  # those that the supervisor had taken over before the fork
        self._take_over_quotas()
        self.topics.refresh()
        self._take_over_acls()
        self._confirmed = self.topics.version
        self.shm.confirm_version(self._confirmed)
        self.loop.add_reader(self.data_loop.fileno(), self._on_data)
        self.loop.add_reader(self.shm.event_fd(), self._on_wake)
        self.loop.add_reader(self.receiver.fileno(), self._on_handover)
        self.loop.add_signal_handler(signal.SIGTERM, self.stop)
        self.forward.connect()
        self.upkeep.tick()
        self._on_handover()
        self.shm.set_state(ProcessState.SERVING)
        self.shm.wake(0)
        release_start_pages(self.loop)

    # -- events -----------------------------------------------------------------------------------------------------

    def _on_data(self) -> None:
        self.forward.hold()
        try:
            self.data_loop.on_events()
        finally:
            self.forward.release()
        self._report_closed()

    def _on_wake(self) -> None:
        """A slot that this process waits for changed, or there is news. Most wake-ups are only for slots, and check nothing
        else."""
        self.shm.drain_event()
        try:
            self._has_news = self.shm.take_news() or self._has_news
            if self._has_news:
                self._take_over_news()
                self._has_news = False
        finally:  # even after an error: the event is drained, so these wake-ups do not come again
            self.purgatory.serve()
            self._settle()

    def _take_over_news(self) -> None:
        """Take over changed metadata, settings and files, and deaths of processes. The next wake-up retries after an error."""
        try:
            self._take_over_metadata()
            self._take_over_tls()
            self._take_over_settings()
            self._take_over_quotas()
            self._take_over_acls()
            self.upkeep.release_removed_files()
        finally:
            if self.shm.take_full_look():
                self.purgatory.look_at_all()

    def _take_over_quotas(self) -> None:
        """Apply the quotas of clients if they changed."""
        if self.context.quotas.take_over():
            self._apply_quotas()
            self.context.quotas.confirm()

    def _apply_quotas(self) -> None:
        quotas = self.context.quotas.current
        charges: Any = Charges(quotas.resolve) if quotas.of_requests else None
        self.handler.charges = charges
        self.data_loop.connections.forget_quotas()

    def _release_throttled(self) -> int:
        next_end_ms: int = self.data_loop.release_throttled(time.monotonic_ns() // 1_000_000)
        self._report_closed()
        return next_end_ms

    def _take_over_metadata(self) -> None:
        self.topics.refresh()
        if self.topics.version != self._confirmed:  # requests apply changes, too
            self._confirmed = self.topics.version
            self.shm.confirm_version(self._confirmed)

    def _take_over_shared(self) -> None:
        """Called twice a second, in case a wake-up was lost."""
        self._take_over_settings()
        self._take_over_acls()
        if self.authorization is not None:
            self.authorization.tick()

    def _take_over_settings(self) -> None:
        self.logins.take_over_credentials()
        if self._running.changed:
            self._take_over_tls()  # before the settings are confirmed, which ends AlterConfigs
            self._running.take_over(self._config)
            self.logins.configure(self._config)
            self._limit_replication()
            self.handler.produce_handler.verify_transactions = self._verify_transactions

    def _take_over_acls(self) -> None:
        """Use the newest ACLs, and confirm this to the coordinator. Requests that wait are decided again: a right that was
        taken away ends a long poll now."""
        if self.authorization is not None and self.context.acls.changed:
            version = self.authorization.control.refresh()
            revoked = self.authorization.revoked()
            if revoked:
                for connection in list(self.data_loop.connections.by_id.values()):
                    if ANYBODY in revoked or (connection.principal or ANONYMOUS) in revoked:
                        self.fetch_handler.rights_changed(connection)
                self._settle()
            self.context.acls.taken(version)

    @property
    def _verify_transactions(self) -> bool:
        return bool(self._config["transaction.partition.verification.enable"])

    def _limit_replication(self) -> None:
        if self._config.clustered:
            limit_replication(self._config, QuotaSide.QUOTA_LEADER, self.context.count)

    def _on_handover(self) -> None:
        try:
            handed_over = self.receiver.receive(until_empty=False)
        except ChannelClosed:
            log.info("the supervisor has ended; this worker answers the requests in flight and stops")
            self.stop()
            return
        for item in handed_over:
            self._add(item)
        while self.receiver.to_close:
            self.data_loop.connections.close_least_used(self.receiver.to_close.pop())
        self.shm.set_connections(len(self.data_loop.connections.by_id))
        if handed_over:
            self._on_data()  # the first requests of new connections have arrived most often
        else:
            self._report_closed()

    def _add(self, item: AcceptedConnection) -> None:
        """Serve a connection. If that fails, close it and report this to the acceptor, which counts it until then."""
        try:
            connection = self.data_loop.add(*item, True)
        except OSError as error:
            log.warning(
                "closing connection %d from %s because the system cannot serve it: %s",
                item.connection_id, item.peer, error.strerror, extra=item.log_fields,
            )  # fmt: skip
            self._closed.append(item.connection_id)
        except Exception:  # an internal error: the connections after this one must still be served
            log.exception(
                "cannot serve connection %d from %s: internal error",
                item.connection_id, item.peer, extra=item.log_fields,
            )  # fmt: skip
            if item.connection_id not in self.data_loop.connections.by_id:
                self._closed.append(item.connection_id)
        else:
            self._begin_login(connection)

    def _begin_login(self, connection: Any) -> None:
        """Let the client log in, if its listener requires it. If that fails, close the connection: without a gate, its requests
        would be executed."""
        try:
            self.logins.begin(connection)
        except Exception:
            log.exception(
                "closing %s: internal error when it was accepted", connection.name, extra=connection.log_fields
            )
            connection.close("internal error when it was accepted")

    def _file_failed(self, fd: int, number: int) -> None:
        """A response's file could not be read or sent: report the error to the log directory that contains the file."""
        try:
            path = Path(os.readlink(f"/proc/self/fd/{fd}"))  # noqa: PTH115 - not a real symlink
        except OSError:
            return
        for index, log_dir in enumerate(self.context.log_dirs):
            if path.is_relative_to(log_dir):
                log.error("cannot read %s for a response: %s", path, os.strerror(number))
                note_error(index, number)

    def _settle(self) -> None:
        """After work outside of a turn of the data loop: wake those who waited for it, and send the completed responses."""
        self.purgatory.serve_own()
        self.data_loop.flush_dirty()
        self._report_closed()

    def _report_closed(self) -> None:
        if self._closed:
            closed, self._closed = self._closed, []
            self.receiver.report_closed(closed)
            self.shm.set_connections(len(self.data_loop.connections.by_id))
        if self.stopping:
            self._check_drained()

    def _close_ended(self, connections: list[Any]) -> None:
        self.data_loop.connections.close_ended(connections)

    def _connection_closed(self, connection_id: int) -> None:
        self._closed.append(connection_id)
        self.forward.cancel(connection_id)
        self.logins.closed(connection_id)

    def _close_connection(self, connection: Any, reason: str) -> None:
        connection.close(reason)

    def _expire(self) -> int:
        next_deadline_ms: int = self.purgatory.expire()
        self._settle()
        return next_deadline_ms

    def _down_convert(
        self, work: tuple[list[tuple[Any, ...]], int], cancelled: Callable[[], bool], done: Callable[[Any], None]
    ) -> None:
        """Convert batches for an old consumer on the conversion thread; `done` receives the result or the exception."""
        job = Stepwise(conversion(*work), cancelled)

        def finished(error: BaseException | None) -> None:
            if error is not None:
                log.error("the down-conversion of batches for a Fetch failed; its connection is closed", exc_info=error)
            done(error if error is not None else job.result)
            self._settle()

        self.conversions(job.step, finished)

    # -- forwarding -------------------------------------------------------------------------------------------------

    def _auto_create(
        self,
        connection: Any,
        client_id: bytes | None,
        names: list[str],
        then: Callable[[list[tuple[str, int, str | None]]], None],
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        """Request the creation of topics from the coordinator; `then` receives [(name, error code, message)]."""

        def on_reply(reply: ForwardReply | ForwardError) -> None:
            outcomes: list[tuple[str, int, str | None]]
            if isinstance(reply, ForwardReply) and reply.status == Status.OK:
                self._take_over_metadata()
                outcomes = decode_auto_created(reply.payload)
            else:
                outcomes = [(name, ErrorCode.LEADER_NOT_AVAILABLE, None) for name in names]
            then(outcomes)

        try:
            deadline = self.loop.time() + timeout_s
            self.forward.send(
                encode_names(names), context_of(connection, client_id), deadline, on_reply, Kind.AUTO_CREATE
            )
        except ForwardError as error:
            self.loop.call_soon(on_reply, error)

    # -- the end ----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Read no new requests, answer those in flight (parked fetches immediately), then end."""
        if self.stopping:
            return
        self.stopping = True
        self.shm.set_state(ProcessState.STOPPING)
        self.loop.remove_reader(self.receiver.fileno())
        self.data_loop.stop_reading()
        self.purgatory.end()
        self._settle()
        self.loop.call_later(FORWARDED_LIMIT_S, self._end_forwarded)
        self.loop.call_later(UNREAD_LIMIT_S, self._end_unread)
        self.loop.call_later(STOP_LIMIT_S, self._give_up)

    def _check_drained(self) -> None:
        """Close the connections that wait for nothing more; their clients need not wait for other clients."""
        self.data_loop.connections.close_drained()
        if not self.data_loop.connections.by_id and not self.done.done():
            self.done.set_result(None)

    def _end_forwarded(self) -> None:
        """Close the connections whose requests wait in the coordinator, such as a DeleteTopics for all brokers."""
        for request in self.forward.due(math.inf):
            self.forward.fail(request, ForwardError("the broker stops, and the coordinator has not answered yet"))
        self._settle()

    def _end_unread(self) -> None:
        """Close the connections whose clients do not read their responses."""
        self.data_loop.connections.close_answered("the broker stops, and the client did not read its last response")
        self._settle()

    def _give_up(self) -> None:
        if not self.done.done():
            log.warning("closing connections whose last request is not answered after %g s", STOP_LIMIT_S)
            self.done.set_result(None)

    def close(self) -> None:
        self.data_loop.connections.close_all()
        self.forward.close()
        self.logins.close()
        self.delayed_appends.close()
        self.handler.produce_handler.responses.flusher.close()
        self.look_ups.close()
        self.conversions.close()
        self.handshakes.close()
        self.slow_handshakes.close()
        self.cold_reader.close()
        self.receiver.report_closed(self._closed)
        self.receiver.close()


async def _serve(context: ProcessContext) -> None:
    worker = Worker(context, asyncio.get_running_loop())
    worker.start()
    await worker.done
    worker.close()


def main(context: ProcessContext) -> int:
    """Serve until SIGTERM. Returns the exit code."""
    uvloop.run(_serve(context))
    return 0
