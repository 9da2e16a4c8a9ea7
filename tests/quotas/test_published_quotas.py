"""The quotas of the metadata store: read at the start, again for one entity, and after notifications of other brokers."""

import os

import pytest

from odradek._ext.shm.layout import ProcessKind, ProcessState
from odradek.controller.enforced_quotas import EnforcedQuotas
from odradek.controller.quotas import Edit, Quotas, entity_at
from odradek.quotas.quotas import PRODUCE
from odradek.shm import published_quotas
from odradek.shm.published_quotas import PublishedQuotas, TooManyQuotas, encoded
from tests.children import end_of, fork
from tests.controller.mortal_cluster import single_broker


@pytest.fixture
def cluster(tmp_path):
    with single_broker(tmp_path) as make_one:
        yield make_one()


def make(cluster):
    shared = PublishedQuotas()
    return shared, EnforcedQuotas(cluster.store, shared, cluster.shm), Quotas(cluster.store, cluster.controller)


def rate(shared, client_id):
    limit = shared.current.limit(PRODUCE, "u", client_id)
    return None if limit is None else limit.rate


def test_all_quotas_are_read_at_the_start_and_changed_ones_later(cluster):
    shared, enforced, quotas = make(cluster)
    quotas.alter([("client-id", "a b")], [Edit(PRODUCE, 5)], False)
    enforced.load()
    assert rate(shared, "a b") == 5.0 and rate(shared, "c") is None
    quotas.alter([("client-id", None)], [Edit(PRODUCE, 7)], False)
    assert rate(shared, "c") is None
    enforced.refresh([{"client-id": None}])
    assert rate(shared, "c") == 7.0
    quotas.alter([("client-id", "a b")], [Edit(PRODUCE, None)], False)
    enforced.refresh_paths(["topics/t", "brokers/1", "clients/a%20b"])
    assert rate(shared, "a b") == 7.0


def test_a_value_that_is_no_quota_is_ignored_and_logged(cluster, caplog):
    shared, enforced, quotas = make(cluster)
    quotas.alter([("client-id", "x")], [Edit(PRODUCE, 5)], False)
    cluster.controller.write_settings("/config/clients/x", {PRODUCE: "much"})
    enforced.load()
    assert rate(shared, "x") is None
    assert "producer_byte_rate=much in /config/clients/x" in caplog.text


@pytest.mark.parametrize(
    ("path", "entity"),
    [
        ("users/a%2Fb", {"user": "a/b"}),
        ("users/<default>", {"user": None}),
        ("users/u/clients/<default>", {"user": "u", "client-id": None}),
        ("clients/c", {"client-id": "c"}),
        ("ips/10.0.0.1", {"ip": "10.0.0.1"}),
        ("topics/t", None),
        ("users/u/others/c", None),
    ],
)
def test_the_entity_of_a_notification(path, entity):
    assert entity_at(path) == entity


def test_another_process_takes_published_quotas_over_and_the_publisher_waits_for_it(cluster):
    shared, enforced, quotas = make(cluster)
    quotas.alter([("client-id", "a")], [Edit(PRODUCE, 5)], False)
    index = cluster.shm.add_process(ProcessKind.WORKER)
    ready_read, ready_write = os.pipe()

    def take_over() -> None:
        cluster.shm.process_starts(index)
        cluster.shm.enter(index)
        shared.enter(index)
        cluster.shm.set_state(ProcessState.SERVING)
        os.write(ready_write, b"x")
        while not shared.take_over():
            pass
        shared.confirm()
        assert rate(shared, "a") == 5.0 and not shared.changed

    child = fork(take_over)
    os.read(ready_read, 1)
    enforced.load()
    assert end_of(child) == 0
    assert shared._pages._words[1 + index] == shared._pages.version
    os.close(ready_read)
    os.close(ready_write)


def test_quotas_that_do_not_fit_are_refused(monkeypatch):
    monkeypatch.setattr(published_quotas, "LARGEST", 100)
    with pytest.raises(TooManyQuotas, match="the limit is 100 bytes"):
        encoded({("u" * 200, None, None): {PRODUCE: 1.0}})
