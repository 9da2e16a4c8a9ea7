"""DescribeTransactions (65): returns transactions by transactional id. Executed by workers. No transactions exist yet."""

from typing import Any

from odradek.api.call import Call
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import describe_transactions

Response = describe_transactions.Response


def handle(request: Any, call: Call) -> Any:
    """Refuse each id: no transactional id is known."""
    return Response(
        transaction_states=[
            Response.TransactionState(
                transactional_id=name,
                error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if name else ErrorCode.INVALID_REQUEST,
            )
            for name in request.transactional_ids
        ]
    )
