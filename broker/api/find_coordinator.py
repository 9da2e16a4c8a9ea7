"""FindCoordinator (10): which broker coordinates a group or a transactional id. Executed by workers.

There is no group or transaction coordinator yet, so every key is answered as by a Kafka whose coordinator is not up: clients
try again. The API is served all the same, because librdkafka takes its presence as the sign that lz4 is understood.
"""

from typing import Any

from broker.api.call import Call
from broker.protocol import find_coordinator
from broker.protocol.errors import ErrorCode

FIRST_BATCHED = 4
MESSAGE = "this broker does not coordinate groups or transactions yet"
NOWHERE = {"node_id": -1, "host": "", "port": -1}


def handle(request: Any, call: Call) -> Any:
    """COORDINATOR_NOT_AVAILABLE for every key asked for."""
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if call.version < FIRST_BATCHED:
        return find_coordinator.Response(error_code=code, error_message=MESSAGE, **NOWHERE)
    return find_coordinator.Response(
        coordinators=[
            find_coordinator.Response.Coordinator(key=key, error_code=code, error_message=MESSAGE, **NOWHERE)
            for key in request.coordinator_keys
        ]
    )
