"""DescribeTransactions (65): returns transactions by transactional id. Executed by the coordinator, in its loop."""

from typing import Any

from odradek._ext.protocol.arrays import new_array
from odradek.api.transaction_call import A_STEP, Answer, TransactionCall
from odradek.protocol.schemas import describe_transactions
from odradek.stepwise import Pace, Steps

Response = describe_transactions.Response


def handle(request: Any, call: TransactionCall, answer: Answer) -> None:
    """Return for each different id its description, or the error why it cannot be described."""
    call.in_steps(_describe_all(request, call, answer))


def _describe_all(request: Any, call: TransactionCall, answer: Answer) -> Steps:
    pace = Pace(A_STEP)
    described = new_array()
    # An id that is in the request several times is described once: its partitions may be many.
    for name in dict.fromkeys(request.transactional_ids):
        state = _described(name, call)
        described.append(state)
        if pace.over(1 + sum(len(topic.partitions) for topic in state.topics)):
            yield
    answer(Response(transaction_states=described))


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
