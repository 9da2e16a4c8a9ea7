"""AlterClientQuotas (49): sets and removes quotas of users, client ids and addresses. In the controller thread.

They are stored; nothing is throttled by them yet.
"""

from collections import Counter
from typing import Any

from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.stepwise import Pace, Steps
from odradek.controller.controller import NotController
from odradek.controller.quotas import Edit, Quotas
from odradek.controller.topics import Refusal
from odradek.metadata.store import NodeError, StoreError
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import alter_client_quotas

Response = alter_client_quotas.Response
STEP = 20


def handle(request: Any, call: CoordinatorCall) -> Steps:
    """Each entity for itself, a few at a step."""
    quotas = Quotas(call.view.store, call.view.controller)
    names = [
        tuple(sorted((one.entity_type, one.entity_name or "") for one in entry.entity)) for entry in request.entries
    ]
    counts = Counter(names)
    response = Response()
    pace = Pace(STEP)
    for entry, name in zip(request.entries, names, strict=True):
        if pace.over():
            yield
        response.entries.append(_entry(entry, quotas, bool(request.validate_only), counts[name] > 1))
    return response


def _entry(entry: Any, quotas: Quotas, validate_only: bool, again: bool) -> Any:
    told = Response.EntryData(
        error_message=None,
        entity=[Response.EntityData(entity_type=one.entity_type, entity_name=one.entity_name) for one in entry.entity],
    )
    try:
        twice = [key for key, count in Counter(op.key for op in entry.ops).items() if count > 1]
        if twice or again:
            what = f"the quota {twice[0]}" if twice else "the entity"
            raise Refusal(ErrorCode.INVALID_REQUEST, f"{what} is named more than once in the request".capitalize())
        quotas.alter(
            [(one.entity_type, one.entity_name) for one in entry.entity],
            [Edit(op.key, None if op.remove else op.value) for op in entry.ops],
            validate_only,
        )
    except Refusal as refusal:
        told.error_code, told.error_message = refusal.code, refusal.message
    except (StoreError, NotController) as error:
        retriable = isinstance(error, NotController | NodeError)
        told.error_code = ErrorCode.NOT_CONTROLLER if retriable else ErrorCode.KAFKA_STORAGE_ERROR
        told.error_message = str(error)
    return told
