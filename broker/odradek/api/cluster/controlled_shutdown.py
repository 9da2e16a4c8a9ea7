"""ControlledShutdown (7): a broker that stops gives up its leaderships. Executed by the controller of a cluster.

2: broker epoch.
"""

from typing import Any

from odradek.api.api import Api, Place
from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.guarding import (
    of_whole,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import controlled_shutdown
from odradek.security.needs import (
    OF_BROKERS,
)

Response = controlled_shutdown.Response
API = Api(
    controlled_shutdown.SCHEMA,
    versions=(0, 3),
    place=Place.CONTROLLER,
    rights=OF_BROKERS,
    repeated=True,
    only_in_cluster=True,
)
guard = of_whole(API)


def refuse(_request: controlled_shutdown.Request, _version: int, code: ErrorCode, _message: str | None) -> Any:
    """See `odradek.api.api`. A broker looks up the controller after STALE_CONTROLLER_EPOCH."""
    if code == ErrorCode.NOT_CONTROLLER:
        code = ErrorCode.STALE_CONTROLLER_EPOCH
    return controlled_shutdown.Response(error_code=code)


def handle(request: controlled_shutdown.Request, call: CoordinatorCall) -> Any:
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
