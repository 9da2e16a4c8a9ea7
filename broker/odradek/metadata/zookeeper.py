"""The metadata store in ZooKeeper: see `Store`. Only this module, `zookeeper_*`, `multi_read` and `tree_guard` use kazoo.

One thread uses a store object, except where noted; kazoo's threads receive responses and events, and call watches and the
listener. What a network adds to the semantics of `Store`:

- Each call waits at most for the session timeout, for a connection and then for the response. kazoo repeats nothing.
  While there is no connection for longer than the session timeout, calls fail at once.
- Reads whose response was lost are repeated. Changes are not, unless the tree shows whether they happened: `create` recognises
  the own node, `set` with a version the own data. Everything else raises `OutcomeUnknown`.
- Watches are called when the connection is restored, because a change may have been missed.
- After a session has expired, there is a new one, and the ephemeral nodes of the old one are deleted. `on_session` reports it.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, TypeVar

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.protocol.serialization import GetChildren, GetData
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, Id

from odradek.config import zookeeper_client
from odradek.config.broker_config import BrokerConfig
from odradek.metadata import token_nodes, znodes
from odradek.metadata.multi_read import Kind, portions, read_nodes
from odradek.metadata.session import SessionEvent
from odradek.metadata.store import (
    ANY_VERSION,
    CHANGED,
    CHILDREN,
    BadVersion,
    NodeExists,
    NoNode,
    NoSession,
    NotEmpty,
    OutcomeUnknown,
    Session,
    SessionExpired,
    Stat,
    StoreTimeout,
    StoreUnavailable,
    Watch,
    check_path,
    parent_of,
)
from odradek.metadata.tree_guard import Check, TreeGuard
from odradek.metadata.zookeeper_connection import Beat, ZookeeperConnection, ZookeeperOptions
from odradek.metadata.zookeeper_errors import UNANSWERED, error_of
from odradek.metadata.zookeeper_transaction import (
    OPERATION_BYTES,
    Request,
    ZookeeperTransaction,
    check_size,
    stat_of,
)

PORTION_BYTES = 512 << 10
"""The size of a transaction of `set_many`."""

SECRET = (znodes.USER_CONFIGS, znodes.BROKER_CONFIGS, token_nodes.TOKENS)
"""With `zookeeper.set.acl`, only brokers may read these nodes and the nodes below them."""
OPEN = "/consumers"
"""With `zookeeper.set.acl`, the node that everybody may change: consumers of Kafka 0.8 create their groups below it."""

Result = TypeVar("Result")
Item = TypeVar("Item", str, Sequence[str])


def _node_of(response: tuple[bytes | None, ZnodeStat]) -> tuple[bytes, Stat]:
    return response[0] or b"", stat_of(response[1])


def _first(item: str | Sequence[str]) -> str:
    """The first path of a request."""
    return item if isinstance(item, str) else item[0]


class ZookeeperStore:
    """See the module and `Store`. Connects at its first use or by `start_session`; creates the chroot if it does not exist."""

    def __init__(self, options: ZookeeperOptions) -> None:
        self.options = options
        self._connection: ZookeeperConnection | None = None
        self._lock = threading.Lock()  # of the two attributes around it, for `stop_waiting`
        self._stopped = False
        self._has_session = False
        self._has_chroot = not options.chroot
        self._multi_reads = True  # until a server does not know them
        self._listener: Callable[[SessionEvent], None] | None = None
        self._guard: TreeGuard | None = None
        self._beat: Beat | None = None

    # -- session --------------------------------------------------------------------------------------------------

    @property
    def session(self) -> Session | None:
        """See `Store`. After a session has expired, the id of its successor. May be called in any thread."""
        connection = self._connection
        return connection.session if self._has_session and connection is not None else None

    @property
    def connected(self) -> bool:
        """Whether there is a connection now. May be called in any thread."""
        connection = self._connection
        return connection is not None and bool(connection.client.connected)

    def wait_until_connected(self, within_s: float) -> bool:
        """Wait for a connection; see `connected`. May be called in any thread."""
        connection = self._connection
        return connection is not None and connection.wait_until_connected(time.monotonic() + within_s)

    @property
    def last_zxid(self) -> int:
        """The last transaction that this client has seen; 0 if none."""
        return 0 if self._connection is None else int(self._connection.client.last_zxid)

    @property
    def session_timeout_s(self) -> float:
        """The session timeout in seconds, as granted by ZooKeeper, which has a lower and an upper limit."""
        return self.options.session_timeout_s if self._connection is None else self._connection.timeout_s

    def on_session(self, listener: Callable[[SessionEvent], None]) -> None:
        """Call `listener` for every later event of the connection, in kazoo's thread; it must return at once."""
        self._listener = listener

    def on_beat(self, beat: Beat) -> None:
        """Call `beat` in kazoo's thread again and again, from the first connection of the session on, as long as that
        thread runs. Must be called before the first use of the store."""
        self._beat = beat

    def guard(self, path: str, check: Check, changed: Callable[[], None]) -> None:
        """Let later calls fail with WrongTree while a node is not right, see `TreeGuard`."""
        self._guard = TreeGuard(path, check, changed)

    def _on_event(self, event: SessionEvent) -> None:
        if self._listener is not None:
            self._listener(event)

    def start_session(self, resume: Session | None = None, last_zxid: int = 0) -> Session:
        """See `Store`. Raises StoreUnavailable if no server answers within the connection timeout.

        :param last_zxid: of the predecessor, so that the session is not resumed at a server that has older nodes.
        """
        if resume is not None:
            self._end(in_order=True)
        connection = self._connect(resume, last_zxid)
        assert connection.session is not None
        if resume is not None and connection.session.id != resume.id:
            self._end(in_order=True)
            raise SessionExpired(f"session {resume.id:#x} has ended")
        self._has_session = True
        return connection.session

    def _connect(self, resume: Session | None = None, last_zxid: int = 0) -> ZookeeperConnection:
        """The connection; begun, if there is none or if kazoo has given it up. Raises StoreUnavailable."""
        connection = self._connection
        if self._stopped:
            raise StoreUnavailable("the connection to ZooKeeper is closed")
        if connection is not None:
            if connection.alive:
                return connection
            return self._connect_again(connection)
        self._make_chroot()
        return self._begin(resume, last_zxid, self.options.chroot)

    def _connect_again(self, given_up: ZookeeperConnection, resume: bool = True) -> ZookeeperConnection:
        """Replace a connection, in its session, or in one that has seen nothing. Raises StoreUnavailable."""
        before = given_up.session if self._has_session and resume else None
        last_zxid = self.last_zxid if resume else 0
        given_up.end(in_order=False)
        try:
            connection = self._begin(before, last_zxid, self.options.chroot)
        except StoreUnavailable:
            self._set(given_up)  # the next call replaces it
            raise
        assert connection.session is not None
        same = resume and (before is None or connection.session.id == before.id)
        self._on_event(SessionEvent.CONNECTED if same else SessionEvent.NEW_SESSION)
        return connection

    def revive(self) -> None:
        """Connect again if the connection was given up, because ZooKeeper had refused the credentials. Raises
        StoreUnavailable."""
        connection = self._connection
        if connection is not None and not connection.alive:
            self._connect_again(connection)

    def replace_session(self) -> None:
        """Begin a new session if there is no connection in the present one. Raises StoreUnavailable."""
        if self._connection is not None and self._connection.lost_at:
            self._connect_again(self._connection, resume=False)

    def _begin(
        self, resume: Session | None, last_zxid: int, chroot: str, keeps_session: bool = True
    ) -> ZookeeperConnection:
        connection = ZookeeperConnection(self.options, self._on_event, self._beat if keeps_session else None)
        with self._lock:
            if self._stopped:
                raise StoreUnavailable("the connection to ZooKeeper is closed")
            connection.start(resume, last_zxid, chroot)
            self._connection = connection
        try:
            connection.wait_until_started()
        except StoreUnavailable:
            self._set(None)
            raise
        return connection

    def _set(self, connection: ZookeeperConnection | None) -> None:
        with self._lock:
            self._connection = connection

    def _make_chroot(self) -> None:
        if self._has_chroot:
            return
        self._begin(None, 0, "", keeps_session=False)
        try:
            parts = self.options.chroot.split("/")
            for count in range(2, len(parts) + 1):
                path = "/".join(parts[:count])
                if self.exists(path) is None:
                    try:
                        self.create(path)
                    except NodeExists:
                        pass  # another broker created it
            self._has_chroot = True
        finally:
            self._end(in_order=True)

    def _end(self, in_order: bool) -> bool:
        """End the connection. Returns False if a session remains that should end."""
        connection = self._connection
        if connection is None:
            return True
        self._set(None)
        return connection.end(in_order) or not in_order

    def end_session(self) -> None:
        """See `Store`. Ends the connection; later calls connect again, without a session.

        Raises StoreUnavailable if ZooKeeper does not confirm it within seconds; the session then ends by its timeout.
        """
        if self._has_session:
            self._has_session = False
            timeout_s = self.session_timeout_s
            if not self._end(in_order=True):
                raise StoreUnavailable(
                    f"ZooKeeper did not confirm the end of the session; it ends after {timeout_s:g} s"
                )

    def close(self) -> None:
        """See `Store`. Returns within seconds, also if ZooKeeper does not respond."""
        with self._lock:
            self._stopped = True
        self._end(in_order=not self._has_session)

    def stop_waiting(self) -> None:
        """Let the present and all later calls fail at once; may be called in any thread. `close` must follow."""
        with self._lock:
            self._stopped = True
            connection = self._connection
        if connection is not None:
            connection.stop_waiting()

    # -- calls ----------------------------------------------------------------------------------------------------

    def _ready(self, deadline: float, path: str) -> ZookeeperConnection:
        """A connection on which a request about `path` can be made now. Raises StoreUnavailable, WrongTree."""
        while True:
            connection = self._connected(deadline, path)
            if self._guard is None:
                return connection
            try:
                self._guard.admit(connection, max(deadline - time.monotonic(), 0))
                return connection
            except (KazooException, *UNANSWERED) as error:
                lost = isinstance(error, (*UNANSWERED, exceptions.SessionExpiredError))
                if not lost or time.monotonic() >= deadline or self._stopped:
                    raise error_of(error, self._guard.path, self.options.hosts) from error

    def _connected(self, deadline: float, path: str) -> ZookeeperConnection:
        """See `_ready`. Waits until the deadline, or until there was no connection for the session timeout."""
        connection = self._connect()
        if connection.lost_at:
            deadline = min(deadline, connection.lost_at + self.options.session_timeout_s)
        if not connection.wait_until_connected(deadline):
            if connection.alive or self._stopped:
                raise StoreTimeout(
                    f"ZooKeeper at {self.options.hosts} is not connected; {path} cannot be read or changed before it is"
                )
            return self._connect()
        return connection

    def _deadline(self) -> float:
        return time.monotonic() + self.options.session_timeout_s

    def _read(self, request: Request, path: str) -> Any:
        """The response to a read, which is repeated if the connection is lost. Raises StoreError."""
        deadline = self._deadline()
        while True:
            connection = self._ready(deadline, path)
            pending = request(connection.client)
            try:
                return pending.get(timeout=max(deadline - time.monotonic(), 0))
            except (*UNANSWERED, exceptions.SessionExpiredError) as error:
                connection.withdraw(pending)
                if time.monotonic() >= deadline or self._stopped:
                    raise error_of(error, path, self.options.hosts) from error
            except KazooException as error:
                raise error_of(error, path, self.options.hosts) from error

    def _change(self, request: Request, path: str, creates: bool = False) -> Any:
        """The response to a change. Raises StoreError; OutcomeUnknown if the change may have happened."""
        deadline = self._deadline()
        connection = self._ready(deadline, path)
        pending = request(connection.client)
        try:
            return pending.get(timeout=max(deadline - time.monotonic(), 0))
        except UNANSWERED as error:
            connection.withdraw(pending)
            raise OutcomeUnknown(
                f"ZooKeeper at {self.options.hosts} did not respond to a change of {path}, which may have happened"
            ) from error
        except KazooException as error:
            raise error_of(error, path, self.options.hosts, creates) from error

    def _after_loss(self, path: str) -> tuple[bytes, Stat] | None:
        """The node after an unanswered change of it, when the change has happened or will never happen. Raises StoreError.

        ZooKeeper refuses requests of the old connection after the session was moved, and `sync` waits for accepted ones.
        """
        self._read(lambda client: client.sync_async(path), path)
        try:
            return self.get(path)
        except NoNode:
            return None

    def sync(self) -> None:
        """Let later reads see all changes that have happened before this call. Raises StoreError."""
        self._read(lambda client: client.sync_async("/"), "/")

    # -- reading --------------------------------------------------------------------------------------------------

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """See `Store`."""
        check_path(path)
        return _node_of(self._read(lambda client: client.get_async(path, self._armed(watch, CHANGED, path)), path))

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """See `Store`."""
        check_path(path)
        stat = self._read(lambda client: client.exists_async(path, self._armed(watch, CHANGED, path)), path)
        return None if stat is None else stat_of(stat)

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """See `Store`."""
        check_path(path)
        return sorted(
            self._read(lambda client: client.get_children_async(path, self._armed(watch, CHILDREN, path)), path)
        )

    def some_children(self, path: str, after: str, limit: int) -> list[str]:
        """See `Store`. ZooKeeper always returns all children."""
        return [name for name in self.children(path) if name > after][:limit]

    def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[tuple[bytes, Stat] | None]:
        """See `Store`."""
        if watch is None and self._multi_reads and len(paths) > 1:
            return self._read_portions(paths, GetData, _node_of, self.get_many)
        return self._read_many(
            [check_path(path) for path in paths],
            lambda client, path: client.get_async(path, self._armed(watch, CHANGED, path)),
            _node_of,
        )

    def children_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[list[str] | None]:
        """See `Store`."""
        if watch is None and self._multi_reads and len(paths) > 1:
            return self._read_portions(paths, GetChildren, sorted, self.children_many)
        return self._read_many(
            [check_path(path) for path in paths],
            lambda client, path: client.get_children_async(path, self._armed(watch, CHILDREN, path)),
            sorted,
        )

    def _read_portions(
        self,
        paths: Sequence[str],
        kind: Kind,
        convert: Callable[[Any], Result],
        one_by_one: Callable[[Sequence[str]], list[Result | None]],
    ) -> list[Result | None]:
        """Read nodes without a watch, many in a request. :param one_by_one: for servers older than ZooKeeper 3.6."""
        items = portions([check_path(path) for path in paths])
        try:
            read = self._read_many(items, lambda client, portion: read_nodes(client, kind, portion), list)
        except exceptions.UnimplementedError:
            self._multi_reads = False
            return one_by_one(paths)
        found: list[Result | None] = []
        nodes = chain.from_iterable(portion or () for portion in read)
        for path, node in zip(paths, nodes, strict=True):
            if isinstance(node, KazooException) and not isinstance(node, exceptions.NoNodeError):
                raise error_of(node, path, self.options.hosts)
            found.append(None if isinstance(node, KazooException) else convert(node))
        return found

    def _armed(self, watch: Watch | None, kind: str, path: str) -> Any:
        assert self._connection is not None
        return self._connection.armed(watch, kind, path)

    def _read_many(
        self, items: Sequence[Item], request: Callable[[KazooClient, Item], Any], convert: Callable[[Any], Result]
    ) -> list[Result | None]:
        """Read nodes, `in_flight` requests ahead of the responses; None for a node that does not exist. After a loss of the
        connection, continues with the first request without a response. The time limit applies to each response.

        :param items: a path, or paths, for each request.
        """
        found: list[Result | None] = []
        deadline = self._deadline()
        while len(found) < len(items):
            client = self._ready(deadline, _first(items[len(found)])).client
            pending: deque[Any] = deque()
            try:
                while len(found) < len(items):
                    item = items[len(found)]
                    while len(pending) < self.options.in_flight and len(found) + len(pending) < len(items):
                        pending.append(request(client, items[len(found) + len(pending)]))
                    found.append(self._converted(pending.popleft(), convert, deadline))
                    deadline = self._deadline()
            except (*UNANSWERED, exceptions.SessionExpiredError) as error:
                if time.monotonic() >= deadline or self._stopped:
                    raise error_of(error, _first(item), self.options.hosts) from error
            except exceptions.UnimplementedError:
                raise
            except KazooException as error:
                raise error_of(error, _first(item), self.options.hosts) from error
        return found

    @staticmethod
    def _converted(pending: Any, convert: Callable[[Any], Result], deadline: float) -> Result | None:
        try:
            return convert(pending.get(timeout=max(deadline - time.monotonic(), 0)))
        except exceptions.NoNodeError:
            return None

    # -- writing --------------------------------------------------------------------------------------------------

    def acl(self, path: str) -> list[ACL]:
        """The ACL of a node to create."""
        if not self.options.set_acl or path == OPEN:
            return list(OPEN_ACL_UNSAFE)
        secret = any(path == root or path.startswith(f"{root}/") for root in SECRET)
        return [*CREATOR_ALL_ACL] if secret else [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]

    def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        """See `Store`. Each missing parent is created by a separate request. Raises TooLarge.

        If the response is lost, a node with the same content that was created since then is the own node.
        """
        if check_path(path) == "/":
            raise NodeExists(path)
        if ephemeral and self.session is None:
            raise NoSession(f"an ephemeral node needs a session: {path}")
        check_size(path, len(path) + len(data))
        arguments: dict[str, Any] = {"acl": self.acl(path), "ephemeral": ephemeral, "sequence": sequential}
        while True:
            before = self.last_zxid
            try:
                return str(
                    self._change(lambda client: client.create_async(path, data, **arguments), path, creates=True)
                )
            except NoNode:
                if not make_parents:
                    raise
                try:
                    self.create(parent_of(path), make_parents=True)
                except NodeExists:
                    pass  # another client created it
            except OutcomeUnknown:
                if sequential:
                    raise
                node = self._after_loss(path)
                if node is None:
                    continue
                stat = node[1]
                own = self.session is not None and stat.owner == self.session.id if ephemeral else stat.owner == 0
                if node[0] == data and stat.created > before and own:
                    return path
                raise NodeExists(path) from None

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """See `Store`. Raises TooLarge. If the response is lost, the data in the next version is the own change."""
        check_size(check_path(path), len(path) + len(data))
        while True:
            before = self.last_zxid
            try:
                return stat_of(self._change(lambda client: client.set_async(path, data, version), path))
            except OutcomeUnknown:
                if version == ANY_VERSION:
                    continue
                node = self._after_loss(path)
                if node is None:
                    raise NoNode(path) from None
                found, stat = node
                if stat.version == version + 1 and stat.modified > before and found == data:
                    return stat
                if stat.version != version:
                    raise BadVersion(path) from None

    def set_many(self, changes: Sequence[tuple[str, bytes, int]]) -> None:
        """See `Store`. Several transactions, if one would be too large; each of them is atomic."""
        transaction, size = self.transaction(), 0
        for path, data, version in changes:
            needed = len(path) + len(data) + OPERATION_BYTES
            if size and size + needed > PORTION_BYTES:
                self._set_portion(transaction)
                transaction, size = self.transaction(), 0
            transaction.set(path, data, version)
            size += needed
        self._set_portion(transaction)

    @staticmethod
    def _set_portion(transaction: ZookeeperTransaction) -> None:
        try:
            transaction.commit()
        except NoNode as error:
            raise BadVersion(error.path) from error

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """See `Store`."""
        if check_path(path) == "/":
            raise NotEmpty(path)
        self._change(lambda client: client.delete_async(path, version), path)

    def transaction(self) -> ZookeeperTransaction:
        """See `Store`."""
        return ZookeeperTransaction(self, self._change)

    # -- for backups ----------------------------------------------------------------------------------------------

    def acl_of(self, path: str) -> list[tuple[str, str, int]]:
        """The entries of the ACL of a node: (scheme, id, permissions). Raises StoreError."""
        entries, _ = self._read(lambda client: client.get_acls_async(check_path(path)), path)
        return [(entry.id.scheme, entry.id.id, int(entry.perms)) for entry in entries]

    def create_with_acl(self, path: str, data: bytes, acl: Sequence[tuple[str, str, int]]) -> None:
        """Create a persistent node with this ACL. Raises StoreError; NodeExists also if a lost request has created it."""
        check_size(check_path(path), len(path) + len(data))
        entries = [ACL(perms, Id(scheme, name)) for scheme, name, perms in acl]
        self._change(lambda client: client.create_async(path, data, acl=entries), path, creates=True)


def open_zookeeper(config: BrokerConfig) -> ZookeeperStore:
    """A store on the ZooKeeper of the configuration, without a session yet. Raises ConfigError if a key store was changed since
    the start and cannot be used."""
    return ZookeeperStore(zookeeper_options(config))


def zookeeper_options(config: BrokerConfig) -> ZookeeperOptions:
    """How a configuration connects to ZooKeeper. Raises ConfigError if a key store cannot be used."""
    session_ms = config.integer("zookeeper.session.timeout.ms")
    connection_ms = config["zookeeper.connection.timeout.ms"]
    return ZookeeperOptions(
        str(config["zookeeper.connect"] or ""),
        session_ms / 1000,
        (connection_ms if isinstance(connection_ms, int) else session_ms) / 1000,
        config.integer("zookeeper.max.in.flight.requests"),
        bool(config["zookeeper.set.acl"]),
        zookeeper_client.digest_credentials(config),
        zookeeper_client.sasl_options(config),
        zookeeper_client.tls_context(config),
    )
