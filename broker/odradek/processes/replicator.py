"""The replicator: fetches the partitions that this broker follows from their leaders, in a cluster.

What it does: reads from the slots of the shared table which partitions this broker follows, in which leader epoch and from
which broker, and lets replica fetchers (threads) fetch them and append their records.

What it must not do: serve clients, decide about roles, write the partition table.

How it ends: on SIGTERM, together with the workers.

What its death causes: replication stops until its successor has connected again. All its work follows from the slots and the
logs.
"""

import logging
import os
import select
import signal
import time

import odradek._ext.shm.brokers as brokers
from odradek._ext.partition.flusher import SharedFlusher
from odradek._ext.replication.followed_slots import FollowedSlots
from odradek._ext.shm.layout import ProcessState
from odradek._ext.shm.metering import count, gauge
from odradek._ext.shm.process import release_start_pages
from odradek._ext.shm.replication_quota import QuotaSide
from odradek.config.broker_config import BrokerConfig
from odradek.processes import logs
from odradek.processes.context import ProcessContext
from odradek.processes.metering import BusyTime
from odradek.processes.peer_security import peer_security_of
from odradek.replication.fetcher import Fetcher, FetcherSettings
from odradek.replication.fetchers import Fetchers
from odradek.replication.leader_connection import Address
from odradek.shm.replication_quotas import limit_replication

log = logging.getLogger("odradek.replication")

LONGEST_WAIT_MS = 500
LOOK_AT_ALL_S = 5.0
STOP_S = 3.0


def settings_of(config: BrokerConfig) -> FetcherSettings:
    """The settings of the fetchers, from the configuration."""
    return FetcherSettings(
        broker_id=config.node_id,
        max_wait_ms=config.integer("replica.fetch.wait.max.ms"),
        min_bytes=config.integer("replica.fetch.min.bytes"),
        response_max_bytes=config.integer("replica.fetch.response.max.bytes"),
        max_bytes=config.integer("replica.fetch.max.bytes"),
        backoff_ms=config.integer("replica.fetch.backoff.ms"),
        socket_timeout_ms=config.integer("replica.socket.timeout.ms"),
        receive_buffer_bytes=config.integer("replica.socket.receive.buffer.bytes"),
        setup_timeout_ms=config.integer("socket.connection.setup.timeout.ms"),
        setup_timeout_max_ms=config.integer("socket.connection.setup.timeout.max.ms"),
    )


def address_of(broker_id: int, listener: str) -> Address | None:
    """The address of a listener of a broker; None if the broker is not alive, or has no such listener."""
    for broker in brokers.brokers():
        if broker.id == broker_id:
            endpoint = broker.endpoint(listener)
            return None if endpoint is None else (endpoint.host, endpoint.port)
    return None


class Replicator:
    """The main thread of the replicator: it distributes the followed partitions to the fetchers."""

    def __init__(self, context: ProcessContext) -> None:
        config = context.config
        self._context = context
        self._shm = context.shm
        self._settings = settings_of(config)
        self._listener = config.inter_broker_listener.name
        self._security = peer_security_of(context)
        self._slots = FollowedSlots()
        self._flusher = SharedFlusher()
        self._fetchers = Fetchers(self._make, config.node_id, config.integer("num.replica.fetchers"))
        self._brokers_version = brokers.version()
        self._counted_bytes = 0
        self._stopping = False
        self._busy = BusyTime()
        wakeup_read, wakeup_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._stop)
        self._poll = select.poll()
        self._poll.register(wakeup_read, select.POLLIN)
        self._poll.register(self._shm.event_fd(), select.POLLIN)

    def _make(self, leader_id: int, number: int, lane: int) -> Fetcher:
        return Fetcher(
            leader_id,
            number,
            lane,
            self._settings,
            self._shm,
            self._context.log_dirs,
            lambda: address_of(leader_id, self._listener),
            self._security,
            self._flusher,
        )

    def _stop(self, *_: object) -> None:
        self._stopping = True

    def run(self) -> None:
        """Follow the slots until SIGTERM."""
        self._shm.set_state(ProcessState.SERVING)
        self._shm.wake(0)
        release_start_pages()
        look_at_all = 0.0
        while not self._stopping:
            self._shm.beat()
            now = time.monotonic()
            at_all = self._shm.take_full_look() or now >= look_at_all
            if at_all:
                look_at_all = now + LOOK_AT_ALL_S
            self._look(at_all)
            self._account()
            if any(fd == self._shm.event_fd() for fd, _ in self._poll.poll(LONGEST_WAIT_MS)):
                self._shm.drain_event()
                self._fetchers.flushed()
        self._shm.set_state(ProcessState.STOPPING)
        self._fetchers.stop(STOP_S)
        self._flusher.close()

    def _look(self, at_all: bool) -> None:
        """Take over what has changed: settings, roles, addresses."""
        if self._context.running.changed:
            self._context.running.take_over(self._context.config)
            self._fetchers.set_wanted(self._context.config.integer("num.replica.fetchers"))
            if self._security is not None:
                self._security.refresh()
        changes = self._slots.look(at_all)
        if changes:
            self._fetchers.change(changes)
        limit_replication(self._context.config, QuotaSide.QUOTA_FOLLOWER, self._fetchers.count)
        self._shm.confirm_version(self._slots.version)
        version = brokers.version()
        if version != self._brokers_version:
            self._brokers_version = version
            self._fetchers.look()
        self._fetchers.revive()

    def _account(self) -> None:
        total = self._fetchers.records_bytes
        count("replication_bytes_in", total - self._counted_bytes)
        self._counted_bytes = total
        gauge("replica_max_lag", self._fetchers.max_lag)
        gauge("replica_failed", self._fetchers.failed)
        self._busy.tick()
        logs.report_failures()


def main(context: ProcessContext) -> int:
    """Run until SIGTERM. Returns the exit code."""
    Replicator(context).run()
    return 0
