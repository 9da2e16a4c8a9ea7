"""ListTransactions (66): lists transactions by state, producer, age and pattern. Executed by workers. No transactions exist
yet."""

import re
from typing import Any

from odradek.api.call import Call
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import list_transactions

STATES = frozenset(
    (
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "PrepareEpochFence",
        "Dead",
    )
)
WITH_PATTERN = 2
LONGEST_PATTERN = 1000
"""The limit in characters, because the cost of compiling a pattern grows with its length."""
Response = list_transactions.Response


def handle(request: Any, call: Call) -> Any:
    """Return no transactions, and the state filters that name unknown states."""
    if call.version >= WITH_PATTERN and request.transactional_id_pattern:
        if len(request.transactional_id_pattern) > LONGEST_PATTERN:
            return Response(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
        try:
            re.compile(request.transactional_id_pattern)
        except re.error:
            return Response(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    return Response(unknown_state_filters=[state for state in request.state_filters if state not in STATES])
