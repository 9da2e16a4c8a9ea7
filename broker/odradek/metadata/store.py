"""The metadata tree as the broker uses it: nodes, versions, sessions, watches, transactions.

The semantics are ZooKeeper's, so that ZooKeeper and the embedded store can stand in for each other; one test suite
holds both to them. Only the coordinator writes (and, before it is started, the first loader). Calls block until the
change is durable: they belong into the controller's thread, never onto an event loop. A store object belongs to the
thread that opened it.

Paths begin with a slash, do not end with one, and have no empty, ``.`` or ``..`` component and no NUL; ``/`` is the
root.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

ANY_VERSION = -1


class StoreError(Exception):
    """A call that the store did not carry out; nothing of it happened."""


class NodeError(StoreError):
    """An operation that the state of the tree does not allow. ``path`` is the node at fault."""

    meaning = "operation refused"

    def __init__(self, path: str) -> None:
        super().__init__(f"{self.meaning}: {path}")
        self.path = path


class NoNode(NodeError):
    """The node, or the parent of a node to create, does not exist."""

    meaning = "no such node"


class NodeExists(NodeError):
    """A node to create is already there."""

    meaning = "node exists"


class BadVersion(NodeError):
    """The node's version is not the one expected."""

    meaning = "version moved on"


class NotEmpty(NodeError):
    """A node to delete has children, or is the root."""

    meaning = "node has children"


class NoChildrenForEphemerals(NodeError):
    """The parent of a node to create is ephemeral."""

    meaning = "ephemeral nodes have no children"


class NoSession(StoreError):
    """An ephemeral node was to be created without a session."""


class SessionExpired(StoreError):
    """The session to resume is gone, and its ephemeral nodes with it."""


class StoreUnavailable(StoreError):
    """The store cannot be reached, read or written now (disk full, connection lost): worth trying again.

    Of a store over a network it is not known whether the change happened.
    """


class Stat(NamedTuple):
    """What is known of a node besides its data.

    ``version`` counts changes of the data from 0; ``created`` and ``modified`` are numbers of transactions, growing
    over the whole store; ``owner`` is the id of the session of an ephemeral node, else 0; ``children`` counts
    children.
    """

    version: int
    created: int
    modified: int
    owner: int
    children: int


class Session(NamedTuple):
    """Names a session, so that a successor process can resume it. ``id`` is positive, below 2**63."""

    id: int
    password: bytes


class Event(NamedTuple):
    """What a watch is told: ``kind`` is one of CREATED, DELETED, CHANGED (data) and CHILDREN."""

    kind: str
    path: str


CREATED, DELETED, CHANGED, CHILDREN = "created", "deleted", "changed", "children"

Watch = Callable[[Event], None]
"""Called once, after the change is durable, perhaps in another thread; must not call the store and must not raise."""


class Transaction(Protocol):
    """Operations that happen all or not at all, in the order given. Used once."""

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> "Transaction": ...
    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> "Transaction": ...
    def delete(self, path: str, version: int = ANY_VERSION) -> "Transaction": ...
    def check(self, path: str, version: int) -> "Transaction": ...

    def commit(self) -> list[str | Stat | None]:
        """Carry all out. A result for each: the path created, the Stat after a set, None for delete and check.

        Raises the StoreError of the first operation that cannot be done; then nothing was done.
        """
        ...


class Store(Protocol):
    """The tree. Every method may raise StoreUnavailable; ValueError for a malformed path."""

    @property
    def session(self) -> Session | None:
        """The session under way, None before ``start_session``."""
        ...

    def start_session(self, resume: Session | None = None) -> Session:
        """Begin a session, or take over the one of a predecessor with its ephemeral nodes.

        Raises SessionExpired if there is none such to resume, or its password is another.
        """
        ...

    def end_session(self) -> None:
        """End the session; its ephemeral nodes go at once."""
        ...

    def close(self) -> None:
        """Let go of the store. The session stays, for a successor to resume, until it expires."""
        ...

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """Data and Stat; the watch hears of the next change of the data or the deletion. Raises NoNode."""
        ...

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Stat, or None; the watch hears of the creation, the next change of the data or the deletion."""
        ...

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names of the children, sorted; the watch hears when one comes or goes, or of the deletion. Raises NoNode."""
        ...

    def some_children(self, path: str, after: str, most: int) -> list[str]:
        """Names of up to `most` children, sorted, beginning with the first name above `after` ("" for the first of all).

        For nodes that may have so many children that one call must not read all of them. Raises NoNode.
        """
        ...

    def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """What ``get`` gives for each path, None where there is no node; one round trip where there is a network."""
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
        """Create a node; the path it got.

        A sequential node's name gets ten digits appended that grow with every node created under its parent.

        Raises NodeExists, NoNode (no parent), NoChildrenForEphemerals, NoSession.
        """
        ...

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Replace the data; the Stat after. Raises NoNode, BadVersion."""
        ...

    def set_many(self, changes: Sequence[tuple[str, bytes, int]]) -> None:
        """Replace the data of many nodes (path, data, version that it has), in one transaction where the store can.

        Raises BadVersion, also where there is no node.
        """
        ...

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node without children. Raises NoNode, BadVersion, NotEmpty."""
        ...

    def transaction(self) -> Transaction: ...


def check_path(path: str) -> str:
    """The path, if it is well formed. Raises ValueError."""
    if path == "/":
        return path
    if not path.startswith("/"):
        raise ValueError(f"path {path!r} must begin with /")
    if "\0" in path:
        raise ValueError(f"path {path!r} must not contain NUL")
    for name in path[1:].split("/"):
        if name in ("", ".", ".."):
            raise ValueError(f"path {path!r} must not have the component {name!r}")
    return path


def parent_of(path: str) -> str:
    """The path of the parent of a node other than the root."""
    return path.rpartition("/")[0] or "/"


def ensure_path(store: Store, path: str) -> None:
    """Create a node without data, and its parents, where they are missing."""
    if store.exists(path) is None:
        try:
            store.create(path, make_parents=True)
        except NodeExists:
            pass  # somebody else was faster: what was wanted is there


def each_child(store: Store, path: str, at_once: int = 250) -> Iterator[str]:
    """The names of all children of a node, sorted, read in portions when they are needed; none if there is no such node."""
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
    """Delete a node and all below it, children before parents, `batch` nodes a transaction; nothing if there is none.

    Not atomic beyond a batch: what remains after a death is a smaller tree with its root.
    """
    while not delete_some(store, path, batch):
        pass


def delete_some(store: Store, path: str, most: int) -> bool:
    """Delete up to `most` nodes of the tree below and including `path` in one transaction, children before parents.

    Returns whether no node of the tree is left. Nodes may be added to the tree between two calls.
    """
    nodes = lowest_nodes(store, path, most)
    delete_nodes(store, nodes)
    return not nodes or nodes[-1] == path


def lowest_nodes(store: Store, path: str, most: int) -> list[str]:
    """Up to `most` nodes of the tree below and including `path`, in an order in which they can be deleted.

    The last one is `path` if these are all nodes of the tree. Empty if there is no such node.
    """
    found: list[str] = []

    def add(node: str, has_children: bool) -> bool:
        after = ""
        while has_children:
            names = store.some_children(node, after, most)
            children = [f"{node}/{name}" for name in names]
            for child, entry in zip(children, store.get_many(children), strict=True):
                if entry is not None and not add(child, entry[1].children > 0):
                    return False
            has_children = len(names) == most
            after = names[-1] if names else ""
        if len(found) == most:
            return False
        found.append(node)
        return True

    stat = store.exists(path)
    if stat is not None:
        add(path, stat.children > 0)
    return found


def delete_nodes(store: Store, paths: Sequence[str]) -> None:
    """Delete nodes in one transaction, in this order. Raises NoNode, NotEmpty; then none is deleted."""
    if not paths:
        return
    transaction = store.transaction()
    for path in paths:
        transaction.delete(path)
    transaction.commit()
