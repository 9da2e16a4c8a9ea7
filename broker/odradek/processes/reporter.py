"""The reporter: serves metrics, health and usage over HTTP, and writes the usage spool.

What it does: serves `/metrics`, `/healthz`, `/readyz` and `/usage` in threads, samples the log ends of all partitions for the
lag in seconds, sums the meter pages, and measures logs. It reads everything from the mapping and /proc, except for the
groups and the transactional ids: on a scrape it requests them from the coordinator, over the socket on which workers
forward. If the response does not arrive in time, they are omitted.

What it must not do: take a slot's lock, serve Kafka clients, or make any other process wait.

How it ends: on SIGTERM, after the coordinator and before the cleaner.

What its death causes: one scrape fails. Its successor finds the listening socket open and the meter pages unchanged; values
that are not in the pages are in memory that the supervisor keeps. Only histories (lag in seconds, quantiles) start from zero.
"""

import asyncio
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import uvloop

from odradek._ext.shm.layout import ProcessKind, ProcessState
from odradek._ext.shm.process import release_start_pages
from odradek.api.table import BY_KEY
from odradek.config.listeners import Listener
from odradek.metrics.collector import Collector, Groups, Settings
from odradek.metrics.coordinator_report import MalformedParts, decode_parts
from odradek.metrics.exposition import Family
from odradek.metrics.group_rows import MalformedGroups, decode_groups
from odradek.metrics.http_access import NAME as METRICS_NAME
from odradek.metrics.http_access import TLS, Credentials, HttpTls, presented_login
from odradek.metrics.joining import not_joined
from odradek.metrics.partitions import Address, not_ready
from odradek.metrics.processes import places
from odradek.metrics.security import CertificateTimes, SecurityFaults
from odradek.metrics.transactions import MalformedReport, TransactionReport, decode_transactions
from odradek.metrics.usage_reports import UsageReports
from odradek.net.forward import ForwardClient, ForwardError
from odradek.net.forward_frames import ForwardContext, ForwardReply, Kind, Status
from odradek.processes import logs, own_tasks
from odradek.processes.context import ProcessContext
from odradek.processes.login_failures import LoginFailures
from odradek.processes.supervised_tasks import supervised
from odradek.security.peer_settings import is_protected
from odradek.shm.published_pages import PublishedPages
from odradek.shm.published_tasks import Area

if TYPE_CHECKING:
    from odradek.security.validity import Validity

log = logging.getLogger("odradek.reporter")

NICE = 5
BEAT_S = 0.5
TICK_S = 2.0
MEASURE_RETRY_S = 0.1
GROUPS_TIMEOUT_S = 3.0
FIRST_INTERVAL_S = 5.0
COLLECTION, SPOOL = "collection of metrics", "usage spool"


class Coordinated(NamedTuple):
    """The report of the coordinator. :param groups, transactions: None if the coordinator has not reported them."""

    groups: Groups
    transactions: TransactionReport | None


NOTHING = Coordinated(None, None)


def decode_coordinated(payload: bytes) -> Coordinated:
    """Decode the coordinator's response. Raises MalformedParts, MalformedGroups, MalformedReport."""
    parts = decode_parts(payload)
    return Coordinated(
        None if parts.groups is None else list(decode_groups(parts.groups)),
        None if parts.transactions is None else decode_transactions(parts.transactions),
    )


def _times(validity: "Validity") -> CertificateTimes:
    return CertificateTimes(
        max(certificate.begins_ms for certificate in validity.chain),
        min(certificate.ends_ms for certificate in validity.chain),
        min((certificate.ends_ms for certificate in validity.trusted), default=None),
    )


class PageAccess:
    """Decides who may read the pages, and logs who may not; run by threads of HTTP."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._failures = LoginFailures(time.monotonic)
        self._lock = threading.Lock()

    def permit(self, header: str | None, address: str) -> bool:
        """See `Pages`. A request without credentials is no login, so it is not logged."""
        permitted = self._credentials.permit(header)
        if not permitted and header:
            scheme, user = presented_login(header)
            with self._lock:
                self._failures.note(f"{address}:0", METRICS_NAME, scheme, "invalid credentials", user)
        return permitted


class Reporter:
    """The reporter process; used in its event loop, except for the methods marked as run by threads of HTTP."""

    def __init__(self, context: ProcessContext) -> None:
        config = context.config
        self._context = context
        self._shm = context.shm
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        self._coordinator = ForwardClient(self._loop, context.forward_path)
        settings = Settings(
            max_topics=config.integer("metrics.max.topics"),
            max_clients=config.integer("metrics.max.clients"),
            idle_ms=config.integer("metrics.usage.idle.ms"),
            listeners=[listener.name for listener in context.listeners],
            broker=Address(config.node_id, _host_and_port(context.advertised[0])),
            max_transaction_ms=config.integer("transaction.max.timeout.ms"),
            max_bytes=config.integer("metrics.max.bytes"),
        )
        self.collector = Collector(self._shm, context.log_dirs, settings, PublishedPages(context.reporter_memory))
        spool_dir = config.text("usage.spool.dir")
        self.usage = UsageReports(
            self._shm,
            self.collector,
            context.log_dirs,
            {key: row.name for key, row in BY_KEY.items()},
            config.node_id,
            Path(spool_dir) if spool_dir else context.log_dirs[0],
            config.integer("usage.spool.max.bytes"),
            config.integer("usage.spool.interval.ms"),
        )
        self.collector.spool = self.usage.spool
        self._interval_s = config.integer("usage.spool.interval.ms") / 1000
        self._has_been_ready = False
        has_tls = context.metrics_socket is not None and bool(config[TLS])
        self._tls = HttpTls(config) if has_tls else None
        self._listener_times: tuple[int, dict[str, CertificateTimes]] = (0, {})
        self.collector.certificates = self._certificates
        self.collector.faults = self._faults
        self.collector.tasks = context.tasks.read
        self.collector.providers = lambda: context.jwks.read_providers()[1]

    async def run(self) -> None:
        """Serve until SIGTERM."""
        self._loop.add_signal_handler(signal.SIGTERM, self._stopped.set)
        self._loop.add_reader(self._shm.event_fd(), self._on_wake)
        own_tasks.report_to(self._context.tasks, Area.REPORTER)
        own_tasks.expect(COLLECTION, round(TICK_S * 1000))
        beating = supervised(self._loop, "the beat of the reporter", self._beat)
        ticking = supervised(self._loop, "the collection of metrics", self._tick)
        spooling = None
        if self.usage.keeps_history:
            own_tasks.expect(SPOOL, round(self._interval_s * 1000))
            spooling = supervised(self._loop, "the usage spool", self._spool)
        starting = None
        if self._context.metrics_socket is not None:
            starting = supervised(self._loop, "the start of the HTTP server", self._start_http)
        self._shm.set_state(ProcessState.SERVING)
        self._shm.wake(0)
        release_start_pages(self._loop)
        await self._stopped.wait()
        self._shm.set_state(ProcessState.STOPPING)
        beating.cancel()
        ticking.cancel()
        if starting is not None:
            starting.cancel()
        if spooling is not None:
            spooling.cancel()
            await self._write_interval(None)  # workers and coordinator have ended, so nothing is counted afterwards
        self._coordinator.close()

    async def _start_http(self) -> None:
        """Start the HTTP server when the first client connects, because its modules take 5 MB; with TLS at once, because the
        server also watches the certificate's file."""
        listening = self._context.metrics_socket
        assert listening is not None
        if self._tls is None:
            await self._readable(listening)
        from odradek.metrics.http import HttpServer, Pages
        from odradek.metrics.names import METRICS
        from odradek.metrics.registry import Exposition

        spool = self.usage.spool
        pages = Pages(
            Exposition(METRICS.values(), self._families).render,
            self.not_ready,
            self._usage,
            PageAccess(Credentials(self._context.config)).permit,
            None if spool is None else spool.directory,
        )
        HttpServer(listening, pages, tls=self._tls).start()

    async def _readable(self, listening: socket.socket) -> None:
        """Wait until a client has connected."""
        connected = asyncio.Event()
        self._loop.add_reader(listening, connected.set)
        try:
            await connected.wait()
        finally:
            self._loop.remove_reader(listening)

    def _on_wake(self) -> None:
        self._shm.drain_event()
        self._shm.take_full_look()
        self._shm.confirm_version(self._shm.metadata_version)
        self._take_over_settings()

    def _take_over_settings(self) -> None:
        """Confirm changed settings. No setting of the reporter changes at run time, but a change waits until every process has
        taken it over."""
        if self._context.running.changed:
            self._context.running.take_over(self._context.config)

    def _certificates(self) -> dict[str, CertificateTimes]:
        """When the certificates of each listener with TLS are valid, also those of the metrics listener."""
        tls = self._context.tls
        if tls is not None and tls.published.version != self._listener_times[0]:
            from odradek.security.validity import validities  # the supervisor has loaded the TLS library already

            version, material = tls.published.read()
            config = self._context.config
            between_brokers = config.inter_broker_listener.name if config.clustered else None
            self._listener_times = (
                version,
                {name: _times(validity) for name, validity in validities(material, between_brokers).items()},
            )
        return self._listener_times[1] | ({} if self._tls is None else {METRICS_NAME: _times(self._tls.validity)})

    def _faults(self) -> SecurityFaults:
        faults = self._context.faults
        failed = {fault.listener for fault in faults.stores()}
        stores = {name: name in failed for name in self._certificates()}
        if self._tls is not None:
            stores[METRICS_NAME] = self._tls.reload_failed
        return SecurityFaults(stores, faults.logins() if is_protected(self._context.config) else None)

    async def _beat(self) -> None:
        while True:
            self._shm.beat()
            self._take_over_settings()
            logs.report_failures()
            await asyncio.sleep(BEAT_S)

    async def _tick(self) -> None:
        """Collect metrics regularly, in a thread, so that the loop runs while a scrape holds the collector's lock."""
        while True:
            try:
                unfinished = await self._loop.run_in_executor(None, self.collector.tick)
                own_tasks.ran(COLLECTION, self.collector.sizes.failures)
            except Exception as error:  # the next attempt may succeed
                own_tasks.ended(COLLECTION, error)
                log.exception("metrics collection failed; retrying in %g s", TICK_S)
                unfinished = False
            await asyncio.sleep(MEASURE_RETRY_S if unfinished else TICK_S)

    async def _spool(self) -> None:
        """Write an interval every `usage.spool.interval.ms`, without drift."""
        next_s = self._loop.time() + min(self._interval_s, FIRST_INTERVAL_S)  # early, so that a wrong setup shows soon
        while True:
            await asyncio.sleep(next_s - self._loop.time())
            await self._write_interval(await self.groups())
            next_s = max(next_s + self._interval_s, self._loop.time())

    async def _write_interval(self, groups: Groups) -> None:
        """Write an interval to the spool, in a thread, because the disk may be slow."""
        try:
            await self._loop.run_in_executor(None, self.usage.write_interval, groups)
            spool = self.usage.spool
            own_tasks.ran(SPOOL, {str(spool.directory): spool.failure} if spool is not None and spool.failure else None)
        except Exception as error:  # the next attempt may succeed
            own_tasks.ended(SPOOL, error)
            log.exception("cannot write an interval to the usage spool; the next interval includes its usage")

    # -- the report of the coordinator ---------------------------------------------------------------------------------

    async def groups(self) -> Groups:
        """All groups of the coordinator; None if it does not run, still loads, or does not respond in time."""
        return (await self.coordinated()).groups

    async def coordinated(self) -> Coordinated:
        """The report of the coordinator; both parts are None if it does not run or does not respond in time."""
        if not any(
            place.kind == ProcessKind.COORDINATOR and place.state == ProcessState.SERVING for place in places(self._shm)
        ):
            return NOTHING
        response: asyncio.Future[ForwardReply | ForwardError] = self._loop.create_future()

        def on_reply(reply: ForwardReply | ForwardError) -> None:
            if not response.done():
                response.set_result(reply)

        context = ForwardContext(connection_id=0, listener=0, peer="reporter")
        try:
            self._coordinator.send(b"", context, self._loop.time() + GROUPS_TIMEOUT_S, on_reply, Kind.METRICS)
        except ForwardError as error:
            on_reply(error)
        reply = await response
        if isinstance(reply, ForwardError):
            log.warning("the metrics omit all groups and transactional ids: %s", reply)
            return NOTHING
        if reply.status != Status.OK:
            return NOTHING
        try:
            return decode_coordinated(reply.payload)
        except (MalformedParts, MalformedGroups, MalformedReport) as error:
            log.error(
                "the metrics omit all groups and transactional ids: cannot decode the coordinator's response: %s", error
            )
            return NOTHING

    # -- run by threads of HTTP ---------------------------------------------------------------------------------------

    def _families(self) -> Iterator[Family]:
        known = asyncio.run_coroutine_threadsafe(self.coordinated(), self._loop).result()
        with self.collector.lock:
            yield from self.collector.families(known.groups, known.transactions)

    def not_ready(self) -> str | None:
        """Why the broker is not ready; None if it is.

        To become ready for the first time, all its processes must serve, and in a cluster it must have joined it.
        """
        processes = places(self._shm)
        reason = not_ready(self._shm, processes)
        if reason is None and not self._has_been_ready:
            for place in processes:
                if place.state != ProcessState.SERVING:
                    return f"{place.name}-{place.ordinal} is {place.state.name.lower()}"
            with self.collector.lock:
                reason = not_joined(self._context.config.node_id, self.collector.each_topic())
            self._has_been_ready = reason is None
        return reason

    def _usage(self, query: dict[str, list[str]], look_for_client: Callable[[], None]) -> dict[str, Any]:
        groups = None
        if query.get("name"):
            groups = asyncio.run_coroutine_threadsafe(self.groups(), self._loop).result()
        return self.usage.document(query, groups, look_for_client)


def _host_and_port(listener: Listener) -> str:
    return str(listener).partition("://")[2]


async def _run(context: ProcessContext) -> None:
    await Reporter(context).run()


def main(context: ProcessContext) -> int:
    """Report until SIGTERM. Returns the exit code."""
    os.nice(NICE)
    uvloop.run(_run(context))
    return 0
