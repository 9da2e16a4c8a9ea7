"""The context of a request that a worker executes: the client, and the worker's view of the cluster."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from odradek._ext.shm.shared_memory import SharedMemory
from odradek._ext.shm.topics import TopicDirectory
from odradek._ext.storage.segment_list import SegmentCache
from odradek.api.cluster_brokers import ClusterBrokers
from odradek.api.connection_address import ConnectionAddresses
from odradek.api.permits import UNRESTRICTED, Permits
from odradek.config.broker_config import BrokerConfig
from odradek.config.listeners import Listener
from odradek.shm.published_tasks import PublishedTasks


class Logins(Protocol):
    """The logins of a worker's clients, see `odradek.processes.worker.logins`."""

    def renew(self, connection: Any, mechanism: str, version: int) -> tuple[int, tuple[str, ...]] | None:
        """Begin a new login on a connection whose client has logged in: the error code and the enabled mechanisms.

        None: the connection needs no login, or the client renewed it less than a second ago.
        """
        ...


class EncodedResponse(NamedTuple):
    """A response without errors that a handler encoded before: its body in the version of the request."""

    body: bytes


@dataclass
class WorkerView:
    """A worker's view of the broker, used in its loop (`segments` only by one off-loop thread).

    :param advertised: the address that clients receive for each listener, in the order of the bound listeners.
    :param addresses: the addresses to which clients have connected; None if all clients receive `advertised`.
    :param brokers: the live brokers of the cluster; None with an embedded metadata store.
    :param logins: the logins of the worker's clients; None in tests without logins.
    :param tasks: the background tasks of this broker's processes; None in tests without them.
    """

    config: BrokerConfig
    shm: SharedMemory
    topics: TopicDirectory
    advertised: Sequence[Listener]
    log_dirs: Sequence[str]
    segments: SegmentCache
    brokers: ClusterBrokers | None = None
    logins: Logins | None = None
    tasks: PublishedTasks | None = None
    addresses: ConnectionAddresses | None = None


@dataclass
class Call:
    """The context of one request.

    :param auto_create: (names, callback, optionally a timeout in seconds): asks the coordinator to create topics, and calls the
        callback with [(name, error code, message)].
    :param permits: what the client may do.
    """

    version: int
    client_id: str | None
    listener_index: int
    connection: Any
    view: WorkerView
    auto_create: Callable[..., None]
    permits: Permits = UNRESTRICTED
