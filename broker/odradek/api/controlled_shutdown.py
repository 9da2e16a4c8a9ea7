"""ControlledShutdown (7): a broker that stops gives up its leaderships. Executed by the controller of a cluster.

2: broker epoch.
"""

from typing import Any

from odradek.api.coordinator_call import CoordinatorCall
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import controlled_shutdown

Response = controlled_shutdown.Response


def handle(request: Any, call: CoordinatorCall) -> Any:
    """Move the leaderships; the response names the partitions that the broker still leads."""
    cluster = call.view.cluster
    if cluster is None:
        return Response(error_code=ErrorCode.NOT_CONTROLLER)
    code, remaining = cluster.controlled_shutdown(request.broker_id, request.broker_epoch)
    return Response(
        error_code=code,
        remaining_partitions=[
            Response.RemainingPartition(topic_name=partition.topic.name, partition_index=partition.index)
            for partition in remaining
        ],
    )
