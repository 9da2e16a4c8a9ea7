"""ExpireDelegationToken (40): lets a token expire earlier, or removes it. See `delegation_tokens`."""

from typing import Any

from odradek.api.api import Api, Guarded, Place
from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.security.delegation_tokens import OF_RENEWER, changed
from odradek.protocol.schemas import expire_delegation_token

API = Api(
    expire_delegation_token.SCHEMA,
    versions=(0, 2),
    place=Place.COORDINATOR,
    rights=OF_RENEWER,
    guarded=Guarded.INSIDE,
)


def handle(request: expire_delegation_token.Request, call: CoordinatorCall) -> Any:
    """Let a token expire earlier, or remove it."""
    return changed(
        expire_delegation_token.Response,
        call,
        lambda tokens: tokens.expire(call.principal, bytes(request.hmac), request.expiry_time_period_ms),
    )
