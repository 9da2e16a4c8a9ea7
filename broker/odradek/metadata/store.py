"""The interface of the metadata store: a tree of nodes with versions, sessions, watches and transactions.

The semantics are ZooKeeper's, so that ZooKeeper and the embedded store are interchangeable; one test suite checks both. Only
the coordinator writes, and before its start the first loader. Calls block until the change is durable: call them in the
store thread, never in an event loop. Only the thread that opened a store object may use it.

Paths begin with a slash, do not end with one, and have no empty, ``.`` or ``..`` component and no NUL; ``/`` is the
root.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

ANY_VERSION = -1
REQUEST_BYTES = 1_000_000
"""The maximum size of a change in a store over a network. ZooKeeper closes the connection on a request of more than 1 MiB
(jute.maxbuffer)."""


class StoreError(Exception):
    """The store did not execute a call; it changed nothing."""


class Refused(StoreError):
    """An operation was refused while the connection is well: it changed nothing; the reason is the operation or the node.

    Errors have three classes. Refused: certainly not executed; a repetition has the same result until something is changed.
    `StoreUnavailable`: not executed now, because of the connection or the store. `OutcomeUnknown`: perhaps executed.
    """


class NotSent(Refused):
    """An operation was refused before anything was sent to the store."""


class NotPermitted(Refused):
    """The store does not permit this broker to use a node."""


class OverLimit(Refused):
    """The store refused an operation because of a limit that its operator has set: a quota, or the rate of requests."""


class NodeError(Refused):
    """The state of the tree does not allow an operation. ``path``: the node."""

    meaning = "operation refused"

    def __init__(self, path: str) -> None:
        super().__init__(f"{self.meaning}: {path}")
        self.path = path


class NoNode(NodeError):
    """The node, or the parent of a node to create, does not exist."""

    meaning = "no such node"


class NodeExists(NodeError):
    """A node to create already exists."""

    meaning = "node exists"


class BadVersion(NodeError):
    """The version of the node is not the expected one."""

    meaning = "node was changed by another writer"


class NotEmpty(NodeError):
    """A node to delete has children, or is the root."""

    meaning = "node has children"


class NoChildrenForEphemerals(NodeError):
    """The parent of a node to create is ephemeral."""

    meaning = "ephemeral nodes cannot have children"


class NoSession(NotSent):
    """An ephemeral node cannot be created without a session."""


class SessionExpired(StoreError):
    """The session to resume has ended, and its ephemeral nodes are deleted."""


class StoreUnavailable(StoreError):
    """The store cannot be reached, read or written now (disk full, connection lost); the call can be retried.

    With a store over a network, the change may have happened; `OutcomeUnknown` says so.
    """


class StoreTimeout(StoreUnavailable):
    """A store over a network did not respond in time. The message names the store and what was waited for."""


class WrongTree(StoreUnavailable):
    """The tree is not that of the broker's cluster. Nothing is read from it or written to it."""


class OutcomeUnknown(StoreTimeout):
    """The connection was lost before the response to a change: the change may have happened, completely or not at all.

    The caller reads the nodes before it repeats the change.
    """


class TooLarge(NotSent):
    """A change is larger than the store accepts in one request."""


class Stat(NamedTuple):
    """The metadata of a node.

    ``version``: the number of changes of the data; ``created`` and ``modified``: numbers of transactions, which increase over
    the whole store; ``owner``: the session id of an ephemeral node, else 0; ``children``: the number of children;
    ``created_ms``: the time of the creation by the wall clock of the store's server, 0 if the store does not keep it.
    """

    version: int
    created: int
    modified: int
    owner: int
    children: int
    created_ms: int = 0


class Session(NamedTuple):
    """Identifies a session, so that a successor process can resume it. ``id`` is positive, below 2**63."""

    id: int
    password: bytes


class Event(NamedTuple):
    """The argument of a watch. ``kind``: CREATED, DELETED, CHANGED (data) or CHILDREN."""

    kind: str
    path: str


CREATED, DELETED, CHANGED, CHILDREN = "created", "deleted", "changed", "children"

Watch = Callable[[Event], None]
"""Called once, after the change is durable, perhaps in another thread; must not call the store and must not raise.

A store over a network also calls it, with the kind CHANGED or CHILDREN, when it is connected again after a loss of the
connection: the node may have changed meanwhile. After `end_session` or `close`, the watches of that store are not called any
more."""


class Transaction(Protocol):
    """Operations that are executed in order, all or none. Used once."""

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> "Transaction": ...
    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> "Transaction": ...
    def delete(self, path: str, version: int = ANY_VERSION) -> "Transaction": ...
    def check(self, path: str, version: int) -> "Transaction": ...

    def commit(self) -> list[str | Stat | None]:
        """Execute all operations. Returns for each: the path (create), the Stat (set), or None (delete, check).

        Raises the StoreError of the first operation that fails; then none is executed.
        """
        ...


class Store(Protocol):
    """The tree. Every method may raise StoreUnavailable; ValueError for a malformed path."""

    @property
    def session(self) -> Session | None:
        """The current session; None before ``start_session``."""
        ...

    def start_session(self, resume: Session | None = None) -> Session:
        """Begin a session, or resume the session of a predecessor with its ephemeral nodes.

        Raises SessionExpired if the session does not exist or has another password.
        """
        ...

    def end_session(self) -> None:
        """End the session and delete its ephemeral nodes."""
        ...

    def close(self) -> None:
        """Close the store. A successor can resume the session until it expires."""
        ...

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """Data and Stat. The watch is called for the next change of the data or the deletion. Raises NoNode."""
        ...

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """The Stat, or None. The watch is called for the creation, the next change of the data or the deletion."""
        ...

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names of the children, sorted. The watch is called when a child is created or deleted, or the node is deleted.

        Raises NoNode.
        """
        ...

    def children_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[list[str] | None]:
        """The result of ``children`` for each path, None if the node does not exist; see `get_many`."""
        ...

    def some_children(self, path: str, after: str, limit: int) -> list[str]:
        """Names of up to `limit` children that are greater than `after` ("" for the first children), sorted.

        For nodes that may have too many children for one call. Raises NoNode.
        """
        ...

    def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[tuple[bytes, Stat] | None]:
        """The result of ``get`` for each path, None if the node does not exist; one round trip in a store over a network.

        The watch is set on every node that exists.
        """
        ...

    def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        """Create a node; return its path.

        The name of a sequential node gets a suffix of ten digits, which increases with every node created under its parent.

        Raises NodeExists, NoNode (no parent), NoChildrenForEphemerals, NoSession.
        """
        ...

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Replace the data; return the new Stat. Raises NoNode, BadVersion."""
        ...

    def set_many(self, changes: Sequence[tuple[str, bytes, int]]) -> None:
        """Replace the data of many nodes (path, data, present version), in one transaction if the store supports that.

        Raises BadVersion, also if a node does not exist.
        """
        ...

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node without children. Raises NoNode, BadVersion, NotEmpty."""
        ...

    def transaction(self) -> Transaction: ...


def check_path(path: str) -> str:
    """Return the path if it is valid. Raises ValueError."""
    if path == "/":
        return path
    if not path.startswith("/"):
        raise ValueError(f"path {path!r} must begin with /")
    if "\0" in path:
        raise ValueError(f"path {path!r} must not contain NUL")
    for name in path[1:].split("/"):
        if name in ("", ".", ".."):
            raise ValueError(f"path {path!r} must not contain the component {name!r}")
    return path


def parent_of(path: str) -> str:
    """The path of the parent of a node other than the root."""
    return path.rpartition("/")[0] or "/"


def ensure_path(store: Store, path: str) -> None:
    """Create a node without data and its parents, if they do not exist."""
    if store.exists(path) is None:
        try:
            store.create(path, make_parents=True)
        except NodeExists:
            pass  # another process created it


def each_child(store: Store, path: str, at_once: int = 250) -> Iterator[str]:
    """Yield the names of all children of a node, sorted, read in portions on demand; none if the node does not exist."""
    after = ""
    while True:
        try:
            names = store.some_children(path, after, at_once)
        except NoNode:
            return
        yield from names
        if len(names) < at_once:
            return
        after = names[-1]


def delete_tree(store: Store, path: str, batch: int = 256) -> None:
    """Delete a node, if it exists, and all nodes below it, children before parents, `batch` nodes per transaction.

    Only a batch is atomic: if the process dies, a smaller tree with the same root remains.
    """
    while not delete_some(store, path, batch):
        pass


def delete_some(store: Store, path: str, limit: int) -> bool:
    """Delete up to `limit` nodes of the tree below and including `path` in one transaction, children before parents.

    Returns True if no node of the tree remains. Nodes may be added to the tree between two calls.
    """
    nodes = lowest_nodes(store, path, limit)
    delete_nodes(store, nodes)
    return not nodes or nodes[-1].path == path


class PresentNode(NamedTuple):
    """A node that existed with this Stat."""

    path: str
    stat: Stat


def lowest_nodes(store: Store, path: str, limit: int) -> list[PresentNode]:
    """Up to `limit` nodes of the tree below and including `path`, in an order in which they can be deleted.

    The last node is `path` if the result contains all nodes of the tree. Empty if `path` does not exist.
    """
    nodes: list[PresentNode] = []

    def add(node: str, stat: Stat) -> bool:
        after = ""
        has_children = stat.children > 0
        while has_children:
            names = store.some_children(node, after, limit)
            children = [f"{node}/{name}" for name in names]
            for child, entry in zip(children, store.get_many(children), strict=True):
                if entry is not None and not add(child, entry[1]):
                    return False
            has_children = len(names) == limit
            after = names[-1] if names else ""
        if len(nodes) == limit:
            return False
        nodes.append(PresentNode(node, stat))
        return True

    root = store.exists(path)
    if root is not None:
        add(path, root)
    return nodes


def delete_nodes(store: Store, nodes: Sequence[PresentNode]) -> None:
    """Delete nodes in this order in one transaction. Raises NoNode, NotEmpty, and BadVersion if a node was changed since it
    was read; then no node is deleted."""
    if not nodes:
        return
    transaction = store.transaction()
    for path, stat in nodes:
        transaction.delete(path, stat.version)
    transaction.commit()
