"""CreateDelegationToken (38): creates a token for the client or another user. See `delegation_tokens`."""

from typing import Any

from odradek.api.api import Api, Guarded, Place
from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.security.delegation_tokens import NO_TIME, is_allowed, joined, requester_of
from odradek.controller.topics import Refusal
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import create_delegation_token
from odradek.security.acl import Operation, ResourceType
from odradek.security.delegation_token import USER as USER_TYPE
from odradek.security.delegation_token import name_of
from odradek.security.needs import (
    TOKEN_DENIED,
    USER,
    need,
)

NO_TIMES = {"issue_timestamp_ms": NO_TIME, "expiry_timestamp_ms": NO_TIME, "max_timestamp_ms": NO_TIME}
API = Api(
    create_delegation_token.SCHEMA,
    versions=(0, 3),
    place=Place.COORDINATOR,
    rights=need(Operation.CREATE_TOKENS, USER, TOKEN_DENIED, "only for tokens of another owner"),
    guarded=Guarded.INSIDE,
    elements=200,
)


def handle(request: create_delegation_token.Request, call: CoordinatorCall) -> Any:
    """Create a token, for the client or, with CREATE_TOKENS on it, for another user."""
    make = create_delegation_token.Response
    owner_type, owner_name = name_of(call.principal)
    if request.owner_principal_name:
        owner_type, owner_name = request.owner_principal_type or "", request.owner_principal_name
    owner = f"{owner_type}:{owner_name}"

    def answer(**fields: Any) -> Any:
        fields |= requester_of(call)
        return make(principal_type=owner_type, principal_name=owner_name, **fields)

    if not is_allowed(call):
        return answer(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, **NO_TIMES)
    may_create = owner == call.principal or call.permits.allows(Operation.CREATE_TOKENS, ResourceType.USER, owner)
    if not may_create:
        return answer(error_code=ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, **NO_TIMES)
    if owner_type != USER_TYPE or any(renewer.principal_type != USER_TYPE for renewer in request.renewers):
        return answer(error_code=ErrorCode.INVALID_PRINCIPAL_TYPE, **NO_TIMES)
    tokens = call.view.tokens
    if tokens is None:
        return answer(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    try:
        token = tokens.create(owner, call.principal, joined(request.renewers), request.max_lifetime_ms)
    except Refusal as refusal:
        return answer(error_code=refusal.code)
    return answer(
        issue_timestamp_ms=token.issued_ms,
        expiry_timestamp_ms=token.expires_ms,
        max_timestamp_ms=token.max_ms,
        token_id=token.token_id,
        hmac=tokens.hmac(token),
    )
