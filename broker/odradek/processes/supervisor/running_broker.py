"""The shared memory, the children that map it, and the channels and sockets between them.

The supervisor owns them. It builds them at its start and again after a memory fault. `BrokerResources` contains the parts that
outlive a memory fault: the configuration, the log directories, the listening sockets. Only the supervisor's thread uses this
module, except for `RunningBroker._run_child`, which runs in the forked child.
"""

import gc
import logging
import os
import resource
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odradek._ext.partition.append_files import limit_append_files
from odradek._ext.shm import client_quotas, pauses
from odradek._ext.shm.arena import initialise_arena
from odradek._ext.shm.brokers import begin_cluster
from odradek._ext.shm.layout import ProcessKind, ProcessState
from odradek._ext.shm.shared_memory import SharedMemory
from odradek.config.broker_config import BrokerConfig
from odradek.config.key import MAX_INT
from odradek.config.listeners import Listener
from odradek.config.pid_file import COORDINATOR_SOCKET
from odradek.net import handover, listeners
from odradek.net.limits import ConnectionLimits, Limits, ListenerLimits, parse_overrides
from odradek.processes.authorization import new_pages
from odradek.processes.context import ProcessContext
from odradek.processes.supervisor.children import Child, Children, close_all_but, resolve
from odradek.processes.supervisor.event_loop import EventLoop
from odradek.processes.supervisor.intake import Intake
from odradek.processes.supervisor.log_dirs import LogDirectories, StartError
from odradek.processes.table import PROCESSES, ProcessRow
from odradek.shm.confirmed_pages import ConfirmedPages
from odradek.shm.credentials_version import CredentialsVersion, tokens_version
from odradek.shm.published_faults import PublishedFaults
from odradek.shm.published_jwks import PublishedJwks
from odradek.shm.published_quotas import PublishedQuotas
from odradek.shm.published_tasks import PublishedTasks
from odradek.shm.replication_quotas import begin_quotas
from odradek.shm.running_config import RunningConfig

if TYPE_CHECKING:
    from odradek.net.tls_listeners import TlsListeners

log = logging.getLogger("odradek.supervisor")

COLLECTIONS = (20_000, 20, 10)
"""Thresholds of Python's garbage collector in children. A large response consists of some 100,000 objects, none of them
garbage; with Python's default thresholds, most of the time for such a response would be spent on examining them."""


@dataclass(frozen=True)
class BrokerResources:
    """The parts that exist before the shared memory, and that are kept when the shared memory is rebuilt.

    :param sockets: the listening sockets of the listeners `bound`, in the same order.
    :param metrics_socket: the listening socket for the reporter; None if `metrics.listener` is empty.
    :param rows: the process table; tests replace it. :param tls: the listeners with TLS; None if there are none.
    :param clock: monotonic seconds.
    """

    config: BrokerConfig
    directories: LogDirectories
    sockets: Sequence[socket.socket]
    bound: Sequence[Listener]
    metrics_socket: socket.socket | None = None
    rows: Sequence[ProcessRow] = PROCESSES
    clock: Callable[[], float] = time.monotonic
    running: RunningConfig = field(default_factory=RunningConfig)
    quotas: PublishedQuotas = field(default_factory=PublishedQuotas)
    tls: "TlsListeners | None" = None
    credentials: CredentialsVersion = field(default_factory=CredentialsVersion)
    tokens: CredentialsVersion = field(default_factory=tokens_version)
    acls: ConfirmedPages = field(default_factory=new_pages)
    jwks: PublishedJwks = field(default_factory=PublishedJwks)
    faults: PublishedFaults = field(default_factory=PublishedFaults)
    tasks: PublishedTasks = field(default_factory=PublishedTasks)


class RunningBroker:
    """One build of the shared memory, with the children that map it. `close` releases it.

    After `close`, `shm`, `children` and `intake` can still be read, for the status document, until the next RunningBroker is
    created, which unmaps the shared memory.

    :raises StartError: the shared memory or a socket cannot be created, or a connection limit is invalid.
    """

    def __init__(self, resources: BrokerResources, loop: EventLoop) -> None:
        config = resources.config
        self.resources = resources
        self._loop = loop
        try:
            self.shm = _shared_memory(config, resources.directories)
            self.children = Children(
                self.shm, [(row, row.count(config)) for row in resources.rows], self._prepare_child, resources.clock
            )
            self._workers = [child for child in self.children.all if child.row.kind == ProcessKind.WORKER]
            self._channels = [handover.make_channel() for _ in self._workers]
            self._forward_listener = listeners.listen_unix(resources.directories.first, COORDINATOR_SOCKET)
            self._reporter_memory = os.fdopen(os.memfd_create("odradek-reporter", os.MFD_CLOEXEC), "rb+")
            limits = ConnectionLimits(
                _connection_limits(config, resources.bound),
                config.integer("quota.window.num"),
                config.integer("quota.window.size.seconds") * 1000,
                lambda address: resources.quotas.current.connection_rate(address),
            )
        except OSError as error:
            raise StartError(
                f"cannot create the shared memory and sockets of the broker's processes: {error}"
            ) from error
        except ValueError as error:
            raise StartError(str(error)) from error
        limit_append_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 3)
        self._advertised = listeners.advertised(config.advertised_listeners, resources.bound)
        self._inherited = {
            self.shm.memfd,
            *resources.running.descriptors,
            *resources.acls.descriptors,
            *resources.jwks.descriptors,
            *resources.faults.descriptors,
            *resources.tasks.descriptors,
            *resources.directories.descriptors,
        }
        self._inherited |= {*resources.quotas.descriptors}
        if resources.tls is not None:
            self._inherited.add(resources.tls.published.descriptor)
        self._inherited |= {*resources.credentials.descriptors, *resources.tokens.descriptors}
        self._inherited |= {self.shm.event_fd(process.index) for process in self.shm.processes()}
        self.intake = Intake(loop, resources.sockets, self._channels, limits, self._worker_serves)
        self._event_fd = self.shm.event_fd()
        loop.watch(self._event_fd, self._on_wake)

    def close(self) -> None:
        """Release the channels and sockets; the children must have ended. May be called twice."""
        self._loop.unwatch(self._event_fd)
        self.intake.close()
        for ours, theirs in self._channels:
            ours.close()
            theirs.close()
        self._forward_listener.close()
        self._reporter_memory.close()

    def serves(self, child: Child) -> bool:
        """Whether a child's process has started and serves."""
        return bool(self.shm.serves(child.index))

    def take_over_settings(self) -> None:
        """Apply the settings that changed at run time. Each later child starts with them."""
        config = self.resources.config
        if not self.resources.running.take_over(config):
            return
        self._advertised = listeners.advertised(config.advertised_listeners, self.resources.bound)
        try:
            self.intake.acceptor.limits.change(_connection_limits(config, self.resources.bound))
            self.intake.acceptor.publish_limit()
        except ValueError as error:
            log.error("cannot apply the changed connection limits: %s; the previous limits stay in force", error)

    def take_over_quotas(self) -> None:
        """Apply the quotas for new connections that changed."""
        quotas = self.resources.quotas
        if quotas.take_over():
            quotas.confirm()

    def _on_wake(self) -> None:
        self.shm.drain_event()
        self.take_over_settings()
        self.take_over_quotas()
        self.intake.hand_over()

    def _worker_serves(self, ordinal: int) -> bool:
        return self.serves(self._workers[ordinal])

    def _prepare_child(self, child: Child) -> Callable[[], int]:
        """The function that runs in the child. The objects that it needs are created before the fork, because a child gets its
        own copy of every page that it writes to, and Python also writes to objects that it only reads."""
        context, main = self._context_of(child), resolve(child.row.main)
        return lambda: self._run_child(child, context, main)

    def _run_child(self, child: Child, context: ProcessContext, main: Callable[[ProcessContext], int]) -> int:
        """Runs in the child: close the descriptors that it does not need, then call its main function."""
        sockets = (context.forward_listener, context.metrics_socket)
        own = {context.handover_fd, context.reporter_memory, *(sock.fileno() for sock in sockets if sock is not None)}
        close_all_but(self._inherited | own)
        context.running.enter(child.index)
        context.acls.enter(child.index)
        context.running.take_over(context.config)
        context.quotas.enter(child.index)
        context.credentials.enter(child.index)
        context.tokens.enter(child.index)
        gc.set_threshold(*COLLECTIONS)
        gc.enable()
        return main(context)

    def _context_of(self, child: Child) -> ProcessContext:
        kind, directories = child.row.kind, self.resources.directories
        is_worker, is_reporter = kind == ProcessKind.WORKER, kind == ProcessKind.REPORTER
        return ProcessContext(
            config=self.resources.config,
            shm=self.shm,
            index=child.index,
            kind=kind,
            ordinal=child.ordinal,
            count=len([other for other in self.children.all if other.row is child.row]),
            listeners=self.resources.bound,
            advertised=self._advertised,
            log_dirs=directories.paths,
            clean=directories.clean,
            # Through the inherited descriptor: the path of a Unix socket has at most 107 bytes.
            forward_path=f"/proc/self/fd/{directories.fds[0]}/{COORDINATOR_SOCKET}",
            forward_listener=self._forward_listener if kind == ProcessKind.COORDINATOR else None,
            handover_fd=self._channels[child.ordinal][1].fileno() if is_worker else -1,
            metrics_socket=self.resources.metrics_socket if is_reporter else None,
            reporter_memory=self._reporter_memory.fileno() if is_reporter else -1,
            running=self.resources.running,
            quotas=self.resources.quotas,
            tls=self.resources.tls,
            credentials=self.resources.credentials,
            tokens=self.resources.tokens,
            acls=self.resources.acls,
            jwks=self.resources.jwks,
            faults=self.resources.faults,
            tasks=self.resources.tasks,
        )


def _shared_memory(config: BrokerConfig, directories: LogDirectories) -> SharedMemory:
    """Create the shared memory, with the supervisor's own place and the log directories in it. Raises OSError, ValueError."""
    shm = SharedMemory(config.integer("odradek.max.partitions"), config.integer("odradek.producer.state.max.bytes"))
    initialise_arena(
        config.integer("odradek.producer.state.client.max.percent"),
        config.integer("odradek.producer.state.partition.max.producers"),
    )
    shm.add_process(ProcessKind.SUPERVISOR)
    shm.process_starts(0)
    shm.enter(0)
    shm.set_state(ProcessState.SERVING)
    shm.broker_id = config.node_id
    client_quotas.set_windows(config.integer("quota.window.num"), config.integer("quota.window.size.seconds"))
    shm.cluster_id = directories.cluster_id
    if config.clustered:
        begin_cluster(config.integer("replica.lag.time.max.ms"))
        pauses.begin(config.integer("zookeeper.session.timeout.ms"), pauses.clock_ms())
        begin_quotas(config)
    for number, fd in enumerate(directories.fds):
        shm.add_log_dir(fd)
        if not directories.online[number]:
            shm.set_log_dir_offline(number)
    return shm


def _connection_limits(config: BrokerConfig, bound: Sequence[Listener]) -> Limits:
    """The limits of connections. Raises ValueError."""
    inter_broker = config.inter_broker_listener.name if config.clustered and len(bound) > 1 else None
    return Limits(
        total=config.integer("max.connections"),
        per_address=config.integer("max.connections.per.ip"),
        overrides=parse_overrides(str(config["max.connections.per.ip.overrides"])),
        rate=config.integer("max.connection.creation.rate"),
        listeners=[
            ListenerLimits(
                _of_listener(config, listener.name, "max.connections"),
                _of_listener(config, listener.name, "max.connection.creation.rate"),
                listener.name == inter_broker,
            )
            for listener in bound
        ],
    )


def _of_listener(config: BrokerConfig, listener: str, key: str) -> int:
    """The value of a key for one listener only; no limit if only the value for the whole broker is set."""
    value = config.own_listener_value(listener, key)
    return value if isinstance(value, int) else MAX_INT
