"""LeaderAndIsr (4): the controller makes this broker leader or follower of partitions.

Executed by the coordinator, in its replicas thread, in the order of arrival (`replication.replica_control`). If the coordinator
cannot execute the request, the controller's connection is closed, because the controller repeats a request only then.
"""

from typing import Any

from odradek.api.api import MAX_REPLICAS, Api, Place
from odradek.api.cluster.replica_call import ReplicaCall
from odradek.api.guarding import (
    of_whole,
)
from odradek.protocol.schemas import leader_and_isr
from odradek.security.needs import (
    OF_BROKERS,
)

API = Api(
    leader_and_isr.SCHEMA,
    versions=(0, 7),
    place=Place.REPLICAS,
    rights=OF_BROKERS,
    per_partition=2 + 3 * MAX_REPLICAS,
    only_in_cluster=True,
)
guard = of_whole(API)


def handle(request: leader_and_isr.Request, call: ReplicaCall) -> Any:
    """Execute the request, and return the response after the slots have changed."""
    return call.control.leader_and_isr(request, call.version)
