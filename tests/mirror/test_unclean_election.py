"""The leader of a source's partition is elected although it lacks records (unclean leader election), while a lane runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.clients import topics
from odradek.clients.cluster import Cluster
from odradek.mirror.routes import LaneOptions
from odradek.testing import Broker
from tests.cluster.peer_processes import Peers
from tests.cluster.test_odradek_cluster import start_brokers
from tests.mirror.lanes import Watcher, records_of, routes_of, running, wait_until_moved
from tests.mirror.test_lane import producer, write

UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
pytestmark = pytest.mark.xdist_group("mirror-unclean-election")


def test_records_that_an_unclean_leader_lacks_stop_the_partition_until_it_may_continue(tmp_path: Path) -> None:
    with (
        Peers(tmp_path) as peers,
        start_brokers(tmp_path, peers.connect) as cluster,
        Broker(topics={"a.t": 1}) as target,
    ):
        servers, there = ",".join(cluster.servers()), target.bootstrap_servers
        with Cluster(servers) as client:
            topics.create(client, "t", configs=UNCLEAN, assignments=[[1, 2]])
        cluster.wait_for_leaders("t", {0: 1})
        (route,) = routes_of(servers, ["t"])
        made = producer(servers, acks=1)
        write(made, "t", 1, range(100))
        options = LaneOptions(fetch_wait_ms=100, request_timeout_s=10)
        watcher = Watcher()
        with running(servers, there, [route], options, watcher):
            wait_until_moved(watcher, servers, there, [route])
            cluster.brokers[2].kill_group()
            cluster.wait_for_brokers({1, 3})
            write(made, "t", 1, range(100, 150))
            wait_until_moved(watcher, servers, there, [route])
            cluster.brokers[1].kill_group()
            cluster.brokers[2].start()
            cluster.wait_for_leaders("t", {0: 2}, 3)
            write(made, "t", 1, range(1000, 1080))
            watcher.wait(lambda: route.target in watcher.stops, "the partition stops")
        assert "the copy a.t-0 has the records of the source's offsets 100 to 149, which" in watcher.stops[route.target]
        assert len(records_of(there, route.target)) == 150
        again = Watcher()
        options = LaneOptions(continue_truncated=True, fetch_wait_ms=100, request_timeout_s=10)
        with running(servers, there, [route], options, again):
            wait_until_moved(again, servers, there, [route])
            cluster.brokers[1].start()
            cluster.wait_for_brokers({1, 2, 3})
            write(made, "t", 1, range(2000, 2010))
            wait_until_moved(again, servers, there, [route])
        assert not again.stops
        moved = records_of(there, route.target)
        assert len(moved) == 150 + 80 + 10
        assert moved[:100] + moved[150:] == records_of(servers, route.source)
