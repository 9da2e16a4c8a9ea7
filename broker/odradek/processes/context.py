"""The argument that the supervisor passes to the main function of every process it forks."""

import socket
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from odradek._ext.shm.shared_memory import SharedMemory
from odradek.config.broker_config import BrokerConfig
from odradek.config.listeners import Listener
from odradek.processes.authorization import new_pages
from odradek.shm.confirmed_pages import ConfirmedPages
from odradek.shm.credentials_version import CredentialsVersion, tokens_version
from odradek.shm.published_faults import PublishedFaults
from odradek.shm.published_jwks import PublishedJwks
from odradek.shm.published_quotas import PublishedQuotas
from odradek.shm.published_tasks import PublishedTasks
from odradek.shm.running_config import RunningConfig
from odradek.storage.log_directory import MetaProperties, read_meta_properties, write_meta_properties

if TYPE_CHECKING:
    from odradek.net.tls_listeners import TlsListeners


@dataclass
class ProcessContext:
    """The environment of one process. The supervisor creates its parts before the first fork; only the place that `shm` has
    entered belongs to the process itself.

    :param shm: the shared mapping, already entered at `index`.
    :param index: the process's place in the shared process table.
    :param ordinal: its number among the `count` processes of its kind, from 0.
    :param listeners: the bound listeners, with the port that was chosen; `advertised`: the addresses that clients receive for
        them, in the same order.
    :param log_dirs: paths in the order of the shared table's log directories, including offline ones.
    :param clean: for each log directory, whether it was shut down cleanly before this start.
    :param running: the settings that change while the broker runs; `config` is the process's own copy of all settings.
    :param quotas: the quotas of clients and addresses.
    :param credentials: the version of the SCRAM credentials, which the coordinator raises when they change.
    :param tokens: the version of the delegation tokens, which the coordinator raises when one ends earlier.
    :param acls: the published ACLs; without an authorizer they are not used.
    :param jwks: the keys of identity providers, which the coordinator reads.
    :param faults: of TLS and of logins at other brokers, for the status document and the metrics.
    :param tasks: what the background tasks of all processes last did.
    :param handover_fd: a worker's end of its channel with the acceptor; -1 for other processes.
    :param metrics_socket: the reporter's listening socket; None for other processes and if `metrics.listener` is empty.
    :param reporter_memory: a descriptor of the memory that a reporter leaves to its successor; -1 for other processes.
    :param forward_path: the Unix socket on which the coordinator receives forwarded requests. `forward_listener` is this
        socket, listening. It outlives every coordinator, so connections of workers wait while the coordinator restarts.
    :param tls: the listeners with TLS; None if there are none, so that the TLS library is not even loaded.
    """

    config: BrokerConfig
    shm: SharedMemory
    index: int
    kind: int
    ordinal: int
    count: int
    listeners: Sequence[Listener]
    advertised: Sequence[Listener]
    log_dirs: Sequence[Path]
    clean: Sequence[bool]
    forward_path: str
    forward_listener: socket.socket | None = None
    handover_fd: int = -1
    metrics_socket: socket.socket | None = None
    reporter_memory: int = -1
    running: RunningConfig = field(default_factory=RunningConfig)
    quotas: PublishedQuotas = field(default_factory=PublishedQuotas)
    tls: "TlsListeners | None" = None
    credentials: CredentialsVersion = field(default_factory=CredentialsVersion)
    tokens: CredentialsVersion = field(default_factory=tokens_version)
    acls: ConfirmedPages = field(default_factory=new_pages)
    jwks: PublishedJwks = field(default_factory=PublishedJwks)
    faults: PublishedFaults = field(default_factory=PublishedFaults)
    tasks: PublishedTasks = field(default_factory=PublishedTasks)

    def note_cluster(self, cluster_id: str) -> None:
        """Write the id of the cluster that this broker joined for the first time to `meta.properties` of all online log
        directories, and to the shared memory. Raises OSError."""
        for number, path in enumerate(self.log_dirs):
            if not self.shm.log_dir_offline(number):
                known = read_meta_properties(path)
                directory_id = known.directory_id if known is not None and known.directory_id else uuid.uuid4()
                write_meta_properties(path, MetaProperties(1, self.config.node_id, cluster_id, directory_id))
        self.shm.cluster_id = cluster_id
