"""DescribeCluster (60): returns the brokers and the cluster's id. Executed by workers."""

from typing import Any

from odradek.api import cluster_view
from odradek.api.api import Api, Guarded, Place
from odradek.api.call import Call
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import describe_cluster
from odradek.security.needs import (
    NOTHING,
)

BROKERS = 1
API = Api(
    describe_cluster.SCHEMA,
    versions=(0, 2),
    place=Place.WORKER,
    rights=NOTHING._replace(note="the authorized operations are 0 without DESCRIBE on cluster"),
    guarded=Guarded.INSIDE,
    needs_published=True,
)


def handle(request: describe_cluster.Request, call: Call) -> Any:
    """Return the brokers. A request for controllers is refused: the controller is part of a broker and has no endpoint."""
    if call.version >= 1 and request.endpoint_type != BROKERS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if request.endpoint_type == 2 else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        return describe_cluster.Response(
            error_code=code,
            error_message=f"Endpoint type {request.endpoint_type} is not served on this listener, only {BROKERS} (brokers).",
        )
    operations = cluster_view.NOT_ASKED
    if request.include_cluster_authorized_operations:
        operations = call.permits.cluster_operations()
    return describe_cluster.Response(
        cluster_id=call.view.shm.cluster_id,
        controller_id=cluster_view.controller_id(call),
        brokers=[
            describe_cluster.Response.DescribeClusterBroker(
                broker_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
            )
            for broker in cluster_view.brokers(call)
        ],
        cluster_authorized_operations=operations,
    )
