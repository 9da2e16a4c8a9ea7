"""ListTransactions (66): lists transactions by state, producer, age and pattern. Executed by the coordinator, in its loop."""

from odradek.api.api import Api, Guarded, Place
from odradek.api.transactions.transaction_call import A_STEP, TransactionCall
from odradek.groups.patterns import compiled
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import list_transactions
from odradek.security.acl import Operation, ResourceType
from odradek.security.needs import (
    TXN,
    need,
)
from odradek.stepwise import Pace, Steps
from odradek.transactions.environment import ListFilter

WITH_DURATION = 1
WITH_PATTERN = 2
Response = list_transactions.Response
API = Api(
    list_transactions.SCHEMA,
    versions=(0, 2),
    place=Place.TRANSACTIONS,
    rights=need(Operation.DESCRIBE, TXN, "other transactional ids are left out"),
    guarded=Guarded.INSIDE,
    long_response=True,
)


def handle(request: list_transactions.Request, call: TransactionCall) -> Steps:
    """Return the ids that pass all filters and that the client may describe, and the state filters that name unknown states."""
    pattern = request.transactional_id_pattern if call.version >= WITH_PATTERN else None
    matches = None
    if pattern:
        yield  # patterns of one address are compiled one after the other, between other work of the loop
        try:
            matches = compiled(pattern).fullmatch
        except ValueError:
            return Response(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    which = ListFilter(
        list(request.state_filters),
        list(request.producer_id_filters),
        request.duration_filter if call.version >= WITH_DURATION else -1,
        matches,
    )
    code, unknown_states, entries = call.view.coordinator.list(which)
    pace = Pace(A_STEP if matches is None else 1)  # one match may take some milliseconds
    listed = []
    for entry in entries:
        if entry is not None and call.permits.allows(
            Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, entry.transactional_id, quiet=True
        ):
            listed.append(
                Response.TransactionState(
                    transactional_id=entry.transactional_id,
                    producer_id=entry.producer_id,
                    transaction_state=entry.state,
                )
            )
        if pace.over():
            yield
    return Response(error_code=code, unknown_state_filters=list(unknown_states), transaction_states=listed)
