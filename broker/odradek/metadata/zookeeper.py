"""The metadata store in ZooKeeper: see `Store`. Only this module uses kazoo.

One thread uses a store object. kazoo's own threads receive responses and events, and call watches and `on_state`. The rules by
which this module uses kazoo:

- kazoo drops all watches at every loss of the connection, and calls them. A watch only means that its node must be read again,
  so that is passed on: a caller that reads the node again arms the watch again.
- A request that waits while the connection is lost would wait without limit. Each call therefore waits at most for the session
  timeout and then raises StoreUnavailable; its change may have happened.
- After a session has expired, kazoo begins a new one by itself. `session` then has another id, and the ephemeral nodes are
  deleted.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import EventType, WatchedEvent, ZnodeStat
from kazoo.retry import KazooRetry

from odradek.config.broker_config import BrokerConfig
from odradek.metadata.store import (
    ANY_VERSION,
    CHANGED,
    CHILDREN,
    CREATED,
    DELETED,
    BadVersion,
    Event,
    NoChildrenForEphemerals,
    NodeError,
    NodeExists,
    NoNode,
    NotEmpty,
    Session,
    SessionExpired,
    Stat,
    StoreError,
    StoreUnavailable,
    Watch,
    check_path,
    parent_of,
)

log = logging.getLogger("odradek.metadata")

IN_FLIGHT = 200
"""The number of reads of a bulk that wait for responses."""
TRANSACTION_BYTES = 512 << 10
"""The size of a transaction of `set_many`, below ZooKeeper's limit of 1 MiB for a request."""
OPERATION_BYTES = 128
LONGEST_RETRY_S = 1.0

OF_KAZOO: dict[type[KazooException], type[NodeError]] = {
    exceptions.NoNodeError: NoNode,
    exceptions.NodeExistsError: NodeExists,
    exceptions.BadVersionError: BadVersion,
    exceptions.NotEmptyError: NotEmpty,
    exceptions.NoChildrenForEphemeralsError: NoChildrenForEphemerals,
}
KINDS = {
    EventType.CREATED: CREATED,
    EventType.DELETED: DELETED,
    EventType.CHANGED: CHANGED,
    EventType.CHILD: CHILDREN,
    EventType.NONE: CHANGED,  # the connection was lost
}


def stat_of(stat: ZnodeStat) -> Stat:
    """The Stat of a node."""
    return Stat(stat.version, stat.czxid, stat.mzxid, stat.ephemeralOwner, stat.numChildren)


def _error_of(error: Exception, path: str) -> StoreError:
    """The error of this project for an error of kazoo."""
    for kind, meaning in OF_KAZOO.items():
        if isinstance(error, kind):
            return meaning(path)
    if isinstance(error, KazooTimeoutError):
        return StoreUnavailable(f"no response from ZooKeeper for {path}")
    return StoreUnavailable(f"{path}: {type(error).__name__} {error}".rstrip())


@contextmanager
def _errors(path: str) -> Iterator[None]:
    try:
        yield
    except (KazooException, KazooTimeoutError) as error:
        raise _error_of(error, path) from error


def _told(watch: Watch | None) -> Callable[[WatchedEvent], None] | None:
    """The form in which kazoo calls a watch."""
    if watch is None:
        return None

    def called(event: WatchedEvent) -> None:
        watch(Event(KINDS.get(event.type, CHANGED), event.path or ""))

    return called


class ZookeeperStore:
    """See the module and `Store`.

    :param servers: as in ``zookeeper.connect``: host:port, comma-separated, with an optional /chroot, which is created.
    :param on_state: called with the new state of the connection: "CONNECTED", "SUSPENDED" or "LOST".
    """

    def __init__(self, servers: str, session_timeout_ms: int, on_state: Callable[[str], None] | None = None) -> None:
        self._hosts, slash, chroot = servers.partition("/")
        self._chroot = slash + chroot.rstrip("/") if chroot else ""
        self._timeout_s = session_timeout_ms / 1000
        self._on_state = on_state
        self._client: KazooClient | None = None

    # -- session --------------------------------------------------------------------------------------------------

    @property
    def session(self) -> Session | None:
        """See `Store`."""
        identity = None if self._client is None else self._client.client_id
        return None if identity is None or not identity[0] else Session(identity[0], identity[1])

    def start_session(self, resume: Session | None = None) -> Session:
        """See `Store`. Connects; raises StoreUnavailable if no server answers within the session timeout."""
        self._make_chroot()
        client = self._connected(self._chroot, resume)
        session = Session(*client.client_id)
        if resume is not None and session.id != resume.id:
            self._end(client)
            raise SessionExpired(f"session {resume.id:#x} has ended")
        self._client = client
        if self._on_state is not None:
            client.add_listener(self._on_state)
        return session

    def _connected(self, chroot: str, resume: Session | None) -> KazooClient:
        client = KazooClient(
            hosts=self._hosts + chroot,
            timeout=self._timeout_s,
            client_id=None if resume is None else (resume.id, resume.password),
            connection_retry=KazooRetry(max_tries=-1, delay=0.1, max_delay=LONGEST_RETRY_S),
            command_retry=KazooRetry(max_tries=0),
            logger=log,
        )
        try:
            client.start(self._timeout_s)
        except (KazooException, KazooTimeoutError) as error:
            self._end(client)
            raise StoreUnavailable(f"no server of {self._hosts} answers within {self._timeout_s:g} s") from error
        return client

    def _make_chroot(self) -> None:
        if not self._chroot:
            return
        client = self._connected("", None)
        try:
            with _errors(self._chroot):
                client.ensure_path(self._chroot)
        finally:
            self._end(client)

    @staticmethod
    def _end(client: KazooClient) -> None:
        client.stop()
        client.close()

    def end_session(self) -> None:
        """See `Store`."""
        if self._client is not None:
            client, self._client = self._client, None
            self._end(client)

    def close(self) -> None:
        """See `Store`. The session stays until a successor resumes it or it expires."""
        if self._client is not None:
            client, self._client = self._client, None
            # kazoo has no call that leaves the session: without a queued CloseInstance, it closes only the connection.
            client._stopped.set()
            client._connection._write_sock.send(b"\0")
            client._safe_close()
            client.close()

    # -- reading --------------------------------------------------------------------------------------------------

    def _now(self) -> KazooClient:
        if self._client is None:
            raise StoreUnavailable("ZooKeeper is not connected yet")
        return self._client

    def _wait(self, pending: Any, path: str) -> Any:
        with _errors(path):
            return pending.get(timeout=self._timeout_s)

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """See `Store`."""
        data, stat = self._wait(self._now().get_async(check_path(path), _told(watch)), path)
        return data or b"", stat_of(stat)

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """See `Store`."""
        stat = self._wait(self._now().exists_async(check_path(path), _told(watch)), path)
        return None if stat is None else stat_of(stat)

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """See `Store`."""
        return sorted(self._wait(self._now().get_children_async(check_path(path), _told(watch)), path))

    def some_children(self, path: str, after: str, limit: int) -> list[str]:
        """See `Store`. ZooKeeper always returns all children."""
        return [name for name in self.children(path) if name > after][:limit]

    def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[tuple[bytes, Stat] | None]:
        """See `Store`."""
        client, told = self._now(), _told(watch)
        nodes: list[tuple[bytes, Stat] | None] = []
        for first in range(0, len(paths), IN_FLIGHT):
            portion = paths[first : first + IN_FLIGHT]
            pending = [client.get_async(check_path(path), told) for path in portion]
            for path, response in zip(portion, pending, strict=True):
                try:
                    data, stat = self._wait(response, path)
                except NoNode:
                    nodes.append(None)
                else:
                    nodes.append((data or b"", stat_of(stat)))
        return nodes

    # -- writing --------------------------------------------------------------------------------------------------

    def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        """See `Store`."""
        if make_parents and parent_of(path) != "/":
            with _errors(path):
                self._now().ensure_path(parent_of(path))
        arguments = {"ephemeral": ephemeral, "sequence": sequential}
        created: str = self._wait(self._now().create_async(check_path(path), data, **arguments), path)
        return created

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """See `Store`."""
        return stat_of(self._wait(self._now().set_async(check_path(path), data, version), path))

    def set_many(self, changes: Sequence[tuple[str, bytes, int]]) -> None:
        """See `Store`. Several transactions, if one would be too large."""
        transaction, size = self.transaction(), 0
        for path, data, version in changes:
            size += len(path) + len(data) + OPERATION_BYTES
            if size > TRANSACTION_BYTES:
                transaction.commit()
                transaction, size = self.transaction(), 0
            transaction.set(path, data, version)
        try:
            transaction.commit()
        except NoNode as error:
            raise BadVersion(error.path) from error

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """See `Store`."""
        self._wait(self._now().delete_async(check_path(path), version), path)

    def transaction(self) -> "ZookeeperTransaction":
        """See `Store`."""
        return ZookeeperTransaction(self._now(), self._wait)


class ZookeeperTransaction:
    """See `Transaction`."""

    def __init__(self, client: KazooClient, wait: Callable[[Any, str], Any]) -> None:
        self._request = client.transaction()
        self._paths: list[str] = []
        self._wait = wait

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> "ZookeeperTransaction":
        """See `Transaction`."""
        self._request.create(check_path(path), data, ephemeral=ephemeral, sequence=sequential)
        self._paths.append(path)
        return self

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> "ZookeeperTransaction":
        """See `Transaction`."""
        self._request.set_data(check_path(path), data, version)
        self._paths.append(path)
        return self

    def delete(self, path: str, version: int = ANY_VERSION) -> "ZookeeperTransaction":
        """See `Transaction`."""
        self._request.delete(check_path(path), version)
        self._paths.append(path)
        return self

    def check(self, path: str, version: int) -> "ZookeeperTransaction":
        """See `Transaction`."""
        self._request.check(check_path(path), version)
        self._paths.append(path)
        return self

    def commit(self) -> list[str | Stat | None]:
        """See `Transaction`. kazoo does not raise the error of a refused transaction: its results contain it."""
        if not self._paths:
            return []
        results = self._wait(self._request.commit_async(), self._paths[0])
        for path, result in zip(self._paths, results, strict=True):
            if isinstance(result, KazooException) and not isinstance(
                result, exceptions.RolledBackError | exceptions.RuntimeInconsistency
            ):
                raise _error_of(result, path)
        if any(isinstance(result, KazooException) for result in results):
            raise StoreUnavailable(f"{self._paths[0]}: ZooKeeper refused the transaction without a reason")
        return [
            stat_of(result) if isinstance(result, ZnodeStat) else result if isinstance(result, str) else None
            for result in results
        ]


def _result_of(result: object) -> str | Stat | None:
    """The result of one operation of a transaction."""
    if isinstance(result, ZnodeStat):
        return stat_of(result)
    return result if isinstance(result, str) else None


def open_zookeeper(config: BrokerConfig, on_state: Callable[[str], None] | None = None) -> ZookeeperStore:
    """A store on the ZooKeeper of the configuration, without a session yet."""
    return ZookeeperStore(str(config["zookeeper.connect"]), config.integer("zookeeper.session.timeout.ms"), on_state)
