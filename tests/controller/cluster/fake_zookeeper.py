"""A tree of nodes in memory with sessions: what ZooKeeper guarantees, without time.

A `Client` is a `Store`. Its session ends when the test expires it; its calls then raise SessionExpired. ``reachable = False``
cuts it off: its calls raise StoreUnavailable, and watches that fire meanwhile are lost.
"""

import itertools

from odradek.metadata.store import (
    ANY_VERSION,
    CHANGED,
    CHILDREN,
    CREATED,
    DELETED,
    BadVersion,
    Event,
    NodeExists,
    NoNode,
    NoSession,
    NotEmpty,
    Session,
    SessionExpired,
    Stat,
    StoreUnavailable,
    check_path,
    parent_of,
)


class Node:
    __slots__ = ("created", "data", "modified", "next_child", "owner", "version")

    def __init__(self, data, number, owner):
        self.data, self.version, self.created, self.modified = data, 0, number, number
        self.owner, self.next_child = owner, 0


class FakeZooKeeper:
    def __init__(self):
        self.nodes = {"/": Node(b"", 0, 0)}
        self.child_names = {"/": set()}
        self.number = 0
        self.ids = itertools.count(1)
        self.sessions = set()
        self.clients = []
        self.log = []  # (session id, path) of every change

    def client(self):
        client = Client(self)
        self.clients.append(client)
        return client

    def expire(self, session_id):
        """The session ends: its ephemeral nodes are deleted."""
        self.sessions.discard(session_id)
        for path in [path for path, node in self.nodes.items() if node.owner == session_id]:
            self.apply([("delete", path, ANY_VERSION)], 0)

    def stat(self, path):
        node = self.nodes.get(path)
        if node is None:
            return None
        return Stat(node.version, node.created, node.modified, node.owner, len(self.child_names[path]))

    def apply(self, operations, session_id):
        """All operations or none; the watches are called afterwards."""
        undo = []
        events = []
        results = []
        self.number += 1
        try:
            for kind, *arguments in operations:
                results.append(getattr(self, f"_{kind}")(undo, events, session_id, *arguments))
        except BaseException:
            for revert in reversed(undo):
                revert()
            self.number -= 1
            raise
        self.log += [(session_id, event.path) for event in events if event.kind != CHILDREN]
        for client in list(self.clients):
            client.fire(events)
        return results

    def _check(self, undo, events, session_id, path, version):
        node = self.nodes.get(path)
        if node is None:
            raise NoNode(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersion(path)

    def _create(self, undo, events, session_id, path, data, ephemeral, sequential):
        parent = parent_of(path)
        if parent not in self.nodes:
            raise NoNode(parent)
        if ephemeral and not session_id:
            raise NoSession(path)
        if sequential:
            path = f"{path}{self.nodes[parent].next_child:010d}"
        if path in self.nodes:
            raise NodeExists(path)
        self.nodes[parent].next_child += 1
        self.nodes[path] = Node(data, self.number, session_id if ephemeral else 0)
        self.child_names[path] = set()
        self.child_names[parent].add(path.rpartition("/")[2])
        undo.append(lambda: self._remove(path))
        events += [Event(CREATED, path), Event(CHILDREN, parent)]
        return path

    def _remove(self, path):
        del self.nodes[path], self.child_names[path]
        self.child_names[parent_of(path)].discard(path.rpartition("/")[2])

    def _set(self, undo, events, session_id, path, data, version):
        self._check(undo, events, session_id, path, version)
        node = self.nodes[path]
        before = (node.data, node.version, node.modified)
        node.data, node.version, node.modified = data, node.version + 1, self.number

        def revert():
            node.data, node.version, node.modified = before

        undo.append(revert)
        events.append(Event(CHANGED, path))
        return self.stat(path)

    def _delete(self, undo, events, session_id, path, version):
        self._check(undo, events, session_id, path, version)
        if self.child_names[path]:
            raise NotEmpty(path)
        node = self.nodes[path]
        self._remove(path)

        def revert():
            self.nodes[path], self.child_names[path] = node, set()
            self.child_names[parent_of(path)].add(path.rpartition("/")[2])

        undo.append(revert)
        events += [Event(DELETED, path), Event(CHILDREN, parent_of(path))]


class Client:
    """A `Store`."""

    def __init__(self, tree):
        self.tree = tree
        self.session = None
        self.reachable = True
        self.before_call = lambda: None  # raises what the server answers, or what fails on the way
        self.data_watches = {}
        self.child_watches = {}

    def fire(self, events):
        for event in events:
            if event.kind == CHILDREN:
                watches = self.child_watches.pop(event.path, [])
            else:
                watches = self.data_watches.pop(event.path, [])
                if event.kind == DELETED:
                    watches = watches + self.child_watches.pop(event.path, [])
            if self.reachable:
                for watch in dict.fromkeys(watches):
                    watch(event)

    def _ready(self):
        if not self.reachable:
            raise StoreUnavailable("connection lost")
        if self.session is not None and self.session.id not in self.tree.sessions:
            raise SessionExpired(f"session {self.session.id} has expired")
        self.before_call()

    def _apply(self, *operations):
        self._ready()
        return self.tree.apply(operations, self.session.id if self.session else 0)

    def lose_watches(self):
        """What a lost connection does."""
        self.data_watches, self.child_watches = {}, {}

    def start_session(self, resume=None):
        self.session = resume or Session(next(self.tree.ids), b"password")
        self.tree.sessions.add(self.session.id)
        return self.session

    def end_session(self):
        if self.session is not None:
            self.tree.expire(self.session.id)
        self.session = None

    def close(self):
        self.tree.clients.remove(self)

    def get(self, path, watch=None):
        (node,) = self.get_many([path], watch)
        if node is None:
            raise NoNode(path)
        return node

    def get_many(self, paths, watch=None):
        self._ready()
        result = []
        for path in paths:
            node = self.tree.nodes.get(path)
            result.append(None if node is None else (node.data, self.tree.stat(path)))
            if watch is not None and node is not None:
                self.data_watches.setdefault(path, []).append(watch)
        return result

    def exists(self, path, watch=None):
        self._ready()
        if watch is not None:
            self.data_watches.setdefault(path, []).append(watch)
        return self.tree.stat(path)

    def children(self, path, watch=None):
        self._ready()
        if path not in self.tree.nodes:
            raise NoNode(path)
        if watch is not None:
            self.child_watches.setdefault(path, []).append(watch)
        return sorted(self.tree.child_names[path])

    def some_children(self, path, after, limit):
        return [name for name in self.children(path) if name > after][:limit]

    def create(self, path, data=b"", *, ephemeral=False, sequential=False, make_parents=False):
        missing = []
        parent = path
        while make_parents and (parent := parent_of(parent)) not in self.tree.nodes:
            missing.append(("create", parent, b"", False, False))
        return self._apply(*reversed(missing), ("create", check_path(path), data, ephemeral, sequential))[-1]

    def set(self, path, data, version=ANY_VERSION):
        return self._apply(("set", path, data, version))[0]

    def set_many(self, changes):
        self._apply(*(("set", *change) for change in changes))

    def delete(self, path, version=ANY_VERSION):
        self._apply(("delete", path, version))

    def transaction(self):
        return FakeTransaction(self)


class FakeTransaction:
    def __init__(self, client):
        self._client = client
        self._operations = []

    def create(self, path, data=b"", *, ephemeral=False, sequential=False):
        self._operations.append(("create", path, data, ephemeral, sequential))
        return self

    def set(self, path, data, version=ANY_VERSION):
        self._operations.append(("set", path, data, version))
        return self

    def delete(self, path, version=ANY_VERSION):
        self._operations.append(("delete", path, version))
        return self

    def check(self, path, version):
        self._operations.append(("check", path, version))
        return self

    def commit(self):
        return self._client._apply(*self._operations)
