"""InitProducerId (22): assigns a producer id. Executed by the coordinator, in its controller thread.

An idempotent producer gets a new id with epoch 0; its former id and epoch are ignored.

Transactions are not supported yet, so a transactional id is refused. FindCoordinator refuses it before; a client that sends
InitProducerId nevertheless gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED, because no client library retries after this error:
librdkafka retries after UNSUPPORTED_VERSION and INVALID_REQUEST.
"""

import logging
from typing import Any

from odradek.api.coordinator_call import CoordinatorCall
from odradek.controller.producer_ids import ProducerIdsExhausted
from odradek.metadata.store import StoreError
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import init_producer_id

log = logging.getLogger("odradek.requests")

NO_PRODUCER = -1


def handle(request: Any, call: CoordinatorCall) -> Any:
    """Assign an id that no producer had before, or return an error."""
    if request.transactional_id is not None:
        empty = request.transactional_id == ""
        return _refused(ErrorCode.INVALID_REQUEST if empty else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if (request.producer_id == NO_PRODUCER) != (request.producer_epoch == NO_PRODUCER):
        return _refused(ErrorCode.INVALID_REQUEST)
    try:
        producer_id = call.view.producer_ids.next()
    except StoreError as error:
        log.warning("cannot assign a producer id to %s; the client will retry: %s", call.client, error)
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    except ProducerIdsExhausted as error:
        log.error("cannot assign a producer id to %s: %s", call.client, error)
        return _refused(ErrorCode.UNKNOWN_SERVER_ERROR)
    return init_producer_id.Response(producer_id=producer_id, producer_epoch=0)


def _refused(code: ErrorCode) -> Any:
    return init_producer_id.Response(error_code=code, producer_id=NO_PRODUCER, producer_epoch=NO_PRODUCER)
