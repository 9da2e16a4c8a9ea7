"""Guards of the APIs of producers and transactions."""

from typing import Any

from odradek.api.guards.guarded import (
    Asked,
    Merged,
    Refused,
    Verdict,
    VerdictInSteps,
    each_in_steps,
    made_in_steps,
    shown_in_steps,
)
from odradek.api.guards.refusals import refused_whole
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    find_coordinator,
    init_producer_id,
)
from odradek.security.acl import Operation, ResourceType
from odradek.stepwise import Steps

ID_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
FIRST_OF_BROKERS = 4  # of AddPartitionsToTxn
FIRST_BATCHED = 4  # of FindCoordinator
KINDS = {0: ResourceType.GROUP, 1: ResourceType.TRANSACTIONAL_ID}
CODES = {0: ErrorCode.GROUP_AUTHORIZATION_FAILED, 1: ID_DENIED}


def of_find_coordinator(asked: Asked) -> VerdictInSteps:
    """DESCRIBE on the groups or transactional ids. A denied client does not cause the creation of an internal topic."""
    request, version = asked.request, asked.version
    kind = request.key_type if version >= 1 else 0
    if kind not in KINDS:
        return None  # refused by the handler
    keys = list(request.coordinator_keys) if version >= FIRST_BATCHED else [request.key]
    denied = yield from asked.permits.denied_in_steps(Operation.DESCRIBE, KINDS[kind], keys)
    if not denied:
        return None
    fields = {"error_code": CODES[kind], "node_id": -1, "host": "", "port": -1}
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


def of_init_producer_id(asked: Asked) -> Verdict | VerdictInSteps:
    """WRITE on the transactional id; without one IDEMPOTENT_WRITE on the cluster, or WRITE on at least one topic."""
    request, permits = asked.request, asked.permits
    if request.transactional_id is not None:
        if permits.transactional_id(Operation.WRITE, request.transactional_id):
            return None
        return refused_whole(init_producer_id.API_KEY, asked, ID_DENIED)
    if permits.cluster(Operation.IDEMPOTENT_WRITE, quiet=True) or permits.any_topic(Operation.WRITE):
        return None
    return refused_whole(init_producer_id.API_KEY, asked, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def of_add_partitions_to_txn(asked: Asked) -> Verdict | VerdictInSteps:
    """Of brokers CLUSTER_ACTION; of producers WRITE on the transactional id and the topics: if a topic is denied, none of the
    partitions is added."""
    request, permits = asked.request, asked.permits
    if asked.version >= FIRST_OF_BROKERS:
        if permits.cluster(Operation.CLUSTER_ACTION):
            return None
        return refused_whole(add_partitions_to_txn.API_KEY, asked, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not permits.transactional_id(Operation.WRITE, request.v3_and_below_transactional_id):
        return refused_whole(add_partitions_to_txn.API_KEY, asked, ID_DENIED)
    return None  # the handler decides about the topics, because it knows which partitions exist


def of_add_offsets_to_txn(asked: Asked) -> Verdict:
    """WRITE on the transactional id, READ on the group."""
    request, permits = asked.request, asked.permits
    if not permits.transactional_id(Operation.WRITE, request.transactional_id):
        return Refused(add_offsets_to_txn.Response(error_code=ID_DENIED))
    if not permits.group(Operation.READ, request.group_id):
        return Refused(add_offsets_to_txn.Response(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    return None


def of_describe_transactions(asked: Asked) -> VerdictInSteps:
    """DESCRIBE on the transactional ids; topics without DESCRIBE are left out."""
    request, permits = asked.request, asked.permits
    names = list(dict.fromkeys(request.transactional_ids))
    denied = yield from permits.denied_in_steps(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, names)
    request.transactional_ids = [name for name in names if name not in denied]
    make = describe_transactions.Response.TransactionState

    def merge(response: Any) -> Steps:
        described = iter(response.transaction_states)

        def state_of(name: str) -> Steps:
            if name in denied:
                return make(transactional_id=name, error_code=ID_DENIED)
            state = next(described)
            state.topics = yield from shown_in_steps(
                state.topics, lambda topic: permits.topic(Operation.DESCRIBE, topic.topic)
            )
            return state

        response.transaction_states = yield from each_in_steps(names, state_of)
        return response

    return Merged(merge)
