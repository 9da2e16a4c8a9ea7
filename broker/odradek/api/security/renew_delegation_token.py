"""RenewDelegationToken (39): lets a token expire later. See `delegation_tokens`."""

from typing import Any

from odradek.api.api import Api, Guarded, Place
from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.security.delegation_tokens import OF_RENEWER, changed
from odradek.protocol.schemas import renew_delegation_token

API = Api(
    renew_delegation_token.SCHEMA,
    versions=(0, 2),
    place=Place.COORDINATOR,
    rights=OF_RENEWER,
    guarded=Guarded.INSIDE,
)


def handle(request: renew_delegation_token.Request, call: CoordinatorCall) -> Any:
    """Let a token expire later."""
    return changed(
        renew_delegation_token.Response,
        call,
        lambda tokens: tokens.renew(call.principal, bytes(request.hmac), request.renew_period_ms),
    )
