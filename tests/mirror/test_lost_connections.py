"""Connections of a lane are cut after each number of responses, on both sides: every record is copied once."""

from __future__ import annotations

from collections.abc import Callable

from odradek.clients.cluster import Address, Cluster, View
from odradek.testing import Broker
from tests.cli.gate import Gate
from tests.mirror.lanes import records_of, routes_of, running, wait_until_moved
from tests.mirror.test_lane import producer, write

PARTITIONS = 2
ROUNDS = range(2, 14)


class GatedCluster(Cluster):
    """Reaches its only broker through a gate."""

    def __init__(self, gate: Gate) -> None:
        super().__init__(f"127.0.0.1:{gate.port}")
        self._address = Address("127.0.0.1", gate.port)

    def view(self, fresh: bool = False) -> View:
        view = super().view(fresh)
        return view._replace(brokers=dict.fromkeys(view.brokers, self._address))


def through(gate: Gate) -> Callable[[], Cluster]:
    return lambda: GatedCluster(gate)


def test_connections_that_break_lose_and_repeat_no_record() -> None:
    with (
        Broker(topics={"cut": PARTITIONS}) as first,
        Broker(topics={"a.cut": PARTITIONS}) as second,
        Gate() as before_source,
        Gate() as before_target,
    ):
        before_source.upstream_port, before_target.upstream_port = first.port, second.port
        source, target = first.bootstrap_servers, second.bootstrap_servers
        routes = routes_of(source, ["cut"])
        made = producer(source, **{"batch.num.messages": 20})
        clusters = through(before_source), through(before_target)
        with running(source, target, routes, clusters=clusters) as (_, watcher):
            for number in ROUNDS:
                write(made, "cut", PARTITIONS, range(100 * number, 100 * number + 100))
                for gate in (before_source, before_target):
                    gate.cut_at, gate.cuts = number, 1
                    gate.let_go()
                wait_until_moved(watcher, source, target, routes)
            before_source.cuts = before_target.cuts = 0
        assert not watcher.stops
        assert len(watcher.failures) >= len(ROUNDS)
        for route in routes:
            found = records_of(target, route.target)
            assert len(found) == 50 * len(ROUNDS)
            assert found == records_of(source, route.source)
