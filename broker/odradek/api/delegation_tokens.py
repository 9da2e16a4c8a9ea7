"""CreateDelegationToken (38), RenewDelegationToken (39), ExpireDelegationToken (40), DescribeDelegationToken (41): KIP-48 and
KIP-373. Executed in the coordinator's store thread.

Any broker of a cluster serves them. The order of the checks is that of Kafka 4.3. A client that logged in with a token, or that
nobody authenticated, may not use them; a renewal or an expiry needs no right, but the client must be the owner or a renewer.
"""

from collections.abc import Callable
from typing import Any

from odradek.api.coordinator_call import CoordinatorCall
from odradek.controller.delegation_tokens import DelegationTokens
from odradek.controller.topics import Refusal
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import (
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)
from odradek.security.acl import ANONYMOUS, Operation, ResourceType
from odradek.security.delegation_token import USER, Token, name_of
from odradek.stepwise import Steps

FIRST_WITH_REQUESTER = 3  # of CreateDelegationToken and DescribeDelegationToken
NO_TIME = -1
"""As in Kafka, the times of responses with an error are -1 if no token was looked for, else 0."""
NO_TIMES = {"issue_timestamp_ms": NO_TIME, "expiry_timestamp_ms": NO_TIME, "max_timestamp_ms": NO_TIME}


def _is_allowed(call: CoordinatorCall) -> bool:
    """Whether the client may use tokens over its connection."""
    listeners = call.view.config.listeners
    if call.by_token or not 0 <= call.listener_index < len(listeners):
        return False
    protocol = listeners[call.listener_index].protocol
    return protocol != "PLAINTEXT" and not (protocol == "SSL" and call.principal == ANONYMOUS)


def _joined(entries: Any) -> list[str]:
    return [f"{entry.principal_type}:{entry.principal_name}" for entry in entries]


def _requester(call: CoordinatorCall, principal: str | None = None) -> dict[str, str]:
    """The fields with the requester of a token, which older versions do not have. :param principal: None: the client."""
    if call.version < FIRST_WITH_REQUESTER:
        return {}
    kind, name = name_of(principal or call.principal)
    return {"token_requester_principal_type": kind, "token_requester_principal_name": name}


def create(request: Any, call: CoordinatorCall) -> Any:
    """Create a token, for the client or, with CREATE_TOKENS on it, for another user."""
    make = create_delegation_token.Response
    owner_type, owner_name = name_of(call.principal)
    if request.owner_principal_name:
        owner_type, owner_name = request.owner_principal_type or "", request.owner_principal_name
    owner = f"{owner_type}:{owner_name}"

    def answer(**fields: Any) -> Any:
        fields |= _requester(call)
        return make(principal_type=owner_type, principal_name=owner_name, **fields)

    if not _is_allowed(call):
        return answer(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, **NO_TIMES)
    may_create = owner == call.principal or call.permits.allows(Operation.CREATE_TOKENS, ResourceType.USER, owner)
    if not may_create:
        return answer(error_code=ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, **NO_TIMES)
    if owner_type != USER or any(renewer.principal_type != USER for renewer in request.renewers):
        return answer(error_code=ErrorCode.INVALID_PRINCIPAL_TYPE, **NO_TIMES)
    tokens = call.view.tokens
    if tokens is None:
        return answer(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    try:
        token = tokens.create(owner, call.principal, _joined(request.renewers), request.max_lifetime_ms)
    except Refusal as refusal:
        return answer(error_code=refusal.code)
    return answer(
        issue_timestamp_ms=token.issued_ms,
        expiry_timestamp_ms=token.expires_ms,
        max_timestamp_ms=token.max_ms,
        token_id=token.token_id,
        hmac=tokens.hmac(token),
    )


def renew(request: Any, call: CoordinatorCall) -> Any:
    """Let a token expire later."""
    return _changed(
        renew_delegation_token.Response,
        call,
        lambda tokens: tokens.renew(call.principal, bytes(request.hmac), request.renew_period_ms),
    )


def expire(request: Any, call: CoordinatorCall) -> Any:
    """Let a token expire earlier, or remove it."""
    return _changed(
        expire_delegation_token.Response,
        call,
        lambda tokens: tokens.expire(call.principal, bytes(request.hmac), request.expiry_time_period_ms),
    )


def _changed(make: Any, call: CoordinatorCall, change: Callable[[DelegationTokens], int]) -> Any:
    """The response to a request that changes when a token expires. :param change: returns that time in ms; raises Refusal."""
    if not _is_allowed(call):
        return make(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=NO_TIME)
    if call.view.tokens is None:
        return make(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    try:
        expires_ms = change(call.view.tokens)
    except Refusal as refusal:
        return make(error_code=refusal.code)
    return make(expiry_timestamp_ms=expires_ms)


def describe(request: Any, call: CoordinatorCall) -> Steps:
    """Describe the tokens of the client, those that it may renew, and those for which it has a right. The response contains
    their HMACs: who may describe a token may use it."""
    make = describe_delegation_token.Response
    tokens = call.view.tokens
    if not _is_allowed(call):
        return make(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if tokens is None:
        return make(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)

    def permitted(token: Token) -> bool:
        return call.permits.allows(
            Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id, quiet=True
        ) or call.permits.allows(Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner, quiet=True)

    owners = None if request.owners is None else _joined(request.owners)
    found = yield from tokens.described(call.principal, owners, permitted)
    return make(tokens=[_described(token, tokens.hmac(token), call) for token in found])


def _described(token: Token, digest: bytes, call: CoordinatorCall) -> Any:
    make = describe_delegation_token.Response.DescribedDelegationToken
    kind, name = name_of(token.owner)
    return make(
        principal_type=kind,
        principal_name=name,
        **_requester(call, token.requester),
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=digest,
        renewers=[
            describe_delegation_token.Response.DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, name in map(name_of, token.renewers)
        ],
    )
