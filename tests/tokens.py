"""Delegation tokens over `tests.sasl`."""

from __future__ import annotations

from typing import Any

from odradek.protocol.schemas import (
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)
from odradek.security.delegation_token import password_of
from odradek.security.sasl.client import Credentials
from tests.sasl import SaslWire

CREATE, RENEW, EXPIRE, DESCRIBE = 38, 39, 40, 41
USERS = {name: f"{name}-secret" for name in ("admin", "alice", "bob", "carol")}
PLAIN_USERS = "org.apache.kafka.common.security.plain.PlainLoginModule required {};".format(
    " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
)


def user(name: str) -> Credentials:
    """The login of a user of `PLAIN_USERS`."""
    return Credentials("PLAIN", name, USERS[name])


def login_of(token: Any, mechanism: str = "SCRAM-SHA-256") -> Credentials:
    """The login with a token, given the response that created it."""
    return Credentials(mechanism, token.token_id, password_of(bytes(token.hmac)), by_token=True)


class TokenWire(SaslWire):
    """A connection that manages tokens."""

    def create(
        self, *renewers: str, owner: str | None = None, kind: str = "User", lifetime: int = -1, version: int = 3
    ) -> Any:
        """CreateDelegationToken. :param kind: the type of the renewers."""
        make = create_delegation_token.Request
        entries = [make.CreatableRenewers(principal_type=kind, principal_name=name) for name in renewers]
        request = make(renewers=entries, max_lifetime_ms=lifetime)
        if owner is not None:
            request.owner_principal_type, _, request.owner_principal_name = owner.partition(":")
        return self.ask(request, CREATE, version)

    def renew(self, hmac: bytes, period: int = -1, version: int = 2) -> Any:
        """RenewDelegationToken."""
        request = renew_delegation_token.Request(hmac=bytes(hmac), renew_period_ms=period)
        return self.ask(request, RENEW, version)

    def expire(self, hmac: bytes, period: int = -1, version: int = 2) -> Any:
        """ExpireDelegationToken."""
        request = expire_delegation_token.Request(hmac=bytes(hmac), expiry_time_period_ms=period)
        return self.ask(request, EXPIRE, version)

    def describe(self, *owners: str, every: bool = True, version: int = 3) -> Any:
        """DescribeDelegationToken. :param every: without `owners`: all tokens, or those of no owner."""
        make = describe_delegation_token.Request
        named = [
            make.DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
            for kind, _, name in (owner.partition(":") for owner in owners)
        ]
        return self.ask(make(owners=None if every and not named else named), DESCRIBE, version)

    def ids(self, *owners: str) -> list[str]:
        """The ids of the tokens that DescribeDelegationToken returns, sorted."""
        response = self.describe(*owners)
        assert response.error_code == 0, response.error_code
        return sorted(token.token_id for token in response.tokens)
