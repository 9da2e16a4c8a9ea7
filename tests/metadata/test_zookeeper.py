"""The metadata store in ZooKeeper when its connection or session is lost. A relay loses requests, responses, connections."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from odradek.metadata import multi_read, zookeeper
from odradek.metadata.multi_read import PATHS_A_REQUEST, read_nodes
from odradek.metadata.session import SessionEvent
from odradek.metadata.store import (
    ANY_VERSION,
    CHANGED,
    CHILDREN,
    BadVersion,
    Event,
    NodeExists,
    NoNode,
    OutcomeUnknown,
    Session,
    SessionExpired,
    StoreUnavailable,
    TooLarge,
)
from odradek.metadata.zookeeper import ZookeeperOptions, ZookeeperStore
from odradek.metadata.zookeeper_transaction import REQUEST_BYTES
from tests.relay import Relay
from tests.waiting import until
from tests.zookeeper import ZookeeperServer, chroot, end_of_session, shared_server

pytestmark = pytest.mark.peer

LONG_S = 90.0
"""A session timeout that no test reaches. Its third is the time between two pings, which therefore do not disturb a test."""
SOON_S = 25.0
"""Less than any timeout, more than a loaded machine needs for what happens at once."""


@contextmanager
def opened(servers, **options):
    store = ZookeeperStore(ZookeeperOptions(servers, **{"session_timeout_s": LONG_S} | options))
    try:
        yield store
    finally:
        store.close()


@pytest.fixture
def relay():
    with Relay(shared_server().port) as relay:
        yield relay


@pytest.fixture
def root():
    """A new chroot, with its slash."""
    return "/" + chroot().partition("/")[2]


@pytest.fixture
def store(relay, root):
    """A store with a session, behind the relay."""
    with opened(f"127.0.0.1:{relay.port}{root}") as store:
        store.start_session()
        yield store


@pytest.fixture
def other(root, store):
    """Another client of the same tree, not behind the relay."""
    with opened(shared_server().hosts + root) as other:
        yield other


@pytest.fixture
def pool():
    with ThreadPoolExecutor(4) as pool:
        yield pool


def lost(relay, pool, call, direction, store):
    """Call while bytes of this direction are lost, then let the connection be restored. Returns the future of the call."""
    store.exists("/")  # connected
    relay.dropped = 0
    setattr(relay, direction, False)
    calling = pool.submit(call)
    relay.wait_until_dropped()
    relay.heal_and_cut()
    return calling


def test_a_transaction_without_response_may_have_happened(store, other, relay, pool):
    store.create("/a", b"1")
    calling = lost(
        relay, pool, lambda: store.transaction().set("/a", b"2", 0).create("/b").commit(), "responses", store
    )
    with pytest.raises(OutcomeUnknown, match="/a"):
        calling.result()
    until(lambda: other.exists("/b"), "the transaction happened")
    calling = lost(relay, pool, lambda: store.transaction().set("/a", b"3", 1).create("/c").commit(), "requests", store)
    with pytest.raises(OutcomeUnknown):
        calling.result()
    assert store.get("/a")[0] == b"2" and store.exists("/c") is None
    assert store.transaction().set("/a", b"3", 1).commit()[0].version == 2


@pytest.mark.parametrize("direction", ["requests", "responses"])
@pytest.mark.parametrize("ephemeral", [True, False])
def test_a_node_whose_response_was_lost_is_recognised(store, other, relay, pool, direction, ephemeral):
    calling = lost(relay, pool, lambda: store.create("/a", b"mine", ephemeral=ephemeral), direction, store)
    assert calling.result() == "/a"
    data, stat = other.get("/a")
    assert (data, stat.owner, stat.version) == (b"mine", store.session.id if ephemeral else 0, 0)


def test_a_node_of_another_client_is_not_taken_for_the_own_one(store, other, relay, pool):
    store.exists("/")
    relay.requests = False
    calling = pool.submit(store.create, "/a", b"mine")
    relay.wait_until_dropped()
    other.create("/a", b"theirs")
    relay.heal_and_cut()
    with pytest.raises(NodeExists):
        calling.result()
    other.start_session()
    store.exists("/")
    relay.requests = False
    calling = pool.submit(lambda: store.create("/e", b"same", ephemeral=True))
    relay.wait_until_dropped()
    other.create("/e", b"same", ephemeral=True)
    relay.heal_and_cut()
    with pytest.raises(NodeExists):
        calling.result()


def test_a_sequential_node_without_response_is_not_repeated(store, other, relay, pool):
    store.create("/q")
    calling = lost(relay, pool, lambda: store.create("/q/n-", sequential=True), "responses", store)
    with pytest.raises(OutcomeUnknown):
        calling.result()
    until(lambda: other.children("/q") == ["n-0000000000"], "the node exists")


@pytest.mark.parametrize("version", [0, ANY_VERSION])
@pytest.mark.parametrize("direction", ["requests", "responses"])
def test_a_change_of_data_whose_response_was_lost_happens_once_more_or_is_recognised(
    store, other, relay, pool, direction, version
):
    store.create("/a", b"old")
    stat = lost(relay, pool, lambda: store.set("/a", b"new", version), direction, store).result()
    assert other.get("/a") == (b"new", stat)
    assert stat.version == 1 or (version == ANY_VERSION and stat.version == 2)


def test_a_change_of_data_that_lost_against_another_one_is_refused(store, other, relay, pool):
    store.create("/a", b"old")
    store.exists("/")
    relay.requests = False
    calling = pool.submit(store.set, "/a", b"mine", 0)
    relay.wait_until_dropped()
    other.set("/a", b"theirs", 0)
    relay.heal_and_cut()
    with pytest.raises(BadVersion):
        calling.result()
    store.exists("/")
    relay.requests = False
    calling = pool.submit(store.set, "/a", b"mine", 1)
    relay.wait_until_dropped()
    other.delete("/a")
    relay.heal_and_cut()
    with pytest.raises(NoNode):
        calling.result()


def test_a_deletion_without_response_may_have_happened(store, other, relay, pool):
    store.create("/a")
    with pytest.raises(OutcomeUnknown):
        lost(relay, pool, lambda: store.delete("/a"), "responses", store).result()
    until(lambda: other.exists("/a") is None, "the node is deleted")


@pytest.mark.parametrize("direction", ["requests", "responses"])
def test_reads_are_repeated(store, relay, pool, direction):
    paths = [f"/{number:03}" for number in range(100)]
    for path in paths:
        store.create(path, path.encode())
    for read, expected in (
        (lambda: store.get("/001")[0], b"/001"),
        (lambda: store.exists("/none"), None),
        (lambda: store.children("/"), [path[1:] for path in paths]),
        (lambda: [node[0] for node in store.get_many(paths)], [path.encode() for path in paths]),
        (lambda: store.children_many(paths), [[]] * 100),
        (lambda: [node[0] for node in store.get_many(paths, print)], [path.encode() for path in paths]),
        (lambda: store.children_many(paths, print), [[]] * 100),
    ):
        assert lost(relay, pool, read, direction, store).result() == expected


@pytest.mark.parametrize("watch", [None, print])
def test_a_bulk_goes_on_through_many_cuts(store, relay, watch):
    paths = [f"/{number:03}" for number in range(300)]
    for path in paths:
        store.create(path, path.encode())
    reading = threading.Event()

    def cut_often():
        passed = relay.responses_passed
        while not reading.wait(0.05):
            if (
                relay.responses_passed > passed + 1
            ):  # more than the first one: however slow the machine is, the bulk goes on
                relay.cut()
                passed = relay.responses_passed

    cutter = threading.Thread(target=cut_often)
    cutter.start()
    try:
        for _ in range(5):
            assert [node[0] for node in store.get_many(paths, watch)] == [path.encode() for path in paths]
    finally:
        reading.set()
        cutter.join()


def test_many_nodes_are_read_in_few_requests(store, monkeypatch):
    """Also those that do not exist, have no data, or have children."""
    count = 2 * PATHS_A_REQUEST + 1
    paths = [f"/{number:04}" for number in range(count)]
    for path in paths[::2]:
        store.create(path, path.encode() if path != "/0002" else b"")
    store.create("/0002/child")
    requests = []
    monkeypatch.setattr(zookeeper, "read_nodes", lambda *args: requests.append(args) or read_nodes(*args))
    nodes, children = store.get_many(paths), store.children_many(paths)
    assert len(requests) == 2 * 3
    monkeypatch.undo()
    assert nodes == store.get_many(paths, print) and children == store.children_many(paths, print)
    assert nodes[1] is None and nodes[2][0] == b"" and nodes[-1][0] == paths[-1].encode()
    assert children[:4] == [[], None, ["child"], None]
    assert store.get_many(["/", "/0000"])[1] == nodes[0]


def test_a_server_without_multiread_is_read_node_by_node(store, monkeypatch):
    """Servers older than 3.6 refuse the request as this one refuses a request of an unknown type, and close the connection."""
    store.create("/a", b"a")
    monkeypatch.setattr(multi_read, "MULTI_READ", 9999)
    for _ in range(2):
        assert [node and node[0] for node in store.get_many(["/a", "/b"])] == [b"a", None]
        assert store.children_many(["/a", "/b"]) == [[], None]


def test_watches_are_called_after_a_loss_of_the_connection(store, other, relay):
    store.create("/a")
    store.create("/b")
    seen = []
    store.get("/a", seen.append)
    store.get("/b", seen.append)
    store.exists("/none", seen.append)
    store.children("/", seen.append)
    expected = {Event(CHANGED, "/a"), Event(CHANGED, "/b"), Event(CHANGED, "/none"), Event(CHILDREN, "/")}
    relay.cut()
    until(lambda: len(seen) == 4, lambda: f"all watches are called: {seen}")
    assert set(seen) == expected, "a watch is called whether or not its node changed meanwhile"
    store.get("/a", seen.append)
    other.set("/a", b"x")
    until(lambda: len(seen) == 5, "the watch that was armed again is called")
    relay.cut()
    store.exists("/a")
    assert len(seen) == 5, "each watch is called once"


def test_a_watch_of_a_changed_node_is_called_after_each_cut(store, other, relay):
    """A watch that is armed again by each call must miss nothing, whenever the connection is cut."""
    store.create("/a", b"0")
    called = threading.Event()
    for number in range(1, 40):
        called.clear()
        store.get("/a", lambda _: called.set())
        other.set("/a", str(number).encode())
        if number % 3:
            relay.cut()
        assert called.wait(60), f"the watch is called for change {number}"
        assert store.get("/a")[0] == str(number).encode()


def expire(store):
    """End the session of a store as ZooKeeper would."""
    end_of_session(shared_server().hosts, store.session)


def test_an_expired_session_is_reported_and_replaced(store, other):
    events = []
    store.on_session(events.append)
    store.create("/e", ephemeral=True)
    before = store.session
    watched = []
    store.get("/e", watched.append)
    expire(store)
    until(lambda: SessionEvent.NEW_SESSION in events, lambda: f"a new session: {events}")
    assert events[0] == SessionEvent.SUSPENDED and SessionEvent.LOST in events
    assert events[-1] == SessionEvent.NEW_SESSION
    assert store.session.id != before.id
    until(lambda: watched, "the watch is called")
    assert other.exists("/e") is None and store.exists("/e") is None
    store.create("/e", ephemeral=True)
    assert other.exists("/e").owner == store.session.id


def test_a_restored_connection_is_reported(store, relay):
    events = []
    store.on_session(events.append)
    session = store.session
    relay.cut()
    until(lambda: SessionEvent.CONNECTED in events, lambda: f"connected: {events}")
    assert events == [SessionEvent.SUSPENDED, SessionEvent.CONNECTED]
    assert store.session == session and store.connected


def test_a_session_is_resumed_from_the_last_transaction(store, other):
    store.create("/e", b"mine", ephemeral=True)
    session, zxid = store.session, store.last_zxid
    assert zxid > 0
    store.close()
    with opened(shared_server().hosts + store.options.chroot) as successor:
        assert successor.start_session(session, zxid) == session
        assert other.get("/e")[1].owner == session.id
        successor.end_session()
    until(lambda: other.exists("/e") is None, "the node of the ended session is deleted")
    with opened(shared_server().hosts + store.options.chroot) as late, pytest.raises(SessionExpired):
        late.start_session(Session(session.id, session.password))


def test_a_change_that_is_too_large_is_refused_before_it_is_sent(store):
    store.create("/a")
    for call in (
        lambda: store.set("/a", bytes(REQUEST_BYTES)),
        lambda: store.create("/b", bytes(REQUEST_BYTES)),
        lambda: store.transaction().set("/a", bytes(REQUEST_BYTES // 2)).set("/a", bytes(REQUEST_BYTES // 2)).commit(),
    ):
        with pytest.raises(TooLarge, match=r"^a change of /[ab] needs 1000\d+ bytes"):
            call()
    assert store.connected
    store.set("/a", bytes(REQUEST_BYTES - 10))
    store.transaction().set("/a", bytes(REQUEST_BYTES - 1000)).commit()


def test_many_changes_are_split_into_transactions(store, other):
    paths = [f"/{number:03}" for number in range(30)]
    for path in paths:
        store.create(path)
    store.set_many([(path, path.encode() * 25_000, 0) for path in paths])
    assert [other.get(path)[0] for path in paths] == [path.encode() * 25_000 for path in paths]


def test_a_deep_chroot_is_created_by_many_clients_at_once(pool):
    servers = f"{chroot()}/deep/deeper"

    def open_and_read(_):
        with opened(servers) as store:
            return store.children("/")

    assert list(pool.map(open_and_read, range(4))) == [[]] * 4


def test_a_server_that_does_not_listen_is_skipped(root):
    with opened(f"127.0.0.1:1,localhost:{shared_server().port},127.0.0.1:2{root}") as store:
        store.start_session()
        store.create("/e", ephemeral=True)
        assert store.children("/") == ["e"]


# -- ZooKeeper is away ------------------------------------------------------------------------------------------------


@pytest.fixture
def server():
    with ZookeeperServer() as server:
        yield server


def test_calls_wait_for_a_server_that_restarts(server, pool):
    with opened(server.hosts) as store:
        session = store.start_session()
        store.create("/e", b"mine", ephemeral=True)
        server.kill()
        reading = pool.submit(store.get, "/e")
        server.start()
        assert reading.result()[0] == b"mine"
        assert store.session == session


@pytest.mark.parametrize("with_session", [True, False])
@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_a_store_closes_soon_when_zookeeper_is_away(server, fault, with_session):
    with opened(server.hosts) as store:
        if with_session:
            store.start_session()
        store.create("/a")
        getattr(server, fault)()
        if fault == "kill":
            until(lambda: not store.connected, "the store has noticed it")
        began = time.monotonic()
        if with_session:
            with pytest.raises(StoreUnavailable, match="did not confirm the end"):
                store.end_session()
        store.close()
        assert time.monotonic() - began < SOON_S
        with pytest.raises(StoreUnavailable):
            store.get("/a")


@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_waiting_calls_can_be_ended(server, pool, fault):
    with opened(server.hosts) as store:
        store.start_session()
        store.create("/a")
        getattr(server, fault)()
        calls = [pool.submit(store.get, "/a"), pool.submit(store.set, "/a", b"x"), pool.submit(store.get_many, ["/a"])]
        began = time.monotonic()
        store.stop_waiting()
        for call in calls:
            with pytest.raises(StoreUnavailable):
                call.result()
        with pytest.raises(StoreUnavailable):
            store.start_session()
        store.close()
        assert time.monotonic() - began < SOON_S


def test_a_first_connection_fails_after_its_time(server):
    server.pause()
    with (
        opened(server.hosts, connection_timeout_s=0.5) as store,
        pytest.raises(StoreUnavailable, match=r"within 0\.5 s"),
    ):
        store.start_session()
    server.resume()
    with opened(server.hosts, connection_timeout_s=0.5) as store:
        until(lambda: _starts(store), "a later attempt succeeds")


def _starts(store):
    try:
        return store.start_session()
    except StoreUnavailable:
        return None


def test_a_call_fails_after_the_session_timeout(server):
    with opened(server.hosts, session_timeout_s=1) as store:
        store.start_session()
        store.create("/a")
        server.pause()
        for call in (lambda: store.get("/a"), lambda: store.get_many(["/a"]), lambda: store.create("/b")):
            with pytest.raises(StoreUnavailable):
                call()
        server.resume()
        until(lambda: _reads(store), "the store works again")


def _reads(store):
    try:
        return store.exists("/a")
    except StoreUnavailable:
        return None
