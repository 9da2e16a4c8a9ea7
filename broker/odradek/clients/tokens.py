"""Delegation tokens over the wire (KIP-48, KIP-373). Functions over a `Cluster`, whose client has logged in as a user."""

import shlex
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from odradek.clients.errors import RefusedError
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import (
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)
from odradek.security.delegation_token import Token, name_of, password_of

if TYPE_CHECKING:
    from odradek.clients.cluster import Cluster

FIRST_WITH_OWNER = 3  # of CreateDelegationToken
NOW = -1
"""As the time to the expiry: remove the token."""


class SecretToken:
    """A token with its HMAC. ``password``: for the login with SCRAM."""

    def __init__(self, token: Token, digest: bytes) -> None:
        self.token = token
        self.digest = digest
        self.password = password_of(digest)

    def __repr__(self) -> str:
        return f"<SecretToken {self.token.token_id}>"


def create(cluster: "Cluster", owner: str | None, renewers: Collection[str], max_lifetime_ms: int) -> SecretToken:
    """Create a token. Raises ClientError.

    :param owner: such as "User:alice"; None: the client. :param max_lifetime_ms: -1: that of the broker.
    """
    make = create_delegation_token.Request
    entries = [
        make.CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in map(name_of, renewers)
    ]
    request = make(renewers=entries, max_lifetime_ms=max_lifetime_ms)
    oldest = 0
    if owner is not None:
        oldest = FIRST_WITH_OWNER
        request.owner_principal_type, request.owner_principal_name = name_of(owner)
    response = cluster.ask(create_delegation_token.SCHEMA, request, oldest=oldest)
    what = "cannot create a token" + (f" for {owner}" if owner is not None else "")
    if response.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED:
        client = _requester(response) or "the principal of this client"
        raise RefusedError(response.error_code, _missing_right(client, owner or client), what)
    _check(what, response)
    return SecretToken(
        Token(
            response.token_id,
            f"{response.principal_type}:{response.principal_name}",
            _requester(response),
            tuple(renewers),
            response.issue_timestamp_ms,
            response.max_timestamp_ms,
            response.expiry_timestamp_ms,
        ),
        bytes(response.hmac),
    )


def _missing_right(client: str, owner: str) -> str:
    """:param client: the principal that must have the right to create tokens of `owner`."""
    quoted = shlex.join(("--allow", client, "--user", owner))
    return (
        f"{client} has no right CREATE_TOKENS on {owner} ({ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED.name}); who may "
        f"alter the cluster can add it: odradek acl add {quoted} --operation create-tokens"
    )


def describe(cluster: "Cluster", owners: Collection[str] | None = None) -> list[SecretToken]:
    """The tokens that the client may see, oldest first. :param owners: only theirs, and those that they may renew; None: all.
    Raises ClientError."""
    make = describe_delegation_token.Request
    named = None
    if owners is not None:
        named = [
            make.DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
            for kind, name in map(name_of, owners)
        ]
    response = cluster.ask(describe_delegation_token.SCHEMA, make(owners=named))
    _check("cannot read the tokens", response)
    tokens = [
        SecretToken(
            Token(
                token.token_id,
                f"{token.principal_type}:{token.principal_name}",
                _requester(token),
                tuple(f"{renewer.principal_type}:{renewer.principal_name}" for renewer in token.renewers),
                token.issue_timestamp,
                token.max_timestamp,
                token.expiry_timestamp,
            ),
            bytes(token.hmac),
        )
        for token in response.tokens
    ]
    return sorted(tokens, key=lambda one: (one.token.issued_ms, one.token.token_id))


def renew(cluster: "Cluster", token: SecretToken, period_ms: int) -> int:
    """Renew a token; returns when it expires. :param period_ms: from now; -1: that of the broker. Raises ClientError."""
    request = renew_delegation_token.Request(hmac=token.digest, renew_period_ms=period_ms)
    response = cluster.ask(renew_delegation_token.SCHEMA, request)
    _check(f"cannot renew the token {token.token.token_id}", response)
    return int(response.expiry_timestamp_ms)


def expire(cluster: "Cluster", token: SecretToken, period_ms: int = NOW) -> int:
    """Let a token expire; returns when it does. :param period_ms: from now; `NOW`: remove it. Raises ClientError."""
    request = expire_delegation_token.Request(hmac=token.digest, expiry_time_period_ms=period_ms)
    response = cluster.ask(expire_delegation_token.SCHEMA, request)
    _check(f"cannot expire the token {token.token.token_id}", response)
    return int(response.expiry_timestamp_ms)


def _requester(value: Any) -> str:
    kind, name = value.token_requester_principal_type, value.token_requester_principal_name
    return f"{kind}:{name}" if kind else ""  # brokers before Kafka 3.3 do not say it


def _check(what: str, response: Any) -> None:
    if response.error_code:
        raise RefusedError(response.error_code, None, what)
