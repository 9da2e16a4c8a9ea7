"""StopReplica (5): the controller makes this broker stop or delete replicas.

Executed by the coordinator, in its replicas thread, in the order of arrival (`replication.replica_control`). If the coordinator
cannot execute the request, the controller's connection is closed, because the controller repeats a request only then.
"""

from typing import Any

from odradek.api.api import Api, Place
from odradek.api.cluster.replica_call import ReplicaCall
from odradek.api.guarding import (
    of_whole,
)
from odradek.protocol.schemas import stop_replica
from odradek.security.needs import (
    OF_BROKERS,
)

API = Api(
    stop_replica.SCHEMA,
    versions=(0, 4),
    place=Place.REPLICAS,
    rights=OF_BROKERS,
    per_partition=2,
    only_in_cluster=True,
)
guard = of_whole(API)


def handle(request: stop_replica.Request, call: ReplicaCall) -> Any:
    """Execute the request, and return the response after the slots have changed."""
    return call.control.stop_replica(request, call.version)
