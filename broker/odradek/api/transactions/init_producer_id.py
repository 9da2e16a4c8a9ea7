"""InitProducerId (22): assigns a producer id and an epoch. Executed by the coordinator, in its loop.

An idempotent producer gets a new id with epoch 0; its former id and epoch are ignored. A transactional producer gets the
producer id of its transactional id with a new epoch, which fences earlier producers with the same transactional id.
"""

import logging
from typing import Any

from odradek.api.api import Api, Place
from odradek.api.guarding import (
    Asked,
    Verdict,
    VerdictInSteps,
    refused_whole,
)
from odradek.api.transactions.transaction_call import TransactionCall, fenced_before
from odradek.controller.producer_ids import ProducerIdsExhausted
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import init_producer_id
from odradek.security.acl import Operation
from odradek.security.needs import (
    CLUSTER,
    CLUSTER_DENIED,
    ID_DENIED,
    TOPIC,
    TXN,
    either,
)
from odradek.security.owners import owner_of
from odradek.stepwise import Steps, waited

log = logging.getLogger("odradek.requests")

NO_PRODUCER = -1
MAX_TIMEOUT_KEY = "transaction.max.timeout.ms"
FIRST_WITH_FENCED = 4
FIRST_WITH_TWO_PHASES = 6
Response = init_producer_id.Response
API = Api(
    init_producer_id.SCHEMA,
    versions=(0, 5),
    place=Place.TRANSACTIONS,
    rights=either(
        (Operation.WRITE, TXN),
        (Operation.IDEMPOTENT_WRITE, CLUSTER),
        (Operation.WRITE, TOPIC),
        refused=f"{ID_DENIED}; without a transactional id {CLUSTER_DENIED}",
        note="without a transactional id, WRITE on any topic is enough",
    ),
)


def guard(asked: Asked) -> Verdict | VerdictInSteps:
    """WRITE on the transactional id; without one IDEMPOTENT_WRITE on the cluster, or WRITE on at least one topic."""
    request, permits = asked.request, asked.permits
    if request.transactional_id is not None:
        if permits.transactional_id(Operation.WRITE, request.transactional_id):
            return None
        return refused_whole(API.key, asked, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if permits.cluster(Operation.IDEMPOTENT_WRITE, quiet=True) or permits.any_topic(Operation.WRITE):
        return None
    return refused_whole(API.key, asked, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def refuse(_request: init_producer_id.Request, _version: int, code: ErrorCode, _message: str | None) -> Any:
    """See `odradek.api.api`."""
    return init_producer_id.Response(error_code=code, producer_id=-1, producer_epoch=-1)


def handle(request: init_producer_id.Request, call: TransactionCall) -> Steps:
    """Respond when a producer id is available; for a transactional id, when its log has the new epoch."""
    if request.transactional_id == "" or (request.producer_id == NO_PRODUCER) != (
        request.producer_epoch == NO_PRODUCER
    ):
        return _refused(ErrorCode.INVALID_REQUEST)
    error = yield from waited(call.view.producer_ids.when_ready)
    if request.transactional_id is None:
        return _idempotent(error, call)
    # If the metadata store fails, only ids that need a new producer id are refused.
    return (yield from _transactional(request, request.transactional_id, call))


def _idempotent(error: Exception | None, call: TransactionCall) -> Any:
    producer_id = None if error is not None else call.view.producer_ids.next()
    if isinstance(error, ProducerIdsExhausted):
        log.error("cannot assign a producer id to %s: %s", call.client, error, extra=call.log_fields)
        return _refused(ErrorCode.UNKNOWN_SERVER_ERROR)
    if producer_id is None:
        log.warning(
            "cannot assign a producer id to %s; the client will retry: %s", call.client, error, extra=call.log_fields
        )
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return Response(producer_id=producer_id, producer_epoch=0)


def _transactional(request: init_producer_id.Request, transactional_id: str, call: TransactionCall) -> Steps:
    two_phases = call.version >= FIRST_WITH_TWO_PHASES
    code, producer_id, epoch = yield from waited(
        lambda then: call.view.coordinator.init_producer_id(
            transactional_id,
            request.transaction_timeout_ms,
            request.producer_id,
            request.producer_epoch,
            two_phases and request.enable2_pc,
            two_phases and request.keep_prepared_txn,
            then,
            call.client,
            owner_of(call.principal, call.address),
        )
    )
    if code is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        log.info(
            "refused the producer of %s with the transactional id %r: its transaction.timeout.ms is %d, and the broker allows 1"
            " to %d (transaction.max.timeout.ms)",
            call.client, transactional_id, request.transaction_timeout_ms,
            call.view.config.integer(MAX_TIMEOUT_KEY), extra=call.log_fields,
        )  # fmt: skip
    if code is not ErrorCode.NONE:
        return _refused(fenced_before(FIRST_WITH_FENCED, code, call.version))
    return Response(producer_id=producer_id, producer_epoch=epoch)


def _refused(code: ErrorCode) -> Any:
    return Response(error_code=code, producer_id=NO_PRODUCER, producer_epoch=NO_PRODUCER)
