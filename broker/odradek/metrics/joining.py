"""Whether a broker of a cluster has joined it: a condition of the first readiness, not of later ones.

A rolling restart continues with the next broker when this one is ready. So a broker that cannot register, or cannot log in at
the leaders of its replicas, must not become ready, and its replicas must be in sync before the next one stops. Later, a lost
ZooKeeper or a slow follower must not make it unready: it still serves clients.

Reads the shared memory. Threads of HTTP in the reporter process call it, with the lock of the collector.
"""

from collections.abc import Iterable, Sequence

import odradek._ext.shm.brokers as brokers
from odradek._ext.shm import views
from odradek._ext.shm.overview import Partition

Topics = Iterable[tuple[str, Sequence[Partition]]]
"""(topic, its partitions)."""


def not_joined(broker_id: int, topics: Topics) -> str | None:
    """Return why this broker has not joined its cluster; None if it has, or if there is no cluster.

    It has joined when it is registered, has received all partitions from the controller, and is in sync in each of its replicas
    whose leader is another broker that is alive.
    """
    if not brokers.clustered():
        return None
    if brokers.broker_epoch() < 0:
        return "the broker is not registered in the cluster"
    if not brokers.published():
        return "the controller has not sent the partitions yet"
    behind = 0
    first = ""
    for topic, partitions in topics:
        for row in partitions:
            if row.in_sync < row.replicas and _is_behind(broker_id, row):
                behind += 1
                first = first or f"{topic}-{row.partition}"
    if behind:
        return f"{behind} of its replicas are not in sync yet, such as {first}"
    return None


def _is_behind(broker_id: int, row: Partition) -> bool:
    view = views.view_of(row.slot)
    if broker_id not in view.replicas or broker_id in view.in_sync:
        return False
    # Without a leader, this replica cannot become in sync, and waiting for it would not help.
    return bool(view.leader_id >= 0 and view.leader_id != broker_id and brokers.is_alive(view.leader_id))
