"""AlterClientQuotas (49): sets and removes quotas of users, client ids and addresses. Executed in the store thread.

When the response is sent, all processes of this broker apply the changed quotas.
"""

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

from odradek.api.api import Api, Place
from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.elements import Elements
from odradek.api.guarding import (
    of_whole,
)
from odradek.controller.quotas import Edit, Quotas
from odradek.controller.store_errors import NotController, code_of
from odradek.controller.topics import Refusal
from odradek.metadata.store import StoreError
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import alter_client_quotas
from odradek.security.acl import Operation
from odradek.security.needs import (
    CLUSTER,
    CLUSTER_DENIED,
    need,
)
from odradek.stepwise import Pace, Steps

log = logging.getLogger("odradek.quotas")

Response = alter_client_quotas.Response
STEP = 20
API = Api(
    alter_client_quotas.SCHEMA,
    versions=(0, 1),
    place=Place.COORDINATOR,
    rights=need(Operation.ALTER_CONFIGS, CLUSTER, f"{CLUSTER_DENIED} for each entity"),
    refused=Elements(alter_client_quotas.SCHEMA, "entries.entity", "entries.entity"),
)
guard = of_whole(API)


def handle(request: alter_client_quotas.Request, call: CoordinatorCall) -> Steps:
    """Change each entity independently, a few per step."""
    quotas = Quotas(call.view.store, call.view.controller)
    enforced = call.view.quotas
    altered: list[dict[str, str | None]] = []
    names = [
        tuple(sorted((part.entity_type, part.entity_name or "") for part in entry.entity)) for entry in request.entries
    ]
    counts = Counter(names)
    response = Response()
    pace = Pace(STEP)
    for entry, name in zip(request.entries, names, strict=True):
        if pace.over():
            yield
        adds = any(not op.remove for op in entry.ops)
        room = enforced.check_room if enforced is not None and adds else _always_room
        result = _entry(entry, quotas, bool(request.validate_only), counts[name] > 1, room)
        response.entries.append(result)
        if result.error_code == ErrorCode.NONE:
            altered.append({part.entity_type: part.entity_name for part in entry.entity})
    if enforced is not None and altered and not request.validate_only:
        try:
            enforced.refresh(altered)
        except StoreError as error:
            log.error("cannot read the changed quotas: %s; they are enforced after the next change", error)
    return response


def _always_room() -> None:
    return None


def _entry(entry: Any, quotas: Quotas, validate_only: bool, repeated: bool, check_room: Callable[[], None]) -> Any:
    result = Response.EntryData(
        error_message=None,
        entity=[
            Response.EntityData(entity_type=part.entity_type, entity_name=part.entity_name) for part in entry.entity
        ],
    )
    try:
        duplicates = [key for key, count in Counter(op.key for op in entry.ops).items() if count > 1]
        if duplicates or repeated:
            what = f"the quota {duplicates[0]}" if duplicates else "the entity"
            raise Refusal(ErrorCode.INVALID_REQUEST, f"{what} is named more than once in the request".capitalize())
        check_room()
        quotas.alter(
            [(part.entity_type, part.entity_name) for part in entry.entity],
            [Edit(op.key, None if op.remove else op.value) for op in entry.ops],
            validate_only,
        )
    except Refusal as refusal:
        result.error_code, result.error_message = refusal.code, refusal.message
    except (StoreError, NotController) as error:
        result.error_code, result.error_message = code_of(error), str(error)
    return result
