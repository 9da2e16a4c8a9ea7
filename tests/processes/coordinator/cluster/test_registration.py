"""The broker epochs of registrations, and which requests of the controller are accepted."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import odradek._ext.shm.brokers as brokers
from odradek.config.listeners import Listener
from odradek.metadata.cluster import ensure_cluster_id
from odradek.metadata.sqlite import SqliteStore
from odradek.metadata.store import Session
from odradek.metadata.znodes import BrokerRegistration, broker_path
from odradek.processes.coordinator.cluster.membership import begin_registration
from tests.shm.one_broker import OneBroker

REGISTRATION = BrokerRegistration([Listener("PLAINTEXT", "h", 1, "PLAINTEXT")], None, 1)
ID = 7


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    (tmp_path / "broker").mkdir()
    with OneBroker(tmp_path / "broker", processes=2):
        brokers.begin_cluster(30_000)
        made = SqliteStore(tmp_path / "tree.db")
        made.begin_session(Session(1, b"a"))
        ensure_cluster_id(made, None)
        yield made
        made.close()


def created(store: SqliteStore) -> int:
    stat = store.exists(broker_path(ID))
    assert stat is not None
    return stat.created


def test_the_epoch_of_a_registration_is_noted(store: SqliteStore) -> None:
    begin_registration(store, ID, REGISTRATION)
    first = created(store)
    assert brokers.broker_epoch() == brokers.least_epoch() == first
    begin_registration(store, ID, REGISTRATION)  # by a successor in the same session
    assert brokers.broker_epoch() == created(store) == first


@pytest.mark.parametrize("died", [False, True], ids=["at once", "by a successor"])
def test_a_registration_with_a_smaller_epoch_than_the_former_is_made_twice(store: SqliteStore, died: bool) -> None:
    """Requests to the first one were refused before its epoch was known; those to the second one are accepted."""
    begin_registration(store, ID, REGISTRATION)
    first = created(store)
    brokers.set_broker_epoch(first + 1000)  # of the tree that was lost
    brokers.end_registration()
    assert brokers.least_epoch() > first
    if died:  # after it had noted the end of the first registration
        brokers.end_registration(first)
    begin_registration(store, ID, REGISTRATION)
    assert brokers.broker_epoch() == brokers.least_epoch() == created(store) > first
