"""DescribeClientQuotas (48): returns the quotas of entities that match a filter. In the coordinator's store thread."""

from collections.abc import Sequence
from typing import Any

from odradek.api.api import Api, Place
from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.guarding import (
    of_whole,
)
from odradek.controller.quotas import Filter, Quotas
from odradek.controller.store_errors import code_of
from odradek.controller.topics import Refusal
from odradek.metadata.store import StoreError
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import describe_client_quotas
from odradek.quotas.quotas import CLIENT_ID, IP, USER
from odradek.security.acl import Operation
from odradek.security.needs import (
    CLUSTER,
    CLUSTER_DENIED,
    need,
)
from odradek.stepwise import Steps

EXACT, DEFAULT, ANY = range(3)
Response = describe_client_quotas.Response
API = Api(
    describe_client_quotas.SCHEMA,
    versions=(0, 1),
    place=Place.COORDINATOR,
    rights=need(Operation.DESCRIBE_CONFIGS, CLUSTER, CLUSTER_DENIED),
)
guard = of_whole(API)


def refuse(_request: describe_client_quotas.Request, _version: int, code: ErrorCode, message: str | None) -> Any:
    """See `odradek.api.api`."""
    return Response(error_code=code, error_message=message, entries=None)


def handle(request: describe_client_quotas.Request, call: CoordinatorCall) -> Steps:
    """The quotas of entities that match all components. A strict filter excludes entities with a part that it does not name."""
    try:
        filters = _filters(request.components)
        matches = yield from Quotas(call.view.store, call.view.controller).describe(filters, bool(request.strict))
    except Refusal as refusal:
        return Response(error_code=refusal.code, error_message=refusal.message, entries=None)
    except StoreError as error:
        return Response(error_code=code_of(error), error_message=str(error), entries=None)
    return Response(
        error_message=None,
        entries=[
            Response.EntryData(
                entity=[Response.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
                values=[Response.ValueData(key=key, value=value) for key, value in values.items()],
            )
            for entity, values in matches
        ],
    )


def _filters(components: Sequence[Any]) -> list[Filter]:
    """The filters of the request's components. Raises Refusal."""
    filters = [_filter(component) for component in components]
    kinds = [entry.entity_type for entry in filters]
    for kind in kinds:
        if kinds.count(kind) > 1:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Entity type {kind} cannot appear more than once in the filter.")
    if IP in kinds and len(kinds) > 1:
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            f"Invalid entity filter component combination: {IP} must not be used with {USER} or {CLIENT_ID}.",
        )
    return filters


def _filter(component: Any) -> Filter:
    kind, match = component.entity_type, component.match
    if not kind:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
    if kind not in (USER, CLIENT_ID, IP):
        raise Refusal(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
    if component.match_type == EXACT:
        if match is None:
            raise Refusal(
                ErrorCode.INVALID_REQUEST, "Request specified MATCH_TYPE_EXACT, but set match string to null."
            )
        return Filter(kind, match)
    if component.match_type not in (DEFAULT, ANY):
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}")
    if match is not None:
        name = "MATCH_TYPE_DEFAULT" if component.match_type == DEFAULT else "MATCH_TYPE_SPECIFIED"
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Request specified {name}, but also specified a match string.")
    return Filter(kind, None, component.match_type == ANY)
