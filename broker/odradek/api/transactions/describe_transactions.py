"""DescribeTransactions (65): returns transactions by transactional id. Executed by the coordinator, in its loop."""

from typing import Any

from odradek._ext.protocol.arrays import new_array
from odradek.api.api import Api, Place
from odradek.api.guarding import (
    Asked,
    Merged,
    VerdictInSteps,
    each_in_steps,
    shown_in_steps,
)
from odradek.api.transactions.transaction_call import A_STEP, TransactionCall
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import describe_transactions
from odradek.security.acl import Operation, ResourceType
from odradek.security.needs import (
    ID_DENIED,
    TXN,
    need,
)
from odradek.stepwise import Pace, Steps

Response = describe_transactions.Response
API = Api(
    describe_transactions.SCHEMA,
    versions=(0, 0),
    place=Place.TRANSACTIONS,
    rights=need(Operation.DESCRIBE, TXN, ID_DENIED, "topics without DESCRIBE are left out"),
    long_response=True,
)


def guard(asked: Asked) -> VerdictInSteps:
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
                return make(transactional_id=name, error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            state = next(described)
            state.topics = yield from shown_in_steps(
                state.topics, lambda topic: permits.topic(Operation.DESCRIBE, topic.topic)
            )
            return state

        response.transaction_states = yield from each_in_steps(names, state_of)
        return response

    return Merged(merge)


def handle(request: describe_transactions.Request, call: TransactionCall) -> Steps:
    """Return for each different id its description, or the error why it cannot be described."""
    pace = Pace(A_STEP)
    described = new_array()
    # An id that is in the request several times is described once: its partitions may be many.
    for name in dict.fromkeys(request.transactional_ids):
        state = _described(name, call)
        described.append(state)
        if pace.over(1 + sum(len(topic.partitions) for topic in state.topics)):
            yield
    return Response(transaction_states=described)


def _described(name: str, call: TransactionCall) -> Any:
    code, known = call.view.coordinator.describe(name)
    if known is None:
        return Response.TransactionState(transactional_id=name, error_code=code)
    partitions: dict[str, list[int]] = {}
    for topic, partition in known.places:
        partitions.setdefault(topic, []).append(partition)
    return Response.TransactionState(
        transactional_id=name,
        transaction_state=known.state,
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.start_ms,
        producer_id=known.producer_id,
        producer_epoch=known.producer_epoch,
        topics=[
            Response.TopicData(topic=topic, partitions=sorted(numbers)) for topic, numbers in sorted(partitions.items())
        ],
    )
