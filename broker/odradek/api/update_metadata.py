"""UpdateMetadata (6): the controller publishes the live brokers and the state of partitions to this broker.

Executed by the coordinator, in its replicas thread, in the order of arrival (`replication.replica_control`). If the coordinator
cannot execute the request, the controller's connection is closed, because the controller repeats a request only then.
"""

from typing import Any

from odradek.api.replica_call import ReplicaCall


def handle(request: Any, call: ReplicaCall) -> Any:
    """Execute the request, and return the response after the slots have changed."""
    return call.control.update_metadata(request, call.version)
