"""EndTxn (26): commits or aborts a transaction. Executed by the coordinator, in its loop.

With version 5, the producer gets a new epoch with every transaction (KIP-890), so a late request for an earlier transaction is
refused. With earlier versions it does not: a request that the network delays could end the next transaction of its producer.
Therefore a request on an older connection than the newest one of the producer is not executed
(docs/decisions/0031-transactions.md).
"""

from odradek.api.api import Api, Place
from odradek.api.guarding import (
    of_whole,
)
from odradek.api.transactions.transaction_call import Producer, TransactionCall, fenced_before
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import end_txn
from odradek.security.acl import Operation
from odradek.security.needs import (
    ID_DENIED,
    TXN,
    need,
)
from odradek.stepwise import Steps, waited

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
"""Errors after which it is not certain that the request passed the checks of producer id and epoch."""
Response = end_txn.Response
API = Api(
    end_txn.SCHEMA,
    versions=(0, 5),
    place=Place.TRANSACTIONS,
    rights=need(Operation.WRITE, TXN, ID_DENIED),
)
guard = of_whole(API)


def handle(request: end_txn.Request, call: TransactionCall) -> Steps:
    """Respond when the transaction is complete, or at the latest `Settings.end_wait_ms` after its outcome is durable."""
    with_epochs = call.version >= FIRST_WITH_EPOCHS
    producer = Producer(request.transactional_id, request.producer_id, request.producer_epoch)
    if not with_epochs and call.is_late("EndTxn", producer):
        return None
    version = 2 if with_epochs else 0
    code, producer_id, epoch = yield from waited(
        lambda then: call.view.coordinator.end(*producer, request.committed, version, then)
    )
    if not with_epochs and code not in REFUSED_PRODUCER:
        call.view.newest.note(producer, call.connection_id)
    response = Response(error_code=fenced_before(FIRST_WITH_FENCED, code, call.version))
    if with_epochs and code is ErrorCode.NONE:
        response.producer_id, response.producer_epoch = producer_id, epoch
    return response
