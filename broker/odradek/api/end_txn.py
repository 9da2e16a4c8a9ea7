"""EndTxn (26): commits or aborts a transaction. Executed by the coordinator, in its loop.

Version 5 gives the producer a new epoch with every transaction (KIP-890), so that a late request of an earlier transaction is
refused. Earlier versions do not: a request that was delayed in the network could end the next transaction of its producer. So
it is not executed if the producer has used a newer connection (docs/decisions/0031-transactions.md).
"""

from typing import Any

from odradek.api.transaction_call import Answer, TransactionCall, fenced_before
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import end_txn

FIRST_WITH_FENCED = 2
FIRST_WITH_EPOCHS = 5
REFUSED_PRODUCER = frozenset(
    (
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    )
)
"""Errors that do not show that the request passed the checks of producer id and epoch."""
Response = end_txn.Response


def handle(request: Any, call: TransactionCall, answer: Answer) -> None:
    """Answer when the decision is durable, and on a broker alone when the transaction is completed."""
    transactional_id = request.transactional_id
    with_epochs = call.version >= FIRST_WITH_EPOCHS
    newest = call.view.newest
    if not with_epochs and newest.is_older(transactional_id, call.connection_id):
        call.close(
            f"an EndTxn request for the transactional id {transactional_id!r} arrived after its producer had used"
            " a newer connection"
        )
        return

    def ended(code: ErrorCode, producer_id: int, epoch: int) -> None:
        if not with_epochs and code not in REFUSED_PRODUCER:
            newest.note(transactional_id, call.connection_id)
        response = Response(error_code=fenced_before(FIRST_WITH_FENCED, code, call.version))
        if with_epochs and code is ErrorCode.NONE:
            response.producer_id, response.producer_epoch = producer_id, epoch
        answer(response)

    call.view.coordinator.end(
        transactional_id,
        request.producer_id,
        request.producer_epoch,
        bool(request.committed),
        2 if with_epochs else 0,
        ended,
    )
