"""What the APIs of delegation tokens (KIP-48, KIP-373) share. Executed in the coordinator's store thread.

Any broker of a cluster serves them. The order of the checks is that of Kafka 4.3. A client that logged in with a token, or that
nobody authenticated, may not use them; a renewal or an expiry needs no right, but the client must be the owner or a renewer.
"""

from collections.abc import Callable
from typing import Any

from odradek.api.coordinator_call import CoordinatorCall
from odradek.controller.delegation_tokens import DelegationTokens
from odradek.controller.topics import Refusal
from odradek.protocol.errors import ErrorCode
from odradek.security.acl import ANONYMOUS
from odradek.security.delegation_token import name_of
from odradek.security.needs import Rights

FIRST_WITH_REQUESTER = 3  # of CreateDelegationToken and DescribeDelegationToken
NO_TIME = -1
"""As in Kafka, the times of responses with an error are -1 if no token was looked for, else 0."""
OF_RENEWER = Rights((), "DELEGATION_TOKEN_OWNER_MISMATCH", "the client must be the owner or a renewer of the token")


def is_allowed(call: CoordinatorCall) -> bool:
    """Whether the client may use tokens over its connection."""
    listeners = call.view.config.listeners
    if call.by_token or not 0 <= call.listener_index < len(listeners):
        return False
    protocol = listeners[call.listener_index].protocol
    return protocol != "PLAINTEXT" and not (protocol == "SSL" and call.principal == ANONYMOUS)


def joined(entries: Any) -> list[str]:
    """Principals of a request as text."""
    return [f"{entry.principal_type}:{entry.principal_name}" for entry in entries]


def requester_of(call: CoordinatorCall, principal: str | None = None) -> dict[str, str]:
    """The fields with the requester of a token, which older versions do not have. :param principal: None: the client."""
    if call.version < FIRST_WITH_REQUESTER:
        return {}
    kind, name = name_of(principal or call.principal)
    return {"token_requester_principal_type": kind, "token_requester_principal_name": name}


def changed(make: Any, call: CoordinatorCall, change: Callable[[DelegationTokens], int]) -> Any:
    """The response to a request that changes when a token expires. :param change: returns that time in ms; raises Refusal."""
    if not is_allowed(call):
        return make(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=NO_TIME)
    if call.view.tokens is None:
        return make(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    try:
        expires_ms = change(call.view.tokens)
    except Refusal as refusal:
        return make(error_code=refusal.code)
    return make(expiry_timestamp_ms=expires_ms)
