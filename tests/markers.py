"""Waits for the markers of transactions: brokers answer a commit or an abort before the markers are in the partitions."""

from __future__ import annotations

from odradek.clients.cluster import Cluster
from odradek.clients.transactions import open_transactions
from tests.waiting import until

SECONDS = 60


def open_in(servers: str, topic: str) -> int | None:
    """How many transactions are open in a topic, one of two partitions counted twice; None: a leader did not answer."""
    with Cluster(servers) as cluster:
        found, unchecked = open_transactions(cluster, cluster.metadata([topic]).topics[topic].partitions)
        return None if unchecked else len(found)


def wait_for_markers(servers: str, topic: str, left_open: int = 0) -> None:
    """Wait until every transaction of a topic that has ended has its markers.

    :param left_open: transactions that do not end, as `open_in` counts them.
    """
    until(lambda: open_in(servers, topic) == left_open, f"{topic} has {left_open} open transactions", SECONDS)
