"""Brokers of the cluster that is source and target are killed while a lane runs: leaders and coordinators move, and every
record is copied once.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.mirror.routes import LaneOptions
from tests.cluster.peer_processes import Peers
from tests.cluster.test_odradek_cluster import IDS, start_brokers
from tests.mirror.lanes import Watcher, records_of, routes_of, running, wait_until_moved
from tests.mirror.test_lane import producer, write

PARTITIONS = 3
RECORDS = 300
SETTINGS = {
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 3,
}
pytestmark = pytest.mark.xdist_group("mirror-killed-brokers")


def _wait_for_more(watcher: Watcher, records: int) -> None:
    watcher.wait(lambda: sum(batch.records for batch in watcher.batches) > records, "more records are moved")


def test_leaders_and_coordinators_that_move_lose_and_repeat_no_record(tmp_path: Path) -> None:
    with Peers(tmp_path) as peers, start_brokers(tmp_path, peers.connect, SETTINGS) as cluster:
        servers = ",".join(cluster.servers())
        admin = AdminClient({"bootstrap.servers": servers})
        for name in ("t", "a.t"):
            admin.create_topics([NewTopic(name, PARTITIONS, 3)])[name].result()
        routes = routes_of(servers, ["t"])
        made = producer(servers, **{"enable.idempotence": True, "batch.num.messages": 10})
        watcher = Watcher()
        written = 0
        with running(servers, servers, routes, LaneOptions(fetch_wait_ms=100, request_timeout_s=10), watcher):
            for broker_id in IDS:
                write(made, "t", PARTITIONS, range(written, written + RECORDS))
                _wait_for_more(watcher, written)
                cluster.brokers[broker_id].kill_group()
                write(made, "t", PARTITIONS, range(written + RECORDS, written + 2 * RECORDS))
                cluster.brokers[broker_id].start()
                cluster.wait_for_brokers(set(IDS))
                written += 2 * RECORDS
                wait_until_moved(watcher, servers, servers, routes)
        assert not watcher.stops
        for route in routes:
            found = records_of(servers, route.target)
            assert len(found) == written / PARTITIONS
            assert found == records_of(servers, route.source)
