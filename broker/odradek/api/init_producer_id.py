"""InitProducerId (22). Executed by the coordinator, in its controller thread.

Gives an idempotent producer its id, with epoch 0; the id and epoch that it may have had do not matter then.

Transactions are not supported yet, so a transactional id is refused. FindCoordinator has refused it already; a client that
sends InitProducerId all the same gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED, for which no client library repeats the request:
librdkafka repeats it for UNSUPPORTED_VERSION and INVALID_REQUEST.
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
    """An id that no producer had before, or an error."""
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
