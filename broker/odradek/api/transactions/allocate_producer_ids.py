"""AllocateProducerIds (67): a broker requests a block of producer ids. Executed by the controller of a cluster."""

from typing import Any

from odradek.api.api import Api, Place
from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.guarding import (
    of_whole,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import allocate_producer_ids
from odradek.security.needs import (
    OF_BROKERS,
)

Response = allocate_producer_ids.Response
API = Api(
    allocate_producer_ids.SCHEMA,
    versions=(0, 0),
    place=Place.CONTROLLER,
    rights=OF_BROKERS,
    only_in_cluster=True,
)
guard = of_whole(API)


def handle(request: allocate_producer_ids.Request, call: CoordinatorCall) -> Any:
    """Allocate the next block of the cluster for the sender."""
    cluster = call.view.cluster
    if cluster is None:
        return Response(error_code=ErrorCode.NOT_CONTROLLER)
    code, block = cluster.allocate_producer_ids(request.broker_id, request.broker_epoch)
    if block is None:
        return Response(error_code=code)
    return Response(producer_id_start=block.first, producer_id_len=block.last - block.first + 1)
