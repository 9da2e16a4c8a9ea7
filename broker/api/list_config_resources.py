"""ListConfigResources (74): names of what has configuration. Executed by workers.

Version 0 lists client metrics subscriptions only, of which there are none here.
"""

from typing import Any

from broker.api import cluster_view
from broker.api.call import Call
from broker.protocol import list_config_resources
from broker.protocol.errors import ErrorCode

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
KNOWN = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)
Response = list_config_resources.Response


def handle(request: Any, call: Call) -> Any:
    """Those of the types asked for; of all types if none are named."""
    if call.version == 0:
        return Response()
    wanted = list(request.resource_types) or list(KNOWN)
    if any(kind not in KNOWN for kind in wanted):
        return Response(error_code=ErrorCode.UNSUPPORTED_VERSION)
    nodes = [str(one.node_id) for one in cluster_view.brokers(call)]
    names = {TOPIC: [topic.name for topic in call.view.topics.by_name.values()], BROKER: nodes, BROKER_LOGGER: nodes}
    return Response(
        config_resources=[
            Response.ConfigResource(resource_name=name, resource_type=kind)
            for kind in dict.fromkeys(wanted)
            for name in sorted(names.get(kind, ()))
        ]
    )
