"""Over which connections delegation tokens may be managed, and what the handlers answer without a store."""

from types import SimpleNamespace

import pytest

from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.security import create_delegation_token as creating
from odradek.api.security import describe_delegation_token as describing
from odradek.api.security import expire_delegation_token as expiring
from odradek.api.security import renew_delegation_token as renewing
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import (
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)

LISTENERS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
NOT_ALLOWED, DISABLED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
REQUESTS = {
    creating.handle: create_delegation_token.Request(renewers=[], max_lifetime_ms=-1),
    renewing.handle: renew_delegation_token.Request(hmac=b"x", renew_period_ms=-1),
    expiring.handle: expire_delegation_token.Request(hmac=b"x", expiry_time_period_ms=-1),
    describing.handle: describe_delegation_token.Request(owners=None),
}


def code_of(handler, listener, principal, by_token):
    """The error code for a client of a broker without a secret key."""
    config = SimpleNamespace(listeners=[SimpleNamespace(protocol=protocol) for protocol in LISTENERS])
    call = CoordinatorCall(
        version=2,
        client_id=None,
        peer="127.0.0.1:1",
        principal=principal,
        listener_index=listener,
        view=SimpleNamespace(config=config, tokens=None),
        by_token=by_token,
    )
    answer = handler(REQUESTS[handler], call)
    if handler is describing.handle:
        with pytest.raises(StopIteration) as end:
            next(answer)
        answer = end.value.value
    return answer.error_code


@pytest.mark.parametrize("handler", REQUESTS)
@pytest.mark.parametrize(
    ("listener", "principal", "by_token", "allowed"),
    [
        (LISTENERS.index("PLAINTEXT"), "User:ANONYMOUS", False, False),
        (LISTENERS.index("SSL"), "User:ANONYMOUS", False, False),
        (LISTENERS.index("SSL"), "User:CN=alice", False, True),
        (LISTENERS.index("SASL_PLAINTEXT"), "User:alice", False, True),
        (LISTENERS.index("SASL_PLAINTEXT"), "User:alice", True, False),
        (LISTENERS.index("SASL_SSL"), "User:alice", False, True),
        (LISTENERS.index("SASL_SSL"), "User:alice", True, False),
        (len(LISTENERS), "User:alice", False, False),
        (-1, "User:alice", False, False),
    ],
)
def test_only_clients_that_are_authenticated_without_a_token_may_manage_tokens(
    handler, listener, principal, by_token, allowed
):
    assert code_of(handler, listener, principal, by_token) == (DISABLED if allowed else NOT_ALLOWED)
