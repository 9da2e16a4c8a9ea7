"""FindCoordinator (10): returns the broker that coordinates a group or a transactional id. Executed by workers.

The coordinator of a group is the leader of the group's partition of `__consumer_offsets`. The first request for a group creates
this topic. In a cluster it has no leaders at that time, so the client receives COORDINATOR_NOT_AVAILABLE and retries.

Transactions are not supported yet. The response for a transactional id must end the client's attempts: after a retriable
error, clients retry forever, some of them thousands of times a second. The error code that ends the attempts depends on the
client, and the version of the request distinguishes the clients. librdkafka and aiokafka use versions up to 2 and give up
only for an authorization error; librdkafka reports our message with it. Clients that use version 3 or later give up for any
error that is not retriable; the Java client reports our message unless the code is an authorization error.
"""

from typing import Any

from odradek._ext.api.offset_commits import partition_for
from odradek.api import cluster_view
from odradek.api.call import Call
from odradek.api.cluster_brokers import BrokerAddress
from odradek.controller.topic_names import CONSUMER_OFFSETS
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import find_coordinator

FIRST_BATCHED = 4
FIRST_FINAL_BY_ANY_ERROR = 3
GROUP, TRANSACTION = 0, 1
TIMEOUT_S = 1.0
"""How long to wait for the creation of `__consumer_offsets`. A delayed response delays the later responses of its connection,
and clients retry anyway."""
NO_TRANSACTIONS = "this broker does not support transactions: use a producer without transactional.id"
Answer = tuple[ErrorCode, str | None, BrokerAddress | None]


def handle(request: Any, call: Call) -> Any:
    """Respond now, or after `__consumer_offsets` was created."""
    if call.version >= 1 and request.key_type != GROUP:
        return _response(request, call, _refused(request.key_type, call.version))
    if cluster_view.find(CONSUMER_OFFSETS, call) is not None:
        return _response(request, call, None)
    answer = call.answer_later()

    def created(outcomes: list[tuple[str, int, str | None]]) -> None:
        ((_, code, message),) = outcomes
        refused = (ErrorCode.COORDINATOR_NOT_AVAILABLE, message, None) if code else None
        answer(_response(request, call, refused))

    call.auto_create([CONSUMER_OFFSETS], created, TIMEOUT_S)
    return None


def _refused(key_type: int, version: int) -> Answer:
    if key_type == TRANSACTION:
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if version >= FIRST_FINAL_BY_ANY_ERROR:
            code = ErrorCode.UNSUPPORTED_VERSION
        return code, NO_TRANSACTIONS, None
    return ErrorCode.INVALID_REQUEST, f"this broker does not support key type {key_type}: use 0 (group)", None


def _coordinator(group_id: str, call: Call) -> Answer:
    topic = cluster_view.find(CONSUMER_OFFSETS, call)
    if topic is not None and (count := topic.count if call.view.brokers is None else topic.published_count()):
        partition = partition_for(group_id, count)
        for state in cluster_view.partitions(topic, call, partition, partition + 1):
            address = None if state.error else cluster_view.broker(call, state.leader_id)
            if address is not None:
                return ErrorCode.NONE, None, address
    return ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group's partition of __consumer_offsets has no leader", None


def _response(request: Any, call: Call, refused: Answer | None) -> Any:
    keys = request.coordinator_keys if call.version >= FIRST_BATCHED else [request.key]
    fields = []
    for key in keys:
        error, message, address = refused or _coordinator(key, call)
        fields.append(
            {
                "error_code": error,
                "error_message": message,
                "node_id": address.node_id if address else -1,
                "host": address.host if address else "",
                "port": address.port if address else -1,
            }
        )
    if call.version < FIRST_BATCHED:
        return find_coordinator.Response(**fields[0])
    make = find_coordinator.Response.Coordinator
    return find_coordinator.Response(
        coordinators=[make(key=key, **values) for key, values in zip(keys, fields, strict=True)]
    )
