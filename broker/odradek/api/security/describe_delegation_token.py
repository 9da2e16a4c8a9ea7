"""DescribeDelegationToken (41): returns tokens with their HMACs. See `delegation_tokens`."""

from typing import Any

from odradek.api.api import Api, Guarded, Place
from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.security.delegation_tokens import is_allowed, joined, requester_of
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import describe_delegation_token
from odradek.security.acl import Operation, ResourceType
from odradek.security.delegation_token import Token, name_of
from odradek.security.needs import (
    TOKEN,
    USER,
    either,
)
from odradek.stepwise import Steps

API = Api(
    describe_delegation_token.SCHEMA,
    versions=(0, 3),
    place=Place.COORDINATOR,
    rights=either(
        (Operation.DESCRIBE, TOKEN),
        (Operation.DESCRIBE_TOKENS, USER),
        refused="other tokens are left out",
        note="not for tokens of which the client is owner, requester or renewer",
    ),
    guarded=Guarded.INSIDE,
)


def handle(request: describe_delegation_token.Request, call: CoordinatorCall) -> Steps:
    """Describe the tokens of the client, those that it may renew, and those for which it has a right. The response contains
    their HMACs: who may describe a token may use it."""
    make = describe_delegation_token.Response
    tokens = call.view.tokens
    if not is_allowed(call):
        return make(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if tokens is None:
        return make(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)

    def permitted(token: Token) -> bool:
        return call.permits.allows(
            Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id, quiet=True
        ) or call.permits.allows(Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner, quiet=True)

    owners = None if request.owners is None else joined(request.owners)
    found = yield from tokens.described(call.principal, owners, permitted)
    return make(tokens=[_described(token, tokens.hmac(token), call) for token in found])


def _described(token: Token, digest: bytes, call: CoordinatorCall) -> Any:
    make = describe_delegation_token.Response.DescribedDelegationToken
    kind, name = name_of(token.owner)
    return make(
        principal_type=kind,
        principal_name=name,
        **requester_of(call, token.requester),
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
