"""Waits for the markers of transactions: brokers answer a commit or an abort before the markers are in the partitions."""

from __future__ import annotations

from odradek.clients.cluster import Cluster
from odradek.clients.transactions import open_transactions
from tests.waiting import until

SECONDS = 60


def wait_for_markers(servers: str, topic: str, left_open: int = 0) -> None:
    """Wait until every transaction of a topic that has ended has its markers.

    :param left_open: transactions that do not end; one of two partitions counts twice.
    """
    with Cluster(servers) as cluster:
        partitions = cluster.metadata([topic]).topics[topic].partitions

        def marked() -> bool:
            found, unchecked = open_transactions(cluster, partitions)
            return not unchecked and len(found) == left_open

        until(marked, f"{topic} has {left_open} open transactions", SECONDS)
