"""`Cluster.of_each`: several brokers are asked at the same time, and one that fails does not hide the others."""

import threading
from collections.abc import Iterator
from types import MappingProxyType

import pytest

from odradek.clients import cluster as module
from odradek.clients.cluster import Address, Cluster, View
from odradek.clients.errors import ClientError, UnreachableError
from odradek.clients.security import ClientSecurity

IDS = (1, 2, 3)
WAIT_S = 60


class StandIn:
    """A connection to the broker whose id is its port. Port 2 cannot be reached if ``broken``."""

    broken = False

    def __init__(self, host: str, port: int, timeout_s: float, client_id: str, security: ClientSecurity) -> None:
        if self.broken and port == 2:
            raise UnreachableError("cannot connect")
        self.port, self.client_id = port, client_id
        self.closed = False

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(module, "Connection", StandIn)
    brokers = MappingProxyType({node_id: Address("127.0.0.1", node_id) for node_id in IDS})
    view = View("id", 1, brokers, {}, {})
    monkeypatch.setattr(Cluster, "metadata", lambda self, topics=None: view)
    with Cluster("127.0.0.1:1") as made:
        yield made


def test_all_brokers_are_asked_at_the_same_time(cluster: Cluster) -> None:
    together = threading.Barrier(len(IDS), timeout=WAIT_S)

    def work(node_id: int, connection: StandIn) -> tuple[int, int]:
        together.wait()
        return node_id, connection.port

    assert cluster.of_each(IDS, work) == {node_id: (node_id, node_id) for node_id in IDS}  # type: ignore[arg-type]


def test_a_failure_is_the_result_of_its_broker(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StandIn, "broken", True)

    def work(node_id: int, connection: object) -> int:
        if node_id == 3:
            raise ClientError("refused")
        return node_id

    results = cluster.of_each([3, 2, 1, 1], work)
    assert list(results) == [1, 2, 3]
    assert results[1] == 1
    assert str(results[2]) == "cannot connect" and isinstance(results[2], UnreachableError)
    assert str(results[3]) == "refused"


def test_a_broker_that_is_not_in_the_cluster_is_a_failure(cluster: Cluster) -> None:
    (result,) = cluster.of_each([9], lambda *_: None).values()
    assert isinstance(result, UnreachableError) and "no broker 9; its brokers are 1, 2, 3" in str(result)


def test_other_exceptions_are_raised(cluster: Cluster) -> None:
    def work(node_id: int, connection: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cluster.of_each(IDS, work)


def test_connections_are_kept_and_closed_with_the_cluster(cluster: Cluster) -> None:
    first = cluster.of_each(IDS, lambda _, connection: connection)
    assert cluster.of_each(IDS, lambda _, connection: connection) == first
    cluster.close()
    assert all(connection.closed for connection in first.values())  # type: ignore[union-attr]


def test_all_connections_have_the_client_id_of_their_cluster(cluster: Cluster) -> None:
    for made, client_id in ((cluster, "odradek"), (Cluster("127.0.0.1:1", client_id="load"), "load")):
        for one in (made, made.another()):
            found = one.of_each(IDS, lambda _, connection: connection).values()
            assert [connection.client_id for connection in found] == [client_id] * len(IDS)  # type: ignore[union-attr]
            one.close()
