"""AddOffsetsToTxn (25): adds the offsets of a group to a transaction. Executed by the coordinator, in its loop.

The partition of `__consumer_offsets` that has the group's offsets becomes a partition of the transaction.
"""

from odradek._ext.api.offset_commits import partition_for
from odradek.api.api import Api, Place
from odradek.api.guarding import (
    Asked,
    Refused,
    Verdict,
)
from odradek.api.transactions.transaction_call import Producer, TransactionCall, fenced_before
from odradek.controller.topic_names import CONSUMER_OFFSETS
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import add_offsets_to_txn
from odradek.security.acl import Operation
from odradek.security.needs import (
    GROUP,
    GROUP_DENIED,
    ID_DENIED,
    TXN,
    each,
)
from odradek.stepwise import Steps, waited

FIRST_WITH_FENCED = 2
Response = add_offsets_to_txn.Response
API = Api(
    add_offsets_to_txn.SCHEMA,
    versions=(0, 4),
    place=Place.TRANSACTIONS,
    rights=each((Operation.WRITE, TXN), (Operation.READ, GROUP), refused=f"{ID_DENIED}, {GROUP_DENIED}"),
)


def guard(asked: Asked) -> Verdict:
    """WRITE on the transactional id, READ on the group."""
    request, permits = asked.request, asked.permits
    if not permits.transactional_id(Operation.WRITE, request.transactional_id):
        return Refused(add_offsets_to_txn.Response(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    if not permits.group(Operation.READ, request.group_id):
        return Refused(add_offsets_to_txn.Response(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    return None


def handle(request: add_offsets_to_txn.Request, call: TransactionCall) -> Steps:
    """Respond when the log of the transactional id has the partition."""
    producer = Producer(request.transactional_id, request.producer_id, request.producer_epoch)
    if call.is_late("AddOffsetsToTxn", producer):
        return None
    partitions = call.view.offsets_partitions()
    if not partitions:  # the FindCoordinator request for the group creates the topic
        return Response(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    places = [(CONSUMER_OFFSETS, partition_for(request.group_id, partitions))]
    code, _ = yield from waited(
        lambda then: call.view.coordinator.add_partitions(*producer, places, 0, then, owner=call.owner)
    )
    if code is ErrorCode.NONE:
        call.view.newest.note(producer, call.connection_id)
    return Response(error_code=fenced_before(FIRST_WITH_FENCED, code, call.version))
