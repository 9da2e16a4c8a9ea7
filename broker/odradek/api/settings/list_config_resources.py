"""ListConfigResources (74): returns the names of resources that have a configuration. Executed by the coordinator, in its
store thread.

Version 0 lists only client metrics subscriptions, which this broker does not support.
"""

from typing import Any

from odradek.api.api import Api, Place
from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.guarding import (
    of_whole,
)
from odradek.api.settings.config_changes import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from odradek.metadata import znodes
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import list_config_resources
from odradek.security.acl import Operation
from odradek.security.needs import (
    CLUSTER,
    CLUSTER_DENIED,
    need,
)

KNOWN = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)
Response = list_config_resources.Response
API = Api(
    list_config_resources.SCHEMA,
    versions=(0, 1),
    place=Place.COORDINATOR,
    rights=need(Operation.DESCRIBE_CONFIGS, CLUSTER, CLUSTER_DENIED),
)
guard = of_whole(API)


def handle(request: list_config_resources.Request, call: CoordinatorCall) -> Any:
    """List the resources of the requested types, or of all types if none are named."""
    if call.version == 0:
        return Response()
    kinds = list(request.resource_types) or list(KNOWN)
    if any(kind not in KNOWN for kind in kinds):
        return Response(error_code=ErrorCode.UNSUPPORTED_VERSION)
    nodes = [str(broker.id) for broker in call.view.controller.brokers()]
    names = {
        TOPIC: call.view.store.children(znodes.TOPICS),
        BROKER: nodes,
        BROKER_LOGGER: nodes,
        GROUP: call.view.settings.groups(),
    }
    return Response(
        config_resources=[
            Response.ConfigResource(resource_name=name, resource_type=kind)
            for kind in dict.fromkeys(kinds)
            for name in sorted(names.get(kind, ()))
        ]
    )
