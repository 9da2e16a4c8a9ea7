"""FindCoordinator (10): returns the broker that coordinates a group or a transactional id. Executed by workers.

The coordinator is the leader of a partition of `__consumer_offsets` or of `__transaction_state`, which the hash of the key
selects. The first request for a group or for a transactional id creates this topic. In a cluster it has no leaders at that
time, so the client receives COORDINATOR_NOT_AVAILABLE and retries.
"""

from collections.abc import Generator, Sequence
from typing import Any

from odradek._ext.api.offset_commits import partition_for
from odradek.api import cluster_view
from odradek.api.api import Api, Place
from odradek.api.call import Call
from odradek.api.cluster_brokers import BrokerAddress
from odradek.api.guarding import (
    Asked,
    Merged,
    Refused,
    VerdictInSteps,
    made_in_steps,
)
from odradek.api.permits import DENIED_AS
from odradek.controller.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import find_coordinator
from odradek.security.acl import Operation, ResourceType
from odradek.security.needs import (
    GROUP,
    GROUP_DENIED,
    ID_DENIED,
    TXN,
    either,
)
from odradek.stepwise import Pace, Steps, waited

FIRST_BATCHED = 4
OF_GROUP, OF_TRANSACTION = 0, 1
RESOURCE_OF_KIND = {OF_GROUP: ResourceType.GROUP, OF_TRANSACTION: ResourceType.TRANSACTIONAL_ID}
TOPIC_OF = {OF_GROUP: CONSUMER_OFFSETS, OF_TRANSACTION: TRANSACTION_STATE}
KEYS_A_STEP = 200
NAME_OF = {OF_GROUP: "group", OF_TRANSACTION: "transactional id"}
TIMEOUT_S = 1.0
"""How long to wait for the creation of the topic. A delayed response delays the later responses of its connection, and clients
retry anyway."""
Answer = tuple[ErrorCode, str | None, BrokerAddress | None]
API = Api(
    find_coordinator.SCHEMA,
    versions=(0, 6),
    place=Place.WORKER,
    rights=either(
        (Operation.DESCRIBE, GROUP),
        (Operation.DESCRIBE, TXN),
        refused=f"{GROUP_DENIED}, {ID_DENIED}",
        note="by the type of the requested key",
    ),
)


def guard(asked: Asked) -> VerdictInSteps:
    """DESCRIBE on the groups or transactional ids. A denied client does not cause the creation of an internal topic."""
    request, version = asked.request, asked.version
    kind = request.key_type if version >= 1 else 0
    if kind not in RESOURCE_OF_KIND:
        return None  # refused by the handler
    keys = list(request.coordinator_keys) if version >= FIRST_BATCHED else [request.key]
    denied = yield from asked.permits.denied_in_steps(Operation.DESCRIBE, RESOURCE_OF_KIND[kind], keys)
    if not denied:
        return None
    fields: dict[str, Any] = {"error_code": DENIED_AS[RESOURCE_OF_KIND[kind]], "node_id": -1, "host": "", "port": -1}
    if version < FIRST_BATCHED:
        return Refused(find_coordinator.Response(**fields))
    make = find_coordinator.Response.Coordinator
    request.coordinator_keys = [key for key in keys if key not in denied]

    def merge(response: Any) -> Steps:
        found = iter(response.coordinators)
        response.coordinators = yield from made_in_steps(
            keys, lambda key: make(key=key, **fields) if key in denied else next(found)
        )
        return response

    if not request.coordinator_keys:
        return Refused((yield from merge(find_coordinator.Response())))

    return Merged(merge)


def handle(request: find_coordinator.Request, call: Call) -> Any:
    """Respond now, or after the topic was created."""
    key_type = request.key_type if call.version >= 1 else OF_GROUP
    topic = TOPIC_OF.get(key_type)
    if topic is None:
        message = f"this broker does not support key type {key_type}: use 0 (group) or 1 (transactional id)"
        return _response(request, call, OF_GROUP, (ErrorCode.INVALID_REQUEST, message, None))
    if cluster_view.find(topic, call) is not None:
        return _response(request, call, key_type, None)
    return _with_creation(request, call, key_type, topic)


def _with_creation(request: find_coordinator.Request, call: Call, key_type: int, topic: str) -> Steps:
    """Create the topic first."""
    ((_, code, message),) = yield from waited(lambda then: call.auto_create([topic], then, TIMEOUT_S))
    refused = (ErrorCode.COORDINATOR_NOT_AVAILABLE, message, None) if code else None
    response = _response(request, call, key_type, refused)
    return (yield from response) if isinstance(response, Generator) else response


def _coordinator(key: str, key_type: int, call: Call) -> Answer:
    topic = cluster_view.find(TOPIC_OF[key_type], call)
    if topic is not None and (count := topic.published_count()):
        partition = partition_for(key, count)
        for state in cluster_view.partitions(topic, call, partition, partition + 1):
            address = None if state.error else cluster_view.broker(call, state.leader_id)
            if address is not None:
                return ErrorCode.NONE, None, address
    reason = f"the partition of {TOPIC_OF[key_type]} for this {NAME_OF[key_type]} has no leader"
    return ErrorCode.COORDINATOR_NOT_AVAILABLE, reason, None


def _response(request: find_coordinator.Request, call: Call, key_type: int, refused: Answer | None) -> Any:
    if call.version < FIRST_BATCHED:
        return find_coordinator.Response(**_fields(refused or _coordinator(request.key, key_type, call)))
    return _of_keys(request.coordinator_keys, call, key_type, refused)


def _of_keys(keys: Sequence[str], call: Call, key_type: int, refused: Answer | None) -> Steps:
    make = find_coordinator.Response.Coordinator
    response = find_coordinator.Response()
    pace = Pace(KEYS_A_STEP)
    for key in keys:
        response.coordinators.append(make(key=key, **_fields(refused or _coordinator(key, key_type, call))))
        if pace.over():
            yield
    return response


def _fields(answer: Answer) -> dict[str, Any]:
    error, message, address = answer
    return {
        "error_code": error,
        "error_message": message,
        "node_id": address.node_id if address else -1,
        "host": address.host if address else "",
        "port": address.port if address else -1,
    }
