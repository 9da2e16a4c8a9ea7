"""The notifications of changed settings, in a real ZooKeeper."""

import pytest

from odradek.metadata import znodes
from odradek.metadata.changes import EXPIRE_AFTER_MS, SettingsChanges, number_of
from odradek.metadata.store import StoreUnavailable, ensure_path
from odradek.metadata.zookeeper import ZookeeperOptions, ZookeeperStore
from tests.waiting import until
from tests.zookeeper import chroot

pytestmark = pytest.mark.peer


@pytest.fixture
def servers():
    return chroot()


@pytest.fixture
def opener(servers):
    stores = []

    def open_store():
        stores.append(ZookeeperStore(ZookeeperOptions(servers, session_timeout_s=60)))
        return stores[-1]

    yield open_store
    for store in stores:
        store.close()


@pytest.fixture
def store(opener):
    store = opener()
    ensure_path(store, znodes.CONFIG_CHANGES)
    return store


def notify(store, entity, data=None):
    data = znodes.encode_config_change(entity) if data is None else data
    return store.create(znodes.CONFIG_CHANGE, data, sequential=True)


def created_ms(store, path):
    return store.get(path)[1].created_ms


def test_each_broker_sees_every_change_once_and_in_order(opener, store):
    notify(store, "topics/before")
    woken = [[], []]
    followers = [SettingsChanges(opener(), lambda calls=calls: calls.append(1)) for calls in woken]
    for follower in followers:
        follower.begin()
    now = created_ms(store, notify(store, "topics/b"))
    for entity in ("topics/a", "brokers/<default>", "topics/b", "users/u/clients/c"):
        notify(store, entity)
    for follower, calls in zip(followers, woken, strict=True):
        until(lambda calls=calls: calls, "the follower is woken")
        assert follower.look(now) == ["topics/b", "topics/a", "brokers/<default>", "users/u/clients/c"]
        assert follower.look(now) == []
        calls.clear()
    notify(store, "topics/a")
    for follower, calls in zip(followers, woken, strict=True):
        until(lambda calls=calls: calls, "the follower is woken again")
        assert follower.look(now) == ["topics/a"]


def test_both_versions_are_read_and_corrupt_ones_skipped(store):
    changes = SettingsChanges(store, lambda: None)
    changes.begin()
    for data in (b"", b"nonsense", b"[]", b'{"version":2}', b'{"version":1,"entity_type":"topics"}'):
        notify(store, "", data)
    notify(store, "", b'{"version":1,"entity_type":"topics","entity_name":"old"}')
    now = created_ms(store, notify(store, "", b'{"version":2,"entity_path":"topics/new","more":1}'))
    assert changes.look(now) == ["topics/old", "topics/new"]


def test_old_notifications_are_deleted_also_by_two_brokers_at_once(opener, store):
    changes = [SettingsChanges(opener(), lambda: None) for _ in range(2)]
    for follower in changes:
        follower.begin()
    path = notify(store, "topics/a")
    created = created_ms(store, path)
    assert created > 0
    assert changes[0].look(created + EXPIRE_AFTER_MS) == ["topics/a"]
    assert store.exists(path) is not None
    changes[0]._store, store_of_first = _Deleting(changes[0]._store, store), changes[0]._store
    assert changes[0].look(created + EXPIRE_AFTER_MS + 1) == []
    assert store_of_first.exists(path) is None and store.children(znodes.CONFIG_CHANGES) == []
    assert changes[1].look(created + EXPIRE_AFTER_MS + 1) == [], "it was deleted before this broker had read it"


class _Deleting:
    """A store whose nodes another one deletes first."""

    def __init__(self, store, other):
        self._store, self._other = store, other

    def __getattr__(self, name):
        return getattr(self._store, name)

    def delete(self, path):
        self._other.delete(path)
        self._store.delete(path)


def test_changes_that_failed_are_returned_again(store):
    changes = SettingsChanges(store, lambda: None)
    changes.begin()
    now = created_ms(store, notify(store, "topics/a"))
    failed = changes.look(now)
    changes.repeat(failed)
    notify(store, "topics/b")
    assert changes.look(now) == ["topics/a", "topics/b"]
    assert changes.look(now) == []


def test_a_failure_of_the_store_loses_no_change(store):
    class Failing(_Deleting):
        def get_many(self, paths, watch=None):
            raise StoreUnavailable("away")

    changes = SettingsChanges(store, lambda: None)
    changes.begin()
    now = created_ms(store, notify(store, "topics/a"))
    changes._store = Failing(store, store)
    with pytest.raises(StoreUnavailable):
        changes.look(now)
    changes._store = store
    assert changes.look(now) == ["topics/a"]


def test_numbers_of_names():
    assert [number_of(name) for name in ("config_change_0000000012", "config_change_", "other", "config_change_x")] == [
        12, -1, -1, -1,
    ]  # fmt: skip
