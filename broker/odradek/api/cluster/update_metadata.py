"""UpdateMetadata (6): the controller publishes the live brokers and the state of partitions to this broker.

Executed by the coordinator, in its replicas thread, in the order of arrival (`replication.replica_control`). If the coordinator
cannot execute the request, the controller's connection is closed, because the controller repeats a request only then.
"""

from typing import Any

from odradek.api.api import MAX_REPLICAS, Api, Place
from odradek.api.cluster.replica_call import ReplicaCall
from odradek.api.guarding import (
    of_whole,
)
from odradek.protocol.schemas import update_metadata
from odradek.security.needs import (
    OF_BROKERS,
)

API = Api(
    update_metadata.SCHEMA,
    versions=(0, 8),
    place=Place.REPLICAS,
    rights=OF_BROKERS,
    per_partition=2 + 3 * MAX_REPLICAS,
    only_in_cluster=True,
)
guard = of_whole(API)


def handle(request: update_metadata.Request, call: ReplicaCall) -> Any:
    """Execute the request, and return the response after the slots have changed."""
    return call.control.update_metadata(request, call.version)
