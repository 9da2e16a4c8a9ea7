"""The embedded metadata store: the tree in one SQLite file in the first log directory.

Owned by the coordinator's store thread, and before that by the first loader. Two processes never write at the same time
(if they did, SQLite's locks would still protect the file). A change is durable when the call returns: write-ahead log with
``synchronous=FULL``. Watches are kept in this process. They are called only for changes through this object; these are all
changes, because there is one writer.

A session is a row. ``end_session`` ends it, or ``expire_other_sessions``, which the coordinator calls when it starts: with one
broker, the sessions of earlier starts are dead, because this broker holds the lock on the log directory.
"""

import logging
import os
import sqlite3
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from odradek.metadata.sqlite_room import NO_ROOM_CODES, StoreRoom
from odradek.metadata.store import (
    ANY_VERSION,
    CHANGED,
    CHILDREN,
    CREATED,
    DELETED,
    BadVersion,
    Event,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NoSession,
    NotEmpty,
    Session,
    SessionExpired,
    Stat,
    StoreUnavailable,
    Watch,
    check_path,
    parent_of,
)

log = logging.getLogger("odradek.controller")

FILE_NAME = "odradek-metadata.db"
FORMAT = 1  # PRAGMA user_version of the file
BUSY_TIMEOUT_S = 10.0
OWNER_ONLY = 0o600

_SCHEMA = """
CREATE TABLE node (
  path TEXT PRIMARY KEY, parent TEXT, name TEXT NOT NULL, data BLOB NOT NULL, version INTEGER NOT NULL,
  created INTEGER NOT NULL, modified INTEGER NOT NULL, owner INTEGER NOT NULL, next_child INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX node_parent ON node (parent, name);
CREATE INDEX node_owner ON node (owner) WHERE owner <> 0;
CREATE TABLE session (id INTEGER PRIMARY KEY, password BLOB NOT NULL);
CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counter VALUES ('transactions', 0);
INSERT INTO node VALUES ('/', NULL, '', x'', 0, 0, 0, 0, 0);
"""
_SELECT_NODE = """
SELECT data, version, created, modified, owner, (SELECT count(*) FROM node AS child WHERE child.parent = node.path)
FROM node WHERE path = ?
"""
_SELECT_NODES = """
SELECT path, data, version, created, modified, owner, (SELECT count(*) FROM node AS child WHERE child.parent = node.path)
FROM node WHERE path IN ({places})
"""
_NODES_AT_ONCE = 500
_ALL = -1  # as a LIMIT


def _protect(path: str) -> None:
    """Create the file for its owner alone if it does not exist: it may contain keys of SCRAM users. Take an existing one away
    from users outside its group. SQLite gives the same rights to the files beside it, whatever the umask is. Raises OSError."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, OWNER_ONLY))
    except FileExistsError:
        for file in (Path(path + suffix) for suffix in ("", "-wal", "-shm", "-reserve")):
            with suppress(FileNotFoundError, PermissionError):  # of another owner, who must do it
                mode = stat.S_IMODE(file.stat().st_mode)
                if mode & stat.S_IRWXO:
                    file.chmod(mode & ~stat.S_IRWXO)


class SqliteStore:
    """`Store` in the file `path` (or ``":memory:"``), which is created if it does not exist.

    :param keeps_room: reserve disk space, for a running broker that must work while the disk is full; see `StoreRoom`.
    :raises StoreUnavailable: the file cannot be opened, is not a store, or was written by another version of the broker.
    """

    def __init__(self, path: str | Path, keeps_room: bool = False) -> None:
        self.path = str(path)
        self.session: Session | None = None
        self._data_watches: dict[str, list[Watch]] = {}
        self._child_watches: dict[str, list[Watch]] = {}
        self._room = StoreRoom(self.path) if keeps_room else None
        with self._errors():
            if self.path != ":memory:":
                _protect(self.path)
            if self._room is not None:
                self._room.before_open()
            try:
                self._db = self._open(exclusive=False)
            except sqlite3.Error as error:
                if self._room is None or error.sqlite_errorcode & 0xFF not in NO_ROOM_CODES:
                    raise
                # In this mode SQLite needs no file for its shared index; other processes cannot read the store.
                log.warning(
                    "cannot open the metadata store %s: %s; opening it in exclusive mode, which needs no disk space",
                    self.path,
                    error,
                )
                self._db = self._open(exclusive=True)
            if self._room is not None:
                self._room.after_open(self._db)

    def _open(self, exclusive: bool) -> sqlite3.Connection:
        self._db = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        try:
            if exclusive:
                self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._prepare()
        except BaseException:
            self._db.close()
            raise
        return self._db

    def _prepare(self) -> None:
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("BEGIN IMMEDIATE")
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version == 0:
            for statement in filter(None, map(str.strip, _SCHEMA.split(";"))):
                self._db.execute(statement)
            self._db.execute(f"PRAGMA user_version={FORMAT}")
        elif version != FORMAT:
            self._db.execute("ROLLBACK")
            raise StoreUnavailable(
                f"{self.path} has format {version}, but this broker supports only format {FORMAT}: "
                "start the broker version that wrote the file"
            )
        self._db.execute("COMMIT")
        if version == 0 and self.path != ":memory:":
            directory = os.open(Path(self.path).parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)  # so that the name of the file also survives a power loss
            finally:
                os.close(directory)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StoreUnavailable(f"metadata store {self.path}: {error}") from error

    @contextmanager
    def _changes(self) -> Iterator["_Changes"]:
        """One durable transaction; rolled back if the body raises. Watches are called after it."""
        with self._errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                (number,) = self._db.execute(
                    "UPDATE counter SET value = value + 1 WHERE name = 'transactions' RETURNING value"
                ).fetchone()
                changes = _Changes(self._db, number, self.session)
                yield changes
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            if self._room is not None:
                self._room.changed(self._db)
        self._fire(changes.events)

    # -- sessions -------------------------------------------------------------------------------------------------

    def start_session(self, resume: Session | None = None) -> Session:
        """See `Store`. Raises SessionExpired if the session `resume` does not exist."""
        if resume is not None:
            with self._errors():
                row = self._db.execute("SELECT password FROM session WHERE id = ?", (resume.id,)).fetchone()
            if row is None or row[0] != resume.password:
                raise SessionExpired(f"session {resume.id:#x} has ended")
            self.session = resume
            return resume
        return self.begin_session(Session((int.from_bytes(os.urandom(8), "big") >> 2) + 1, os.urandom(16)))

    def begin_session(self, session: Session) -> Session:
        """Begin this session, or resume it if it exists: for a coordinator and its successors.

        Raises SessionExpired if the session exists with another password.
        """
        try:
            return self.start_session(session)
        except SessionExpired:
            with self._changes() as changes:
                if not changes.add_session(session):
                    raise
        self.session = session
        return session

    def expire_other_sessions(self) -> None:
        """End all sessions except the session of this object, and delete their ephemeral nodes."""
        with self._changes() as changes:
            changes.end_sessions(keep=self.session.id if self.session else 0)

    def end_session(self) -> None:
        """See `Store`."""
        if self.session is not None:
            with self._changes() as changes:
                changes.end_session(self.session.id)
            self.session = None

    def close(self) -> None:
        """See `Store`. Further calls raise StoreUnavailable."""
        with self._errors():
            if self._room is not None:
                self._room.before_close()
            self._db.close()
            if self._room is not None:
                self._room.after_close()

    # -- reading --------------------------------------------------------------------------------------------------

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """See `Store`."""
        (node,) = self.get_many([path])
        if node is None:
            raise NoNode(path)
        if watch is not None:
            self._data_watches.setdefault(path, []).append(watch)
        return node

    def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[tuple[bytes, Stat] | None]:
        """See `Store`."""
        nodes: dict[str, tuple[bytes, Stat]] = {}
        with self._errors():
            for first in range(0, len(paths), _NODES_AT_ONCE):
                portion = [check_path(path) for path in paths[first : first + _NODES_AT_ONCE]]
                statement = _SELECT_NODES.format(places=",".join("?" * len(portion)))
                for path, data, *stat in self._db.execute(statement, portion):
                    nodes[path] = (bytes(data), Stat(*stat))
        if watch is not None:
            for path in nodes:
                self._data_watches.setdefault(path, []).append(watch)
        return [nodes.get(path) for path in paths]

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """See `Store`."""
        check_path(path)
        with self._errors():
            stat = read_stat(self._db, path)
        if watch is not None:
            self._data_watches.setdefault(path, []).append(watch)
        return stat

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """See `Store`."""
        names = self.some_children(path, "", _ALL)
        if watch is not None:
            self._child_watches.setdefault(path, []).append(watch)
        return names

    def children_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[list[str] | None]:
        """See `Store`."""
        names: list[list[str] | None] = []
        for path in paths:
            try:
                names.append(self.children(path, watch))
            except NoNode:
                names.append(None)
        return names

    def some_children(self, path: str, after: str, limit: int) -> list[str]:
        """See `Store`."""
        check_path(path)
        with self._errors():
            if self._db.execute("SELECT 1 FROM node WHERE path = ?", (path,)).fetchone() is None:
                raise NoNode(path)
            rows = self._db.execute(
                "SELECT name FROM node WHERE parent = ? AND name > ? ORDER BY name LIMIT ?", (path, after, limit)
            ).fetchall()
        return [name for (name,) in rows]

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
        check_path(path)
        with self._changes() as changes:
            if make_parents:
                changes.create_parents(path)
            return changes.create(path, data, ephemeral, sequential)

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """See `Store`."""
        check_path(path)
        with self._changes() as changes:
            return changes.set(path, data, version)

    def set_many(self, changes: Sequence[tuple[str, bytes, int]]) -> None:
        """See `Store`. Uses one transaction for all changes."""
        with self._changes() as transaction:
            transaction.set_many(changes)
            if self._data_watches:
                transaction.events += [Event(CHANGED, path) for path, _, _ in changes]

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """See `Store`."""
        check_path(path)
        with self._changes() as changes:
            changes.delete(path, version)

    def transaction(self) -> "SqliteTransaction":
        """See `Store`."""
        return SqliteTransaction(self)

    def fill(self, nodes: Iterable[tuple[str, bytes, int]]) -> None:
        """Create persistent nodes (path, data, version) and missing parents in one transaction. Raises NodeExists.

        For a new store with the content of another one: only this call can set the version of a node.
        """
        with self._changes() as changes:
            for path, data, version in nodes:
                changes.create_parents(check_path(path))
                changes.create(path, data, False, False)
                if version:
                    self._db.execute("UPDATE node SET version = ? WHERE path = ?", (version, path))

    def _fire(self, events: list[Event]) -> None:
        for event in events:
            if event.kind == CHILDREN:
                watches = self._child_watches.pop(event.path, [])
            else:
                watches = self._data_watches.pop(event.path, [])
                if event.kind == DELETED:
                    watches += self._child_watches.pop(event.path, [])
            for watch in watches:
                watch(event)


class SqliteTransaction:
    """`Transaction` of an SqliteStore."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._operations: list[tuple[Any, ...]] = []

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> "SqliteTransaction":
        """Add the creation of a node."""
        self._operations.append((_Changes.create, check_path(path), data, ephemeral, sequential))
        return self

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> "SqliteTransaction":
        """Add a change of data."""
        self._operations.append((_Changes.set, check_path(path), data, version))
        return self

    def delete(self, path: str, version: int = ANY_VERSION) -> "SqliteTransaction":
        """Add the deletion of a node."""
        self._operations.append((_Changes.delete, check_path(path), version))
        return self

    def check(self, path: str, version: int) -> "SqliteTransaction":
        """Add the condition that the node has this version (ANY_VERSION: that it exists)."""
        self._operations.append((_Changes.check, check_path(path), version))
        return self

    def commit(self) -> list[str | Stat | None]:
        """See `Transaction`."""
        operations, self._operations = self._operations, []
        with self._store._changes() as changes:
            return [operation(changes, *arguments) for operation, *arguments in operations]


def read_stat(db: sqlite3.Connection, path: str) -> Stat | None:
    """The Stat of a node; None if the node does not exist."""
    row = db.execute(_SELECT_NODE, (path,)).fetchone()
    return None if row is None else Stat(*row[1:])


class _Changes:
    """The operations in an open transaction. Collects the events for watches."""

    def __init__(self, db: sqlite3.Connection, number: int, session: Session | None) -> None:
        self._db = db
        self._number = number
        self._session = session
        self.events: list[Event] = []

    def create_parents(self, path: str) -> None:
        """Create the missing parents of `path`."""
        missing = []
        node = path
        while node != "/" and (node := parent_of(node)) != "/":
            if self._db.execute("SELECT 1 FROM node WHERE path = ?", (node,)).fetchone() is not None:
                break
            missing.append(node)
        for node in reversed(missing):
            self.create(node, b"", False, False)

    def create(self, path: str, data: bytes, ephemeral: bool, sequential: bool) -> str:
        if path == "/":
            raise NodeExists(path)
        if ephemeral and self._session is None:
            raise NoSession(f"{path} cannot be ephemeral without a session")
        parent = parent_of(path)
        row = self._db.execute("SELECT owner, next_child FROM node WHERE path = ?", (parent,)).fetchone()
        if row is None:
            raise NoNode(parent)
        if row[0]:
            raise NoChildrenForEphemerals(parent)
        if sequential:
            path = f"{path}{row[1]:010d}"
        owner = self._session.id if ephemeral and self._session else 0
        try:
            self._db.execute(
                "INSERT INTO node VALUES (?, ?, ?, ?, 0, ?, ?, ?, 0)",
                (path, parent, path.rpartition("/")[2], data, self._number, self._number, owner),
            )
        except sqlite3.IntegrityError:
            raise NodeExists(path) from None
        self._db.execute("UPDATE node SET next_child = next_child + 1 WHERE path = ?", (parent,))
        self.events += [Event(CREATED, path), Event(CHILDREN, parent)]
        return path

    def set(self, path: str, data: bytes, version: int) -> Stat:
        self.check(path, version)
        self._db.execute(
            "UPDATE node SET data = ?, version = version + 1, modified = ? WHERE path = ?", (data, self._number, path)
        )
        self.events.append(Event(CHANGED, path))
        stat = read_stat(self._db, path)
        assert stat is not None
        return stat

    def set_many(self, changes: Sequence[tuple[str, bytes, int]]) -> None:
        statement = (
            f"UPDATE node SET data = ?2, version = ?3 + 1, modified = {self._number:d} WHERE path = ?1 AND version = ?3"
        )
        changed = self._db.executemany(statement, sorted(changes)).rowcount  # sorted as the tree: a third faster
        if changes and changed != len(changes):
            raise BadVersion(f"{len(changes) - changed} of {len(changes)} nodes do not exist or have another version")

    def delete(self, path: str, version: int) -> None:
        self.check(path, version)
        if path == "/" or self._db.execute("SELECT 1 FROM node WHERE parent = ? LIMIT 1", (path,)).fetchone():
            raise NotEmpty(path)
        self._db.execute("DELETE FROM node WHERE path = ?", (path,))
        self.events += [Event(DELETED, path), Event(CHILDREN, parent_of(path))]

    def check(self, path: str, version: int) -> None:
        row = self._db.execute("SELECT version FROM node WHERE path = ?", (path,)).fetchone()
        if row is None:
            raise NoNode(path)
        if version not in (ANY_VERSION, row[0]):
            raise BadVersion(path)

    def add_session(self, session: Session) -> bool:
        """Add a session. Returns False if a session with this id exists."""
        added = self._db.execute("INSERT OR IGNORE INTO session VALUES (?, ?)", (session.id, session.password))
        return added.rowcount == 1

    def end_sessions(self, keep: int) -> None:
        for (session_id,) in self._db.execute("SELECT id FROM session WHERE id <> ?", (keep,)).fetchall():
            self.end_session(session_id)

    def end_session(self, session_id: int) -> None:
        for (path,) in self._db.execute("SELECT path FROM node WHERE owner = ?", (session_id,)).fetchall():
            self.delete(path, ANY_VERSION)
        self._db.execute("DELETE FROM session WHERE id = ?", (session_id,))
