"""The semantics of the tree, for every implementation, and the embedded store compared with a dict."""

import os
import sqlite3
import stat
from contextlib import closing

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from odradek.metadata.sqlite import SqliteStore
from odradek.metadata.store import (
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
    StoreError,
    StoreUnavailable,
    check_path,
    delete_some,
    delete_tree,
    ensure_path,
    lowest_nodes,
)
from odradek.metadata.zookeeper import ZookeeperOptions, ZookeeperStore
from tests.waiting import until
from tests.zookeeper import chroot


@pytest.fixture(params=["sqlite", pytest.param("zookeeper", marks=pytest.mark.peer)])
def opener(request, tmp_path):
    """A function that opens another handle on the same tree."""
    stores = []
    servers = chroot() if request.param == "zookeeper" else ""

    def open_store():
        if servers:
            stores.append(ZookeeperStore(ZookeeperOptions(servers, session_timeout_s=10)))
        else:
            stores.append(SqliteStore(tmp_path / "tree.db"))
        return stores[-1]

    yield open_store
    for store in stores:
        store.close()


@pytest.fixture
def store(opener):
    return opener()


def events_are(seen, expected):
    """Wait until the watches were called with these events. ZooKeeper's watches are called in another thread; each was called
    before the response to a later request, but not later than that by more than it takes a thread to run."""
    until(lambda: len(seen) >= len(expected), lambda: f"the events {expected}: {seen}")
    assert seen == expected


def test_the_files_of_a_store_are_for_its_owner_alone(tmp_path):
    path, former = tmp_path / "m.db", os.umask(0)
    try:
        with closing(SqliteStore(path, keeps_room=True)) as store:
            store.create("/secret", b"key")
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    finally:
        os.umask(former)
    assert set(modes) >= {"m.db", "m.db-wal", "m.db-shm"} and set(modes.values()) == {0o600}, modes


def test_others_lose_their_rights_to_an_existing_store_and_its_group_keeps_them(tmp_path):
    path = tmp_path / "m.db"
    SqliteStore(path).close()
    path.chmod(0o644)
    SqliteStore(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_created_node_is_read_back_with_its_stat(store):
    assert store.create("/a", b"one") == "/a"
    data, stat = store.get("/a")
    assert (data, stat.version, stat.owner, stat.children) == (b"one", 0, 0, 0)
    assert store.exists("/a") == stat
    assert store.exists("/b") is None


def test_many_nodes_are_set_together_or_none_of_them(store):
    for name in "abc":
        store.create(f"/{name}", b"old")
    store.set_many([("/b", b"new b", 0), ("/a", b"new a", 0)])
    assert [(store.get(f"/{name}")[0], store.get(f"/{name}")[1].version) for name in "abc"] == [
        (b"new a", 1),
        (b"new b", 1),
        (b"old", 0),
    ]
    for outdated in (("/b", b"x", 0), ("/nowhere", b"x", 0)):
        with pytest.raises(BadVersion):
            store.set_many([("/c", b"x", 0), outdated])
        assert store.get("/c")[0] == b"old"
    store.set_many([])
    events = []
    store.get("/a", events.append)
    store.set_many([("/a", b"newer", 1)])
    events_are(events, [Event(CHANGED, "/a")])


def test_set_counts_versions_and_refuses_an_old_one(store):
    store.create("/a", b"one")
    created = store.exists("/a").created
    assert store.set("/a", b"two", 0).version == 1
    with pytest.raises(BadVersion):
        store.set("/a", b"three", 0)
    assert store.set("/a", b"four").version == 2
    data, stat = store.get("/a")
    assert data == b"four"
    assert stat.created == created < stat.modified


def test_missing_and_existing_nodes_are_reported(store):
    for call in (
        lambda: store.get("/x"),
        lambda: store.set("/x", b""),
        lambda: store.delete("/x"),
        lambda: store.children("/x"),
        lambda: store.create("/x/y"),
    ):
        with pytest.raises(NoNode) as raised:
            call()
        assert raised.value.path == "/x"
    store.create("/x")
    with pytest.raises(NodeExists):
        store.create("/x")
    with pytest.raises(NodeExists):
        store.create("/")


def test_some_of_the_children_are_read_in_order(store):
    for name in ("b", "d", "a", "c"):
        store.create(f"/all/{name}", make_parents=True)
    assert store.some_children("/all", "", 3) == ["a", "b", "c"]
    assert store.some_children("/all", "c", 3) == ["d"]
    assert store.some_children("/all", "bb", 1) == ["c"]
    assert store.some_children("/all", "d", 3) == []
    with pytest.raises(NoNode):
        store.some_children("/none", "", 3)


@pytest.mark.parametrize("limit", range(1, 12))
def test_a_growing_tree_is_deleted_in_parts_of_limited_size(store, limit):
    for name in ("/t/a/1", "/t/a/2", "/t/b", "/t/c/1/x", "/t/c/2", "/t/d"):
        store.create(name, make_parents=True)
    nodes, calls = 10, 1
    while not delete_some(store, "/t", limit):
        if calls == 1:
            store.create("/t/a/3", make_parents=True)
        calls += 1
        assert nodes - limit * calls < len(lowest_nodes(store, "/t", 100)) + limit
    assert store.children("/") == []
    assert calls >= nodes // limit
    assert delete_some(store, "/t", limit)


def test_delete_requires_the_version_and_no_children(store):
    store.create("/a/b", make_parents=True)
    with pytest.raises(NotEmpty):
        store.delete("/a")
    with pytest.raises(BadVersion):
        store.delete("/a/b", 1)
    store.delete("/a/b", 0)
    store.delete("/a")
    assert store.children("/") == []
    with pytest.raises(NotEmpty):
        store.delete("/")


def test_children_are_sorted_names(store):
    for name in ("b", "a", "a-b", "c"):
        store.create(f"/top/{name}", make_parents=True)
    store.create("/top/a/deep")
    store.create("/topper")
    assert store.children("/top") == ["a", "a-b", "b", "c"]
    assert store.exists("/top").children == 4


def test_get_many_keeps_the_order_and_marks_what_is_missing(store):
    store.create("/a", b"1")
    store.create("/b", b"2")
    nodes = store.get_many(["/b", "/c", "/a"])
    assert [node and node[0] for node in nodes] == [b"2", None, b"1"]


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 300])
def test_bulks_of_every_size_are_read_and_watched(store, count):
    names = [f"{number:03}" for number in range(count)]
    store.create("/all")
    for name in names:
        store.create(f"/all/{name}/child-of-{name}", make_parents=True)
        store.set(f"/all/{name}", name.encode())
    paths = [path for name in names for path in (f"/all/{name}", f"/none/{name}")]
    seen = []
    found = store.get_many(paths, seen.append)
    assert [node and node[0] for node in found] == [data for name in names for data in (name.encode(), None)]
    children = store.children_many(paths, seen.append)
    assert children == [below for name in names for below in ([f"child-of-{name}"], None)]
    for name in names:
        store.delete(f"/all/{name}/child-of-{name}")
        store.set(f"/all/{name}", b"changed")
    events_are(seen, [Event(kind, f"/all/{name}") for name in names for kind in (CHILDREN, CHANGED)])


def test_sequential_names_grow_and_are_never_used_again(store):
    store.create("/q")
    assert store.create("/q/n-", sequential=True) == "/q/n-0000000000"
    assert store.create("/q/m-", sequential=True) == "/q/m-0000000001"
    store.delete("/q/m-0000000001")
    assert store.create("/q/n-", sequential=True) == "/q/n-0000000002"


@pytest.mark.parametrize("path", ["", "a", "/a/", "//", "/a//b", "/a/./b", "/../a", "/a\0"])
def test_malformed_paths_are_refused(store, path):
    with pytest.raises(ValueError, match="path"):
        check_path(path)
    for call in (store.get, store.exists, store.children, store.create, store.delete):
        with pytest.raises(ValueError, match="path"):
            call(path)


def test_a_transaction_executes_all_operations(store):
    results = (
        store.transaction().create("/a", b"1").create("/a/b").set("/a", b"2", 0).delete("/a/b").check("/a", 1).commit()
    )
    assert results[:2] == ["/a", "/a/b"]
    assert results[2].version == 1
    assert results[3:] == [None, None]
    assert store.get("/a")[0] == b"2"


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda t: t.create("/there"), NodeExists),
        (lambda t: t.check("/there", 7), BadVersion),
        (lambda t: t.set("/there", b"", 7), BadVersion),
        (lambda t: t.delete("/missing"), NoNode),
        (lambda t: t.delete("/"), NotEmpty),
    ],
)
def test_a_transaction_that_fails_changes_nothing(store, spoil, error):
    store.create("/there", b"old")
    seen = []
    store.get("/there", watch=seen.append)
    store.create("/unchanged", b"")
    store.get("/unchanged", watch=seen.append)
    transaction = store.transaction().create("/a", b"1").set("/there", b"new")
    with pytest.raises(error):
        spoil(transaction).commit()
    assert store.exists("/a") is None
    assert store.get("/there")[0] == b"old"
    store.set("/unchanged", b"x")
    events_are(seen, [Event(CHANGED, "/unchanged")])


def test_watches_fire_once_after_the_change(store):
    seen = []
    store.create("/a")
    store.exists("/b", watch=seen.append)
    store.get("/a", watch=seen.append)
    store.children("/", watch=seen.append)
    store.create("/b")
    expected = [Event(CREATED, "/b"), Event(CHILDREN, "/")]
    events_are(seen, expected)
    store.set("/a", b"x")
    store.set("/a", b"y")
    expected += [Event(CHANGED, "/a")]
    events_are(seen, expected)
    store.get("/a", watch=seen.append)
    store.children("/a", watch=seen.append)
    store.delete("/a")
    events_are(seen, expected + [Event(DELETED, "/a")] * 2)


def test_only_exists_sets_a_watch_on_a_missing_node(store):
    seen = []
    with pytest.raises(NoNode):
        store.get("/a", watch=seen.append)
    store.create("/a")
    store.exists("/a", watch=seen.append)
    store.set("/a", b"x")
    events_are(seen, [Event(CHANGED, "/a")])


def test_an_ephemeral_node_lives_as_long_as_its_session(opener):
    one, two = opener(), opener()
    with pytest.raises(NoSession):
        one.create("/e", ephemeral=True)
    session = one.start_session()
    assert one.session == session
    one.create("/e", b"mine", ephemeral=True)
    assert two.exists("/e").owner == session.id
    with pytest.raises(NoChildrenForEphemerals):
        one.create("/e/child")
    two.start_session()
    two.create("/f", ephemeral=True)
    seen = []
    watching = one if isinstance(one, SqliteStore) else two  # SQLite's watches see the changes of the same object
    watching.get("/e", watch=seen.append)
    one.end_session()
    assert one.session is None
    assert (two.exists("/e"), two.exists("/f").owner) == (None, two.session.id)
    events_are(seen, [Event(DELETED, "/e")])


def test_a_successor_resumes_the_session(opener):
    one = opener()
    session = one.start_session()
    one.create("/e", ephemeral=True)
    one.close()
    two = opener()
    assert two.exists("/e").owner == session.id
    assert two.start_session(session) == session
    two.end_session()
    assert two.exists("/e") is None
    with pytest.raises(SessionExpired):
        two.start_session(session)


def test_a_session_is_not_resumed_with_another_password(opener):
    session = opener().start_session()
    with pytest.raises(SessionExpired):
        opener().start_session(Session(session.id, b"guess"))


def test_delete_tree_works_in_batches_and_accepts_a_missing_node(store):
    for n in range(7):
        store.create(f"/t/{n}/state", make_parents=True)
    store.create("/t2")
    delete_tree(store, "/t", batch=4)
    assert store.children("/") == ["t2"]
    delete_tree(store, "/t")


def test_ensure_path_creates_only_what_is_missing(store):
    store.create("/a", b"kept")
    ensure_path(store, "/a/b/c")
    ensure_path(store, "/a/b/c")
    assert store.get("/a")[0] == b"kept"
    assert store.children("/a/b") == ["c"]


# -- the embedded store alone ---------------------------------------------------------------------------------------


def test_the_broker_ends_other_sessions(tmp_path):
    path = tmp_path / "tree.db"
    old = SqliteStore(path)
    old.begin_session(Session(1, b"boot 1"))
    old.create("/old", ephemeral=True)
    new = SqliteStore(path)
    new.begin_session(Session(2, b"boot 2"))
    new.create("/new", ephemeral=True)
    new.expire_other_sessions()
    assert new.children("/") == ["new"]
    successor = SqliteStore(path)
    successor.begin_session(Session(2, b"boot 2"))
    successor.expire_other_sessions()
    assert successor.children("/") == ["new"]
    with pytest.raises(SessionExpired):
        successor.begin_session(Session(2, b"another"))


def test_a_transaction_is_durable_after_reopening(tmp_path):
    store = SqliteStore(tmp_path / "tree.db")
    store.transaction().create("/a", b"1").create("/a/b", b"2").commit()
    store.close()
    again = SqliteStore(tmp_path / "tree.db")
    assert (again.get("/a")[0], again.get("/a/b")[0]) == (b"1", b"2")
    with sqlite3.connect(again.path) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert again._db.execute("PRAGMA synchronous").fetchone() == (2,)


def test_a_file_that_is_not_a_store_or_of_a_newer_version_is_refused(tmp_path):
    (tmp_path / "garbage.db").write_bytes(b"not a database, but long enough to be read as a header " * 20)
    with pytest.raises(StoreUnavailable, match=r"garbage\.db"):
        SqliteStore(tmp_path / "garbage.db")
    newer = tmp_path / "newer.db"
    SqliteStore(newer).close()
    with sqlite3.connect(newer) as db:
        db.execute("PRAGMA user_version=99")
    with pytest.raises(StoreUnavailable, match="format 99"):
        SqliteStore(newer)


def test_a_failing_file_is_unavailable_and_leaves_nothing_half_done(tmp_path):
    store = SqliteStore(tmp_path / "tree.db")
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count={pages + 2}")  # simulates a full disk
    with pytest.raises(StoreUnavailable, match="full"):
        store.transaction().create("/a").create("/big", bytes(1 << 20)).commit()
    assert store.children("/") == []
    store._db.execute("PRAGMA max_page_count=100000")
    store.create("/a")
    assert store.children("/") == ["a"]


NAMES = st.sampled_from(["a", "b", "c"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(lambda names: "/" + "/".join(names))
VERSIONS = st.integers(-1, 2)


class DictTree:
    """The model: path to [data, version]."""

    def __init__(self):
        self.nodes = {"/": [b"", 0]}

    def copy(self):
        other = DictTree()
        other.nodes = {path: list(node) for path, node in self.nodes.items()}
        return other

    def below(self, path):
        prefix = path.rstrip("/") + "/"
        return sorted(
            p[len(prefix) :] for p in self.nodes if p.startswith(prefix) and p != "/" and "/" not in p[len(prefix) :]
        )

    def create(self, path, data):
        if (path.rpartition("/")[0] or "/") not in self.nodes:
            raise NoNode(path)
        if path in self.nodes:
            raise NodeExists(path)
        self.nodes[path] = [data, 0]

    def set(self, path, data, version):
        self.check(path, version)
        self.nodes[path] = [data, self.nodes[path][1] + 1]

    def delete(self, path, version):
        self.check(path, version)
        if self.below(path):
            raise NotEmpty(path)
        del self.nodes[path]

    def check(self, path, version):
        if path not in self.nodes:
            raise NoNode(path)
        if version not in (-1, self.nodes[path][1]):
            raise BadVersion(path)


OPERATIONS = st.one_of(
    st.tuples(st.just("create"), PATHS, st.binary(max_size=4)),
    st.tuples(st.just("set"), PATHS, st.binary(max_size=4), VERSIONS),
    st.tuples(st.just("delete"), PATHS, VERSIONS),
    st.tuples(st.just("check"), PATHS, VERSIONS),
)


class AgainstADict(RuleBasedStateMachine):
    """After any operations, alone and in transactions, store and model are equal and have raised the same errors."""

    def __init__(self):
        super().__init__()
        self.store = SqliteStore(":memory:")
        self.model = DictTree()

    def teardown(self):
        self.store.close()

    @rule(operations=st.lists(OPERATIONS, min_size=1, max_size=4))
    def transaction(self, operations):
        changed, expected = self.model.copy(), None
        transaction = self.store.transaction()
        for verb, *arguments in operations:
            getattr(transaction, verb)(*arguments)
        try:
            for verb, *arguments in operations:
                getattr(changed, verb)(*arguments)
        except StoreError as error:
            expected = type(error)
        if expected is None:
            transaction.commit()
            self.model = changed
        else:
            with pytest.raises(expected):
                transaction.commit()

    @rule(operation=OPERATIONS)
    def alone(self, operation):
        verb, *arguments = operation
        if verb == "check":
            return
        try:
            getattr(self.model, verb)(*arguments)
        except StoreError as error:
            with pytest.raises(type(error)):
                getattr(self.store, verb)(*arguments)
        else:
            getattr(self.store, verb)(*arguments)

    @invariant()
    def equal(self):
        nodes, stack = {}, ["/"]
        while stack:
            path = stack.pop()
            data, stat = self.store.get(path)
            names = self.store.children(path)
            assert names == self.model.below(path)
            assert stat.children == len(names)
            nodes[path] = [data, stat.version]
            stack += [path.rstrip("/") + "/" + name for name in names]
        assert nodes == self.model.nodes


TestAgainstADict = AgainstADict.TestCase
TestAgainstADict.settings = settings(max_examples=60, stateful_step_count=25)
