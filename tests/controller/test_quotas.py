"""Quotas in the metadata store: neither reading all of them nor a host name blocks the controller."""

import socket

import pytest

from odradek.controller import quotas
from odradek.controller.quotas import CLIENT_ID, IP, USER, Edit, Filter, Quotas
from odradek.controller.topics import Refusal
from odradek.metadata import znodes
from odradek.stepwise import Stepwise


def test_quotas_of_very_many_entities_are_described_in_steps_of_limited_length(cluster):
    data = znodes.encode_config({"producer_byte_rate": "5"})
    cluster.store.fill((znodes.quota_path(None, f"client-{number}", None), data, 0) for number in range(1000))
    cluster.store.fill((znodes.quota_path("user", f"client-{number}", None), data, 0) for number in range(300))
    statements = []
    cluster.store._db.set_trace_callback(statements.append)
    job = Stepwise(Quotas(cluster.store, cluster.controller).describe([Filter(CLIENT_ID, None, True)], False))
    steps, more = 0, True
    while more:
        statements.clear()
        more = job.step()
        steps += 1
        assert len(statements) <= 2 * quotas.STEP
    cluster.store._db.set_trace_callback(None)
    assert steps == 1300 // quotas.STEP + 1
    assert sum(USER in entity for entity, _ in job.result) == 300
    assert [values for _, values in job.result] == [{"producer_byte_rate": 5.0}] * 1300


@pytest.mark.parametrize("address", ["localhost", "no.such.host.example", "10.0.0", "1", "fe80::1::2", "caf\u00e9"])
def test_a_quota_of_a_host_name_is_refused_without_looking_it_up(cluster, monkeypatch, address):
    """A lookup waits for a name server that the client may have chosen, and the controller would wait with it."""
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("a name was looked up"))
    edit = Edit("connection_creation_rate", 7)
    with pytest.raises(Refusal, match="is not an IP address"):
        Quotas(cluster.store, cluster.controller).alter([(IP, address)], [edit], False)


@pytest.mark.parametrize("address", ["10.0.0.1", "2001:db8::1"])
def test_a_quota_of_an_address_is_stored(cluster, address):
    entity, edit = [(IP, address)], Edit("connection_creation_rate", 7)
    Quotas(cluster.store, cluster.controller).alter(entity, [edit], False)
    job = Stepwise(Quotas(cluster.store, cluster.controller).describe([Filter(IP, address)], False))
    while job.step():
        pass
    assert job.result == [({IP: address}, {"connection_creation_rate": 7.0})]


def test_a_quota_that_was_stored_for_a_host_name_can_be_removed(cluster):
    """Versions before this one accepted names that could be looked up."""
    path = quotas.path_of({IP: "localhost"})
    cluster.store.fill([(path, znodes.encode_config({"connection_creation_rate": "5"}), 0)])
    Quotas(cluster.store, cluster.controller).alter(
        [(IP, "localhost")], [Edit("connection_creation_rate", None)], False
    )
    job = Stepwise(Quotas(cluster.store, cluster.controller).describe([Filter(IP, None, True)], False))
    while job.step():
        pass
    assert job.result == []
